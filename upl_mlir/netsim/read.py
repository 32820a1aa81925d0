"""Netlists of words, read from the JSON that yosys writes (`write_json`, documented in its manual).

A net of one bit there has a number; cells join such bits. Here every bit belongs to a word: an output of a cell, the value
of a register, what a read port of a memory shows, or an input of the module. The order of modules is flat, processes are
gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upl_mlir.netsim.units import UnitKind

WORD = 64
"""Bits of a machine word."""


@dataclass(frozen=True)
class Chunk:
    """`width` bits of a word from bit `low` on, or, if `word` is None, of the constant `low`."""

    word: Word | None
    low: int
    width: int


@dataclass(eq=False)
class Word:
    """A value of several bits with one source. `name` is that of a net that has it, if there is one."""

    width: int
    name: str = ""
    cuts: set[int] = field(default_factory=set[int])
    """Where it is better split, if it is longer than a machine word: users begin or end there."""


Value = tuple[Chunk, ...]
"""Chunks, the lowest first."""


@dataclass(eq=False)
class Cell:
    """An operation of yosys' library of cells (`type` without its `$`); `signed`: of both operands, if it has two."""

    type: str
    path: str
    inputs: dict[str, Value]
    out: Word
    signed: bool = False
    maps: tuple[int, ...] = ()
    """Of a cell `linear`, which is none of yosys': for each bit of `out` the bits of `A` whose parity it is."""
    shows: tuple[Unit, str] | None = None
    """Of a cell `unit`: the unit whose outputs it has, and the method that gives them."""


@dataclass(eq=False)
class Register:
    """Takes `next` at each edge of the clock."""

    word: Word
    next: Value
    initial: int


@dataclass(eq=False)
class Read:
    """A read port: `word` shows a row at once, or, with `clocked`, from the next edge on if it was enabled. It sees what is
    written at the same edge where `transparent`."""

    word: Word
    address: Value
    enable: Value
    clocked: bool
    transparent: bool
    initial: int


@dataclass(eq=False)
class Memory:
    """Rows of `width` bits with one write port; bits of a row have enables of their own."""

    name: str
    width: int
    size: int
    initial: int
    reads: list[Read]
    address: Value = ()
    data: Value = ()
    enable: Value = ()
    word: Word = field(default_factory=lambda: Word(0))
    """Stands for a row: what it is split into."""


@dataclass(eq=False)
class Unit:
    """An instance of a module that is described in C++; what it shows are cells of their own."""

    kind: UnitKind
    number: int
    parameters: tuple[int, ...]
    inputs: dict[str, Value] = field(default_factory=dict[str, Value])


@dataclass
class Netlist:
    """A flat module with one clock."""

    inputs: dict[str, Word]
    outputs: dict[str, Value]
    cells: list[Cell]
    registers: list[Register]
    memories: list[Memory]
    units: list[Unit] = field(default_factory=list[Unit])


def width(value: Value) -> int:
    """Bits of a value."""
    return sum(c.width for c in value)


def part(value: Value, low: int, bits: int) -> Value:
    """`bits` bits of a value from bit `low` on."""
    out: list[Chunk] = []
    for c in value:
        first, last = max(low, 0), min(low + bits, c.width)
        if first < last:
            start = c.low + first if c.word is not None else c.low >> first & (1 << (last - first)) - 1
            out.append(Chunk(c.word, start, last - first))
        low -= c.width
    return tuple(out)


def constant(value: Value) -> int | None:
    """The number that a value is, or None if it depends on something."""
    number = at = 0
    for c in value:
        if c.word is not None:
            return None
        number |= c.low << at
        at += c.width
    return number


def read(text: str, top: str, units: Mapping[str, UnitKind]) -> Netlist:
    """The netlist of module `top`. Bits that are undefined are 0, as they are for Amaranth. `units`: by names of modules.

    Raises ValueError if there is something in it that the models of our machines do not have."""
    module = json.loads(text)["modules"][top]
    return _Reader(module, units).netlist


def _number(bits: str) -> int:
    return int(bits.replace("x", "0").replace("z", "0") or "0", 2)


