"""Whatever the bounds and dtype of an action space, what an agent does lies in it, and can be taken back."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis.extra import numpy as arrays

from sensorium.bridges.spaces import action_bounds, action_map, actions_of, num_actions
from sensorium.errors import ConfigError

ENDS = np.float32([[-1.0], [-0.5], [0.0], [0.5], [1.0]])
DTYPES = ("f2", "f4", "f8", "i1", "i4", "i8", "u1", "u2", "u8", "?")
LARGEST = float(np.finfo(np.float32).max)


def taken(space, numbers=ENDS):
    return action_map(space).to_env(np.asarray(numbers, np.float32)).reshape(len(numbers), -1)


def box(low, high, dtype=np.float32):
    return spaces.Box(low, high, (1,), dtype)


@st.composite
def boxes(draw):
    """Boxes whose dimensions have bounds of any kind, equal ones and the largest of the dtype too."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    if dtype.kind == "f":
        finite = st.floats(width=8 * dtype.itemsize, allow_nan=False, allow_infinity=False)
        limits = np.finfo(dtype)
        usual = st.floats(-10, 10, width=16)
        ends = st.one_of(usual, finite, st.sampled_from([-np.inf, np.inf, limits.min, limits.max]))
    elif dtype.kind == "b":
        ends = st.booleans()
    else:
        limits = np.iinfo(dtype)
        ends = st.one_of(
            st.integers(limits.min, limits.max),
            st.integers(max(-9, limits.min), 9),
            st.sampled_from([int(limits.min), int(limits.max)]),
        )
    one, other = (draw(arrays.arrays(dtype, shape, elements=ends)) for _ in range(2))
    low, high = np.minimum(one, other), np.maximum(one, other)
    low = np.asarray(np.where(low == np.inf, 0, low), dtype)
    high = np.asarray(np.where(high == -np.inf, 0, high), dtype)
    return spaces.Box(
        np.asarray(np.minimum(low, high)), np.asarray(np.maximum(low, high)), shape, dtype
    )


def rows(space, elements):
    return arrays.arrays(np.float32, (3, num_actions(space)), elements=elements)


@given(st.data())
def test_what_agents_do_is_in_the_space(data):
    space = data.draw(boxes())
    elements = st.one_of(st.floats(-1, 1, width=32), st.floats(-LARGEST, LARGEST, width=32))
    for action in action_map(space).to_env(data.draw(rows(space, elements))):
        action = np.asarray(action)
        assert action.dtype == space.dtype
        assert space.contains(action)
        assert np.isfinite(action).all()


@given(st.data())
def test_from_env_is_the_inverse(data):
    space = data.draw(boxes())
    numbers = data.draw(rows(space, st.floats(-1, 1, width=32)))
    done = action_map(space).to_env(numbers)
    back = action_map(space).from_env(done)
    assert back.dtype == np.float32
    assert (np.abs(back) <= 1).all()
    again = action_map(space).to_env(back)
    low, high = action_bounds(space)
    width = high.astype(np.float64) - low
    if space.dtype.kind == "f":
        # In steps of the numbers themselves: a narrow Box far from zero has few
        farthest = np.maximum(np.abs(low), np.abs(high)).astype(space.dtype)
        steps = (farthest - np.nextafter(farthest, np.zeros_like(farthest))).astype(np.float64)
        away = np.abs(again.astype(np.float64) - done).reshape(3, -1)
        assert (away <= 4 * steps + 1e-6 * width).all()
        fine = width > 1e4 * steps
        np.testing.assert_allclose(back[:, fine], numbers[:, fine], atol=1e-3)
    else:
        exact = (width < 2**24) & (np.abs(low) < 2**53)
        same = (again == done).reshape(3, -1)
        assert same[:, exact].all()
        shares = np.abs(back - numbers) <= 1 / (width + 1) + 1e-6
        assert shares[:, exact].all()


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (box(-2, 6), [-2, 0, 2, 4, 6]),
        (box(0, np.inf), [0, 0.5, 1, 1.5, 2]),
        (box(-np.inf, 0), [-2, -1.5, -1, -0.5, 0]),
        (box(-np.inf, np.inf), [-1, -0.5, 0, 0.5, 1]),
        (box(-LARGEST, LARGEST), [-1, -0.5, 0, 0.5, 1]),
        (box(-3e38, 3e38), [-1, -0.5, 0, 0.5, 1]),
        (box(7, 7), [7, 7, 7, 7, 7]),
        (box(0, 4, np.int64), [0, 1, 2, 3, 4]),
        (box(0, 255, np.uint8), [0, 64, 128, 192, 255]),
        (box(-128, 127, np.int8), [-128, -64, 0, 64, 127]),
        (box(0, 2**63 - 2, np.int64), [0, 0, 1, 2, 2]),
        (box(2**63, 2**63 + 4, np.uint64), [2**63 + step for step in (0, 0, 1, 2, 2)]),
        (spaces.Box(0, 1, (1,), np.bool_), [False, False, True, True, True]),
    ],
)
def test_each_kind_of_bound(space, expected):
    assert taken(space).ravel().tolist() == expected


