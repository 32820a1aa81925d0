# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""What a loop over steps stores already is read, and stored once.

    B<k,i> = X<k,i> - a * Y<k,i>;  X<k+1,i> = B<k,i>    ->    X<k+1,i> = X<k,i> - a * Y<k,i>

An array that another one is a copy of is made in its place.  An array whose elements are those of another one is left out,
and so is a term that is an element of an array of the same ring, or of one of which it reads another element: what was cheap
enough to be computed twice is read.
Results are the same bits.

Source: copy coalescing; value numbering (Cocke 1970), of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace

from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.loops.graph import op_cost
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Apply,
    Choice,
    Convert,
    Entry,
    Fold,
    Get,
    IndexValue,
    Number,
    Term,
    alike,
    arguments,
    arrays_in,
    inner_first,
    rewritten,
    under,
)
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons

WORTH = 5
"""Elements and operations, in additions, of which a term is made at least that is read instead. Chosen: a sum of three
elements with a factor is one."""
LONGEST = 100
"""Terms of more parts are not compared. Chosen, not measured."""

Index = dict[str, IndexExpr]


@dataclass(frozen=True, eq=False)
class _Offer:
    """A piece of an array."""

    eq: Equation
    cons: Cons
    term: Term


class Stored:
    """Finds such arrays and terms in a system."""

    def __init__(self, system: System):
        self.system, self.lin = system, system.lin
        self._keys: dict[Term, Hashable] = {}

    def merge_copies(self) -> bool:
        """Make what arrays are copies of in their places; whether there was something to change."""
        some = False
        for name in list(self.system.equations):
            if name in self.system.equations:
                some |= self._in_place(self.system.equations[name])
        return some

    def read(self) -> bool:
        """Read what is stored; whether there was something to change."""
        some = False
        rings = self._rings()
        offers = self._offers(rings)
        for name in list(self.system.equations):
            some |= self._left_out(self.system.equations[name], offers, rings)
        return self._elements(self._offers(rings), rings) or some

    def _rings(self) -> dict[str, int]:
        """The arrays that depend on each other in circles, by the number of the ring."""
        reads = {
            n: [a for _, t in eq.pieces for a in arrays_in(t) if a in self.system.equations]
            for n, eq in self.system.equations.items()
        }
        found = components(list(reads), lambda n: reads[n])
        return {n: i for i, names in enumerate(found) for n in names if len(names) > 1 or n in reads[n]}

    # -- copies --------------------------------------------------------------------------------------------------------
    def _in_place(self, eq: Equation) -> bool:
        """Make what an array is a copy of in its place."""
        some = False
        for cons, term in list(eq.pieces):
            other = self.system.equations.get(term.array) if isinstance(term, Get) else None
            if other is None or other is eq or other.output or other.kind is not eq.kind or eq.planar or other.planar:
                continue
            assert isinstance(term, Get)
            if any(isinstance(t, Fold | Choice) for _, x in other.pieces for t in inner_first(x, arguments)):
                continue
            shifts = _shifts(term, eq.fields)
            if shifts is None or len(other.fields) != len(eq.fields):
                continue
            here = {f: IndexExpr.of(g) - s for f, g, s in zip(eq.fields, other.fields, shifts, strict=True)}
            wanted = [c.substitute(here) for c in cons]
            if not all(self.lin.implies(case, c) for case in other.domain for c in wanted):
                continue
            there = {g: IndexExpr.of(f) + s for f, g, s in zip(eq.fields, other.fields, shifts, strict=True)}
            moved = [(tuple(self._con(c, there) for c in at), under(t, there)) for at, t in other.pieces]
            eq.pieces = [p for p in eq.pieces if p[1] is not term] + moved
            del self.system.equations[other.name]
            self._replace(other.name, eq.name, lambda index, shifts=shifts: tuple(
                self.lin.plain(e - s) for e, s in zip(index, shifts, strict=True)
            ))  # fmt: skip
            some = True
        return some

    def _con(self, c: Con, at: Index) -> Con:
        return Con(self.lin.plain(c.e.substitute(at)), c.eq)

    def _replace(self, old: str, new: str, index: Callable[[tuple[IndexExpr, ...]], tuple[IndexExpr, ...]]) -> None:
        """Read another array."""
        memo: dict[Term, Term] = {}

        def read(g: Get) -> Get:
            return Get(g.kind, new, index(g.index)) if g.array == old else g

        for eq in self.system.equations.values():
            eq.pieces = [(cons, rewritten(t, memo, read)) for cons, t in eq.pieces]

    # -- what arrays hold ----------------------------------------------------------------------------------------------
    def _offers(self, rings: dict[str, int]) -> dict[Hashable, list[_Offer]]:
        """The pieces of arrays in rings that are worth reading, by the form of their terms."""
        out: dict[Hashable, list[_Offer]] = {}
        for eq in self.system.equations.values():
            if eq.name in rings:
                for cons, term in eq.pieces:
                    if _worth(term) >= WORTH and (key := self._key(term)) is not None:
                        out.setdefault(key, []).append(_Offer(eq, cons, term))
        return out

    def _left_out(self, eq: Equation, offers: dict[Hashable, list[_Offer]], rings: dict[str, int]) -> bool:
        """Leave out an array whose elements another one has."""
        if eq.output or eq.name not in rings:
            return False
        whole = max((t for _, t in eq.pieces), key=_worth)
        for offer in offers.get(self._key(whole), ()):
            a = offer.eq
            if a is eq or a.name not in self.system.equations or a.kind is not eq.kind or rings[a.name] != rings[eq.name]:
                continue
            index = self._solved(offer, whole)
            if index is None or not self._equal(a, eq, index):
                continue
            del self.system.equations[eq.name]
            places = [index[f] for f in a.fields]
            fields = eq.fields
            self._replace(eq.name, a.name, lambda at, places=places, fields=fields: tuple(
                self.lin.plain(e.substitute(dict(zip(fields, at, strict=True)))) for e in places
            ))  # fmt: skip
            return True
        return False

    def _equal(self, a: Equation, b: Equation, index: Index) -> bool:
        """Whether all elements of an array are those of another one at an index."""
        inside = [tuple(self._con(c, index) for c in case) for case in a.domain]
        for cons, term in b.pieces:
            if not any(all(self.lin.implies(cons, c) for c in case) for case in inside):
                return False
            for theirs, other in a.pieces:
                meets = self.lin.feasible((*cons, *(self._con(c, index) for c in theirs)))
                if meets and not alike(under(other, index), term):
                    return False
        return True

    def _elements(self, offers: dict[Hashable, list[_Offer]], rings: dict[str, int]) -> bool:
        """Read elements in the place of terms."""
        if not offers:
            return False
        new: dict[str, list[tuple[Cons, Term]]] = {}
        for eq in self.system.equations.values():
            found = [(cons, self._reading(term, cons, eq, offers, rings)) for cons, term in eq.pieces]
            if any(x is not y for (_, x), (_, y) in zip(found, eq.pieces, strict=True)):
                new[eq.name] = found
        for name, pieces in new.items():
            self.system.equations[name].pieces = pieces
        return bool(new)

    def _reading(
        self, term: Term, cons: Cons, eq: Equation, offers: dict[Hashable, list[_Offer]], rings: dict[str, int],
        *, inside: bool = False,
    ) -> Term:  # fmt: skip
        """A term that reads elements: of its parts, and of itself if it is `inside` of a fold or a choice."""
        memo: dict[Term, Term] = {}
        for t in ([term] if inside and isinstance(term, Apply) else []) + [*_outermost(term)]:
            if (g := self._element(t, cons, eq, offers, rings)) is not None:
                memo[t] = g

        def below(t: Term, more: Cons) -> Term:
            return self._reading(t, (*cons, *more), eq, offers, rings, inside=True)

        for t in inner_first(term, arguments):
            match t:
                case Fold(_, _, parts):
                    bodies = [below(p.body, p.cons) for p in parts]
                    if any(b is not p.body for b, p in zip(bodies, parts, strict=True)):
                        memo[t] = replace(t, parts=tuple(replace(p, body=b) for p, b in zip(parts, bodies, strict=True)))
                case Choice(_, cases):
                    values = tuple((when, below(v, when)) for when, v in cases)
                    if any(x[1] is not y[1] for x, y in zip(values, cases, strict=True)):
                        memo[t] = replace(t, cases=values)
                case _:
                    pass
        return rewritten(term, memo, lambda g: g) if memo else term

    def _element(
        self, t: Term, cons: Cons, eq: Equation, offers: dict[Hashable, list[_Offer]], rings: dict[str, int]
    ) -> Get | None:  # fmt: skip
        key = self._key(t)
        for offer in offers.get(key, ()) if key is not None else ():
            a = offer.eq
            if a.kind is not t.kind or (rings[a.name] != rings.get(eq.name) and a.name not in arrays_in(t)):
                continue
            index = self._solved(offer, t)
            if index is not None and all(self.lin.implies(cons, self._con(c, index)) for c in offer.cons):
                return Get(t.kind, a.name, tuple(index[f] for f in a.fields))
        return None

    # -- comparisons ---------------------------------------------------------------------------------------------------
    def _key(self, whole: Term) -> Hashable | None:
        """The form of a term, without indices; None for one with folds or choices, or a long one."""
        if whole not in self._keys:
            parts = inner_first(whole, arguments)
            for t in parts if len(parts) <= LONGEST else ():
                below = tuple(self._keys.get(a) for a in arguments(t))
                form: Hashable = None
                match t:
                    case Number(kind, value):
                        form = hash((kind.value, repr(value)))
                    case IndexValue():
                        form = 1
                    case Get(_, array, _):
                        form = hash(array)
                    case Apply(kind, op, _) if None not in below:
                        form = hash((op.name, kind.value, below))
                    case (Convert(kind, _) | Entry(kind, _, _)) if None not in below:
                        form = hash((kind.value, below))
                    case _:
                        pass
                self._keys[t] = form
            self._keys.setdefault(whole, None)
        return self._keys[whole]

    def _solved(self, offer: _Offer, wanted: Term) -> Index | None:
        """The index at which the term of an offer is the wanted one."""
        found: Index = {}
        ways = zip(inner_first(offer.term, arguments), inner_first(wanted, arguments), strict=False)
        for a, b in ways:
            match a, b:
                case (Get(_, x, mine), Get(_, y, theirs)) if x == y and len(mine) == len(theirs):
                    pairs = list(zip(mine, theirs, strict=True))
                case (IndexValue(e), IndexValue(other)):
                    pairs = [(e, other)]
                case _:
                    continue
            for e, other in pairs:
                names = e.names & set(offer.eq.fields)
                if len(names) == 1 and (f := next(iter(names))) not in found:
                    rest = self.lin.plain(e - IndexExpr.of(f))
                    if f not in rest.names:
                        found[f] = self.lin.plain(other - rest)
        if len(found) < len(offer.eq.fields) or not alike(under(offer.term, found), wanted):
            return None
        return found


def _shifts(g: Get, fields: tuple[str, ...]) -> list[int] | None:
    """By how much an element is shifted, in each field."""
    if len(g.index) != len(fields):
        return None
    shifts = [(e - IndexExpr.of(f)).constant for e, f in zip(g.index, fields, strict=True)]
    return None if None in shifts else [s for s in shifts if s is not None]


def _worth(term: Term) -> int:
    """The elements and operations of a term."""
    parts = inner_first(term, arguments)
    return sum(1 if isinstance(t, Get) else op_cost(t.op) if isinstance(t, Apply) else 0 for t in parts)


def _outermost(term: Term) -> Iterator[Term]:
    """The operations inside of a term, outer ones first, without the term itself and those in folds."""
    seen = {term}
    stack = [term]
    while stack:
        for t in arguments(stack.pop()):
            if t not in seen:
                seen.add(t)
                if isinstance(t, Apply):
                    yield t
                stack.append(t)
