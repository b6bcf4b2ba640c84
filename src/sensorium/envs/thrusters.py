"""Thrusters: a body in the plane with motors that push anywhere, in directions that nobody tells."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from sensorium.envs.body import Body
from sensorium.envs.drawing import draw_thrusters
from sensorium.errors import ConfigError
from sensorium.types import Action, Flag, Key, Observation, Scalar

_JUMP = 100  # steps, after which the target is elsewhere
_RIDGE = 1e-3  # of `best_action`


class ThrustersState(NamedTuple):
    """Body and target, in metres, seconds and radians."""

    position: Float[Array, "2"]
    velocity: Float[Array, "2"]
    angle: Float[Array, ""]
    angular_velocity: Float[Array, ""]
    wrench: Float[Array, "M 3"]
    """Force along x and y and torque of each motor at an action of 1, in the frame of the body; zeros if it
    is not connected."""
    thrust: Float[Array, " M"]
    """Of each motor now."""
    place: Float[Array, "M 2"]
    """Where each motor sits, in the frame of the body; only drawings ask."""
    targets: Float[Array, "2 2"]
    """Of either half of the episode."""
    time: Int[Array, ""]
    """Steps since the start."""

    @property
    def target(self) -> Float[Array, "2"]:
        """Where to go."""
        return self.targets[jnp.minimum(self.time // _JUMP, 1)]

    @property
    def distance(self) -> Scalar:
        """Of the target."""
        return jnp.linalg.norm(self.target - self.position)


@dataclasses.dataclass(frozen=True)
class ThrustersParams:
    """Physical constants."""

    mass: float = 1.0
    """kg."""
    inertia: float = 0.4
    """kg m²."""
    damping: float = 0.1
    """1/s, of velocities."""
    time_step: float = 0.1
    """s."""
    close: float = 0.3
    """m, within which the body is at its target."""


jax.tree_util.register_dataclass(ThrustersParams)


@dataclasses.dataclass(frozen=True)
class Thrusters(Body):
    """A body with motors in random places, which push in random directions with random gains.

    ## Action space
    M numbers in [-1, 1], of which 3 to M are connected, drawn for each episode. A motor sits 0.3 to 1 m from
    the middle of the body and pushes in any direction with 0.5 to 1.5 N.

    ## Observation space
    Five sensors, all in the frame of the body: x and y from the target to the body (m), the velocity (m/s),
    the angular velocity (rad/s).

    ## Rewards
    1 for each step within 0.3 m of the target. In training `1 - cost / 2 + exp(-d² / 0.18)`, where the cost
    is `sqrt(d² + 0.04) + 0.1 sqrt(v² + 0.01) + 0.1 sqrt(ω² + 0.01)`.

    ## Episode end
    Truncation after 200 steps of 0.1 s. After 100 the target is elsewhere.
    """

    one_sided: bool = False
    """Whether motors only push, at actions above zero."""
    lag: float = 0.0
    """The share of the thrust that is left of the step before."""

    id = "Thrusters"
    options = ("motors", "least", "one_sided", "lag")
    drawing = "thrusters"
    num_sensors = 5
    sensor_names = ("x", "y", "velocity x", "velocity y", "angular velocity")
    max_steps = 2 * _JUMP

    def __post_init__(self) -> None:
        """Raise ConfigError too if all of the thrust would be left for ever."""
        super().__post_init__()
        if not 0 <= self.lag < 1:
            raise ConfigError(f"lag is a share, from 0 to less than 1, not {self.lag:g}.")

    @property
    def default_params(self) -> ThrustersParams:
        """Those of the documentation."""
        return ThrustersParams()

    def reset_env(self, key: Key, params: Any) -> tuple[Observation, ThrustersState]:
        """Draw a body, its state, and targets within 2 m of the middle along each axis."""
        del params
        keys = jax.random.split(key, 9)
        count = jax.random.randint(keys[0], (), self.least, self.motors + 1)
        bearing, direction = jax.random.uniform(keys[1], (2, self.motors), maxval=2 * jnp.pi)
        radius = jax.random.uniform(keys[2], (self.motors,), minval=0.3, maxval=1.0)
        gain = jax.random.uniform(keys[3], (self.motors,), minval=0.5, maxval=1.5)
        gain = jnp.where(jax.random.permutation(keys[4], self.motors) < count, gain, 0.0)
        # The torque of a unit force is the distance times the sine of the angle between both
        force = jnp.stack([jnp.cos(direction), jnp.sin(direction)])
        torque = radius * jnp.sin(direction - bearing)
        state = ThrustersState(
            position=jnp.zeros(2),
            velocity=0.2 * jax.random.normal(keys[5], (2,)),
            angle=jax.random.uniform(keys[6], (), maxval=2 * jnp.pi),
            angular_velocity=jnp.zeros(()),
            wrench=(gain * jnp.concatenate([force, torque[None]])).T,
            thrust=jnp.zeros(self.motors),
            place=(radius * jnp.stack([jnp.cos(bearing), jnp.sin(bearing)])).T,
            targets=jax.random.uniform(keys[7], (2, 2), minval=-2.0, maxval=2.0),
            time=jnp.zeros((), jnp.int32),
        )
        return self.observe(state), state

    def step_env(
        self, key: Key, state: ThrustersState, action: Action, params: Any
    ) -> tuple[Observation, ThrustersState, Scalar, Flag, dict[str, Any]]:
        """Push for one step."""
        del key
        action = jnp.clip(action, 0.0 if self.one_sided else -1.0, 1.0)
        thrust = self.lag * state.thrust + (1 - self.lag) * action
        *force, torque = thrust @ state.wrench
        acceleration = _turned(jnp.stack(force), state.angle) / params.mass
        step = params.time_step
        velocity = state.velocity + step * (acceleration - params.damping * state.velocity)
        spin = state.angular_velocity
        spin = spin + step * (torque / params.inertia - params.damping * spin)
        state = state._replace(
            position=state.position + step * velocity,
            velocity=velocity,
            angle=state.angle + step * spin,
            angular_velocity=spin,
            thrust=thrust,
        )
        reward = _smooth_reward(state) if self.smooth else 1.0 * (state.distance < params.close)
        state = state._replace(time=state.time + 1)
        return self.observe(state), state, reward, jnp.zeros((), bool), {}

    def observe(self, state: ThrustersState) -> Observation:
        """Return the five sensors."""
        return jnp.concatenate(
            [
                _turned(state.position - state.target, -state.angle),
                _turned(state.velocity, -state.angle),
                state.angular_velocity[None],
            ]
        )

    def pose(self, state: ThrustersState) -> Float[Array, " numbers"]:
        """Return the place of the body (m), its angle (rad) and the target, then five numbers of each motor.

        These are its place and its force at an action of 1 (N), along x and y of the body, and its thrust.
        """
        motors = jnp.concatenate([state.place, state.wrench[:, :2], state.thrust[:, None]], axis=1)
        body = [state.position, state.angle[None], state.target]
        return jnp.concatenate([*body, motors.reshape(-1)])

    def draw(self, state: ThrustersState) -> UInt8[np.ndarray, "height width 3"]:
        """Draw the body with the jets of its motors, and the target, from above."""
        return draw_thrusters(self.pose_of(state), close=self.default_params.close)

    def critic_features(self, state: ThrustersState) -> Float[Array, "6"]:
        """Return the five sensors, and how much of the episode is over."""
        return jnp.append(self.observe(state), state.time / self.max_steps)

    def best_action(self, state: ThrustersState) -> Action:
        """Return the action of a controller that knows the body.

        A critically damped spring pulls the body to its target; the thrust that comes closest to its force is
        the least-squares one, or for motors that only push a non-negative one.
        """
        params = self.default_params
        sensed = self.observe(state)
        wanted = jnp.concatenate([-sensed[:2] - 1.8 * sensed[2:4], -2.0 * sensed[4:]])
        inertia = jnp.array([params.mass, params.mass, params.inertia])
        effect = (state.wrench / inertia).T
        gram = effect @ effect.T + _RIDGE * jnp.eye(3)
        action = effect.T @ jnp.linalg.solve(gram, wanted)
        if self.one_sided:
            rate = 1.0 / jnp.trace(gram)

            def closer(action: Array, _: None) -> tuple[Array, None]:
                slope = effect.T @ (effect @ action - wanted)
                return jnp.maximum(action - rate * slope, 0.0), None

            action, _ = jax.lax.scan(closer, jnp.maximum(action, 0.0), None, length=100)
        action = action / jnp.maximum(1.0, jnp.max(jnp.abs(action)))
        # What is left of the thrust before is made up for
        return jnp.clip((action - self.lag * state.thrust) / (1 - self.lag), -1.0, 1.0)


def _turned(vector: Float[Array, "2"], angle: Scalar) -> Float[Array, "2"]:
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    x, y = vector
    return jnp.stack([cosine * x - sine * y, sine * x + cosine * y])


def _smooth_reward(state: ThrustersState) -> Scalar:
    far, fast = jnp.sum((state.target - state.position) ** 2), jnp.sum(state.velocity**2)
    cost = jnp.sqrt(far + 0.04) + 0.1 * jnp.sqrt(fast + 0.01)
    cost += 0.1 * jnp.sqrt(state.angular_velocity**2 + 0.01)
    return 1.0 - cost / 2 + jnp.exp(-far / 0.18)
