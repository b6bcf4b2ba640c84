"""Walker: Gymnasium's Ant with any number of legs, all made by one function, `mjcf`.

    gym:sensorium/Walker-v0?legs=5
    gym:sensorium/Walker-v0?legs=3,4,6&max_legs=8

With four legs the body is that of `Ant-v5`: a test holds that it moves alike. What differs from `Ant-v5`:

- Legs are alike. They are numbered counterclockwise, the first one being to the left of forward; each has a
  hip, then an ankle, which a positive action turns down. Two of the Ant's ankles turn the other way, and its
  motors begin with the fourth leg.
- Sensors are in the frame of the torso, and of a size of about 1. Contact forces are neither shown nor do
  they cost anything.
- The cost of an action is a mean over motors, which is the Ant's for four legs: returns of bodies can be
  compared.
- Episodes end, too, when the torso is turned over.
- Positions are those at the end of a step; the Ant's lag behind by one step of the simulator.

As in the Ant, an episode starts with straight legs in the air, and legs touch the ground and not each other.
A torso that lies on the ground is 0.25 m high, which is above the least height: the episode goes on.

It comes with the extra `mujoco`.
"""

import functools
import os
import sys
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, UInt8

from sensorium.errors import ConfigError, needs

FEWEST, MOST = 2, 12
"""Legs."""
FRAME_SKIP = 5
"""Steps of the simulator, of 0.01 s, in a step."""
TORSO_SENSORS = (
    "height",
    *(f"{what} {axis}" for what in ("up", "forward", "velocity", "spin") for axis in "xyz"),
)
"""Names of those that every body has; those of the legs follow."""

_HIP, _LEG, _SHIN = 0.2 * 2**0.5, 0.2 * 2**0.5, 0.4 * 2**0.5  # m, from the middle, and lengths
_THICK = 0.08  # m, the radius of a leg
_HIP_TURNS, _ANKLE_TURNS = (-30.0, 30.0), (30.0, 70.0)  # degrees
_PER_LEG = 4  # sensors
_HEALTHY = 0.2, 1.0  # m, heights of the torso
_STEP = 0.01 * FRAME_SKIP  # s
_COST = 4.0  # of actions of 1
_FAST = 0.1  # of a sensor, for 1 rad/s
_NOISE = 0.1  # of places and speeds, at the start
_SIZE = 480  # pixels of a picture, each way

_HEAD = """
<mujoco model="walker">
  <compiler angle="degree" inertiafromgeom="true"/>
  <option integrator="RK4" timestep="0.01"/>
  <default>
    <joint armature="1" damping="1" limited="true"/>
    <geom conaffinity="0" condim="3" density="5" friction="1 0.5 0.5" margin="0.01"
      rgba="0.25 0.45 0.65 1"/>
    <motor ctrllimited="true" ctrlrange="-1 1" gear="150"/>
  </default>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.95 0.97 1" rgb2="0.7 0.8 0.9"
      width="100" height="100"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.86 0.87 0.88" rgb2="0.76 0.78 0.8"
      width="100" height="100"/>
    <material name="ground" texture="tiles" texrepeat="40 40"/>
  </asset>
  <worldbody>
    <light directional="true" diffuse="0.7 0.7 0.7" dir="-0.3 0.4 -1.3" pos="0 0 3"/>
    <geom name="floor" type="plane" size="40 40 40" conaffinity="1" material="ground" rgba="1 1 1 1"/>
    <body name="torso" pos="0 0 0.75">
      <camera name="follow" mode="trackcom" pos="0 -3 2" xyaxes="1 0 0 0 0.55 0.83"/>
      <joint name="root" type="free" armature="0" damping="0" limited="false" margin="0.01"/>
      <geom name="torso" type="sphere" size="0.25" rgba="0.85 0.45 0.2 1"/>
"""
_LEG_OF_A_BODY = """
      <body name="root {leg}">
        <geom type="capsule" size="{thick}" fromto="0 0 0 {hip}"/>
        <body name="leg {leg}" pos="{hip}">
          <joint name="hip {leg}" type="hinge" axis="0 0 1" range="{hip_turns}"/>
          <geom type="capsule" size="{thick}" fromto="0 0 0 {upper}"/>
          <body name="shin {leg}" pos="{upper}">
            <joint name="ankle {leg}" type="hinge" axis="{across}" range="{ankle_turns}"/>
            <geom type="capsule" size="{thick}" fromto="0 0 0 {shin}"/>
          </body>
        </body>
      </body>
"""


