# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Loops divided where data say that a condition changes, so that no iteration asks for it.

    for c in 0..C: B<c> = max[A<c>; c - W in 0..C ? A<c-W> + V : -inf]
    ->
    for c in 0..min(W, C+1)-1: B<c> = A<c>;  for c in W..C: B<c> = max[A<c>; A<c-W> + V];  …

A condition that compares the loop's variable with a value which is the same in all iterations changes once.  The place is
kept within the loop's bounds, so that wrong values of data divide it where they may.  Each part is a plain loop.

Source: index set splitting (Griebl, Feautrier, Lengauer 2000), at places that are known when the code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from upl_mlir.passes.loops.emit.code import INDEX, Code, Span
from upl_mlir.passes.loops.emit.frame import Frame
from upl_mlir.passes.loops.emit.known import AtMost, Env, Known, noted
from upl_mlir.passes.loops.matches import Match
from upl_mlir.passes.loops.terms import Apply, Choice, Convert, Entry, Fold, Part, Term, arrays_in, names_in
from upl_mlir.passes.loops.tree import Guard, Leaf, Loop, leaves
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons, Linear

MOST = 6
"""A loop becomes so many parts at most.  Chosen, not measured."""
FAR = 2**62
"""Values beyond it are taken for it: no index is as large, and none overflows beside it."""


class Values(Protocol):
    """What writes terms (`values.Values`), as far as loops are divided with it."""

    f: Frame
    code: Code
    lin: Linear
    known: Known

    def value(self, t: Term, env: Env) -> SSAValue:
        """The value of a term."""
        ...

    def at(self, cons: Cons, env: Env) -> Cons:
        """Constraints whose names mean `env`."""
        ...

    def matched(self, t: Fold, part: Part) -> tuple[Part, dict[str, Match]]:
        """A part with the iterators that data choose."""
        ...

    def note(self, t: Term, env: Env) -> None:
        """Note an overflow of a sum."""
        ...

    def note_chosen(self, m: Match, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], env: Env) -> None:
        """Note an overflow of the sum that is compared."""
        ...


@dataclass(frozen=True, eq=False)
class Body:
    """What each iteration computes: a term whose names mean `env`, in which the loop's variable is called `var`."""

    var: str
    term: Term
    env: Env


@dataclass(eq=False)
class _Found:
    """Questions that an iteration asks: those that it asks in any case, and others.  `plain`: it has no loop inside."""

    always: list[tuple[str, AtMost]] = field(default_factory=list[tuple[str, AtMost]])
    others: list[tuple[str, AtMost]] = field(default_factory=list[tuple[str, AtMost]])
    chosen: list[_Chosen] = field(default_factory=list["_Chosen"])
    plain: bool = True


@dataclass(frozen=True, eq=False)
class _Chosen:
    """An index that data choose as part of a sum, and its bounds."""

    body: Body
    match: Match
    lows: Sequence[IndexExpr]
    highs: Sequence[IndexExpr]


@dataclass(frozen=True, eq=False)
class _Place:
    """Where questions change their answers: from ``sign * value + offset`` on they are as `answers` say."""

    question: AtMost
    sign: int
    offset: IndexExpr
    answers: dict[Hashable, bool]


def parts_of(values: Values, t: Loop) -> list[Span] | None:
    """The parts of a loop of a schedule; None where it stays whole."""
    if not values.f.program.compared:
        return None
    bodies: list[Body] = []
    for x in t.body:
        match x:
            case Leaf():
                bodies.append(Body(t.var, x.stmt.term, x.env))
            case Guard() if all(isinstance(y, Leaf) for y in (*x.body, *x.other)):
                pass  # what stands under a condition may know answers, but asks for none by itself
            case _:
                return None
    return parts(values, t.var, t.lows, t.highs, bodies, {leaf.stmt.array for leaf, _ in leaves(t.body)})


