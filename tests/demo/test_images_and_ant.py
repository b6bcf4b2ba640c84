"""CarRacing's patches and backgrounds, uploads, and the ant."""

import contextlib
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sensorium.demo import upload
from sensorium.demo.messages import CHANGES, Message, unpack
from sensorium.errors import ConfigError, MessageError
from sensorium.perturbations import MODIFICATIONS, Background, compose

AGENT = "carracing-attention-agent"


def send(session, do, value=None):
    return session.handle(Message(do, 1, value))


def look(session):
    header, arrays = unpack(session.frame())
    return header | arrays


def file_of(image, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind)
    return file.getvalue()


def test_attention_agent_drives_and_fails_once_patches_are_shuffled(start):
    session = start(AGENT)
    session.advance(200)
    seen = look(session)
    assert seen["agent"]["total"] > 100
    assert seen["image"].shape == (96, 96, 3)
    assert "arrived" not in seen  # as it is
    assert seen["importance"].shape == (len(session.about()["corners"]),)
    assert seen["importance"].sum() == pytest.approx(529, rel=1e-3)
    send(session, "shuffle")
    session.advance(200)
    after = look(session)
    assert after["agent"]["total"] - seen["agent"]["total"] < 60
    assert not np.array_equal(after["arrived"], after["image"])


def test_an_agent_of_contents_drives_on_when_patches_are_shuffled(start):
    session = start("carracing-pi", wiring=7)
    session.advance(200)
    before = look(session)["agent"]["total"]
    send(session, "shuffle")
    session.advance(200)
    after = look(session)
    assert not np.array_equal(after["arrived"], after["image"])
    assert before > 100
    assert after["agent"]["total"] - before > 100


def test_patches_are_hidden_and_backgrounds_painted(start):
    session = start(AGENT, occlude=50)
    session.advance(60)
    assert look(session)["hidden"].sum() == 128
    send(session, "set", {"occlude": 0, "hidden": (17, 18)})
    session.advance(1)
    seen = look(session)
    assert list(np.flatnonzero(seen["hidden"])) == [17, 18]
    assert not seen["arrived"][6:12, 6:18].any()
    mine = np.full((96, 96, 3), (10, 20, 250), np.uint8)
    session.upload(mine)
    session.advance(1)
    assert session.controls.background == "upload"
    assert (look(session)["arrived"] == mine).all(-1).mean() > 0.3
    send(session, "set", {"background": "waves"})
    session.advance(1)
    assert (look(session)["arrived"] == mine).all(-1).mean() < 0.01
    with pytest.raises(ConfigError, match="no channels"):
        send(session, "set", {"noise": 3})


def test_images_are_modified_as_the_package_does(start):
    """What arrives is what `MODIFICATIONS` of the same name makes of the image, in their order."""
    session = start(AGENT, seed=5)
    assert set(CHANGES) == {"", *MODIFICATIONS} - {"noise"}
    key = jax.random.key(5)
    for name in CHANGES[1:]:
        session.advance(1)
        image = look(session)["image"]
        send(session, "set", {"modify": name, "background": "", "hidden": ()})
        session.advance(1)  # the agent gets the image from before the step
        change = MODIFICATIONS[name]
        state = session._rewired.state[2][1][CHANGES.index(name)]
        expected, _ = change.apply(key, state, jnp.asarray(image))
        np.testing.assert_array_equal(look(session)["arrived"], expected)
        assert not np.array_equal(expected, image), name
        send(session, "set", {"background": "hills", "hidden": (0,)})
        before = jnp.asarray(look(session)["image"])
        session.advance(1)
        whole = compose(Background("hills"), change)
        expected, _ = whole.apply(key, (jnp.zeros((), int), state), before)
        np.testing.assert_array_equal(
            look(session)["arrived"][6:], np.asarray(expected)[6:], err_msg=name
        )
        assert not look(session)["arrived"][:6, :6].any()


def test_the_ant_walks_with_shuffled_sensors_and_the_baseline_does_not(start):
    pytest.importorskip(
        "pybullet", reason="the ant needs PyBullet, which has wheels for Python 3.11"
    )
    session = start("ant-pi-evolved", wiring=7)
    session.advance(1)
    start = look(session)["pose"]
    assert start.shape == (13, 3)
    session.advance(300)
    seen = look(session)
    assert seen["agent"]["total"] > 300
    assert seen["baseline"]["total"] < 150
    assert seen["pose"][0, 0] > start[0, 0] + 2  # m, ahead
    reach = np.linalg.norm(seen["pose"][1:] - seen["pose"][0], axis=1)
    np.testing.assert_allclose(reach[::3], 0.283, atol=0.02)  # hips, on a torso of that size
    session._episode.push(1.0)
    session.advance(2)


def test_images_are_cut_to_fill(monkeypatch):
    wide = np.zeros((50, 200, 3), np.uint8)
    wide[:, 75:125] = 200
    for kind in ("PNG", "JPEG", "WEBP", "BMP", "GIF"):
        image = upload.decode(file_of(wide, kind), 96, 96)
        assert image.shape == (96, 96, 3)
        assert image[20:70, 20:70].mean() == pytest.approx(200, abs=4)
    monkeypatch.setattr(upload, "_MOST_PIXELS", 9_999)
    with pytest.raises(MessageError, match="pixels"):
        upload.decode(file_of(wide), 96, 96)
    monkeypatch.setattr(upload, "LARGEST_FILE", 10)
    with pytest.raises(MessageError, match="MB"):
        upload.decode(file_of(wide), 96, 96)


def test_decompression_bombs_are_refused():
    bomb = io.BytesIO()
    Image.new("1", (40_000, 30_000)).save(bomb, "PNG")
    assert len(bomb.getvalue()) < upload.LARGEST_FILE
    with pytest.raises(MessageError, match=r"pixels|too large|no image"):
        upload.decode(bomb.getvalue(), 96, 96)


HEADS = st.sampled_from(
    [file_of(np.zeros((9, 9, 3), np.uint8), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP")]
)


@settings(max_examples=200)
@given(
    st.binary(max_size=80)
    | st.tuples(HEADS, st.integers(0, 200), st.binary(max_size=9)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 2 :]
    )
)
def test_any_file_is_decoded_or_refused(data):
    with contextlib.suppress(MessageError):
        assert upload.decode(data, 12, 12).shape == (12, 12, 3)
