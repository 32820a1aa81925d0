"""What the hardware did in a run, in the units that the weights of the energy proxy are for (`Energy`)."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from collections import Counter
from functools import cache

from upl_mlir.dialects.upl import Gather
from upl_mlir.hw.core.code.functions import FUNCTIONS, lines_of
from upl_mlir.hw.core.core import Event
from upl_mlir.hw.core.layouts import (
    VALUE_BITS,
    Dimensions,
    instruction_layout,
    node_layout,
    send_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.stores.store import gather_shape, join_shape
from upl_mlir.hw.direct import layouts as direct
from upl_mlir.hw.image import Node, ProgramImage
from upl_mlir.hw.machine import Organisation
from upl_mlir.hw.matching_unit.in_core import cam_dimensions
from upl_mlir.hw.matching_unit.interface import content_layout, entry_layout
from upl_mlir.hw.microcode import Op, ToNode, ValueType
from upl_mlir.hw.sim.interface import Report
from upl_mlir.hw.system.layouts import System

_FREE = (Op.CONST_F32, Op.CONST_I32, Op.CONST_BOOL, Op.INPUT)
"""Immediates and operands: nothing is executed."""


def activity(image: ProgramImage, system: System, report: Report) -> dict[str, int]:
    """Counts by weight. RAM bits: a probe reads a set of waiting tokens (or a slot of each bank), a summand a set of gathers
    (or a slot); each token writes a record, reads its rows and passes the queue; each instruction and each token sent
    reads its word and its operands. Operations follow from the firings: all instructions of a node's code are counted, those
    of loops once. `backing_bit`: a record or token for each that was spilled, out and back. `hop_bit`: tokens on links.
    `cam_bit`: in the organisation `cam`, the bits that searches compare."""
    d = system.core
    token = token_layout(d).size
    joined, summed, ways = _records(d)
    rows = node_layout(d).size + walk_layout(d).size
    words = instruction_layout().size + 4 * VALUE_BITS
    sends = send_layout(d).size + 2 * VALUE_BITS
    out: Counter[str] = Counter()
    summands = 0
    for number, node in enumerate(image.nodes):
        fired = sum(core.fired[number] for core in report.cores)
        taken = sum(core.taken[number] for core in report.cores)
        for unit, count in operations(node).items():
            out[unit] += fired * count
        gathers = [i for i in node.inputs if i.gather is not None]
        # Tokens are counted by node: those that are no summands are one for each other input and firing, or fewer.
        mine = max(0, taken - fired * (len(node.inputs) - len(gathers))) if gathers else 0
        summands += mine
        for port in gathers:
            out[_joining(port.gather, port.type)] += max(0, mine // len(gathers) - fired)
    tokens = report.count(Event.TAKEN)
    probed = 0 if d.organisation is Organisation.CAM else report.count(Event.PROBED)
    out["ram_bit"] = (
        probed * ways * joined + (tokens - summands) * joined + summands * (ways + 1) * summed
        + tokens * (rows + 2 * token) + report.count(Event.ISSUED) * words + report.count(Event.SENT) * sends
    )  # fmt: skip
    out["backing_bit"] = 2 * (report.count(Event.SPILLED) * joined + report.count(Event.QUEUE_SPILLED) * token)
    out["hop_bit"] = sum(report.moved) * token
    if d.organisation is Organisation.CAM:
        out["cam_bit"] = report.count(Event.PROBED) * _compared(d)
    return dict(out)


def _records(d: Dimensions) -> tuple[int, int, int]:
    """Bits of a record of waiting tokens, of one of a gather, and how many are read at a time."""
    if d.organisation is Organisation.DIRECT:
        return d.max_inputs * (direct.entry_layout(d).size + VALUE_BITS), direct.sum_state_layout(d).size + VALUE_BITS, 1
    if d.organisation is Organisation.CAM:
        record = entry_layout(cam_dimensions(d)).size + content_layout(cam_dimensions(d)).size
        return record, record, 1
    return join_shape(d).record(d).size, gather_shape(d).record(d).size, d.ways


def _compared(d: Dimensions) -> int:
    """Bits that a search of an associative memory compares: kind, node, input and index of every entry."""
    return d.sets * (1 + d.node_bits + d.input_bits + d.index_bits)


@cache
def operations(node: Node) -> Counter[str]:
    """The operations of a firing by weight."""
    out: Counter[str] = Counter()
    code = [*node.body]
    for send in node.sends:
        code += [*send.condition_code, *send.code, *(i for loop in send.loops for i in loop.code)]
        out["add_i32"] += len(send.index) if isinstance(send.target, ToNode) else 0
    for step in code:
        for unit in _units(step.op):
            out[unit] += 1
    return out


@cache
def _units(op: Op) -> tuple[str, ...]:
    if op in FUNCTIONS:
        return tuple(_unit(line.code.name) for line in lines_of(op))
    return () if op in _FREE else (_unit(op.name),)


def _unit(name: str) -> str:
    """The weight of an operation by its name, of the image or of the core."""
    kind, _, end = name.rpartition("_")
    if kind in ("DIV", "SQRT"):
        return "div_f32"
    if kind in ("FLOORDIV", "CEILDIV", "MOD"):
        return "div_i32"
    if kind in ("MUL", "FMA", "FMC"):
        return f"mul_{end.lower()}"
    return "add_f32" if end == "F32" and kind in ("ADD", "SUB", "FLOOR", "MIN", "MAX", "LT", "LE", "GT", "GE", "EQ", "NE",
                                                  "I32_TO", "BOOL_TO") else "add_i32"  # fmt: skip


def _joining(gather: Gather | None, kind: ValueType) -> str:
    name = "mul" if gather is Gather.PRODUCT else "add"
    return f"{name}_{'f32' if kind is ValueType.F32 else 'i32'}"

