"""The reducer: adds and multiplies the summands of gathers, one operation a cycle, and gives results back in order."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import MODE_BITS, VALUE_BITS, Dimensions, Mode
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder, Multiplier


def operation_layout(d: Dimensions) -> data.StructLayout:
    """What comes back with a result, if nothing else is said: the set and the way of its record."""
    return data.StructLayout({"set": d.set_bits, "way": d.way_bits})


class Reducer(wiring.Component):
    """begin (in, 1): take `left`, `right`, `mode` and `place` (in); never more than `pending` at a time.

    valid (out, 1): the oldest result is at `result` and `result_place` (out); take (in, 1): it is taken.
    waiting (out): results that wait; active (out): operations under way or waiting; overflow (out, 1): the oldest result
    is an integer product that did not fit. The layout of a place is that of `operation_layout`, or what is given.
    """

    def __init__(self, d: Dimensions, place: data.StructLayout | None = None):
        self.d = d
        self.place_layout = layout = place or operation_layout(d)
        super().__init__(
            {
                "begin": In(1),
                "left": In(VALUE_BITS),
                "right": In(VALUE_BITS),
                "mode": In(MODE_BITS),
                "place": In(layout),
                "valid": Out(1),
                "result": Out(VALUE_BITS),
                "result_place": Out(layout),
                "overflow": Out(1),
                "take": In(1),
                "active": Out(range(d.pending + 1)),
                "waiting": Out(range(d.pending + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Adder, multiplier and integer product side by side, of one latency, behind registers: who begins an operation has
        decided that late in the cycle. Results are few, and read at once: so they wait in LUTs."""
        d = self.d
        m = Module()
        begun, left, right = Signal(), Signal(VALUE_BITS), Signal(VALUE_BITS)
        begun_mode, begun_place = Signal(MODE_BITS), Signal(self.place_layout)
        m.d.sync += [begun.eq(self.begin), left.eq(self.left), right.eq(self.right), begun_mode.eq(self.mode),
                     begun_place.eq(self.place)]  # fmt: skip
        place_bits = self.place_layout.size
        passed = 1 + MODE_BITS + place_bits
        m.submodules.adder = adder = Adder(BINARY32, d.pass_cycles, passed)
        m.submodules.multiplier = multiplier = Multiplier(BINARY32, d.pass_cycles)
        m.submodules.results = results = SyncFIFO(width=VALUE_BITS + place_bits + 1, depth=d.pending)
        product = Signal(signed(2 * VALUE_BITS))
        m.d.comb += product.eq(left.as_signed() * right.as_signed())
        line: Signal | None = None
        for n in range(d.pass_cycles):
            register = Signal(VALUE_BITS + 1, name=f"product{n}")
            fits = (product >> (VALUE_BITS - 1) == 0) | (product >> (VALUE_BITS - 1) == -1)
            m.d.sync += register.eq(Cat(product[:VALUE_BITS], ~fits) if line is None else line)
            line = register
        assert line is not None
        m.d.comb += [
            adder.a.eq(left),
            adder.b.eq(right),
            multiplier.a.eq(left),
            multiplier.b.eq(right),
            adder.pass_in.eq(Cat(begun, begun_mode, begun_place)),
        ]
        mode, place = adder.pass_out[1 : 1 + MODE_BITS], adder.pass_out[1 + MODE_BITS :]
        integer = mode == Mode.MUL_I32
        value = Mux(integer, line[:VALUE_BITS], Mux(mode == Mode.MUL_F32, multiplier.result, adder.result))
        m.d.comb += [
            results.w_en.eq(adder.pass_out[0]),
            results.w_data.eq(Cat(value, place, integer & line[-1])),
            results.r_en.eq(self.take),
            self.valid.eq(results.r_rdy),
            Cat(self.result, self.result_place.as_value(), self.overflow).eq(results.r_data),
            self.waiting.eq(results.r_level),
        ]
        m.d.sync += self.active.eq(self.active + self.begin - (self.take & self.valid))
        return m
