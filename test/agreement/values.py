"""Value expressions of generated programs: typed, printed as UPL, evaluated naively in Python.

Types rank bool < int < f32 < real.  The evaluation follows LANGUAGE 2 and 3.6: the type of an operation is that of its
wider operand (at least int), f32 results are rounded to f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

RANK = {"bool": 0, "int": 1, "f32": 2, "real": 3}
BY_RANK = ("bool", "int", "f32", "real")

Number = bool | int | float


def convert(v: Number, type_: str) -> Number:
    """A value as another, wider type."""
    match type_:
        case "real":
            return float(v)
        case "f32":
            return float(np.float32(v))
        case _:
            return v if type_ == "bool" else int(v)


@dataclass(frozen=True)
class Val:
    """An expression: `op` is "name", "lit", an operator, "?:" or the name of a function."""

    op: str
    args: tuple[Val, ...] = ()
    type: str = "real"
    what: str | float | int = ""

    def __str__(self) -> str:
        a = [f"({x})" if x.op not in _CLOSED else str(x) for x in self.args]
        match self.op:
            case "name":
                return str(self.what)
            case "lit":
                return str(self.what).lower() if isinstance(self.what, bool) else repr(self.what)
            case "?:":
                return f"{a[0]} ? {a[1]} : {a[2]}"
            case "neg":
                return f"-{a[0]}"
            case "!":
                return f"!{a[0]}"
            case _ if self.op in _INFIX:
                return f"{a[0]} {self.op} {a[1]}" if self.op.isalpha() else f"{a[0]}{self.op}{a[1]}"
            case _:
                return f"{self.op}({', '.join(map(str, self.args))})"

    def names(self) -> frozenset[str]:
        """The names read."""
        if self.op == "name":
            return frozenset((str(self.what),))
        return frozenset().union(*(a.names() for a in self.args))

    def size(self) -> int:
        """The number of operations and leaves."""
        return 1 + sum(a.size() for a in self.args)

    def eval(self, env: Mapping[str, Number]) -> Number:
        """The value, in the type of the expression.  Raises OverflowError for an integer that does not fit 64 bits."""
        match self.op:
            case "name":
                return env[str(self.what)]
            case "lit":
                return convert(self.what, self.type)  # type: ignore[arg-type]
            case "?:":
                return convert((self.args[1] if self.args[0].eval(env) else self.args[2]).eval(env), self.type)
        values = [x.eval(env) for x in self.args]
        if self.op in _LOGIC:
            widest = BY_RANK[max(1, *(RANK[x.type] for x in self.args))]
            return _LOGIC[self.op](*(convert(v, widest) if self.op not in ("&&", "||", "!") else v for v in values))
        wide = [convert(v, self.type) for v in values] if self.op not in ("floor", "int") else values
        found = convert(_COMPUTE[self.op](*wide), self.type)
        if self.type == "int" and not -(2**63) <= found < 2**63:
            raise OverflowError(f"{found} does not fit 64 bits")
        return found

    def tangent(self, env: Mapping[str, Number], moves: Mapping[str, float]) -> float:
        """The derivative along `moves` (names left out do not move), with the conventions of the language: ties of `min` and
        `max` share equally, the derivative of `abs` at 0 is 0, comparisons and integers have none."""
        if self.op == "name":
            return moves.get(str(self.what), 0.0)
        if RANK[self.type] < 2 or self.op == "lit":
            return 0.0
        if self.op == "?:":
            return (self.args[1] if self.args[0].eval(env) else self.args[2]).tangent(env, moves)
        a = [float(x.eval(env)) for x in self.args]
        d = [x.tangent(env, moves) for x in self.args]
        match self.op:
            case "+":
                return d[0] + d[1]
            case "-":
                return d[0] - d[1]
            case "neg":
                return -d[0]
            case "*":
                # An infinite factor, such as the maximum of no summands, moves nothing that stands still.
                return (d[0] * a[1] if d[0] else 0.0) + (a[0] * d[1] if d[1] else 0.0)
            case "/":
                return (d[0] - a[0] / a[1] * d[1]) / a[1]
            case "min" | "max":
                best = min(a) if self.op == "min" else max(a)
                ties = [e for v, e in zip(a, d, strict=True) if v == best]
                return sum(ties) / len(ties)
            case "abs":
                return d[0] * ((a[0] > 0) - (a[0] < 0))
            case "tanh":
                return d[0] * (1 - math.tanh(a[0]) ** 2)
            case "sin":
                return d[0] * _of_real(math.cos, a[0])
            case "exp":
                return d[0] * _of_real(math.exp, a[0])
            case _:
                return d[0] / (2 * math.sqrt(a[0]))


def _of_real(f: Callable[[float], float], x: float) -> float:
    """A function as IEEE 754 has it, where Python's raises: the sine of an infinite number, which may be the greatest of no
    summands, is none, and e to a large one is infinite."""
    try:
        return f(x)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf


_CLOSED = {"name", "lit", "min", "max", "abs", "floor", "tanh", "sin", "exp", "int", "sqrt"}
_INFIX = {"+", "-", "*", "/", "mod", "floordiv", "<", "<=", ">", ">=", "==", "!=", "&&", "||"}
_LOGIC = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "&&": lambda a, b: a and b, "||": lambda a, b: a or b,
    "!": lambda a: not a,
}  # fmt: skip
_COMPUTE = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "mod": lambda a, b: a % b, "floordiv": lambda a, b: a // b, "neg": lambda a: -a,
    "min": min, "max": max, "abs": abs, "floor": math.floor, "int": int,
    "tanh": math.tanh, "sin": lambda x: _of_real(math.sin, x), "exp": lambda x: _of_real(math.exp, x),
    "sqrt": lambda x: _of_real(math.sqrt, x),
}  # fmt: skip


def name(n: str, type_: str) -> Val:
    """A name as a value."""
    return Val("name", (), type_, n)


def lit(v: float | int | bool) -> Val:
    """A literal."""
    return Val("lit", (), "bool" if isinstance(v, bool) else "int" if isinstance(v, int) else "real", v)


def op(sign: str, *args: Val) -> Val:
    """An operation, with its type."""
    widest = BY_RANK[max(RANK[a.type] for a in args)]
    if sign in _LOGIC:
        type_ = "bool"
    elif sign in ("floor", "int", "mod", "floordiv"):
        type_ = "int"
    elif sign in ("/", "tanh", "sin", "exp", "sqrt"):
        type_ = widest if RANK[widest] >= 2 else "real"
    elif sign == "?:":
        type_ = BY_RANK[max(RANK[args[1].type], RANK[args[2].type])]
    else:
        type_ = BY_RANK[max(1, RANK[widest])]
    return Val(sign, args, type_)
