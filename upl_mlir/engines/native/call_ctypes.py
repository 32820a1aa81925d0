"""Calls of machine code by ctypes, for machines where the extension `call.c` cannot be built: one thread, slower calls."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.engines.native.llvm.values import Argument

Array = NDArray[Any]

HEADER_SLOTS = 4
"""Slots in front of the arguments: workspace, its size, the function that forks loops, the number of threads."""

Fail = Callable[[int, tuple[Any, ...]], Any]
"""Called for a scalar call without an answer: with the status and the arguments; -1: the arguments are wrong."""

CELLS: dict[str, Any] = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "int32": ctypes.c_int32,
    "int8": ctypes.c_int8, "bool": ctypes.c_bool,
}  # fmt: skip


class Target(NamedTuple):
    """What a callable runs: the address of the code, its arguments, the threads, and what keeps the code in memory."""

    address: int
    arguments: tuple[Argument, ...]
    threads: int
    owner: Any


class _Runner:
    """Runs the code with the workspace that it wants, one call at a time."""

    def __init__(self, target: Target):
        self.target = target
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(target.address)
        self.slots = (ctypes.c_int64 * (HEADER_SLOTS + sum(a.slots for a in target.arguments)))()
        self.address = ctypes.addressof(self.slots)
        self.workspace: Any = None
        self.lock = threading.Lock()

    def run(self) -> None:
        """Run with what stands in the slots."""
        while needed := self.entry(self.address):
            self.workspace = (ctypes.c_char * (needed + 64))()
            self.slots[0] = (ctypes.addressof(self.workspace) + 63) & -64
            self.slots[1] = needed


class CtypesCall(_Runner):
    """Takes the kernel's arguments as one sequence; arrays are used in place."""

    def __init__(self, target: Target):
        super().__init__(target)
        self.dtypes = [np.dtype(a.dtype) for a in target.arguments]

    def __call__(self, args: Sequence[Any]) -> None:
        formals = self.target.arguments
        if len(args) != len(formals):
            raise TypeError(f"the kernel takes {len(formals)} arguments, {len(args)} given")
        values: list[int] = []
        for i, (formal, arg) in enumerate(zip(formals, args, strict=True)):
            if formal.rank is None:
                values.append(index(arg))
                continue
            array = _checked(i, formal, self.dtypes[i], arg)
            values.append(array.ctypes.data)
            values += [n for n, known in zip(array.shape, formal.shape, strict=True) if known < 0]
        with self.lock:
            self.slots[HEADER_SLOTS:] = values  # pyright: ignore[reportArgumentType]
            self.run()


def _checked(i: int, formal: Argument, dtype: np.dtype[Any], arg: Any) -> Array:
    """The argument; TypeError if the kernel cannot use it in place."""
    if not isinstance(arg, np.ndarray):
        raise TypeError(f"argument {i} is no array")
    array = cast(Array, arg)
    if array.dtype != dtype or array.ndim != formal.rank:
        raise TypeError(f"argument {i} has rank {array.ndim} and elements {array.dtype}; "
                        f"expected rank {formal.rank} and {formal.dtype}")  # fmt: skip
    if not array.flags.c_contiguous or (formal.written and not array.flags.writeable):
        raise TypeError(f"argument {i} must be contiguous" + (" and writeable" if formal.written else ""))
    if any(known >= 0 and known != n for n, known in zip(array.shape, formal.shape, strict=True)):
        raise TypeError(f"argument {i} has shape {array.shape}; expected {formal.shape}")
    return array


class CtypesScalar(_Runner):
    """Takes numbers and returns the tuple of the output numbers; the cells for them are bound once."""

    def __init__(self, target: Target, inputs: int, fail: Fail):
        super().__init__(target)
        self.fail = fail
        self.cells = [CELLS[a.dtype]() for a in target.arguments]
        self.put = [_convert(a) for a in target.arguments[:inputs]]
        self.numbers = [HEADER_SLOTS + i for i, a in enumerate(target.arguments) if a.rank is None]
        self.inputs, self.outputs, self.status = self.cells[:inputs], self.cells[inputs:-1], self.cells[-1]
        for i, cell in enumerate(self.cells):
            self.slots[HEADER_SLOTS + i] = ctypes.addressof(cell)

    def __call__(self, *values: Any) -> Any:
        with self.lock:
            try:
                for cell, put, value in zip(self.inputs, self.put, values, strict=True):
                    cell.value = put(value)
            except (TypeError, ValueError, OverflowError):
                code = -1
            else:
                for slot in self.numbers:
                    self.slots[slot] = self.cells[slot - HEADER_SLOTS].value
                self.status.value = 0
                self.run()
                code = self.status.value
            out = tuple([cell.value for cell in self.outputs])
        return self.fail(code, values) if code else out


def _convert(formal: Argument) -> Callable[[Any], Any]:
    """How a Python number becomes the value of a cell; what does not fit is a TypeError or an OverflowError."""
    if formal.dtype.startswith("float"):
        return _real
    if formal.dtype == "bool":
        return _truth
    bits = int(formal.dtype.removeprefix("int"))
    return lambda value: _whole(value, bits)


def _real(value: Any) -> float:
    if isinstance(value, str | bytes):  # float("1") is a number, but a text is none
        raise TypeError(value)
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _whole(value: Any, bits: int) -> int:
    n = index(value)
    if not -(1 << (bits - 1)) <= n < 1 << (bits - 1):
        raise OverflowError(value)
    return n
