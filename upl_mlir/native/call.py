"""How Python reaches machine code: the C extension `call.c`, built at first use, or ctypes where that cannot be built.

Both offer the same two callables; the extension is ten times faster and has the threads.  `Target` and `Fail` are in
`call_ctypes.py`.
"""

from __future__ import annotations

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
from typing import Any

from upl_mlir.native.cache import digest, open_cache
from upl_mlir.native.call_ctypes import CtypesCall, CtypesScalar, Fail, Target

SOURCE = Path(__file__).with_name("call.c")
KINDS = {"float64": "d", "float32": "f", "int64": "q", "int32": "i", "int8": "b", "bool": "?"}


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


def _formals(target: Target) -> list[tuple[str, bool, tuple[int, ...] | None]]:
    return [("n", False, None) if a.rank is None else (KINDS[a.dtype], a.written, a.shape) for a in target.arguments]
