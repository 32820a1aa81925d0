"""Operations on scalars as C expressions, and the small functions that some of them need.

An expression remembers how tightly it binds, so that parentheses appear where C or the reader wants them.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, FloatAttr, IndexType, IntegerAttr, i64
from xdsl.ir import Attribute, Operation

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.scalars import scalar
from upl_mlir.numbers.floats import as_single
from upl_mlir.ops import FUNCTIONS

ATOM, UNARY, TIMES, PLUS, LOOSE = 4, 3, 2, 1, 0
"""How tightly an expression binds; `LOOSE` ones stand in parentheses inside any other."""


@dataclass(frozen=True)
class Expr:
    """A C expression; `reads` tells whether it reads memory (then it may not move past a store)."""

    text: str
    level: int = ATOM
    reads: bool = False

    def __str__(self) -> str:
        return self.text

    def at(self, level: int) -> str:
        """The text as an operand of an operator that binds so tightly."""
        return self.text if self.level >= level else f"({self.text})"


def c_type(t: Attribute) -> str:
    """The C type of a scalar.  Raises UplError (UPL1820)."""
    found = scalar(t, "C code")
    return found if isinstance(found, str) else "bool" if found == 1 else f"int{found}_t"


def real_text(x: float, single: bool) -> str:
    """A literal of a real."""
    if pymath.isnan(x):
        return "NAN"
    if pymath.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    if single:
        x = as_single(x)
        # the shortest text that reads back as the same float
        text = next(t for t in (f"{x:.{digits}g}" for digits in range(1, 18)) if as_single(float(t)) == x)
        return (text if set(text) & set(".e") else f"{text}.0") + "f"
    return repr(x)


def integer_text(n: int) -> str:
    """A literal of a 64-bit integer."""
    if n == -(2**63):
        return "INT64_MIN"
    return str(n) if abs(n) < 2**31 else f"INT64_C({n})"


def literal(op: arith.ConstantOp) -> Expr:
    """A constant."""
    match op.value:
        case FloatAttr():
            text = real_text(op.value.value.data, isinstance(op.result.type, Float32Type))
            return Expr(text, UNARY if text.startswith("-") else ATOM)
        case IntegerAttr():
            n = op.value.value.data
            if c_type(op.result.type) == "bool":
                return Expr("true" if n else "false")
            return Expr(integer_text(n), UNARY if n < 0 else ATOM)
        case _:
            raise error("UPL1820", "C code has no constants of tensors: use memref.global")


Row = Callable[[Any, Sequence[Expr]], tuple[str, int]]
"""Operation and operands to text and level; helper functions are called by name."""


def _infix(symbol: str, level: int) -> Row:
    """A binary operator; the right operand must bind more tightly, so that a - (b - c) keeps its parentheses."""
    return lambda op, x: (f"{x[0].at(level)} {symbol} {x[1].at(level + 1)}", level)


def _loose(symbol: str) -> Row:
    return lambda op, x: (f"{x[0].at(PLUS)} {symbol} {x[1].at(PLUS)}", LOOSE)


def _bitwise(symbol: str) -> Row:
    """An operator whose place among the others few know: operands with operators of their own stand in parentheses."""
    return lambda op, x: (f"{x[0].at(UNARY)} {symbol} {x[1].at(UNARY)}", LOOSE)


def _call(name: str) -> Row:
    """A function of libm (with f for floats) or a helper."""

    def row(op: Operation, x: Sequence[Expr]) -> tuple[str, int]:
        single = isinstance(op.results[0].type, Float32Type)
        return f"{name}{'f' if single else ''}({', '.join(e.text for e in x)})", ATOM

    return row


def _wrapping(name: str, symbol: str, level: int) -> Row:
    """Integer arithmetic: the plain operator for what cannot overflow, else a helper that wraps around."""
    plain = _infix(symbol, level)

    def row(op: Operation, x: Sequence[Expr]) -> tuple[str, int]:
        flags = op.properties.get("overflowFlags")
        if isinstance(op.results[0].type, IndexType) or (flags is not None and "nsw" in str(flags)):
            return plain(op, x)
        return f"{name}({x[0].text}, {x[1].text})", ATOM

    return row


def _bits(symbol: str, logical: str) -> Row:
    def row(op: Operation, x: Sequence[Expr]) -> tuple[str, int]:
        if c_type(op.results[0].type) != "bool":
            return _bitwise(symbol)(op, x)
        if symbol == "^" and "true" in (x[0].text, x[1].text):
            other = x[1] if x[0].text == "true" else x[0]
            return f"!{other.at(UNARY)}", UNARY
        return _loose(logical)(op, x)

    return row


def _compare_integers(op: arith.CmpiOp, x: Sequence[Expr]) -> tuple[str, int]:
    n = op.predicate.value.data
    if n < len(_INT_TESTS):
        return _loose(_INT_TESTS[n])(op, x)
    a, b = (f"(u{c_type(op.lhs.type)}){e.at(UNARY)}" for e in x)  # as numbers without a sign: C wraps a negative one round
    return f"{a} {_INT_TESTS[n - _UNSIGNED]} {b}", LOOSE


def _compare_reals(op: arith.CmpfOp, x: Sequence[Expr]) -> tuple[str, int]:
    text = _REAL_TESTS[op.predicate.value.data]
    a, b = (e.at(PLUS) for e in x)
    return text.format(a, b), ATOM if text[0] in "tfi" else UNARY if text[0] == "!" else LOOSE


def _select(op: arith.SelectOp, x: Sequence[Expr]) -> tuple[str, int]:
    return f"{x[0].at(PLUS)} ? {x[1].at(PLUS)} : {x[2].at(PLUS)}", LOOSE


def _cast(op: Operation, x: Sequence[Expr]) -> tuple[str, int]:
    (source,) = op.operands
    target = c_type(op.results[0].type)
    if target == c_type(source.type):
        return x[0].text, x[0].level
    return f"({target}){x[0].at(UNARY)}", UNARY


def _sign_extend(op: Operation, x: Sequence[Expr]) -> tuple[str, int]:
    if c_type(op.operands[0].type) == "bool":
        return f"-({c_type(op.results[0].type)}){x[0].at(UNARY)}", UNARY
    return _cast(op, x)


def _power(op: math.PowFOp | math.FPowIOp, x: Sequence[Expr]) -> tuple[str, int]:
    owner = op.rhs.owner
    value = owner.value if isinstance(owner, arith.ConstantOp) else None
    n = value.value.data if isinstance(value, FloatAttr | IntegerAttr) else None
    if n in (2, 3, 4) and x[0].level == ATOM and not x[0].text.endswith(")"):
        a = x[0].text
        return {2: (f"{a} * {a}", TIMES), 3: (f"{a} * {a} * {a}", TIMES), 4: (f"({a} * {a}) * ({a} * {a})", TIMES)}[
            int(n)
        ]
    return _call("pow")(op, x)


_INT_TESTS = ("==", "!=", "<", "<=", ">", ">=")
_UNSIGNED = 4
"""How far behind its signed one the predicate of `arith.cmpi` without a sign is."""
_REAL_TESTS = (
    "false", "{0} == {1}", "{0} > {1}", "{0} >= {1}", "{0} < {1}", "{0} <= {1}", "islessgreater({0}, {1})",
    "!isunordered({0}, {1})", "!islessgreater({0}, {1})", "!({0} <= {1})", "!({0} < {1})", "!({0} >= {1})",
    "!({0} > {1})", "{0} != {1}", "isunordered({0}, {1})", "true",
)  # fmt: skip

# fmt: off
ROWS: dict[type[Operation], Row] = {
    arith.AddfOp: _infix("+", PLUS), arith.SubfOp: _infix("-", PLUS), arith.MulfOp: _infix("*", TIMES),
    arith.DivfOp: _infix("/", TIMES), arith.NegfOp: lambda op, x: (f"-{x[0].at(ATOM)}", UNARY),
    arith.MinimumfOp: _call("minimum"), arith.MaximumfOp: _call("maximum"),
    arith.MinnumfOp: _call("min_number"), arith.MaxnumfOp: _call("max_number"),
    math.AbsFOp: _call("fabs"), math.CopySignOp: _call("copysign"), math.RoundEvenOp: _call("rint"),
    math.FmaOp: _call("fma"), math.RsqrtOp: lambda op, x: (f"1 / {_call('sqrt')(op, x)[0]}", TIMES),
    math.PowFOp: _power, math.FPowIOp: _power,
    math.FloorOp: _call("floor"), math.CeilOp: _call("ceil"), math.TruncOp: _call("trunc"), math.RoundOp: _call("round"),
    **{f.op: _call(f.name) for f in FUNCTIONS},
    arith.AddiOp: _wrapping("wrap_add", "+", PLUS), arith.SubiOp: _wrapping("wrap_sub", "-", PLUS),
    arith.MuliOp: _wrapping("wrap_mul", "*", TIMES),
    arith.AndIOp: _bits("&", "&&"), arith.OrIOp: _bits("|", "||"), arith.XOrIOp: _bits("^", "!="),
    arith.ShLIOp: _call("shift_left"), arith.ShRSIOp: _bitwise(">>"),
    arith.MinSIOp: _call("min_int"), arith.MaxSIOp: _call("max_int"),
    arith.DivSIOp: _call("div_to_zero"), arith.RemSIOp: _call("rem_to_zero"),
    arith.FloorDivSIOp: _call("div_floor"), arith.CeilDivSIOp: _call("div_ceil"), math.AbsIOp: _call("abs_int"),
    arith.CmpiOp: _compare_integers, arith.CmpfOp: _compare_reals, arith.SelectOp: _select,
    arith.IndexCastOp: _cast, arith.SIToFPOp: _cast, arith.UIToFPOp: _cast, arith.FPToSIOp: _call("to_int"),
    arith.ExtFOp: _cast, arith.TruncFOp: _cast, arith.TruncIOp: _cast, arith.ExtSIOp: _sign_extend,
    arith.ExtUIOp: _cast,
    arith.BitcastOp: lambda op, x: (f"{'bits_of' if op.result.type == i64 else 'of_bits'}({x[0].text})", ATOM),
}
# fmt: on

PAIRS: dict[type[Operation], tuple[str, str]] = {
    arith.MulSIExtendedOp: ("wrap_mul({0}, {1})", "mul_high({0}, {1})"),
}
"""Operations with two results."""

_MIN_MAX = """static inline {t} {name}({t} a, {t} b)
{{
    if (isnan(a) || isnan(b)) return {nan};
    if (a == b) return signbit(a) ? {zero}; /* -0.0 is less than 0.0 */
    return a {less} b ? a : b;
}}"""
_SIGMOID = """static inline {t} {name}({t} x)
{{
    const {t} e = {exp}(-{fabs}(x)); /* at most 1: nothing overflows */
    return (x >= 0 ? 1 : e) / (1 + e);
}}"""


def _real_helpers() -> dict[str, str]:
    out: dict[str, str] = {}
    for t, f in (("double", ""), ("float", "f")):
        for name, less, zero in (("min", "<", "a : b"), ("max", ">", "b : a")):
            for full, nan in ((f"{name}imum{f}", "NAN"), (f"{name}_number{f}", "isnan(a) ? b : a")):
                out[full] = _MIN_MAX.format(t=t, name=full, nan=nan, zero=zero, less=less)
        out[f"sigmoid{f}"] = _SIGMOID.format(t=t, name=f"sigmoid{f}", exp=f"exp{f}", fabs=f"fabs{f}")
    return out


HELPERS: dict[str, str] = {
    **_real_helpers(),
    **{
        f"wrap_{name}": f"""/* wraps around where the result has more than 64 bits */
