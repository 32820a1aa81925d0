"""Hand-written C: built by gcc when a case asks for it, kept in `build/bench/` under the hash of sources and flags."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.native.case import Absent, Array

SOURCES = Path(__file__).parent / "c"
BUILD = Path(__file__).parent.parent.parent / "build" / "bench"
FLAGS = (
    "-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-Wall", "-Wextra", "-shared", "-fPIC",
    # Without it gcc splits hand-made accumulators again and spills them: 0.65 of the speed in convolution.c.
    "-fno-tree-reassoc",
)  # fmt: skip


def library(name: str, real: str = "f64", flags: Sequence[str] = ()) -> Path:
    """The shared library of `c/NAME.c`.  Raises Absent without gcc."""
    gcc = shutil.which("gcc")
    if gcc is None:
        raise Absent("no gcc")
    command = [*FLAGS, *flags, f"-DREAL={'float' if real == 'f32' else 'double'}"]
    texts = [(SOURCES / f"{name}.c").read_text(), *(p.read_text() for p in sorted(SOURCES.glob("*.h")))]
    version = subprocess.run([gcc, "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256("\0".join([version, *command, *texts]).encode()).hexdigest()[:16]
    out = BUILD / f"{name}-{key}.so"
    if not out.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        made = out.with_suffix(".tmp")
        subprocess.run([gcc, *command, "-o", made, SOURCES / f"{name}.c", "-lm"], check=True)
        made.replace(out)
    return out


def function(name: str, entry: str, real: str = "f64", result: type | None = ctypes.c_double) -> Any:
    """A function of a library."""
    found = getattr(ctypes.CDLL(str(library(name, real))), entry)
    found.restype = result
    return found


def extension(name: str) -> Any:
    """A library that is a Python extension, imported.  Raises Absent without Python's headers."""
    headers = sysconfig.get_paths()["include"]
    if not (Path(headers) / "Python.h").exists():
        raise Absent("no Python.h")
    spec = importlib.util.spec_from_file_location(name, library(name, flags=(f"-I{headers}",)))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bound(value: Array | int | float | None) -> Any:
    """An argument as ctypes wants it, converted once.  The caller keeps the array alive."""
    if value is None:
        return ctypes.c_void_p(None)
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_long(value)
