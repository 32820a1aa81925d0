"""What the states of the matching unit (`unit.py`) share: memories, registers, and the wires that states drive."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportUnknownLambdaType=false
# pyright: reportIndexIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Signal
from amaranth.lib.memory import Memory

from upl_mlir.hw.matching_unit.cam import Cam
from upl_mlir.hw.matching_unit.interface import (
    VALUE_BITS,
    Dimensions,
    Fault,
    content_layout,
    entry_layout,
    node_row_layout,
    token_layout,
)


class State:
    """Memories and their ports, the token being worked on, the levels of the search, the key, what is stored."""

    def __init__(self, dim: Dimensions, fault: Fault | None, m: Module):
        self.levels = levels = max(1, dim.max_inputs - 1)
        m.submodules.cam = cam = self.cam = Cam(dim)
        self.found = Const(0) if fault is Fault.MATCH_STUCK_AT_0 else cam.found

        # Block memories with registered outputs, one port for each direction.
        m.submodules.entries = entries = Memory(shape=entry_layout(dim), depth=dim.capacity, init=[])
        m.submodules.contents = contents = Memory(shape=content_layout(dim), depth=dim.capacity, init=[])
        m.submodules.nodes = nodes = Memory(shape=node_row_layout(dim), depth=1 << dim.node_bits, init=[])
        entry_write, entry_read = entries.write_port(), entries.read_port()
        content_write, content_read = contents.write_port(), contents.read_port()
        node_write, node_read = nodes.write_port(), nodes.read_port()
        self.entry_write, self.entry_read = entry_write, entry_read
        self.content_write, self.content_read = content_write, content_read
        self.node_write, self.node_read = node_write, node_read
        self.entry, self.content, self.row = entry_read.data, content_read.data, node_read.data

        # The token being worked on, and the search with return.
        self.cur = Signal(token_layout(dim))
        self.level = Signal(range(levels + 1))
        self.place = Array(Signal(dim.entry_bits, name=f"place{i}") for i in range(levels))
        self.left = [Signal(dim.multiplicity_bits, name=f"left{i}") for i in range(levels)]
        self.left_at = Array(self.left)
        # The index as narrowed by the levels above: entry i is what level i looks for.
        self.tag = Array(Signal(dim.tag_bits, name=f"tag{i}") for i in range(levels + 1))
        self.wild = Array(Signal(dim.max_fields, name=f"wild{i}") for i in range(levels + 1))
        self.values = Array(Signal(VALUE_BITS, name=f"value{i}") for i in range(dim.max_inputs))
        self.other = Array(Signal(dim.input_bits, name=f"other{i}") for i in range(levels))
        self.from_adder = Signal()
        self.under_way = Signal(range(dim.adder_depth + 1))
        self.last_level = Signal(range(dim.max_inputs + 1))  # the node's inputs - 2, where it has two or more

        # The key, in registers, and which bits of the tag its open fields cover.
        self.key_wild = Signal(dim.max_fields)
        self.key_gather, self.key_node = Signal(), Signal(dim.node_bits, name="key_node")
        self.key_input, self.key_tag = Signal(dim.input_bits), Signal(dim.tag_bits)

        # Storing: the key registers hold what is written to the match part; the memories get the same.
        self.store = Signal()
        self.rewrite = Signal()
        self.written = Signal(content_layout(dim))
        self.address = Signal(dim.entry_bits)
        self.read_entry = Signal(dim.entry_bits)
        self.read = Signal()
        self.working = Signal()
        self.mode = Signal(2)  # of the token's input
