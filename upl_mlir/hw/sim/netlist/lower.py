"""Cells, registers and memories become C++ statements on variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from upl_mlir.hw.sim.netlist.cells import expression, nonzero
from upl_mlir.hw.sim.netlist.linear import BYTE, join_parities, tables
from upl_mlir.hw.sim.netlist.read import (
    WORD,
    Cell,
    Chunk,
    Memory,
    Netlist,
    Read,
    Register,
    Unit,
    Value,
    Word,
    constant,
    part,
    width,
)
from upl_mlir.hw.sim.netlist.rewrite import in_order
from upl_mlir.hw.sim.netlist.simplify import simplify
from upl_mlir.hw.sim.netlist.split import BITWISE, split
from upl_mlir.hw.sim.netlist.variables import Variable, Variables, mask


@dataclass(eq=False)
class Step:
    """What is evaluated as a whole: statements that set `outs` from `ins`.

    `register`: the variable of a register whose next value `outs` is. `rows`: the memory or the unit whose state is read.
    `writes`: the one that is told `outs` at the end of the cycle.
    """

    outs: list[Variable]
    ins: list[Variable]
    text: str
    path: str = ""
    cost: int = 1
    rows: Memory | Unit | None = None
    writes: Memory | Unit | None = None
    register: Variable | None = None


@dataclass(frozen=True)
class Commit:
    """What happens to a memory at the end of a cycle, if `on` is not 0."""

    memory: Memory | Unit
    on: Variable
    statements: list[str]


@dataclass
class Program:
    """What a model has: variables by word, steps in an order in which each can be done, the registers' initial values."""

    netlist: Netlist
    variables: dict[Word, list[Variable]]
    steps: list[Step]
    initial: dict[Variable, int]
    commits: list[Commit] = field(default_factory=list[Commit])
    outputs: dict[str, list[Variable]] = field(default_factory=dict[str, list[Variable]])
    tables: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Names of constant tables by type of element and the rest of the definition."""


def lower(netlist: Netlist) -> Program:
    """The program of a netlist.  Raises ValueError for a cell of a kind that is not known, or a loop without a register."""
    join_parities(netlist)
    split(netlist)
    simplify(netlist)
    return _Lowering(netlist).program


class _Lowering:
    def __init__(self, netlist: Netlist):
        self.netlist = netlist
        self.v = Variables(netlist)
        self.steps: list[Step] = []
        self.program = Program(netlist, self.v.of, self.steps, {})
        for word in netlist.inputs.values():
            self.v.make(word)
        for r in netlist.registers:
            self.v.make(r.word)
        for m in netlist.memories:
            self.v.make(m.word)
            for port in m.reads:
                self.v.make(port.word)
        for cell in in_order(netlist):
            if isinstance(cell, tuple):
                self._look(*cell)
            elif self.v.used.get(cell.out, 0):
                self._cell(cell)
        for m in netlist.memories:
            for port in m.reads:
                if port.clocked:
                    self._clocked(m, port)
            if m.enable and constant(m.enable) != 0:
                self._write(m)
        for unit in netlist.units:
            self._unit(unit)
        for r in netlist.registers:
            self._register(r)
        for name, value in netlist.outputs.items():
            self.program.outputs[name] = self._output(name, value)

    def _step(self, word: Word, path: str, each: Callable[[Variable], str], *values: Value) -> None:
        """A step for each variable of a word, with an expression."""
        for v in self.v.make(word):
            self.steps.append(Step([v], self.v.reads(*values), f"{v.name} = {each(v)};", path))

    def _cell(self, cell: Cell) -> None:
        bits = self.v.used[cell.out]
        if cell.type in BITWISE:
            self._bitwise(cell)
            return
        if cell.shows is not None:
            unit, method = cell.shows
            told = ", ".join(self.v.bits(value, 0, width(value)) for value in cell.inputs.values())
            (v,) = self.v.make(cell.out)
            text = f"{v.name} = m.u{unit.number}.{method}({told}) & {mask(v.width)};"
            self.steps.append(Step([v], self.v.reads(*cell.inputs.values()), text, cell.path, 20, rows=unit))
            return
        if cell.type == "shr" and max(width(cell.inputs["A"]), bits) > 2 * WORD:
            self._far(cell)
            return
        out = self.v.make(cell.out)
        ins = self.v.reads(*cell.inputs.values())
        text = self._look_up(cell, bits) if cell.type == "linear" else expression(self.v, cell, bits)
        if len(out) == 1:
            statement = f"{out[0].name} = {text};"
        else:
            each = (f"{v.name} = u64({f'w >> {v.low}' if v.low else 'w'}) & {mask(v.width)};" for v in out)
            statement = f"{{ const u128 w = {text}; {' '.join(each)} }}"
        self.steps.append(Step(out, ins, statement, cell.path, 1 + len(ins)))

    def _look_up(self, cell: Cell, used: int) -> str:
        """The lowest `used` bits of a linear map from its tables; maps that are equal have the same ones."""
        a, known = cell.inputs["A"], self.program.tables
        rows = tables(cell.maps, width(a))
        texts = ", ".join(f"{{{', '.join(map(hex, row))}}}" for row in rows)
        bits = next(n for n in (8, 16, 32, 64) if len(cell.maps) <= n)
        name = known.setdefault((f"uint{bits}_t", f"[{len(rows)}][{1 << BYTE}] = {{{texts}}}"), f"t{len(known)}")
        places = range(0, width(a), BYTE)
        text = " ^ ".join(f"{name}[{n}][{self.v.bits(a, at, min(BYTE, width(a) - at))}]" for n, at in enumerate(places))
        return text if used == len(cell.maps) else f"({text}) & {mask(used)}"

    def _far(self, cell: Cell) -> None:
        """A shift to the right of more than 128 bits, most of them constant zeros: only where ones can be is shifted."""
        a, by = cell.inputs["A"], self.v.number(cell.inputs["B"], WORD)
        first, last = nonzero(a)
        if last - first > WORD:
            raise ValueError(f"a shift of {last - first} bits")
        if width(cell.inputs["B"]) >= WORD:
            raise ValueError(f"a shift by a number of {width(cell.inputs['B'])} bits")
        some = self.v.bits(a, first, last - first)
        self._step(
            cell.out,
            cell.path,
            lambda v: f"shift({some}, i64({by}) - {first - v.low}) & {mask(v.width)}",
            *cell.inputs.values(),
        )

    def _bitwise(self, cell: Cell) -> None:
        i, wide = cell.inputs, cell.out.width
        for v in self.v.make(cell.out):
            low, bits = v.low, v.width

            def at(name: str, low: int = low, bits: int = bits, plus: int = 0) -> str:
                value = i[name]
                if name != "B" or cell.type != "pmux":
                    have = width(value)
                    if low + bits > have:
                        filled = Chunk(None, 0, low + bits - have)
                        if cell.signed:
                            raise ValueError("a signed number and bits")
                        value = (*value, filled)
                return self.v.bits(value, low + plus, bits)

            ins = [part(value, low, bits) for name, value in i.items() if name != "S"]
            match cell.type:
                case "and":
                    text = f"{at('A')} & {at('B')}"
                case "or":
                    text = f"{at('A')} | {at('B')}"
                case "xor":
                    text = f"{at('A')} ^ {at('B')}"
                case "xnor":
                    text = f"{at('A')} ^ {at('B')} ^ {mask(bits)}"
                case "not":
                    text = f"{at('A')} ^ {mask(bits)}"
                case "mux":
                    text = f"{self.v.bits(i['S'], 0, 1)} ? {at('B')} : {at('A')}"
                    ins.append(i["S"])
                case _:
                    text = at("A")
                    ins = [part(i["A"], low, bits), i["S"]]
                    for n in reversed(range(width(i["S"]))):
                        text = f"{self.v.bits(i['S'], n, 1)} ? {at('B', plus=n * wide)} : {text}"
                        ins.append(part(i["B"], n * wide + low, bits))
            reads = self.v.reads(*ins)
            self.steps.append(Step([v], reads, f"{v.name} = {text};", cell.path, 1 + len(reads)))

    def _rows(self, m: Memory, port: Read) -> list[tuple[Variable, str]]:
        """The variables of a read port, and expressions for the bits of row `a`, which is there."""
        return [(v, self._from_row(m, v)) for v in self.v.of[port.word]]

    def _from_row(self, m: Memory, v: Variable) -> str:
        terms: list[str] = []
        for x, first, wide, at in self.v.over((Chunk(m.word, v.low, v.width),)):
            assert x is not None
            term = f"m.m{x.number}[a]"
            term = f"({term} >> {first})" if first else term
            term = f"(u64({term}) & {mask(wide)})" if first + wide < x.width else f"u64({term})"
            terms.append(f"({term} << {at})" if at else term)
        return terms[0] if len(terms) == 1 else f"({' | '.join(terms)})"

    def _address(self, m: Memory, value: Value) -> tuple[str, bool]:
        """An address, and whether it may be outside the memory."""
        return self.v.bits(value, 0, min(WORD, width(value))), 1 << width(value) > m.size

    def _look(self, m: Memory, port: Read) -> None:
        address, outside = self._address(m, port.address)
        rows = self._rows(m, port)
        sets = " ".join(
            f"{v.name} = {'a < ' + str(m.size) + ' ? ' if outside else ''}{text}{' : 0' if outside else ''};"
            for v, text in rows
        )
        ins = self.v.reads(port.address)
        self.steps.append(Step([v for v, _ in rows], ins, f"{{ const u64 a = {address}; {sets} }}", cost=3, rows=m))

    def _clocked(self, m: Memory, port: Read) -> None:
        """What a port shows next: the row, with what is written just now if it is to see that."""
        address, outside = self._address(m, port.address)
        for v, text in self._rows(m, port):
            ins = [port.address, port.enable]
            if outside:
                text = f"(a < {m.size} ? {text} : 0)"
            if port.transparent and m.enable:
                new, enable = part(m.data, v.low, v.width), part(m.enable, v.low, v.width)
                write, _ = self._address(m, m.address)
                data, one = self.v.bits(new, 0, v.width), _same(enable)
                if one is not None:
                    text = f"{self.v.bits(one, 0, 1)} & (a == {write}) ? {data} : {text}"
                else:
                    on = self.v.bits(enable, 0, v.width)
                    text = f"a == {write} ? ({text} & ~{on}) | ({data} & {on}) : {text}"
                ins += [new, enable, m.address]
            later = self._later(v)
            held = "" if constant(port.enable) == 1 else f"!{self.v.bits(port.enable, 0, 1)} ? {v.name} : "
            body = f"{{ const u64 a = {address}; {later.name} = {held}{text}; }}"
            self.steps.append(
                Step([later], [*self.v.reads(*ins), *([v] if held else [])], body, cost=4, rows=m, register=v)
            )
            self.program.initial[v] = port.initial >> v.low & (1 << v.width) - 1

    def _later(self, v: Variable) -> Variable:
        return self.v.single(v.width, f"{v.word.name}'")

    def _write(self, m: Memory) -> None:
        """Enable, address and data for the end of the cycle."""
        address, outside = self._address(m, m.address)
        outs: list[Variable] = []
        texts: list[str] = []
        bits = _same(m.enable)

        def out(text: str, wide: int) -> Variable:
            v = self.v.single(wide)
            outs.append(v)
            texts.append(f"{v.name} = {text};")
            return v

        size = f" && {address} < {m.size}" if outside else ""
        on = out(f"(({self.v.truth(m.enable)}) != 0){size}" if bits is None else f"{self.v.bits(bits, 0, 1)}{size}", 1)
        place = out(address, max(1, width(m.address)))
        rows: list[str] = []
        for v in self.v.of[m.word]:
            row, data = f"m.m{v.number}[{place.name}]", out(self.v.bits(m.data, v.low, v.width), v.width)
            if bits is None:
                ones = out(self.v.bits(m.enable, v.low, v.width), v.width)
                rows.append(f"{row} = ({row} & ~{ones.name}) | ({data.name} & {ones.name});")
            else:
                rows.append(f"{row} = {data.name};")
        ins = self.v.reads(m.address, m.data, m.enable)
        step = Step(outs, ins, " ".join(texts), cost=2 + len(outs), writes=m)
        self.steps.append(step)
        self.program.commits.append(Commit(m, on, rows))

    def _unit(self, unit: Unit) -> None:
        """What a unit is told at the end of the cycle."""
        outs = {name: self.v.single(width(value)) for name, value in unit.inputs.items()}
        on = self.v.single(1)
        texts = [f"{outs[name].name} = {self.v.bits(value, 0, width(value))};" for name, value in unit.inputs.items()]
        texts.append(f"{on.name} = ({' | '.join(outs[name].name for name in unit.kind.on)}) != 0;")
        step = Step(
            [*outs.values(), on], self.v.reads(*unit.inputs.values()), " ".join(texts), cost=2 + len(outs), writes=unit
        )
        self.steps.append(step)
        told = ", ".join(v.name for v in outs.values())
        self.program.commits.append(Commit(unit, on, [f"m.u{unit.number}.edge({told});"]))

    def _output(self, name: str, value: Value) -> list[Variable]:
        """What a port shows. One of at most 64 bits is a single variable: models store that as the whole port."""
        wide = width(value)
        if wide > WORD:
            variables = self.v.make(Word(wide, name, set(accumulate(c.width for c in value[:-1]))))
        else:
            variables = [self.v.single(wide, name)]
        for v in variables:
            ins = self.v.reads(part(value, v.low, v.width))
            self.steps.append(Step([v], ins, f"{v.name} = {self.v.bits(value, v.low, v.width)};"))
        return variables

    def _register(self, r: Register) -> None:
        for v in self.v.of[r.word]:
            later = self._later(v)
            value = part(r.next, v.low, v.width)
            self.steps.append(
                Step([later], self.v.reads(value), f"{later.name} = {self.v.bits(value, 0, v.width)};", register=v)
            )
            self.program.initial[v] = r.initial >> v.low & (1 << v.width) - 1


def _same(value: Value) -> Value | None:
    """One bit if all bits of a value are the same one."""
    bits = {(c.word, c.low + n if c.word is not None else c.low >> n & 1) for c in value for n in range(c.width)}
    if len(bits) != 1:
        return None
    word, low = bits.pop()
    return (Chunk(word, low, 1),)
