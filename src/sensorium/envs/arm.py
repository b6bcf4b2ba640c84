"""Arm: joints turned by motors that nobody names, and a camera that only sees how far off the hand is."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from sensorium.envs.body import Body
from sensorium.envs.drawing import draw_arm
from sensorium.types import Action, Flag, Key, Observation, Scalar

_JUMP = 60  # steps, after which the target is elsewhere
_DAMPING = 0.02  # of the least squares of `best_action`


class ArmState(NamedTuple):
    """Joints and targets, in radians and metres."""

    angles: Float[Array, " M"]
    """Of each joint to the link before."""
    lengths: Float[Array, " M"]
    """Of the links, 2 in all; zero of one that is not there."""
    gain: Float[Array, " M"]
    """rad a second of each joint at an action of 1, with its sign."""
    joint: Int[Array, " M"]
    """That each motor turns."""
    camera: Float[Array, "2 2"]
    """How the picture is turned, and perhaps mirrored."""
    targets: Float[Array, "2 2"]
    """Of either half of the episode."""
    time: Int[Array, ""]
    """Steps since the start."""

    @property
    def links(self) -> Float[Array, "2 M"]:
        """From either end to the other."""
        bearing = jnp.cumsum(self.angles)
        return self.lengths * jnp.stack([jnp.cos(bearing), jnp.sin(bearing)])

    @property
    def hand(self) -> Float[Array, "2"]:
        """The end of the last link."""
        return self.links.sum(1)

    @property
    def target(self) -> Float[Array, "2"]:
        """Where the hand should be."""
        return self.targets[jnp.minimum(self.time // _JUMP, 1)]

    @property
    def distance(self) -> Scalar:
        """From the hand to its target."""
        return jnp.linalg.norm(self.target - self.hand)


@dataclasses.dataclass(frozen=True)
class ArmParams:
    """How the arm is simulated."""

    time_step: float = 0.1
    """s."""
    close: float = 0.1
    """m, within which the hand is at its target."""


jax.tree_util.register_dataclass(ArmParams)


@dataclasses.dataclass(frozen=True)
class Arm(Body):
    """An arm of 3 to M links in the plane, 2 m long, whose lengths are drawn for each episode.

    ## Action space
    M numbers in [-1, 1]: how fast joints turn, times 0.5 to 1.5 rad/s in either direction. Which motor turns
    which joint is drawn too.

    ## Observation space
    Where the target is, seen from the hand, by a camera that is turned by any angle and perhaps mirrored: two
    sensors (m). No angle is sensed.

    ## Rewards
    1 for each step with the hand within 0.1 m of its target. In training `1 - sqrt(d² + 0.01) / 2`.

    ## Episode end
    Truncation after 120 steps of 0.1 s. After 60 the target is elsewhere.
    """

    id = "Arm"
    drawing = "arm"
    num_sensors = 2
    sensor_names = ("right", "up")
    max_steps = 2 * _JUMP

    @property
    def default_params(self) -> ArmParams:
        """Those of the documentation."""
        return ArmParams()

    def reset_env(self, key: Key, params: Any) -> tuple[Observation, ArmState]:
        """Draw an arm, its pose, the camera, and targets 0.4 to 1.6 m from the shoulder."""
        del params
        keys = jax.random.split(key, 10)
        count = jax.random.randint(keys[0], (), self.least, self.motors + 1)
        lengths = jax.random.uniform(keys[1], (self.motors,), minval=0.5, maxval=1.5)
        lengths = jnp.where(jnp.arange(self.motors) < count, lengths, 0.0)
        sign = jax.random.rademacher(keys[2], (self.motors,), jnp.float32)
        turn = jax.random.uniform(keys[3], (), maxval=2 * jnp.pi)
        mirror = jnp.stack([jnp.ones(()), jax.random.rademacher(keys[4], (), jnp.float32)])
        cosine, sine = jnp.cos(turn), jnp.sin(turn)
        radius = jax.random.uniform(keys[5], (2, 1), minval=0.4, maxval=1.6)
        bearing = jax.random.uniform(keys[6], (2, 1), maxval=2 * jnp.pi)
        state = ArmState(
            angles=jax.random.uniform(keys[7], (self.motors,), minval=-1.2, maxval=1.2),
            lengths=2.0 * lengths / lengths.sum(),
            gain=sign * jax.random.uniform(keys[8], (self.motors,), minval=0.5, maxval=1.5),
            joint=jax.random.permutation(keys[9], self.motors),
            camera=jnp.stack([jnp.stack([cosine, -sine]), jnp.stack([sine, cosine])]) * mirror,
            targets=radius * jnp.concatenate([jnp.cos(bearing), jnp.sin(bearing)], axis=1),
            time=jnp.zeros((), jnp.int32),
        )
        return self.observe(state), state

    def step_env(
        self, key: Key, state: ArmState, action: Action, params: Any
    ) -> tuple[Observation, ArmState, Scalar, Flag, dict[str, Any]]:
        """Turn all joints for one step."""
        del key
        speed = jnp.zeros(self.motors).at[state.joint].set(jnp.clip(action, -1.0, 1.0))
        state = state._replace(angles=state.angles + params.time_step * state.gain * speed)
        if self.smooth:
            reward = 1.0 - jnp.sqrt(jnp.sum((state.target - state.hand) ** 2) + 0.01) / 2
        else:
            reward = 1.0 * (state.distance < params.close)
        state = state._replace(time=state.time + 1)
        return self.observe(state), state, reward, jnp.zeros((), bool), {}

    def observe(self, state: ArmState) -> Observation:
        """Return where the camera sees the target from the hand."""
        return state.camera @ (state.target - state.hand)

    def pose(self, state: ArmState) -> Float[Array, " numbers"]:
        """Return the target (m), then four numbers of each joint.

        These are the end of its link (m), the motor that turns it, and its gain (rad/s).
        """
        ends = jnp.cumsum(state.links, axis=1)
        joints = jnp.stack([*ends, jnp.argsort(state.joint).astype(jnp.float32), state.gain])
        return jnp.concatenate([state.target, joints.T.reshape(-1)])

    def draw(self, state: ArmState) -> UInt8[np.ndarray, "height width 3"]:
        """Draw the links, the joints, the hand and the target."""
        return draw_arm(self.pose_of(state), close=self.default_params.close)

    def critic_features(self, state: ArmState) -> Float[Array, "5"]:
        """Return hand and target, and how much of the episode is over."""
        over = state.time / self.max_steps
        return jnp.concatenate([state.hand, state.target, over[None]])

    def best_action(self, state: ArmState) -> Action:
        """Return the damped least squares of the true Jacobian."""
        params = self.default_params

        def hand(angles: Array) -> Array:
            return state._replace(angles=angles).hand

        effect = jax.jacobian(hand)(state.angles) * state.gain
        gram = effect @ effect.T + _DAMPING * jnp.eye(2)
        wanted = (state.target - state.hand) / params.time_step
        speed = effect.T @ jnp.linalg.solve(gram, wanted)
        return (speed / jnp.maximum(1.0, jnp.max(jnp.abs(speed))))[state.joint]
