"""Messages of the page, and the format of frames.

The page sends small JSON objects, `{"do": VERB, "id": NUMBER, ...}`:

| verb | with | what happens |
|---|---|---|
| `set` | `changes`: some of the fields of `Controls` | they change |
| `shuffle` | | a new order of channels or patches |
| `reset` | `seed` | a new episode from that start |
| `act` | `action`: one of `about.actions`, or -1 | the user plays; -1 gives the game back to the agent |
| `push` | `strength`, from -1 to 1 | the body is pushed |
| `step` | | one step while paused |
| `drawn` | `frame` | that frame is acknowledged: more may come |
| `ping` | | nothing: the connection stays open |

and images as they are in their files. The server sends JSON objects, and frames as `pack` makes them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sensorium.errors import MessageError, did_you_mean
from sensorium.perturbations import MODIFICATIONS, SCENES
from sensorium.serialisation import format_json, parse_json

LONGEST_TEXT = 4096
"""Characters of a message."""
LONGEST_SIGN = 24
"""Characters of the words that a world shows."""
MOST_NOISE = 50
MOST_COPIES = 3
MOST_MOTORS = 256
"""Of worlds with more motors the page shows no wires."""
MOST_CHANNELS = 2000
"""Channels have smaller numbers; in most worlds there are fewer."""
SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Relative to the world's own time."""
NOISE, UPLOAD = "noise", "upload"
BACKGROUNDS = ("", *SCENES, NOISE, UPLOAD)
"""The world's own, drawn scenes, noise in each pixel, and the user's own image."""
CHANGES = ("", *(name for name in MODIFICATIONS if name != NOISE))
"""None, and the other modifications of images."""
WIRES = ("motors", "motors_reversed", "motors_cut")
"""The controls of the wires of motors."""
_LARGEST = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Controls:
    """All that the user has set, and all that a link holds."""

    agent: str
    """Name of the agent."""
    seed: int = 1
    """Decides the start and all noise."""
    wiring: int = 0
    """Decides the order of channels or patches; 0 is the natural order."""
    every: int = 0
    """Steps from one order to the next; 0 keeps it."""
    noise: int = 0
    """How many noise channels are added."""
    copies: int = 1
    """How often each sensor is there."""
    cut: tuple[int, ...] = ()
    """Channels that read zero, by the numbers that `rewiring.SensorRewiring` gives them."""
    occlude: int = 0
    """Percent of the patches that are black."""
    hidden: tuple[int, ...] = ()
    """Single patches that are black."""
    background: str = ""
    """One of `BACKGROUNDS`."""
    modify: str = ""
    """One of `CHANGES`."""
    variant: str = ""
    """How the world looks: one of `World.variants`; its own look if empty."""
    text: str = ""
    """What the variant `text` shows, and no other; its own words if empty."""
    motors: tuple[int, ...] = ()
    """The motor that each output of the agent is wired to; none if each is to its own."""
    motors_reversed: tuple[int, ...] = ()
    """Outputs whose wires change the sign."""
    motors_cut: tuple[int, ...] = ()
    """Outputs whose wires are cut."""
    speed: float = 1.0
    """One of `SPEEDS`."""
    paused: bool = False

    @property
    def look(self) -> dict[str, str]:
        """Return what is set of the options that decide how a world looks."""
        look = {"variant": self.variant, "text": self.text if self.variant == "text" else ""}
        return {option: chosen for option, chosen in look.items() if chosen}


class Message(NamedTuple):
    """A message that was checked."""

    do: str
    number: int
    """Of the message, as frames answer it."""
    value: Any = None
    """What goes with the verb."""


def parse(text: str) -> Message:
    """Read a message.

    Args:
        text: As it arrived.

    Raises:
        MessageError: The page sends no such message.
    """
    if len(text) > LONGEST_TEXT:
        raise MessageError(f"A message has at most {LONGEST_TEXT} characters, got {len(text)}.")
    try:
        fields = parse_json(text)
    except ValueError as error:
        raise MessageError("A message must be a JSON object.") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("do"), str):
        raise MessageError("A message must be a JSON object that says what to do.")
    do, number = fields.pop("do"), fields.pop("id", 0)
    if do not in _VERBS:
        raise MessageError(str(did_you_mean("verb", do[:40], _VERBS)))
    field, check = _VERBS[do]
    if fields.keys() != ({field} if field else set()):
        wanted = f"exactly {field!r}" if field else "nothing"
        raise MessageError(f"{do!r} goes with {wanted} beside its id.")
    return Message(do, _whole(0, _LARGEST)("id", number), check(field, fields.get(field)))


