"""The program image: what makes the machine's fixed RTL run one program.

A pass of the compiler builds it; `engines/rtl/run.py` loads it.  All numbers (of nodes, inputs, outputs, tables) are places
in the image's tuples, from 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import cast

import msgspec

from upl_mlir.diagnostics import Note, Span, error
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.hw.direct.domains import Domain
from upl_mlir.hw.machine import Machine, Organisation
from upl_mlir.hw.matching_unit.interface import InputMode
from upl_mlir.hw.microcode import Constant, Instruction, Send, ToHost, ToNode, ValueType

MAX_FIELD_BITS = 31
"""Bits of an index field: values of indices are computed as signed integers of 32 bits."""


@dataclass(frozen=True)
class IndexField:
    """An index field of a node: value v is kept as v - `bias` in `bits` bits of the tag from bit `offset` on."""

    name: str
    bias: int
    bits: int
    offset: int

    @property
    def mask(self) -> int:
        """The bits of the tag that the field occupies."""
        return ((1 << self.bits) - 1) << self.offset


@dataclass(frozen=True)
class Input:
    """An input of a node; `gather` is its operator, or None for an ordinary input.

    Every summand of a gathering input carries the number of summands in its multiplicity; if the gather is `open` (it ends
    when no summand can come any more), the rank of the instance, plus 1.
    """

    name: str
    type: ValueType
    gather: Gather | None = None
    open: bool = False


@dataclass(frozen=True)
class Node:
    """A node: its index fields, its inputs, the code of its body, and what it sends, in this order."""

    name: str
    fields: tuple[IndexField, ...]
    inputs: tuple[Input, ...]
    body: tuple[Instruction, ...] = ()
    sends: tuple[Send, ...] = ()
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)
    """Where it is in the program's text."""


@dataclass(frozen=True)
class HostOutput:
    """Where tokens leave: the names of its fields, the type of its elements, and how an index is packed (nothing: it is
    for the machine to choose).
    """

    name: str
    fields: tuple[str, ...]
    type: ValueType
    layout: tuple[IndexField, ...] = ()


@dataclass(frozen=True)
class Table:
    """A constant array, row-major: `lower` is the index of the first element, per dimension."""

    name: str
    type: ValueType
    lower: tuple[int, ...]
    shape: tuple[int, ...]
    values: tuple[float | int | bool, ...]


@dataclass(frozen=True)
class BootToken:
    """A gather that is complete before the start: no summands, `value` is the operator's identity.

    Of an open gather: it exists, and has this `rank`.
    """

    node: int
    input: int
    index: tuple[int, ...]
    value: float | int | bool
    rank: int | None = None


