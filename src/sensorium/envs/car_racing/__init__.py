"""CarRacing in JAX.

| file | what |
|---|---|
| `world.py` | rewards, ends, the world's interface |
| `track.py` | tracks of tiles |
| `dynamics.py` | the car |
| `contact.py` | which tiles its wheels touch |
| `canvas.py` | the ground, painted once for each track |
| `image.py` | frames |
| `road_ahead.py` | where the road goes, in numbers |
"""

from sensorium.envs.car_racing.track import Track, draw_track, lay_track
from sensorium.envs.car_racing.world import (
    CarRacing,
    CarRacingParams,
    CarRacingRoad,
    CarRacingState,
)

__all__ = [
    "CarRacing",
    "CarRacingParams",
    "CarRacingRoad",
    "CarRacingState",
    "Track",
    "draw_track",
    "lay_track",
]
