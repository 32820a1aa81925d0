"""From a program image to the words that the host writes into a core: node table, walks, code, descriptors, tables."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import Gather
from upl_mlir.hw.assemble import OPERATIONS
from upl_mlir.hw.core.code.encode_node import (
    Immediate,
    NodeCode,
    Outcomes,
    SendStep,
    Step,
    compile_node,
    compile_outcomes,
    operand_number,
)
from upl_mlir.hw.core.code.index_values import FieldGuard, Place
from upl_mlir.hw.core.execution import entry_layout
from upl_mlir.hw.core.layouts import (
    CONFIG_BITS,
    COUNT_PLACE,
    WALK_LEVELS,
    Dimensions,
    FieldKind,
    Guard,
    Memory,
    Mode,
    Times,
    TokenKind,
    instruction_layout,
    node_layout,
    send_layout,
    walk_layout,
)
from upl_mlir.hw.direct.encode import direct_rows, mixed_row
from upl_mlir.hw.direct.home import ONE_CORE, Spread
from upl_mlir.hw.direct.lanes import packed
from upl_mlir.hw.direct.layouts import direct_node_layout, rank_layout
from upl_mlir.hw.direct.mixed import mixed_node_layout
from upl_mlir.hw.direct.ranks import Ranks, Role, rank_program
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import HostOutput, IndexField, Input, Node, ProgramImage, input_mode
from upl_mlir.hw.machine import Organisation
from upl_mlir.hw.matching_unit.in_core import cam_dimensions
from upl_mlir.hw.matching_unit.interface import node_row_layout
from upl_mlir.hw.microcode import Constant, Send, ToHost, ToNode, Unbounded, ValueType

_GATHERS = {
    (g, kind): Mode[OPERATIONS[op].name]
    for g in Gather
    for kind, op in ((ValueType.F32, g.real), (ValueType.I32, g.integer), (ValueType.BOOL, g.truth))
    if op is not None
}
"""The mode of an operator is called as the microcode of the operation that it folds with."""


class Write(NamedTuple):
    """One write of the configuration bus."""

    select: Memory
    address: int
    data: int


@dataclass(frozen=True)
class Pattern:
    """What tokens of an input look like: whether every one has multiplicity 1, which fields are `*` in all of them, and,
    if the organisation is `cam`, the sets of fields that are `*` in some; `wild` then are all of these."""

    single: bool
    wild: frozenset[int]
    others: frozenset[frozenset[int]] = frozenset()

    @property
    def choices(self) -> list[frozenset[int]]:
        """The sets of fields that are `*` in a token."""
        return sorted(self.others or {self.wild}, key=sorted)

    @property
    def plain(self) -> bool:
        """Whether the tokens may wait in the record that inputs share."""
        return self.single and not self.wild


@dataclass
class Encoded:
    """A program in words: the program, its tags as they are packed; what is written, the modes of the inputs by node, the
    layout of each output's index, and what tokens of each input look like, by node and input."""

    image: ProgramImage
    writes: list[Write] = field(default_factory=list[Write])
    modes: list[list[Mode]] = field(default_factory=list[list[Mode]])
    outputs: list[tuple[IndexField, ...]] = field(default_factory=list[tuple[IndexField, ...]])
    patterns: dict[tuple[int, int], Pattern] = field(default_factory=dict[tuple[int, int], Pattern])
    ranks: Ranks | None = None
    """Where tokens wait, in the organisation `direct`."""
    roles: list[list[Role]] = field(default_factory=list[list[Role]])
    code_words: int = 0
    send_words: int = 0
    table_words: int = 0


HostPattern = tuple[int, int, tuple[int | None, ...], int | None]
"""Node, input, index and multiplicity of a host's token."""


def encode(
    image: ProgramImage, d: Dimensions, host: Iterable[HostPattern], host_inputs: Iterable[Node] = (),
    *, spread: Spread = ONE_CORE,
) -> Encoded:  # fmt: skip
    """The words for a program; `host` are the tokens that the host will send, or `host_inputs` the nodes that make them.
    `spread`: the cores among which places are divided, in the organisation `direct`, of which the image is `aligned`.

    Raises `UplError`: UPL1710 a memory is too small; UPL1711 a gather that cannot be done; UPL1704 a field that no input
    of a node gives; UPL1713 tokens of one input with different `*` fields.
    """
    if image.closes and not d.closes:
        raise _no_open_gathers(image, d)
    encoder = _Encoder(image, d, spread)
    encoder.patterns(host, host_inputs)
    return encoder.run()


