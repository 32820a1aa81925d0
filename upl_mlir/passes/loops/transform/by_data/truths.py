# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Conditions that `if-convert` leaves: what is cheap is asked where it is needed, what is known is not asked, and what one
loop over the summands can ask is not asked in two.

    c<i,p>  = p < Count<i>
    fault   = ||[c<i,p> && !(0 <= p) for p; c<i,p> && bad<i,p> for p; bad<i,p> && c<i,p> && c<i,p> for p]
    ->
    fault   = ||[p < Count<i> && bad<i,p> for p]

Source: Boolean algebra (idempotence, complement), and the implication of linear constraints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr

from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.matches import is_neutral
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Apply,
    Fold,
    Get,
    IndexValue,
    Number,
    Part,
    Term,
    alike,
    inner_first,
    made_of,
    names_in,
    remade,
    rewritten,
    under,
)
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons, Linear

CHEAP = 3
"""Operations on integers and truth values that are done again, not kept in an array, at most.  Chosen, not measured."""
_EQ, _NE, _LESS, _AT_MOST, _MORE, _AT_LEAST = range(6)
"""The predicates of `arith.cmpi` on signed integers."""
_YES = {_EQ: True, _NE: False, _LESS: False, _AT_MOST: True, _MORE: False, _AT_LEAST: True}
"""What they say of equal values."""


def simplify_truths(system: System, *, counts: bool = False) -> bool:
    """Change the system; whether there was something to change.  With `counts`, numbers of values of an iterator that are
    less than a number are computed, not counted."""
    some = False
    while True:
        for eq in system.equations.values():
            if any(_truths(t) for _, term in eq.pieces for t in inner_first(term, made_of)):
                eq.pieces = [(cons, _Truths(system.lin, counts).new(term, cons)) for cons, term in eq.pieces]
                some = True
        if not _inline(system):
            return some


def _truths(t: Term) -> bool:
    """Whether a term joins or compares truth values."""
    return isinstance(t, Apply) and isinstance(t.op, arith.AndIOp | arith.OrIOp | arith.XOrIOp | arith.CmpiOp)


# -- arrays that are not worth it -------------------------------------------------------------------------------------------
def _inline(system: System) -> bool:
    """Read what elements are made of in place of elements, where that costs little, or is done as often."""
    once = _read_once(system)
    cheap: dict[str, tuple[Equation, Term]] = {}
    for name, eq in system.equations.items():
        if eq.output or len(eq.pieces) != 1:
            continue
        term = _alone(eq.pieces[0][1])
        inside = inner_first(term, made_of)
        hosts = all(t.array in system.hosts for t in inside if isinstance(t, Get))
        plain = eq.kind in (Kind.BOOL, Kind.INT) and all(isinstance(t, Number | IndexValue | Apply | Get) for t in inside)
        few = plain and hosts and sum(isinstance(t, Apply) for t in inside) <= CHEAP
        if few or (name in once and not isinstance(term, Fold)):
            cheap[name] = eq, term

    def read(g: Get) -> Term:
        found = cheap.get(g.array)
        if found is None:
            return g
        eq, term = found
        return under(term, dict(zip(eq.fields, g.index, strict=True)))

    reads = {g.array for _, t in cheap.values() for g in inner_first(t, made_of) if isinstance(g, Get)}
    for name in reads & cheap.keys():  # the next time
        del cheap[name]
    for name in cheap:
        del system.equations[name]
    for eq in system.equations.values():
        memo: dict[Term, Term] = {}
        eq.pieces = [(cons, rewritten(term, memo, read)) for cons, term in eq.pieces]
    return bool(cheap)


def _read_once(system: System) -> set[str]:
    """The arrays of which each element is read by one element of one other array, once, or by one summand of it."""
    reads: dict[str, list[bool]] = {}

    def look(eq: Equation, term: Term, names: tuple[str, ...], depth: int) -> None:
        for t in inner_first(term, lambda t: () if isinstance(t, Fold) else made_of(t)):
            if isinstance(t, Get):
                each = sorted(map(str, t.index)) == sorted(names) and len(eq.pieces) == 1
                reads.setdefault(t.array, []).append(each and depth < 2)
            elif isinstance(t, Fold):
                for p in t.parts:
                    look(eq, p.body, (*names, *p.dims), depth + 1)

    for eq in system.equations.values():
        for _, term in eq.pieces:
            look(eq, term, eq.fields, 0)
    return {array for array, found in reads.items() if found == [True]}


def _alone(t: Term) -> Term:
    """A term; of a gather of one summand, this."""
    while isinstance(t, Fold) and len(t.parts) == 1 and _once(t.parts[0]):
        t = t.parts[0].body
    return t


