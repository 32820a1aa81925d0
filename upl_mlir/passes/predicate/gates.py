# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Gates: beside a node, a node of the same fields that has its conditions and the values that are sent under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.dialects.upl import InputOp, NodeOp, RefOp, UplType, port_ref
from upl_mlir.dialects.upl.attributes import upl_type
from upl_mlir.dialects.upl.precision import resolve
from upl_mlir.dialects.upl.query import ports_and_fields
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.arrows import here
from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.terms import inner_first
from upl_mlir.passes.predicate.drafts import Draft, Make, Values, Way, at_once
from upl_mlir.poly.describe import describe


@dataclass(eq=False)
class Gates:
    """The gates of a program, each made when it is asked for first."""

    sets: ProgramSets
    made: dict[str, Draft] = field(default_factory=dict[str, Draft])
    """By what they belong to."""
    deciders: dict[str, Draft] = field(default_factory=dict[str, Draft])
    """The nodes that compute conditions, by the node whose conditions they are."""
    values: dict[tuple[str, SSAValue, UplType], str] = field(default_factory=dict[tuple[str, SSAValue, UplType], str])
    """The inputs of gates, by node and value of its body."""
    sent: dict[str, set[SSAValue]] = field(default_factory=dict[str, set[SSAValue]])
    """By node, the values that arrows send."""
    bring: dict[tuple[str, SSAValue], str] = field(default_factory=dict[tuple[str, SSAValue], str])
    """The inputs of deciders."""
    keys: dict[object, int] = field(default_factory=dict[object, int])
    known: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    bits: dict[int, SSAValue] = field(default_factory=dict[int, SSAValue])
    """A value of each key."""

    def __post_init__(self) -> None:
        self.used = ports_and_fields(self.sets.program)
        for op in self.sets.ends.values():
            if isinstance(op, NodeOp):
                self.used |= {p.name for p in op.ports} | {it.name for s in op.sends for it in s.loops}

    def key(self, v: SSAValue) -> int:
        """A number for a value of a body: the same one for values that are made alike."""
        v = resolve(v)
        if v not in self.known:
            if isinstance(v, BlockArgument):
                k: object = (id(v.block), v.index)
            else:
                op = v.owner
                assert isinstance(op, Operation)
                parts = tuple(self.key(o) for o in op.operands)
                k = (op.name, str(op.properties), parts, id(op.parent) if not parts else None)
            self.known[v] = self.keys.setdefault(k, len(self.keys))
            self.bits.setdefault(self.known[v], v)
        return self.known[v]

    def gate(self, op: InputOp | NodeOp) -> Draft:
        """The gate of a node or a host input."""
        if op.symbol not in self.made:
            name = unused(f"{op.symbol}_gate", self.used)
            domain = describe(self.sets.domain(op.symbol).as_meant())
            self.made[op.symbol] = Draft(name, op.fields, domain, op, set(self.used))
        return self.made[op.symbol]

    def value(self, op: InputOp | NodeOp, v: SSAValue, type_: UplType) -> str:
        """The input of a node's gate that brings a value of its body."""
        key = (op.symbol, resolve(v), type_)
        if key not in self.values:
            gate = self.gate(op)
            self.values[key] = gate.port("v" if type_ is not UplType.BOOL else "c", type_)
            at_once(op, v, gate, self.values[key], op)
        return self.values[key]

    def condition(self, op: InputOp | NodeOp, v: SSAValue) -> Make:
        """A condition of a node, in its gate: what joins truth values stands there, the truth values come from outside."""
        order = inner_first(resolve(v), lambda w: _operands(w) if _joins(op, w) else ())
        return _copied(op, order, {w: self.truth(op, w) for w in order if not _joins(op, w)})

    def truth(self, op: InputOp | NodeOp, v: SSAValue) -> str:
        """The input of a node's gate that brings a truth value.  A node beside the gate computes it of what the body sends,
        so that nothing costly is computed twice."""
        found = self.sent.setdefault(op.symbol, {resolve(s.value) for s in op.sends})
        if v in found or isinstance(v, BlockArgument):
            return self.value(op, v, UplType.BOOL)
        order = inner_first(v, lambda w: () if w in found else _operands(w))
        taken = [w for w in order if w in found or (isinstance(w, BlockArgument) and not _field(op, w))]
        if not taken:  # of fields alone
            return self.value(op, v, UplType.BOOL)
        key = (op.symbol, v, UplType.BOOL)
        if key not in self.values:
            if op.symbol not in self.deciders:
                domain = describe(self.sets.domain(op.symbol).as_meant())
                name = unused(f"{op.symbol}_condition", self.used)
                self.deciders[op.symbol] = Draft(name, op.fields, domain, op, set(self.used))
            decides, gate = self.deciders[op.symbol], self.gate(op)
            ports = {w: self.brought(op, w, decides) for w in taken}
            self.values[key] = gate.port("c", UplType.BOOL)
            decides.send(_copied(op, order, ports), port_ref(gate.name, self.values[key]), Way(here(op.fields)))
        return self.values[key]

    def brought(self, op: InputOp | NodeOp, v: SSAValue, to: Draft) -> str:
        """The input of a new node that brings a value of the body beside it."""
        key = (to.name, v)
        if key not in self.bring:
            self.bring[key] = to.port("x", upl_type(v.type))
            at_once(op, v, to, self.bring[key], op)
        return self.bring[key]


def _operands(v: SSAValue) -> list[SSAValue]:
    """The values that a value is computed from in its body."""
    return [] if isinstance(v, BlockArgument) else [resolve(o) for o in cast(Operation, v.owner).operands]


def _joins(op: InputOp | NodeOp, v: SSAValue) -> bool:
    """Whether a value joins truth values, is a constant or a field, or compares such."""
    if isinstance(v, BlockArgument):
        return _field(op, v)
    owner = cast(Operation, v.owner)
    if isinstance(owner, arith.AndIOp | arith.OrIOp | arith.XOrIOp | arith.ConstantOp | RefOp):
        return True
    return isinstance(owner, arith.CmpiOp) and all(_joins(op, o) and not _operands(o) for o in _operands(v))


def _field(op: InputOp | NodeOp, v: SSAValue) -> bool:
    """Whether a value is a field of the node."""
    return isinstance(v, BlockArgument) and v.block is op.block and v.index < len(op.fields)


def _copied(op: InputOp | NodeOp, order: Sequence[SSAValue], ports: Mapping[SSAValue, str]) -> Make:
    """Writes the last of some values, each after those that it is computed from, into another body of the same fields."""

    def make(body: Body, values: Values) -> SSAValue:
        made: dict[SSAValue, SSAValue] = {}
        for v in order:
            if v in ports:
                made[v] = values[ports[v]]
            elif isinstance(v, BlockArgument):
                made[v] = values[op.fields[v.index]]
            else:
                owner = cast(Operation, v.owner)
                made[v] = body.add(owner.clone({o: made[resolve(o)] for o in owner.operands}))
        return made[order[-1]]

    return make
