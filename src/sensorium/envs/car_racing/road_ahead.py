"""CarRacing in numbers: where the road goes and how the car moves."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sensorium.envs.car_racing.contact import Road, nearby
from sensorium.envs.car_racing.dynamics import STEER_LIMIT, WHEEL_HALF, Car

_AHEAD = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)  # tiles of 3.5 m, as far as a frame shows
ROAD_SENSORS = (
    "m to the right of the middle / 10",
    "sine of the heading to the road",
    "cosine of the heading to the road",
    "speed ahead / 50 m/s",
    "speed sideways / 10 m/s",
    "turning / 2 rad/s",
    "steering / 0.4 rad",
    "slip of the rear wheels / 20 m/s",
    "wheels on the road / 4",
    *(f"m to the right of the road {tiles} tiles ahead / 30" for tiles in _AHEAD),
    *(f"m that it goes on, {tiles} tiles ahead / 30" for tiles in _AHEAD),
)
"""What each number of `road_ahead` is."""


def road_ahead(road: Road, car: Car, on_road: Bool[Array, "4"]) -> Float[Array, " F"]:
    """Compute where the road goes, relative to the car, and how the car moves; all of size about 1.

    Args:
        road: The track.
        car: The car.
        on_road: Which wheels touch a tile.

    Returns:
        The numbers that `ROAD_SENSORS` names.
    """
    tiles = nearby(road, car).reshape(-1)
    x, y, sine, cosine = road.lines[:, tiles]
    ahead_x, ahead_y = -jnp.sin(car.angle), jnp.cos(car.angle)
    # Where two stretches pass by one another, the one that goes the car's way
    facing = ahead_y * cosine - ahead_x * sine
    distance = (x - car.x) ** 2 + (y - car.y) ** 2 + 100 * (1 - facing)
    nearest = jnp.argmin(distance)
    here = tiles[nearest]
    right = (car.x - x[nearest]) * cosine[nearest] + (car.y - y[nearest]) * sine[nearest]
    across = ahead_x * cosine[nearest] + ahead_y * sine[nearest]
    point_x, point_y = road.lines[:2, (here + np.array(_AHEAD)) % road.size]
    dx, dy = point_x - car.x, point_y - car.y
    speed_ahead = car.vx * ahead_x + car.vy * ahead_y
    rear = sum(wheel.spin for wheel in car.wheels[2:]) / 2 * WHEEL_HALF[1]
    numbers = [
        right / 10,
        across,
        facing[nearest],
        speed_ahead / 50,
        (car.vx * ahead_y - car.vy * ahead_x) / 10,
        car.turning / 2,
        car.steering / STEER_LIMIT,
        (rear - speed_ahead) / 20,
        jnp.sum(on_road) / 4,
    ]
    return jnp.concatenate(
        [
            jnp.stack(numbers),
            (dx * ahead_y - dy * ahead_x) / 30,
            (dx * ahead_x + dy * ahead_y) / 30,
        ]
    )
