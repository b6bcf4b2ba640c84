"""What is known of the bodies of PyBullet's worlds: their sensors, where they are, how to push them."""

import dataclasses
from collections.abc import Callable

import gymnasium
import numpy as np
from jaxtyping import Float

_HIPS, _SHINS = (2, 7, 12, 17), (4, 9, 14, 19)  # links of the ant, leg by leg
_PUSH = 1.5  # m/s that a push of full strength adds

Points = Float[np.ndarray, "points 3"]


def no_points(env: gymnasium.Env) -> Points:
    """Return no points: nothing to draw."""
    del env
    return np.zeros((0, 3), np.float32)


@dataclasses.dataclass(frozen=True)
class Body:
    """What a Gymnasium environment does not say of itself; each field is as in `World`."""

    sensor_names: tuple[str, ...] = ()
    """Empty if they are not known."""
    drawing: str = ""
    """How the demo's page draws the pose."""
    failure: str = "ended"
    """What it means that the environment ends an episode."""
    pose: Callable[[gymnasium.Env], Points] = no_points
    """Points of a figure (m)."""
    push: Callable[[gymnasium.Env, float], None] | None = None
    """Push the body by a part of full strength, from -1 to 1; None if it cannot be pushed."""


def _ant_pose(env: gymnasium.Env) -> Points:
    """Return the torso, then hip, ankle and tip of each leg."""
    import pybullet

    number, client = _ant(env)
    torso, _ = pybullet.getBasePositionAndOrientation(number, client)
    links = pybullet.getLinkStates(number, (*_HIPS, *_SHINS), physicsClientId=client)
    points = [torso]
    for hip, shin in zip(links[:4], links[4:], strict=True):
        ankle, middle = np.array(shin[4]), np.array(shin[0])
        points += [hip[4], ankle, 2 * middle - ankle]
    return np.array(points, np.float32)


def _push_ant(env: gymnasium.Env, strength: float) -> None:
    """Push it sideways."""
    import pybullet

    number, client = _ant(env)
    speed, spin = pybullet.getBaseVelocity(number, client)
    pushed = (speed[0], speed[1] + _PUSH * strength, speed[2])
    pybullet.resetBaseVelocity(number, pushed, spin, physicsClientId=client)


def _ant(env: gymnasium.Env) -> tuple[int, int]:
    """Return the number of the ant's body, and its PyBullet client."""
    walker = env.unwrapped
    robot = walker.robot.robot_body
    return robot.bodies[robot.bodyIndex], walker._p._client


ANT = Body(
    sensor_names=(
        *("height", "goal sin", "goal cos", "speed x", "speed y", "speed z", "roll", "pitch"),
        *(
            f"{joint} {leg}{moving}"
            for leg in range(1, 5)
            for joint in ("hip", "ankle")
            for moving in ("", " speed")
        ),
        *(f"foot {leg}" for leg in range(1, 5)),
    ),
    drawing="ant",
    failure="fell",
    pose=_ant_pose,
    push=_push_ant,
)

BODIES: dict[str, Body] = {"AntBulletEnv-v0": ANT}
"""By the id of the environment."""


def body_of(name: str) -> Body:
    """Return what is known of the environment `name`; the defaults if nothing is."""
    return BODIES.get(name, Body())
