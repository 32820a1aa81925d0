# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Costly functions of stored elements are not computed again where another array holds them already.

A derivative asks for the function that the value has computed, and the value is often kept, as what comes next needs it:

    H<d,i> = tanh(S<d,i>)
    D<d,i> = G<d,i> * (1 - tanh(S<d,i>) * tanh(S<d,i>))      ->      D<d,i> = G<d,i> * (1 - H<d,i> * H<d,i>)

Only where the equation then reads nothing more of `S`, so that no more is kept than before.  Results are the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xdsl.dialects import arith

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.loops import terms
from upl_mlir.passes.loops.graph import op_cost
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Term, arguments, inner_first, walk
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons

COSTLY = 25
"""Operations of this cost (in additions) are worth a read. Chosen, not measured: about an elementary function."""
LONGEST = 400
"""Terms of more parts are left as they are. Chosen, not measured."""

_SMALLER = {"sge": (0, 1), "sgt": (0, 1), "sle": (1, 0), "slt": (1, 0)}
"""Which argument of a comparison is the larger one, and which the smaller."""


@dataclass(frozen=True, eq=False)
class _Offer:
    """An array whose elements are a function of others, where the constraints hold: `index` are those of the others."""

    eq: Equation
    index: tuple[IndexExpr, ...]
    cons: Cons


_Key = tuple[object, ...]


