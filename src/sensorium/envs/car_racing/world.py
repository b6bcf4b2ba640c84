"""CarRacing: drive around a track that is drawn anew for every episode, seen from above.

The world of Gymnasium's `CarRacing-v3` (continuous) in JAX: the same tracks from the same random numbers, the
same car, the same rewards, nearly the same images. `docs/worlds.md` says how nearly.

Departures: visited tiles keep their shade of grey (which differ by 2 and 5 of 255), and digits of the return
are drawn of bars.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from sensorium.envs.base import Environment
from sensorium.envs.car_racing import dynamics
from sensorium.envs.car_racing.canvas import Canvas, paint
from sensorium.envs.car_racing.contact import Road, survey, touched
from sensorium.envs.car_racing.dynamics import STEER_LIMIT, STEPS_PER_SECOND, Car
from sensorium.envs.car_racing.image import PIXELS, Packed, draw, unpack
from sensorium.envs.car_racing.road_ahead import ROAD_SENSORS, road_ahead
from sensorium.envs.car_racing.track import MAX_TILES, PLAYFIELD, Track, draw_track
from sensorium.errors import ConfigError
from sensorium.types import Action, Flag, Key, Scalar, Sensed


class CarRacingState(NamedTuple):
    """The car, its track, and which tiles it has touched."""

    car: Car
    road: Road
    """The road: the same through an episode."""
    canvas: Canvas | None
    """The painted ground: the same through an episode; None where no images are drawn."""
    image: Packed | None
    """The frame. Kept, as else XLA would draw it anew for each of its readers."""
    on_road: Bool[Array, "4"]
    """Which wheels touched a tile when that was last checked."""
    visited: Bool[Array, " K"]
    """Which tiles have been touched by a wheel."""
    unpaid: Float[Array, ""]
    """Reward for tiles touched at the start, which the first step pays."""
    total: Float[Array, ""]
    """Return so far."""
    idle: Int[Array, ""]
    """Steps in a row without reward."""
    time: Int[Array, ""]
    """Steps since the start."""


@dataclasses.dataclass(frozen=True)
class CarRacingParams:
    """What the world pays and when it ends."""

    step_reward: float = -0.1
    """For each step."""
    lap_reward: float = 1000.0
    """For all tiles of the track together."""
    lap: float = 0.95
    """Part of the tiles that make a lap, once the first is reached again."""
    left_reward: float = -100.0
    """For leaving the playfield."""


jax.tree_util.register_dataclass(CarRacingParams)


@dataclasses.dataclass(frozen=True)
class CarRacing(Environment):
    """A car on a closed road, seen from above.

    ## Action space
    Three numbers in [-1, 1]: steering (-1 is left), gas and brake, the latter two mapped linearly from
    [-1, 1] to [0, 1] as the papers do.

    ## Observation space
    An image of 96 x 96 x 3 bytes: the car upright at (72, 48), the camera coming down in the first
    second, and on the lowest 12 rows what Gymnasium shows: return, speed, spin of the four wheels,
    steering and turning.

    ## Rewards
    -0.1 a step, and 1,000 divided by the number of tiles for each tile that a wheel touches first.

    ## Episode end
    1. Termination: all tiles are touched, or the car leaves the playfield (reward -100).
    2. With `patience`, termination after that many steps in a row without reward: for training.
    3. Truncation: after 1,000 steps (20 s).
    """

    patience: int = 0
    """Steps in a row without reward that end an episode; 0 for any number."""

    id = "CarRacing"
    observation_shape: ClassVar[tuple[int, ...]] = (PIXELS, PIXELS, 3)
    num_actions = 3
    motor_names = ("steering", "gas", "brake")
    sensor_names: ClassVar[tuple[str, ...]] = ()
    max_steps = 1000
    steps_per_second = STEPS_PER_SECOND
    scored_episodes = 100
    solved_return = 900.0
    host_twin: ClassVar[str | None] = "gym:CarRacing-v3"
    failure = "finished, or left the field"

    @property
    def num_sensors(self) -> int:
        """None to count: ConfigError."""
        raise ConfigError(
            f"{self.id} shows images of shape {self.observation_shape}; it has no scalar sensors."
        )

    @property
    def default_params(self) -> CarRacingParams:
        """Gymnasium's."""
        return CarRacingParams()

    def reset_env(self, key: Key, params: Any) -> tuple[Sensed, CarRacingState]:
        """Draw a track and put the car on its first tile."""
        track = draw_track(key)
        return self.start_on(track, params)

    def start_on(self, track: Track, params: Any = None) -> tuple[Sensed, CarRacingState]:
        """Start on a track that is given, as Gymnasium does: with one step in which nothing is pressed."""
        params = self.default_params if params is None else params
        car = dynamics.start(track.middle[0, 0], track.middle[0, 1], track.heading[0])
        zero = jnp.zeros((), jnp.int32)
        state = CarRacingState(
            car=dynamics.first_step(car),
            road=survey(track),
            canvas=self._paint(track),
            image=None,
            on_road=jnp.zeros(4, bool),
            visited=jnp.zeros(MAX_TILES, bool),
            unpaid=jnp.zeros(()),
            total=jnp.zeros(()),
            idle=zero,
            time=zero,
        )
        on_road, visited, paid = _touch(state, car, params)
        state = state._replace(on_road=on_road, visited=visited, unpaid=paid, total=paid)
        state = state._replace(image=self._draw(state))
        return self.observe(state), state

    def step_env(
        self, key: Key, state: CarRacingState, action: Action, params: Any
    ) -> tuple[Sensed, CarRacingState, Scalar, Flag, dict[str, Any]]:
        """Advance by 1/50 s."""
        del key
        action = jnp.clip(action, -1.0, 1.0)
        gas, brake = (action[1] + 1) / 2, (action[2] + 1) / 2
        before = state.car
        car = dynamics.drive(before, action[0], gas, brake, state.on_road)
        # As in Box2D, tiles are touched where the car was at the beginning of the step
        on_road, visited, earned = _touch(state, before, params)
        reward = state.unpaid + earned + params.step_reward
        count = jnp.sum(visited)
        lap = visited[0] & ~state.visited[0] & (count > params.lap * state.road.size)
        x, y = car.position
        left = jnp.maximum(jnp.abs(x), jnp.abs(y)) > PLAYFIELD
        reward = jnp.where(left, params.left_reward, reward)
        idle = jnp.where(reward > 0, 0, state.idle + 1)
        tired = (idle > self.patience) & (self.patience > 0)
        terminated = (count == state.road.size) | lap | left | tired
        state = state._replace(
            car=car,
            on_road=on_road,
            visited=visited,
            unpaid=jnp.zeros(()),
            total=state.total + earned,
            idle=idle,
            time=state.time + 1,
        )
        image = self._draw(state)
        state = state._replace(image=image, total=state.total + params.step_reward)
        return self.observe(state), state, reward, terminated, {}

    def observe(self, state: CarRacingState) -> Sensed:
        """Return the image."""
        assert state.image is not None
        return unpack(state.image)

    def draw(self, state: CarRacingState) -> UInt8[np.ndarray, "height width 3"] | None:
        """Draw the image, each pixel four times as wide; None where no images are drawn."""
        if state.image is None:
            return None
        return np.asarray(unpack(state.image)).repeat(4, 0).repeat(4, 1)

    def pose(self, state: CarRacingState) -> Float[Array, "4"]:
        """Return the position of the car (m), its angle and that of its front wheels (rad)."""
        car = state.car
        return jnp.stack([*car.position, car.angle, car.steering])

    def scenery(self, state: CarRacingState) -> Float[np.ndarray, "points 2"]:
        """Return the middle of the road, tile by tile."""
        return np.asarray(state.road.lines).T[: int(state.road.size), :2].astype(np.float32)

    def split(self, state: CarRacingState) -> tuple[Any, Any]:
        """Separate the track and its canvas, of 21 MB, from the rest."""
        return state._replace(canvas=None, road=None), (state.road, state.canvas)  # type: ignore[arg-type]

    def join(self, changing: Any, constant: Any) -> CarRacingState:
        """Put both together."""
        road, canvas = constant
        return changing._replace(road=road, canvas=canvas)

    def critic_features(self, state: CarRacingState) -> Float[Array, " F"]:
        """Compute where the road goes and how the car moves: see `road_ahead`."""
        return road_ahead(state.road, state.car, state.on_road)

    def for_training(self) -> "CarRacing":
        """Return the world whose episodes end after 20 steps in a row without reward."""
        return dataclasses.replace(self, patience=20)

    def _paint(self, track: Track) -> Canvas | None:
        return paint(track)

    def _draw(self, state: CarRacingState) -> Packed | None:
        assert state.canvas is not None
        return draw(state.canvas, state.car, state.time, state.total)


