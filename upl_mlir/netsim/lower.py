"""Netlists become programs: cells, registers and memories become steps."""

from __future__ import annotations

from itertools import accumulate

from upl_mlir.netsim.cells import expression, nonzero
from upl_mlir.netsim.expression import (
    Node,
    Variable,
    binary,
    call,
    choose,
    differ,
    equal,
    joined,
    less,
    number,
    ones,
    variable,
)
from upl_mlir.netsim.linear import BYTE, join_parities, tables
from upl_mlir.netsim.program import Commit, Let, Program, Step, Table
from upl_mlir.netsim.read import (
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
from upl_mlir.netsim.rewrite import in_order
from upl_mlir.netsim.simplify import simplify
from upl_mlir.netsim.split import BITWISE, split
from upl_mlir.netsim.variables import Variables


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

    def _step(self, v: Variable, value: Node, path: str, *values: Value) -> None:
        """A step that sets one variable from values."""
        self.steps.append(Step([(v, value)], self.v.reads(*values), path))

    def _cell(self, cell: Cell) -> None:
        bits = self.v.used[cell.out]
        values = cell.inputs.values()
        if cell.type in BITWISE:
            self._bitwise(cell)
            return
        if cell.shows is not None:
            unit, method = cell.shows
            told = tuple(self.v.bits(value, 0, width(value)) for value in values)
            (v,) = self.v.make(cell.out)
            shown = Node("unit", told, f"u{unit.number}.{method}") & ones(v.width)
            self.steps.append(Step([(v, shown)], self.v.reads(*values), cell.path, 20, rows=unit))
            return
        if cell.type == "shr" and max(width(cell.inputs["A"]), bits) > 2 * WORD:
            self._far(cell)
            return
        out = self.v.make(cell.out)
        ins = self.v.reads(*values)
        value = self._look_up(cell, bits) if cell.type == "linear" else expression(self.v, cell, bits)
        let = None
        if len(out) == 1:
            sets = [(out[0], value)]
        else:
            let = Let(value, wide=True)
            sets = [(v, call("u64", let.node >> v.low) & ones(v.width)) for v in out]
        self.steps.append(Step(sets, ins, cell.path, 1 + len(ins), let))

    def _look_up(self, cell: Cell, used: int) -> Node:
        """The lowest `used` bits of a linear map from its tables; maps that are equal have the same ones."""
        a, known = cell.inputs["A"], self.program.tables
        bits = next(n for n in (8, 16, 32, 64) if len(cell.maps) <= n)
        rows = tables(cell.maps, width(a))
        terms: list[Node] = []
        for low in range(0, width(a), WORD):
            table = Table(bits, tuple(map(tuple, rows[low // BYTE : (low + WORD) // BYTE])))
            name = known.setdefault(table, f"t{len(known)}")
            terms.append(Node("linear", (self.v.bits(a, low, min(WORD, width(a) - low)),), name))
        value = joined(terms, "^")
        return value if used == len(cell.maps) else value & ones(used)

    def _far(self, cell: Cell) -> None:
        """A shift to the right of more than 128 bits, most of them constant zeros: only where ones can be is shifted."""
        a, by = cell.inputs["A"], self.v.number(cell.inputs["B"], WORD)
        first, last = nonzero(a)
        if last - first > WORD:
            raise ValueError(f"a shift of {last - first} bits")
        if width(cell.inputs["B"]) >= WORD:
            raise ValueError(f"a shift by a number of {width(cell.inputs['B'])} bits")
        some = self.v.bits(a, first, last - first)
        for v in self.v.make(cell.out):
            shifted = call("shift", some, call("i64", by) - call("i64", first - v.low)) & ones(v.width)
            self._step(v, shifted, cell.path, *cell.inputs.values())

    def _bitwise(self, cell: Cell) -> None:
        i, wide = cell.inputs, cell.out.width
        for v in self.v.make(cell.out):
            low, bits = v.low, v.width

            def at(name: str, low: int = low, bits: int = bits, plus: int = 0) -> Node:
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
                    value = at("A") & at("B")
                case "or":
                    value = at("A") | at("B")
                case "xor":
                    value = at("A") ^ at("B")
                case "xnor":
                    value = at("A") ^ at("B") ^ ones(bits)
                case "not":
                    value = at("A") ^ ones(bits)
                case "mux":
                    value = choose(self.v.bits(i["S"], 0, 1), at("B"), at("A"))
                    ins.append(i["S"])
                case _:
                    value = at("A")
                    ins = [part(i["A"], low, bits), i["S"]]
                    for n in reversed(range(width(i["S"]))):
                        value = choose(self.v.bits(i["S"], n, 1), at("B", plus=n * wide), value)
                        ins.append(part(i["B"], n * wide + low, bits))
            reads = self.v.reads(*ins)
            self.steps.append(Step([(v, value)], reads, cell.path, 1 + len(reads)))

    def _rows(self, m: Memory, port: Read, at: Node) -> list[tuple[Variable, Node]]:
        """The variables of a read port, and their bits in a row that is there."""
        return [(v, self._from_row(m, v, at)) for v in self.v.of[port.word]]

    def _from_row(self, m: Memory, v: Variable, at: Node) -> Node:
        terms: list[Node] = []
        for x, first, wide, place in self.v.over((Chunk(m.word, v.low, v.width),)):
            assert x is not None
            term = call("u64", Node("row", (at,), f"m{x.number}") >> first)
            terms.append((term & ones(wide) if first + wide < x.width else term) << place)
        return joined(terms)

    def _address(self, m: Memory, value: Value) -> tuple[Node, bool]:
        """An address, and whether it may be outside the memory."""
        return self.v.bits(value, 0, min(WORD, width(value))), 1 << width(value) > m.size

    def _look(self, m: Memory, port: Read) -> None:
        address, outside = self._address(m, port.address)
        let = Let(address)
        rows = self._rows(m, port, let.node)
        if outside:
            rows = [(v, choose(less(let.node, m.size), row, number(0))) for v, row in rows]
        self.steps.append(Step(rows, self.v.reads(port.address), cost=3, let=let, rows=m))

    def _clocked(self, m: Memory, port: Read) -> None:
        """What a port shows next: the row, with what is written just now if it is to see that."""
        address, outside = self._address(m, port.address)
        let = Let(address)
        for v, value in self._rows(m, port, let.node):
            ins = [port.address, port.enable]
            if outside:
                value = choose(less(let.node, m.size), value, number(0))
            if port.transparent and m.enable:
                new, enable = part(m.data, v.low, v.width), part(m.enable, v.low, v.width)
                write, _ = self._address(m, m.address)
                data, one = self.v.bits(new, 0, v.width), _same(enable)
                hit = equal(let.node, write)
                if one is not None:
                    value = choose(self.v.bits(one, 0, 1) & hit, data, value)
                else:
                    on = self.v.bits(enable, 0, v.width)
                    value = choose(hit, (value & ~on) | (data & on), value)
                ins += [new, enable, m.address]
            held = constant(port.enable) != 1
            if held:
                value = choose(Node("not", (self.v.bits(port.enable, 0, 1),)), variable(v), value)
            reads = [*self.v.reads(*ins), *([v] if held else [])]
            self.steps.append(Step([(self._later(v), value)], reads, cost=4, let=let, rows=m, register=v))
            self.program.initial[v] = port.initial >> v.low & ones(v.width)

    def _later(self, v: Variable) -> Variable:
        return self.v.single(v.width, f"{v.word.name}'")

    def _write(self, m: Memory) -> None:
        """Enable, address and data for the end of the cycle."""
        address, outside = self._address(m, m.address)
        bits = _same(m.enable)
        sets: list[tuple[Variable, Node]] = []

        def out(value: Node, wide: int) -> Variable:
            v = self.v.single(wide)
            sets.append((v, value))
            return v

        enable = differ(self.v.truth(m.enable), 0) if bits is None else self.v.bits(bits, 0, 1)
        on = out(binary("&&", enable, less(address, m.size)) if outside else enable, 1)
        place = out(address, max(1, width(m.address)))
        rows: list[tuple[Node | None, Node]] = []
        for v in self.v.of[m.word]:
            row = Node("row", (variable(place),), f"m{v.number}")
            data = variable(out(self.v.bits(m.data, v.low, v.width), v.width))
            if bits is None:
                some = variable(out(self.v.bits(m.enable, v.low, v.width), v.width))
                data = (row & ~some) | (data & some)
            rows.append((row, data))
        ins = self.v.reads(m.address, m.data, m.enable)
        self.steps.append(Step(sets, ins, cost=2 + len(sets), writes=m))
        self.program.commits.append(Commit(m, on, place, rows))

    def _unit(self, unit: Unit) -> None:
        """What a unit is told at the end of the cycle."""
        outs = {name: self.v.single(width(value)) for name, value in unit.inputs.items()}
        on = self.v.single(1)
        sets = [(outs[name], self.v.bits(value, 0, width(value))) for name, value in unit.inputs.items()]
        sets.append((on, differ(joined(variable(outs[name]) for name in unit.kind.on), 0)))
        self.steps.append(Step(sets, self.v.reads(*unit.inputs.values()), cost=1 + len(sets), writes=unit))
        edge = Node("unit", tuple(map(variable, outs.values())), f"u{unit.number}.edge")
        self.program.commits.append(Commit(unit, on, None, [(None, edge)]))

    def _output(self, name: str, value: Value) -> list[Variable]:
        """What a port shows. One of at most 64 bits is a single variable: models store that as the whole port."""
        wide = width(value)
        if wide > WORD:
            variables = self.v.make(Word(wide, name, set(accumulate(c.width for c in value[:-1]))))
        else:
            variables = [self.v.single(wide, name)]
        for v in variables:
            self._step(v, self.v.bits(value, v.low, v.width), "", part(value, v.low, v.width))
        return variables

    def _register(self, r: Register) -> None:
        for v in self.v.of[r.word]:
            value = part(r.next, v.low, v.width)
            later = self._later(v)
            self.steps.append(Step([(later, self.v.bits(value, 0, v.width))], self.v.reads(value), register=v))
            self.program.initial[v] = r.initial >> v.low & ones(v.width)


def _same(value: Value) -> Value | None:
    """One bit if all bits of a value are the same one."""
    bits = {(c.word, c.low + n if c.word is not None else c.low >> n & 1) for c in value for n in range(c.width)}
    if len(bits) != 1:
        return None
    word, low = bits.pop()
    return (Chunk(word, low, 1),)
