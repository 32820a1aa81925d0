"""Index expressions and conditions as C++ source.

As in the interpreter no character of a program's text enters generated source: names become numbered identifiers.
Integer arithmetic is checked: what does not fit 64 bits is an error, never a wrong index.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from functools import reduce

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.engines.interp.exprs import Scope, Writer
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Select, Var

C_TYPES = {Kind.BOOL: "bool", Kind.INT: "i64", Kind.F32: "double", Kind.F64: "double"}
"""An f32 is kept as a double that was rounded, as in the interpreter."""


class CWriter(Writer):
    """Collects lines of C++ source."""

    @contextmanager
    def block(self, head: str):
        """Add a head with a block; what is written inside the `with` is its body."""
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")


def integer(n: int) -> str:
    """Source of a 64-bit integer."""
    return "INT64_MIN" if n == -(2**63) else f"(i64){n}" if n >= 0 else f"(i64)({n}LL)"


class CScope(Scope):
    """What names mean at one place of the generated C++ source."""

    AND, OR, NOT, TRUE, FALSE = " && ", " || ", "!", "true", "false"

    def extended(self, names: Mapping[str, str]) -> CScope:
        """The scope with more names, which hide others."""
        return CScope(self.ctx, self.tables, self.names | dict(names), self.dynamic)

    def expr(self, e: IndexExpr) -> str:
        """Source of an expression."""
        known = self.constant(e)
        if known is not None:
            return _constant(known)
        total: str | None = None
        for monomial, c in e.terms:
            factors = [self._atom(a) for a in monomial]
            if abs(c) != 1 or not factors:
                factors.insert(0, _constant(abs(c)))
            term = reduce(lambda a, b: f"mul({a}, {b})", factors)
            if total is None:
                total = term if c > 0 else f"sub(0, {term})"
            else:
                total = f"{'add' if c > 0 else 'sub'}({total}, {term})"
        return total or "(i64)0"

    def _atom(self, a: Atom) -> str:
        match a:
            case Var(name):
                if name not in self.names and name in self.ctx.constants:
                    return _constant(self.ctx.constants[name])
                return super()._atom(a)
            case Lookup():
                return super()._atom(a)
            case Div(kind, num, den):
                return f"{kind.value}({self.expr(num)}, {self.expr(den)})"
            case MinMax(kind, args):
                return reduce(lambda x, y: f"{kind.value}({x}, {y})", map(self.expr, args))
            case Select(cond, then, other):
                return f"({self.condition(cond)} ? {self.expr(then)} : {self.expr(other)})"

    def _comparison(self, f: Formula) -> str:
        return f"({self.expr(f.lhs)} {f.op.value} {self.expr(f.rhs)})"


def _constant(n: int) -> str:
    """Source of a constant of an index expression; one beyond 64 bits is an error where it is used."""
    return integer(n) if -(2**63) <= n < 2**63 else "(trap(), (i64)0)"
