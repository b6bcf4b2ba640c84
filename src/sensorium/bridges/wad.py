"""WAD files of Doom: a list of lumps, which are bytes with a name, and maps among them."""

import struct
from typing import Any

from sensorium.errors import ConfigError


def with_settings(wad: bytes, changes: dict[str, tuple[Any, Any]]) -> bytes:
    """Return a map with other settings.

    Args:
        wad: A file whose map is in UDMF, as text.
        changes: Of each setting the value that it has, in one place, and the one that it gets.

    Raises:
        ConfigError: A setting has another value, or is there several times.
    """
    lumps = []
    for name, content in read_wad(wad):
        for setting, (old, new) in changes.items() if name == "TEXTMAP" else ():
            before = f"{setting} = {old};".encode()
            if content.count(before) != 1:
                raise ConfigError(f"This map of ViZDoom has not one {setting} of {old}.")
            content = content.replace(before, f"{setting} = {new};".encode())
        lumps.append((name, content))
    return write_wad(wad[:4], lumps)


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