def parts(
    values: Values, var: str, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], bodies: Sequence[Body],
    written: Collection[str] = (),
) -> list[Span] | None:  # fmt: skip
    """The parts of a loop that computes some terms, and writes some arrays; None where it stays whole."""
    code, found = values.code, _Found()
    if not values.f.program.compared:
        return None
    for b in bodies:
        x = IndexExpr.of(b.var)
        with code.supposing((*(Con(x - e) for e in lows), *(Con(e - x) for e in highs))):
            _look(values, b, b.term, found, always=True)
    if not found.plain:
        return None
    groups = list(_grouped(values, found, written, [Con(h - e) for h in highs for e in lows]))
    if not groups:
        return None
    whole = code.span(lows, highs)
    out = [replace(whole, facts=dict.fromkeys(_note(values, whole, found, groups), True))]
    for group in groups:
        if len(out) * (len(group) + 1) <= MOST:
            out = [new for old in out for new in _divided(values, old, whole, lows, highs, group)]
    return out if len(out) > 1 else None


# -- what is asked ------------------------------------------------------------------------------------------------------
def _look(values: Values, b: Body, t: Term, found: _Found, *, always: bool) -> None:
    """Add what a term asks."""
    stack: list[tuple[Term, bool]] = [(t, always)]
    while stack and found.plain:
        t, sure = stack.pop()
        match t:
            case Apply(_, _, args):
                if (q := values.known.asked(t, b.env)) is not None:
                    (found.always if sure else found.others).append((b.var, q))
                stack += [(a, sure) for a in args]
            case Convert(_, arg) | Entry(_, _, arg):
                stack.append((arg, sure))
            case Choice(_, cases):
                stack += [(v, False) for _, v in cases]
            case Fold(_, _, parts):
                for p in parts:
                    _look_part(values, b, t, p, found, always=sure)
            case _:
                pass


def _look_part(values: Values, b: Body, t: Fold, p: Part, found: _Found, *, always: bool) -> None:
    """Add what a part of a fold asks, if it has no loop."""
    new, chosen = values.matched(t, p)
    if len(chosen) != len(new.dims):
        found.plain = False
        return
    cons = values.at(new.cons, b.env)
    sure = always and not p.guards
    for at, d in enumerate(new.dims):
        m = chosen[d]
        lows, highs = values.f.limits(cons, new.dims[at:])
        for q in values.known.picked(m, lows, highs, b.env) or ():
            (found.always if sure else found.others).append((b.var, q))
        if m.total is not None:
            found.chosen.append(_Chosen(b, m, lows, highs))
        sure = False
    _look(values, b, new.body, found, always=sure)


# -- where it changes ---------------------------------------------------------------------------------------------------
def _grouped(values: Values, found: _Found, written: Collection[str], inside: Sequence[Con]) -> Iterator[list[_Place]]:
    """The places at which a loop may be divided, by values: each list in the order of the places."""
    groups: dict[tuple[Hashable, int], list[_Place]] = {}
    for n, (var, q) in enumerate((*found.always, *found.others)):
        k = dict(q.index.terms).get((Var(var),), 0)
        rest = q.index - IndexExpr.of(var) * k
        names = {m for e in names_in(q.value) for m in values.known.plain(IndexExpr.of(e), q.env).names}
        outside = all(values.code.scope.find(IndexExpr.of(m)) is not None for m in (rest.names | names) - {var})
        if abs(k) != 1 or var in rest.names or var in names or not outside or arrays_in(q.value) & set(written):
            continue
        # ``value <= x + rest`` holds from ``value - rest`` on, ``value <= rest - x`` before ``rest - value + 1``.
        place = _Place(q, k, -rest if k > 0 else rest + 1, {q.key: k > 0})
        group = groups.get((q.of, k))
        if group is None and n >= len(found.always):
            continue
        _insert(values, groups.setdefault((q.of, k), []), place, inside)
    yield from (g for g in groups.values() if g)


