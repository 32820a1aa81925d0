"""Other coordinates for the arrays of elements that depend on each other in a circle, where no loop was found for them.

    S<f> = R<f floordiv 2>        R<d> = S<2*d-2>       f even      ->      S<d> = R<d>              R<d> = S<d-1>
    S<d,r> = R<d,r-n>             R<d,k> = S<d,k+n-1>               ->      S<d,k> = R<d,k>          R<d,k> = S<d,k-1>
    S<h,j> = R<h-2*j,j>           R<k,j> = S<k+2*j-1,j>             ->      S<k,j> = R<k,j>          R<k,j> = S<k-1,j>
    S<i> = S<2*n-i>                                                 ->      S<k> = S<-k>

A loop runs along one field of each array (`order`), whose value in a read is that of the reader's field and a number.
A field that is counted by twos, from a parameter on, or as a sum of several is none; it gets another meaning, by a change
of coordinates that is one to one where there are elements.  Arrays of the host keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from upl_mlir.passes.loops.statements import Edge
from upl_mlir.passes.loops.system import System
from upl_mlir.passes.loops.terms import Get, Term, rewritten
from upl_mlir.poly.expr import IndexExpr, Var, divide
from upl_mlir.poly.linear import Con, Cons
from upl_mlir.poly.operators import DivKind

Parts = tuple[dict[str, int], IndexExpr, int]
"""A linear index: factors of names, what it starts from by parameters, and a number."""


@dataclass(frozen=True)
class Change:
    """A field of an array: ``field = scale * new + rest``, where `rest` is over the array's other fields and parameters."""

    array: str
    field: str
    scale: int
    rest: IndexExpr


class Coordinates:
    """Changes the coordinates of a system's arrays, each field once."""

    def __init__(self, system: System):
        self.system, self.lin = system, system.lin
        self.changed: set[tuple[str, str]] = set()

    def change(self, deps: Iterable[Edge]) -> bool:
        """Make one change for which dependences in a circle ask; False if there is none."""
        wanted = [c for e in deps for c in (*self._of_writer(e), *self._of_reader(e))]
        for _, c in sorted(wanted, key=lambda x: x[0]):
            if (c.array, c.field) not in self.changed and self._allowed(c):
                self.changed.add((c.array, c.field))
                self._make(c)
                return True
        return False

    # -- what to change -------------------------------------------------------------------------------------------------
    def _of_writer(self, e: Edge) -> Iterator[tuple[int, Change]]:
        """Fields of what is written that are a multiple of the reader's, from a parameter on, or a sum of several.

        First (0) what no other coordinates of the reader can mend: it reads at one of its fields, or by an iterator.
        """
        own = set(e.reader.fields)
        parts = {f: self._parts(x) for f, x in e.index.items()}
        for f, found in parts.items():
            if found is None:
                continue
            factors, start, constant = found
            for kept, scale in sorted(factors.items(), key=lambda x: (abs(x[1]) != 1, x[0])):
                if e.reader.array == e.writer.array and kept == f:  # both sides of the read move
                    half = _halved(start)
                    if scale == -1 and len(factors) == 1 and half is not None and half.constant is None:
                        yield 0, Change(e.writer.array, f, 1, half)
                    continue
                rest = start + constant if abs(scale) != 1 else start
                for name, k in factors.items():
                    if name == kept:
                        continue
                    other = self._alone(name, f, parts)
                    if other is None:
                        break
                    rest = rest + other * k
                else:
                    # one that another field has already is better left to that one
                    plain = abs(scale) == 1 and rest.constant == 0
                    if not plain and (len(factors) == 1 or self._alone(kept, f, parts) is None):
                        yield int(len(factors) > 1 and factors.keys() <= own), Change(e.writer.array, f, abs(scale), rest)

    def _alone(self, name: str, but: str, parts: dict[str, Parts | None]) -> IndexExpr | None:
        """A name of the reader's by another field of what is written, at the reads."""
        for f, found in parts.items():
            if f != but and found is not None and list(found[0]) == [name] and abs(found[0][name]) == 1:
                return (IndexExpr.of(f) - found[1] - found[2]) * found[0][name]
        return None

    def _of_reader(self, e: Edge) -> Iterator[tuple[int, Change]]:
        """A field of the reader's so that a sum of several of its fields, at which it reads, becomes one field."""
        own = set(e.reader.fields)
        for x in e.index.values():
            found = self._parts(x)
            if found is None or len(found[0]) < 2 or not found[0].keys() <= own:
                continue
            for f, k in found[0].items():
                if abs(k) == 1:
                    others = x - IndexExpr.of(f) * k
                    yield 2, Change(e.reader.array, f, 1, others * -k)

    def _parts(self, e: IndexExpr) -> Parts | None:
        """The parts of an index; None if it is not linear."""
        factors: dict[str, int] = {}
        start, constant = IndexExpr(), 0
        params = self.lin.ctx.params
        for m, k in self.lin.plain(e).terms:
            if not m:
                constant += k
            elif len(m) == 1 and isinstance(m[0], Var) and m[0].name not in params:
                factors[m[0].name] = k
            elif all(isinstance(a, Var) and a.name in params for a in m):
                start = start + IndexExpr(((m, k),))
            else:
                return None
        return factors, start, constant

    # -- the change -----------------------------------------------------------------------------------------------------
    def _allowed(self, c: Change) -> bool:
        """Whether an array may have other coordinates, and the new ones are whole numbers wherever it has elements."""
        eq = self.system.equations[c.array]
        if eq.output or not c.rest.names <= {*eq.fields, *self.lin.ctx.params} - {c.field}:
            return False
        even = Con(divide(DivKind.MOD, IndexExpr.of(c.field) - c.rest, IndexExpr.of(c.scale)), True)
        return c.scale == 1 or all(self.lin.implies(cons, even) for cons, _ in eq.pieces)

    def _make(self, c: Change) -> None:
        """Change the array's equation and all reads of it."""
        mine = self.system.equations[c.array]
        at = mine.fields.index(c.field)
        old = {c.field: IndexExpr.of(c.field) * c.scale + c.rest}

        def new(e: IndexExpr) -> IndexExpr:
            return self.lin.plain(e.substitute(old))

        def under(cons: Cons) -> Cons:
            return self.lin.tidy(Con(new(k.e), k.eq) for k in cons)

        def read(g: Get) -> Get:
            if g.array != c.array:
                return g
            rest = c.rest.substitute(dict(zip(mine.fields, g.index, strict=True)))
            value = self.lin.plain(divide(DivKind.FLOORDIV, g.index[at] - rest, IndexExpr.of(c.scale)))
            return replace(g, index=(*g.index[:at], value, *g.index[at + 1 :]))

        def read_here(g: Get) -> Get:
            return read(replace(g, index=tuple(map(new, g.index))))

        for eq in self.system.equations.values():
            memo: dict[Term, Term] = {}
            if eq is mine:
                eq.domain = tuple(map(under, eq.domain))
                eq.pieces = [(under(cons), rewritten(t, memo, read_here, new)) for cons, t in eq.pieces]
            else:
                eq.pieces = [(cons, rewritten(t, memo, read)) for cons, t in eq.pieces]


def _halved(e: IndexExpr) -> IndexExpr | None:
    """Half of an expression; None if it has an odd factor."""
    return None if any(k % 2 for _, k in e.terms) else IndexExpr(tuple((m, k // 2) for m, k in e.terms))
