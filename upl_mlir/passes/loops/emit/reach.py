"""How large the index expressions of a function can get, as a polynomial in the magnitudes of its parameters.

Functions compute indices in 64 bits, without looking for overflow.  So what calls one asks first whether the parameters of
the call let all of them fit (`layouts.require_reach`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.passes.layouts import Term
from upl_mlir.poly.expr import Atom, Div, IndexExpr, Lookup, MinMax, Select, Var
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.operators import DivKind


@dataclass
class Reach:
    """Collects the index expressions of a function while it is written."""

    params: Collection[str]
    tables: Mapping[str, Table]
    terms: dict[tuple[str, ...], Term] = field(default_factory=dict[tuple[str, ...], Term])
    _bounds: dict[str, IndexExpr] = field(default_factory=dict[str, IndexExpr])

    def enter(self, var: str, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr]) -> None:
        """From here on a variable lies between the greatest of `lows` and the least of `highs`."""
        ends = [min((m for m in map(self._most, some) if m is not None), key=_size, default=None) for some in (lows, highs)]
        self._bounds.pop(var, None)
        if all(e is not None for e in ends):
            self._bounds[var] = _upper([e for e in ends if e is not None])

    def note(self, e: IndexExpr) -> None:
        """An expression is computed here.  Variables without bounds are data's, which are compared before they are used."""
        most = self._most(e)
        for m, c in () if most is None else most.terms:
            names = tuple(str(a) for a in m)
            known = self.terms.get(names)
            if known is None or known.factor < c:
                self.terms[names] = Term(c, names)

    def _most(self, e: IndexExpr) -> IndexExpr | None:
        """What the magnitude of an expression is at most, by the magnitudes of parameters."""
        total = IndexExpr()
        for monomial, c in e.terms:
            term = IndexExpr.of(abs(c))
            for a in monomial:
                most = self._atom(a)
                if most is None:
                    return None
                term *= most
            total += term
        return total

    def _atom(self, a: Atom) -> IndexExpr | None:
        match a:
            case Var(name):
                return IndexExpr.of(name) if name in self.params else self._bounds.get(name)
            case Lookup(array):
                return IndexExpr.of(max(map(abs, self.tables[array].values), default=0))
            case Div(kind, num, den):
                return self._most(den if kind is DivKind.MOD else num)
            case MinMax(_, args):
                parts = list(map(self._most, args))
            case Select(_, then, other):
                parts = [self._most(then), self._most(other)]
        return None if any(p is None for p in parts) else _upper([p for p in parts if p is not None])


def _upper(parts: Sequence[IndexExpr]) -> IndexExpr:
    """A polynomial that is nowhere less than others of magnitudes: of each term the largest factor."""
    factors: dict[tuple[Atom, ...], int] = {}
    for p in parts:
        for m, c in p.terms:
            factors[m] = max(c, factors.get(m, 0))
    return IndexExpr.sum_of(factors)


def _size(e: IndexExpr) -> tuple[int, int]:
    return max((len(m) for m, _ in e.terms), default=0), sum(c for _, c in e.terms)
