# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false
# (xDSL leaves the types of attributes and results open)
"""Whether the integer divisions and the entries of arrays in bodies have values, where these are computed.

Bodies compute what is chosen only (`ops.choices`).  Divisors and entries that data decide are left to the engines, which
look at each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i1, i64
from xdsl.ir import Operation, SSAValue

from upl_mlir.dialects.upl import ArrayOp, InputOp, LookupOp, ModOp, NodeOp, RefOp
from upl_mlir.dialects.upl.precision import resolve
from upl_mlir.dialects.upl.query import Endpoint, array_values, first_index, span_of
from upl_mlir.ops.choices import Case, Needs
from upl_mlir.passes.analysis.defined import Place, Site, instances, settled
from upl_mlir.passes.analysis.entries import knows
from upl_mlir.passes.analysis.obligations import Kind, Obligation, Status, instance
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.poly.expr import FALSE, TRUE, Div, Formula, IndexExpr, Lookup, Select, divide, extremum
from upl_mlir.poly.operators import CmpOp, DivKind, Extremum

T = TypeVar("T")

MOST_PARTS = 100
"""Values of so many operations are looked at as expressions over the fields; larger ones count as data. Chosen."""

_DIVISIONS: Mapping[type[Operation], DivKind] = {
    arith.FloorDivSIOp: DivKind.FLOORDIV, arith.CeilDivSIOp: DivKind.CEILDIV, ModOp: DivKind.MOD,
}  # fmt: skip
_TESTS = (CmpOp.EQ, CmpOp.NE, CmpOp.LT, CmpOp.LE, CmpOp.GT, CmpOp.GE)  # the signed predicates of `arith.cmpi`, in order


def of_bodies(sets: ProgramSets, left_out: Callable[[Endpoint], bool] = lambda _: False) -> Iterator[Obligation]:
    """One obligation for each division by a divisor that is no number, and for each entry that may not exist."""
    arrays = {op.symbol: op for op in sets.program.body.block.ops if isinstance(op, ArrayOp)}
    for op in sets.ends.values():
        if not isinstance(op, NodeOp | InputOp) or left_out(op) or not any(map(_is_asked, op.block.ops)):
            continue
        found = [(at, case) for at, case in Needs(op.block, arrays).fragile() if _is_asked(at)]
        values = _Static(op)
        places = _Places(instances(sets, op), values)
        yield from settled(_divisions(found, values, places), op, op.symbol, span_of(op), None)
        yield from _entries(op, found, values, places, arrays)


def _is_asked(op: Operation) -> bool:
    return type(op) in _DIVISIONS or isinstance(op, LookupOp)


def _divisions(found: list[tuple[Operation, Case]], values: _Static, places: _Places) -> Iterator[Site]:
    for at, case in found:
        if type(at) in _DIVISIONS:
            den = values.integer(at.operands[1])
            if den is not None and not places.all.points.ctx.number(den):
                num = values.integer(at.operands[0]) or IndexExpr.of(values.called(at.operands[0]))
                yield Div(_DIVISIONS[type(at)], num, den), places.of(case)


def _entries(
    op: NodeOp | InputOp, found: list[tuple[Operation, Case]], values: _Static, places: _Places,
    arrays: Mapping[str, ArrayOp],
) -> Iterator[Obligation]:  # fmt: skip
    told: dict[Lookup, Status] = {}
    for at, case in found:
        index = values.integer(at.at) if isinstance(at, LookupOp) else None
        if index is None or not knows(places.all.points, index.names):  # by data: each engine looks when they are there
            continue
        assert isinstance(at, LookupOp)
        entry, place = Lookup(at.symbol.root_reference.data, index), places.of(case)
        low, high = _bounds(arrays[entry.array])
        outside = place.points.constrain((Formula.compare(low, "<=", index) & Formula.compare(index, "<=", high)).negate())
        if told.get(entry) is Status.REFUTED or outside.is_empty():
            continue
        point = outside.sample() if place.sure else None
        status = Status.UNPROVED if point is None else Status.REFUTED
        if told.get(entry) is status:
            continue
        told[entry] = status
        message = f"cannot show that `{entry}` exists where it is read"
        if point is not None:
            message = f"{instance(op, point)} reads `{entry}`, which does not exist"
        yield Obligation(Kind.DEFINED, status, op.symbol, message, span_of(op), None, point)


def _bounds(array: ArrayOp) -> tuple[IndexExpr, IndexExpr]:
    if array.symbolic:
        return array.lower.data, array.upper.data
    low = first_index(array)
    return IndexExpr.of(low), IndexExpr.of(low + len(array_values(array)) - 1)


@dataclass
class _Places:
    """Where cases are, among `all` instances."""

    all: Place
    values: _Static
    found: dict[Case, tuple[Formula, bool]] = field(default_factory=dict[Case, tuple[Formula, bool]])

    def of(self, case: Case) -> Place:
        """The instances in a case."""
        where, sure = self._case(case)
        return Place(self.all.points.constrain(where), self.all.sure and sure)

    def _case(self, case: Case) -> tuple[Formula, bool]:
        """The condition of a case, without what data decide, and whether it is all that is asked."""
        todo = [case]
        while todo:
            c = todo[-1]
            inner = [x for x in (*c.any_of, c.above) if x is not None and x not in self.found]
            if inner:
                todo += inner
                continue
            todo.pop()
            where, sure = (TRUE, True) if c.above is None else self.found[c.above]
            if c.any_of:
                where &= Formula.any(self.found[x][0] for x in c.any_of)
                sure = sure and all(self.found[x][1] for x in c.any_of)
            asked = None if c.asked is None else self.values.truth(c.asked)
            parts = [c.when] if c.asked is None else [] if asked is None else [asked if c.yes else asked.negate()]
            known = [f for f in parts if knows(self.all.points, f.names)]
            self.found[c] = Formula.all((where, *known)), sure and len(known) == 1
        return self.found[case]


class _Static:
    """The values of a body that are expressions over fields, parameters and constants."""

    def __init__(self, op: NodeOp | InputOp):
        self._integers: dict[SSAValue, IndexExpr] = {
            arg: IndexExpr.of(name) for arg, name in zip(op.block.args, op.fields, strict=False)
        }
        self._truths: dict[SSAValue, Formula] = {}
        self._parts: dict[SSAValue, int] = {}
        for o in op.block.ops:
            if len(o.results) == 1:
                v = o.results[0]
                self._parts[v] = 1 + sum(self._parts.get(resolve(x), 1) for x in o.operands)
                if self._parts[v] > MOST_PARTS:
                    continue
                if v.type == i64 and (e := self._of(o)) is not None:
                    self._integers[v] = e
                elif v.type == i1 and (f := self._condition(o)) is not None:
                    self._truths[v] = f

    def integer(self, v: SSAValue) -> IndexExpr | None:
        """An integer as an expression; None for data."""
        return self._integers.get(resolve(v))

    def truth(self, v: SSAValue) -> Formula | None:
        """A truth value as a condition; None for data."""
        return self._truths.get(resolve(v))

    @staticmethod
    def called(v: SSAValue) -> str:
        """What a value is called in messages."""
        return v.name_hint or "…"

    def _of(self, op: Operation) -> IndexExpr | None:
        match op:
            case arith.ConstantOp():
                assert isinstance(op.value, IntegerAttr)
                return IndexExpr.of(op.value.value.data)
            case RefOp():
                return IndexExpr.of(op.symbol.root_reference.data)
            case arith.ExtUIOp():
                c = self.truth(op.operands[0])
                return None if c is None else IndexExpr.of(Select(c, IndexExpr.of(1), IndexExpr.of(0)))
            case arith.SelectOp():
                c, yes, no = self.truth(op.cond), self.integer(op.lhs), self.integer(op.rhs)
                return None if c is None or yes is None or no is None else IndexExpr.of(Select(c, yes, no))
            case _:
                pass
        match op, _all_known(map(self.integer, op.operands)):
            case LookupOp(), [at]:
                return IndexExpr.of(Lookup(op.symbol.root_reference.data, at))
            case arith.AddiOp(), [a, b]:
                return a + b
            case arith.SubiOp(), [a, b]:
                return a - b
            case arith.MuliOp(), [a, b]:
                return a * b
            case (arith.MinSIOp() | arith.MaxSIOp()), [a, b]:
                return extremum(Extremum.MIN if isinstance(op, arith.MinSIOp) else Extremum.MAX, (a, b))
            case _, [a, b] if type(op) in _DIVISIONS:
                return divide(_DIVISIONS[type(op)], a, b)
            case _:
                return None

    def _condition(self, op: Operation) -> Formula | None:
        match op:
            case arith.ConstantOp():
                assert isinstance(op.value, IntegerAttr)
                return TRUE if op.value.value.data else FALSE
            case arith.CmpiOp() if op.predicate.value.data < len(_TESTS):
                a, b = self.integer(op.lhs), self.integer(op.rhs)
                return None if a is None or b is None else Formula.compare(a, _TESTS[op.predicate.value.data], b)
            case _:
                pass
        match op, _all_known(map(self.truth, op.operands)):
            case arith.AndIOp(), [a, b]:
                return a & b
            case arith.OrIOp(), [a, b]:
                return a | b
            case arith.XOrIOp(), [a, b]:
                return (a & b.negate()) | (a.negate() & b)
            case arith.SelectOp(), [c, a, b]:
                return (c & a) | (c.negate() & b)
            case _:
                return None


def _all_known(found: Iterable[T | None]) -> list[T]:
    """The operands, or none of them where one is data."""
    out = list(found)
    return [] if any(x is None for x in out) else [x for x in out if x is not None]