def change(controls: Controls, changes: dict[str, Any]) -> Controls:
    """Set some of the controls, as `parse` has checked them."""
    return dataclasses.replace(controls, **changes)


def pack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Make a frame: the length of a JSON header (4 bytes, little-endian), the header, the arrays.

    The header lists the arrays as `[name, type, shape]`; each begins at a multiple of 4 bytes.
    """
    described = [[name, array.dtype.str[1:], array.shape] for name, array in arrays.items()]
    text = format_json({**header, "arrays": described}).encode()
    parts = [len(text).to_bytes(4, "little"), text]
    size = 4 + len(text)
    for array in arrays.values():
        parts += [bytes(-size % 4), array.tobytes()]
        size += -size % 4 + array.nbytes
    return b"".join(parts)


def unpack(frame: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read header and arrays of a frame."""
    place = 4 + int.from_bytes(frame[:4], "little")
    header, arrays = parse_json(frame[4:place]), {}
    for name, kind, shape in header.pop("arrays"):
        place += -place % 4
        count = int(np.prod(shape, dtype=int))
        arrays[name] = np.frombuffer(frame, f"<{kind}", count, place).reshape(shape)
        place += arrays[name].nbytes
    return header, arrays


_Check = Callable[[str, Any], Any]


def _whole(least: int, most: int) -> _Check:
    def check(field: str, value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise MessageError(f"{field!r} must be a whole number from {least} to {most}.")
        return value

    return check


def _row(most: int) -> _Check:
    def check(field: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise MessageError(f"{field!r} must be a list of at most {most} numbers.")
        number = _whole(0, most - 1)
        return tuple(number(field, each) for each in value)

    return check


def _numbers(most: int) -> _Check:
    row = _row(most)
    return lambda field, value: tuple(sorted(set(row(field, value))))


def _one_of(choices: tuple[Any, ...]) -> _Check:
    def check(field: str, value: Any) -> Any:
        # True == 1 in Python, but not here
        if isinstance(value, bool | list | dict) or value not in choices:
            raise MessageError(f"{field!r} must be one of {', '.join(map(repr, choices))}.")
        return type(choices[0])(value)

    return check


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise MessageError(f"{field!r} must be true or false.")
    return value


def _name(field: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 100:
        raise MessageError(f"{field!r} must be a name of 1 to 100 characters.")
    return value


def _words(most: int) -> _Check:
    def check(field: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise MessageError(f"{field!r} must be a text of at most {most} characters.")
        return value

    return check


def _strength(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
        raise MessageError(f"{field!r} must be a number from -1 to 1.")
    return float(value)


def _nothing(field: str, value: Any) -> None:
    del field, value


def _changes(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MessageError(f"{field!r} must be an object.")
    for name in value:
        if name not in _FIELDS:
            raise MessageError(str(did_you_mean("control", name[:40], _FIELDS)))
    return {name: _FIELDS[name](name, each) for name, each in value.items()}


_FIELDS: dict[str, _Check] = {
    "agent": _name,
    "seed": _whole(0, _LARGEST),
    "wiring": _whole(0, _LARGEST),
    "every": _whole(0, 1000),
    "noise": _whole(0, MOST_NOISE),
    "copies": _whole(1, MOST_COPIES),
    "cut": _numbers(MOST_CHANNELS),
    "occlude": _whole(0, 90),
    "hidden": _numbers(256),
    "background": _one_of(BACKGROUNDS),
    "modify": _one_of(CHANGES),
    "variant": _words(100),
    "text": _words(LONGEST_SIGN),
    "motors": _row(MOST_MOTORS),
    "motors_reversed": _numbers(MOST_MOTORS),
    "motors_cut": _numbers(MOST_MOTORS),
    "speed": _one_of(SPEEDS),
    "paused": _flag,
}
_VERBS: dict[str, tuple[str, _Check]] = {
    "set": ("changes", _changes),
    "shuffle": ("", _nothing),
    "reset": ("seed", _FIELDS["seed"]),
    "act": ("action", _whole(-1, 99)),
    "push": ("strength", _strength),
    "step": ("", _nothing),
    "drawn": ("frame", _whole(0, _LARGEST)),
    "ping": ("", _nothing),
}