def test_integers_have_equal_shares():
    numbers = np.linspace(-0.999, 0.999, 1000)[:, None]
    places = taken(box(0, 4, np.int64), numbers).ravel()
    assert np.bincount(places).tolist() == [200] * 5


def test_numbers_outside_count_as_the_nearest_end():
    for outside in ([[-5.0]], [[5.0]]):
        inside = np.sign(outside)
        for space in (box(-2, 6), box(0, np.inf), box(0, 4, np.int32)):
            assert taken(space, outside) == taken(space, inside)
        assert taken(box(-np.inf, np.inf), outside) == outside


def test_bounded_boxes_are_mapped_as_before():
    numbers = np.random.default_rng(0).uniform(-1, 1, (100, 2)).astype(np.float32)
    low, high = np.float32([-0.4, 3.3]), np.float32([0.7, 11.1])
    expected = low + (numbers + np.float32(1)) * np.float32(0.5) * (high - low)
    assert np.array_equal(taken(spaces.Box(low, high), numbers), expected)


@st.composite
def choices(draw):
    """Spaces of discrete choices, and how many options each has."""
    kind = draw(st.sampled_from(["discrete", "multi-discrete", "multi-binary"]))
    if kind == "discrete":
        count = draw(st.integers(1, 6))
        return spaces.Discrete(count, start=draw(st.integers(-9, 9))), (count,)
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    if kind == "multi-binary":
        return spaces.MultiBinary(shape), (2,) * int(np.prod(shape))
    counts = draw(arrays.arrays(np.int64, shape, elements=st.integers(1, 5)))
    start = draw(arrays.arrays(np.int64, shape, elements=st.integers(-9, 9)))
    return spaces.MultiDiscrete(counts, start=start), tuple(counts.reshape(-1).tolist())


@given(st.data())
def test_choices_take_the_largest_of_their_options(data):
    space, options = data.draw(choices())
    assert actions_of(space) == options
    assert num_actions(space) == sum(options)
    logits = data.draw(rows(space, st.floats(-100, 100, width=32)))
    done = action_map(space).to_env(logits)
    start = np.reshape(getattr(space, "start", 0), -1)
    ends = np.cumsum((0, *options))
    for action, row in zip(done, logits, strict=True):
        assert space.contains(action if np.shape(action) else np.int64(action))
        expected = [row[a:b].argmax() for a, b in itertools.pairwise(ends)]
        np.testing.assert_array_equal(np.reshape(action, -1), expected + start)
    np.testing.assert_array_equal(action_map(space).to_env(action_map(space).from_env(done)), done)


def test_discrete_actions():
    space = spaces.Discrete(3, start=-1)
    numbers = np.float32([[0.1, 0.3, -1], [1, 1, 0]])
    assert action_map(space).to_env(numbers).tolist() == [0, -1]
    assert action_map(space).from_env(np.array([0, -1])).tolist() == [[-1, 1, -1], [1, -1, -1]]


@pytest.mark.parametrize("space", [box(-1, 1), box(0, 4, np.int64), spaces.Discrete(1)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(space, value):
    with pytest.raises(ConfigError, match="finite numbers, got NaN or infinity"):
        action_map(space).to_env(np.float32([[value]]))
    with pytest.raises(ConfigError, match="finite numbers, got NaN or infinity"):
        action_map(space).from_env(np.float32([[value]]))


@pytest.mark.parametrize("space", [box(-1, 1), box(0, 4, np.int64), spaces.Discrete(3)])
def test_actions_of_another_space_are_refused(space):
    with pytest.raises(ConfigError, match=r"of 2 number\(s\) do not fit a space of 1"):
        action_map(space).from_env(np.zeros((4, 2), np.float32))
