"""What happens to images: each perturbation does what it says, and to nothing else."""

import itertools

import imageio.v2 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sensorium.envs import CarRacing
from sensorium.errors import ConfigError, UnknownNameError
from sensorium.flags import PerturbationFlags
from sensorium.perturbations import (
    SCENES,
    Background,
    Bars,
    Blob,
    Colour,
    FakeLane,
    HideRows,
    NoiseBackground,
    Occlude,
    OneOf,
    RandomBackground,
    RandomConvolution,
    Shuffle,
    ShufflePatches,
    check_perturbation,
    compose,
)
from sensorium.perturbations.patches import from_patches, to_patches
from sensorium.policies import (
    AttentionAgentConfig,
    ConvolutionalConfig,
    VisionAttentionNeuronConfig,
)

SHAPE = (96, 96, 3)
ALL = [
    ShufflePatches(),
    ShufflePatches(every=2),
    Occlude(0.4),
    HideRows(),
    Background("hills"),
    NoiseBackground(),
    Colour(),
    Colour(each_channel=True),
    Bars(),
    Blob(),
    FakeLane(),
    RandomConvolution(),
    RandomBackground(),
    OneOf((Bars(), Colour(), ShufflePatches(every=2))),
    compose(HideRows(), Background("mosaic"), Occlude(), ShufflePatches(8)),
]
GRASS, LIGHT_GRASS = (100, 202, 100), (100, 228, 100)


@pytest.fixture(scope="module")
def frame():
    """What CarRacing shows once the camera is down: road, both greens, the car and the bar."""
    world = CarRacing()
    _, state = world.reset(jax.random.key(0))
    for step in range(60):
        image, state, *_ = world.step(jax.random.key(step), state, jnp.array([0.0, -1.0, -1.0]))
    return np.asarray(image)


def show(perturbation, frame, steps=1, seed=0):
    key = jax.random.key(seed)
    state = perturbation.init(key, frame.shape)
    shown = []
    for step in range(steps):
        image, state = perturbation.apply(jax.random.fold_in(key, step), state, jnp.asarray(frame))
        shown.append(np.asarray(image))
    return shown


def is_grass(frame):
    """Gymnasium's rounding darkens colours by 2."""
    greens = (GRASS, LIGHT_GRASS)
    return np.logical_or(*((np.abs(frame.astype(int) - green) <= 3).all(-1) for green in greens))


@pytest.mark.parametrize("perturbation", ALL, ids=str)
def test_contract(perturbation):
    check_perturbation(perturbation, SHAPE)


@pytest.mark.parametrize("perturbation", ALL, ids=str)
def test_floats_are_treated_as_bytes_are(perturbation, frame):
    (bytes_,), (floats,) = (show(perturbation, frame.astype(t)) for t in (np.uint8, np.float32))
    assert floats.dtype == np.float32
    np.testing.assert_allclose(floats, bytes_, atol=0.5)


