"""Chooses the core of a token: a row of a table for each node says how, by a hash of the fields that all its inputs have, or
by an expression of one field.

    home = first + (s * count) >> 16,  s = top bits of ((tag & mask) >> shift) * GOLDEN, or
                                    ((tag & mask) >> shift) * factor + constant

Multiples of the golden ratio are spread evenly, a whole box of indices as well as any run of neighbours; those of a power of
two times it are not, so that the lowest bit of the mask is shifted to the lowest place. In the organisation
`direct`, where a place is computed, "hashed" means: s = (sum of the lanes of tag & mask) * factor + constant.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import CORE_BITS, OFFSET_BITS, Dimensions, flit_layout, token_layout
from upl_mlir.hw.core.stages import stage_layout
from upl_mlir.hw.direct.lanes import LANE
from upl_mlir.hw.machine import Organisation
from upl_mlir.hw.ports import writes, written

PLACE_BITS = 16
"""Precision of the hash that chooses the core of a token."""
_LANE_CORE = (1 << CORE_BITS) - 1
"""The bits of a lane that can choose a core."""


def place_layout(d: Dimensions) -> data.StructLayout:
    """Which core a node's tokens are for: the bits of the tag that count (`mask`), whether they are hashed, else the place
    from which on they are read, with what they are multiplied and what is added; the number of cores and the first one.
    And their `stage`, if there is a throttle."""
    return data.StructLayout(
        {
            "mask": d.tag_bits,
            "hashed": 1,
            "shift": OFFSET_BITS,
            "factor": PLACE_BITS,
            "constant": PLACE_BITS,
            "count": CORE_BITS + 1,
            "first": CORE_BITS,
            **({"stage": stage_layout(d)} if d.stages else {}),
        }
    )


def golden(tag_bits: int) -> int:
    """The odd number next to 2**tag_bits divided by the golden ratio, for any width."""
    bits = max(tag_bits, PLACE_BITS)
    whole = 1 << bits
    # The root of 5 in fixed point: (root - 1) / 2 is 1 / the golden ratio.
    scale = 1 << 128
    low, high = 0, 3 * scale
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle * middle <= 5 * scale * scale else (low, middle)
    return (low - scale) * whole // (2 * scale) | 1


def home_of(row: dict[str, int], tag: int, tag_bits: int, *, lanes: bool = False) -> int:
    """The core that a row of the table chooses for a tag: the model of the hardware, with `lanes` of that of `direct`."""
    bits = max(tag_bits, PLACE_BITS)
    kept = tag & row["mask"]
    if row["hashed"] and lanes:
        total = sum(kept >> place & _LANE_CORE for place in range(0, tag_bits, LANE))
        s = total * row["factor"] + row["constant"] & ((1 << PLACE_BITS) - 1)
    elif row["hashed"]:
        s = ((kept >> row["shift"]) * golden(tag_bits) & ((1 << bits) - 1)) >> (bits - PLACE_BITS)
    else:
        s = (kept >> row["shift"]) * row["factor"] + row["constant"] & ((1 << PLACE_BITS) - 1)
    return row["first"] + (s * row["count"] >> PLACE_BITS)


class Placer(wiring.Component):
    """token (in stream) to flit (out stream), two cycles later. place_*: writes to the table. idle (out): nothing inside.

    The ready of the one depends on the ready of the other in the same cycle.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(d))),
                "flit": Out(stream.Signature(flit_layout(d))),
                **writes("place", d.node_bits, place_layout(d)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the row; multiply; choose."""
        d = self.d
        m = Module()
        m.submodules.rows = rows = Memory(shape=place_layout(d), depth=1 << d.node_bits, init=[])
        written(m, rows, self, "place")
        read = rows.read_port()
        first_valid, second_valid = Signal(), Signal()
        first, second = Signal(token_layout(d)), Signal(token_layout(d))
        first_moves, second_moves = Signal(), Signal()
        m.d.comb += [
            second_moves.eq(~second_valid | self.flit.ready),
            first_moves.eq(~first_valid | second_moves),
            self.token.ready.eq(first_moves),
            read.en.eq(first_moves),
            read.addr.eq(self.token.payload.node),
        ]
        with m.If(first_moves):
            m.d.sync += [first_valid.eq(self.token.valid), first.eq(self.token.payload)]
        bits = max(d.tag_bits, PLACE_BITS)
        row = read.data
        kept, product, moved = Signal(bits), Signal(bits), Signal(bits)
        m.d.comb += [
            kept.eq(first.tag & row.mask),
            moved.eq(kept >> row.shift),
            product.eq(moved * golden(d.tag_bits)),
        ]
        if d.organisation is Organisation.DIRECT:
            lanes = [kept[place : place + LANE] & _LANE_CORE for place in range(0, d.tag_bits, LANE)]
            spread = (sum(lanes) * row.factor + row.constant)[:PLACE_BITS]
        else:
            spread = product[bits - PLACE_BITS :]
        s, chosen = Signal(PLACE_BITS), Signal(place_layout(d))
        with m.If(second_moves):
            m.d.sync += [
                second_valid.eq(first_valid),
                second.eq(first),
                chosen.eq(row),
                s.eq(Mux(row.hashed, spread, moved[:PLACE_BITS] * row.factor + row.constant)),
            ]
        m.d.comb += [
            self.flit.valid.eq(second_valid),
            self.flit.payload.token.eq(second),
            self.flit.payload.home.eq(chosen.first + ((s * chosen.count) >> PLACE_BITS)),
            self.idle.eq(~first_valid & ~second_valid),
        ]
        return m
