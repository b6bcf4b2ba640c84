"""Every error that Sensorium raises on purpose: one sentence each, with the nearest right name."""

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_MANY = 50  # names are too many to list
LARGEST_COUNT = 2**31 - 1
"""As far as JAX counts by default: in 32 bits."""


class SensoriumError(Exception):
    """Base of all of them; the command line prints it without a traceback and exits with 2."""


class ObservationError(SensoriumError, ValueError):
    """An observation has the wrong shape or dtype, or holds NaN or infinity."""


class ConfigError(SensoriumError, ValueError):
    """A setting is out of range, or two settings do not fit each other."""


class UnknownNameError(SensoriumError, KeyError):
    """A recipe, agent, world or strategy of that name does not exist."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class AgentFileError(SensoriumError, ValueError):
    """A weights file is truncated, not safetensors, or of another architecture."""


class RunError(SensoriumError, RuntimeError):
    """A run directory cannot be created, continued or read."""


class WorldError(SensoriumError, RuntimeError):
    """An environment raised, died, does not answer, or returned what it may not, such as NaN."""


class ClusterError(SensoriumError, RuntimeError):
    """There is no cluster, or it is lost."""


class WriteError(SensoriumError, OSError):
    """A file could not be written; nothing partial is left behind."""


class ExportError(SensoriumError, RuntimeError):
    """An agent cannot be written for other programs, or would act otherwise there."""


class MessageError(SensoriumError, ValueError):
    """A client of the demo sent what the page never sends, or an image that is none."""


class MissingExtraError(SensoriumError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, extra: str, subject: str, package: str, note: str = "") -> "MissingExtraError":
        """Make the error that `subject` needs a package of an extra; `note` ends the sentence."""
        return cls(f"{subject} needs {package}: pip install 'sensorium[{extra}]'{note}.")


@contextmanager
def needs(extra: str, subject: str, note: str = "") -> Iterator[None]:
    """Import packages of an extra inside.

    Args:
        extra: Its name.
        subject: What needs it.
        note: What else may help, at the end of the sentence.

    Raises:
        MissingExtraError: A package is not installed; it says how to install it.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "more").partition(".")[0]
        raise MissingExtraError.of(extra, subject, package, note) from error


def check_counts(least: int = 1, of: str = "", /, **counts: int) -> None:
    """Check settings that count something.

    Args:
        least: The smallest that each may be.
        of: Whose settings they are, for the sentence.
        counts: The settings by their names.

    Raises:
        ConfigError: One is no whole number, smaller than `least`, or larger than `LARGEST_COUNT`.
    """
    for name, count in counts.items():
        subject = f"{of}: {name}" if of else name
        if not isinstance(count, int):
            raise ConfigError(f"{subject} must be a whole number, got {count!r}.")
        if count < least:
            raise ConfigError(f"{subject} must be at least {least}, got {count}.")
        if count > LARGEST_COUNT:
            raise ConfigError(f"{subject} must be at most {LARGEST_COUNT:,}, got {count:,}.")


def check_whole_settings(part: Any, may_be_zero: Collection[str] = ()) -> None:
    """Check all settings of a dataclass that are whole numbers, perhaps None, or tuples of them.

    Args:
        part: The dataclass.
        may_be_zero: Names of settings that count from 0 on; all others count from 1 on.

    Raises:
        ConfigError: One does not fit; the first is named.
    """
    for field in dataclasses.fields(part):
        setting = getattr(part, field.name)
        least = 0 if field.name in may_be_zero else 1
        optional = field.type in (int | None, "int | None") and setting is not None
        if optional or field.type in (int, "int"):
            check_counts(least, **{field.name: setting})
        elif field.type in (tuple[int, ...], "tuple[int, ...]"):
            for count in setting:
                check_counts(least, **{field.name: count})


def did_you_mean(kind: str, name: str, choices: Iterable[str], note: str = "") -> UnknownNameError:
    """Build the error for an unknown name, naming the nearest right ones.

    Args:
        kind: What is being named, such as `"recipe"`.
        name: The name that was not found.
        choices: The names that exist.
        note: What else may help, in brackets.

    Returns:
        The error, to be raised by the caller.
    """
    choices = sorted(choices)
    folded = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(name.strip().casefold(), folded, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(repr(folded[match]) for match in near)}?"
    elif len(choices) > _MANY:
        hint = "none is like it."
    elif choices:
        hint = f"there are {', '.join(repr(choice) for choice in choices)}."
    else:
        hint = "there is none at all."
    bracket = f" ({note})" if note else ""
    return UnknownNameError(f"There is no {kind} {name!r}{bracket}; {hint}")
