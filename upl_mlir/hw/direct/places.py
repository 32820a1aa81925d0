"""The store of open gathers of the direct unit: a record is where its index says, so nothing is compared but generations."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from upl_mlir.hw.core.layouts import VALUE_BITS, Dimensions
from upl_mlir.hw.core.stores.ram import ram
from upl_mlir.hw.core.stores.records import record_ports
from upl_mlir.hw.core.stores.store import gather_shape
from upl_mlir.hw.direct.layouts import GENERATION_BITS, sum_state_layout


def age_layout() -> data.StructLayout:
    """What is left of a key where the place says the rest: whether places are used again (`moves`), and in which generation
    this one is asked for."""
    return data.StructLayout({"valid": 1, "moves": 1, "generation": GENERATION_BITS})


class Places(wiring.Component):
    """As `Records` of one way, in which every record is found at once and no place is ever asked for by two keys at a time.

    early (out): the place is still for an earlier generation. look (in): the place to look at when nothing is wanted; looked
    (out): what is there.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        self.shape = gather_shape(d)
        self.key_shape = age_layout()
        super().__init__({**record_ports(self.shape, self.key_shape, d.way_bits), **self.service})

    @property
    def service(self) -> dict[str, Any]:
        """The ports that the pipe round it hands on as they are."""
        return {"looked": Out(sum_state_layout(self.d)), "used": Out(range(self.d.sets + 1))}

    def elaborate(self, platform: object) -> Module:
        """One memory for states, with the generations, and one for values."""
        d = self.d
        m = Module()
        states = ram(m, d, "states", sum_state_layout(d), self.shape.sets)
        values = ram(m, d, "values", VALUE_BITS, self.shape.sets)
        found, written = states.found, states.written
        timely = Signal()
        m.d.comb += [
            timely.eq(~self.key.moves | (found.generation == self.key.generation)),
            states.address.eq(self.address), values.address.eq(self.address),
            self.ready.eq(1), self.early.eq(~timely), self.hit.eq(found.valid & timely), self.free.eq(~found.valid),
            self.state.left.eq(Mux(self.hit, found.left, 0)), self.state.total.eq(Mux(self.hit, found.total, 0)),
            self.values[0].eq(values.found), self.looked.eq(found),
            self.corrupt.eq((states.corrupt | values.corrupt) & self.wanted),
            # A gather that is over leaves its place to the next generation, even if it has never waited there.
            states.writes.eq(self.write_state_en | self.over), states.place.eq(self.at),
            written.valid.eq(~self.over), written.generation.eq(found.generation + self.over),
            written.left.eq(self.write_state.left), written.total.eq(self.write_state.total),
            values.writes.eq(self.write_value), values.place.eq(self.value_set), values.written.eq(self.write_values[0]),
        ]  # fmt: skip
        with m.If(self.write_key_en & self.write_key.valid):
            m.d.sync += self.used.eq(self.used + 1)
        with m.Elif(self.write_key_en):
            m.d.sync += self.used.eq(self.used - 1)
        return m
