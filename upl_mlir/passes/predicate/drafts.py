# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""New nodes that are written step by step: inputs, and what the body does with them, in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, SymbolRefAttr, UnitAttr, i1
from xdsl.ir import Operation, SSAValue

from upl_mlir.dialects.upl import FormulaAttr, InputOp, NodeOp, Port, ProgramOp, SendOp, Special, UplType, port_ref
from upl_mlir.dialects.upl.attributes import Index, Iterator
from upl_mlir.dialects.upl.ops import SendOp as Send
from upl_mlir.ops import Body
from upl_mlir.passes.arrows import here
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr

KEPT = "upl.kept"
"""The attribute of a node whose inputs loops over arrays keep, however little they cost."""

COMPARED = "upl.compared"
"""The attribute of a program in which an index from data is compared with each that there could be, for loops that need
not search."""

Values = Mapping[str, SSAValue]
Make = Callable[[Body, Values], SSAValue]
"""Writes a value into the body of a node, by its fields and inputs."""


@dataclass(frozen=True, eq=False)
class Way:
    """Where tokens go: what an arrow has besides its value and its input."""

    index: Index
    when: Formula = TRUE
    loops: tuple[Iterator, ...] = ()
    when_point: Formula = TRUE
    count: IndexExpr | Special | None = None

    @classmethod
    def of(cls, send: Send) -> Way:
        """That of an arrow; its multiplicity only if it covers several instances."""
        count = send.multiplicity if any(e is None for e in send.index.data) else None
        return cls(send.index.data, send.when, send.loops, send.when_point, count if isinstance(count, IndexExpr) else None)


@dataclass(eq=False)
class Draft:
    """A node to be: the program gets it with `build`."""

    name: str
    fields: tuple[str, ...]
    domain: Formula
    origin: Operation
    taken: set[str]
    """Names that no input may have."""
    kept: bool = False
    """Whether loops over arrays keep what comes to the node."""
    ports: list[Port] = field(default_factory=list[Port])
    arrows: list[tuple[Make, SymbolRefAttr, Way]] = field(default_factory=list[tuple[Make, SymbolRefAttr, Way]])

    def port(self, wanted: str, type_: UplType, **more: object) -> str:
        """A new input."""
        name, n = wanted, 2
        while name in self.taken:
            name, n = f"{wanted}_{n}", n + 1
        self.taken.add(name)
        self.ports.append(Port(name, type_, **more))  # pyright: ignore[reportArgumentType]
        return name

    def send(self, make: Make, target: SymbolRefAttr, way: Way) -> None:
        """A new arrow."""
        self.arrows.append((make, target, way))

    def build(self, program: ProgramOp, declared: bool = False) -> NodeOp:
        """Append the node to the program."""
        node = NodeOp(self.name, self.fields, self.ports, self.domain if declared else None)
        node.domain = FormulaAttr(self.domain)
        node.location = self.origin.location
        if self.kept:
            node.attributes[KEPT] = UnitAttr()
        program.body.block.add_op(node)
        values = dict(zip((*self.fields, *(p.name for p in self.ports)), node.block.args, strict=True))
        for make, target, way in self.arrows:
            emit(node, make, target, way, self.origin, values)
        return node


def emit(
    source: InputOp | NodeOp, make: Make, target: SymbolRefAttr, way: Way, origin: Operation, values: Values | None = None
) -> None:
    """Append an arrow to a node or a host input."""
    body = Body(source.block, origin.location)
    send = SendOp(
        make(body, values or {}), target, way.index, count=way.count, condition=way.when, iterators=way.loops,
        point_condition=way.when_point, rule="if-conversion",
    )  # fmt: skip
    body.emit(send)


def at_once(
    source: InputOp | NodeOp, value: SSAValue, draft: Draft, port: str, origin: Operation
) -> None:
    """An arrow to the same index of a new node."""
    emit(source, lambda body, values: value, port_ref(draft.name, port), Way(here(source.fields)), origin)


def all_of(body: Body, bits: Sequence[SSAValue]) -> SSAValue:
    """Whether all bits are 1."""
    some = [b for b in bits if not is_one(b)]
    return reduce(lambda a, b: body.add(arith.AndIOp(a, b)), some) if some else body.constant(1, i1)


def is_one(bit: SSAValue) -> bool:
    """Whether a bit is the constant 1."""
    op = bit.owner
    return isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) and bool(op.value.value.data)


def any_of(body: Body, bits: Sequence[SSAValue]) -> SSAValue:
    """Whether some bit is 1."""
    return reduce(lambda a, b: body.add(arith.OrIOp(a, b)), bits) if bits else body.constant(0, i1)


def negated(body: Body, bit: SSAValue) -> SSAValue:
    """The other truth value."""
    return body.add(arith.XOrIOp(bit, body.constant(1, i1)))


def chosen(body: Body, bit: SSAValue, yes: SSAValue, no: SSAValue) -> SSAValue:
    """One value or another, by a bit."""
    if is_one(bit):
        return yes
    return body.add(arith.SelectOp(bit, yes, no))
