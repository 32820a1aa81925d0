"""The floating-point units as machine code: many operands at once, for `test_floating_point.py` and `soak_fp.py`."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportInconsistentConstructor=false

from __future__ import annotations

import ctypes
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray

from upl_mlir.host.cache import digest, open_cache
from upl_mlir.hw.core.code.evaluate import fma
from upl_mlir.hw.fp.fma import FusedMultiplyAdd
from upl_mlir.hw.fp.iterative import Divider, SquareRoot
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.sim import build
from upl_mlir.hw.verilog import netlist

Words = NDArray[np.uint32]
LATENCY = 4
UNITS = ("add", "mul", "fma", "div", "sqrt")

HARNESS = """
#include <cstdint>
#include "floats.h"
extern "C" void floats_run(int unit, const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, uint64_t n) {
    Floats top;
    auto cycle = [&] { top.edge(); top.settle(); };
    top.settle();
    for (uint64_t i = 0; i < n + (unit < 3 ? LATENCY : 0); i++) {
        if (i < n) { top.a = a[i]; top.b = b[i]; top.c = c[i]; }
        if (unit < 3) {
            top.settle();
            if (i >= LATENCY) out[i - LATENCY] = unit == 0 ? top.sum : unit == 1 ? top.product : top.fused;
            cycle();
            continue;
        }
        top.start = 1; top.settle(); cycle(); top.start = 0; top.settle();
        for (int wait = 0; !(unit == 3 ? top.divided : top.rooted) && wait < 100; wait++) cycle();
        out[i] = unit == 3 ? top.quotient : top.root;
        cycle();
    }
}
"""


class Floats(wiring.Component):
    """All units side by side on the same operands."""

    def __init__(self) -> None:
        words = {name: Out(32) for name in ("sum", "product", "fused", "quotient", "root")}
        operands = {name: In(32) for name in "abc"}
        super().__init__({**operands, **words, "start": In(1), "divided": Out(1), "rooted": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.adder = adder = Adder(BINARY32, LATENCY)
        m.submodules.multiplier = multiplier = Multiplier(BINARY32, LATENCY)
        m.submodules.fma = fused = FusedMultiplyAdd(BINARY32, LATENCY)
        m.submodules.divider = divider = Divider(BINARY32, 16)
        m.submodules.root = root = SquareRoot(BINARY32, 16)
        for unit in (adder, multiplier, fused, divider, root):
            m.d.comb += [unit.a.eq(self.a), unit.b.eq(self.b)]
        m.d.comb += [
            fused.c.eq(self.c), divider.start.eq(self.start), root.start.eq(self.start), self.sum.eq(adder.result),
            self.product.eq(multiplier.result), self.fused.eq(fused.result), self.quotient.eq(divider.result),
            self.root.eq(root.result), self.divided.eq(divider.done), self.rooted.eq(root.done),
        ]  # fmt: skip
        return m


@cache
def _library() -> ctypes.CDLL:
    return library(Floats(), f"#define LATENCY {LATENCY}\n{HARNESS}")


def library(units: wiring.Component, harness: str) -> ctypes.CDLL:
    """A component as machine code, which the harness includes as `floats.h`; kept in the cache."""
    text = netlist(units, "floats")
    kept = open_cache()
    name = f"floats-{digest(text, harness, *build.tools())}.so"
    path = kept.file(name)
    if path is None:
        with tempfile.TemporaryDirectory(prefix="upl-floats-") as place:
            folder = Path(place)
            (folder / "harness.cpp").write_text(harness, encoding="utf-8")
            objects = [build.model(folder, text, "floats"), build.compile_source(folder / "harness.cpp")]
            built = build.link(objects, folder / "floats.so")
            path = kept.write(name, built.read_bytes())
            return ctypes.CDLL(str(path or built))
    return ctypes.CDLL(str(path))


def compute(unit: str, a: Words, b: Words, c: Words) -> Words:
    """The results of a unit, in machine code made from its RTL."""
    out = np.zeros_like(a)
    operands = [np.ascontiguousarray(w, np.uint32) for w in (a, b, c)]
    places = [ctypes.c_void_p(w.ctypes.data) for w in (*operands, out)]
    _library().floats_run(UNITS.index(unit), *places, ctypes.c_uint64(len(a)))
    return out


def wanted(unit: str, a: Words, b: Words, c: Words) -> Words:
    """The same by NumPy, the fused multiply-add in binary64 rounded to odd; every NaN canonical."""
    x, y, z = (w.view(np.float32) for w in (a, b, c))
    with np.errstate(all="ignore"):
        match unit:
            case "add":
                value: Any = x + y
            case "mul":
                value = x * y
            case "fma":
                value = fma(x, y, z)
            case "div":
                value = x / y
            case _:
                value = np.sqrt(x)
    return np.where(np.isnan(value), np.uint32(0x7FC00000), value.view(np.uint32))


def operands(rng: np.random.Generator, count: int) -> tuple[Words, Words, Words]:
    """Three words each: of any bits; or near each other in exponent; or so that a sum or a fused one nearly cancels."""
    words = rng.integers(0, 1 << 32, (3, count), dtype=np.uint64).astype(np.uint32)
    a, b, c = words
    kind = rng.integers(0, 4, count)
    close = rng.integers(100, 150, (3, count)).astype(np.uint32) << np.uint32(23)
    narrow = (words & np.uint32(0x807FFFFF)) | close
    a, b, c = (np.where(kind == 1, n, w) for n, w in zip(narrow, (a, b, c), strict=True))
    with np.errstate(all="ignore"):
        product = (a.view(np.float32) * b.view(np.float32)).view(np.uint32)
    jitter = rng.integers(0, 141, count).astype(np.uint32) - np.uint32(70)
    sign = np.uint32(1 << 31)
    c = np.where(kind == 2, (product ^ sign) + jitter, c)
    b = np.where(kind == 3, (a ^ sign) + jitter, b)
    return a, b, c
