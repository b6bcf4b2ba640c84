"""What commands print: numbers, and a standard output that JSON has to itself.

An environment may print at any time, from Python or from C, in this process or in a worker. While a
command owes JSON to standard output, the descriptor of that is diverted to standard error.
"""

import codecs
import contextlib
import ctypes
import errno
import functools
import io
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from sensorium.errors import WriteError

BROKEN_PIPE = 141
"""Exit code when the reader of the output has gone, as of a program that SIGPIPE ends."""
_OUT, _ERR = 1, 2
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_SPELLED = "sensorium-spelled"
_IN_ASCII = {"±": "+-", "×": "x", "→": "->", "·": "-", "–": "-", "—": "-", "−": "-", "’": "'"} | (
    dict.fromkeys("─━═╌╴╶╸╺", "-")
    | dict.fromkeys("│┃║╎", "|")
    | dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼", "+")
)
"""ASCII for printed characters that NFKD does not map; tables keep their lines."""
_reserved: list[int] = []  # descriptors of standard output while something else has its number


def shown(value: float, decimals: int = 0) -> str:
    """Format a number as tables show it: so many decimals, or more if fewer than two digits would be left.

    475.3 is "475", 0.000123 is "0.00012", 1e12 is "1e+12".

    Args:
        value: Any number, also one that is not finite.
        decimals: Of numbers that are large enough.
    """
    value += 0.0  # not "-0"
    if abs(value) >= 1e9:
        return f"{value:.4g}"
    if value == 0 or float(f"{abs(value):.2g}") >= 10 ** (1 - decimals):
        return f"{value:.{decimals}f}"
    return f"{value:.2g}"


def with_unit(value: float) -> str:
    """Format a number from 0 on with two or three digits, in thousands (k) or millions (M) if so large."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * size:
            return shown(value / size) + unit
    return shown(value)


def significant(value: float, digits: int = 7) -> float:
    """Round `value` to as many digits as float32 holds, so that JSON does not spell out its rounding."""
    return float(f"{value:.{digits}g}")


def spell_out() -> None:
    """Let standard output and error write what their encoding lacks in ASCII, rather than fail."""
    codecs.register_error(_SPELLED, _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_SPELLED)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    spelled = []
    for character in error.object[error.start : error.end]:
        plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
        spelled.append(_IN_ASCII.get(character) or plain or "?")
    return "".join(spelled), error.end


def say(sentence: str) -> None:
    """Print a sentence to standard error, if that can be written."""
    with contextlib.suppress(OSError):
        Console(stderr=True, highlight=False).print(
            f"sensorium: {sentence}", markup=False, soft_wrap=True
        )


def with_json(command: Callable[..., None]) -> Callable[..., None]:
    """Add `json` to a command: check the file before the work, keep standard output free of all else.

    `/dev/stdout` is standard output too.
    """

    @functools.wraps(command)
    def run(*arguments: Any, json: str | None = None, **options: Any) -> None:
        from sensorium.serialisation import check_writable  # JAX takes a moment to load

        with contextlib.ExitStack() as stack:
            if json is not None and _is_standard_output(json):
                json = "-"
                stack.enter_context(reserved_output())
            elif json is not None:
                check_writable(json)
            command(*arguments, json=json, **options)

    return run


def _is_standard_output(path: str) -> bool:
    if path == "-":
        return True
    if path == os.devnull:  # where standard output may go as well
        return False
    try:
        return os.path.samestat(os.stat(path), os.fstat(_OUT))
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def reserved_output() -> Iterator[None]:
    """Send whatever prints to standard error; only `write_output` reaches standard output."""
    if sys.stdout is None:  # there is none: its number may be another file's
        yield
        return
    with contextlib.ExitStack() as undo:
        elsewhere = _ERR
        if sys.stderr is None:
            elsewhere = os.open(os.devnull, os.O_WRONLY)
            undo.callback(os.close, elsewhere)
        _flush()
        kept = os.dup(_OUT)
        undo.callback(os.close, kept)
        undo.callback(os.dup2, kept, _OUT)
        undo.callback(_flush)
        os.dup2(elsewhere, _OUT)
        _reserved.append(kept)
        undo.callback(_reserved.pop)
        undo.enter_context(contextlib.redirect_stdout(sys.stderr))  # where it has another number
        yield


def write_output(text: str) -> None:
    """Write to standard output, past `reserved_output`.

    Raises:
        WriteError: It is full, or there is none.
        BrokenPipeError: Its reader has gone.
    """
    if sys.stdout is None and not _reserved:
        raise WriteError("Could not write standard output: there is none.")
    if not _reserved:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    content = text.encode()
    with _full_output():
        while content:
            content = content[os.write(_reserved[-1], content) :]


@contextlib.contextmanager
def whole_output() -> Iterator[None]:
    """Let all that was printed arrive, or let the exit code and a sentence say that it did not.

    This is for a whole process: what environments print when Python ends goes to standard error.

    Raises:
        WriteError: Standard output is full.
        SystemExit: The reader has gone; with `BROKEN_PIPE` and without a sentence.
    """
    try:
        with _full_output():
            try:
                yield
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except BrokenPipeError as error:
        raise SystemExit(BROKEN_PIPE) from error
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # as Rich ends a command
            raise SystemExit(BROKEN_PIPE) from stop
        raise
    finally:
        # What could not be flushed would be tried once more, and complained about
        if sys.stdout is not None:
            with contextlib.suppress(OSError):
                os.dup2(_ERR, _OUT)


@contextlib.contextmanager
def _full_output() -> Iterator[None]:
    """Turn an OSError of a full disk, which names no file, into a WriteError."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            raise WriteError(f"Could not write standard output: {error.strerror}.") from error
        raise


def _flush() -> None:
    """Empty the buffers of Python and of C."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # full, closed, or absent
            stream.flush()
    ctypes.CDLL(None).fflush(None)
