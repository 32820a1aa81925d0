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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from upl_mlir.engines.native.call_ctypes import CtypesCall, CtypesScalar, Fail, Target
from upl_mlir.engines.native.compiler import CompilerError, find_compiler, load_library

Array = NDArray[Any]

SOURCE = Path(__file__).with_name("call.c")
HEADERS = tuple(SOURCE.with_name(name) for name in ("call_pool.h", "call_memory.h", "call_again.h", "call_whole.h"))
"""What the source includes from its own folder."""
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
    if not (Path(np.get_include()) / "numpy" / "arrayobject.h").exists():
        return Extension(None, "numpy/arrayobject.h is missing (install numpy with its headers)")
    compiler = find_compiler("CC", ("cc", "gcc", "clang"))
    if compiler is None:
        return Extension(None, "no C compiler found (cc, gcc or clang)")
    suffix: str = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    folders = (f"-I{folder}" for folder in (include, np.get_include(), SOURCE.parent))
    command = [*compiler, "-O1", "-std=c11", "-shared", "-fPIC", "-pthread", *folders]
    depends = (sys.version, np.__version__, *(h.read_bytes() for h in HEADERS))
    try:
        module = load_library("call", suffix, command, SOURCE.read_bytes(), ".c", _load, depends)
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


class Again(Protocol):
    """Calls with arrays like those of an earlier call, made by `again_call`."""

    nanoseconds: int
    """That the last call took."""

    def run(self, arrays: dict[str, Any], out: Any = None, /) -> dict[str, Any] | int | None:
        """Arrays in, arrays out: those of the caller's in `out`, a dictionary, and new ones.

        The status where that is not 0; None for arrays of other names, types or shapes, or that share memory with results.
        """


def again_call(
    run: Callable[[Sequence[Any]], None], params: Sequence[int], inputs: Sequence[tuple[str, tuple[int, ...]]],
    outputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any]]],
) -> Again | None:  # fmt: skip
    """What serves calls with arrays of these names and shapes, `run` being of `array_call`; there is none without the
    extension."""
    found = extension().module
    if found is None or isinstance(run, CtypesCall):
        return None
    return found.again(run, tuple(params), tuple(inputs), tuple(outputs))


Whole = Callable[[tuple[Any, ...]], Any]
"""From the tuple of a function's arguments to its result; NotImplemented for a call that differs or goes wrong."""


def whole_call(
    again: Again, inputs: Sequence[str], outputs: Sequence[tuple[str, np.dtype[Any]]], arguments: Any,
    constants: Mapping[str, Array], result: Any, fault: str | None = None,
) -> Whole | None:  # fmt: skip
    """Calls like an earlier one as one function, `again` having these inputs and outputs; None where it cannot be.

    `arguments` is a tree of branches (type, keys of a dict or None, parts), None, and leaves (name of the input or "",
    type of a number or None, code of numpy's type, shape); in `result` only the names of outputs count.  `constants` are
    inputs that are no arguments, `fault` the output that says whether a call went wrong.  Results have types as in `result`.
    """
    inputs_at = {n: k for k, n in enumerate(inputs)}
    outputs_at = {n: k for k, (n, _) in enumerate(outputs)}
    types = dict(outputs)

    def placed(tree: Any, at: Mapping[str, int]) -> Any:
        if tree is None:
            return None
        if len(tree) == 3:
            kind, keys, parts = tree
            return kind, keys, tuple(placed(part, at) for part in parts)
        name, kind, code, shape = tree
        if at is outputs_at and types[name] != np.dtype(code):
            raise KeyError(name)
        return at[name] if name else -1, kind, KINDS[np.dtype(code).name], shape

    try:
        spec, made = placed(arguments, inputs_at), placed(result, outputs_at)
    except KeyError:  # a type that kernels have not
        return None
    held = tuple((inputs_at[n], a) for n, a in constants.items())
    return extension().module.whole(again, spec, held, made, -1 if fault is None else outputs_at[fault])


def _formals(target: Target) -> list[tuple[str, bool, tuple[int, ...] | None]]:
    return [("n", False, None) if a.rank is None else (KINDS[a.dtype], a.written, a.shape) for a in target.arguments]