class _Reader:
    """Gives each bit its word, then makes values of the lists of bits."""

    def __init__(self, module: Any, units: Mapping[str, UnitKind]):
        self.units = units
        self.at: dict[int, tuple[Word, int]] = {}
        self.netlist = Netlist({}, {}, [], [], [])
        clock = module["ports"].get("clk", {"bits": []})["bits"]
        initial: dict[int, str] = {}
        names: dict[int, str] = {}
        for name, net in module["netnames"].items():
            for n, bit in enumerate(reversed(net["attributes"].get("init", ""))):
                initial[net["bits"][n]] = bit
            if not net["hide_name"] and net["bits"] and isinstance(net["bits"][0], int):
                names[net["bits"][0]] = name
        self.names = names
        for name, port in module["ports"].items():
            if port["direction"] == "input":
                self.netlist.inputs[name] = self._word(port["bits"], name)
        made: list[tuple[Any, Any, list[Word]]] = []
        for name, cell in module["cells"].items():
            if cell["type"] == "$scopeinfo":
                continue
            made.append((name, cell, self._outputs(cell)))
        for name, cell, words in made:
            self._cell(name, cell, words, initial, clock)
        for name, port in module["ports"].items():
            if port["direction"] == "output":
                self.netlist.outputs[name] = self._value(port["bits"])

    def _word(self, bits: Sequence[Any], name: str = "") -> Word:
        first = bits[0] if bits else None
        word = Word(len(bits), name or (self.names.get(first, "") if isinstance(first, int) else ""))
        for n, bit in enumerate(bits):
            if isinstance(bit, int):
                self.at[bit] = word, n
        return word

    def _value(self, bits: Sequence[Any]) -> Value:
        out: list[Chunk] = []
        for bit in bits:
            last = out[-1] if out else None
            if isinstance(bit, str):
                one = int(bit == "1")
                if last is not None and last.word is None:
                    out[-1] = Chunk(None, last.low | one << last.width, last.width + 1)
                else:
                    out.append(Chunk(None, one, 1))
                continue
            if bit not in self.at:
                raise ValueError(f"nothing drives net {bit}")
            word, n = self.at[bit]
            if last is not None and last.word is word and last.low + last.width == n:
                out[-1] = Chunk(word, last.low, last.width + 1)
            else:
                out.append(Chunk(word, n, 1))
        return tuple(out)

    def _outputs(self, cell: Any) -> list[Word]:
        joined, kind = cell["connections"], cell["type"]
        if kind == "$mem_v2":
            wide = _number(cell["parameters"]["WIDTH"])
            bits = joined["RD_DATA"]
            return [self._word(bits[n : n + wide]) for n in range(0, len(bits), wide)]
        if kind in self.units:
            shows = self.units[kind].shows.values()
            return [self._word([bit for name in names for bit in joined[name]]) for names, _ in shows]
        return [self._word(joined["Q" if kind == "$dff" else "Y"])]

    def _cell(self, name: str, cell: Any, words: list[Word], initial: dict[int, str], clock: list[int]) -> None:
        kind, p, joined = cell["type"], cell["parameters"], cell["connections"]
        if kind == "$mem_v2":
            self.netlist.memories.append(self._memory(name, p, joined, words, clock))
        elif kind == "$dff":
            _require(joined["CLK"] == clock and _number(p["CLK_POLARITY"]) == 1, name, "another clock")
            start = sum((initial.get(bit) == "1") << n for n, bit in enumerate(joined["Q"]))
            self.netlist.registers.append(Register(words[0], self._value(joined["D"]), start))
        elif kind in self.units:
            _require(joined["clk"] == clock, name, "another clock")
            _require(constant(self._value(joined["rst"])) == 0, name, "a reset")
            self._unit(self.units[kind], name, p, joined, words)
        else:
            inputs = {port: self._value(bits) for port, bits in joined.items() if port != "Y"}
            signed = [_number(p[key]) for key in ("A_SIGNED", "B_SIGNED") if key in p]
            if kind in ("$shl", "$shr", "$sshl", "$sshr", "$shift", "$shiftx"):
                _require(kind in ("$shift", "$shiftx") or not signed[1], name, "a shift by a signed number")
                if kind in ("$shift", "$shiftx"):
                    _require(not signed[0], name, "a signed number shifted to both sides")
                    signed = [signed[1]]
                else:
                    longer = _number(p["Y_WIDTH"]) > _number(p["A_WIDTH"])
                    _require(kind != "$shr" or not (signed[0] and longer), name, "a signed number that is extended")
                    signed = [signed[0] and (longer if kind != "$sshr" else 1)]
            self.netlist.cells.append(
                Cell(kind[1:], name.rpartition(".")[0], inputs, words[0], signed=bool(signed) and all(signed))
            )

    def _unit(self, kind: UnitKind, name: str, p: Any, joined: Any, words: list[Word]) -> None:
        unit = Unit(kind, len(self.netlist.units), tuple(_number(p[key]) for key in kind.parameters))
        unit.inputs = {port: self._value(joined[port]) for port in kind.edge}
        self.netlist.units.append(unit)
        for (method, (_, ports)), word in zip(kind.shows.items(), words, strict=True):
            inputs = {port: self._value(joined[port]) for port in ports}
            self.netlist.cells.append(Cell("unit", name, inputs, word, shows=(unit, method)))

    def _memory(self, name: str, p: Any, joined: Any, words: list[Word], clock: list[int]) -> Memory:
        wide, bits, writes = (_number(p[key]) for key in ("WIDTH", "ABITS", "WR_PORTS"))
        _require(writes <= 1, name, "several write ports")
        _require(_number(p["OFFSET"]) == 0, name, "rows that do not begin with 0")
        enables, transparent = _number(p["RD_CLK_ENABLE"]), _number(p["RD_TRANSPARENCY_MASK"])
        reads: list[Read] = []
        for n, word in enumerate(words):
            clocked = bool(enables >> n & 1)
            _require(not clocked or joined["RD_CLK"][n] == clock[0], name, "another clock")
            for reset in ("RD_ARST", "RD_SRST"):
                _require(joined[reset][n] in ("0", "x"), name, "a read port with a reset")
            address = self._value(joined["RD_ADDR"][n * bits : (n + 1) * bits])
            start = _number(p["RD_INIT_VALUE"]) >> n * wide & (1 << wide) - 1
            enable = self._value(joined["RD_EN"][n : n + 1])
            reads.append(Read(word, address, enable, clocked, bool(transparent >> n & 1), start))
        memory = Memory(name, wide, _number(p["SIZE"]), _number(p["INIT"]), reads, word=Word(wide))
        if writes:
            _require(joined["WR_CLK"] == clock, name, "another clock")
            memory.address, memory.data, memory.enable = (self._value(joined[k]) for k in ("WR_ADDR", "WR_DATA", "WR_EN"))
        return memory


def _require(condition: bool, name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"{name}: {what}")
