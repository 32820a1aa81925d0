# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Arrows whose index data decide: the token goes to a new node at each index that there could be, and only that one
with the right index sends it on.

    node S<i> { in v, c: int; v -> T.x<c> }
    ->
    node S { v -> S_to_T.v<i,j> for j in 0..n-1; c -> S_to_T.c<i,j> for j in 0..n-1 }
    node S_to_T<i,j> { in v, c: int; if c == j: v -> T.x<j> }

Then only conditions are decided by data.  A token whose index is in no instance would vanish: that is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import FormulaAttr, InputOp, NodeOp, Port, SendOp, UplType, port_ref
from upl_mlir.dialects.upl.attributes import Iterator
from upl_mlir.dialects.upl.query import ports_and_fields, span_of
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, points
from upl_mlir.passes.build import condition, index_value, unused
from upl_mlir.poly.describe import describe, interval
from upl_mlir.poly.expr import Formula, IndexExpr

OTHER_ENGINES = 'use engine="interp" or "token", which move tokens'


@dataclass(frozen=True, eq=False)
class Picked:
    """An arrow that was replaced: `picks` stands for its `source`, and sends what the arrow sent, in its place among the
    arrows of the program (`at`).  `bad` is 1 in an instance of `seen` that fired with an index that is none."""

    source: str
    picks: NodeOp
    at: int
    seen: NodeOp
    bad: SSAValue
    what: str
    origin: Operation


def static_indices(sets: ProgramSets) -> list[Picked]:
    """Replace all arrows whose index data decide, in place.

    Raises UplError UPL1821 where a field has no bounds."""
    used = ports_and_fields(sets.program) | {n for op in sets.ends.values() if isinstance(op, NodeOp) for n in _own(op)}
    return [_Indexed(sets, a, used).replaced(n) for n, a in enumerate(sets.arrows) if data_names(sets, a)]


def _own(op: NodeOp) -> list[str]:
    return [*op.fields, *(p.name for p in op.ports), *(it.name for s in op.sends for it in s.loops)]


def data_names(sets: ProgramSets, a: Arrow) -> list[str]:
    """The inputs of the source that an arrow's index has."""
    static = {*a.src, *a.loops, *sets.ctx.params, *sets.ctx.constants}
    names = {n for e in a.send.index.data if e is not None for n in e.names}
    return sorted(names - static)


def no_bounds(a: Arrow, name: str) -> UplError:
    """UPL1821 for a field that data choose without bounds."""
    what = f"data decide the index of {a.text}, and `{name}` of `{a.target.symbol}` has no bounds"
    return error("UPL1821", what, span_of(a.send), help=f"declare its domain, or {OTHER_ENGINES}")


