"""LLVM IR of the operations on scalars: arith and math, one row each.

Reals follow IEEE as the interpreter does (`engines/interp/ieee.py`); flags that permit more
(`fastmath<reassoc,contract,nsz>`) are taken over from the operation and never added.  Integer operations are total: where
the quotient has no value (division by zero) the result is some number, and the lowered program reports the fault through its
status.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol, cast

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IndexType, IntegerAttr, i1
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.llvm.lanes import FORMATS, Format, Lanes
from upl_mlir.engines.native.llvm.text import Code, float_text, is_number, llvm_type
from upl_mlir.ops import FUNCTIONS


class Scope(Protocol):
    """What a row needs: the code, the texts of operands, and functions that the module shall contain."""

    code: Code

    @property
    def ordered(self) -> bool:
        """Whether functions are to be the interpreter's, bit for bit."""
        ...

    @property
    def fuses(self) -> bool:
        """Whether the machine rounds a product and a sum once."""
        ...

    def text(self, value: SSAValue) -> str:
        """The text of a scalar operand."""
        ...

    def function(self, name: str, type_: str) -> str:
        """The name under which a function of this package or of libm is called for a type (`double`, `float`)."""
        ...


Row = Callable[[Scope, Any], str]
"""Writes the operation and returns the text of its result."""


def flags(op: Operation) -> str:
    """The operation's fast-math flags as LLVM spells them, with a blank in front of each."""
    found = op.properties.get("fastmath") or op.attributes.get("fastmath")
    return "".join(sorted(f" {flag.value}" for flag in cast(Any, found).data)) if found is not None else ""


def _wrap(op: Operation) -> str:
    """`nsw` for indices, which cannot overflow, and where the operation says so."""
    if isinstance(op.results[0].type, IndexType):
        return " nsw"
    found = op.properties.get("overflowFlags")
    return "".join(sorted(f" {flag.value}" for flag in cast(Any, found).data)) if found is not None else ""


def _real(name: str) -> Row:
    """An instruction on reals that takes fast-math flags."""

    def row(s: Scope, op: Operation) -> str:
        t = llvm_type(op.results[0].type)
        return s.code.let(f"{name}{flags(op)} {t} {', '.join(s.text(o) for o in op.operands)}")

    return row


def _integer(name: str) -> Row:
    """A binary instruction on integers."""

    def row(s: Scope, op: Operation) -> str:
        a, b = (s.text(o) for o in op.operands)
        if isinstance(op.results[0].type, IndexType) and name in ("add", "sub", "mul"):
            return {"add": s.code.add, "sub": s.code.sub, "mul": s.code.mul}[name](a, b)
        wrap = _wrap(op) if name in ("add", "sub", "mul", "shl") else ""
        return s.code.let(f"{name}{wrap} {llvm_type(op.results[0].type)} {a}, {b}")

    return row


def _intrinsic(name: str, tail: str = "") -> Row:
    """An LLVM intrinsic that is not a call on the machine; `tail` are further arguments."""

    def row(s: Scope, op: Operation) -> str:
        t = llvm_type(op.results[0].type)
        suffix = {"double": "f64", "float": "f32"}.get(t, t)
        args = ", ".join(f"{t} {s.text(o)}" for o in op.operands)
        return s.code.let(f"call{flags(op)} {t} @llvm.{name}.{suffix}({args}{tail})")

    return row


def _called(name: str) -> Row:
    """A function of `vector_math` or libm."""

    def row(s: Scope, op: Operation) -> str:
        t = llvm_type(op.results[0].type)
        args = ", ".join(f"{t} {s.text(o)}" for o in op.operands)
        return s.code.let(f"call {t} {s.function(name, t)}({args})")

    return row


def _cast(name: str) -> Row:
    def row(s: Scope, op: Operation) -> str:
        (a,) = op.operands
        return s.code.let(f"{name} {llvm_type(a.type)} {s.text(a)} to {llvm_type(op.results[0].type)}")

    return row


def _constant(s: Scope, op: arith.ConstantOp) -> str:
    t = llvm_type(op.result.type)
    match op.value:
        case FloatAttr():
            return float_text(op.value.value.data, t)
        case IntegerAttr():
            n = op.value.value.data
            return ("true" if n else "false") if t == "i1" else str(n)
        case DenseIntOrFPElementsAttr() | _:
            raise error("UPL1820", "native code has no constants of tensors: use memref.global")


