"""The car of CarRacing: a hull on four wheels that grip, slip and are steered.

What Gymnasium's `car_dynamics.py` does on top of Box2D, and what Box2D then does with five bodies and
four hinges, in closed form. Box2D solves for the impulses in the hinges by 180 sweeps over them; they
converge, so here the conserved momenta give the velocities after the impulses at once:

- each wheel sits at its hinge, so it adds a point mass there, and its own inertia to the hull's rotation;
- a hinge's motor is strong enough to turn its wheel against the hull just as fast as it is set to;
- a hinge at its limit turns no further, and turns back only once the motor has taken back what it had
  pushed against the limit: Box2D lets it push anew in each of its sweeps (`Car.strain`).

Positions are corrected as Box2D corrects them, one hinge after the other, until all are within 5 mm.
Departures: none that rounding does not outweigh; the tests hold both side by side.

All is written in single numbers: thousands of cars side by side are then long vectors, which a CPU adds and
multiplies sixteen at a time.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from sensorium.types import Flag, Scalar

SIZE = 0.02
"""m for each unit of the drawings below."""
WHEEL_PLACES = tuple((x * SIZE, y * SIZE) for x, y in ((-55, 80), (55, 80), (-55, -82), (55, -82)))
"""m from the origin of the hull: front left, front right, rear left, rear right."""
WHEEL_HALF = (14 * SIZE, 27 * SIZE)
"""m, half the width and the radius of a wheel."""
STEER_LIMIT = 0.4
"""rad, of the front wheels."""

STEPS_PER_SECOND = 50

_STEP = 1 / STEPS_PER_SECOND
_HULL_MASS, _WHEEL_MASS = 7.06, 0.06048
_HULL_INERTIA, _WHEEL_INERTIA = 18.212275, 0.0074592  # around their centres of mass
_HULL_CENTRE = (0.0, -0.0825309)  # centre of mass of the hull, from its origin
_ARMS = tuple((x - _HULL_CENTRE[0], y - _HULL_CENTRE[1]) for x, y in WHEEL_PLACES)
_TOTAL_MASS = _HULL_MASS + 4 * _WHEEL_MASS
_LEVER = tuple(_WHEEL_MASS * sum(arm[axis] for arm in _ARMS) for axis in (0, 1))  # unturned
_INERTIA = (
    _HULL_INERTIA
    + 4 * _WHEEL_INERTIA
    + _WHEEL_MASS * sum(x * x + y * y for x, y in _ARMS)
    - (_LEVER[0] ** 2 + _LEVER[1] ** 2) / _TOTAL_MASS
)  # of all together, around their centre of mass

_ENGINE_POWER = 100_000_000 * SIZE**2
_SPIN_INERTIA = 4000 * SIZE**2
_GRIP = 1_000_000 * SIZE**2  # N, on the road
_GRIP_ON_GRASS = 0.6 * _GRIP
_STIFFNESS = 205_000 * SIZE**2  # N for each m/s of slip
_BRAKING = 15.0  # rad/s taken off in each step
_MOTOR = 1 / (1 / _HULL_INERTIA + 1 / _WHEEL_INERTIA)  # kg m², what a hinge's motor turns
_MOST_STRAIN = 180 * 900 * SIZE**2 * _STEP  # of its largest torque
_SWEEPS = 180
_REAR = (2, 3)

_SHARE = 1 / _HULL_MASS + 1 / _WHEEL_MASS
_POSITION_SWEEPS = 60
_SLOP, _ANGLE_SLOP, _LARGEST_TURN = 0.005, 2 / 180 * math.pi, 8 / 180 * math.pi  # of Box2D
_HINGES = (3, 2, 1, 0)  # in the order in which Box2D goes through them


class Wheel(NamedTuple):
    """Where a wheel is and how it moves."""

    x: Scalar
    """m, its centre."""
    y: Scalar
    """m."""
    angle: Scalar
    """rad, as the hull's angle."""
    vx: Scalar
    """m/s."""
    vy: Scalar
    """m/s."""
    turning: Scalar
    """rad/s."""
    spin: Scalar
    """rad/s, around the axle."""
    phase: Scalar
    """rad, around the axle."""
    strain: Scalar
    """N m s, impulse with which the motor of its hinge presses against the hinge's limit."""