def _once(p: Part) -> bool:
    return not (p.dims or p.cons or p.guards)


# -- what is known ------------------------------------------------------------------------------------------------------
class _Truths:
    """Writes terms of one piece of an equation."""

    def __init__(self, lin: Linear, counts: bool):
        self.lin, self.counts = lin, counts

    def new(self, whole: Term, cons: Cons) -> Term:
        """A term that stands where constraints hold, by the same terms or simpler ones."""
        memo: dict[Term, Term] = {}
        for t in inner_first(whole, lambda t: () if isinstance(t, Fold) else made_of(t)):
            if isinstance(t, Fold):
                memo[t] = self._fold(t, cons)
            else:
                memo[t] = self._simpler(remade(t, memo, lambda g: g), cons)
        return memo[whole]

    def _fold(self, t: Fold, cons: Cons) -> Term:
        parts = [replace(p, body=self.new(p.body, (*cons, *p.cons))) for p in t.parts]
        if t.gather is Gather.OR:
            parts = _joined([p for p in parts if _number(p.body) != 0])
            if not parts:
                return Number(Kind.BOOL, 0)
        t = replace(t, parts=tuple(parts))
        return _alone((self._counted(t) if self.counts else None) or self._asked_once(t) or t)

    def _asked_once(self, t: Fold) -> Term | None:
        """A condition of all summands alike is one of the fold: without it they leave a fold as it begins."""
        if len(t.parts) != 1 or not t.parts[0].dims:
            return None
        (p,) = t.parts
        if not isinstance(p.body, Apply) or not isinstance(p.body.op, arith.SelectOp) or not is_neutral(p.body.args[2], t):
            return None
        cond, yes, none = p.body.args
        if names_in(cond) & set(p.dims) or p.guards:
            return None
        empty = replace(t, parts=(replace(p, dims=(), cons=(), body=none),))
        fold = replace(t, parts=(replace(p, body=yes),))
        return replace(p.body, args=(cond, self._number_of(fold, p) or fold, none if t.count is None else empty))

    def _number_of(self, t: Fold, p: Part) -> Term | None:
        """How many summands there are, where each is 1."""
        if t.kind is not Kind.INT or t.gather is not Gather.SUM or len(p.dims) != 1:
            return None
        body = t.parts[0].body
        ends = self._ends(p)
        if not isinstance(body, Number) or body.value != 1 or ends is None:
            return None
        return Apply(Kind.INT, _GREATEST, (IndexValue(ends[1] - ends[0] + 1), Number(Kind.INT, 0)))

    def _ends(self, p: Part) -> tuple[IndexExpr, IndexExpr] | None:
        """The first and the last value of a part's one iterator, where two constraints say nothing else."""
        (d,) = p.dims
        ends = self.lin.exact_limits(p.cons, d, {n for c in p.cons for n in c.e.names} - {d})
        if ends is None or len(p.cons) != 2 or any(len(e) != 1 for e in ends):
            return None
        return ends[0][0], ends[1][0]

    def _counted(self, t: Fold) -> Term | None:
        """How many values of one iterator are less than a number, without counting."""
        if t.kind is not Kind.INT or t.gather is not Gather.SUM or len(t.parts) != 1:
            return None
        (p,) = t.parts
        if len(p.dims) != 1 or p.guards:
            return None
        match _bit(p.body):
            case Apply(_, arith.CmpiOp() as less, (IndexValue(e), x)) if less.predicate.value.data == _LESS:
                pass
            case _:
                return None
        d = p.dims[0]
        ends = self._ends(p)
        if e != IndexExpr.of(d) or ends is None or d in names_in(x):
            return None
        low, behind = IndexValue(ends[0]), IndexValue(ends[1] + 1)
        upper = Apply(Kind.INT, _LEAST, (x, behind))
        inside = Apply(Kind.INT, _GREATEST, (upper, low))
        return inside if ends[0].constant == 0 else Apply(Kind.INT, _MINUS, (inside, low))

    def _simpler(self, t: Term, cons: Cons) -> Term:
        match t:
            case Apply(_, arith.AndIOp() | arith.OrIOp(), _):
                return self._all(t)
            case Apply(_, arith.XOrIOp(), (a, b)) if t.kind is Kind.BOOL and _number(b) == 1:
                return _negated(a) or t
            case Apply(_, arith.CmpiOp() as asks, (a, b)):
                return self._compared(t, asks.predicate.value.data, a, b, cons)
            case Apply(_, arith.MaxSIOp(), (a, b)):
                left, right = _index(a), _index(b)
                if _bit(a) is not None and right == IndexExpr.of(0):
                    return a
                more = left is not None and right is not None and self.lin.implies(cons, Con(left - right))
                return a if more else t
            case Apply(_, arith.SelectOp(), (c, yes, no)):
                known = _number(c)
                taken, other = (yes, no) if known else (no, yes)
                return self._chosen(t, c, yes, no) if known is None or not _quiet(other) else taken
            case _:
                return t

    def _chosen(self, t: Apply, c: Term, yes: Term, no: Term) -> Term:
        """A choice that does not ask again what it knows, nor for the opposite."""
        other = _negated(c)
        if other is not None:
            return self._chosen(replace(t, args=(other, no, yes)), other, no, yes)
        inner = [_known(x, c, at) for x, at in ((yes, 1), (no, 2))]
        return t if inner == [yes, no] else replace(t, args=(c, *inner))

    def _all(self, t: Apply) -> Term:
        """A conjunction, or a disjunction, without what is said twice."""
        both = isinstance(t.op, arith.AndIOp)
        joins: type[arith.AndIOp | arith.OrIOp] = arith.AndIOp if both else arith.OrIOp
        kept: list[Term] = []
        terms = list(_joined_by(t, joins))
        quiet = all(map(_quiet, terms))
        for x in terms:
            n = _number(x)
            if n is not None and n == (0 if both else 1):
                return Number(Kind.BOOL, n) if quiet else t
            if n is None and not any(_same(x, y) for y in kept):
                kept.append(x)
        if quiet and any(_same(y, n) for x in kept if (n := _negated(x)) is not None for y in kept):
            return Number(Kind.BOOL, 0 if both else 1)
        return _only(t, joins, kept) or Number(Kind.BOOL, 1 if both else 0)

    def _compared(self, t: Apply, asks: int, a: Term, b: Term, cons: Cons) -> Term:
        """A comparison of integers; a number where the answer is known."""
        x, y = _bit(a), _bit(b)
        if x is not None and asks in (_EQ, _NE) and isinstance(b, Number) and b.value in (0, 1):
            if (b.value == 1) is (asks == _EQ):
                return x
            return _negated(x) or Apply(Kind.BOOL, _NOT, (x, Number(Kind.BOOL, 1)))
        same = alike(a, b) or (x is not None and y is not None and _same(x, y))
        if asks in _YES and same and _quiet(a) and _quiet(b):
            return Number(Kind.BOOL, int(_YES[asks]))
        if isinstance(a, Apply) and isinstance(a.op, arith.SelectOp) and _quiet(a):
            yes, no = (_number(self._compared(t, asks, x, b, cons)) for x in a.args[1:])
            if yes is not None and no is not None and yes != no:
                return a.args[0] if yes else _negated(a.args[0]) or Apply(Kind.BOOL, _NOT, (a.args[0], Number(Kind.BOOL, 1)))
        if asks == _EQ and (most := self._fits(a, b, cons)) is not None:
            return Apply(Kind.BOOL, _FITS, most)
        left, right = _index(a), _index(b)
        if left is None or right is None or asks not in _YES:
            return t
        e = self.lin.plain(left - right)
        if any(n not in _names(cons) and n not in self.lin.ctx.params for n in e.names):
            return t
        if asks == _NE:
            return _negated(self._compared(t, _EQ, a, b, cons)) or t
        holds = {_EQ: Con(e, True), _LESS: Con(-e - 1), _AT_MOST: Con(-e), _MORE: Con(e - 1), _AT_LEAST: Con(e)}.get(asks)
        if holds is not None and self.lin.implies(cons, holds):
            return Number(Kind.BOOL, 1)
        if holds is not None and not self.lin.feasible((*cons, holds)):
            return Number(Kind.BOOL, 0)
        return t

    def _fits(self, a: Term, b: Term, cons: Cons) -> tuple[Term, Term] | None:
        """``max(min(x, u), 0) == max(x, 0)`` is ``x <= u`` where u is at least 0."""
        match a, b:
            case Apply(_, arith.MaxSIOp(), (Apply(_, arith.MinSIOp(), (x, u)), low)), Apply(_, arith.MaxSIOp(), (y, zero)):
                most, none = _index(u), IndexExpr.of(0)
                fits = alike(x, y) and _index(low) == none == _index(zero)
                return (x, u) if fits and most is not None and self.lin.implies(cons, Con(most)) else None
            case _:
                return None