def _compare(kind: str, predicates: tuple[str, ...]) -> Row:
    def row(s: Scope, op: Any) -> str:
        a, b = op.operands
        name = predicates[cast(int, op.predicate.value.data)]
        return s.code.let(f"{kind} {name} {llvm_type(a.type)} {s.text(a)}, {s.text(b)}", "c")

    return row


def _select(s: Scope, op: arith.SelectOp) -> str:
    c, a, b = (s.text(o) for o in op.operands)
    t = llvm_type(op.result.type)
    return s.code.let(f"select i1 {c}, {t} {a}, {t} {b}")


def _unsigned_to_real(s: Scope, op: arith.UIToFPOp) -> str:
    """A truth as 1 or 0 is picked, which is quicker than a conversion."""
    if op.input.type != i1:
        return _cast("uitofp")(s, op)
    t = llvm_type(op.result.type)
    return s.code.let(f"select i1 {s.text(op.input)}, {t} 1.0, {t} 0.0")


def _index_cast(s: Scope, op: arith.IndexCastOp) -> str:
    return _resize(s, op, "sext")


def _resize(s: Scope, op: Operation, widen: str) -> str:
    (a,) = op.operands
    source, target = llvm_type(a.type), llvm_type(op.results[0].type)
    if source == target:
        return s.text(a)
    name = "trunc" if int(source[1:]) > int(target[1:]) else widen
    return s.code.let(f"{name} {source} {s.text(a)} to {target}")


def _safe_divisor(s: Scope, t: str, b: str) -> tuple[str, str | None]:
    """A divisor that no division traps on, and the condition "it was -1" where it must be asked for."""
    if is_number(b) and b not in ("0", "-1"):
        return b, None
    zero = s.code.let(f"icmp eq {t} {b}, 0")
    minus = s.code.let(f"icmp eq {t} {b}, -1")
    bad = s.code.let(f"or i1 {zero}, {minus}")
    return s.code.let(f"select i1 {bad}, {t} 1, {t} {b}"), minus


def _divide(s: Scope, op: Operation) -> str:
    """Rounded towards zero."""
    t = llvm_type(op.results[0].type)
    a, b = (s.text(o) for o in op.operands)
    divisor, minus = _safe_divisor(s, t, b)
    q = s.code.let(f"sdiv {t} {a}, {divisor}")
    if minus is None:
        return q
    negated = s.code.let(f"sub {t} 0, {a}")
    return s.code.let(f"select i1 {minus}, {t} {negated}, {t} {q}")


def _remainder(s: Scope, op: Operation) -> str:
    """Of the sign of the dividend."""
    t = llvm_type(op.results[0].type)
    a, b = (s.text(o) for o in op.operands)
    return s.code.let(f"srem {t} {a}, {_safe_divisor(s, t, b)[0]}")


def _rounded(down: bool) -> Row:
    """floordiv and ceildiv: the quotient towards zero, corrected where the remainder says so."""

    def row(s: Scope, op: Operation) -> str:
        t = llvm_type(op.results[0].type)
        a, b = (s.text(o) for o in op.operands)
        if is_number(b) and int(b) > 0 and int(b) & (int(b) - 1) == 0:  # a power of two: an arithmetic shift
            q = s.code.let(f"ashr {t} {a}, {int(b).bit_length() - 1}")
            if down:
                return q
            rest = s.code.let(f"icmp ne {t} {s.code.let(f'and {t} {a}, {int(b) - 1}')}, 0")
            return s.code.let(f"add {t} {q}, {s.code.let(f'zext i1 {rest} to {t}')}")
        q = _divide(s, op)
        r = s.code.let(f"sub {t} {a}, {s.code.let(f'mul {t} {q}, {b}')}")
        inexact = s.code.let(f"icmp ne {t} {r}, 0")
        signs = s.code.let(f"xor {t} {r}, {b}")
        wrong = s.code.let(f"icmp {'slt' if down else 'sge'} {t} {signs}, 0")
        fix = s.code.let(f"and i1 {inexact}, {wrong}")
        step = s.code.let(f"{'sext' if down else 'zext'} i1 {fix} to {t}")
        return s.code.let(f"add {t} {q}, {step}")

    return row


