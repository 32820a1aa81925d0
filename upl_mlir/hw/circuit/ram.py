"""The memories of a circuit: in LUTs up to 32 words, in block RAM beyond, with one end to write and one to read.

On an ECP5 they are TRELLIS_DPR16X4 (16 words of 4 bits) and DP16KD.  The latter is made as an instance, because yosys
neither uses its output register, without which the clock is below 150 MHz, nor sees that addresses differ.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any, Literal

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

Target = Literal["generic", "ecp5"]
"""What the hardware is made of: `generic` can be simulated, `ecp5` has the device's own blocks."""

UNMERGED = {"keep": 1}
"""Of a register: synthesis must not make one of it and of others that are always equal. Each serves a place of its own."""

LUT_WORDS = 32
"""Memories of more words are in block RAM. From 17 words on those in LUTs have multiplexers: 32 words of 32 bits take 137
LUTs, a block RAM 11."""
WIDE, WIDE_WORDS = 36, 512
"""Bits of a word that takes both sides of a block RAM, and the words of one."""
ONE_BLOCK = 18
"""Bits of a word that takes one side of a block RAM."""
BLOCK_WORDS = {ONE_BLOCK: 1024, 9: 2048, 4: 4096, 2: 8192, 1: 16384}
"""The words of one block RAM, by their width."""


class Ram(wiring.Component):
    """The word that was at read_address comes to read_data after `registers` clocks with read_enable, which hold the word
    and the output; one register is possible in LUTs only.

    A word that is read in the clock in which it is written is the old one in LUTs; in block RAM it may be anything.
    Memories begin with zeros and have no reset. A memory of one word is a register. One of more than `in_luts` words is in
    block RAM; with `wide`, words of up to 36 bits may lie in one block, whose output then comes from both of its sides.
    """

    def __init__(
        self, width: int, depth: int, registers: int, target: Target = "generic", in_luts: int = LUT_WORDS,
        wide: bool = False,
    ):
        self.block = depth > in_luts
        if self.block and registers < 2:
            raise ValueError(f"depth={depth}: block RAM has two registers")
        if depth > BLOCK_WORDS[1]:
            raise ValueError(f"depth={depth}: expected at most {BLOCK_WORDS[1]} words")
        self.width, self.depth, self.registers, self.target = width, depth, registers, target
        self.wide = wide and ONE_BLOCK < width <= WIDE and depth <= WIDE_WORDS
        super().__init__(
            {
                "write_address": In(range(depth)), "write_data": In(width), "write_enable": In(1),
                "read_address": In(range(depth)), "read_enable": In(1), "read_data": Out(width),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """The memory, and a register or two."""
        m = Module()
        if self.depth == 1:
            only = registered(m, self.write_data, 1, self.write_enable, "only")
            m.d.comb += self.read_data.eq(registered(m, only, self.registers, self.read_enable, "read"))
            return m
        if self.block and self.target == "ecp5":
            self._blocks(m)
            return m
        style = "block" if self.block else "distributed"
        m.submodules.words = words = Memory(shape=self.width, depth=self.depth, init=[], attrs={"ram_style": style})
        write, read = words.write_port(), words.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.write_address), write.data.eq(self.write_data), write.en.eq(self.write_enable),
            read.addr.eq(self.read_address),
        ]  # fmt: skip
        m.d.comb += self.read_data.eq(registered(m, read.data, self.registers, self.read_enable, "read"))
        return m

    def _blocks(self, m: Module) -> None:
        """Block RAMs side by side, with their output registers: port A writes, port B reads."""
        if self.wide:
            low, high = Signal(18, name="found_low"), Signal(18, name="found_high")
            m.d.comb += self.read_data.eq(Cat(low, high))
            m.submodules.block = Instance("DP16KD", **_wide_block(self, low, high))
            return
        width = next(w for w, words in BLOCK_WORDS.items() if words >= self.depth)
        for n in range(0, self.width, width):
            part = self.write_data[n : n + width]
            found = Signal(18, name=f"found_{n}")
            m.d.comb += self.read_data[n : n + width].eq(found[: len(part)])
            m.submodules[f"block_{n}"] = Instance("DP16KD", **_block(self, width, part, found))


