"""Which stages of a program have waiting records in a core: what the throttle must know to find the oldest stage.

The stage of an instance is the value of the field along which the program streams. Stages are told apart modulo a power of
two; a record of an input whose tokens have `*` in that field has none.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Member, Out

from upl_mlir.hw.core.layouts import OFFSET_BITS, Dimensions, key_layout
from upl_mlir.hw.ports import writes, written

STAGE_BITS = 16
"""Width of the number of a stage."""
WINDOW_BITS = 7
"""Width of a number of stages that are under way at a time."""


def stage_layout(d: Dimensions) -> data.StructLayout:
    """The stage of a node's tokens: ((tag >> shift) & mask) + constant, for the records of the classes `has` (a bit for
    each input, and one for the shared record); and how many stages from the oldest one on the host may send (`window`)."""
    return data.StructLayout(
        {
            "has": d.max_inputs + 1,
            "shift": OFFSET_BITS,
            "mask": STAGE_BITS,
            "constant": STAGE_BITS,
            "window": WINDOW_BITS,
        }
    )


def stage_ports(d: Dimensions) -> dict[str, Member]:
    """The ports of a matching unit for the stages of its records: see `Stages`; none if stages are not told apart."""
    if not d.stages:
        return {}
    return {**writes("stage", d.node_bits, stage_layout(d)), "live": Out(d.stages)}


def stage_of(row: Value, tag: Value) -> Value:
    """The stage of a tag by the row of its node."""
    return (((tag >> row.shift)[:STAGE_BITS] & row.mask) + row.constant)[:STAGE_BITS]


def change_layout(d: Dimensions) -> data.StructLayout:
    """A record that has come into a store, or gone."""
    return data.StructLayout({"any": 1, "comes": 1, "key": key_layout(d)})


class Stages(wiring.Component):
    """changes (in): of each of two stores, in this cycle. row_*: writes to the table of stages. live (out): for each stage
    modulo `Dimensions.stages` whether records of it wait, three cycles later. idle (out): no change is under way.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "changes": In(change_layout(d)).array(2),
                **writes("row", d.node_bits, stage_layout(d)),
                "live": Out(d.stages),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Look the node's row up, find the stage, count."""
        d = self.d
        m = Module()
        m.submodules.rows = rows = Memory(shape=stage_layout(d), depth=1 << d.node_bits, init=[])
        written(m, rows, self, "row")
        more, fewer, busy = [], [], []
        for n in range(2):
            change = self.changes[n]
            read = rows.read_port()
            seen = Signal(change_layout(d), name=f"seen{n}")
            m.d.comb += read.addr.eq(change.key.node)
            m.d.sync += seen.eq(change)
            which = Signal(range(d.stages), name=f"which{n}")
            counts, comes = Signal(name=f"counts{n}"), Signal(name=f"comes{n}")
            m.d.sync += [
                which.eq(stage_of(read.data, seen.key.tag)), comes.eq(seen.comes),
                counts.eq(seen.any & (read.data.has >> seen.key["class"])[0]),
            ]  # fmt: skip
            selected = Mux(counts, 1 << which, 0)
            more.append(Mux(comes, selected, 0))
            fewer.append(Mux(comes, 0, selected))
            busy += [seen.any, counts]
        for stage in range(d.stages):
            records = Signal(range(d.most_records + 1), name=f"records{stage}")
            up, down = (sum(each[stage] for each in side) for side in (more, fewer))
            m.d.sync += records.eq(records + up - down)
            m.d.comb += self.live[stage].eq(records != 0)
        m.d.comb += self.idle.eq(~Cat(*busy).any())
        return m