_SURE = arith.SelectOp | arith.ExtUIOp | arith.MinSIOp | arith.MaxSIOp | arith.IndexCastOp
"""Operations on integers that do not overflow."""


def _names(cons: Cons) -> frozenset[str]:
    """What constraints speak of."""
    return frozenset(n for c in cons for n in c.e.names)


def _known(t: Term, c: Term, at: int) -> Term:
    """A term where a condition holds (`at` 1) or not (2)."""
    while isinstance(t, Apply) and isinstance(t.op, arith.SelectOp) and _same(t.args[0], c) and _quiet(t.args[3 - at]):
        t = t.args[at]
    return t


def _quiet(whole: Term) -> bool:
    """Whether a term may go unevaluated: no integer in it may overflow."""
    return all(
        not isinstance(t, Apply | Fold) or t.kind is not Kind.INT
        or (isinstance(t, Apply) and isinstance(t.op, _SURE))
        for t in inner_first(whole, made_of)
    )  # fmt: skip


def _same(a: Term, b: Term) -> bool:
    """Whether two conditions are made alike, the order of what they join aside."""
    if alike(a, b):
        return True
    ops: tuple[type[arith.AndIOp | arith.OrIOp], ...] = (arith.AndIOp, arith.OrIOp)
    for op in ops:
        if isinstance(a, Apply) and isinstance(b, Apply) and isinstance(a.op, op) and isinstance(b.op, op):
            x, y = list(_joined_by(a, op)), list(_joined_by(b, op))
            return all(any(alike(p, q) for q in y) for p in x) and all(any(alike(p, q) for q in x) for p in y)
    return False