def _insert(values: Values, group: list[_Place], new: _Place, inside: Sequence[Con]) -> None:
    """Put a place where it belongs, if that is known."""
    context = (*values.code.scope.context, *inside)
    for at, p in enumerate(group):
        d = new.offset - p.offset
        if d.constant == 0:
            p.answers.update(new.answers)
            return
        if values.lin.implies(context, Con(-d)):
            group.insert(at, new)
            return
        if not values.lin.implies(context, Con(d)):
            return
    group.append(new)


# -- the parts ----------------------------------------------------------------------------------------------------------
def _divided(
    values: Values, part: Span, whole: Span, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], group: Sequence[_Place]
) -> Iterator[Span]:
    """A part of a loop at places in their order."""
    code = values.code
    near = all(p.sign > 0 and values.lin.plain(p.offset).constant == 0 for p in group)
    value = _value(values, whole, lows, highs, group[0].question, near=near)
    ends = [part.first]
    for p in group:
        offset = values.lin.plain(p.offset)
        at = value
        if p.sign < 0 or offset.constant != 0:
            at = code.add((arith.AddiOp if p.sign > 0 else arith.SubiOp)(code.index(offset), value))
        ends.append(code.add(arith.MaxSIOp(code.add(arith.MinSIOp(at, part.behind)), ends[-1])))
    for n, (first, behind) in enumerate(pairwise([*ends, part.behind])):
        facts = dict(part.facts)
        for k, p in enumerate(group):
            facts.update({q: yes is (k < n) for q, yes in p.answers.items()})
        yield Span(first, behind, facts)


def _value(
    values: Values, whole: Span, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], q: AtMost, *, near: bool
) -> SSAValue:  # fmt: skip
    """A value of data, as an index that is not far, unless nothing is added (`near`); it is read only where the loop has an
    iteration."""
    code = values.code

    def read() -> SSAValue:
        x = values.value(q.value, q.env)
        if not near:
            x = code.add(arith.MinSIOp(code.add(arith.MaxSIOp(x, code.constant(-FAR, i64))), code.constant(FAR, i64)))
        return code.add(arith.IndexCastOp(x, INDEX))

    if all(values.lin.implies(code.scope.context, Con(h - e)) for h in highs for e in lows):
        return read()
    some = code.add(arith.CmpiOp(whole.first, whole.behind, "slt"))
    none = code.constant(0, INDEX)
    (out,) = code.when(some, tuple(Con(h - e) for h in highs for e in lows), [INDEX], lambda: [read()], lambda: [none])
    return out


def _note(values: Values, whole: Span, found: _Found, groups: Sequence[Sequence[_Place]]) -> list[Hashable]:
    """Note an overflow of the sums that no part computes any more: they are least and greatest at the ends of loops."""
    code = values.code
    asked = {key for g in groups for p in g for key in p.answers}
    compared = ((v, q) for v, q in (*found.always, *found.others) if q.total is not None and q.key in asked)
    sums = {(v, values.known.same(q.total, q.env)): (v, q.total, q.env) for v, q in compared if q.total is not None}
    chosen = [c for c in found.chosen if not any(c.body.var in e.names for e in (*c.lows, *c.highs))]
    if not sums and not chosen:
        return []

    def write() -> Sequence[SSAValue]:
        for at in (whole.first, code.add(arith.SubiOp(whole.behind, code.constant(1, INDEX)))):
            for var, total, env in sums.values():
                with code.apart({var: at}):
                    values.note(total, env)
            for c in chosen:
                with code.apart({c.body.var: at}):
                    values.note_chosen(c.match, c.lows, c.highs, c.body.env)
        return ()

    code.when(code.add(arith.CmpiOp(whole.first, whole.behind, "slt")), (), (), write)
    return [noted(c.match) for c in chosen]


def in_parts(
    values: Values, var: str, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], start: Sequence[SSAValue],
    bodies: Sequence[Body], write: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
) -> Sequence[SSAValue]:  # fmt: skip
    """A loop that hands values on (`Code.loop`), in parts where it computes terms that data let be divided."""
    for part in parts(values, var, lows, highs, bodies) or [None]:
        start = values.code.loop(var, lows, highs, start, write, part)
    return start