class Car(NamedTuple):
    """Where everything is and how it moves."""

    x: Scalar
    """m, the hull's centre of mass."""
    y: Scalar
    """m."""
    angle: Scalar
    """rad, zero facing up (+y), positive counter-clockwise."""
    vx: Scalar
    """m/s."""
    vy: Scalar
    """m/s."""
    turning: Scalar
    """rad/s."""
    gas: Scalar
    """0 to 1, of the engine, which drives the rear wheels."""
    wheels: tuple[Wheel, ...]
    """Four, as `WHEEL_PLACES`."""

    @property
    def position(self) -> tuple[Scalar, Scalar]:
        """m, the origin of the hull."""
        x, y = _rotate(jnp.sin(self.angle), jnp.cos(self.angle), _HULL_CENTRE)
        return self.x - x, self.y - y

    @property
    def steering(self) -> Scalar:
        """rad, of the front wheels against the hull."""
        return self.wheels[0].angle - self.angle


def start(x: Scalar, y: Scalar, angle: Scalar) -> Car:
    """Make a car at rest. As in Gymnasium, only the first step turns its wheels into place."""
    zero = jnp.zeros(())
    centre = _rotate(jnp.sin(angle), jnp.cos(angle), _HULL_CENTRE)
    wheels = [
        Wheel(x + place[0], y + place[1], angle, zero, zero, zero, zero, zero, zero)
        for place in WHEEL_PLACES
    ]
    return Car(x + centre[0], y + centre[1], angle, zero, zero, zero, zero, tuple(wheels))


def first_step(car: Car) -> Car:
    """Make the step that Gymnasium makes at the start: nothing moves but wheels into their hinges."""
    limits = (jnp.zeros(()),) * 4
    _, (car, _) = jax.lax.while_loop(
        lambda now: now[1][1] & (now[0] < _POSITION_SWEEPS),
        lambda now: (now[0] + 1, _settle(now[1][0], limits)),
        (0, (car, jnp.ones((), bool))),
    )
    return car


def drive(car: Car, steer: Scalar, gas: Scalar, brake: Scalar, on_road: Bool[Array, "4"]) -> Car:
    """Advance by one step of 1/50 s.

    Args:
        car: Before.
        steer: In [-1, 1], positive to the right.
        gas: In [0, 1].
        brake: In [0, 1].
        on_road: Which wheels touch the road.
    """
    gas = car.gas + jnp.minimum(jnp.clip(gas, 0.0, 1.0) - car.gas, 0.1)
    car = car._replace(gas=gas)
    motors, limits, pushed = [], [], []
    for place, wheel in enumerate(car.wheels):
        steering = wheel.angle - car.angle
        wanted = -steering if place in _REAR else -steer - steering
        motor = jnp.sign(wanted) * jnp.minimum(50 * jnp.abs(wanted), 3.0)
        limit = jnp.where(steering >= STEER_LIMIT, 1.0, 0.0)
        limit = jnp.where(steering <= -STEER_LIMIT, -1.0, limit)
        strain = jnp.clip(wheel.strain + _SWEEPS * _MOTOR * limit * motor, 0.0, _MOST_STRAIN)
        wheel = wheel._replace(strain=jnp.where(limit != 0, strain, 0.0))
        pushed.append(_roll(wheel, gas if place in _REAR else None, brake, on_road[place]))
        motors.append(jnp.where(wheel.strain > 0, 0.0, motor))
        limits.append(limit)
    car = _move(_hinge(car._replace(wheels=tuple(pushed)), motors))
    car, off = _settle(car, limits)
    again, _ = _settle(car, limits)
    return jax.tree.map(lambda new, old: jnp.where(off, new, old), again, car)


def _roll(wheel: Wheel, gas: Scalar | None, brake: Scalar, on_road: Flag) -> Wheel:
    """Spin the wheel and push it: as hard as it slips, up to its grip."""
    sine, cosine = jnp.sin(wheel.angle), jnp.cos(wheel.angle)
    spin, radius = wheel.spin, WHEEL_HALF[1]
    if gas is not None:
        spin = spin + _STEP * _ENGINE_POWER / _SPIN_INERTIA * gas / (jnp.abs(spin) + 5.0)
    slowed = jnp.maximum(jnp.abs(spin) - _BRAKING * jnp.maximum(brake, 0.0), 0.0)
    spin = jnp.where(brake >= 0.9, 0.0, jnp.sign(spin) * slowed)
    phase = wheel.phase + _STEP * spin
    along = _STIFFNESS * (spin * radius + sine * wheel.vx - cosine * wheel.vy)
    across = -_STIFFNESS * (cosine * wheel.vx + sine * wheel.vy)
    force = jnp.sqrt(along * along + across * across)
    grip = jnp.where(on_road, _GRIP, _GRIP_ON_GRASS)
    share = jnp.minimum(1.0, grip / jnp.maximum(force, 1e-9))
    along, across = along * share, across * share
    return wheel._replace(
        spin=spin - _STEP * radius / _SPIN_INERTIA * along,
        phase=phase,
        vx=wheel.vx + _STEP / _WHEEL_MASS * (across * cosine - along * sine),
        vy=wheel.vy + _STEP / _WHEEL_MASS * (across * sine + along * cosine),
    )


