"""What machine code calls outside of itself: the exchange of elements between ranks, done by a Python function.

    void upl_exchange(i64 number, ptr array, ptr variables)

The code of a distributed program (`passes/distribute`) calls it; `handling` says which Python function answers.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.engines.native.target import Loaded

EXCHANGE = "upl_exchange"
"""The name of the function that the code calls."""

Handler = Callable[[int, int, Any], None]
"""Gets the number of the exchange, the address of the array, and what `variable` reads the loops' variables from."""

_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))


class _Here(threading.local):
    handler: Handler | None = None
    failed: BaseException | None = None


_here = _Here()


def _call(number: int, array: int, variables: Any) -> None:
    """What the code calls.  An exception cannot go through it: the run goes on, and `handling` raises at its end."""
    handler = _here.handler
    if handler is None or _here.failed is not None:
        return
    try:
        handler(number, array, variables)
    except BaseException as e:
        _here.failed = e


@cache
def exchange() -> Loaded:
    """The function, as code that other code needs; it stays for the life of the process."""
    function = _TYPE(_call)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return Loaded({EXCHANGE: address}, function, ())


@contextmanager
def handling(handler: Handler) -> Generator[None]:
    """Inside of it exchanges of this thread are done by a function; raises what that raised."""
    _here.handler, _here.failed = handler, None
    try:
        yield
        if _here.failed is not None:
            raise _here.failed
    finally:
        _here.handler = _here.failed = None


def memory(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array that lies at an address."""
    size = math.prod(shape) * dtype.itemsize
    raw = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, memoryview(raw))
