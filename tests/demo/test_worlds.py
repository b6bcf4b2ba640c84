"""Pictures and bodies: CarRacing's patches and backgrounds, the ant and its sticks."""

import contextlib
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sensorium.demo import dropped
from sensorium.demo.messages import CHANGES, Message, unpack
from sensorium.errors import ConfigError, MessageError
from sensorium.perturbations import MODIFICATIONS, Background, compose

DRIVER = "carracing-attention-agent"


def say(session, do, value=None):
    return session.act(Message(do, 1, value))


def look(session):
    header, arrays = unpack(session.frame())
    return header | arrays


def file_of(picture, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind)
    return file.getvalue()


def test_the_driver_drives_and_is_blind_once_patches_are_shuffled(sit):
    session = sit(DRIVER)
    session.advance(200)
    seen = look(session)
    assert seen["lead"]["total"] > 100
    assert seen["picture"].shape == (96, 96, 3)
    assert "arrived" not in seen  # as it is
    assert seen["looked"].shape == (len(session.about()["corners"]),)
    assert seen["looked"].sum() == pytest.approx(529, rel=1e-3)
    say(session, "shuffle")
    session.advance(200)
    after = look(session)
    assert after["lead"]["total"] - seen["lead"]["total"] < 60
    assert not np.array_equal(after["arrived"], after["picture"])


def test_a_driver_without_places_drives_on_when_patches_are_shuffled(sit):
    session = sit("carracing-pi", wiring=7)
    session.advance(200)
    before = look(session)["lead"]["total"]
    say(session, "shuffle")
    session.advance(200)
    after = look(session)
    assert not np.array_equal(after["arrived"], after["picture"])
    assert before > 100
    assert after["lead"]["total"] - before > 100


def test_patches_are_hidden_and_backgrounds_painted(sit):
    session = sit(DRIVER, occlude=50)
    session.advance(60)
    assert look(session)["hidden"].sum() == 128
    say(session, "set", {"occlude": 0, "hidden": (17, 18)})
    session.advance(1)
    seen = look(session)
    assert list(np.flatnonzero(seen["hidden"])) == [17, 18]
    assert not seen["arrived"][6:12, 6:18].any()
    mine = np.full((96, 96, 3), (10, 20, 250), np.uint8)
    session.drop(mine)
    session.advance(1)
    assert session.controls.background == "dropped"
    assert (look(session)["arrived"] == mine).all(-1).mean() > 0.3
    say(session, "set", {"background": "waves"})
    session.advance(1)
    assert (look(session)["arrived"] == mine).all(-1).mean() < 0.01
    with pytest.raises(ConfigError, match="no wires"):
        say(session, "set", {"noise": 3})


def test_pictures_are_changed_as_the_package_changes_them(sit):
    """What arrives is what `MODIFICATIONS` of the same name makes of the picture, in their order."""
    session = sit(DRIVER, seed=5)
    assert set(CHANGES) == {"", *MODIFICATIONS} - {"noise"}
    key, shape = jax.random.key(5), (96, 96, 3)
    for name in CHANGES[1:]:
        session.advance(1)
        picture = look(session)["picture"]
        say(session, "set", {"modify": name, "background": "", "hidden": ()})
        session.advance(1)  # the agent hears the picture that was there before the step
        change = MODIFICATIONS[name]
        expected, _ = change.apply(key, change.init(key, shape), jnp.asarray(picture))
        np.testing.assert_array_equal(look(session)["arrived"], expected)
        assert not np.array_equal(expected, picture), name
        say(session, "set", {"background": "hills", "hidden": (0,)})
        before = jnp.asarray(look(session)["picture"])
        session.advance(1)
        whole = compose(Background("hills"), change)
        expected, _ = whole.apply(key, (jnp.zeros((), int), change.init(key, shape)), before)
        np.testing.assert_array_equal(
            look(session)["arrived"][6:], np.asarray(expected)[6:], err_msg=name
        )
        assert not look(session)["arrived"][:6, :6].any()


def test_the_ant_walks_with_shuffled_senses_and_its_rival_does_not(sit):
    pytest.importorskip(
        "pybullet", reason="the ant needs PyBullet, which has wheels for Python 3.11"
    )
    session = sit("ant-pi-large", wiring=7)
    session.advance(1)
    start = look(session)["body"]
    assert start.shape == (13, 3)
    session.advance(300)
    seen = look(session)
    assert seen["lead"]["total"] > 300
    assert seen["rival"]["total"] < 150
    assert seen["body"][0, 0] > start[0, 0] + 2  # m, ahead
    reach = np.linalg.norm(seen["body"][1:] - seen["body"][0], axis=1)
    np.testing.assert_allclose(reach[::3], 0.283, atol=0.02)  # hips, on a torso of that size
    session._stage.push(1.0)
    session.advance(2)


def test_pictures_are_cut_to_fill(monkeypatch):
    wide = np.zeros((50, 200, 3), np.uint8)
    wide[:, 75:125] = 200
    for kind in ("PNG", "JPEG", "WEBP", "BMP", "GIF"):
        picture = dropped.decode(file_of(wide, kind), 96, 96)
        assert picture.shape == (96, 96, 3)
        assert picture[20:70, 20:70].mean() == pytest.approx(200, abs=4)
    monkeypatch.setattr(dropped, "_MOST_PIXELS", 9_999)
    with pytest.raises(MessageError, match="pixels"):
        dropped.decode(file_of(wide), 96, 96)
    monkeypatch.setattr(dropped, "LARGEST_FILE", 10)
    with pytest.raises(MessageError, match="MB"):
        dropped.decode(file_of(wide), 96, 96)


def test_pictures_that_unfold_without_end_are_refused():
    bomb = io.BytesIO()
    Image.new("1", (40_000, 30_000)).save(bomb, "PNG")
    assert len(bomb.getvalue()) < dropped.LARGEST_FILE
    with pytest.raises(MessageError, match=r"pixels|unfolds|no picture"):
        dropped.decode(bomb.getvalue(), 96, 96)


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
def test_no_file_does_harm(data):
    with contextlib.suppress(MessageError):
        assert dropped.decode(data, 12, 12).shape == (12, 12, 3)
