"""Whatever an environment shows that is no Box becomes sensors, and can be taken back."""

import gymnasium
import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given

from sensorium.bridges.observations import (
    Layout,
    in_own_space,
    lay_out,
    own_space,
    sensor_names,
)
from sensorium.errors import ConfigError
from sensorium.rollout import make_world

SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
LEAVES = st.one_of(
    SHAPES.map(lambda shape: spaces.Box(-2, 2, shape, np.float32)),
    SHAPES.map(lambda shape: spaces.Box(-9, 9, shape, np.int32)),
    st.tuples(st.integers(1, 4), st.integers(-2, 2)).map(
        lambda of: spaces.Discrete(*of[:1], start=of[1])
    ),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.integers(1, 4).map(spaces.MultiBinary),
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(tuple(parts))),
    ),
    max_leaves=5,
)


class Showing(gymnasium.Env):
    """Shows a sample of any space."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}


@pytest.mark.parametrize("observe", ["", "flat"])
@pytest.mark.parametrize(
    "wrap",
    [
        gymnasium.wrappers.FlattenObservation,
        lambda env: gymnasium.wrappers.RescaleObservation(env, np.float32(0), np.float32(1)),
        lambda env: gymnasium.wrappers.FrameStackObservation(
            gymnasium.wrappers.FlattenObservation(env), 2
        ),
    ],
)
def test_wrappers_that_an_environment_comes_with_are_part_of_it(wrap, observe):
    env = wrap(Showing(spaces.Box(-2, 2, (3, 2), np.float32)))
    if len(env.observation_space.shape) == 2:
        observe = "flat"
    assert own_space(lay_out("Showing", env, Layout(observe))) == env.observation_space


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other)


@given(NESTED, st.integers(0, 99))
def test_what_is_laid_out_in_a_row_can_be_taken_back(space, seed):
    layout = Layout("flat")
    env = lay_out("Showing", Showing(space), layout)
    assert own_space(env) == space
    if isinstance(space, spaces.Box):
        row = env.reset(seed=seed)[0]
        space.seed(seed)
        np.testing.assert_array_equal(in_own_space(space, row[None], layout)[0], space.sample())
        return
    row, _ = env.reset(seed=seed)
    assert row.ndim == 1
    assert len(sensor_names(space)) == len(set(sensor_names(space))) == len(row)
    space.seed(seed)
    shown = space.sample()
    back = in_own_space(space, np.stack([row, row]).astype(np.float32))
    batch = spaces.utils.flatten_space(space)  # what is compared lies in the space
    assert batch.contains(np.asarray(row, batch.dtype))
    assert same(next(gymnasium.vector.utils.iterate(batch_of(space), back)), shown)


def batch_of(space):
    return gymnasium.vector.utils.batch_space(space, 2)


def test_sensors_have_names():
    space = spaces.Dict(
        {"gear": spaces.Discrete(2, start=1), "arm": spaces.Dict({"at": spaces.Box(-1, 1, (2,))})}
    )
    assert sensor_names(space) == ("arm.at[0]", "arm.at[1]", "gear=1", "gear=2")
    world = make_world("gym:tests.host_worlds:Scales-v0")
    assert world.sensor_names == ("large[0]", "large[1]", "small")
    assert world.raw_observation_spec == 3


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (spaces.Text(3), "observes a Text; agents need numbers"),
        (
            spaces.Dict({"a": spaces.Dict({"b": spaces.Graph(spaces.Discrete(2), None)})}),
            "a.b, a Graph",
        ),
        (spaces.Sequence(spaces.Discrete(3)), "observes a Sequence"),
        (spaces.Dict({"eye": spaces.Box(0, 255, (4, 4, 3), np.uint8)}), "eye, an image of shape"),
        (spaces.Dict({}), "a Dict that holds nothing"),
    ],
)
def test_what_no_rule_makes_numbers_of_says_why(space, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        lay_out("Odd-v0", Showing(space))
    assert "\n" not in str(caught.value)
