"""Gymnasium's CarRacing, drawn with few calls into Python: the same pixels, sooner.

For every frame the environment turns each of some 700 polygons of grass and road in Python, to draw the
few that are in view. Here all are turned at once, and the environment is asked to draw those that may be in
view, in its own order; what it draws then is still its own decision.
"""

from typing import Any

import gymnasium
import numpy as np

_RACING = "gymnasium.envs.box2d.car_racing"
_SLACK = 2.0  # pixels, for rounding that differs in the last digits


def quicken(env: gymnasium.Env) -> None:
    """Draw an environment by `QuickRoad`, if it is Gymnasium's CarRacing itself."""
    racing = env.unwrapped
    if type(racing).__module__ == _RACING and type(racing).__name__ == "CarRacing":
        racing._render_road = QuickRoad(racing)


class QuickRoad:
    """`CarRacing._render_road` of one environment."""

    def __init__(self, racing: Any):
        from gymnasium.envs.box2d import car_racing

        self._racing = racing
        edge, side = car_racing.PLAYFIELD, car_racing.GRASS_DIM
        self._field = [(edge, edge), (edge, -edge), (-edge, -edge), (-edge, edge)]
        corners = [(side * x, side * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)]
        self._grass = [
            [(x + side, y), (x, y), (x, y + side), (x + side, y + side)] for x, y in corners
        ]
        reach = car_racing.MAX_SHAPE_DIM + _SLACK
        self._lowest = np.array([-reach, -reach])
        self._highest = np.array([car_racing.WINDOW_W + reach, car_racing.WINDOW_H + reach])
        self._known: list[Any] | None = None

    def __call__(self, zoom: float, translation: tuple[float, float], angle: float) -> None:
        """Draw the road as the environment does."""
        racing = self._racing
        if self._known is not racing.road_poly:
            self._look()
        where = zoom, translation, angle
        racing._draw_colored_polygon(racing.surf, self._field, racing.bg_color, *where, clip=False)
        for number in self._near(*where):
            polygon, colour = self._polygons[number]
            colour = racing.grass_color if colour is None else [int(part) for part in colour]
            racing._draw_colored_polygon(racing.surf, polygon, colour, *where)

    def _look(self) -> None:
        """Note the polygons of a new track, after those of grass; colours change where the car has been."""
        self._known = self._racing.road_poly
        road = [
            ([(point[0], point[1]) for point in polygon], colour) for polygon, colour in self._known
        ]
        self._polygons = [(polygon, None) for polygon in self._grass] + road
        self._corners = np.array([polygon for polygon, _ in self._polygons])

    def _near(self, zoom: float, translation: tuple[float, float], angle: float) -> np.ndarray:
        """Find the polygons that have a corner in view, or almost."""
        cos, sin = np.cos(angle) * zoom, np.sin(angle) * zoom
        seen = self._corners @ np.array([[cos, sin], [-sin, cos]]) + np.array(translation)
        inside = ((self._lowest <= seen) & (seen <= self._highest)).all(-1)
        return np.flatnonzero(inside.any(-1))
