"""Delays of any number of slots, links back to an earlier lane, and windows.

The registers of a lane are gated by its enable; its *slots* are the clocks in which that is 1, counted from 0.  What a
block gives "in slot s" stands at its output in that clock, and in the clocks before it in which the lane stands still.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.circuit.ram import LUT_WORDS, ONE_BLOCK, Ram, Target, registered

REGISTERS = 3
"""The longest delay that is registers: with a memory instead, one of 4 slots and 32 bits has 92 flip-flops less, and 50
LUTs more."""
BANK = 17
"""The slots of one bank of memory in LUTs with its register: 54 LUTs for 32 bits. A memory of 32 words takes 143."""
BANKED = 2 * BANK
"""Longer delays are in block RAM: two of them and 28 LUTs for 32 bits."""


class Delay(wiring.Component):
    """data_out in slot s is data_in of slot s-length; 0 before that. A length of 0 is a wire."""

    def __init__(self, width: int, length: int, target: Target = "generic"):
        if length < 0:
            raise ValueError(f"length={length}: expected 0 and more")
        self.width, self.length, self.target = width, length, target
        super().__init__({"data_in": In(width), "data_out": Out(width), "enable": In(1)})

    def elaborate(self, platform: object) -> Module:
        """Registers, a memory, or a bank and what is left."""
        m = Module()
        if BANK < self.length <= BANKED:
            m.submodules.first = first = Delay(self.width, BANK, self.target)
            m.d.comb += [first.data_in.eq(self.data_in), first.enable.eq(self.enable)]
            return _rest(m, self, first.data_out, self.enable)
        if self.length > REGISTERS:
            line = _Line(self.width, self.length, self.target)
            return line.between(m, self.data_in, self.enable, self.data_out, self.enable)
        m.d.comb += self.data_out.eq(registered(m, self.data_in, self.length, self.enable, "data"))
        return m


class Crossing(wiring.Component):
    """A link to a lane that is `lag` clocks earlier: data_out in the reader's slot s is data_in of the writer's slot
    s-length.

    write_enable is the enable of the writer, that of the reader (read_enable) `lag` clocks before.
    """

    def __init__(self, width: int, length: int, lag: int, target: Target = "generic"):
        if lag < 1 or length < self.least(lag):
            raise ValueError(f"length={length}, lag={lag}: expected a lag of 1 and more, `least(lag)` slots and more")
        self.width, self.length, self.lag, self.target = width, length, lag, target
        super().__init__({"data_in": In(width), "write_enable": In(1), "data_out": Out(width), "read_enable": In(1)})

    @staticmethod
    def least(lag: int) -> int:
        """The least length: what is read must be in the memory, if the reader never waits."""
        return lag + 2 if lag + 1 <= LUT_WORDS else lag + 3

    def elaborate(self, platform: object) -> Module:
        """A memory, or a bank and what is left, in the reader's lane."""
        if BANK < self.length <= BANKED and self.least(self.lag) <= BANK:
            m = Module()
            m.submodules.first = first = Crossing(self.width, BANK, self.lag, self.target)
            m.d.comb += [
                first.data_in.eq(self.data_in), first.write_enable.eq(self.write_enable),
                first.read_enable.eq(self.read_enable),
            ]  # fmt: skip
            return _rest(m, self, first.data_out, self.read_enable)
        line = _Line(self.width, self.length, self.target)
        return line.between(Module(), self.data_in, self.write_enable, self.data_out, self.read_enable)


def _rest(m: Module, unit: Delay | Crossing, data: Value, enable: Value) -> Module:
    """What comes out of the first bank goes through the rest of the slots."""
    m.submodules.rest = rest = Delay(unit.width, unit.length - BANK, unit.target)
    m.d.comb += [rest.data_in.eq(data), rest.enable.eq(enable), unit.data_out.eq(rest.data_out)]
    return m


class _Line:
    """A circular buffer of length-1 words, in which `length` counts the registers behind it.

    In LUTs there is one, and the word that goes is read where the next one is written.  In block RAM there are two, so it is
    read a slot before.
    """

    def __init__(self, width: int, length: int, target: Target):
        self.depth = length - 1
        self.ram = Ram(width, self.depth, 1 if self.depth <= LUT_WORDS else 2, target)

    def between(self, m: Module, data_in: Value, writes: Value, data_out: Value, reads: Value) -> Module:
        """Connect the buffer; `writes` and `reads` are the enables of its ends."""
        m.submodules.ram = ram = self.ram
        at = self._count(m, reads, self.ram.registers - 1, "read_address")
        same = writes is reads and ram.registers == 1
        m.d.comb += [
            ram.write_address.eq(at if same else self._count(m, writes, 0, "write_address")), ram.write_data.eq(data_in),
            ram.write_enable.eq(writes), ram.read_address.eq(at), ram.read_enable.eq(reads), data_out.eq(ram.read_data),
        ]  # fmt: skip
        return m

    def _count(self, m: Module, enable: Value, first: int, name: str) -> Signal:
        """Count from `first` on, modulo the depth; that a counter is at its last value is a register, too."""
        count, ends = Signal(range(self.depth), init=first, name=name), Signal(init=first == self.depth - 1)
        with m.If(enable):
            m.d.sync += [count.eq(Mux(ends, 0, count + 1)), ends.eq(count == self.depth - 2)]
        return count


