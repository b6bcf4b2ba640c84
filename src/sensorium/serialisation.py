"""Files that are whole or absent: atomic writes, and pytrees as safetensors with a JSON header.

Weights never go through pickle. A file is written under a temporary name in the same folder, flushed
to disk and renamed, so that a crash or a full disk leaves either the old file or none.
"""

import contextlib
import json
import os
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

    Args:
        path: The file to create or replace; its folder is created if need be.

    Yields:
        The temporary file, open for binary writing.

    Raises:
        WriteError: The file could not be written (a full disk, no permission). Nothing is left.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=_PARTIAL
        )
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's 0600 would hide results from colleagues
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, WriteError):
            raise WriteError(f"Could not write {path}: {error.strerror or error}.") from error
        raise


def remove_partial_files(directory: Path) -> None:
    """Remove what a process that was killed while it wrote has left; nobody else may be writing there."""
    for path in directory.glob(f".*{_PARTIAL}"):
        path.unlink(missing_ok=True)


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON, atomically. Raises WriteError as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


def save_pytree(path: Path | str, tree: PyTree, header: dict[str, Any]) -> None:
    """Write the arrays of `tree` as safetensors, named by their path in the tree.

    Args:
        path: The file to create or replace, atomically.
        tree: Arrays in any nesting; random keys are stored as their data.
        header: What the arrays are; any JSON value, read back by `read_header`.

    Raises:
        WriteError: The file could not be written.
    """
    arrays = {name: np.asarray(_to_data(leaf)) for name, leaf in _named_leaves(tree)}
    with atomic_write(path) as file:
        file.write(safetensors_bytes(arrays, metadata={_HEADER: json.dumps(header)}))


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
    return json.loads(text)


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
    names_and_leaves = _named_leaves(like)
    with _open(path) as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    names = [name for name, _ in names_and_leaves]
    if set(stored) != set(names):
        missing = sorted(set(names) - set(stored))
        foreign = sorted(set(stored) - set(names))
        difference = f"it lacks {missing[0]!r}" if missing else f"it holds {foreign[0]!r}"
        raise AgentFileError(
            f"{path} belongs to another architecture: {difference}, "
            f"while the one asked for has {len(names)} arrays."
        )
    leaves = []
    for name, leaf in names_and_leaves:
        want = jax.eval_shape(_to_data, leaf)
        have = stored[name]
        if have.shape != want.shape or have.dtype != want.dtype:
            raise AgentFileError(
                f"{path} belongs to another architecture: {name!r} is {have.dtype}"
                f"{list(have.shape)}, expected {want.dtype}{list(want.shape)}."
            )
        leaves.append(_from_data(jnp.asarray(have), leaf))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


@contextlib.contextmanager
def _open(path: Path | str) -> Iterator[Any]:
    if not Path(path).is_file():
        raise AgentFileError(f"There is no file {path}.")
    try:
        with safe_open(str(path), framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise AgentFileError(f"{path} is truncated or not a safetensors file ({error}).") from error
    except OSError as error:
        raise AgentFileError(f"Could not read {path}: {error.strerror or error}.") from error


def _named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in paths]


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_data(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf)


def _from_data(data: Any, like: Any) -> Any:
    return jax.random.wrap_key_data(data) if _is_key(like) else data
