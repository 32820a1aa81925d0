"""Sums over a field that is cut, as partial sums: each rank adds up what it owns, and the ranks combine their parts.

    G<i> = + over d in 1..D of E<d>*X<d,i>                                     E, X cut by d
    ->
    "G part"<i> = + over d in first..last of E<d>*X<d,i>;  exchange "G part";  G<i> = "G part"<i>

The exchange of a partial array (`LoopProgram.partial`) combines the parts of all ranks, in any order; so this is for
`relaxed` only.  It stands after all parts that it combines, and before all that reads them: the schedule is made with an
equation in its place, which reads all parts and is read by all readers.

Source: reductions as in High Performance Fortran (Koelbel et al. 1994); MPI's `Allreduce`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from upl_mlir.dialects.loops.attributes import Range
from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.equations import Equation
from upl_mlir.passes.loops.program import Cut, LoopProgram
from upl_mlir.passes.loops.statements import Statement
from upl_mlir.passes.loops.terms import Choice, Fold, Get, Part, Term, arguments, inner_first, made_of, rewritten, walk
from upl_mlir.passes.loops.tree import Exchange, Guard, Leaf, Loop, Tree, leaves
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons, Linear

OPERATORS = (Gather.SUM, Gather.PRODUCT, Gather.MIN, Gather.MAX)
"""The operators of which parts are combined; of integers only the least and the greatest."""


@dataclass(frozen=True)
class Owner:
    """Whose summand one is: that of the rank which owns the elements of an array at `index`, by the part's iterators."""

    array: str
    index: IndexExpr


@dataclass(frozen=True)
class Barrier:
    """What stands for an exchange of `part` while the schedule is made: the array `name`, which has the fields `outer`."""

    part: str
    name: str
    outer: tuple[str, ...]


@dataclass
class NoBarrier(Exception):
    """The exchange of a partial array has no place in the schedule."""

    part: str


def owners(
    lin: Linear, cons: Cons, term: Term, cut: Mapping[str, tuple[int, IndexExpr, IndexExpr]], own: str | None
) -> dict[Fold, dict[int, Owner]]:
    """The folds of a term that may be divided among ranks, each with the parts of which every summand has one owner.

    `cut` says of each array that is cut by which field (its number), and from where to where; `own` is the field of the
    equation's array that is cut, if one is.  What is near to an element's own index is received, not shared.  Folds inside
    of others, or of choices, are left as they are.
    """
    out: dict[Fold, dict[int, Owner]] = {}
    for fold in inner_first(term, arguments):
        if not isinstance(fold, Fold) or fold.gather not in OPERATORS or fold.kind is Kind.BOOL:
            continue
        if fold.kind is Kind.INT and fold.gather not in (Gather.MIN, Gather.MAX):
            continue  # MPI does not say that integers overflow
        found: dict[int, Owner] = {}
        for n, p in enumerate(fold.parts):
            owner = _owner(lin, cons, p, cut, own)
            if owner is not None:
                found[n] = owner
        if found:
            out[fold] = found
    return out


def _owner(
    lin: Linear, cons: Cons, p: Part, cut: Mapping[str, tuple[int, IndexExpr, IndexExpr]], own: str | None
) -> Owner | None:
    inner = {d for t, _ in walk(p.body) if isinstance(t, Fold) for q in t.parts for d in q.dims}
    for t, _ in walk(p.body):
        if not isinstance(t, Get) or t.array not in cut:
            continue
        at, low, high = cut[t.array]
        e = t.index[at]
        where = (*cons, *p.cons)
        if e.names & inner or not e.names & {*p.dims}:
            continue
        if own is not None and None not in lin.bounds(where, lin.plain(e - IndexExpr.of(own))):
            continue  # a neighbour of the element, such as stencils add
        if lin.implies(where, Con(lin.plain(e - low))) and lin.implies(where, Con(lin.plain(high - e))):
            return Owner(t.array, e)
    return None


def divide(p: LoopProgram, cuts: Mapping[str, Cut], serial: Mapping[str, Collection[str]], taken: set[str]) -> list[Barrier]:
    """Change the equations that add over a cut field; `serial` are the fields of each array that serial loops go along.

    The equations of the cut arrays are still those of the whole program.
    """
    system, barriers = p.system, list[Barrier]()
    where = {
        a: (system.equations[a].fields.index(c.field), c.block.low, c.block.high) for a, c in cuts.items()
    }  # fmt: skip
    partial: dict[str, Gather] = {}
    for name, eq in list(system.equations.items()):
        own = cuts[name].field if name in cuts else None
        for n, (cons, term) in enumerate(eq.pieces):
            found = owners(system.lin, cons, term, where, own)
            if not found:
                continue
            new: dict[Term, Term] = {}
            for fold, divided in found.items():
                ours = [
                    replace(q, cons=(*q.cons, *cuts[divided[i].array].block.holds(divided[i].index)))
                    for i, q in enumerate(fold.parts) if i in divided
                ]  # fmt: skip
                part, barrier = unused(f"{name}.part", taken), unused(f"{name}.parts", taken)
                system.equations[part] = Equation(
                    part, fold.kind, eq.fields, (cons,), [(cons, Fold(fold.kind, fold.gather, tuple(ours), None))]
                )
                partial[part] = fold.gather
                p.places = {**p.places, part: p.places.get(name)}
                outer = tuple(f for f in eq.fields if f in serial.get(name, ()))
                barriers.append(Barrier(part, barrier, outer))
                system.equations[barrier] = _barrier(system.lin, system.equations[part], barrier, outer, cons)
                new[fold] = _rest(fold, divided, part, eq.fields, barrier, outer)
            eq.pieces[n] = (cons, rewritten(term, new, lambda g: g))
    p.partial = partial
    return barriers