_SPEEDING_COST = 0.05  # a step, for each m/s above the limit


@dataclasses.dataclass(frozen=True)
class CarRacingRoad(CarRacing):
    """The same world with the numbers of `road_ahead` as observations: no images are drawn.

    For experts: an agent that reads the track learns in minutes, and can then label the states of one that
    reads images. Its observation shows no more of the road than images do, so that it can be imitated.
    """

    roughness: float = 0.0
    """What it costs at each step to ask for another angle than the front wheels have, for the square of the
    difference in units of the largest angle: for training experts that steer smoothly."""
    speed_limit: float = float("inf")
    """m/s. What is above costs 0.05 for each m/s at each step: for training experts that a student can
    follow."""

    id = "CarRacingRoad"
    observation_shape = (len(ROAD_SENSORS),)
    num_sensors = len(ROAD_SENSORS)
    sensor_names = ROAD_SENSORS
    drawing = "road"
    host_twin = None

    def for_training(self) -> "CarRacingRoad":
        """Return the world that ends as `CarRacing.for_training`; restless steering and speeding cost."""
        return dataclasses.replace(self, patience=20, roughness=1.0, speed_limit=67.0)

    def step_env(
        self, key: Key, state: CarRacingState, action: Action, params: Any
    ) -> tuple[Sensed, CarRacingState, Scalar, Flag, dict[str, Any]]:
        """Advance by 1/50 s."""
        observation, after, reward, terminated, info = super().step_env(key, state, action, params)
        asked = jnp.clip(-action[0], -STEER_LIMIT, STEER_LIMIT)
        restless = ((asked - state.car.steering) / STEER_LIMIT) ** 2
        speeding = jnp.maximum(jnp.hypot(after.car.vx, after.car.vy) - self.speed_limit, 0.0)
        cost = self.roughness * restless + _SPEEDING_COST * speeding
        return observation, after, reward - cost, terminated, info

    def observe(self, state: CarRacingState) -> Sensed:
        """Compute where the road goes and how the car moves."""
        return self.critic_features(state)

    def _paint(self, track: Track) -> None:
        del track

    def _draw(self, state: CarRacingState) -> None:
        del state


def _touch(
    state: CarRacingState, car: Car, params: Any
) -> tuple[Bool[Array, "4"], Bool[Array, " K"], Scalar]:
    """Return wheels on the road, tiles visited so far, and what is paid for the new ones."""
    tiles, touches = touched(state.road, car)
    new = jnp.any(touches, 1) & ~state.visited[tiles]
    visited = state.visited.at[tiles].max(new)
    paid = jnp.sum(new) * params.lap_reward / state.road.size
    return jnp.any(touches, 0), visited, paid.astype(jnp.float32)