@dataclass(frozen=True)
class ProgramImage:
    """One program for the machine."""

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[HostOutput, ...] = ()
    tables: tuple[Table, ...] = ()
    boot: tuple[BootToken, ...] = ()
    domains: Mapping[str, Domain] = dataclasses.field(default_factory=dict[str, Domain], compare=False, repr=False)
    """The instances of nodes, by name, for whom it may concern; nodes that are not here may have any index."""
    streams: tuple[Mapping[str, int], ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Fields along which the program streams (see `passes/analysis/streams.py`), each as the number of the field by node."""

    @property
    def closes(self) -> bool:
        """Whether the program has open gathers."""
        return any(port.open for node in self.nodes for port in node.inputs)

    def node(self, name: str) -> int:
        """The number of the node of that name; KeyError if there is none."""
        for number, node in enumerate(self.nodes):
            if node.name == name:
                return number
        raise KeyError(name)

    def validate(self, machine: Machine) -> None:
        """Check that the program fits the machine.

        Raises `UplError` UPL1710 with the limit and the need.
        Raises ValueError if the image contradicts itself, which is a defect of what built it.
        """
        _check_structure(self)
        token = machine.token
        need = partial(_fits, machine)
        most = 1 << token.node_bits
        beyond = self.nodes[most].span if len(self.nodes) > most else None
        need(len(self.nodes), most, "token.node_bits", f"program `{self.name}`", "nodes", beyond, _bits)
        unbounded = (1 << token.multiplicity_bits) - 1
        for node in self.nodes:
            where = f"node `{node.name}`"
            tag_bits = max((f.offset + f.bits for f in node.fields), default=0)
            need(len(node.fields), token.max_fields, "token.max_fields", where, "index fields", node.span)
            need(len(node.inputs), token.max_inputs, "token.max_inputs", where, "inputs", node.span)
            need(tag_bits, token.tag_bits, "token.tag_bits", where, "bits of tag", node.span)
            for wide in (f for f in node.fields if f.bits > MAX_FIELD_BITS):
                what = f"the field `{wide.name}` of {where} needs {wide.bits} bits, the machine has {MAX_FIELD_BITS}"
                raise error("UPL1710", f"{what} for a field", node.span)
            for send in node.sends:
                if isinstance(send.multiplicity, Constant):
                    what = f"an arrow of node `{node.name}`"
                    n, key = send.multiplicity.value, "token.multiplicity_bits"
                    need(n, unbounded - 1, key, what, "as multiplicity", node.span, _bits_below_ones)

    def to_dict(self) -> dict[str, object]:
        """The image as dicts, lists and scalars, for printing and comparing: enums by value, and each object that is
        one of several kinds with its class as `kind`.
        """
        return cast("dict[str, object]", _plain(self))


def with_open_gathers(machine: Machine, image: ProgramImage) -> Machine:
    """The machine with open gathers if the program has some and the description does not say whether there are any."""
    matching = machine.matching
    built = matching.organisation is Organisation.HASHED or matching.store_beside[0]
    if machine.matching.open_gathers is not msgspec.UNSET or not built or not image.closes:
        return machine
    return msgspec.structs.replace(machine, matching=msgspec.structs.replace(machine.matching, open_gathers=True))


def input_mode(node: Node, port: Input) -> InputMode:
    """What the node table says of an input.  `UplError` UPL1711 if its operator has no RTL yet."""
    match port.gather, port.type:
        case None, _:
            return InputMode.ORDINARY
        case Gather.SUM, ValueType.F32:
            return InputMode.GATHER_ADD_F32
        case Gather.SUM, ValueType.I32:
            return InputMode.GATHER_ADD_I32
        case operator, kind:
            assert operator is not None
            what = f"input `{node.name}.{port.name}`: gathering by `{operator.value}` of {kind.value}"
            help_ = 'gather by `+` of f32 or i32, or use [matching] organisation = "hashed"'
            raise error("UPL1711", f"{what} is not built yet", node.span, help=help_)


def layout_fields(ranges: Sequence[tuple[str, int, int]]) -> tuple[IndexField, ...]:
    """Pack fields, given by name, least and greatest value, into a tag, the first one lowest."""
    fields: list[IndexField] = []
    offset = 0
    for name, low, high in ranges:
        bits = max(0, high - low).bit_length()
        fields.append(IndexField(name, low, bits, offset))
        offset += bits
    return tuple(fields)


def pack(fields: Sequence[IndexField], index: Sequence[int | None], what: str) -> tuple[int, int]:
    """An index (None = `*`) as tag and as mask of its open fields, one bit per field.

    Raises `UplError` UPL1712 if a value does not fit in its field; `what` names the token.
    """
    tag = wild = 0
    for number, (place, value) in enumerate(zip(fields, index, strict=True)):
        if value is None:
            wild |= 1 << number
            continue
        biased = value - place.bias
        if not 0 <= biased < 1 << place.bits:
            high = place.bias + (1 << place.bits) - 1
            message = f"{what}: {place.name} = {value} does not fit in its {place.bits} bits ({place.bias}..{high})"
            raise error("UPL1712", message)
        tag |= biased << place.offset
    return tag, wild


def unpack(fields: Sequence[IndexField], tag: int, wild: int = 0) -> tuple[int | None, ...]:
    """The index that `pack` packed."""
    return tuple(
        None if wild >> n & 1 else (tag >> f.offset & ((1 << f.bits) - 1)) + f.bias for n, f in enumerate(fields)
    )


def _bits(need: int) -> int:
    return (need - 1).bit_length()


def _bits_below_ones(need: int) -> int:
    return (need + 1).bit_length()


def _fits(
    machine: Machine, need: int, limit: int, key: str, where: str, what: str, span: Span | None,
    setting: Callable[[int], int] = int,
) -> None:  # fmt: skip
    """UPL1710 if `need` is above `limit`: at the key of the machine's description if it is written, else at `span`, what
    needs it; `setting` computes the value of the key that would do."""
    if need > limit:
        written = machine.place(key)
        raise error(
            "UPL1710", f"{where} needs {need} {what}, the machine has {limit}", written or span,
            notes=[Note("it is here", span)] if written and span else [],
            help=f"set {key} = {setting(need)} or more in the machine description",
        )  # fmt: skip


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
        return named if isinstance(value, ProgramImage) else {"kind": type(value).__name__, **named}
    if isinstance(value, tuple):
        return [_plain(v) for v in cast("tuple[object, ...]", value)]
    return value


def _check_structure(image: ProgramImage) -> None:
    """ValueError where the image contradicts itself."""

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(f"image of `{image.name}`: {what}")

    for node in image.nodes:
        where = f"node {node.name}"
        used = 0
        for f in node.fields:
            require(f.bits >= 0 and f.offset >= 0 and not used & f.mask, f"{where}: field {f.name} overlaps another")
            used |= f.mask
        require(bool(node.inputs), f"{where} has no input")
        written = _run_over(node.body, set(), where, require)
        for number, send in enumerate(node.sends):
            _check_send(image, node, send, written, f"{where}, send {number}", require)
    for table in image.tables:
        require(math.prod(table.shape) == len(table.values), f"table {table.name}: shape and values disagree")
        require(len(table.shape) == len(table.lower), f"table {table.name}: shape and lower bounds disagree")
    for token in image.boot:
        require(token.node < len(image.nodes), "a boot token for no node")
        node = image.nodes[token.node]
        require(token.input < len(node.inputs), f"a boot token for no input of {node.name}")
        require(node.inputs[token.input].gather is not None, f"a boot token for an ordinary input of {node.name}")
        require(len(token.index) == len(node.fields), f"a boot token of {node.name} with a wrong index")


def _check_send(image: ProgramImage, node: Node, send: Send, written: set[int], where: str, require: object) -> None:
    assert callable(require)
    target = send.target
    gathers = False
    if isinstance(target, ToHost):
        require(target.output < len(image.outputs), f"{where}: no such output")
        rank = len(image.outputs[target.output].fields)
        require(None not in send.index, f"{where}: `*` in the index of an output")
    else:
        assert isinstance(target, ToNode)
        require(target.node < len(image.nodes), f"{where}: no such node")
        goal = image.nodes[target.node]
        require(target.input < len(goal.inputs), f"{where}: no such input of {goal.name}")
        rank = len(goal.fields)
        gathers = goal.inputs[target.input].gather is not None
    require(len(send.index) == rank, f"{where}: the index has {len(send.index)} fields, the target {rank}")
    require(not (gathers and None in send.index), f"{where}: `*` in the index of a summand")
    if isinstance(send.multiplicity, Constant):
        require(send.multiplicity.value >= 1, f"{where}: multiplicity {send.multiplicity.value}")
    known = set(written)
    require(send.guard is None or send.guard in known, f"{where}: the guard is not computed")
    for loop in send.loops:
        known = _run_over(loop.code, known, where, require)
        require({loop.lower, loop.upper} <= known, f"{where}: a bound is not computed")
        known.add(loop.iterator)
    known = _run_over(send.condition_code, known, where, require)
    require(send.predicate is None or send.predicate in known, f"{where}: the predicate is not computed")
    known = _run_over(send.code, known, where, require)
    require(set(_registers(send)) <= known, f"{where}: value, index or multiplicity is not computed")


def _registers(send: Send) -> Iterator[int]:
    yield send.value
    yield from (r for r in send.index if r is not None)
    register = getattr(send.multiplicity, "register", None)
    if register is not None:
        yield register


def _run_over(code: Sequence[Instruction], known: set[int], where: str, require: object) -> set[int]:
    """The registers known after the code; every one it reads must be known."""
    assert callable(require)
    known = set(known)
    for step in code:
        require(set(step.operands) <= known, f"{where}: {step.op.value} reads a register that is not written")
        require(step.result not in known, f"{where}: register {step.result} is written twice")
        known.add(step.result)
    return known
