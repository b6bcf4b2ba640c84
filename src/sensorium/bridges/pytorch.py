"""PyTorch, as far as experts need it. It is never imported: what is of PyTorch has imported it."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch work in one thread: more wait for one another, and for JAX's, far longer than they work."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def as_function(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of arrays that asks a PyTorch module, or `function` itself."""
    torch = sys.modules.get("torch")  # an object of PyTorch has imported it
    if torch is None or not isinstance(function, torch.nn.Module):
        return function
    module = function.eval()

    def ask(shown: Any) -> np.ndarray:
        with torch.no_grad():
            return module(torch.as_tensor(np.asarray(shown, np.float32))).numpy()

    return ask
