"""Files that are whole or absent: atomic writes, JSON, and pytrees as safetensors with a JSON header.

Weights never go through pickle. A file is written under a temporary name in the same folder, flushed
to disk and renamed, so that a crash or a full disk leaves either the old file or none. JSON is that of the
standard (RFC 8259): UTF-8, no NaN or Infinity, no name twice.
"""

import contextlib
import io
import json
import math
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as safetensors_bytes

from sensorium.errors import AgentFileError, WriteError
from sensorium.types import PyTree

_HEADER = "sensorium"
_PARTIAL = ".partial"  # how the name of a file ends while it is being written


@contextlib.contextmanager
def atomic_write(path: Path | str) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` and rename it to `path` once all is written.

    A symbolic link stays one: what it points to is written. What is no regular file, such as a pipe or
    `/dev/null`, is never replaced: it gets the content in one piece once all of it is there.

    Args:
        path: The file to create or replace; its folder is created if need be, its mode is kept.

    Yields:
        A file that is open for binary writing and can seek.

    Raises:
        WriteError: The file could not be written (a full disk, no permission, a folder). Nothing is left.
    """
    with _writing(path):
        place, now = _destination(path)
        if now is not None and not _replaceable(now):
            content = io.BytesIO()
            yield content
            with open(place, "ab", buffering=0) as whole:
                _write_all(whole.fileno(), content.getbuffer())
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        # Part of the name, so that a name that is as long as a name may be can be written too
        descriptor, temporary = tempfile.mkstemp(
            dir=place.parent, prefix=f".{place.name[:40]}.", suffix=_PARTIAL
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _give_mode(temporary, now)
            os.replace(temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def check_writable(path: Path | str) -> None:
    """Raise the WriteError that `atomic_write` would, before the work whose result goes to `path`.

    Nothing is created: a full disk and a folder that cannot be made show only when it is written.
    """
    with _writing(path):
        place, now = _destination(path)
        folder = _nearest(place)
        beside = now is None or _replaceable(now)
        if beside and not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"there is no permission to write in {folder}")


@contextlib.contextmanager
def atomic_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Make a folder to be filled, and rename it to `path` at the end.

    Args:
        path: The folder to create.
        replace: Take the place of a folder that holds something.

    Raises:
        WriteError: It could not be written, or put in the place of what is there. Nothing is left behind.
    """
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
            (filled := Path(temporary, "filled")).mkdir()
            yield filled
            if replace and path.is_dir():
                os.replace(path, Path(temporary, "before"))
            os.replace(filled, path)


@contextlib.contextmanager
def _writing(path: Path | str) -> Iterator[None]:
    """Turn an OSError into a WriteError that names the file or folder."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        name = os.fspath(path) or "''"
        # Of a folder to be made within a file Python says that the file exists
        why = "Not a directory" if isinstance(error, FileExistsError) else error.strerror or error
        raise WriteError(f"Could not write {name}: {why}.") from error


def _destination(path: Path | str) -> tuple[Path, os.stat_result | None]:
    """Return the file that `path` leads to, and what is there now; OSError if that can never be written."""
    name = os.fspath(path)
    if not name or "\0" in name:
        raise OSError("it is not the name of a file")
    try:
        now = os.stat(name)
    except FileNotFoundError:  # a new file, or a link to one
        if name.endswith(os.sep):
            raise IsADirectoryError("it is a folder, not a file") from None
        place = Path(os.path.realpath(name))
        if not _nearest(place).is_dir():
            raise NotADirectoryError(f"{_nearest(place)} is not a folder") from None
        return place, None
    if stat.S_ISDIR(now.st_mode):
        raise IsADirectoryError("it is a folder, not a file")
    if stat.S_ISSOCK(now.st_mode) or stat.S_ISBLK(now.st_mode):
        raise OSError("it is a socket or a disk, not a file")
    if not os.access(name, os.W_OK):
        raise PermissionError("there is no permission to change it")
    return Path(os.path.realpath(name) if _replaceable(now) else name), now


def _nearest(place: Path) -> Path:
    """Find the first folder on the way up that exists."""
    return next(each for each in place.absolute().parents if each.exists())


def _replaceable(now: os.stat_result) -> bool:
    """Check whether a file may be renamed away: it is regular, and not the output of this process."""
    if not stat.S_ISREG(now.st_mode):
        return False
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # it may be closed
            if os.path.samestat(now, os.fstat(descriptor)):
                return False
    return True


def _write_all(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _give_mode(path: str, now: os.stat_result | None) -> None:
    """Copy owner and mode of the file that is replaced; give a new one what the umask asks for."""
    if now is None:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(path, 0o666 & ~umask)  # mkstemp's 0600 would hide results from colleagues
        return
    with contextlib.suppress(OSError):  # only root may give files away
        os.chown(path, now.st_uid, now.st_gid)
    os.chmod(path, stat.S_IMODE(now.st_mode))


def remove_partial_files(directory: Path) -> None:
    """Remove what a process left that was killed while it wrote; no other may be writing there."""
    for path in directory.glob(f".*{_PARTIAL}"):
        path.unlink(missing_ok=True)


def format_json(value: Any, indent: int | None = None) -> str:
    """Format `value` as JSON; NaN and Infinity, which JSON does not have, become null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def parse_json(text: bytes | str) -> Any:
    """Read JSON; NaN and Infinity of older files become None.

    Raises:
        ValueError: It is not JSON, not UTF-8, nested too deeply, or has a name twice; the message says which.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return json.loads(
            text,
            parse_constant=lambda _: None,
            parse_float=lambda digits: value if math.isfinite(value := float(digits)) else None,
            object_pairs_hook=_each_once,
        )
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it names {twice!r} twice")
    return fields


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON, atomically. Raises WriteError as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write((format_json(value, indent=2) + "\n").encode())


def save_pytree(path: Path | str, tree: PyTree, header: dict[str, Any]) -> None:
    """Write the arrays of `tree` as safetensors, named by their path in the tree.

    Args:
        path: The file to create or replace, atomically.
        tree: Arrays in any nesting; random keys are stored as their data.
        header: What the arrays are; any JSON value, read back by `read_header`.

    Raises:
        WriteError: The file could not be written.
    """
    arrays = {name: np.asarray(to_data(leaf)) for name, leaf in named_leaves(tree)}
    with atomic_write(path) as file:
        file.write(safetensors_bytes(arrays, metadata={_HEADER: format_json(header)}))


def save_arrays(path: Path | str, arrays: dict[str, np.ndarray]) -> None:
    """Write named arrays as safetensors, atomically; raises WriteError as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(safetensors_bytes({name: np.ascontiguousarray(a) for name, a in arrays.items()}))


def load_arrays(path: Path | str) -> dict[str, np.ndarray]:
    """Read what `save_arrays` wrote; raises AgentFileError where the file is damaged or missing."""
    with _open(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_header(path: Path | str) -> dict[str, Any]:
    """Read the JSON header of a file written by `save_pytree`.

    Raises:
        AgentFileError: The file is missing, truncated, not safetensors or not one of ours.
    """
    with _open(path) as file:
        text = (file.metadata() or {}).get(_HEADER)
    if text is None:
        raise AgentFileError(
            f"{path} is a safetensors file but has no Sensorium header; expected a file that "
            "`sensorium train` or `Agent.save` wrote."
        )
    try:
        header = parse_json(text)
    except ValueError as error:
        raise AgentFileError(f"{path} has a damaged header: {error}.") from error
    if not isinstance(header, dict):
        raise AgentFileError(f"{path} has a damaged header: it is not an object.")
    return header


def load_pytree(path: Path | str, like: PyTree) -> PyTree:
    """Read a file written by `save_pytree` into the structure of `like`.

    Args:
        path: The file to read.
        like: A tree of the same structure, shapes and dtypes; arrays or `jax.ShapeDtypeStruct`.

    Returns:
        A tree like `like` with the stored values.

    Raises:
        AgentFileError: The file is damaged, or its arrays have other names, shapes or dtypes.
    """
    wanted = dict(named_leaves(like))
    with _open(path) as file:
        _check_names(path, set(file.keys()), set(wanted))
        stored = {name: file.get_tensor(name) for name in wanted}
    leaves = []
    for name, leaf in wanted.items():
        want, have = jax.eval_shape(to_data, leaf), stored[name]
        if have.shape != want.shape:
            raise AgentFileError(
                f"{path} belongs to another architecture: {name!r} is {have.dtype}"
                f"{list(have.shape)}, expected {want.dtype}{list(want.shape)}."
            )
        if have.dtype != want.dtype:
            raise AgentFileError(
                f"{path} holds {name!r} as {have.dtype}, expected {want.dtype}: {_why(have, want)}."
            )
        leaves.append(from_data(jnp.asarray(have), leaf))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _check_names(path: Path | str, stored: set[str], wanted: set[str]) -> None:
    if stored != wanted:
        missing, foreign = sorted(wanted - stored), sorted(stored - wanted)
        difference = f"it lacks {missing[0]!r}" if missing else f"it holds {foreign[0]!r}"
        raise AgentFileError(
            f"{path} belongs to another architecture: {difference}, "
            f"while the one asked for has {len(wanted)} arrays."
        )


def _why(have: Any, want: Any) -> str:
    """Explain what may have made two dtypes differ."""
    if have.dtype.kind != want.dtype.kind:
        return "they are numbers of another kind"
    here = "on" if jnp.result_type(float) == jnp.float64 else "off"
    return f"the precision differs (JAX_ENABLE_X64 is {here} here)"


@contextlib.contextmanager
def _open(path: Path | str) -> Iterator[Any]:
    if not os.path.isfile(path):  # Path.is_file raises where a folder may not be read
        raise AgentFileError(f"There is no file {path}.")
    try:
        with safe_open(str(path), framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise AgentFileError(f"{path} is truncated or not a safetensors file ({error}).") from error
    except (OSError, TypeError, AttributeError) as error:  # a dtype that NumPy does not have
        reason = getattr(error, "strerror", None) or error
        raise AgentFileError(f"Could not read {path}: {reason}.") from error


def named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """List the leaves of a tree with their names in files: their paths in the tree."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in paths]


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def to_data(leaf: Any) -> Any:
    """Convert an array to what can be stored: random keys become their data."""
    return jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf)


def from_data(data: Any, like: Any) -> Any:
    """Convert back from `to_data`; `like` says whether it is a random key."""
    return jax.random.wrap_key_data(data) if _is_key(like) else data
