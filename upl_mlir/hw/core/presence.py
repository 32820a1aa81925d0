"""How many records of each class a node has in the store: a walk that can find nothing is not begun, or ends at once."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import Dimensions, key_layout


class Presence(wiring.Component):
    """changes (in, 1): at the end of the cycle a record of node and class `key` (in) has come, or gone if its `valid` is 0.

    node (in): a node; absent (out): for each class (the last one: the shared records) whether it has no record, in the
    same cycle, without what changes in it.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "changes": In(1),
                "key": In(key_layout(d)),
                "node": In(d.node_bits),
                "absent": Out(d.max_inputs + 1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A row of counters a node, read without delay."""
        d = self.d
        m = Module()
        width = bits_for(d.sets * d.ways + d.spill_words + 1)
        m.submodules.counts = counts = Memory(
            shape=data.ArrayLayout(width, d.max_inputs + 1), depth=1 << d.node_bits, init=[]
        )
        write = counts.write_port(granularity=1)
        before, asked = counts.read_port(domain="comb"), counts.read_port(domain="comb")
        m.d.comb += [
            before.addr.eq(self.key.node),
            write.addr.eq(self.key.node),
            write.en.eq(Mux(self.changes, 1 << self.key["class"], 0)),
            asked.addr.eq(self.node),
        ]
        for n in range(d.max_inputs + 1):
            m.d.comb += write.data[n].eq(Mux(self.key.valid, before.data[n] + 1, before.data[n] - 1))
            m.d.comb += self.absent[n].eq(asked.data[n] == 0)
        return m
