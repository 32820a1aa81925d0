"""Values of constant expressions: integers exactly, real numbers in double precision, without traps (IEEE)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from upl_mlir.diagnostics import Span, UplError, did_you_mean, error
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.scope import Poisoned
from upl_mlir.numbers.floats import as_single, divide, power
from upl_mlir.ops import SPOKEN, total
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.operators import DivKind

Value = int | float | bool
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@dataclass
class Constants:
    """The constants known so far.  `arrays` maps a name to its first index and its entries.

    `later` holds names that are declared further down, `parameters` those that have no value, `poisoned` those whose
    declaration has an error.
    """

    scalars: dict[str, int | float] = field(default_factory=dict[str, int | float])
    arrays: dict[str, tuple[int, tuple[int | float, ...]]] = field(
        default_factory=dict[str, tuple[int, tuple[int | float, ...]]]
    )
    later: set[str] = field(default_factory=set[str])
    parameters: set[str] = field(default_factory=set[str])
    poisoned: set[str] = field(default_factory=set[str])

    def known(self, e: IndexExpr) -> int | None:
        """The value of an index expression of constants, else None."""
        if not e.names <= self.scalars.keys() or any(k.array not in self.arrays for k in e.lookups()):
            return None
        env = {n: v for n in e.names if isinstance(v := self.scalars[n], int)}
        try:
            return e.evaluate(env, self.entry)
        except (KeyError, IndexError, ZeroDivisionError):
            return None

    def entry(self, array: str, at: int) -> int:
        """``array[at]``.  Raises IndexError outside the array."""
        base, values = self.arrays[array]
        if not 0 <= at - base < len(values):
            raise IndexError(array)
        return int(values[at - base])

    def value(self, e: ast.Expr) -> Value:
        """The value of an expression.  Raises UplError (UPL1103, UPL1106, UPL1111)."""
        match e:
            case ast.Number(value=value) | ast.BoolLit(value=value):
                return value
            case ast.Name(name=name):
                return self._name(name, e.span)
            case ast.Lookup(array=array, index=index):
                return self._entry(array, index)
            case ast.Unary(op=op, operand=operand):
                if op is ast.UnaryOp.NOT:
                    return not self.truth(operand)
                return self._checked(-self.number(operand), e.span)
            case ast.Binary():
                return self._checked(self._binary(e), e.span)
            case ast.Compare(first=first, rest=rest):
                left = self.number(first)
                holds = True
                for op, right_expr in rest:
                    right = self.number(right_expr)
                    holds = holds and _compare(op, left, right)
                    left = right
                return holds
            case ast.Logical(op=op, left=left, right=right):
                a, b = self.truth(left), self.truth(right)
                return (a and b) if op is ast.LogicalOp.AND else (a or b)
            case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
                return self.value(then if self.truth(condition) else otherwise)
            case ast.Call():
                return self._checked(self._call(e), e.span)

    def number(self, e: ast.Expr) -> int | float:
        """The value as a number; truth values count as 0 and 1."""
        v = self.value(e)
        return int(v) if isinstance(v, bool) else v

    def integer(self, e: ast.Expr, what: str) -> int:
        """The value, which must be an integer."""
        v = self.number(e)
        if isinstance(v, float):
            raise error("UPL1106", f"{what} must be an integer", e.span, help="round with `floor(…)` or `int(…)`")
        return v

    def truth(self, e: ast.Expr) -> bool:
        """The value, which must be a truth value."""
        v = self.value(e)
        if not isinstance(v, bool):
            raise error("UPL1106", "expected a condition", e.span, help="compare the number with something")
        return v

    def _name(self, name: str, span: Span) -> int | float:
        if name in self.scalars:
            return self.scalars[name]
        if name in self.arrays:
            raise error("UPL1106", f"`{name}` is a constant array", span, help=f"write an entry, `{name}[…]`")
        if name in self.parameters:
            message = f"`{name}` is a parameter: it has no value here"
            raise error("UPL1111", message, span, help=f"a constant cannot depend on it; bind it with -D {name}=VALUE")
        if name in self.poisoned:
            raise Poisoned
        if name in self.later:
            raise error("UPL1111", f"`{name}` is declared later", span, help="declare a constant before it is used")
        raise error("UPL1103", f"unknown constant `{name}`", span, help=did_you_mean(name, self.scalars))

    def _entry(self, array: ast.Ident, index: ast.Expr) -> int | float:
        if array.name in self.poisoned:
            raise Poisoned
        if array.name in self.parameters:
            message = f"`{array.name}` is a parameter: its entries have no value here"
            help = f"a constant cannot depend on it; give its values with -D {array.name}=[...]"
            raise error("UPL1111", message, array.span, help=help)
        if array.name not in self.arrays:
            help = did_you_mean(array.name, self.arrays)
            raise error("UPL1103", f"unknown constant array `{array.name}`", array.span, help=help)
        base, values = self.arrays[array.name]
        at = self.integer(index, "the index of an array")
        if not 0 <= at - base < len(values):
            bounds = f"[{base}:{base + len(values) - 1}]"
            raise error("UPL1111", f"`{array.name}[{at}]` is outside `{array.name}{bounds}`", index.span)
        return values[at - base]

    def _binary(self, e: ast.Binary) -> int | float:
        a, b = self.number(e.left), self.number(e.right)
        match e.op:
            case ast.BinaryOp.ADD:
                return a + b
            case ast.BinaryOp.SUB:
                return a - b
            case ast.BinaryOp.MUL:
                return a * b
            case ast.BinaryOp.DIV:
                return divide(float(a), float(b))
            case ast.BinaryOp.POW:
                return self._power(a, b, e)
            case ast.BinaryOp.FLOORDIV | ast.BinaryOp.CEILDIV | ast.BinaryOp.MOD:
                if isinstance(a, float) or isinstance(b, float):
                    raise error("UPL1106", f"`{e.op.value}` takes integers", e.span, help="or write `floor(a/b)`")
                if b <= 0:
                    raise error("UPL1111", f"the divisor of `{e.op.value}` is {b}; it must be positive", e.right.span)
                return DivKind(e.op.value).apply(a, b)

    def _power(self, a: int | float, b: int | float, e: ast.Binary) -> int | float:
        if isinstance(a, int) and isinstance(b, int) and b >= 0:
            if abs(a) > 1 and b > 63:
                raise _overflow(e.span)
            return int(a**b)
        return power(float(a), float(b))

    def _call(self, e: ast.Call) -> int | float:
        name, n = e.function.name, len(e.arguments)
        if name not in ARITY:
            help = did_you_mean(name, ARITY)
            raise error("UPL1103", f"unknown function `{name}`", e.function.span, help=help)
        check_arity(name, n, e.span)
        args = [self.number(a) for a in e.arguments]
        if name in ("min", "max"):
            real = any(isinstance(a, float) for a in args)
            if any(isinstance(a, float) and math.isnan(a) for a in args):
                return math.nan
            best = min(args) if name == "min" else max(args)
            return float(best) if real else best
        x = args[0]
        if name in ("abs", "stop_gradient", "with_derivative"):
            return abs(x) if name == "abs" else x
        if name in ("int", "floor"):
            if isinstance(x, float) and not math.isfinite(x):
                raise error("UPL1111", f"{x} has no integer value", e.arguments[0].span)
            return math.floor(x) if name == "floor" else int(x)
        if name in ("real", "f64", "f32"):
            return as_single(float(x)) if name == "f32" else float(x)
        return total(SPOKEN[name])(*[float(a) for a in args])

    def _checked(self, v: int | float, span: Span) -> int | float:
        if isinstance(v, int) and not INT_MIN <= v <= INT_MAX:
            raise _overflow(span)
        return v


def _overflow(span: Span) -> UplError:
    return error("UPL1111", "the value of this constant expression does not fit into 64 bits", span)


def _compare(op: ast.CompareOp, a: int | float, b: int | float) -> bool:
    match op:
        case ast.CompareOp.LT:
            return a < b
        case ast.CompareOp.LE:
            return a <= b
        case ast.CompareOp.GT:
            return a > b
        case ast.CompareOp.GE:
            return a >= b
        case ast.CompareOp.EQ:
            return a == b
        case ast.CompareOp.NE:
            return a != b


ARITY: dict[str, int] = {
    "min": 2, "max": 2, "abs": 1, "floor": 1, **{name: f.arity for name, f in SPOKEN.items()},
    "stop_gradient": 1, "with_derivative": 3, "int": 1, "real": 1, "f32": 1, "f64": 1,
}  # fmt: skip
"""The functions of expressions and the number of arguments; `min` and `max` take more, too."""


def check_arity(name: str, given: int, span: Span) -> None:
    """Raise UplError (UPL1106) if a known function is given a wrong number of arguments."""
    wanted = ARITY[name]
    if given == wanted or (name in ("min", "max") and given > wanted):
        return
    if name == "with_derivative" and given > wanted and given % 2:
        return
    count = "two or more arguments" if name in ("min", "max") else f"{wanted} argument{'s' * (wanted > 1)}"
    if name == "with_derivative":
        count = "a value and pairs of what it depends on and the slope"
    raise error("UPL1106", f"`{name}` takes {count}, {given} given", span)