def _negated(t: Term) -> Term | None:
    """The other truth value, if there is a term for it that is no longer."""
    n = _number(t)
    if n is not None:
        return Number(Kind.BOOL, 1 - n)
    match t:
        case Apply(_, arith.XOrIOp(), (a, b)) if _number(b) == 1:
            return a
        case _:
            return None


def _number(t: Term) -> int | None:
    """The truth value that a term is."""
    return int(t.value) & 1 if isinstance(t, Number) and t.kind is Kind.BOOL else None


def _index(t: Term) -> IndexExpr | None:
    """The index that an integer term is."""
    if isinstance(t, Number):
        return IndexExpr.of(int(t.value))
    return t.e if isinstance(t, IndexValue) else None


def _bit(t: Term) -> Term | None:
    """The truth value that an integer, 0 or 1, stands for."""
    match t:
        case Apply(Kind.INT, arith.ExtUIOp(), (c,)):
            return c
        case Apply(Kind.INT, arith.SelectOp(), (c, Number(_, 1), Number(_, 0))):
            return c
        case _:
            return None


def _only(t: Term, op: type[arith.AndIOp | arith.OrIOp], kept: list[Term]) -> Term | None:
    """What is left of a term of those that it joins, which are to be kept once each; None if nothing is."""
    if isinstance(t, Apply) and isinstance(t.op, op):
        left, right = (_only(a, op, kept) for a in t.args)
        if left is None or right is None:
            return left or right
        return t if [left, right] == list(t.args) else replace(t, args=(left, right))
    if t not in kept:
        return None
    kept.remove(t)
    return t


def _joined_by(t: Term, op: type[arith.AndIOp | arith.OrIOp]) -> Iterator[Term]:
    if isinstance(t, Apply) and isinstance(t.op, op):
        for a in t.args:
            yield from _joined_by(a, op)
    else:
        yield t


# -- loops over the same summands ---------------------------------------------------------------------------------------
def _joined(parts: Sequence[Part]) -> list[Part]:
    """The parts of a disjunction, those over the same values as one."""
    out: list[Part] = []
    for p in parts:
        for n, q in enumerate(out):
            at = {d: IndexExpr.of(e) for d, e in zip(p.dims, q.dims, strict=False)}
            same = len(p.dims) == len(q.dims) and not p.guards and not q.guards
            if same and {c.substitute(at) for c in p.cons} == set(q.cons):
                body = under(p.body, at)
                said = any(_same(body, x) for x in _joined_by(q.body, arith.OrIOp))
                out[n] = q if said else replace(q, body=Apply(Kind.BOOL, _OR, (q.body, body)))
                break
        else:
            out.append(p)
    return out


_NOT = arith.XOrIOp(arith.ConstantOp(IntegerAttr(1, 1)), arith.ConstantOp(IntegerAttr(1, 1)))
_ONE = arith.ConstantOp(IntegerAttr(1, 64))
_LEAST, _GREATEST, _MINUS = arith.MinSIOp(_ONE, _ONE), arith.MaxSIOp(_ONE, _ONE), arith.SubiOp(_ONE, _ONE)
_FITS = arith.CmpiOp(_ONE, _ONE, "sle")
_OR = arith.OrIOp(arith.ConstantOp(IntegerAttr(1, 1)), arith.ConstantOp(IntegerAttr(1, 1)))
"""Operations to make terms of."""
