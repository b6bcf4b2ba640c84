"""CartPoleSwingUpHarder: swing a pole up from any start and keep it up, on a short track.

The world of AN section 4.1, after Gal et al. (2016) and Freeman et al. (2019). The equations use the
same Euler step as the original: position and angle move with the velocities of before the step.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from sensorium.envs.base import Environment, check_motors
from sensorium.envs.drawing import draw_cartpole
from sensorium.seeding import stream
from sensorium.types import Action, Flag, Key, Observation, Scalar


class CartPoleState(NamedTuple):
    """Where the cart and its pole are; all fields share one shape."""

    position: Array
    """m, positive to the right."""
    velocity: Array
    """m/s."""
    angle: Array
    """rad, zero upright, positive counter-clockwise."""
    angular_velocity: Array
    """rad/s."""
    time: Array
    """Steps since the start."""


@dataclasses.dataclass(frozen=True)
class CartPoleParams:
    """Physical constants, and the ranges of starts."""

    gravity: float = 9.82
    """m/s²."""
    cart_mass: float = 0.5
    """kg."""
    pole_mass: float = 0.5
    """kg."""
    pole_length: float = 0.6
    """m."""
    friction: float = 0.1
    """N s/m, of the cart on its track."""
    force: float = 10.0
    """N, at an action of 1."""
    time_step: float = 0.01
    """s."""
    track: float = 2.4
    """m from the middle to either end."""
    start_velocity: float = 10.0
    """m/s; starts are uniform between minus this and this."""
    start_angle: float = jnp.pi / 2
    """rad around hanging down."""
    start_angular_velocity: float = 10.0
    """rad/s."""

    @property
    def total_mass(self) -> float:
        """Kg."""
        return self.cart_mass + self.pole_mass

    @property
    def pole_moment(self) -> float:
        """Kg m: mass of the pole times its length."""
        return self.pole_mass * self.pole_length


jax.tree_util.register_dataclass(CartPoleParams)

_PUSH = 1.5  # m/s, of full strength


@dataclasses.dataclass(frozen=True)
class CartPoleSwingUpHarder(Environment):
    """A cart on a track, a pole hanging from it, one motor.

    ## Action space
    One number in [-1, 1]: the force on the cart, times 10 N. Values outside are clipped.

    ## Observation space

    | index | meaning | unit | at the start |
    |---|---|---|---|
    | 0 | position of the cart | m | uniform in ±2.4 |
    | 1 | velocity of the cart | m/s | uniform in ±10 |
    | 2 | cosine of the angle | 1 | angle uniform in pi ± pi/2 (0 is upright) |
    | 3 | sine of the angle | 1 | |
    | 4 | angular velocity | rad/s | uniform in ±10 |

    ## Rewards
    `(cos(angle) + 1) / 2 * cos(pi/2 * position / 2.4)`, at most 1 a step, paid on the last step too.

    ## Episode end
    1. Termination: the cart leaves the track, |position| > 2.4.
    2. Truncation: after 1,000 steps (10 s).

    About a third of the starts fail under any policy: a cart at 10 m/s needs metres to stop.
    """

    id = "CartPoleSwingUpHarder"
    num_sensors = 5
    num_actions = 1
    sensor_names = ("position", "velocity", "cos angle", "sin angle", "angular velocity")
    motor_names = ("force",)
    max_steps = 1000
    steps_per_second = round(1 / CartPoleParams.time_step)
    solved_return = 700.0
    drawing = "cartpole"
    failure = "left the track"
    can_be_pushed = True

    @property
    def default_params(self) -> CartPoleParams:
        """The published constants."""
        return CartPoleParams()

    def reset_env(self, key: Key, params: Any) -> tuple[Observation, CartPoleState]:
        """Draw a start uniformly; see the class."""
        ranges = jnp.array(
            [params.track, params.start_velocity, params.start_angle, params.start_angular_velocity]
        )
        start = jax.random.uniform(key, (4,), jnp.float32, -1.0, 1.0) * ranges
        state = CartPoleState(
            position=start[0],
            velocity=start[1],
            angle=jnp.pi + start[2],
            angular_velocity=start[3],
            time=jnp.zeros((), jnp.int32),
        )
        return self.observe(state), state

    def step_env(
        self, key: Key, state: Any, action: Action, params: Any
    ) -> tuple[Observation, CartPoleState, Scalar, Flag, dict[str, Any]]:
        """Advance by one time step."""
        del key
        state = integrate(state, action[0], params)
        terminated = jnp.abs(state.position) > params.track
        return self.observe(state), state, reward(state, params), terminated, {}

    def observe(self, state: Any) -> Observation:
        """Return the five sensors, along a new leading axis."""
        return jnp.stack(
            [
                state.position,
                state.velocity,
                jnp.cos(state.angle),
                jnp.sin(state.angle),
                state.angular_velocity,
            ]
        )

    def draw(self, state: Any) -> UInt8[np.ndarray, "height width 3"]:
        """Draw the cart on its track and the pole, with the published lengths."""
        params = self.default_params
        return draw_cartpole(
            float(state.position),
            float(state.angle),
            track=params.track,
            pole_length=params.pole_length,
        )

    def pose(self, state: Any) -> Float[Array, "2"]:
        """Return the position of the cart (m) and the angle of the pole (rad)."""
        return jnp.stack([state.position, state.angle])

    def push(self, state: Any, strength: float) -> CartPoleState:
        """Add up to 1.5 m/s to the velocity of the cart."""
        return state._replace(velocity=state.velocity + np.float32(_PUSH * strength))

    def critic_features(self, state: Any) -> Float[Array, "5"]:
        """Return the five sensors, velocities divided by 10 and the position by 2.4."""
        return self.observe(state) / jnp.array([2.4, 10.0, 1.0, 1.0, 10.0])


class CartPoleMotorsState(NamedTuple):
    """A cart with its pole, as `CartPoleState` has them, and its motors."""

    position: Array
    velocity: Array
    angle: Array
    angular_velocity: Array
    time: Array
    gains: Float[Array, " M"]
    """What an action of 1 of each motor is to the cart; 0 of those that are not connected."""


@dataclasses.dataclass(frozen=True)
class CartPoleMotors(CartPoleSwingUpHarder):
    """The same with M motors, of which one is connected, drawn for each episode.

    ## Action space
    M numbers in [-1, 1]. That of the motor that is connected is multiplied by 1 to 2, or by -1 to -2, and is
    then what the only motor of CartPoleSwingUpHarder gets: 10 N at most. All else is as there.
    """

    motors: int = 4
    """M."""

    id = "CartPoleMotors"
    options = ("motors",)

    def __post_init__(self) -> None:
        """Raise ConfigError if there are too many or no motors."""
        check_motors(self.motors)

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        """M."""
        return self.motors

    @property
    def motor_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """By their numbers: which one is connected differs."""
        return tuple(f"motor {index + 1}" for index in range(self.motors))

    def reset_env(self, key: Key, params: Any) -> tuple[Observation, Any]:
        """Draw a start, and which motor is connected."""
        observation, cart = super().reset_env(key, params)
        key_which, key_gain, key_sign = jax.random.split(stream(key, "motors"), 3)
        gain = jax.random.uniform(key_gain, minval=1.0, maxval=2.0)
        gain *= jax.random.rademacher(key_sign, (), jnp.float32)
        live = jnp.arange(self.motors) == jax.random.randint(key_which, (), 0, self.motors)
        return observation, CartPoleMotorsState(*cart, gains=jnp.where(live, gain, 0.0))

    def step_env(
        self, key: Key, state: Any, action: Action, params: Any
    ) -> tuple[Observation, Any, Scalar, Flag, dict[str, Any]]:
        """Advance by one time step."""
        cart, force = CartPoleState(*state[:-1]), self.from_motors(state, action)
        observation, cart, reward, terminated, info = super().step_env(key, cart, force, params)
        state = CartPoleMotorsState(*cart, gains=state.gains)
        return observation, state, reward, terminated, info

    @property
    def num_plain_actions(self) -> int:
        """The force alone."""
        return 1

    def to_motors(self, state: Any, plain: Float[Array, " P"]) -> Action:
        """Leave it to the motor that is connected."""
        live = state.gains != 0
        return jnp.where(live, plain / jnp.where(live, state.gains, 1.0), 0.0)

    def from_motors(self, state: Any, command: Action) -> Float[Array, " P"]:
        """Return the force, which may be beyond what the cart takes."""
        return jnp.sum(jnp.clip(command, -1.0, 1.0) * state.gains, keepdims=True)

    def critic_features(self, state: Any) -> Float[Array, " F"]:
        """Return those of the cart, and the gains."""
        return jnp.concatenate([super().critic_features(state), state.gains])


def integrate(state: CartPoleState, action: Array, params: Any) -> CartPoleState:
    """Take one Euler step; works elementwise on states of any shape."""
    force = params.force * jnp.clip(action, -1.0, 1.0) - params.friction * state.velocity
    sine, cosine = jnp.sin(state.angle), jnp.cos(state.angle)
    swing = params.pole_moment * state.angular_velocity**2 * sine
    acceleration = (
        -2 * swing + 3 * params.pole_mass * params.gravity * sine * cosine + 4 * force
    ) / (4 * params.total_mass - 3 * params.pole_mass * cosine**2)
    angular_acceleration = (
        -3 * swing * cosine + 6 * params.total_mass * params.gravity * sine + 6 * force * cosine
    ) / (4 * params.pole_length * params.total_mass - 3 * params.pole_moment * cosine**2)
    step = params.time_step
    return CartPoleState(
        position=state.position + step * state.velocity,
        velocity=state.velocity + step * acceleration,
        angle=state.angle + step * state.angular_velocity,
        angular_velocity=state.angular_velocity + step * angular_acceleration,
        time=state.time + 1,
    )


def reward(state: CartPoleState, params: Any) -> Array:
    """Compute the reward, between 0 and 1: pole up, cart in the middle."""
    upright = (jnp.cos(state.angle) + 1) / 2
    return upright * jnp.cos(jnp.pi / 2 * state.position / params.track)
