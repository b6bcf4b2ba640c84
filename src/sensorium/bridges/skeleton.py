"""Where the body of one of PyBullet's walkers is, to be drawn as a figure of sticks."""

import gymnasium
import numpy as np
from jaxtyping import Float

_HIPS, _SHINS = (2, 7, 12, 17), (4, 9, 14, 19)  # links of the ant, leg by leg
_KICK = 1.5  # m/s that a push of full strength adds


def skeleton(env: gymnasium.Env) -> Float[np.ndarray, "points 3"]:
    """The points of a figure (m): of the ant its torso, then hip, ankle and tip of each leg.

    No points for any other body.
    """
    body = _ant(env)
    if body is None:
        return np.zeros((0, 3), np.float32)
    import pybullet

    number, client = body
    torso, _ = pybullet.getBasePositionAndOrientation(number, client)
    links = pybullet.getLinkStates(number, (*_HIPS, *_SHINS), physicsClientId=client)
    points = [torso]
    for hip, shin in zip(links[:4], links[4:], strict=True):
        ankle, middle = np.array(shin[4]), np.array(shin[0])
        points += [hip[4], ankle, 2 * middle - ankle]
    return np.array(points, np.float32)


def kick(env: gymnasium.Env, strength: float) -> None:
    """Push the ant sideways by a part of full strength, from -1 to 1; other bodies stay."""
    body = _ant(env)
    if body is None:
        return
    import pybullet

    number, client = body
    speed, spin = pybullet.getBaseVelocity(number, client)
    pushed = (speed[0], speed[1] + _KICK * strength, speed[2])
    pybullet.resetBaseVelocity(number, pushed, spin, physicsClientId=client)


def _ant(env: gymnasium.Env) -> tuple[int, int] | None:
    """Number of the ant's body, and of the client it lives in."""
    if env.spec is None or env.spec.id != "AntBulletEnv-v0":
        return None
    walker = env.unwrapped
    robot = walker.robot.robot_body
    return robot.bodies[robot.bodyIndex], walker._p._client