class Reuse:
    """Replaces functions that cost `costly` additions or more by elements of arrays."""

    def __init__(self, system: System, costly: int = COSTLY):
        self.costly = costly
        self.system, self.lin = system, system.lin
        self.offers: dict[_Key, list[_Offer]] = {}
        self.changed: set[str] = set()

    def replace(self) -> bool:
        """Change the system; whether there was something to change."""
        own: set[tuple[str, int]] = set()
        for eq in self.system.equations.values():
            for at, (cons, term) in enumerate(eq.pieces):
                for here, t in self._ends(term, cons):
                    key = _key(t, self.costly)
                    if key is not None and not eq.output and isinstance(t, terms.Apply) and isinstance(t.args[0], terms.Get):
                        self.offers.setdefault(key, []).append(_Offer(eq, t.args[0].index, here))
                        own.add((eq.name, at))
        if self.offers:
            self._reads = {
                eq.name: {t.array for _, term in eq.pieces for t, _ in walk(term) if isinstance(t, terms.Get)}
                for eq in self.system.equations.values()
            }
            found = components(list(self._reads), lambda n: [m for m in self._reads[n] if m in self._reads])
            self._circle = {name: i for i, names in enumerate(found) for name in names}
            for eq in self.system.equations.values():
                pieces = enumerate(eq.pieces)
                eq.pieces = [
                    (cons, t if (eq.name, at) in own else self._shorter(eq, t, cons)) for at, (cons, t) in pieces
                ]
        return bool(self.changed)

    # -- what is there ------------------------------------------------------------------------------------------------
    def _ends(self, t: Term, cons: Cons) -> Iterator[tuple[Cons, Term]]:
        """What a term is, by cases of indices."""
        stack = [(cons, t)]
        while stack:
            here, t = stack.pop()
            cases = self._cases(t)
            if cases is None:
                yield here, t
            else:
                stack += [((*here, *when), v) for when, v in cases]

    def _cases(self, t: Term) -> tuple[tuple[Cons, Term], tuple[Cons, Term]] | None:
        """A choice between two by indices alone, with disjoint conditions; None for other terms."""
        if not isinstance(t, terms.Apply) or not isinstance(t.op, arith.SelectOp):
            return None
        asked, yes, no = t.args
        if not isinstance(asked, terms.Apply) or not isinstance(asked.op, arith.CmpiOp):
            return None
        name = arith.CMPI_COMPARISON_OPERATIONS[asked.op.predicate.value.data]
        ends = [_whole(a) for a in asked.args]
        if name not in _SMALLER or ends[0] is None or ends[1] is None:
            return None
        more, less = (ends[i] for i in _SMALLER[name])
        assert more is not None and less is not None
        con = Con(self.lin.plain(more - less - (1 if name in ("sgt", "slt") else 0)))
        (other,) = con.negated()
        return ((con,), yes), ((other,), no)

    # -- where it is wanted -------------------------------------------------------------------------------------------
    def _shorter(self, eq: Equation, term: Term, cons: Cons) -> Term:
        """A piece's term with elements in the place of functions, if it then reads nothing of their arguments."""
        parts = [t for t, _ in walk(term)]
        if len(parts) > LONGEST or not any(_key(t, self.costly) in self.offers for t in parts):
            return term
        self._eq, self._memo = eq, dict[tuple[Term, Cons], Term]()
        self._gone: set[str] = set()
        new = self._inside(term, cons)
        if new is term or any(isinstance(t, terms.Get) and t.array in self._gone for t, _ in walk(new)):
            return term
        self.changed.add(eq.name)
        return new

    def _inside(self, t: Term, cons: Cons) -> Term:
        for part in inner_first(t, arguments):
            if (part, cons) not in self._memo:
                self._memo[part, cons] = self._replaced(part, cons)
        return self._memo[t, cons]

    def _replaced(self, t: Term, cons: Cons) -> Term:
        cases = self._cases(t)
        if cases is not None:
            new = [self._inside(v, (*cons, *when)) for when, v in cases]
            if all(x is v for x, (_, v) in zip(new, cases, strict=True)):
                return t
            # a choice: an element may be there in one case only
            return terms.Choice(t.kind, ((cases[0][0], new[0]), ((), new[1])))
        match t:
            case terms.Apply(kind, op, args):
                found = self._element(t, cons)
                if found is not None:
                    return found
                given = tuple(self._inside(a, cons) for a in args)
                return t if all(x is y for x, y in zip(given, args, strict=True)) else terms.Apply(kind, op, given)
            case terms.Convert(kind, arg):
                value = self._inside(arg, cons)
                return t if value is arg else terms.Convert(kind, value)
            case terms.Entry(kind, table, at):
                value = self._inside(at, cons)
                return t if value is at else terms.Entry(kind, table, value)
            case terms.Choice(kind, choices):
                some = tuple((when, self._inside(v, (*cons, *when))) for when, v in choices)
                return t if all(x[1] is y[1] for x, y in zip(some, choices, strict=True)) else terms.Choice(kind, some)
            case terms.Fold(parts=parts):
                bodies = tuple(
                    p if p.guards else replace(p, body=self._inside(p.body, (*cons, *p.cons))) for p in parts
                )
                same = all(x.body is y.body for x, y in zip(bodies, parts, strict=True))
                return t if same else replace(t, parts=bodies)
            case _:
                return t

    def _element(self, t: terms.Apply, cons: Cons) -> terms.Get | None:
        """The element that holds the value of a function, under these constraints."""
        key = _key(t, self.costly)
        for offer in self.offers.get(key, ()) if key is not None else ():
            (arg,) = t.args
            assert isinstance(arg, terms.Get)
            if offer.eq is self._eq or not self._before(offer.eq.name, arg.array):
                continue
            index = self._solved(offer, arg.index)
            if index is not None and all(self.lin.implies(cons, c.substitute(index)) for c in offer.cons):
                self._gone.add(arg.array)
                return terms.Get(t.kind, offer.eq.name, tuple(index[f] for f in offer.eq.fields))
        return None

    def _before(self, name: str, argument: str) -> bool:
        """Whether an array can be read here without a circle among arrays that is not there now."""
        if self._circle[name] == self._circle.get(argument):
            return True
        seen, todo = {name}, [name]
        while todo:
            more = {m for m in self._reads[todo.pop()] if m in self._reads} - seen
            seen |= more
            todo += more
        return self._eq.name not in seen

    def _solved(self, offer: _Offer, wanted: tuple[IndexExpr, ...]) -> dict[str, IndexExpr] | None:
        """The fields at which an offer is the function of the element `wanted`."""
        open_ = {f: f"its {f}" for f in offer.eq.fields}
        theirs = [self.lin.plain(e.substitute({f: IndexExpr.of(n) for f, n in open_.items()})) for e in offer.index]
        found: dict[str, IndexExpr] = {}
        for _ in open_:
            for mine, e in zip(theirs, wanted, strict=True):
                rest = self.lin.plain(mine.substitute(found))
                names = [n for n in open_.values() if n in rest.names]
                k = next((k for m, k in rest.terms if m == (Var(names[0]),)), 0) if len(names) == 1 else 0
                if abs(k) == 1:
                    value = self.lin.plain((e - rest + IndexExpr.of(names[0]) * k) * k)
                    if names[0] not in value.names:
                        found[names[0]] = value
        if len(found) < len(open_):
            return None
        if any(self.lin.plain(mine.substitute(found) - e).constant != 0 for mine, e in zip(theirs, wanted, strict=True)):
            return None
        return {f: found[n] for f, n in open_.items()}


def _key(t: Term, costly: int) -> _Key | None:
    """Which function of an element of which array a term is; None if it is none, or a cheap one."""
    if not isinstance(t, terms.Apply) or len(t.args) != 1 or op_cost(t.op) < costly:
        return None
    (arg,) = t.args
    if not isinstance(arg, terms.Get):
        return None
    properties = tuple(sorted((n, str(v)) for n, v in t.op.properties.items()))
    return type(t.op), properties, t.kind, arg.kind, arg.array


def _whole(t: Term) -> IndexExpr | None:
    """An integer term as an index expression; None for one that data decide."""
    match t:
        case terms.IndexValue(e):
            return e
        case terms.Number(Kind.INT, value):
            return IndexExpr.of(int(value))
        case terms.Apply(Kind.INT, arith.AddiOp() | arith.SubiOp() as op, (a, b)):
            first, second = _whole(a), _whole(b)
            if first is None or second is None:
                return None
            return first + second if isinstance(op, arith.AddiOp) else first - second
        case _:
            return None