@settings(max_examples=20, deadline=None)
@given(
    size=st.sampled_from([2, 3, 4, 6]),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_patches_can_be_put_together_again(size, rows, columns, seed):
    shape = (rows * size, columns * size, 3)
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    patches = to_patches(jnp.asarray(image), size)
    assert patches.shape == (rows * columns, size, size, 3)
    np.testing.assert_array_equal(patches[0], image[:size, :size])
    np.testing.assert_array_equal(from_patches(patches, *shape[:2]), image)


def patches_of(image):
    return sorted(patch.tobytes() for patch in np.asarray(to_patches(jnp.asarray(image), 6)))


def test_shuffled_patches_are_the_same_patches_for_an_episode(frame):
    shown = show(ShufflePatches(), frame, 3)
    assert (shown[0] != frame).any()
    assert all((image == shown[0]).all() for image in shown)
    assert patches_of(shown[0]) == patches_of(frame)
    assert (show(ShufflePatches(), frame, seed=1)[0] != shown[0]).any()


def test_reshuffled_patches_change_when_it_is_time(frame):
    shown = show(ShufflePatches(every=3), frame, 9)
    assert all((shown[step] == shown[step - step % 3]).all() for step in range(9))
    assert (shown[3] != shown[0]).any()
    assert (shown[6] != shown[3]).any()
    assert patches_of(shown[6]) == patches_of(frame)


def test_occlusion_hides_that_share():
    white = np.full(SHAPE, 255, np.uint8)
    (shown,) = show(Occlude(0.25), white)
    patches = np.asarray(to_patches(jnp.asarray(shown), 6)).reshape(256, -1)
    assert ((patches == 0).all(1) | (patches == 255).all(1)).all()
    assert (patches == 0).all(1).sum() == 64


def test_what_is_removed_is_not_there():
    """An agent of patches acts as if its list were shorter; other agents see black."""
    image = np.random.default_rng(0).integers(1, 256, SHAPE, np.uint8)
    removed, black = (show(Occlude(0.25, removed=gone), image, 2)[1] for gone in (True, False))
    assert removed.dtype == np.float32
    np.testing.assert_array_equal(np.nan_to_num(removed), black)
    patches = np.asarray(to_patches(jnp.asarray(removed), 6)).reshape(256, -1)
    assert np.isnan(patches).all(1).sum() == np.isnan(patches).any(1).sum() == 64
    policy = VisionAttentionNeuronConfig(num_queries=64, top=5).build(SHAPE, 3, jax.random.key(0))
    grey, carry = jnp.asarray(removed[..., :1]), policy.initial_carry((96, 96, 1))
    code, _, trace = policy.encode(grey, carry)
    gone = np.isnan(patches).all(1)
    assert not np.asarray(trace.attention)[:, gone].any()
    there = policy.layer.split(jnp.broadcast_to(grey[..., 0], (4, 96, 96)) / 255)[~gone]
    np.testing.assert_allclose(code, policy.layer.attend(there, jnp.zeros(3))[0], atol=1e-5)
    policy(removed, carry)  # is checked
    small = ConvolutionalConfig(channels=(2,), windows=(8,), strides=(8,), hidden_sizes=())
    for config in (small, AttentionAgentConfig(top=5)):
        agent = config.build(SHAPE, 3, jax.random.key(0))
        actions = [agent(each, agent.initial_carry(SHAPE))[0] for each in (removed, black)]
        np.testing.assert_allclose(*actions, atol=1e-5)


def test_an_agent_of_patches_sees_the_same_in_any_order(frame):
    # Exactly what AN section 4.4 claims, of an agent with random weights
    policy = VisionAttentionNeuronConfig(num_queries=64, top=5).build(SHAPE, 3, jax.random.key(0))
    actions = []
    for order in (compose(), ShufflePatches()):
        perturbation = compose(HideRows(policy.hidden_rows), order)
        carry = policy.initial_carry(SHAPE)
        for shown in show(perturbation, frame, 3):
            action, carry = policy(shown, carry)
        actions.append(np.asarray(action))
    np.testing.assert_allclose(actions[0], actions[1], atol=1e-5)


def test_backgrounds_replace_the_grass_and_nothing_else(frame):
    grass = is_grass(frame)
    assert grass[:84].mean() > 0.5
    for perturbation in (Background("waves"), NoiseBackground(), RandomBackground()):
        (shown,) = show(perturbation, frame)
        assert (shown[~grass] == frame[~grass]).all()
        assert (shown[grass] != frame[grass]).any(1).mean() > 0.99


def test_noise_is_new_every_step(frame):
    first, second = show(NoiseBackground(), frame, 2)
    assert (first != second)[is_grass(frame)].any(1).mean() > 0.99


def test_a_random_background_stays_for_an_episode_and_is_another_in_the_next(frame):
    grass, images = is_grass(frame), []
    for seed in range(8):
        first, second = show(RandomBackground(), frame, 2, seed)
        assert (first == second).all()
        images.append(first[grass].astype(float))
    apart = [np.abs(a - b).mean() for a, b in itertools.combinations(images, 2)]
    assert min(apart) > 10
    # From flat to busy, from darker than the road to brighter than the grass
    spread, brightness = ([getattr(image, what)() for image in images] for what in ("std", "mean"))
    assert min(spread) < 10
    assert max(spread) > 40
    assert min(brightness) < 102
    assert max(brightness) > 170


def test_every_scene_is_of_its_own(frame):
    shown = [show(Background(scene), frame)[0].tobytes() for scene in SCENES]
    assert len(set(shown)) == len(SCENES) >= 4


def test_a_folder_gives_each_episode_a_image(tmp_path, frame):
    for number, colour in enumerate([(255, 0, 0), (0, 0, 255)]):
        Image.new("RGB", (20, 10), colour).save(tmp_path / f"{number}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    grass, seen = is_grass(frame), set()
    for seed in range(10):
        first, second = show(Background(str(tmp_path)), frame, 2, seed)
        assert (first == second).all()
        assert (first[grass] == first[grass][0]).all()
        seen.add(tuple(map(int, first[grass][0])))
    assert seen == {(255, 0, 0), (0, 0, 255)}


def test_a_video_goes_on(tmp_path, frame):
    path = tmp_path / "film.gif"
    levels = (40, 90, 140, 190)
    imageio.mimsave(path, [np.full((12, 12, 3), level, np.uint8) for level in levels])
    grass = is_grass(frame)
    shown = [int(image[grass][0, 0]) for image in show(Background(str(path)), frame, 8)]
    begin = levels.index(shown[0])
    assert shown == [levels[(begin + step) % 4] for step in range(8)]


def test_colour_moves_road_and_grass_but_not_the_car(frame):
    (shown,) = show(Colour(), frame, seed=3)
    change = shown.astype(int) - frame
    bar = (np.arange(96) >= 84)[:, None]
    road = (np.abs(frame - 102.5) < 4).all(-1) & ~bar
    base = (frame == GRASS).all(-1)
    for place in (road, base):
        assert place.sum() > 50
        assert np.ptp(change[place]) <= 1
        assert 0 < abs(change[place][0, 0]) <= 51
    assert change[road][0, 0] != change[base][0, 0]
    others = (frame == LIGHT_GRASS).all(-1) | bar
    car = (frame[..., 0] > 110) & (frame[..., 1] < 90)
    assert car.sum() > 3
    assert (change[others | car] == 0).all()
    (three,) = show(Colour(each_channel=True), frame, seed=3)
    assert len({int(value) for value in (three.astype(int) - frame)[base][0]}) == 3


def test_bars_and_blob_cover_their_places(frame):
    (bars,), (blob,) = show(Bars(), frame), show(Blob(), frame)
    assert (bars[:84, :7] == 0).all()
    assert (bars[:84, -7:] == 0).all()
    assert (bars[:84, 8:-8] == frame[:84, 8:-8]).all()
    assert (bars[84:] == frame[84:]).all()
    assert (blob[42:57, 81:93] == (204, 0, 0)).all()
    outside = np.ones(SHAPE[:2], bool)
    outside[41:58, 80:94] = False
    assert (blob[outside] == frame[outside]).all()


def test_flags_mean_patches_where_there_are_images():
    assert PerturbationFlags(shuffle=True).build(SHAPE) == ShufflePatches()
    assert PerturbationFlags(reshuffle_every=25).build(SHAPE) == ShufflePatches(every=25)
    assert PerturbationFlags(shuffle=True).build(5) == Shuffle()
    asked = PerturbationFlags(background="hills", modify="bars", occlude=0.2, shuffle=True).build(
        SHAPE
    )
    assert str(asked) == "background hills + bars + 20% occluded + shuffled"
    assert PerturbationFlags(remove_patches=0.4).build(SHAPE) == Occlude(0.4, removed=True)


def written(path, mode):
    Image.new(mode, (8, 8)).save(path)
    return str(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda _: ShufflePatches(7).output_spec(SHAPE),
            "7 pixels do not divide .* 96 x 96; 6 would",
        ),
        (lambda _: ShufflePatches(0).output_spec(SHAPE), "0 pixels do not divide .*; 1 would"),
        (lambda _: ShufflePatches(every=-1), "every must be at least 0"),
        (lambda _: Occlude(30.0), "got 30; say 0.3 for 30%"),
        (
            lambda _: Occlude(0.999).output_spec(SHAPE),
            "0.999 of 256 patches would leave none; .* 0.996",
        ),
        (lambda _: Occlude(1.2), "from 0 to less than 1 .*, got 1.2"),
        (lambda _: HideRows(96).output_spec(SHAPE), "Cannot hide 96 of the 96 rows"),
        (
            lambda _: ShufflePatches().output_spec(5),
            "'shuffled' happens to images .* not to 5 scalar",
        ),
        (
            lambda _: Shuffle().output_spec(SHAPE),
            r"happens to scalar sensors and entities, not to .* \(96, 96, 3\)",
        ),
        (lambda _: Colour().output_spec((96, 96, 1)), "red, green and blue, not of 1 channel"),
        (lambda _: ShufflePatches().sensor_of_channel((), SHAPE), "no scalar sensors to name"),
        (lambda tmp: Background(str(tmp)).output_spec(SHAPE), "nothing to use as background"),
        (
            lambda tmp: Background(str(tmp / "no.png")).output_spec(SHAPE),
            "There is no file .*no.png",
        ),
        (lambda tmp: Background(written(tmp / "a.png", "RGBA")).output_spec(SHAPE), "RGBA; .* RGB"),
        (lambda tmp: Background(written(tmp / "l.png", "L")).output_spec(SHAPE), "mode L; .* RGB"),
    ],
)
def test_impossible_settings_get_one_sentence(make, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        make(tmp_path)


@pytest.mark.parametrize("name", ["broken.png", "broken.mp4", "broken.gif"])
def test_files_that_cannot_be_read_get_one_sentence(name, tmp_path):
    (tmp_path / name).write_bytes(b"this is not an image" * 20)
    with pytest.raises(ConfigError, match=rf"{name} (is not an image|cannot be read)"):
        Background(str(tmp_path / name)).output_spec(SHAPE)


def test_a_truncated_image_gets_one_sentence(tmp_path):
    path = tmp_path / "half.png"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ConfigError, match=r"half.png (is not an image|cannot be read)"):
        Background(str(path)).output_spec(SHAPE)


def test_unknown_names_get_the_nearest():
    with pytest.raises(UnknownNameError, match="hills"):
        Background("hill").output_spec(SHAPE)
    with pytest.raises(UnknownNameError, match="blob"):
        PerturbationFlags(modify="blobb").build(SHAPE)


@pytest.mark.parametrize("offset", [32, -32])
def test_a_second_lane_lies_beside_the_road(frame, offset):
    def is_road(image):
        return (np.abs(image[:84].astype(int) - 102.5) < 4).all(-1)

    (shown,) = show(FakeLane(float(offset)), frame)
    road = is_road(frame)
    beside = np.zeros_like(road)
    columns = np.arange(96)[max(0, offset) : 96 + min(0, offset)]
    beside[:, columns] = road[:, columns - offset]
    grass = is_grass(frame)[:84]
    assert (beside & grass).sum() > 300
    assert is_road(shown)[beside & grass].all()
    assert (
        shown[:84][road] == frame[:84][road]
    ).mean() > 0.98  # shades of tiles may change, no more
    grass_beside = np.zeros_like(grass)
    grass_beside[:, columns] = grass[:, columns - offset]
    assert (shown[:84][grass_beside] == frame[:84][grass_beside]).all()
    assert (shown[84:] == frame[84:]).all()
