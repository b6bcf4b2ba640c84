"""NetRand's random layer: what it draws and when, what it leaves alone, and that bytes suffice for it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.envs import CarRacing, Perturbed
from sensorium.errors import ConfigError
from sensorium.flags import PerturbationFlags
from sensorium.perturbations import (
    RandomConvolution,
    ShufflePatches,
    check_perturbation,
    compose,
)

SHAPE = (24, 32, 3)
ALWAYS = RandomConvolution(alpha=0.0, every=0)


@pytest.fixture(scope="module")
def image():
    # Surfaces of eight colours, 8 x 12 pixels each: the corners of the cube of all colours
    colours = np.stack(np.meshgrid(*[[0, 255]] * 3), -1).reshape(2, 4, 3)
    return jnp.asarray(colours.repeat(12, 0).repeat(8, 1).astype(np.uint8))


def live(perturbation, image, steps=1, seed=0):
    """What is shown in an episode, and what it was drawn with."""
    key = jax.random.key(seed)
    state = perturbation.init(key, image.shape)
    shown, states = [], []
    for step in range(steps):
        seen, state = perturbation.apply(jax.random.fold_in(key, step), state, image)
        shown.append(np.asarray(seen))
        states.append(state)
    return shown, states


@pytest.mark.parametrize(
    "perturbation", [RandomConvolution(), ALWAYS, RandomConvolution(0.5, 1)], ids=str
)
def test_contract(perturbation):
    check_perturbation(perturbation, SHAPE)


def test_it_is_the_convolution_that_was_drawn(image):
    (shown,), (state,) = live(ALWAYS, image)
    assert shown.shape == image.shape
    assert shown.dtype == np.uint8
    # By hand, at one place: nine neighbours, three colours
    kernel, row, column = np.asarray(state.kernel), 12, 8
    around = np.asarray(image, np.float64)[row - 1 : row + 2, column - 1 : column + 2]
    raw = np.einsum("ijc,ijco->o", around, kernel)
    even = kernel.sum((0, 1))
    low = 255 * np.minimum(even, 0).sum(0)
    high = 255 * np.maximum(even, 0).sum(0)
    expected = np.clip(255 * (raw - low) / (high - low), 0, 255)
    np.testing.assert_allclose(shown[row, column], expected, atol=0.51)


def test_even_surfaces_use_all_of_the_range_and_never_leave_it(image):
    for seed in range(5):
        (shown,), _ = live(ALWAYS, image, seed=seed)
        inside = shown[6::12, 4::8]  # one pixel of each surface
        np.testing.assert_array_equal(inside.min((0, 1)), 0)
        np.testing.assert_array_equal(inside.max((0, 1)), 255)
        assert len(np.unique(inside.reshape(-1, 3), axis=0)) == 8  # no two became one


def test_weights_are_xavier_normal():
    draw = jax.vmap(lambda key: RandomConvolution().init(key, SHAPE).kernel)
    kernels = np.asarray(draw(jax.random.split(jax.random.key(0), 2000)))
    assert kernels.shape == (2000, 3, 3, 3, 3)
    assert kernels.mean() == pytest.approx(0, abs=2e-3)
    assert kernels.std() == pytest.approx((2 / (27 + 27)) ** 0.5, rel=0.01)


def test_a_key_decides_all(image):
    once, again = (live(ALWAYS, image, 3, seed=4)[0] for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert (live(ALWAYS, image, seed=5)[0][0] != once[0]).any()


def test_weights_are_drawn_when_it_is_time(image):
    shown, _ = live(ALWAYS, image, 6)
    assert all((frame == shown[0]).all() for frame in shown)
    shown, _ = live(RandomConvolution(alpha=0.0, every=1), image, 4)
    assert all((now != then).any() for then, now in itertools.pairwise(shown))
    shown, _ = live(RandomConvolution(alpha=0.0, every=3), image, 9)
    assert all((shown[step] == shown[step - step % 3]).all() for step in range(9))
    assert (shown[3] != shown[0]).any()
    assert (shown[6] != shown[3]).any()


def test_the_plain_image_is_seen_with_probability_alpha(image):
    for frame in live(RandomConvolution(alpha=1.0, every=1), image, 4)[0]:
        np.testing.assert_array_equal(frame, image)
    draw = jax.vmap(lambda key: RandomConvolution(alpha=0.1).init(key, SHAPE).plain)
    share = np.asarray(draw(jax.random.split(jax.random.key(1), 4000))).mean()
    assert share == pytest.approx(0.1, abs=0.02)
    shown, states = live(RandomConvolution(alpha=0.5, every=1), image, 30)
    plain = [bool(state.plain) for state in states]
    assert 5 < sum(plain) < 25  # new at each draw, not once an episode
    assert [(frame == image).all() for frame in shown] == plain


def test_floats_are_treated_as_bytes_are(image):
    (floats,), _ = live(ALWAYS, image.astype(jnp.float32))
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(floats, live(ALWAYS, image)[0][0])


def test_it_stands_before_any_world_of_images():
    world = Perturbed(CarRacing(), RandomConvolution(alpha=0.0))
    observation, state = world.reset(jax.random.key(0))
    plain, _ = CarRacing().reset(jax.random.key(0))
    assert observation.shape == plain.shape
    assert (observation != plain).any()
    later = jax.eval_shape(world.step, jax.random.key(1), state, jnp.zeros(3))[0]
    assert (later.shape, later.dtype) == (observation.shape, observation.dtype)


def test_marks_on_pixels_are_followed_through_it():
    shuffle, marks = ShufflePatches(8), jax.random.bits(jax.random.key(5), SHAPE, jnp.uint8)
    both, key = compose(ALWAYS, shuffle), jax.random.key(1)
    state = both.init(jax.random.key(0), SHAPE)
    followed = both.carried(key, state, marks)
    np.testing.assert_array_equal(followed, shuffle.apply(key, state[1], marks)[0])
    assert (followed != marks).any()
    assert (both.apply(key, state, marks)[0] != followed).any()


def test_names_and_flags():
    assert str(RandomConvolution()) == str(ALWAYS) == "random convolution"
    assert str(RandomConvolution(every=5)) == "random convolution every 5"
    asked = PerturbationFlags(modify="convolution", background="hills").build(SHAPE)
    assert str(asked) == "background hills + random convolution"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RandomConvolution().output_spec((96, 96, 1)),
            "'random convolution' happens to images of red, green and blue, not of 1 channel",
        ),
        (lambda: RandomConvolution().output_spec(5), "not to 5 scalar sensor"),
        (lambda: compose(RandomConvolution()).init(jax.random.key(0), 5), "not to 5 scalar"),
        (lambda: RandomConvolution(alpha=1.2), "alpha .* from 0 to 1, got 1.2"),
        (lambda: RandomConvolution(alpha=-0.1), "from 0 to 1, got -0.1"),
        (lambda: RandomConvolution(every=-1), "every must be at least 0, got -1"),
    ],
)
def test_impossible_settings_get_one_sentence(make, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
