"""The engines of the condition sweep: a program becomes something that runs at all its sizes, compiled once if possible."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.context import Context

import upl_mlir as upl
from agreement.engines import machine_file
from upl_mlir.api.ports import PortView
from upl_mlir.engines.native.c.c_source import emit_one_file
from upl_mlir.engines.native.signature import arguments_of, function_of, layouts_of
from upl_mlir.passes.lower_to_loops import LowerLoopsPass
from upl_mlir.poly.parse import parse_index

Size = Mapping[str, int]
Arrays = Mapping[str, Any]
Run = Callable[[Size, Arrays], Arrays]
Engine = Callable[[upl.Program], Run]


def _api(**options: Any) -> Engine:
    def made(p: upl.Program) -> Run:
        code = upl.compile(p, **options)
        return lambda size, arrays: code(**arrays, **{n: v for n, v in size.items() if n in p.params})

    return made


def _machine(name: str) -> Engine:
    def made(p: upl.Program) -> Run:
        return _api(engine="rtl", machine=machine_file(name))(p)  # the file is written when it is needed

    return made


def in_c(p: upl.Program) -> Run:
    """The program as one C file, compiled and called with arrays of the boxes that its comment states."""
    module = p.expanded().infer_domains().module.clone()
    LowerLoopsPass(real="f64", gather="ordered").apply(Context(), module)
    function = function_of(module)
    stated = dict(text.split("> in ") for text in layouts_of(function) if "> in " in text)
    boxes = {key.partition("<")[0]: _sides(text) for key, text in stated.items()}
    compiler = next(c for c in ("gcc", "clang", "cc") if shutil.which(c))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        text = emit_one_file(module)
        (place / "p.c").write_text(text)
        command = [compiler, "-std=c99", "-O1", "-shared", "-fPIC", "p.c", "-o", "p.so", "-lm"]
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=120)
        found = re.findall(r"^void (\w+)\(", text, re.MULTILINE)  # C may give the program's own name a meaning
        entry = ctypes.CDLL(str(place / "p.so"))[found[-1]]
    entry.restype = None

    def run(size: Size, arrays: Arrays) -> Arrays:
        where = {n: _place(boxes.get(n, ()), v, size) for n, v in {**p.inputs, **p.outputs}.items()}
        everything: Arrays = {}
        status = np.zeros((), np.int64)
        for n, v in {**p.inputs, **p.outputs}.items():
            everything[n] = np.full(where[n][0], 7, v.dtype)
            if n in p.inputs:
                everything[n][where[n][1]] = arrays[n]
        values: list[Any] = []
        kept: list[Any] = []
        *arguments, last = arguments_of(function)
        for a in (*arguments, last):
            if a.rank is None:
                values.append(ctypes.c_int64(size[a.name]))
                continue
            array = status if a is last else everything[a.name]
            # What lies round an array is there to be read and written by a function that is wrong, without harm.
            guarded = np.concatenate([np.zeros(_MARGIN, array.dtype), array.ravel(), np.zeros(_MARGIN, array.dtype)])
            kept.append((array, guarded))
            values.append(ctypes.c_void_p(guarded.ctypes.data + _MARGIN * array.itemsize))
            values += [ctypes.c_int64(n) for n, known in zip(array.shape, a.shape, strict=True) if known < 0]
        entry(*values)
        for array, guarded in kept:
            array[...] = guarded[_MARGIN : len(guarded) - _MARGIN].reshape(array.shape)
        if status:
            raise RuntimeError(f"status {int(status)}")
        return {n: everything[n][where[n][1]] for n in p.outputs}

    return run


def _sides(text: str) -> list[tuple[str, str]]:
    """The least index and the number of indices of each field, as expressions: of ``0<=i<n && 1<=j<=m``."""
    sides: list[tuple[str, str]] = []
    for side in text.split(" && "):
        found = re.fullmatch(r"(.*?)<=[^<=]+(<=?)(.*)", side)
        assert found, text
        low, less, high = found.groups()
        sides.append((low, f"({high}) - ({low}) + {len(less) - 1}"))
    return sides


def _place(box: Sequence[tuple[str, str]], port: PortView, size: Size) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """The shape of a port's array in C, and where in it the host's array lies."""
    shape, origin = port.shape(**size), port.origin(**size)
    if 0 in shape:
        return shape, tuple(slice(None) for _ in shape)
    low, count = ([parse_index(x[i]).evaluate(size, lambda _, __: 0) for x in box] for i in (0, 1))
    at = tuple(slice(o - lo, o - lo + n) for o, lo, n in zip(origin, low, shape, strict=True))
    return tuple(count), at


_MARGIN = 64

ENGINES: Mapping[str, Engine] = {
    "reference": _api(engine="reference", gather="ordered"),
    "interpreter": _api(gather="ordered"),
    "native": _api(engine="native", gather="ordered"),
    "native, relaxed": _api(engine="native"),
    "C": in_c,
    "token": _api(engine="token", gather="ordered"),
    "machine": _machine("hashed"),
    "machine, direct": _machine("direct"),
    "machine, throttled": _machine("throttled"),
}
