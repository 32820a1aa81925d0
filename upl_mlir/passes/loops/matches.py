# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Summands that count at one index only, which data say: a loop with a comparison inside that need not be a loop.

    max[(Col<i,p> == j ? X<j> : -inf) for j in 0..n-1]      is  X<Col<i,p>> where that is an element: an element is read
    S<j> = +[(Dst<e> == j ? V<e> : -0.0) for e in 0..m-1]   is  S<Dst<e>> += V<e> for all e: an element is added to
    S<j> = +[(i + W == j ? V<i> : -0.0) for i in 0..m-1]    is  V<j-W> where that is an element: an element is read

Equations and schedules keep the comparison, so that all that is asked of them holds as it stands; what writes the code
(`emit/values.py`, `emit/scatter.py`) takes the iterator, or the field, for what it is compared with.  Such a comparison is
made by `if-convert` with `compared`, but any program may have one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.dialects.upl import Gather, NodeOp, SendOp
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.precision import resolve
from upl_mlir.passes.loops.terms import (
    Apply,
    Fold,
    IndexValue,
    Number,
    Part,
    Term,
    alike,
    inner_first,
    made_of,
    names_in,
    remade,
    under,
)
from upl_mlir.poly.expr import IndexExpr, Var

EQUAL, LESS, AT_MOST = 0, 2, 3
"""The predicates `eq`, `slt` and `sle` of `arith.cmpi`."""


@dataclass(frozen=True, eq=False)
class Match:
    """``name`` is ``sign * (value - rest)`` wherever a summand counts.

    `total` is the sum of the name and the value that is compared, where it is not the value that is.
    """

    name: str
    sign: int
    rest: IndexExpr
    value: Term
    total: Apply | None = None


def taken(fold: Fold, part: Part, names: Collection[str]) -> tuple[Part, tuple[Match, ...]]:
    """A part without the comparisons that say what some of `names` are, and these, those that others need first."""
    found: list[Match] = []
    while True:
        got = _one(fold, part, [n for n in names if all(m.name != n for m in found)])
        if got is None:
            break
        found.append(got[1])
        part = got[0]
    return part, tuple(_in_order(found))


def added_to(fold: Fold, part: Part, names: Collection[str]) -> tuple[Match, ...]:
    """What data say of some names, the fields of a gather's element; nothing where its iterators follow from these: then
    elements are read, and none is added to."""
    found = taken(fold, part, names)[1]
    if not found:
        return ()
    rest, mine = taken(fold, part, part.dims)
    return found if not mine or taken(fold, rest, names)[1] else ()


def settled(fold: Fold, part: Part) -> Part:
    """A part without comparisons of indices that say what an iterator is: it has no loop then, or one less."""
    while True:
        body = part.body
        if not isinstance(body, Apply) or not isinstance(body.op, arith.SelectOp) or not is_neutral(body.args[2], fold):
            return part
        joined = list(conjuncts(body.args[0]))
        found = next(((at, d, e) for at, c in enumerate(joined) for d, e in _static(c, part.dims)), None)
        if found is None:
            return part
        at, d, value = found
        rest = joined[:at] + joined[at + 1 :]
        new = _where(body, rest)
        names = {d: value}
        part = Part(
            tuple(x for x in part.dims if x != d), tuple(c.substitute(names) for c in part.cons), under(new, names),
            tuple(tuple(c.substitute(names) for c in g) for g in part.guards),
        )  # fmt: skip


def _static(t: Term, dims: Collection[str]) -> Iterator[tuple[str, IndexExpr]]:
    """What an equality of two indices says of an iterator."""
    match t:
        case Apply(_, arith.CmpiOp() as asks, (IndexValue(a), IndexValue(b))) if asks.predicate.value.data == EQUAL:
            e = a - b
            for d in dims:
                k = dict(e.terms).get((Var(d),), 0)
                rest = e - IndexExpr.of(d) * k
                if abs(k) == 1 and d not in rest.names:
                    yield d, rest * -k
        case _:
            return


