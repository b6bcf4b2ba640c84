"""Parts as JSON values and back, and copies of them with single settings changed.

A part is an object with its `kind`, the name that it is registered by; tuples are lists, members of
enums are their values. What is read is checked against the annotations of the part's fields.
"""

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from sensorium.errors import ConfigError, UnknownNameError, did_you_mean
from sensorium.registry import Parts, name_of

_PARTS = Parts()


def encode(value: Any) -> Any:
    """Convert a part, or a setting of one, to JSON values."""
    if _is_part(value):
        return {
            "kind": name_of(type(value)),
            **{
                field.name: encode(getattr(value, field.name))
                for field in dataclasses.fields(value)
            },
        }
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


def decode(value: Any, annotation: Any, what: str) -> Any:
    """Convert JSON values back to a part or a setting.

    Args:
        value: From `encode`, or written by hand.
        annotation: Type of the setting that it is.
        what: The setting, for errors.

    Raises:
        ConfigError: It is of another type, or a part lacks a setting or has one too many.
        UnknownNameError: There is no part of that kind.
    """
    if annotation is Any:
        return tuple(value) if isinstance(value, list) else value
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(value, arguments, what)
    if origin is tuple:
        return _decode_tuple(value, arguments, what)
    if origin is not None or not isinstance(annotation, type):
        return value
    if issubclass(annotation, enum.Enum):
        choices = {str(member.value): member for member in annotation}
        if str(value) not in choices:
            raise did_you_mean(what, str(value), choices)
        return choices[str(value)]
    if annotation in (bool, int, float, str, types.NoneType):
        if not _is_plain(value, annotation):
            raise ConfigError(f"{what} must be {_NAMES[annotation]}, got {_shown(value)}.")
        return value
    return _decode_part(value, annotation, what)


_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    types.NoneType: "null",
}


def _is_plain(value: Any, annotation: type) -> bool:
    if annotation is float:
        # Neither NaN nor infinity
        return type(value) in (int, float) and abs(value) < float("inf")
    return type(value) is annotation


def _shown(value: Any) -> str:
    """Write a value as JSON, shortened to 60 characters."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _decode_union(value: Any, choices: Sequence[Any], what: str) -> Any:
    errors = []
    for choice in choices:
        try:
            return decode(value, choice, what)
        except (ConfigError, UnknownNameError) as error:
            errors.append(error)
    # An error of any other choice says more than that of null
    raise next((error for error in errors if "must be null" not in str(error)), errors[0])


def _decode_tuple(value: Any, arguments: Sequence[Any], what: str) -> tuple:
    if not isinstance(value, list):
        raise ConfigError(f"{what} must be a list, got {_shown(value)}.")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = [arguments[0]] * len(value)
    if len(arguments) != len(value):
        raise ConfigError(f"{what} must have {len(arguments)} items, got {len(value)}.")
    return tuple(
        decode(item, each, f"{what}[{index}]")
        for index, (item, each) in enumerate(zip(value, arguments, strict=True))
    )


def _decode_part(value: Any, base: type, what: str) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ConfigError(f'{what} must be an object with a "kind", got {_shown(value)}.')
    kind = value["kind"]
    if kind not in _PARTS:
        raise did_you_mean("registered part", kind, _PARTS)
    part = _PARTS[kind]
    if not issubclass(part, base):
        raise ConfigError(f"{what} must be a {base.__name__}, got the part {kind!r}.")
    fields = {field.name: field for field in dataclasses.fields(part)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(part)
    settings = {name: item for name, item in value.items() if name != "kind"}
    for name in settings:
        if name not in fields:
            near = did_you_mean(f"setting of {kind}", str(name), fields)
            raise ConfigError(f"{near} It may be of another version of Sensorium.")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING is field.default_factory
        if required and name not in settings:
            raise ConfigError(f"{what} lacks the setting {name!r} of {kind}.")
    return part(
        **{name: decode(item, hints[name], f"{what}.{name}") for name, item in settings.items()}
    )


def change(
    value: Any, path: Sequence[str], setting: Any, annotation: Any = Any, what: str = "the recipe"
) -> Any:
    """Return a copy of a part with one setting changed.

    Args:
        value: The part.
        path: Names of settings from the part down; numbers for the items of a tuple.
        setting: As JSON values.
        annotation: Type of the part.
        what: The part, for errors.

    Raises:
        ConfigError: The setting is of another type.
        UnknownNameError: There is no such setting.
    """
    if not path:
        return decode(setting, annotation, what)
    name, *rest = path
    if isinstance(value, tuple):
        if not name.isdigit() or int(name) >= len(value):
            raise did_you_mean(f"item of {what}", name, map(str, range(len(value))))
        at, items, kinds = int(name), list(value), typing.get_args(annotation)
        kind = kinds[0] if Ellipsis in kinds else kinds[at] if kinds else Any
        items[at] = change(items[at], rest, setting, kind, f"{what}[{at}]")
        return tuple(items)
    names = [field.name for field in dataclasses.fields(value)] if _is_part(value) else []
    if name not in names:
        raise did_you_mean(f"setting of {type(value).__name__}", name, names)
    hint = typing.get_type_hints(type(value))[name]
    new = change(getattr(value, name), rest, setting, hint, name)
    return dataclasses.replace(value, **{name: new})


def parts_of(value: Any) -> Iterator[Any]:
    """Yield a part and all parts within it."""
    if _is_part(value):
        yield value
        for field in dataclasses.fields(value):
            yield from parts_of(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from parts_of(item)


def _is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