def mjcf(legs: int) -> str:
    """Write a body as MuJoCo reads it.

    A torso, and legs evenly around it, the first half of the angle between two of them from forward, which is
    x. Each has a hip, which turns about the vertical axis, and an ankle; a motor for each of both.

    Args:
        legs: From `FEWEST` to `MOST`.
    """
    bearings = (2 * np.arange(legs) + 1) * np.pi / legs
    parts, motors = [_HEAD], []
    for leg, bearing in enumerate(bearings, 1):
        along = np.array([np.cos(bearing), np.sin(bearing), 0.0])
        parts.append(
            _LEG_OF_A_BODY.format(
                leg=leg,
                thick=_THICK,
                hip=_numbers(_HIP * along),
                upper=_numbers(_LEG * along),
                shin=_numbers(_SHIN * along),
                across=_numbers(np.array([-along[1], along[0], 0.0])),
                hip_turns=_numbers(_HIP_TURNS),
                ankle_turns=_numbers(_ANKLE_TURNS),
            )
        )
        motors += [f'<motor joint="{joint} {leg}"/>' for joint in ("hip", "ankle")]
    parts.append(f"</body></worldbody><actuator>{''.join(motors)}</actuator></mujoco>")
    return "".join(parts)


def sensor_names(legs: int) -> tuple[str, ...]:
    """Name the sensors of a body."""
    of_legs = (
        f"{joint} {leg}{moving}"
        for leg in range(1, legs + 1)
        for joint in ("hip", "ankle")
        for moving in ("", " speed")
    )
    return (*TORSO_SENSORS, *of_legs)


class Walker(gymnasium.Env):
    """A body that earns by moving forward, along x.

    With several numbers of legs, one of them is drawn for each episode. All bodies then have as many sensors
    and motors as one with `max_legs`: sensors of legs that are not there read 0, and their motors do nothing
    and cost nothing. They are the last ones. So an agent can be trained on some bodies and tested on others.

    Orders, signs and strengths of motors are drawn by `RewireMotors` and `ScaleMotors`, as in any world.

    ## Action space
    Two numbers in [-1, 1] for each leg: torques of hip and ankle, times 150 N m.

    ## Observation space
    | sensors | meaning | unit |
    |---|---|---|
    | height | of the middle of the torso | m |
    | up x, y, z | the vertical, in the frame of the torso | 1 |
    | forward x, y, z | the direction that pays, in the frame of the torso | 1 |
    | velocity x, y, z | of the torso, in its frame | m/s |
    | spin x, y, z | angular velocity of the torso, in its frame | rad/s |
    | hip i, ankle i | angles; -1 and 1 are the ends of the range, -30 to 30 and 30 to 70 degrees | |
    | hip i speed, ankle i speed | | 10 rad/s |

    ## Rewards
    The speed forward (m/s), and 1 where the episode goes on, less `4 * mean(action**2)` over the motors of
    the body.

    ## Episode end
    Termination when the torso is lower than 0.2 m, higher than 1 m, or tilted by more than a right angle.
    Truncation after 1,000 steps of 0.05 s.

    `info` has `legs`, the number of this episode; `x_position` and `y_position` (m); and the parts of the
    reward, as in `Ant-v5`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, legs: Any = 4, max_legs: Any = None, render_mode: str | None = None):
        """Build the bodies.

        Args:
            legs: A number from 2 to 12, or several, of which one is drawn for each episode: a list, or text
                such as `"3,4,6"`.
            max_legs: For how many legs there are sensors and motors; by default the largest of `legs`.
            render_mode: None, or `"rgb_array"`.

        Raises:
            MissingExtraError: MuJoCo is not installed.
            ConfigError: There cannot be so many legs.
        """
        counts = _counts(legs)
        most = max(counts) if max_legs is None else max_legs
        if type(most) is not int or not max(counts) <= most <= MOST:
            raise ConfigError(
                f"Walker: max_legs is a number from {max(counts)}, the most of its legs, to {MOST}, not "
                f"{max_legs!r}."
            )
        self._bodies = [_Body(count) for count in counts]
        self._body = self._bodies[0]
        self._most, self._size = most, len(TORSO_SENSORS) + _PER_LEG * most
        self.observation_space = spaces.Box(-np.inf, np.inf, (self._size,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2 * most,), np.float32)
        self.render_mode = render_mode

    @property
    def sensor_names(self) -> tuple[str, ...]:
        """What each sensor is."""
        return sensor_names(self._most)

    @property
    def state(self) -> Any:
        """MuJoCo's `MjData` of the body of this episode."""
        return self._body.data

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " sensors"], dict[str, Any]]:
        """Draw a body, and let it fall to the ground."""
        super().reset(seed=seed, options=options)
        if len(self._bodies) > 1:
            self._body = self._bodies[self.np_random.integers(len(self._bodies))]
        self._body.start(self.np_random)
        return self._body.sense(self._size), self._body.info()

    def step(
        self, action: Float[np.ndarray, " motors"]
    ) -> tuple[Float[np.ndarray, " sensors"], float, bool, bool, dict[str, Any]]:
        """Drive the joints for 0.05 s."""
        body = self._body
        before, used = float(body.place[0]), action[: 2 * body.legs]
        body.advance(used)
        shown, info, healthy = body.sense(self._size), body.info(), body.healthy
        forward = (info["x_position"] - before) / _STEP
        cost = _COST * float(used @ used) / len(used)
        info["reward_forward"] = forward
        info["reward_survive"] = float(healthy)
        info["reward_ctrl"] = -cost
        return shown, forward + healthy - cost, not healthy, False, info

    def render(self) -> UInt8[np.ndarray, "480 480 3"] | None:
        """Draw what a camera sees that follows the body; None unless asked for when made."""
        return self._body.draw() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """End what draws."""
        for body in self._bodies:
            body.close()