def _in_order(found: list[Match]) -> list[Match]:
    """Each behind those whose names its value has; of a ring of such, none that has one is taken."""
    out: list[Match] = []
    left = list(found)
    while left:
        free = [m for m in left if not names_in(m.value) & {o.name for o in left if o is not m}]
        if not free:
            break
        out += free
        left = [m for m in left if m not in free]
    return out


def _one(fold: Fold, part: Part, names: Collection[str]) -> tuple[Part, Match] | None:
    body = part.body
    if not isinstance(body, Apply) or not isinstance(body.op, arith.SelectOp):
        return None
    cond, _, no = body.args
    if not is_neutral(no, fold):
        return None
    joined = list(conjuncts(cond))
    for at, c in enumerate(joined):
        match = _match(c, names)
        if match is None:
            continue
        rest = joined[:at] + joined[at + 1 :]
        new = _where(body, rest)
        if match.total is not None:
            new = _knowing(new, match)
        return replace(part, body=new), match
    return None


def _knowing(whole: Term, m: Match) -> Term:
    """A term in which the sum that is compared is the index to which it is equal."""
    memo: dict[Term, Term] = {}
    assert m.total is not None
    index = IndexValue(index_and_value(m.total)[0] + m.rest + IndexExpr.of(m.name) * m.sign)
    for t in inner_first(whole, made_of):
        if t.kind is m.total.kind and alike(t, m.total):
            memo[t] = index
            continue
        memo[t] = new = remade(t, memo, lambda g: g)
        if isinstance(new, Fold):
            memo[t] = replace(new, parts=tuple(_settled_inside(new, p) for p in new.parts))
    return memo[whole]


def _settled_inside(fold: Fold, part: Part) -> Part:
    """`settled` inside of a summand, where what is asked of an iterator that is gone is a condition."""
    new = settled(fold, part)
    gone = set(part.dims) - set(new.dims)
    return part if not gone else replace(new, cons=(), guards=new.guards or (new.cons,))


def _where(choice: Apply, conditions: list[Term]) -> Term:
    """A choice under these conditions in place of its own; what it gives if there are none."""
    if not conditions:
        return choice.args[1]
    both = conditions[0]
    for c in conditions[1:]:
        both = Apply(Kind.BOOL, _AND, (both, c))
    return Apply(choice.kind, choice.op, (both, *choice.args[1:]))


def conjuncts(t: Term) -> Iterator[Term]:
    """The truth values all of which are true if a term is."""
    if isinstance(t, Apply) and isinstance(t.op, arith.AndIOp):
        for a in t.args:
            yield from conjuncts(a)
    else:
        yield t


def _match(t: Term, names: Collection[str]) -> Match | None:
    """What an equality says of one of the names."""
    if not isinstance(t, Apply) or not isinstance(t.op, arith.CmpiOp) or t.op.predicate.value.data != EQUAL:
        return None
    for index, compared in (t.args, t.args[::-1]):
        if not isinstance(index, IndexValue) or isinstance(compared, Number | IndexValue):
            continue
        beside, value = index_and_value(compared)
        e = index.e - beside
        total = compared if value is not compared and isinstance(compared, Apply) else None
        for name in names:
            k = dict(e.terms).get((Var(name),), 0)
            rest = e - IndexExpr.of(name) * k
            if abs(k) == 1 and name not in rest.names and name not in names_in(value):
                return Match(name, k, rest, value, total)
    return None


def index_and_value(t: Term) -> tuple[IndexExpr, Term]:
    """The index and the value that are added, of which an integer term is the sum; no index where it is no such sum."""
    match t:
        case Apply(Kind.INT, arith.AddiOp(), (IndexValue(e), value) | (value, IndexValue(e))):
            pass
        case Apply(Kind.INT, arith.AddiOp(), (Number(_, n), value) | (value, Number(_, n))):
            e = IndexExpr.of(int(n))
        case Apply(Kind.INT, arith.SubiOp(), (value, IndexValue(f))):
            e = -f
        case Apply(Kind.INT, arith.SubiOp(), (value, Number(_, n))):
            e = IndexExpr.of(-int(n))
        case _:
            return IndexExpr(), t
    return (IndexExpr(), t) if isinstance(value, Number | IndexValue) else (e, value)