def _to_int(s: Scope, op: arith.FPToSIOp) -> str:
    """Some number where the real has no integer value; `freeze` so that tests of it stay defined."""
    return s.code.let(f"freeze {llvm_type(op.result.type)} {_cast('fptosi')(s, op)}")


POWERS = (-2, -1, 0, 0.5, 1, 2, 3, 4)
"""The exponents that take products, quotients or a root."""


def power(b: Lanes, x: str, n: float | None) -> str | None:
    """x**n for one of `POWERS` (errors ≤ 1.5 ulp); None for another exponent."""
    if n in (-2, -1):
        inverse = b.div(1.0, x)
        return inverse if n == -1 else b.mul(inverse, inverse)
    if n == 0.5:  # pow differs from the root at -0 and -infinity
        return b.choose(b.test("oeq", x, float("-inf")), float("inf"), b.abs(b.sqrt(x)))
    if n in (0, 1):
        return x if n else b.real(1.0)
    if n in (2, 3, 4):
        square = b.mul(x, x)
        return square if n == 2 else b.mul(square, x if n == 3 else square)
    return None


def _power(s: Scope, op: math.PowFOp | math.FPowIOp) -> str:
    """A constant exponent as in `power`, others by libm's pow (< 1 ulp).

    In ordered programs always by libm's: x·x is another number than the interpreter's pow(x, 2) now and then.
    """
    t = llvm_type(op.result.type)
    x = s.text(op.lhs)
    found = None if s.ordered else power(Lanes(FORMATS[t], 1, s.code), x, constant_value(op.rhs))
    if found is not None:
        return found
    exponent = s.text(op.rhs)
    if isinstance(op, math.FPowIOp):
        exponent = s.code.let(f"sitofp {llvm_type(op.rhs.type)} {exponent} to {t}")
    return s.code.let(f"call {t} {s.function('pow', t)}({t} {x}, {t} {exponent})")


def constant_value(value: SSAValue) -> float | None:
    """The value of a constant, or of a sum or difference of constants; None for anything else."""
    match value.owner:
        case arith.ConstantOp(value=FloatAttr() | IntegerAttr() as found):
            return found.value.data
        case arith.AddfOp() | arith.SubfOp() as op:
            a, b = constant_value(op.lhs), constant_value(op.rhs)
            if a is None or b is None:
                return None
            return a + b if isinstance(op, arith.AddfOp) else a - b
        case _:
            return None


EXTREME = {"f64": 900, "f32": 90}
"""Literals beyond 2 to this power, or below its inverse, are divided by: what an inverse lacks may be no normal number."""


def inverse(f: Format, c: float) -> tuple[float, float] | None:
    """The inverse of a literal as a sum of two numbers, the second being what the first lacks.

    None where that is nothing, or no normal number.  The first one is rounded towards 0: both have one sign, so that
    infinities and zeros do as in a division.
    """
    real: Any = np.float64 if f.suffix == "f64" else np.float32
    with np.errstate(over="ignore"):
        c = float(real(c))
    if not 2.0 ** -EXTREME[f.suffix] <= abs(c) <= 2.0 ** EXTREME[f.suffix]:
        return None
    exact = 1 / Fraction(c)
    high = real(float(exact))
    if abs(Fraction(float(high))) > abs(exact):
        high = np.nextafter(high, real(0))
    low = real(float(exact - Fraction(float(high))))
    return None if low == 0 else (float(high), float(low))


def quotient(b: Lanes, x: str, c: float) -> str | None:
    """x / c as x * high + x * low by the parts of the inverse, rounded once; None for a literal that has no such inverse.

    In vectors that takes an eighth of the time.  The error is below 0.51 ulp, and none where the exact quotient is a normal
    number of the type (21.0 / 3 is 7); below the normal numbers it is 1 ulp.
    """
    parts = inverse(b.format, c)
    return None if parts is None else b.fma(x, parts[0], b.mul(x, parts[1]))


def _quotient(s: Scope, op: arith.DivfOp) -> str:
    """By a literal a product, unless bits are to be the interpreter's."""
    c = constant_value(op.rhs)
    if c is not None and s.fuses and not s.ordered:
        found = quotient(Lanes(FORMATS[llvm_type(op.result.type)], 1, s.code), s.text(op.lhs), c)
        if found is not None:
            return found
    return _real("fdiv")(s, op)