def gather_mode(node: Node, port: Input) -> Mode:
    """The mode of a gathering input.  `UplError` UPL1711 if there is none for its type."""
    assert port.gather is not None
    mode = _GATHERS.get((port.gather, port.type))
    if mode is None:
        what = f"input `{node.name}.{port.name}`: gathering by `{port.gather.value}` of {port.type.value}"
        raise error("UPL1711", f"{what} is not built", help="gather reals or integers by + * min max, bools by && ||")
    return mode


def input_kind(port: Input, *, present: bool) -> TokenKind:
    """What tokens of the program for an input are; `present`: see `microcode.Send`."""
    if not port.open:
        return TokenKind.DATA
    return TokenKind.PRESENT if present else TokenKind.SUMMAND


def output_fields(output: HostOutput, d: Dimensions) -> tuple[IndexField, ...]:
    """The layout of an output's index: the image's, or equal parts of the tag, negative values included."""
    if output.layout or not output.fields:
        return output.layout
    bits = min(31, d.index_bits // len(output.fields))
    return tuple(IndexField(n, -(1 << (bits - 1)), bits, bits * k) for k, n in enumerate(output.fields))


def _no_open_gathers(image: ProgramImage, d: Dimensions) -> UplError:
    node, port = next((node, port) for node in image.nodes for port in node.inputs if port.open)
    what = f"`{node.name}.{port.name}[##]` ends when no summand can come any more"
    match d.organisation:
        case Organisation.CAM:
            message, help_ = f'{what}: organisation "cam" cannot tell', 'use [matching] organisation = "hashed"'
        case Organisation.DIRECT if d.beside is None:
            message = f'{what}: organisation "direct" needs a hashed store beside it for that'
            help_ = "set matching.beside = 64, or more, in the machine description"
        case _:
            message = f"{what}, and the machine description has matching.open_gathers = false"
            help_ = "leave it out, or set it to true"
    return error("UPL1732", message, node.span, help=help_)


class _Encoder:
    def __init__(self, image: ProgramImage, d: Dimensions, spread: Spread):
        self.image = image
        self.d = d
        self.spread = spread
        self.out = Encoded(image)
        self.found = self.out.patterns
        self.table_base: list[int] = []

    # -- patterns
    def patterns(self, host: Iterable[HostPattern], host_inputs: Iterable[Node]) -> None:
        """What comes to each input, from the nodes and from the host."""
        seen = {(n, i, tuple(x is None for x in index), m == 1) for n, i, index, m in host}
        for node, number, open_fields, single in sorted(seen):
            self._note(node, number, single, frozenset(f for f, is_open in enumerate(open_fields) if is_open))
        for sender in (*self.image.nodes, *host_inputs):
            for send in sender.sends:
                if isinstance(send.target, ToNode):
                    self._states(send.target, send.multiplicity)
                    wild = frozenset(f for f, register in enumerate(send.index) if register is None)
                    self._note(send.target.node, send.target.input, send.multiplicity == Constant(1), wild)

    def _states(self, target: ToNode, times: object) -> None:
        """A summand says how many there are, unless the organisation can do without."""
        node = self.image.nodes[target.node]
        port = node.inputs[target.input]
        if self.d.organisation is Organisation.CAM and port.gather is not None and isinstance(times, Unbounded):
            message = f"a summand for `{node.name}.{port.name}` is one of as many as another input says"
            raise error("UPL1732", message, help='use [matching] organisation = "hashed"')

    def _note(self, node: int, number: int, single: bool, wild: frozenset[int]) -> None:
        if self.image.nodes[node].inputs[number].gather is not None:
            return
        known = self.found.get((node, number))
        if self.d.organisation is Organisation.CAM:
            others = (known.others if known is not None else frozenset()) | {wild}
            self.found[node, number] = Pattern(False, frozenset[int]().union(*others), others)
            return
        if known is not None and known.wild != wild:
            place = f"`{self.image.nodes[node].name}.{self.image.nodes[node].inputs[number].name}`"
            raise error(
                "UPL1713", f"the input {place} gets tokens with different `*` fields",
                help='use [matching] organisation = "cam", which takes any',
            )  # fmt: skip
        self.found[node, number] = Pattern(single and (known is None or known.single), wild)

    def _pattern(self, node: int, number: int) -> Pattern:
        return self.found.get((node, number), Pattern(True, frozenset()))

    # -- words
    def run(self) -> Encoded:
        """Everything."""
        self._tables()
        self.out.outputs = [output_fields(o, self.d) for o in self.image.outputs]
        for number, node in enumerate(self.image.nodes):
            self._modes(number, node)
        if self.d.organisation is Organisation.DIRECT:
            self._direct()
        else:
            for number, node in enumerate(self.image.nodes):
                cam = self.d.organisation is Organisation.CAM
                self._write(Memory.NODE, number, self._cam(node) if cam else self._hashed(number, node, self.d))
        for number, (code, outcomes) in enumerate(self._codes()):
            self._entry(number, code, outcomes)
        for what, need, limit in (
            ("host outputs", len(self.image.outputs), 1 << self.d.node_bits),
            ("words of code", self.out.code_words, self.d.code_words),
            ("send descriptors", self.out.send_words, self.d.send_words),
            ("words of constant arrays", self.out.table_words, self.d.table_words),
        ):
            if need > limit:
                raise error("UPL1710", f"program `{self.image.name}` needs {need} {what}, the core has {limit}")
        return self.out

    def _write(self, select: Memory, address: int, row: int) -> None:
        parts: list[int] = []
        while row or not parts:
            parts.append(row & ((1 << CONFIG_BITS) - 1))
            row >>= CONFIG_BITS
        match self.d.organisation:
            case Organisation.CAM:
                of_node = node_row_layout(cam_dimensions(self.d))
            case Organisation.DIRECT:
                of_node = direct_node_layout(self.d) if self.d.beside is None else mixed_node_layout(self.d)
            case Organisation.HASHED:
                of_node = node_layout(self.d)
        sizes = {
            Memory.NODE: of_node, Memory.RANK: rank_layout(self.d), Memory.WALK: walk_layout(self.d),
            Memory.SEND: send_layout(self.d), Memory.ENTRY: entry_layout(self.d),
        }  # fmt: skip
        words = -(-sizes[select].size // CONFIG_BITS) if select in sizes else 1
        parts += [0] * (words - len(parts))
        for part in reversed(parts[1:]):
            self.out.writes.append(Write(Memory.STAGE, 0, part))
        self.out.writes.append(Write(select, address, parts[0]))

    def _tables(self) -> None:
        for table in self.image.tables:
            self.table_base.append(self.out.table_words)
            for value in table.values:
                if self.out.table_words < self.d.table_words:
                    self._write(Memory.TABLE, self.out.table_words, to_bits(value, table.type))
                self.out.table_words += 1

    def _modes(self, number: int, node: Node) -> None:
        """The modes of a node's inputs."""
        modes: list[Mode] = []
        open_everywhere = frozenset(range(len(node.fields)))
        for n, port in enumerate(node.inputs):
            pattern = self._pattern(number, n)
            if port.gather is not None:
                modes.append(gather_mode(node, port))
            else:
                modes.append(Mode.PLAIN if pattern.plain else Mode.COUNTED)
            open_everywhere &= pattern.wild
        if open_everywhere and node.inputs and self.d.organisation is not Organisation.CAM:
            names = ", ".join(f"`{node.fields[f].name}`" for f in sorted(open_everywhere))
            raise error("UPL1704", f"no input of node `{node.name}` gives the field {names}")
        self.out.modes.append(modes)

    def _hashed(self, number: int, node: Node, d: Dimensions) -> int:
        """The row of the node table of a hashed store; its walks are written."""
        modes = self.out.modes[number]
        whole = sum(f.mask for f in node.fields)
        keys: list[int] = []
        for n, mode in enumerate(modes):
            wild = self._pattern(number, n).wild
            keys.append(whole & ~sum(node.fields[f].mask for f in wild))
            if mode is Mode.COUNTED:
                self._walk(number, n, node, sorted(wild))
        rest = d.max_inputs - len(modes)
        row = {
            "plain": sum(1 << n for n, mode in enumerate(modes) if mode is not Mode.COUNTED),
            "counted": sum(1 << n for n, mode in enumerate(modes) if mode is Mode.COUNTED),
            "modes": [int(mode) for mode in modes] + [0] * rest,
            "keys": keys + [whole] * rest,  # so that all have in common what the inputs have
        }
        return node_layout(d).const(row).as_bits()

    def _cam(self, node: Node) -> int:
        """The row of the node table of an associative memory."""
        rest = self.d.max_inputs - len(node.inputs)
        row = {
            "inputs": len(node.inputs),
            "modes": [int(input_mode(node, port)) for port in node.inputs] + [0] * rest,
            "field_bits": [f.mask for f in node.fields] + [0] * (self.d.max_fields - len(node.fields)),
        }
        return node_row_layout(cam_dimensions(self.d)).const(row).as_bits()

    def _direct(self) -> None:
        """The rows of the node table and of the ranks; nodes without ranks are left to the store beside, if there is one."""
        d, beside = self.d, self.d.beside
        self.out.roles = [
            [Role(mode, self._pattern(number, n).wild) for n, mode in enumerate(modes)]
            for number, modes in enumerate(self.out.modes)
        ]
        self.out.ranks = ranks = rank_program(self.image, self.out.roles, d, self.spread)
        nodes, rows = direct_rows(self.image, self.out.roles, ranks, d)
        if beside is not None:
            pairs = zip(self.image.nodes, ranks.nodes, strict=True)
            self.image = self.out.image = replace(
                self.image, nodes=tuple(packed(node) if of is None else node for node, of in pairs)
            )
        for number, (node, row) in enumerate(zip(self.image.nodes, nodes, strict=True)):
            if beside is not None:
                hashed = self._hashed(number, node, beside) if ranks.nodes[number] is None else None
                row = mixed_row(d, row, hashed)
            self._write(Memory.NODE, number, row)
        for number, row in enumerate(rows):
            self._write(Memory.RANK, number, row)

    def _walk(self, number: int, port: int, node: Node, wild: list[int]) -> None:
        runs: list[int] = []  # masks: fields that lie side by side are counted through as one
        for f in (node.fields[f] for f in wild if node.fields[f].bits):
            if runs and runs[-1] >> f.offset - 1 & 1:
                runs[-1] |= f.mask
            else:
                runs.append(f.mask)
        if len(runs) > WALK_LEVELS:
            what = f"tokens of `{node.name}.{node.inputs[port].name}` have {len(runs)} groups of `*` fields"
            raise error("UPL1710", f"{what}; the machine counts through {WALK_LEVELS}", node.span)
        levels = [{"mask": mask, "step": mask & -mask, "last": mask} for mask in runs]
        levels += [{"mask": 0, "step": 0, "last": 0}] * (WALK_LEVELS - len(levels))
        address = number << self.d.input_bits | port
        self._write(Memory.WALK, address, walk_layout(self.d).const({"levels": levels}).as_bits())

    def _codes(self) -> list[tuple[NodeCode, Outcomes | None]]:
        """The code of each node, and by outcomes as long as there is room."""
        wholes = [compile_node(node, self.d.unbounded) for node in self.image.nodes]
        words = self.d.code_words - sum(len(code.steps) for code in wholes)
        sends = self.d.send_words - sum(code.descriptors for code in wholes)
        out: list[tuple[NodeCode, Outcomes | None]] = []
        for node, whole in zip(self.image.nodes, wholes, strict=True):
            outcomes = compile_outcomes(node, self.d.unbounded, whole)
            if outcomes is not None:
                more_words = sum(len(code.steps) for code in outcomes.codes) - len(whole.steps)
                more_sends = sum(code.descriptors for code in outcomes.codes) - whole.descriptors
                if more_words <= words and more_sends <= sends:
                    words, sends = words - more_words, sends - more_sends
                else:
                    outcomes = None
            out.append((whole, outcomes))
        return out

    def _entry(self, number: int, code: NodeCode, outcomes: Outcomes | None) -> None:
        """The code of a node, and where it begins."""
        node = self.image.nodes[number]
        if outcomes is None:
            row = self._begins(code, node)
        else:
            guard = outcomes.guard
            f = node.fields[guard.number]
            other = self._begins(outcomes.false, node)
            row = self._begins(outcomes.true, node) | {
                "other_any": other["any"], "other_pc": other["pc"], "guarded": int(guard.relation), "guard": f.offset,
                "guard_width": f.bits, "guard_constant": guard.constant,
            }  # fmt: skip
        self._write(Memory.ENTRY, number, entry_layout(self.d).const(row).as_bits())

    def _begins(self, code: NodeCode, node: Node) -> dict[str, int]:
        """Write code; the part of a row of the entries that says where it begins."""
        base = self.out.code_words
        for step in code.steps:
            row = self._instruction(step, code.registers, node, base)
            if self.out.code_words < self.d.code_words:
                self._write(Memory.CODE, self.out.code_words, row)
            self.out.code_words += 1
        return {"any": int(bool(code.steps)), "pc": base % self.d.code_words}

    def _instruction(self, step: Step, registers: dict[int, int], node: Node, base: int) -> int:
        parts: dict[str, Any] = {
            "op": int(step.code),
            "last": int(step.last),
            "result": registers[step.result] if step.result is not None else 0,
            "a": operand_number(step.a, registers),
            "b": operand_number(step.b, registers),
            "c": operand_number(step.c, registers),
        }
        if isinstance(step.b, Immediate):
            parts |= {"immediate_b": 1, "immediate": step.b.bits}
        if step.index_field is not None:
            f = node.fields[step.index_field]
            parts |= {"a": f.offset, "b": f.bits, "immediate": f.bias & 0xFFFFFFFF}
        if step.table is not None:
            table = self.image.tables[step.table]
            (lower,), (length,) = table.lower, table.shape
            if not -(1 << 11) <= lower < 1 << 11 or length >= 1 << 16:
                raise error("UPL1710", f"the array `{table.name}` is too long, or begins too far from 0, for the core")
            parts |= {
                "b": lower & 0x3F,
                "c": lower >> 6 & 0x3F,
                "immediate": self.table_base[step.table] | length << 16,
            }
        if step.target is not None:
            parts["immediate"] = base + step.target
        if step.sends:
            numbers = [self._send(send, registers, node) for send in step.sends]
            parts |= {"sends": 1, "immediate": numbers[0] | len(numbers) << COUNT_PLACE}
        return instruction_layout().const(parts).as_bits()

    def _send(self, step: SendStep, registers: dict[int, int], node: Node) -> int:
        d = self.d
        send: Send = step.send
        target = send.target
        if isinstance(target, ToHost):
            goal, place = self.out.outputs[target.output], {"kind": int(TokenKind.HOST), "node": target.output}
        else:
            goal = self.image.nodes[target.node].fields
            kind = input_kind(self.image.nodes[target.node].inputs[target.input], present=send.present)
            place = {"kind": int(kind), "node": target.node, "input": target.input}
        fields = list(self._fields(step, goal, registers, node))
        unused = FieldKind.CONSTANT if d.organisation is Organisation.CAM else FieldKind.NONE  # which there means `*`
        fields += [{"kind": int(unused)}] * (d.max_fields - len(fields))
        constant = step.constant_times
        parts: dict[str, Any] = {
            **place,
            "value": operand_number(step.value, registers),
            "times": int(Times.CONSTANT if constant is not None else Times.REGISTER),
            "multiplicity": constant or 0,
            "times_register": operand_number(step.times, registers),
            "fields": fields,
        }
        if isinstance(step.guard, FieldGuard):
            f = node.fields[step.guard.number]
            parts |= {"guarded": int(step.guard.relation), "guard": f.offset, "guard_width": f.bits,
                      "guard_constant": step.guard.constant}  # fmt: skip
        elif step.guard is not None:
            parts |= {"guarded": int(Guard.REGISTER), "guard": operand_number(step.guard, registers)}
        if step.table is not None:
            number, at = step.table
            table = self.image.tables[number]
            assert at.base_field is not None
            f = node.fields[at.base_field]
            constant = at.constant - table.lower[0]
            if not -(1 << 15) <= constant < 1 << 15 or table.shape[0] >= 1 << 16:
                raise error("UPL1710", f"the array `{table.name}` is too long, or begins too far from 0, for the core")
            parts |= {"times": int(Times.TABLE), "multiplicity": self.table_base[number], "times_register": f.offset,
                      "times_width": f.bits, "times_constant": constant & 0xFFFF,
                      "times_length": table.shape[0]}  # fmt: skip
        number = self.out.send_words
        if number < d.send_words:
            self._write(Memory.SEND, number, send_layout(d).const(parts).as_bits())
        self.out.send_words += 1
        return number % d.send_words

    @staticmethod
    def _fields(
        step: SendStep, goal: Iterable[IndexField], registers: dict[int, int], node: Node
    ) -> Iterator[dict[str, int]]:
        for place, to in zip(step.places, goal, strict=True):
            if place is None:
                yield {"kind": int(FieldKind.NONE)}
                continue
            row = {"constant": place.beyond(to.bias) & 0xFFFFFFFF, "offset": to.offset, "bits": to.bits}
            yield row | _source(place, registers, node)


def _source(place: Place, registers: dict[int, int], node: Node) -> dict[str, int]:
    """The part of a descriptor's field that says where it comes from."""
    if place.base_field is not None:
        f = node.fields[place.base_field]
        return {"kind": int(FieldKind.FIELD), "source": f.offset, "width": f.bits}
    if place.operand is not None:
        return {"kind": int(FieldKind.REGISTER), "source": operand_number(place.operand, registers)}
    return {"kind": int(FieldKind.CONSTANT)}