class VariableDelay(wiring.Component):
    """data_out in slot s is data_in of slot s-length, where `length` (2 to `longest`) is that of slot s-AHEAD."""

    AHEAD = 3

    def __init__(self, width: int, longest: int, target: Target = "generic"):
        if longest < 2:
            raise ValueError(f"longest={longest}: expected 2 and more")
        self.width, self.longest, self.target = width, longest, target
        super().__init__(
            {"data_in": In(width), "length": In(range(longest + 1)), "data_out": Out(width), "enable": In(1)}
        )

    def elaborate(self, platform: object) -> Module:
        """A memory whose reading address follows its writing address; block RAM cannot give the last word but one."""
        m = Module()
        depth = 1 << (self.longest - 2).bit_length()  # longest-1 words, or more
        short = depth <= LUT_WORDS
        m.submodules.ram = ram = Ram(self.width, depth, 1 if short else 2, self.target)
        write, read = Signal(range(depth)), Signal(range(depth))
        recent = [Signal(self.width, name=f"recent_{n}", reset_less=True) for n in range(2)]
        two = [Signal(name=f"two_{n}") for n in range(self.AHEAD)]
        m.d.comb += [
            ram.write_address.eq(write), ram.write_data.eq(self.data_in), ram.write_enable.eq(self.enable),
            ram.read_enable.eq(self.enable), self.data_out.eq(ram.read_data),
        ]  # fmt: skip
        with m.If(self.enable):
            m.d.sync += [write.eq(write + 1), read.eq(write + self.AHEAD - self.length)]
        if short:
            late = Signal(range(depth))
            with m.If(self.enable):
                m.d.sync += late.eq(read)
            m.d.comb += ram.read_address.eq(late)
            return m
        m.d.comb += ram.read_address.eq(read)
        with m.If(self.enable):
            m.d.sync += [recent[0].eq(self.data_in), recent[1].eq(recent[0]), two[0].eq(self.length == 2)]
            m.d.sync += [after.eq(before) for before, after in pairwise(two)]
        with m.If(two[-1]):
            m.d.comb += self.data_out.eq(recent[1])
        return m


class Window(wiring.Component):
    """The last `depth` words that were written (a power of two), each at the number of its write modulo depth.

    data_out is the word at read_address two clocks with read_enable later. Writes need no enable. A word may be read from
    the clock after its write on.  `in_luts`, `wide`: see `Ram`.
    """

    LATENCY = 2

    def __init__(
        self, width: int, depth: int, target: Target = "generic", in_luts: int = LUT_WORDS, wide: bool = False
    ):
        if depth < 1 or depth & (depth - 1):
            raise ValueError(f"depth={depth}: expected a power of two")
        self.width, self.depth, self.target, self.in_luts, self.wide = width, depth, target, in_luts, wide
        super().__init__(
            {
                "write": In(1), "data_in": In(width), "read_address": In(range(depth)), "read_enable": In(1),
                "data_out": Out(width),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """A memory and the counter of its writes."""
        m = Module()
        m.submodules.ram = ram = Ram(self.width, self.depth, self.LATENCY, self.target, self.in_luts, self.wide)
        at = Signal.like(self.read_address)
        with m.If(self.write):
            m.d.sync += at.eq(at + 1)
        m.d.comb += [
            ram.write_address.eq(at), ram.write_data.eq(self.data_in), ram.write_enable.eq(self.write),
            ram.read_address.eq(self.read_address), ram.read_enable.eq(self.read_enable), self.data_out.eq(ram.read_data),
        ]  # fmt: skip
        return m


WINDOW_IN_LUTS = 8
"""Words of a lane's window that are in LUTs in a circuit of several processes, or if they have at most 18 bits: a longer one
takes one block RAM there instead of 48 LUT sites; of 80 with 32 words of 18 bits."""


def lane_window(width: int, depth: int, target: Target, several: bool) -> Ram:
    """The memory of a lane's window.  The place of each word comes with it, so that a lane needs no counter.  LUTs are
    scarcer than block RAM in a circuit of `several` processes, and with short words, which one block holds."""
    in_luts = WINDOW_IN_LUTS if several or width <= ONE_BLOCK else LUT_WORDS
    return Ram(width, depth, Window.LATENCY, target, in_luts, several)


def held(m: Module, loads: Value, comes: Value, word: Value, places: int, number: int) -> Signal:
    """A word in a register, and up to `places` words that wait in registers before it, with control of their own.

    With `loads` the next word takes its place; with `comes` a word comes to the end, which must be free.
    """
    leaves = loads  # the word of a place goes on: to the place before, or to `now`
    now = Signal(len(word), name=f"now_{number}", reset_less=True)
    waiting = [Signal(len(word), name=f"waiting_{number}_{k}", reset_less=True) for k in range(places)]
    full = [Signal(name=f"full_{number}_{k}") for k in range(places)]
    with m.If(loads):
        m.d.sync += now.eq(waiting[0])
    for k in range(places):
        last = k == places - 1
        enters = comes if last else Signal(name=f"moves_{number}_{k}")
        if not last:
            m.d.comb += enters.eq(full[k + 1] & ~full[k])  # a clock later than it could be, and no path through all
        m.d.sync += full[k].eq(enters | full[k] & ~leaves)
        with m.If(enters):
            m.d.sync += waiting[k].eq(word if last else waiting[k + 1])
        leaves = enters
    return now
