"""Index expressions and conditions as Python source, and the little writer that all generated source goes through.

Why running generated source is safe here: no character of a program's text ever enters it.  Names become numbered
identifiers (`f0`, `a1`, `t0`), integers and finite reals are printed from Python numbers, everything else is an object
in the namespace under a name of ours.  The source is a function of verified IR only, and `run_source` below is the one
place where it is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from upl_mlir.poly.counts.dense import guarded
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Select, Var
from upl_mlir.poly.operators import Connective, DivKind
from upl_mlir.poly.sets import PolyContext


class Writer:
    """Collects lines of Python source at a current indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        """Add one line."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str):
        """Add a compound statement's head; what is written inside the `with` is its body."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    @property
    def source(self) -> str:
        """The whole text."""
        return "\n".join(self.lines) + "\n"


def run_source(source: str, namespace: dict[str, Any]) -> None:
    """Execute generated source in a namespace.  Only for sources of this package; see the module's docstring."""
    code = compile(source, "<upl interpreter>", "exec")
    exec(code, namespace)  # noqa: S102 (generated from verified IR; no text of the user's is in it)


def tuple_text(parts: Sequence[str]) -> str:
    """Source of a tuple."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def number_text(x: bool | int | float) -> str:
    """Source of a number; `INF` and `NAN` are names in the namespace."""
    if isinstance(x, float) and not math.isfinite(x):
        return "NAN" if math.isnan(x) else "INF" if x > 0 else "(-INF)"
    text = repr(x)
    return f"({text})" if text.startswith("-") else text


@dataclass
class Scope:
    """What names mean at one place of the generated source.

    `names` maps names of the program to identifiers; constants and bound parameters become literals; arrays become
    names `T<i>` of `EntryTable` objects.  `dynamic` gives the identifier of a body variable on demand, None
    if there is none.
    """

    ctx: PolyContext
    tables: Mapping[str, str]
    names: dict[str, str] = field(default_factory=dict[str, str])
    dynamic: Callable[[str], str | None] = lambda name: None
    AND: ClassVar = " and "
    OR: ClassVar = " or "
    NOT: ClassVar = "not "
    TRUE: ClassVar = "True"
    FALSE: ClassVar = "False"

    def extended(self, names: Mapping[str, str]) -> Scope:
        """The scope with more names, which hide others."""
        return Scope(self.ctx, self.tables, self.names | dict(names), self.dynamic)

    def constant(self, e: IndexExpr) -> int | None:
        """The value of an expression of constants and parameters only, with no name of this scope in it."""
        if e.names & self.names.keys():
            return None
        return self.ctx.number(e)

    def expr(self, e: IndexExpr) -> str:
        """Source of an expression."""
        known = self.constant(e)
        if known is not None:
            return number_text(known)
        parts: list[str] = []
        for monomial, c in e.terms:
            factors = [self._atom(a) for a in monomial]
            if abs(c) != 1 or not factors:
                factors.insert(0, str(abs(c)))
            parts.append(("-" if c < 0 else "+" if parts else "") + "*".join(factors))
        text = "".join(parts)
        return text if len(e.terms) == 1 and not text.startswith("-") and "*" not in text else f"({text})"

    def _atom(self, a: Atom) -> str:
        match a:
            case Var(name):
                if name in self.names:
                    return self.names[name]
                if name in self.ctx.constants:
                    return number_text(self.ctx.constants[name])
                found = self.dynamic(name)
                assert found is not None, name  # the verifier knows every name
                return found
            case Lookup(array, index):
                return f"{self.tables[array]}[{self.expr(index)}]"
            case Div(kind, num, den):
                n, d = self.expr(num), self.expr(den)
                if (self.constant(den) or 0) <= 0:
                    return f"{kind.value}({n}, {d})"  # the functions of `ieee`, which check
                match kind:
                    case DivKind.FLOORDIV:
                        return f"({n} // {d})"
                    case DivKind.CEILDIV:
                        return f"(-(-{n} // {d}))"
                    case DivKind.MOD:
                        return f"({n} % {d})"
            case MinMax(kind, args):
                return f"{kind.value}({', '.join(map(self.expr, args))})"
            case Select(cond, then, other):
                return f"({self.expr(then)} if {self.condition(cond)} else {self.expr(other)})"

    def condition(self, f: Formula) -> str:
        """Source of a condition; comparisons outside a constant array are false."""
        return self._formula(guarded(f, self.ctx))

    def _comparison(self, f: Formula) -> str:
        a, b = self.constant(f.lhs), self.constant(f.rhs)
        if a is not None and b is not None:
            return str(f.op.holds(a, b))
        return f"{self.expr(f.lhs)} {f.op.value} {self.expr(f.rhs)}"

    def _formula(self, f: Formula) -> str:
        match f.kind:
            case Connective.CMP:
                return self._comparison(f)
            case Connective.AND:
                return f"({self.AND.join(map(self._formula, f.args))})" if f.args else self.TRUE
            case Connective.OR:
                return f"({self.OR.join(map(self._formula, f.args))})" if f.args else self.FALSE
            case Connective.NOT:
                return f"({self.NOT}{self._formula(f.args[0])})"

    def positive(self, e: IndexExpr) -> bool:
        """Whether the expression is a known number of at least 1."""
        return (self.constant(e) or 0) >= 1
