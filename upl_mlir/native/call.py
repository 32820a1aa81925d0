"""How Python reaches machine code: the C extension `call.c`, built at first use, or ctypes where that cannot be built.

Both offer the same two callables; the extension is ten times faster and has the threads.  `Target` and `Fail` are in
`call_ctypes.py`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from upl_mlir.native.call_ctypes import CtypesCall, CtypesScalar, Fail, Target
from upl_mlir.native.compiler import CompilerError, find_compiler, load_library

SOURCE = Path(__file__).with_name("call.c")
KINDS = {"float64": "d", "float32": "f", "int64": "q", "int32": "i", "int8": "b", "bool": "?"}


@dataclass(frozen=True)
class Extension:
    """The C extension; `module` is None if it could not be built, and `why` says why."""

    module: Any
    why: str = ""


def prepare() -> None:
    """Begin to build the extension if it is not there, beside what is done before it is needed."""
    if not _built:
        threading.Thread(target=extension, name="upl-call", daemon=True).start()


def extension() -> Extension:
    """The extension, from the cache or built now (0.2 s)."""
    with _lock:
        if not _built:
            _built.append(build())
    return _built[0]


_lock = threading.Lock()
_built: list[Extension] = []
"""The extension once it is there."""


def build() -> Extension:
    """The extension from the cache, or built."""
    include = sysconfig.get_paths()["include"]
    if not (Path(include) / "Python.h").exists():
        return Extension(None, "Python.h is missing (install the package with Python's headers)")
    compiler = find_compiler("CC", ("cc", "gcc", "clang"))
    if compiler is None:
        return Extension(None, "no C compiler found (cc, gcc or clang)")
    suffix: str = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    command = [*compiler, "-O2", "-std=c11", "-shared", "-fPIC", "-pthread", f"-I{include}"]
    try:
        module = load_library("call", suffix, command, SOURCE.read_bytes(), ".c", _load, (sys.version,))
    except CompilerError as e:
        return Extension(None, str(e))
    return Extension(module)


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


def array_call(target: Target, ext: Extension) -> Callable[[Sequence[Any]], None]:
    """A callable that takes the kernel's arguments as one sequence; arrays are used in place."""
    if ext.module is None:
        return CtypesCall(target)
    return ext.module.make(target.address, target.threads, _formals(target), -1, None, target.owner)


def scalar_call(target: Target, ext: Extension, fail: Fail) -> Callable[..., tuple[Any, ...]]:
    """A callable that takes the input numbers and returns the tuple of output numbers."""
    inputs = sum(not a.written for a in target.arguments)
    if ext.module is None:
        return CtypesScalar(target, inputs, fail)
    return ext.module.make(target.address, target.threads, _formals(target), inputs, fail, target.owner)


def again_call(
    run: Callable[[Sequence[Any]], None], params: Sequence[int], inputs: Sequence[tuple[str, tuple[int, ...]]],
    outputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any]]],
) -> Callable[[Mapping[str, Any]], dict[str, Any] | int | None] | None:  # fmt: skip
    """A callable for calls with arrays of these names and shapes, `run` being of `array_call`: arrays in, new arrays out.

    It returns the status where that is not 0, and None for arrays of other names, shapes, types or places; there is none
    without the extension.
    """
    found = extension().module
    if found is None or isinstance(run, CtypesCall):
        return None
    outs = tuple((name, (shape, dtype)) for name, shape, dtype in outputs)
    return found.again(run, tuple(params), tuple(inputs), outs, np.empty, np.ndarray)


def _formals(target: Target) -> list[tuple[str, bool, tuple[int, ...] | None]]:
    return [("n", False, None) if a.rank is None else (KINDS[a.dtype], a.written, a.shape) for a in target.arguments]
