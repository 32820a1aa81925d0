"""How Python reaches machine code: the C extension `call.c`, built at first use, or ctypes where that cannot be built.

Both offer the same two callables; the extension is ten times faster and has the threads.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.native.cache import digest, open_cache
from upl_mlir.native.values import Argument

HEADER_SLOTS = 4
"""Slots in front of the arguments: workspace, its size, the function that forks loops, the number of threads."""

SOURCE = Path(__file__).with_name("call.c")
KINDS = {"float64": "d", "float32": "f", "int64": "q", "int32": "i", "int8": "b", "bool": "?"}

Fail = Callable[[int, tuple[Any, ...]], Any]
"""Called for a scalar call without an answer: with the status and the arguments; -1: the arguments are wrong."""


@dataclass(frozen=True)
class Extension:
    """The C extension; `module` is None if it could not be built, and `why` says why."""

    module: Any
    why: str = ""


@cache
def extension() -> Extension:
    """The extension, from the cache or built now (0.2 s)."""
    include = sysconfig.get_paths()["include"]
    if not (Path(include) / "Python.h").exists():
        return Extension(None, "Python.h is missing (install the package with Python's headers)")
    compiler = _compiler()
    if compiler is None:
        return Extension(None, "no C compiler found (cc, gcc or clang)")
    text = SOURCE.read_bytes()
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    name = f"call-{digest(text, sys.version, include, ' '.join(compiler))}{suffix}"
    store = open_cache()
    place = store.file(name)
    found = _load(place) if place is not None else None
    if found is not None:
        return Extension(found)
    with tempfile.TemporaryDirectory() as temporary:
        built = Path(temporary) / "call.so"
        flags = ["-O2", "-std=c11", "-shared", "-fPIC", "-pthread", f"-I{include}"]
        command = [*compiler, *flags, str(SOURCE), "-o", str(built)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            return Extension(None, f"{compiler[0]} failed: {e}")
        if done.returncode or not built.exists():
            lines = done.stderr.strip().splitlines()
            return Extension(None, f"{compiler[0]} failed: {lines[0] if lines else done.returncode}")
        module = _load(store.write(name, built.read_bytes()) or built)
    return Extension(module, "" if module else "the extension that was built cannot be loaded")


def _compiler() -> list[str] | None:
    """The command of a C compiler: $CC, the one that Python was built with, or a usual name."""
    for text in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = shlex.split(text) if text else []
        if words and shutil.which(words[0]):
            return words
    return None


def _load(path: Path) -> Any:
    """The extension module in a file, None if it is not one."""
    loader = importlib.machinery.ExtensionFileLoader("_upl_call", str(path))
    spec = importlib.util.spec_from_file_location("_upl_call", path, loader=loader)
    if spec is None:
        return None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        return None
    return module


@dataclass(frozen=True)
class Target:
    """What a callable runs: the address of the code, its arguments, the threads, and what keeps the code in memory."""

    address: int
    arguments: tuple[Argument, ...]
    threads: int
    owner: Any


def array_call(target: Target, ext: Extension) -> Callable[[Sequence[Any]], None]:
    """A callable that takes the kernel's arguments as one sequence; arrays are used in place."""
    if ext.module is None:
        return _CtypesCall(target)
    return ext.module.make(target.address, target.threads, _formals(target), -1, None, target.owner)


def scalar_call(target: Target, ext: Extension, fail: Fail) -> Callable[..., tuple[Any, ...]]:
    """A callable that takes the input numbers and returns the tuple of output numbers."""
    inputs = sum(not a.written for a in target.arguments)
    if ext.module is None:
        return _ctypes_scalar(target, inputs, fail)
    return ext.module.make(target.address, target.threads, _formals(target), inputs, fail, target.owner)


def _formals(target: Target) -> list[tuple[str, bool, tuple[int, ...] | None]]:
    return [("n", False, None) if a.rank is None else (KINDS[a.dtype], a.written, a.shape) for a in target.arguments]


class _CtypesCall:
    """The way without the extension: one thread, some microseconds a call."""

    def __init__(self, target: Target):
        self.target = target
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(target.address)
        self.count = HEADER_SLOTS + sum(a.slots for a in target.arguments)
        self.workspace = np.zeros(0, np.uint8)

    def __call__(self, args: Sequence[Any]) -> None:
        slots = np.zeros(self.count, np.int64)
        at = HEADER_SLOTS
        if len(args) != len(self.target.arguments):
            raise TypeError(f"the kernel takes {len(self.target.arguments)} arguments, {len(args)} given")
        for i, (formal, arg) in enumerate(zip(self.target.arguments, args, strict=True)):
            if formal.rank is None:
                slots[at] = arg
                at += 1
                continue
            _check(i, formal, arg)
            slots[at] = arg.ctypes.data
            at += 1
            for n, known in zip(arg.shape, formal.shape, strict=True):
                if known < 0:
                    slots[at] = n
                    at += 1
        workspace = self.workspace
        while True:
            slots[0] = (workspace.ctypes.data + 63) & -64
            slots[1] = max(workspace.size - 64, 0)
            needed = self.entry(slots.ctypes.data)
            if not needed:
                return
            self.workspace = workspace = np.empty(needed + 64, np.uint8)


def _check(i: int, formal: Argument, arg: Any) -> None:
    """Raise TypeError for an array that the kernel cannot use in place."""
    if not isinstance(arg, np.ndarray):
        raise TypeError(f"argument {i} is no array")
    array = cast(NDArray[Any], arg)
    if array.dtype != formal.dtype or array.ndim != formal.rank:
        raise TypeError(f"argument {i} has rank {array.ndim} and elements {array.dtype}; "
                        f"expected rank {formal.rank} and {formal.dtype}")  # fmt: skip
    if not array.flags.c_contiguous or (formal.written and not array.flags.writeable):
        raise TypeError(f"argument {i} must be contiguous" + (" and writeable" if formal.written else ""))
    if any(known not in (-1, n) and known >= 0 for n, known in zip(array.shape, formal.shape, strict=True)):
        raise TypeError(f"argument {i} has shape {array.shape}; expected {formal.shape}")


def _ctypes_scalar(target: Target, inputs: int, fail: Fail) -> Callable[..., tuple[Any, ...]]:
    call = _CtypesCall(target)
    cells = [None if a.rank is None else np.zeros((), a.dtype) for a in target.arguments]

    def scalar(*values: Any) -> Any:
        if len(values) != inputs:
            return fail(-1, values)
        given: list[Any] = list(cells)
        for i, value in enumerate(values):
            formal = target.arguments[i]
            wanted = float if formal.dtype.startswith("float") else bool if formal.dtype == "bool" else int
            if not isinstance(value, (int, float) if wanted is float else wanted) and not hasattr(value, "__index__"):
                return fail(-1, values)
            cell = cells[i]
            if cell is None:
                given[i] = value
            else:
                try:
                    cell[()] = value
                except (OverflowError, ValueError, TypeError):
                    return fail(-1, values)
        call(given)
        status = cells[-1]
        if status is not None and status:
            code = int(status)
            status[()] = 0
            return fail(code, values)
        return tuple(c.item() for c in cells[inputs:-1] if c is not None)

    return scalar