def is_neutral(t: Term, fold: Fold) -> bool:
    """Whether a term leaves every summand as it is."""
    if not isinstance(t, Number):
        return False
    if fold.kind.is_float:
        return repr(float(t.value)) == repr(float(fold.gather.neutral))
    return int(t.value) == fold.gather.empty_integer()


def between(t: Term) -> tuple[Term, IndexExpr, IndexExpr] | None:
    """The value, and the bounds, both included, if a term asks whether it lies between indices."""
    match t:
        case Apply(
            _, arith.AndIOp(), (Apply(_, arith.CmpiOp() as least, (low, x)), Apply(_, arith.CmpiOp() as most, (y, end)))
        ):
            pass
        case _:
            return None
    if (least.predicate.value.data, most.predicate.value.data) != (AT_MOST, LESS) or not alike(x, y):
        return None
    low, end = (IndexExpr.of(int(e.value)) if isinstance(e, Number) else e.e if isinstance(e, IndexValue) else None
                for e in (low, end))  # fmt: skip
    return None if low is None or end is None else (x, low, end - 1)


def few(t: Term) -> bool:
    """Whether the values of an integer term are 0 and 1, so that no sum of them overflows."""
    match t:
        case Number(_, value):
            return value in (0, 1)
        case Apply(_, arith.SelectOp(), (_, yes, no)):
            return few(yes) and few(no)
        case _:
            return False


def searches(t: Term, fields: Collection[str]) -> bool:
    """Whether a term of an element looks through summands for those whose index is one of its fields."""
    folds = [x for x in inner_first(t, made_of) if isinstance(x, Fold)]
    return any(p.dims and added_to(x, p, fields) for x in folds for p in x.parts)


# -- the same in the body of a node, before there are terms ----------------------------------------------------------------
def compared_fields(send: SendOp, gather: Gather | None) -> frozenset[str]:
    """The fields of an arrow's source that its value compares with data, to send what changes nothing elsewhere."""
    node, v = send.parent_op(), resolve(send.value)
    if gather is None or not isinstance(node, NodeOp) or not isinstance(v.owner, arith.SelectOp):
        return frozenset()
    cond, _, no = (resolve(o) for o in v.owner.operands)
    if not _neutral_value(no, gather):
        return frozenset()
    out: set[str] = set()
    todo = [cond]
    while todo:
        c = todo.pop()
        if isinstance(c.owner, arith.AndIOp):
            todo += map(resolve, c.owner.operands)
        elif isinstance(c.owner, arith.CmpiOp) and c.owner.predicate.value.data == EQUAL:
            a, b = map(resolve, c.owner.operands)
            for x, y in ((a, b), (b, a)):
                if isinstance(x, BlockArgument) and x.index < len(node.fields) and not _reads(y, x):
                    out.add(node.fields[x.index])
                    break
    return frozenset(out)


def _neutral_value(v: SSAValue, gather: Gather) -> bool:
    if not isinstance(v.owner, arith.ConstantOp):
        return False
    value = v.owner.value
    if isinstance(value, FloatAttr):
        return repr(value.value.data) == repr(float(gather.neutral))
    assert isinstance(value, IntegerAttr)
    return value.value.data == gather.empty_integer()


def _reads(v: SSAValue, arg: SSAValue) -> bool:
    """Whether a value is computed from another one, or from nothing but numbers and fields."""
    seen = inner_first(v, lambda w: [resolve(o) for o in w.owner.operands] if isinstance(w.owner, Operation) else [])
    data = any(isinstance(w, BlockArgument) and not _is_field(w) for w in seen)
    return arg in seen or not data


def _is_field(w: BlockArgument) -> bool:
    node = w.block.parent_op()
    return isinstance(node, NodeOp) and w.index < len(node.fields)


_AND = arith.AndIOp(arith.ConstantOp(IntegerAttr(1, 1)), arith.ConstantOp(IntegerAttr(1, 1)))
"""An operation to make terms of."""
