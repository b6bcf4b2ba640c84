"""Options behind the name of a world: `Thrusters?motors=64&least=64`. Imports no JAX, for worker processes.

A value is JSON, or plain text up to the next `&`.
"""

import json
from typing import Any

from sensorium.errors import ConfigError


def split_options(name: str) -> tuple[str, dict[str, Any]]:
    """Split a name into what stands before the `?`, and the options.

    Raises:
        ConfigError: Options are not of the form `name=value`.
    """
    identifier, mark, text = name.partition("?")
    return identifier, _options(name, text) if mark else {}


def with_options(name: str, **changes: Any) -> str:
    """Return the name of the same world with some options changed or added, in JSON."""
    if not changes:
        return name
    identifier, options = split_options(name)
    options |= changes
    return f"{identifier}?" + "&".join(
        f"{key}={json.dumps(value)}" for key, value in options.items()
    )


def _options(name: str, text: str) -> dict[str, Any]:
    """Read what stands behind the `?` of a name."""
    options: dict[str, Any] = {}
    start = 0
    while start <= len(text):
        key, equals, _ = text[start:].partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(
                f"{name}: behind ? stand options of the form name=value, joined by &, not {key!r}."
            )
        if key in options:
            raise ConfigError(f"{name}: the option {key} is there twice.")
        options[key], end = _value(name, text, start + len(key) + 1)
        start = end + 1
    return options


def _value(name: str, text: str, start: int) -> tuple[Any, int]:
    """Read a value in JSON, which may hold &, or plain text up to the next &; return where it ends, too."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
        if text[end : end + 1] in ("", "&"):
            return value, end
    except (ValueError, RecursionError):
        pass
    plain = text[start:].partition("&")[0]
    if plain[:1] in ("{", "["):
        raise ConfigError(f"{name}: {text[start:]} is no JSON.")
    return plain, start + len(plain)
