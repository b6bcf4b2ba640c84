"""Watch which random keys are used where, and say which are used twice.

In JAX `split(key, n)[i]` is `fold_in(key, i)`, so a key that is split in one line and folded with a small
number in another gives the same numbers twice, which JAX's own checker of keys does not see.
"""

import contextlib
import sys
from collections import defaultdict
from functools import partial

import jax
import numpy as np

_DRAWS = ("bernoulli", "bits", "choice", "gumbel", "normal", "permutation", "randint", "uniform")
_STREAM = 2**31  # numbers from here on are of `seeding.stream`, and no draw or split is near them


def _line():
    """The innermost line of the package that led here."""
    frame = sys._getframe(2)
    while frame is not None and "/sensorium/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame and f"{frame.f_code.co_filename.rpartition('/sensorium/')[2]}:{frame.f_lineno}"


class Uses:
    """By key, line by line: the numbers of the children that were made there, or None for a draw."""

    def __init__(self):
        self.of_key = defaultdict(lambda: defaultdict(set))

    def note(self, line, children, key_data, number=None):
        children = children if number is None else [int(number)]
        self.of_key[np.asarray(key_data).tobytes()][line].update(children)

    def twice(self):
        """Pairs of lines that use the same key for the same thing."""
        pairs = set()
        for lines in self.of_key.values():
            for one, other in np.ndindex(len(lines), len(lines)):
                (first, theirs), (second, others) = (list(lines.items())[i] for i in (one, other))
                drawn = None in theirs and any(c is None or c < _STREAM for c in others)
                if first != second and (drawn or theirs & others):
                    pairs.add(tuple(sorted((first, second))))
        return pairs


@contextlib.contextmanager
def watched():
    """Within it, all that is compiled anew notes the keys that it uses."""
    uses, kept = Uses(), {}

    def wrap(name, children):
        plain = kept[name] = getattr(jax.random, name)

        def wrapped(key, *args, **options):
            line = _line()
            if line and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
                made, numbers = children(*args, **options)
                jax.debug.callback(
                    partial(uses.note, line, made), jax.random.key_data(key), *numbers
                )
            return plain(key, *args, **options)

        setattr(jax.random, name, wrapped)

    for name in _DRAWS:
        wrap(name, lambda *_, **__: ([None], []))
    wrap("split", lambda num=2: (range(int(np.prod(num))), []))
    wrap("fold_in", lambda data: ([], [np.uint32(data) if isinstance(data, int) else data]))
    jax.clear_caches()
    try:
        yield uses
        jax.effects_barrier()
    finally:
        for name, plain in kept.items():
            setattr(jax.random, name, plain)
        jax.clear_caches()