class _Body:
    """One body, and its state."""

    def __init__(self, legs: int):
        self.legs = legs
        self._mujoco, self._model = _mujoco(), _model(legs)
        self.data = self._mujoco.MjData(self._model)
        self._renderer: Any = None
        # Views of the state, since asking the simulator for each takes longer than to use it
        places, speeds = self.data.qpos, self.data.qvel
        self.place = places[:3]
        """Of the torso (m)."""
        self._pose, self._angles = places[3:7], places[7:]
        self._velocity, self._spin, self._turning = speeds[:3], speeds[3:6], speeds[6:]
        self._control = self.data.ctrl
        self._turned = np.eye(3)  # axes of the torso, as columns
        self._flat = self._turned.reshape(-1)
        low, high = self._model.jnt_range[1:].T
        self._middle, self._to_ends = (low + high) / 2, 2 / (high - low)

    def start(self, random: np.random.Generator) -> None:
        """Let it fall from 0.75 m, its legs nearly straight, nearly upright and still."""
        self._mujoco.mj_resetData(self._model, self.data)
        self.data.qpos += random.uniform(-_NOISE, _NOISE, self._model.nq)
        self.data.qvel[:] = _NOISE * random.standard_normal(self._model.nv)
        self._pose /= np.linalg.norm(self._pose)

    def advance(self, action: Float[np.ndarray, " motors"]) -> None:
        """Take a step."""
        self._control[:] = action
        self._mujoco.mj_step(self._model, self.data, FRAME_SKIP)

    def sense(self, size: int) -> Float[np.ndarray, " sensors"]:
        """Return `size` sensors, of which those beyond the body's read 0."""
        shown, turned = np.zeros(size, np.float32), self._turned
        self._mujoco.mju_quat2Mat(self._flat, self._pose)
        shown[0] = self.place[2]
        shown[1:4] = turned[2]
        shown[4:7] = turned[0]
        shown[7:10] = self._velocity @ turned
        shown[10:13] = self._spin
        joints, end = shown[len(TORSO_SENSORS) :], _PER_LEG * self.legs
        joints[:end:2] = (self._angles - self._middle) * self._to_ends
        joints[1:end:2] = _FAST * self._turning
        return shown

    @property
    def healthy(self) -> bool:
        """Whether it was neither too low nor too high nor turned over when it last sensed."""
        return bool(_HEALTHY[0] <= self.place[2] <= _HEALTHY[1] and self._flat[-1] > 0)

    def info(self) -> dict[str, Any]:
        """Return how many legs it has, and where it is."""
        x, y, _ = self.place.tolist()
        return {"legs": self.legs, "x_position": x, "y_position": y}

    def draw(self) -> UInt8[np.ndarray, "480 480 3"]:
        """Draw it; its motion stays the same."""
        if self._renderer is None:
            self._renderer = self._mujoco.Renderer(self._model, _SIZE, _SIZE)
        # Only what is drawn: accelerations are where the next step starts from
        self._mujoco.mj_kinematics(self._model, self.data)
        self._mujoco.mj_comPos(self._model, self.data)
        self._mujoco.mj_camlight(self._model, self.data)
        self._renderer.update_scene(self.data, "follow")
        return self._renderer.render()

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
        self._renderer = None


@functools.cache
def _model(legs: int) -> Any:
    """Compile a body, once for all environments of a process."""
    return _mujoco().MjModel.from_xml_string(mjcf(legs))


def _mujoco() -> Any:
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")  # which draws without a screen, too
    with needs("mujoco", "Walker"):
        import mujoco
    return mujoco


def _counts(legs: Any) -> list[int]:
    """Read how many legs bodies have."""
    given = legs
    if isinstance(legs, str):
        given = [int(each) if each.strip().isdecimal() else each for each in legs.split(",")]
    counts = list(given) if isinstance(given, list | tuple) else [given]
    if not counts or not all(type(each) is int and FEWEST <= each <= MOST for each in counts):
        raise ConfigError(
            f"Walker: legs is a number from {FEWEST} to {MOST}, or several such as 3,4,6, not {legs!r}."
        )
    return counts


def _numbers(numbers: Any) -> str:
    return " ".join(f"{number:.12g}" for number in numbers)