def _barrier(lin: Linear, part: Equation, name: str, outer: tuple[str, ...], cons: Cons) -> Equation:
    """An equation that reads all of a partial array at one value of the outer fields."""
    inner = tuple(f for f in part.fields if f not in outer)
    own = {f: IndexExpr.of(f"{f} all") for f in inner}
    index = tuple(own.get(f, IndexExpr.of(f)) for f in part.fields)
    where = tuple(Con(c.e.substitute(own), c.eq) for c in cons)
    body = Part(tuple(f"{f} all" for f in inner), where, Get(part.kind, part.name, index))
    domain = tuple(lin.project(lin.normal(cons)[0], inner))
    return Equation(
        name, part.kind, outer, (domain,), [(domain, Fold(part.kind, Gather.MAX, (body,), None))]
    )  # fmt: skip


def _rest(
    fold: Fold, mine: Mapping[int, Owner], part: str, fields: Sequence[str], barrier: str, outer: Sequence[str]
) -> Term:
    """The fold of what the ranks have combined and of the parts that are not divided; it reads the barrier, too."""
    names = tuple(map(IndexExpr.of, fields))
    got = Get(fold.kind, part, names)
    after = Get(fold.kind, barrier, tuple(map(IndexExpr.of, outer)))
    both = Choice(fold.kind, (((), got), ((), after)))
    rest = [q for i, q in enumerate(fold.parts) if i not in mine]
    if not rest and fold.count is None:
        return both
    return Fold(fold.kind, fold.gather, (Part((), (), both), *rest), fold.count)


def copies(term: Term, partial: Collection[str]) -> bool:
    """Whether a term, as `divide` leaves it, is an element of a partial array."""
    return isinstance(term, Choice) and isinstance(got := term.cases[0][1], Get) and got.array in partial


def insert(p: LoopProgram, barriers: Sequence[Barrier]) -> None:
    """Put the exchanges of partial arrays into a schedule, in place of the barriers.  Raises NoBarrier."""
    for b in barriers:
        p.tree = _replaced(p, b, p.scheduled, ())
        del p.system.equations[b.name]
    names = {b.name for b in barriers}
    for s in dict.fromkeys(leaf.stmt for leaf, _ in leaves(p.scheduled)):
        if any(r.array in names for r in s.reads):
            s.term = _without(s.term, names)
            s.reads = [r for r in s.reads if r.array not in names]
    for eq in p.system.equations.values():
        eq.pieces = [(cons, _without(term, names)) for cons, term in eq.pieces]
    p.deps = None


def _replaced(p: LoopProgram, b: Barrier, body: Sequence[Tree], loops: tuple[Loop, ...]) -> list[Tree]:
    out: list[Tree] = []
    for t in body:
        match t:
            case Loop():
                t.body = _replaced(p, b, t.body, (*loops, t))
            case Guard():
                t.body = _replaced(p, b, t.body, loops)
                t.other = _replaced(p, b, t.other, loops)
            case Leaf(stmt, env) if stmt.array == b.name:
                t = _exchange(p, b, stmt, env, loops)
            case _:
                pass
        out.append(t)
    return out


def _exchange(p: LoopProgram, b: Barrier, s: Statement, env: Mapping[str, IndexExpr], loops: Sequence[Loop]) -> Exchange:
    """The exchange of all elements of a partial array at the outer fields' values."""
    lin, eq = p.system.lin, p.system.equations[b.part]
    if s.fields != b.outer or any(f not in eq.fields for f in b.outer):
        raise NoBarrier(b.part)  # other coordinates than those of the program
    values = {f: env[f] for f in b.outer}
    (cons, _), *_ = eq.pieces
    cons = lin.normal(tuple(Con(lin.plain(c.e.substitute(values)), c.eq) for c in cons))[0]
    around = tuple(c for t in loops for c in t.context)
    ranges: list[Range] = []
    for f in eq.fields:
        if f in values:
            ranges.append(Range(f, (values[f],), (values[f],)))
            continue
        left = lin.project(cons, [g for g in eq.fields if g != f])
        lows, highs = lin.limits(left, f, [t.var for t in loops])
        if not lows or not highs:
            raise NoBarrier(b.part)
        ranges.append(Range(f, *(tuple(lin.strongest(e, sign, around)) for e, sign in ((lows, 1), (highs, -1)))))
    for t in loops:
        t.parallel = False  # exchanges have an order
    return Exchange(b.part, tuple(ranges), 0)


def _without(term: Term, names: Collection[str]) -> Term:
    """A term that does not read the barriers."""
    new: dict[Term, Term] = {}
    for t in inner_first(term, made_of):
        if isinstance(t, Choice) and any(isinstance(v, Get) and v.array in names for _, v in t.cases):
            new[t] = t.cases[0][1]
    return rewritten(term, new, lambda g: g) if new else term
