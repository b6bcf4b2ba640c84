"""Parts by their names: what recipes and worlds are made of, ours and those of others.

A part is a frozen dataclass: the config of a policy or a trainer, a perturbation, a world on the device.
Recipes are stored with the names of their parts, and a part that is registered is found by its name:

    @sensorium.register
    @dataclasses.dataclass(frozen=True)
    class Flip(sensorium.Perturbation): ...

A package lists a module that registers its parts in the entry-point group `sensorium.parts`; other modules
are imported on request (`sensorium --plugin MODULE`). A file never imports a module.
"""

import dataclasses
import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from sensorium.errors import ConfigError, MissingExtraError

GROUP = "sensorium.parts"
"""Entry points of this group name modules that register parts."""

_OWN = __name__.partition(".")[0]
_parts: dict[str, type] = {}

Part = TypeVar("Part", bound=type)


def register(part: Part) -> Part:
    """Make a part known by its name: its `id` if it is a world, or else the name of its class.

    Args:
        part: A frozen dataclass, so that it can be stored, compared and used as a static argument.

    Returns:
        The part, so that this can be used as a decorator.

    Raises:
        ConfigError: It is no frozen dataclass, or there is another part of that name.
    """
    if not isinstance(part, type) or not dataclasses.is_dataclass(part):
        raise ConfigError(f"A part must be a dataclass, got {part!r}.")
    if not part.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(f"{part.__name__} must be a frozen dataclass: @dataclass(frozen=True).")
    name = name_of(part)
    known = _parts.get(name, part)
    if (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
        raise ConfigError(
            f"There is a part {name!r} of {known.__module__} already; {part.__module__} has to name its "
            "own otherwise."
        )
    _parts[name] = part
    return part


def register_all(names: Mapping[str, object], kind: type, but: tuple[type, ...] = ()) -> None:
    """Register the parts of a kind among the names of a module: a folder lists its own by importing them.

    Args:
        names: The names of the module, `globals()`.
        kind: The base class of the parts; abstract classes are none.
        but: What is of the kind and no part.
    """
    for part in [value for value in names.values() if isinstance(value, type)]:
        if issubclass(part, kind) and not inspect.isabstract(part) and part not in but:
            register(part)


def name_of(part: type) -> str:
    """Return the name by which a part is registered."""
    return str(getattr(part, "id", part.__name__))


def home_of(part: type) -> str | None:
    """Return the module to import for a part that is not Sensorium's own; None for those that are."""
    return None if part.__module__.partition(".")[0] == _OWN else part.__module__


class Parts(Mapping[str, type]):
    """The registered parts of one kind, by name: a live view."""

    def __init__(self, kind: type = object):
        """Hold the parts that are subclasses of `kind`."""
        self._kind = kind

    def __getitem__(self, name: str) -> type:
        if name not in _parts:
            _load_entry_points()
        part = _parts[name]
        if not issubclass(part, self._kind):
            raise KeyError(name)
        return part

    def __iter__(self) -> Iterator[str]:
        _load_entry_points()
        return (name for name, part in _parts.items() if issubclass(part, self._kind))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def import_parts(module: str) -> ModuleType:
    """Import a module that registers its parts; modules of the working directory are found as well.

    Returns:
        The module.

    Raises:
        MissingExtraError: There is no such module, or it cannot be imported.
    """
    find_modules_here()
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise MissingExtraError(
            f"The module {module!r} cannot be imported: {type(error).__name__}: {error}."
        ) from error


def find_modules_here() -> None:
    """Let modules of the working directory be imported, which a command that is installed does not."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # processes that are started later get it from here


def import_plugins(arguments: list[str]) -> list[str]:
    """Import the module that each `--plugin` of a command line names; return the other arguments."""
    others, rest = [], iter(arguments)
    for argument in rest:
        flag, equals, module = argument.partition("=")
        if flag != "--plugin":
            others.append(argument)
            continue
        module = module if equals else next(rest, "")
        if not module:
            raise ConfigError("--plugin needs the name of a module.")
        import_parts(module)
    return others


@functools.cache
def _load_entry_points() -> None:
    """Import what installed packages offer, once; a package that fails is named and left out."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            warnings.warn(
                f"The parts of {entry.value} are missing, as it cannot be imported: {error}",
                stacklevel=2,
            )
