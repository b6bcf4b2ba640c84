"""Seeds and keys: a key for every seed, and keys for one purpose that no other use of the same key gives.

In JAX `split(key, n)[i]` is `fold_in(key, i)`, so a key that is split must not be folded with a small number
too: the two would give the same noise. `stream` gives what neither does.
"""

import hashlib
import operator
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sensorium.errors import ConfigError
from sensorium.types import Key

Seed = int | np.integer
"""Any whole number from 0 on."""


def check_seed(seed: Any) -> int:
    """Check a seed and return it as a Python integer.

    Args:
        seed: Any integer from 0 on, of Python or NumPy.

    Raises:
        ConfigError: It is something else.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0 or isinstance(seed, bool):
        raise ConfigError(f"A seed must be a whole number from 0 on, got {seed!r}.")
    return number


def key_of(seed: Any) -> Key:
    """Make the key of a seed: a different one for each below 2**64, and one of a hash of what is larger.

    Below 2**32 it is `jax.random.key(seed)`, which drops all further bits unless JAX counts in 64 bits.

    Raises:
        ConfigError: The seed is no whole number from 0 on.
    """
    number = check_seed(seed)
    if number >= 2**64:
        digest = hashlib.sha256(number.to_bytes(-(-number.bit_length() // 8), "big")).digest()
        number = int.from_bytes(digest[:8], "big")
    low = jax.random.key(np.uint32(number % 2**32))
    if number < 2**32:
        return low
    words = np.array([number >> 32, number % 2**32], np.uint32)
    # The keys of some of JAX's generators have four words, which then repeat the two
    words = np.resize(words, jax.random.key_data(low).shape)
    return jax.random.wrap_key_data(jnp.asarray(words))


def stream(key: Key, name: str) -> Key:
    """Derive the key for `name`: no split of `key` and no folding in of a number below 2**31 gives it."""
    return jax.random.fold_in(key, np.uint32(zlib.crc32(name.encode()) | 1 << 31))
