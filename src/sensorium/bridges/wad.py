"""WAD files of Doom: a list of lumps, which are bytes with a name, and maps among them."""

import struct
from typing import Any

from sensorium.errors import ConfigError

Changes = dict[str, tuple[Any, Any]]
"""Of each setting of a map the value that it has, in one place, and the one that it gets."""


def with_settings(wad: bytes, *maps: Changes) -> bytes:
    """Return maps with other settings.

    Args:
        wad: A file with one map, in UDMF, which is text.
        maps: The changes of each map that is wanted; these are called MAP01, MAP02 and so on.

    Raises:
        ConfigError: A setting has another value, or is there several times.
    """
    (_, marker), *lumps = read_wad(wad)
    made = []
    for number, changes in enumerate(maps, 1):
        made.append((map_name(number), marker))
        made += [
            (name, _changed(content, changes) if name == "TEXTMAP" else content)
            for name, content in lumps
        ]
    return write_wad(wad[:4], made)


def map_name(number: int) -> str:
    """Name a map; they count from 1."""
    return f"MAP{number:02}"


def _changed(text: bytes, changes: Changes) -> bytes:
    for setting, (old, new) in changes.items():
        before = f"{setting} = {old};".encode()
        if text.count(before) != 1:
            raise ConfigError(f"This map of ViZDoom has not one {setting} of {old}.")
        text = text.replace(before, f"{setting} = {new};".encode())
    return text


def read_wad(wad: bytes) -> list[tuple[str, bytes]]:
    """Read the lumps of a WAD file of Doom, with their names; ConfigError if it is none."""
    try:
        _, count, directory = struct.unpack_from("<4sii", wad)
        places = range(directory, directory + 16 * count, 16)
        entries = [struct.unpack_from("<ii8s", wad, place) for place in places]
        return [
            (name.rstrip(b"\0").decode("ascii"), wad[at : at + size]) for at, size, name in entries
        ]
    except (struct.error, UnicodeDecodeError) as error:
        raise ConfigError(f"This is no WAD file of Doom: {error}.") from error


def write_wad(kind: bytes, lumps: list[tuple[str, bytes]]) -> bytes:
    """Make a WAD file of lumps; `kind` is its first four bytes."""
    body, directory = b"", b""
    for name, content in lumps:
        directory += struct.pack("<ii8s", 12 + len(body), len(content), name.encode("ascii"))
        body += content
    return struct.pack("<4sii", kind, len(lumps), 12 + len(body)) + body + directory