def _wide_block(ram: Ram, low: Signal, high: Signal) -> dict[str, Any]:
    """A DP16KD with words of 36 bits, as yosys maps a memory with a port that writes and one that reads: A writes, by the
    inputs of both sides; B reads, by the outputs of both sides, each with its register."""
    word = Cat(ram.write_data, Const(0, WIDE))[:WIDE]
    out: dict[str, Any] = {
        **{f"p_DATA_WIDTH_{x}": WIDE for x in "AB"}, **{f"p_CLK{x}MUX": f"CLK{x}" for x in "AB"},
        **{f"p_CSDECODE_{x}": "0b000" for x in "AB"}, **{f"p_REGMODE_{x}": "OUTREG" for x in "AB"},
        "p_GSR": "DISABLED", "p_RESETMODE": "SYNC", "p_ASYNC_RESET_RELEASE": "SYNC",
        "i_WEA": ram.write_enable, "i_CEA": Const(1), "i_OCEA": ram.read_enable, "i_WEB": Const(0),
        "i_CEB": ram.read_enable, "i_OCEB": ram.read_enable,
    }  # fmt: skip
    places = {"A": Cat(Const(15, 5), ram.write_address, Const(0, 9)), "B": Cat(Const(0, 5), ram.read_address, Const(0, 9))}
    for x, place in places.items():
        out |= {f"i_CLK{x}": ClockSignal(), f"i_RST{x}": Const(0), **{f"i_CS{x}{n}": Const(0) for n in range(3)}}
        out |= {f"i_AD{x}{n}": place[n] for n in range(14)}
        out |= {f"i_DI{x}{n}": word[n + (18 if x == "B" else 0)] for n in range(18)}
    return out | {f"o_DOA{n}": low[n] for n in range(18)} | {f"o_DOB{n}": high[n] for n in range(18)}


def registered(m: Module, value: Value, count: int, enable: Value, name: str) -> Value:
    """The value behind so many registers, which `enable` moves."""
    for n in range(count):
        register = Signal(len(value), name=f"{name}_{n}", reset_less=True)
        with m.If(enable):
            m.d.sync += register.eq(value)
        value = register
    return value


def copied(m: Module, value: Value, name: str) -> Signal:
    """A register that goes on always, for a place of its own."""
    out = Signal(name=name, attrs=UNMERGED)
    m.d.sync += out.eq(value)
    return out


def _block(ram: Ram, width: int, part: Any, found: Signal) -> dict[str, Any]:
    """Parameters and ports of a DP16KD; the address of a word is left of the bits that would choose a part of 16."""
    shift = {18: 4, 9: 3, 4: 2, 2: 1, 1: 0}[width]
    bytes_ = Const(3, 2) if width == 18 else Const(0, 2)  # these bits of the address are byte enables then

    def address(value: Any, low: Any) -> Any:
        return Cat(Cat(low, Const(0, 2))[:shift], value, Const(0, 14))[:14]

    out: dict[str, Any] = {
        **{f"p_DATA_WIDTH_{x}": width for x in "AB"}, **{f"p_CLK{x}MUX": f"CLK{x}" for x in "AB"},
        **{f"p_CSDECODE_{x}": "0b000" for x in "AB"}, **{f"p_WRITEMODE_{x}": "NORMAL" for x in "AB"},
        "p_GSR": "DISABLED", "p_RESETMODE": "SYNC", "p_ASYNC_RESET_RELEASE": "SYNC",
        "p_REGMODE_A": "NOREG", "p_REGMODE_B": "OUTREG",
        "i_WEA": ram.write_enable, "i_CEA": Const(1), "i_OCEA": Const(0), "i_WEB": Const(0), "i_CEB": ram.read_enable,
        "i_OCEB": ram.read_enable,
    }  # fmt: skip
    writes = address(ram.write_address, bytes_), Cat(part, Const(0, 18))
    reads = address(ram.read_address, Const(0, 2)), Const(0, 18)
    for x, (place, data) in {"A": writes, "B": reads}.items():
        out |= {f"i_CLK{x}": ClockSignal(), f"i_RST{x}": Const(0), **{f"i_CS{x}{n}": Const(0) for n in range(3)}}
        out |= {f"i_AD{x}{n}": place[n] for n in range(14)}
        out |= {f"i_DI{x}{n}": data[n] for n in range(18)}
    return out | {f"o_DOB{n}": found[n] for n in range(18)}