def _hinge(car: Car, motors: Sequence[Scalar]) -> Car:
    """Compute the velocities after the impulses in the hinges, from the momenta before."""
    sine, cosine = jnp.sin(car.angle), jnp.cos(car.angle)
    arms = [_rotate(sine, cosine, arm) for arm in _ARMS]
    lever = _rotate(sine, cosine, _LEVER)
    px = _HULL_MASS * car.vx + _WHEEL_MASS * sum(wheel.vx for wheel in car.wheels)
    py = _HULL_MASS * car.vy + _WHEEL_MASS * sum(wheel.vy for wheel in car.wheels)
    spin = _HULL_INERTIA * car.turning
    for wheel, (x, y), motor in zip(car.wheels, arms, motors, strict=True):
        spin = spin + _WHEEL_MASS * (x * wheel.vy - y * wheel.vx)
        spin = spin + _WHEEL_INERTIA * (wheel.turning - motor)
    turning = (spin - (lever[0] * py - lever[1] * px) / _TOTAL_MASS) / _INERTIA
    vx, vy = (px + turning * lever[1]) / _TOTAL_MASS, (py - turning * lever[0]) / _TOTAL_MASS
    wheels = [
        wheel._replace(vx=vx - turning * y, vy=vy + turning * x, turning=turning + motor)
        for wheel, (x, y), motor in zip(car.wheels, arms, motors, strict=True)
    ]
    return car._replace(vx=vx, vy=vy, turning=turning, wheels=tuple(wheels))


def _move(car: Car) -> Car:
    def moved(body: Any) -> Any:
        return body._replace(
            x=body.x + _STEP * body.vx,
            y=body.y + _STEP * body.vy,
            angle=body.angle + _STEP * body.turning,
        )

    return moved(car)._replace(wheels=tuple(moved(wheel) for wheel in car.wheels))


def _settle(car: Car, limits: Sequence[Scalar]) -> tuple[Car, Flag]:
    """Sweep once over the hinges to move wheels into them; return whether any was off by too much."""
    off = jnp.zeros((), bool)
    wheels = list(car.wheels)
    for place in _HINGES:
        wheel, limit = wheels[place], limits[place]
        beyond = jnp.abs(limit) * (limit * (wheel.angle - car.angle) - STEER_LIMIT)
        turn = limit * jnp.clip(beyond - _ANGLE_SLOP, 0.0, _LARGEST_TURN) * _MOTOR
        angle = car.angle + turn / _HULL_INERTIA
        x, y = _rotate(jnp.sin(angle), jnp.cos(angle), _ARMS[place])
        gap_x, gap_y = wheel.x - car.x - x, wheel.y - car.y - y
        xx, yy = _SHARE + y * y / _HULL_INERTIA, _SHARE + x * x / _HULL_INERTIA
        xy = -x * y / _HULL_INERTIA
        whole = xx * yy - xy * xy
        push_x, push_y = (xy * gap_y - yy * gap_x) / whole, (xy * gap_x - xx * gap_y) / whole
        wheels[place] = wheel._replace(
            x=wheel.x + push_x / _WHEEL_MASS,
            y=wheel.y + push_y / _WHEEL_MASS,
            angle=wheel.angle - turn / _WHEEL_INERTIA,
        )
        car = car._replace(
            x=car.x - push_x / _HULL_MASS,
            y=car.y - push_y / _HULL_MASS,
            angle=angle - (x * push_y - y * push_x) / _HULL_INERTIA,
        )
        off = off | (gap_x * gap_x + gap_y * gap_y > _SLOP**2) | (beyond > _ANGLE_SLOP + 1e-6)
    return car._replace(wheels=tuple(wheels)), off


def _rotate(sine: Scalar, cosine: Scalar, vector: tuple[float, ...]) -> tuple[Scalar, Scalar]:
    x, y = vector
    return cosine * x - sine * y, sine * x + cosine * y
