"""How many records of each class may have partners of a token: a walk that can find nothing is not begun, or ends at once.

All records that one instance of a node needs agree in node and in the fields that every input has. Counters are kept by a
hash of these: where there is a record there is a count, and where none can be found there is mostly none.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.core.stores.hash import set_of

ROW_BITS = 10
"""Width of the number of a row of counters."""


def row_of(node: Value, home: Value, d: Dimensions) -> Value:
    """The row of a node and the fields that every input of it has."""
    return set_of((Const(0, d.class_bits), node, home), ROW_BITS)


class Presence(wiring.Component):
    """address (in): a row; in the next cycle it is `at` (in), and absent (out) says for each class (the last one: the shared
    records) whether there is no record, without what changes in that cycle.

    changes (in, 1): at the end of the cycle a record of `kind` (in) has come into the row `at`, or gone if comes (in) is 0.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "address": In(ROW_BITS),
                "at": In(ROW_BITS),
                "absent": Out(d.max_inputs + 1),
                "changes": In(1),
                "kind": In(d.class_bits),
                "comes": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Rows of counters; a read sees the write of its cycle."""
        d = self.d
        m = Module()
        width = bits_for(d.sets * d.ways + d.spill_words + 1)
        row = data.ArrayLayout(width, d.max_inputs + 1)
        m.submodules.counts = counts = Memory(shape=row, depth=1 << ROW_BITS, init=[])
        write = counts.write_port(granularity=1)
        read = counts.read_port(transparent_for=(write,))
        m.d.comb += [
            read.addr.eq(self.address),
            write.addr.eq(self.at),
            write.en.eq(Mux(self.changes, 1 << self.kind, 0)),
        ]
        for n in range(d.max_inputs + 1):
            m.d.comb += write.data[n].eq(Mux(self.comes, read.data[n] + 1, read.data[n] - 1))
            m.d.comb += self.absent[n].eq(read.data[n] == 0)
        return m
