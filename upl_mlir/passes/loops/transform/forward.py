"""Copies of host inputs that only products read are not made: the products read the inputs.

    for d, i: R<d,1,i> = X<d,i>
    S<d,1,j> = + over i of R<d,1,i> * W<1,i,j>        ->      S<d,1,j> = + over i of X<d,i> * W<1,i,j>

The tree is one whose loops over layers are written out: then a product reads either what is copied, or what is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from upl_mlir.dialects.loops.attributes import Range
from upl_mlir.passes.loops.statements import Statement
from upl_mlir.passes.loops.terms import Get, rewritten, walk
from upl_mlir.passes.loops.transform.contractions import Contraction, Term
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, subtrees
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons, Linear

Index = tuple[IndexExpr, ...]


@dataclass(frozen=True, eq=False)
class _Read:
    """A read of an array at an index, by loops' variables, where the constraints hold."""

    array: str
    index: Index
    cons: Cons


class Forwarder:
    """Finds such copies in a tree, and takes them out; `hosts` are the names of host inputs.  Copies in arrays that are
    `kept`, as host outputs are, stay."""

    def __init__(self, lin: Linear, tree: list[Tree], hosts: Collection[str], kept: Collection[str]):
        self.lin, self.tree = lin, tree
        wanted = {g.array for t in subtrees(tree) if isinstance(t, Box) for x in t.contraction.terms for g in x.arrays}
        self.copies: dict[str, list[Statement]] = {}
        for t in subtrees(tree):
            if isinstance(t, Leaf) and t.stmt.array in wanted and t.stmt.array not in kept and _copies(t.stmt, hosts):
                self.copies.setdefault(t.stmt.array, []).append(t.stmt)

    @property
    def gone(self) -> set[Statement]:
        """The statements that `forwarded` took out."""
        return {s for found in self.copies.values() for s in found}

    def forwarded(self) -> list[Tree]:
        """The tree without the copies that are not needed."""
        if not self.copies:
            return self.tree
        kept = {s for r in self._reads(self.tree, ()) for s in self.copies.get(r.array, ()) if not self._clear(r, s)}
        self.copies = {name: [s for s in found if s not in kept] for name, found in self.copies.items()}
        if not any(self.copies.values()):
            return self.tree
        return self._changed(self.tree, ())

    # -- who reads what -----------------------------------------------------------------------------------------------
    def _reads(self, trees: Sequence[Tree], context: Cons) -> Iterator[_Read]:
        for t in trees:
            match t:
                case Loop():
                    yield from self._reads(t.body, (*context, *t.context))
                case Guard(cons, body, other):
                    yield from self._reads(body, (*context, *cons))
                    yield from self._reads(other, context)
                case Leaf(stmt, env):
                    for g, cons in walk(stmt.term):
                        if isinstance(g, Get) and g.array in self.copies:
                            yield self._read(g, cons, env, context)
                case Box(_, found, plain):
                    for x in found.terms:
                        for g, index in zip(x.arrays, x.indices, strict=False):
                            yield _Read(g.array, index, (*context, *_inside(found, x)))
                    if found.padded is not None:  # its copies with zeros have places of their own
                        yield from (_Read(g.array, g.index, ()) for g in found.padded.term.arrays)
                    yield from self._reads(plain, context)
                case Exchange():
                    pass

    def _read(self, g: Get, cons: Cons, env: dict[str, IndexExpr], context: Cons) -> _Read:
        here = (Con(self.lin.plain(c.e.substitute(env)), c.eq) for c in cons)
        return _Read(g.array, tuple(self.lin.plain(e.substitute(env)) for e in g.index), (*context, *here))

    def _at(self, s: Statement, index: Index) -> Cons:
        """The constraints of a statement at an element."""
        values = dict(zip(s.fields, index, strict=True))
        fixed = (Con(values[f] - e.substitute(values), True) for f, e in s.fixed.items())
        return tuple(Con(self.lin.plain(c.e.substitute(values)), c.eq) for c in (*s.cons, *fixed))

    def _clear(self, r: _Read, s: Statement) -> bool:
        """Whether a read is always of what a statement writes, or never."""
        cons = self.lin.tidy(self._at(s, r.index))
        return not self.lin.feasible((*r.cons, *cons)) or all(self.lin.implies(r.cons, c) for c in cons)

    def _source(self, r: _Read, index: Index) -> Get | None:
        """The input's element that a read is of, by the names of `index`; None for reads of what is not copied."""
        for s in self.copies.get(r.array, ()):
            if isinstance(s.term, Get) and self.lin.feasible((*r.cons, *self._at(s, r.index))):
                values = dict(zip(s.fields, index, strict=True))
                return Get(s.term.kind, s.term.array, tuple(self.lin.plain(e.substitute(values)) for e in s.term.index))
        return None

    # -- the other tree -----------------------------------------------------------------------------------------------
    def _changed(self, trees: Sequence[Tree], context: Cons) -> list[Tree]:
        out: list[Tree] = []
        for t in trees:
            match t:
                case Loop():
                    t.body = self._changed(t.body, (*context, *t.context))
                    out += [t] if t.body else []
                case Guard():
                    t.body = self._changed(t.body, (*context, *t.cons))
                    t.other = self._changed(t.other, context)
                    out += [t] if t.body or t.other else []
                case Leaf(stmt):
                    if stmt not in self.copies.get(stmt.array, ()):
                        out.append(self._leaf(t, context))
                case Box(leaf, found, plain):
                    terms = tuple(self._term(found, x, context) for x in found.terms)
                    leaf = self._leaf(leaf, (*context, *_within((*found.around, *found.fields))))
                    out.append(Box(leaf, replace(found, terms=terms), self._changed(plain, context)))
                case Exchange():
                    out.append(t)
        return out

    def _leaf(self, t: Leaf, context: Cons) -> Leaf:
        """A statement that reads elsewhere."""
        found = {
            g: source for g, cons in walk(t.stmt.term)
            if isinstance(g, Get) and (source := self._source(self._read(g, cons, t.env, context), g.index)) is not None
        }  # fmt: skip
        if not found:
            return t
        return Leaf(replace(t.stmt, term=rewritten(t.stmt.term, {}, lambda g: found.get(g, g))), t.env)

    def _term(self, found: Contraction, x: Term, context: Cons) -> Term:
        inside = (*context, *_inside(found, x))
        arrays, indices = list(x.arrays), list(x.indices)
        for i, g in enumerate(x.arrays):
            source = self._source(_Read(g.array, x.indices[i], inside), x.indices[i])
            if source is not None:
                arrays[i], indices[i] = source, source.index
        return replace(x, arrays=(arrays[0], arrays[1]), indices=(indices[0], indices[1], indices[2]))


def _copies(s: Statement, hosts: Collection[str]) -> bool:
    """Whether a statement copies elements of a host input, neighbours to neighbours."""
    return (
        isinstance(s.term, Get) and s.term.array in hosts and bool(s.term.index) and s.fields[-1] in s.free
        and s.term.index[-1] == IndexExpr.of(s.fields[-1])
    )  # fmt: skip


def _inside(found: Contraction, x: Term) -> Cons:
    """What holds of the names in a term of a contraction."""
    return (*x.cons, *_within((*found.around, *x.around, *x.fields, *x.summed)))


def _within(ranges: Sequence[Range]) -> Cons:
    """What holds of names with bounds."""
    return tuple(
        c for r in ranges for v in (IndexExpr.of(r.var),)
        for c in (*(Con(v - e) for e in r.lows), *(Con(e - v) for e in r.highs))
    )  # fmt: skip