class _Indexed:
    """One arrow that is replaced."""

    def __init__(self, sets: ProgramSets, a: Arrow, used: set[str]):
        self.sets, self.arrow, self.used = sets, a, used
        self.names = data_names(sets, a)
        send, target = a.send, a.target
        self.found = {
            n: unused(f, used)
            for n, (f, e) in enumerate(zip(target.fields, send.index.data, strict=True))
            if e is not None and e.names & set(self.names)
        }  # fmt: skip
        kept = [f for f, e in zip(target.fields, send.index.data, strict=True) if e is not None]
        self.inside = describe(sets.domain(target.symbol).project(kept))

    def index(self) -> tuple[IndexExpr | None, ...]:
        """The index with a field of the new node for each expression that has data."""
        return tuple(
            IndexExpr.of(self.found[n]) if n in self.found else e for n, e in enumerate(self.arrow.send.index.data)
        )

    def at(self, index: Sequence[IndexExpr | None]) -> Formula:
        """Whether the target has an instance there."""
        fields = self.arrow.target.fields
        return self.inside.substitute({f: e for f, e in zip(fields, index, strict=True) if e is not None})

    def ranges(self) -> tuple[Iterator, ...]:
        """The values that a field of the target has, for each expression that has data."""
        out: list[Iterator] = []
        a, target = self.arrow, self.arrow.target
        for n, name in self.found.items():
            got = interval(self.sets.domain(target.symbol), target.fields[n], ())
            if got is None:
                raise no_bounds(a, target.fields[n])
            out.append(Iterator(name, got[0].lo, got[0].hi))
        return tuple(out)

    def replaced(self, at: int) -> Picked:
        """The new node, and the one that looks whether the index is one."""
        a, send, program = self.arrow, self.arrow.send, self.sets.program
        source, target = a.source, a.target
        own = (*a.src, *a.loops)
        index = self.index()
        each, every = tuple(map(IndexExpr.of, own)), (*send.loops, *self.ranges())
        name = unused(f"{source.symbol}_to_{target.symbol}", self.used)
        value = unused("v", self.used)
        fields = (*own, *self.found.values())
        ports = [Port(value, a.port.type), *(Port(unused(n, self.used), UplType.INT) for n in self.names)]
        picks = NodeOp(name, fields, ports)
        sends = describe(self.sets.domain(source.symbol).as_meant()) & points(send)
        inside = send.when_point & self.at(index)
        picks.domain = FormulaAttr(Formula.all((sends, *map(_between, every[len(send.loops) :]), inside)))
        seen = NodeOp(unused(f"{source.symbol}_index", self.used), own,
                      [Port(unused(n, self.used), UplType.INT) for n in self.names])  # fmt: skip
        seen.domain = FormulaAttr(sends)
        block = program.body.block
        for node in (picks, seen):
            node.location = send.location
            block.add_op(node)
        sent = [(send.value, ports[0].name)]
        sent += [(self.input(source, n), p.name) for n, p in zip(self.names, ports[1:], strict=True)]
        for v, port in sent:
            self.send(source, v, name, port, (*each, *map(IndexExpr.of, self.found.values())), every, inside)
        for n, p in zip(self.names, seen.ports, strict=True):
            self.send(source, self.input(source, n), seen.symbol, p.name, each, send.loops, send.when_point)
        self.pick(picks, ports, index)
        body = Body(seen.block, send.location)
        names = dict(zip((*own, *self.names), seen.block.args, strict=True))
        here = condition(body, self.at(send.index.data), names)
        bad = body.add(arith.XOrIOp(here, body.constant(1, here.type)))
        send.detach()
        send.erase()
        what = f"a token of {a.text} goes to an index that `{target.symbol}` does not have"
        return Picked(source.symbol, picks, at, seen, bad, what, target)

    @staticmethod
    def input(source: InputOp | NodeOp, name: str) -> SSAValue:
        """The value of an input by its name."""
        return source.value if isinstance(source, InputOp) else source.arg(name)

    def send(
        self, source: InputOp | NodeOp, value: SSAValue, target: str, port: str, index: tuple[IndexExpr, ...],
        loops: tuple[Iterator, ...], when_point: Formula,
    ) -> None:  # fmt: skip
        """An arrow of the source, under the conditions of the old one."""
        old = self.arrow.send
        new = SendOp(value, port_ref(target, port), index, condition=old.when, predicate=old.predicate, iterators=loops,
                     point_condition=when_point, rule="if-conversion")  # fmt: skip
        new.location = old.location
        source.block.insert_op_before(new, old)

    def pick(self, node: NodeOp, ports: Sequence[Port], index: tuple[IndexExpr | None, ...]) -> None:
        """The body of the new node: the token goes on where the index is that of the data."""
        old = self.arrow.send
        body = Body(node.block, old.location)
        env = dict(zip((*node.fields, *(p.name for p in ports[:1]), *self.names), node.block.args, strict=True))
        right: SSAValue | None = None
        for n, name in self.found.items():
            wanted = old.index.data[n]
            assert wanted is not None
            same = body.add(arith.CmpiOp(index_value(body, wanted, env), env[name], "eq"))
            right = same if right is None else body.add(arith.AndIOp(right, same))
        count = old.count.data if old.count else None
        new = SendOp(env[ports[0].name], old.target, index, count=count, predicate=right, rule="if-conversion")
        body.emit(new)


def _between(it: Iterator) -> Formula:
    return Formula.compare(it.lo, "<=", it.name) & Formula.compare(it.name, "<=", it.hi)
