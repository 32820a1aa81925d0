"""Which core a token is for: the rows of the placement table, from the hash or from expressions in the machine description.

An expression of one field that the hardware can do is ((a*f + c) floordiv q) mod m + b, each part of it optional.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownMemberType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from upl_mlir.diagnostics import UplError, did_you_mean, error
from upl_mlir.frontend.upl_text.ast import Binary, BinaryOp, Expr, Name, Number, Unary, UnaryOp
from upl_mlir.frontend.upl_text.parser import parse_expression
from upl_mlir.hw.core.code.encode import Encoded, Write
from upl_mlir.hw.core.layouts import CONFIG_BITS, Dimensions, Memory
from upl_mlir.hw.core.place import PLACE_BITS, golden, home_of, place_layout
from upl_mlir.hw.image import IndexField, Node, ProgramImage
from upl_mlir.hw.machine import Machine
from upl_mlir.hw.stages import NO_STREAM, Stream, stage_rows

_ONE = 1 << PLACE_BITS
"""The number 1 in places, which are fractions of `PLACE_BITS` bits."""


def placement_writes(
    image: ProgramImage, machine: Machine, d: Dimensions, program: Encoded, stream: Stream = NO_STREAM, window: int = 0
) -> list[Write]:
    """The words that load the placement table of a machine of several cores, or with a throttle; else none.
    `stream`: the field whose values are the stages; `window`: so many are sent at a time.

    Raises `UplError` UPL1722: an expression that is none, or for an unknown node, or that the hardware cannot do.
    """
    if machine.cores == 1 and not d.stages:
        return []
    several = machine.cores > 1
    names = [node.name for node in image.nodes]
    for name in machine.placement:
        if several and name != "policy" and name not in names:
            raise _wrong(machine, name, f"there is no node `{name}` in program `{image.name}`", did_you_mean(name, names))
    out: list[Write] = []
    layout = place_layout(d)
    zeros = dict.fromkeys(layout.members.keys() - {"stage"}, 0)
    rows: list[dict[str, Any]] = [*placement_rows(image, machine, d, program)] if several else [zeros for _ in names]
    if d.stages:
        rows = [{**row, "stage": s} for row, s in zip(rows, stage_rows(image, d, program, stream, window), strict=True)]
    for number, row in enumerate(rows):
        raw = layout.const(row).as_bits()
        parts = [raw >> first & ((1 << CONFIG_BITS) - 1) for first in range(0, layout.size, CONFIG_BITS)]
        out += [Write(Memory.STAGE, 0, part) for part in reversed(parts[1:])]
        out.append(Write(Memory.PLACE, number, parts[0]))
    return out


def placement_rows(image: ProgramImage, machine: Machine, d: Dimensions, program: Encoded) -> list[dict[str, int]]:
    """A row of the table for each node; of an organisation without search as its places were divided."""
    rows: list[dict[str, int]] = []
    for number, node in enumerate(image.nodes):
        everywhere = set(range(len(node.fields)))
        for port in range(len(node.inputs)):
            pattern = program.patterns.get((number, port))
            if pattern is not None:
                everywhere -= pattern.wild
        fields = [node.fields[f] for f in sorted(everywhere)]
        text = machine.placement.get(node.name)
        ranked = None if program.ranks is None else program.ranks.nodes[number]
        if ranked is not None and ranked.local.home is not None:
            rows.append(ranked.local.home.row(ranked.digits))
        elif text is None:
            mask = sum(f.mask for f in fields)
            zeros = dict.fromkeys(("factor", "constant", "first"), 0)
            shift = (mask & -mask).bit_length() - 1 if mask else 0
            row = {"mask": mask, "hashed": 1, "shift": shift, "count": machine.cores, **zeros}
            if program.ranks is not None:
                # There is no hash of the whole tag, but one of its lowest bits: a product and its own lowest bits.
                row |= {"hashed": 0, "factor": golden(PLACE_BITS)}
            rows.append(row)
        else:
            rows.append(_Expression(machine, node, fields, text).row(d))
    return rows


def _wrong(machine: Machine, name: str, message: str, help_: str | None = None) -> UplError:
    where = machine.place(f"placement.{name}")
    return error("UPL1722", f"machine description: [placement] {name}: {message}", where, help=help_)


@dataclass(frozen=True)
class _Form:
    """((factor * field + constant) floordiv divisor) mod modulus + first; modulus 0: without."""

    field: str | None
    factor: int
    constant: int
    divisor: int = 1
    modulus: int = 0
    first: int = 0

    @property
    def affine(self) -> bool:
        return self.divisor == 1 and not self.modulus and not self.first

    def of(self, value: int) -> int:
        """The core for a value of the field."""
        out = (self.factor * value + self.constant) // self.divisor
        return (out % self.modulus if self.modulus else out) + self.first


class _Expression:
    """One expression of the machine description, for one node."""

    def __init__(self, machine: Machine, node: Node, fields: list[IndexField], text: str):
        self.machine, self.node, self.fields, self.text = machine, node, fields, text

    def fail(self, message: str, help_: str | None = None) -> UplError:
        """An error at the expression."""
        return _wrong(self.machine, self.node.name, f"`{self.text}`: {message}", help_)

    def row(self, d: Dimensions) -> dict[str, int]:
        """The row that chooses what the expression says, checked for every value that the field's bits can have."""
        try:
            tree = parse_expression(self.text)
        except UplError as cause:
            raise self.fail(f"this is no expression: {cause.diagnostics[0].message}") from None
        form = self._form(tree)
        row, field = self._row(form), next((f for f in self.fields if f.name == form.field), None)
        wanted = {place: (value, form.of(value)) for place, value in self._values(field)}
        for value, core in wanted.values():
            if not 0 <= core < self.machine.cores:
                where = f" for {form.field} = {value}" if field is not None else ""
                help_ = f"write `({self.text}) mod {self.machine.cores}`" if not form.modulus else None
                raise self.fail(f"is {core}{where}; there are cores 0..{self.machine.cores - 1}", help_)
        for place, (value, core) in wanted.items():
            if home_of(row, place, d.tag_bits) != core:
                raise self.fail(f"is too fine for the {PLACE_BITS} bits of the hardware at {form.field} = {value}")
        return row

    def _values(self, field: IndexField | None) -> Iterator[tuple[int, int]]:
        """Tag and value, for the values that are told apart."""
        if field is None:
            yield 0, 0
            return
        if field.bits > PLACE_BITS:
            raise self.fail(f"the field `{field.name}` has {field.bits} bits; the hardware can do {PLACE_BITS}")
        for raw in range(1 << field.bits):
            yield raw << field.offset, raw + field.bias

    def _row(self, form: _Form) -> dict[str, int]:
        field = next((f for f in self.fields if f.name == form.field), None)
        row = {"mask": 0, "hashed": 0, "shift": 0, "factor": 0, "constant": 0, "count": 1, "first": form.first}
        bias, top = (field.bias, (1 << field.bits) - 1) if field is not None else (0, 0)
        count = form.modulus
        if not count:
            ends = [(form.factor * v + form.constant) // form.divisor for v in (bias, bias + top)]
            row["first"] += max(0, min(ends))
            count = 1
            while count <= max(ends) - min(ends):
                count *= 2
        row["count"] = min(count, 16)
        whole = count * form.divisor
        shifted = 0 if form.modulus else row["first"] - form.first
        start = form.factor * bias + form.constant - shifted * form.divisor
        # Rounded up, so that a value just at a boundary is beyond it.
        row["constant"] = -(-start * _ONE // whole) % _ONE
        if field is not None:
            row |= {"mask": field.mask, "shift": field.offset, "factor": -(-form.factor * _ONE // whole) % _ONE}
        row["first"] = min(row["first"], self.machine.cores - 1)
        return row

    def _form(self, e: Expr) -> _Form:
        match e:
            case Number(value=int(value)):
                return _Form(None, 0, value)
            case Name(name=name):
                if name not in {f.name for f in self.fields}:
                    if name in {f.name for f in self.node.fields}:
                        raise self.fail(f"some tokens of `{self.node.name}` have `*` in the field `{name}`")
                    known = [f.name for f in self.node.fields]
                    raise self.fail(f"node `{self.node.name}` has no field `{name}`", did_you_mean(name, known))
                return _Form(name, 1, 0)
            case Unary(op=UnaryOp.NEG, operand=inner):
                return self._scaled(self._form(inner), -1)
            case Binary(op=op, left=left, right=right):
                return self._binary(op, self._form(left), self._form(right))
            case _:
                raise self._unfit()

    def _unfit(self) -> UplError:
        return self.fail("the hardware cannot do this", "write ((a*f + c) floordiv q) mod m + b with numbers a, c, q, m, b")

    def _scaled(self, form: _Form, by: int) -> _Form:
        if not form.affine:
            raise self._unfit()
        return _Form(form.field, form.factor * by, form.constant * by)

    def _binary(self, op: BinaryOp, left: _Form, right: _Form) -> _Form:
        number = right.constant if right.field is None and right.affine else None
        match op:
            case BinaryOp.ADD | BinaryOp.SUB:
                if left.field is None and left.affine and op is BinaryOp.ADD:
                    left, right, number = right, left, left.constant
                if op is BinaryOp.SUB:
                    right = self._scaled(right, -1)
                    number = -number if number is not None else None
                if left.affine and right.affine and (number is not None or left.field == right.field):
                    return _Form(left.field, left.factor + right.factor, left.constant + right.constant)
                if number is not None:
                    return _Form(left.field, left.factor, left.constant, left.divisor, left.modulus, left.first + number)
            case BinaryOp.MUL:
                if number is not None:
                    return self._scaled(left, number)
                if left.field is None and left.affine:
                    return self._scaled(right, left.constant)
            case BinaryOp.FLOORDIV:
                if number and number > 0 and left.affine:
                    return _Form(left.field, left.factor, left.constant, number)
            case BinaryOp.MOD:
                if number and 0 < number <= 16 and not left.modulus and not left.first:
                    return _Form(left.field, left.factor, left.constant, left.divisor, number)
                if number and number > 16:
                    raise self.fail(f"there are {self.machine.cores} cores, not {number}")
            case _:
                pass
        raise self._unfit()
