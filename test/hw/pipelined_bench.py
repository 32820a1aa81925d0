"""The pipelined units as machine code, all of them on each pair of operands: for `test_pipelined.py` and `soak_fp.py`."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportInconsistentConstructor=false

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import ulps
from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from floats_bench import Words, library, wanted

from upl_mlir.hw.fp.angles import Cosine, Sine, cos, sin
from upl_mlir.hw.fp.conversions import Comparer, FromInteger, ToInteger
from upl_mlir.hw.fp.digits import Divider, SquareRoot
from upl_mlir.hw.fp.functions import ULP, Exponential, HyperbolicTangent, Logarithm, Logistic, exp, log, sigmoid, tanh
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipe import Pipelined
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.fp.truths import Mask

FUNCTIONS: dict[type[Pipelined], Callable[[Any], Any]] = {
    Exponential: exp, Logarithm: log, HyperbolicTangent: tanh, Logistic: sigmoid, Sine: sin, Cosine: cos,
}  # fmt: skip
"""Functions, with the same arithmetic on arrays."""
KINDS: tuple[type[Pipelined], ...] = (
    Adder, Multiplier, Divider, SquareRoot, Comparer, FromInteger, ToInteger, Mask, *FUNCTIONS,
)  # fmt: skip
NAN = np.uint32(BINARY32.nan)
HARNESS = """
#include <cstdint>
#include "floats.h"
extern "C" void floats_run(const uint32_t* a, const uint32_t* b, uint32_t* const* out, uint64_t n) {
    Floats top;
    top.settle();
    for (uint64_t i = 0; i < n + %d; i++) {
        if (i < n) { top.a = a[i]; top.b = b[i]; }
        top.settle();
        %s
        top.edge(); top.settle();
    }
}
"""


class Units(wiring.Component):
    """All units side by side on the same operands, each with its greatest latency; `outputs` says who has which."""

    def __init__(self) -> None:
        self.units = {kind.__name__: kind(BINARY32) for kind in KINDS}
        self.outputs = {
            f"{name}_{port}": (unit.latency, getattr(unit, port))
            for name, unit in self.units.items() for port in ("result", "least", "greatest") if hasattr(unit, port)
        }  # fmt: skip
        order, whole = self.units["Comparer"], self.units["ToInteger"]
        self.outputs["Comparer_order"] = order.latency, Cat(order.less, order.equal, order.unordered)
        self.outputs["ToInteger_failed"] = whole.latency, whole.failed
        super().__init__({"a": In(32), "b": In(32), **{name: Out(32) for name in self.outputs}})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, unit in self.units.items():
            m.submodules[name] = unit
            m.d.comb += [getattr(unit, port).eq(getattr(self, port)) for port in unit.operands(BINARY32)]
        m.d.comb += [getattr(self, name).eq(Value.cast(value)) for name, (_, value) in self.outputs.items()]
        return m


@cache
def _library() -> tuple[ctypes.CDLL, list[str]]:
    units = Units()
    latencies = {name: latency for name, (latency, _) in units.outputs.items()}
    takes = "".join(f"if (i >= {t} && i < n + {t}) out[{k}][i - {t}] = top.{name};\n"
                    for k, (name, t) in enumerate(latencies.items()))  # fmt: skip
    return library(units, HARNESS % (max(latencies.values()), takes)), list(latencies)


def compute(a: Words, b: Words) -> dict[str, Words]:
    """The results of all units, in machine code made from their RTL."""
    found, names = _library()
    out = {name: np.zeros_like(a) for name in names}
    places = (ctypes.c_void_p * len(names))(*(w.ctypes.data for w in out.values()))
    a, b = (np.ascontiguousarray(w, np.uint32) for w in (a, b))
    found.floats_run(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data), places, ctypes.c_uint64(len(a)))
    # Where there is no integer, the result is nobody's.
    out["ToInteger_result"][out["ToInteger_failed"] != 0] = 0
    return out


def canonical(x: Any) -> Words:
    return np.where(np.isnan(x), NAN, x.view(np.uint32))


def right(a: Words, b: Words) -> dict[str, Words]:
    """The same by NumPy; every NaN canonical."""
    x, y = a.view(np.float32), b.view(np.float32)
    unordered = np.isnan(x) | np.isnan(y)
    keys = [np.where(v.view(np.int32) < 0, v.view(np.int32) ^ 0x7FFFFFFF, v.view(np.int32)) for v in (a, b)]
    before = keys[0] < keys[1]  # -0 is before +0
    fits = (x >= -(2.0**31)) & (x < 2.0**31)
    with np.errstate(all="ignore"):
        order = (x < y) | (x == y).astype(np.uint32) << np.uint32(1) | unordered.astype(np.uint32) << np.uint32(2)
    return {
        **{f"{name}_result": wanted(unit, a, b, b)
           for name, unit in (("Adder", "add"), ("Multiplier", "mul"), ("Divider", "div"), ("SquareRoot", "sqrt"))},
        **{f"{kind.__name__}_result": canonical(f(x)) for kind, f in FUNCTIONS.items()},
        "Mask_result": wanted("mul", a, (b & 1).astype(np.float32).view(np.uint32), b),
        "Comparer_order": order, "Comparer_least": np.where(unordered, NAN, np.where(before, a, b)),
        "Comparer_greatest": np.where(unordered, NAN, np.where(before, b, a)),
        "FromInteger_result": a.view(np.int32).astype(np.float32).view(np.uint32),
        "ToInteger_failed": (~fits).astype(np.uint32),
        "ToInteger_result": np.where(fits, np.trunc(np.where(fits, x, 0)), 0).astype(np.int32).view(np.uint32),
    }  # fmt: skip


EXACT: dict[type[Pipelined], Callable[[Any], Any]] = {
    Exponential: np.exp, Logarithm: np.log, HyperbolicTangent: np.tanh, Logistic: ulps.sigmoid, Sine: np.sin,
    Cosine: np.cos,
}  # fmt: skip
"""In binary64, whose errors are some 1e-9 of the units that are counted here."""


def errors(kind: type[Pipelined], x: Any) -> Any:
    """Errors of a function's arithmetic on arrays, in units in the last place."""
    with np.errstate(all="ignore"):
        return ulps.units(FUNCTIONS[kind](x), EXACT[kind](x.astype(np.float64)))


def beyond(a: Words) -> list[str]:
    """For each function the first operand whose result is beyond the bound."""
    x = a.view(np.float32)
    return [f"{kind.__name__} of {a[n]:08x} is beyond {ULP} ulp" for kind in FUNCTIONS
            for n in np.flatnonzero(errors(kind, x) > ULP)[:1]]  # fmt: skip


def wrong(a: Words, b: Words) -> list[str]:
    """For each result the first operands with which it differs."""
    got, should = compute(a, b), right(a, b)
    assert got.keys() == should.keys()
    return [
        f"{name} of {a[n]:08x} {b[n]:08x}: {got[name][n]:08x}, not {should[name][n]:08x}"
        for name in got for n in np.flatnonzero(got[name] != should[name])[:1]
    ]  # fmt: skip