def _rsqrt(s: Scope, op: math.RsqrtOp) -> str:
    t = llvm_type(op.result.type)
    root = _intrinsic("sqrt")(s, op)
    return s.code.let(f"fdiv {t} {float_text(1.0, t)}, {root}")


_INT_TESTS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
REAL_TESTS = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip

# fmt: off
ROWS: dict[type[Operation], Row] = {
    arith.ConstantOp: _constant,
    # reals; some functions have an instruction
    **{f.op: _called(f.name) for f in FUNCTIONS},
    arith.AddfOp: _real("fadd"), arith.SubfOp: _real("fsub"), arith.MulfOp: _real("fmul"), arith.DivfOp: _quotient,
    arith.NegfOp: _real("fneg"),
    arith.MinimumfOp: _intrinsic("minimum"), arith.MaximumfOp: _intrinsic("maximum"),
    arith.MinnumfOp: _intrinsic("minimumnum"), arith.MaxnumfOp: _intrinsic("maximumnum"),
    math.AbsFOp: _intrinsic("fabs"), math.CopySignOp: _intrinsic("copysign"), math.SqrtOp: _intrinsic("sqrt"),
    math.FloorOp: _intrinsic("floor"), math.CeilOp: _intrinsic("ceil"), math.TruncOp: _intrinsic("trunc"),
    math.RoundOp: _intrinsic("round"), math.RoundEvenOp: _intrinsic("roundeven"), math.FmaOp: _intrinsic("fma"),
    math.RsqrtOp: _rsqrt, math.PowFOp: _power, math.FPowIOp: _power,
    # integers and truth values
    arith.AddiOp: _integer("add"), arith.SubiOp: _integer("sub"), arith.MuliOp: _integer("mul"),
    arith.AndIOp: _integer("and"), arith.OrIOp: _integer("or"), arith.XOrIOp: _integer("xor"),
    arith.ShLIOp: _integer("shl"), arith.ShRSIOp: _integer("ashr"), arith.ShRUIOp: _integer("lshr"),
    arith.MinSIOp: _intrinsic("smin"), arith.MaxSIOp: _intrinsic("smax"),
    arith.MinUIOp: _intrinsic("umin"), arith.MaxUIOp: _intrinsic("umax"),
    arith.DivSIOp: _divide, arith.RemSIOp: _remainder,
    arith.FloorDivSIOp: _rounded(down=True), arith.CeilDivSIOp: _rounded(down=False),
    math.AbsIOp: _intrinsic("abs", ", i1 false"),
    # choice and conversions
    arith.CmpiOp: _compare("icmp", _INT_TESTS), arith.CmpfOp: _compare("fcmp", REAL_TESTS),
    arith.SelectOp: _select, arith.IndexCastOp: _index_cast,
    arith.SIToFPOp: _cast("sitofp"), arith.UIToFPOp: _unsigned_to_real, arith.FPToSIOp: _to_int,
    arith.ExtFOp: _cast("fpext"), arith.TruncFOp: _cast("fptrunc"), arith.BitcastOp: _cast("bitcast"),
    arith.TruncIOp: _cast("trunc"), arith.ExtSIOp: _cast("sext"), arith.ExtUIOp: _cast("zext"),
}
# fmt: on


def extended(s: Scope, op: Operation) -> tuple[str, str]:
    """The operations with two results: sum and carry, or low and high half of a product."""
    t = llvm_type(op.results[0].type)
    a, b = (s.text(o) for o in op.operands)
    if isinstance(op, arith.AddUIExtendedOp):
        pair = s.code.let(f"call {{{t}, i1}} @llvm.uadd.with.overflow.{t}({t} {a}, {t} {b})")
        parts = [s.code.let(f"extractvalue {{{t}, i1}} {pair}, {i}") for i in (0, 1)]
        return parts[0], parts[1]
    wide, widen = f"i{2 * int(t[1:])}", "sext" if isinstance(op, arith.MulSIExtendedOp) else "zext"
    x, y = (s.code.let(f"{widen} {t} {v} to {wide}") for v in (a, b))
    product = s.code.let(f"mul {wide} {x}, {y}")
    high = s.code.let(f"lshr {wide} {product}, {t[1:]}")
    return s.code.let(f"trunc {wide} {product} to {t}"), s.code.let(f"trunc {wide} {high} to {t}")


EXTENDED = (arith.AddUIExtendedOp, arith.MulSIExtendedOp, arith.MulUIExtendedOp)