static inline int64_t wrap_{name}(int64_t a, int64_t b) {{ return (int64_t)((uint64_t)a {symbol} (uint64_t)b); }}"""
        for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*"))
    },
    "shift_left": "static inline int64_t shift_left(int64_t a, int64_t n) { return (int64_t)((uint64_t)a << n); }",
    "min_int": "static inline int64_t min_int(int64_t a, int64_t b) { return a < b ? a : b; }",
    "max_int": "static inline int64_t max_int(int64_t a, int64_t b) { return a > b ? a : b; }",
    "abs_int": "static inline int64_t abs_int(int64_t a) { return a < 0 ? (int64_t)(0 - (uint64_t)a) : a; }",
    "div_to_zero": """/* 0 for a division by zero, which the caller reports */
static inline int64_t div_to_zero(int64_t a, int64_t b)
{
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return b ? a / b : 0;
}""",
    "rem_to_zero": "static inline int64_t rem_to_zero(int64_t a, int64_t b) { return b && b != -1 ? a % b : 0; }",
    "div_floor": """static inline int64_t div_floor(int64_t a, int64_t b)
{
    return div_to_zero(a, b) - (rem_to_zero(a, b) && (a < 0) != (b < 0));
}""",
    "div_ceil": """static inline int64_t div_ceil(int64_t a, int64_t b)
{
    return div_to_zero(a, b) + (rem_to_zero(a, b) && (a < 0) == (b < 0));
}""",
    "to_int": """/* 0 for what has no 64-bit integer value, which the caller reports */
static inline int64_t to_int(double x)
{
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : 0;
}""",
    "bits_of": "static inline int64_t bits_of(double x) { int64_t n; memcpy(&n, &x, sizeof n); return n; }",
    "of_bits": "static inline double of_bits(int64_t n) { double x; memcpy(&x, &n, sizeof x); return x; }",
    "mul_high": """/* the upper 64 bits of a product */
static inline int64_t mul_high(int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a & 0xffffffff, y = (uint64_t)b & 0xffffffff;
    const int64_t u = a >> 32, v = b >> 32;
    const int64_t t = u * (int64_t)y + (int64_t)((x * y) >> 32);
    const int64_t w = (int64_t)x * v + (int64_t)((uint64_t)t & 0xffffffff);
    return u * v + (t >> 32) + (w >> 32);
}""",
    "scratch": """static void *scratch(int64_t bytes)
{
    void *p = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!p) abort();
    return p;
}""",
}
"""C functions that expressions call, in the order in which they are to be defined."""
NEEDS = {"div_floor": ("div_to_zero", "rem_to_zero"), "div_ceil": ("div_to_zero", "rem_to_zero")}
