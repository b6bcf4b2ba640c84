"""Names of worlds, right and wrong."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sensorium.envs import Thrusters
from sensorium.errors import SensoriumError, UnknownNameError
from sensorium.rollout import check_world_name, make_world


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
        ("gym:Thrusters?motors=8", "Thrusters.motors=8"),
    ],
)
def test_the_nearest_world_is_named_as_one_would_type_it(name, meant):
    with pytest.raises(UnknownNameError, match=f"no world .*; did you mean '{meant}'"):
        make_world(name)


def test_options_of_a_world_on_the_device_are_its_fields():
    world = make_world("Thrusters?motors=64&least=64&lag=0.5&one_sided=true")
    assert world == Thrusters(motors=64, least=64, lag=0.5, one_sided=True)
    assert make_world("CartPoleMotors?motors=8").num_actions == 8
    trained = make_world("Thrusters?lag=0", training_reward=True)
    assert trained == Thrusters(smooth=True)
    check_world_name("Arm?motors=16")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Thrusters?motor=3", "no option of Thrusters 'motor'; did you mean 'motors'"),
        ("Thrusters?smooth=true", "no option of Thrusters 'smooth'"),
        ("Thrusters?motors=many", "motors is of type int, not 'many'"),
        ("Thrusters?motors=true", "motors is of type int, not True"),
        ("Thrusters?motors=8.5", "motors is of type int, not 8.5"),
        ("Thrusters?one_sided=1", "one_sided is of type bool, not 1"),
        ("Thrusters?motors=2", "Of 2 motors at least 3 cannot be connected"),
        ("Arm?motors=0&least=0", "1 to 10,000 motors, not 0"),
        ("CartPoleMotors?motors=1000000000000", "1 to 10,000 motors"),
        (f"Thrusters?lag={10**400}", "lag is of type float"),
        ("Thrusters?lag=1", "lag is a share, from 0 to less than 1, not 1"),
        ("Thrusters?lag=NaN", "lag is a share"),
        ("Thrusters?", "options of the form name=value"),
        ("CarRacing?observe=flat", "CarRacing has no options"),
    ],
)
def test_options_that_do_not_fit_get_one_sentence(name, sentence):
    for check in (make_world, check_world_name):
        with pytest.raises(SensoriumError, match=sentence):
            check(name)


@given(st.sampled_from(["motors", "least", "lag", "one_sided", "x"]), st.text(max_size=8))
def test_no_option_is_a_traceback(option, value):
    with contextlib.suppress(SensoriumError):
        make_world(f"Thrusters?{option}={value}")


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
