"""Names of worlds, right and wrong."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sensorium.errors import SensoriumError, UnknownNameError
from sensorium.rollout import make_world


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CartPole-v1", "gym:CartPole-v1"),
        ("cartpole-v1", "gym:CartPole-v1"),
        ("GYM:CartPole-v1", "gym:CartPole-v1"),
        ("gym:gym:CartPole-v1", "gym:CartPole-v1"),
        ("gym: CartPole-v1", "gym:CartPole-v1"),
        (" CartPoleSwingUpHarder", "CartPoleSwingUpHarder"),
        ("gym:CartPoleSwingUpHarder", "CartPoleSwingUpHarder"),
        ("cartpoleswingupharder", "CartPoleSwingUpHarder"),
        ("AntBulletEnv-v0", "gym:AntBulletEnv-v0"),
        ("tests.host_worlds:Walk-v0", "gym:tests.host_worlds:Walk-v0"),
        ("Pendulum", "gym:Pendulum-v1"),
    ],
)
def test_the_nearest_world_is_named_as_one_would_type_it(name, meant):
    with pytest.raises(UnknownNameError, match=f"no world .*; did you mean '{meant}'"):
        make_world(name)


@given(
    st.sampled_from(["", "gym:", "gym::", " gym:gym: "]),
    st.text(st.characters(codec="utf-8", exclude_characters="/"), max_size=12),
)
@example("gym:", "CartPole")
@example("gym:", ":")
@example("gym:", "x:")
@example("", "\n")
def test_no_name_is_a_traceback(before, name):
    with contextlib.suppress(SensoriumError, UserWarning):  # the latter says which version is taken
        make_world(before + name)
