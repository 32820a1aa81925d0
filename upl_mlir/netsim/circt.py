"""A netlist as text of CIRCT's dialects `hw`, `comb` and `seq`: one module, an operation for each cell.

Registers are `seq.firreg` with the values that they begin with, memories `seq.firmem` that are read at once. What CIRCT of
2023 and later parses is used: other operations for registers have changed their text since.
"""

from __future__ import annotations

import re

from upl_mlir.netsim.read import Cell, Chunk, Memory, Netlist, Value, Word, part, width

_SAME = {"and": "and", "or": "or", "xor": "xor", "add": "add", "sub": "sub", "mul": "mul"}
"""Cells whose operands are as wide as the result, and their operations."""
_COMPARED = {"eq": "eq", "ne": "ne", "lt": "{}lt", "le": "{}le", "gt": "{}gt", "ge": "{}ge"}
"""Cells that compare operands of one width, and the predicates of `comb.icmp`."""
_SHIFTS = {"shl": "shl", "sshl": "shl", "shr": "shru", "sshr": "shr{}", "shift": "shru", "shiftx": "shru"}
_PLAIN = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
"""What may follow % and be a name of a port without quotation marks."""


def circt_text(netlist: Netlist, name: str) -> str:
    """The text of a netlist whose clock is its input `clk`.  Raises ValueError for what it cannot say: a kind of cell that
    is not known, a memory with registers at its read port or that does not begin with zeros, a unit.
    """
    return _Writer(netlist).text(name)


class _Writer:
    def __init__(self, netlist: Netlist):
        self.netlist = netlist
        self.lines: list[str] = []
        self.taken: set[str] = set()
        self.of: dict[Word, str] = {}
        self.values: dict[Value, str] = {}

    def text(self, name: str) -> str:
        """The whole module."""
        n = self.netlist
        if n.units:
            raise ValueError(f"an instance of {n.units[0].kind}")
        ports = [self._port(port, word) for port, word in sorted(n.inputs.items(), key=lambda p: p[0] != "clk")]
        ports += [f"out {_quoted(port)} : i{width(value)}" for port, value in n.outputs.items()]
        reads = [read.word for memory in n.memories for read in memory.reads]
        for word in (*(r.word for r in n.registers), *reads, *(cell.out for cell in n.cells)):
            self.of[word] = self._fresh(word.name)
        for memory in n.memories:
            self._memory(memory)
        for cell in n.cells:
            self._cell(cell)
        for r in n.registers:
            self._op(f"seq.firreg {self._value(r.next)} clock %clk preset {r.initial}", f"i{r.word.width}", self.of[r.word])
        outputs = [self._value(value) for value in n.outputs.values()]
        types = ", ".join(f"i{width(value)}" for value in n.outputs.values())
        self._line(f"hw.output {', '.join(outputs)} : {types}" if outputs else "hw.output")
        return f"hw.module @{name}({', '.join(ports)}) {{\n{''.join(self.lines)}}}\n"

    def _line(self, text: str) -> None:
        self.lines.append(f"  {text}\n")

    def _port(self, port: str, word: Word) -> str:
        if port == "clk":
            self.taken.add("clk")
            return "in %clk : !seq.clock"
        ssa = self.of[word] = self._fresh(port)
        return f"in {ssa} : i{word.width}" if ssa == f"%{port}" else f"in {ssa} {_quoted(port)} : i{word.width}"

    def _fresh(self, name: str = "") -> str:
        """A name that no value has, like this one if it can be."""
        name = name if _PLAIN.fullmatch(name) else "v"
        chosen, n = name, len(self.taken)
        while chosen in self.taken:
            chosen, n = f"{name}_{n}", n + 1
        self.taken.add(chosen)
        return f"%{chosen}"

    def _op(self, operation: str, kind: str, name: str = "") -> str:
        """A line with a result; `kind` is what follows the colon."""
        out = name or self._fresh()
        self._line(f"{out} = {operation} : {kind}")
        return out

    def _value(self, value: Value) -> str:
        """The name of a value that is put together of parts of words and constants."""
        if value not in self.values:
            chunks = [self._chunk(c) for c in value]
            if len(chunks) == 1:
                (self.values[value],) = chunks
            else:
                types = ", ".join(f"i{c.width}" for c in reversed(value))
                self.values[value] = self._op(f"comb.concat {', '.join(reversed(chunks))}", types)
        return self.values[value]

    def _chunk(self, c: Chunk) -> str:
        if c.word is None:
            return self._constant(c.low, c.width)
        if c.width == c.word.width:
            return self.of[c.word]
        if (c,) not in self.values:
            self.values[c,] = self._op(f"comb.extract {self.of[c.word]} from {c.low}", f"(i{c.word.width}) -> i{c.width}")
        return self.values[c,]

    def _constant(self, number: int, bits: int) -> str:
        key = (Chunk(None, number, bits),)
        if key not in self.values:
            self.values[key] = self._op(f"hw.constant {number - (number >> bits - 1 << bits)}", f"i{bits}")
        return self.values[key]

    def _wide(self, value: Value, bits: int, signed: bool) -> str:
        """The lowest bits of a value, extended if it has not so many."""
        have = width(value)
        if have >= bits:
            return self._value(part(value, 0, bits))
        if not signed:
            return self._value((*value, Chunk(None, 0, bits - have)))
        sign = part(value, have - 1, 1)
        return self._value((*value, *(sign * (bits - have))))

    def _cell(self, cell: Cell) -> None:
        """The operations of one cell (yosys' manual, "Word-level cells")."""
        i, kind, bits, out = cell.inputs, cell.type, cell.out.width, self.of[cell.out]
        a, b = i["A"], i.get("B", ())

        def same(operation: str, x: str, y: str) -> None:
            self._op(f"comb.{operation} {x}, {y}", f"i{bits}", out)

        if kind in _SAME:
            same(_SAME[kind], self._wide(a, bits, cell.signed), self._wide(b, bits, cell.signed))
        elif kind == "not":
            same("xor", self._wide(a, bits, cell.signed), self._constant((1 << bits) - 1, bits))
        elif kind == "xnor":
            x = self._op(f"comb.xor {self._wide(a, bits, cell.signed)}, {self._wide(b, bits, cell.signed)}", f"i{bits}")
            same("xor", x, self._constant((1 << bits) - 1, bits))
        elif kind == "neg":
            same("sub", self._constant(0, bits), self._wide(a, bits, cell.signed))
        elif kind in _SHIFTS:
            self._shift(cell)
        elif kind == "mux":
            self._op(f"comb.mux {self._value(i['S'])}, {self._value(b)}, {self._value(a)}", f"i{bits}", out)
        elif kind == "pmux":
            chosen, choices = self._value(a), width(i["S"])
            for n in range(choices):
                select, this = self._value(part(i["S"], n, 1)), self._value(part(b, n * bits, bits))
                name = out if n == choices - 1 else ""
                chosen = self._op(f"comb.mux {select}, {this}, {chosen}", f"i{bits}", name)
        else:
            self._bit(cell)

    def _shift(self, cell: Cell) -> None:
        """A shift, in as many bits as the longest of operands and result."""
        a, b, bits = cell.inputs["A"], cell.inputs["B"], cell.out.width
        if cell.type in ("shift", "shiftx") and cell.signed:
            raise ValueError("a shift to both sides")
        whole = max(width(a), width(b), bits)
        operation = _SHIFTS[cell.type].format("s" if cell.signed else "u")
        x, by = self._wide(a, whole, cell.signed), self._wide(b, whole, False)
        shifted = self._op(f"comb.{operation} {x}, {by}", f"i{whole}", self.of[cell.out] if whole == bits else "")
        if whole > bits:
            self._op(f"comb.extract {shifted} from 0", f"(i{whole}) -> i{bits}", self.of[cell.out])

    def _bit(self, cell: Cell) -> None:
        """A cell whose result is one bit, with zeros above it."""
        i, kind = cell.inputs, cell.type
        a, b = i["A"], i.get("B", ())
        name = self.of[cell.out] if cell.out.width == 1 else self._fresh()

        def compare(predicate: str, x: str, y: str, wide: int, name: str = "") -> str:
            return self._op(f"comb.icmp {predicate} {x}, {y}", f"i{wide}", name)

        def test(predicate: str, value: Value, number: int, name: str = "") -> str:
            return compare(predicate, self._value(value), self._constant(number, width(value)), width(value), name)

        if kind in _COMPARED:
            wide = max(width(a), width(b))
            predicate = _COMPARED[kind].format("s" if cell.signed else "u")
            compare(predicate, self._wide(a, wide, cell.signed), self._wide(b, wide, cell.signed), wide, name)
        elif kind in ("reduce_or", "reduce_bool", "logic_not"):
            test("eq" if kind == "logic_not" else "ne", a, 0, name)
        elif kind == "reduce_and":
            test("eq", a, (1 << width(a)) - 1, name)
        elif kind == "reduce_xor":
            self._op(f"comb.parity {self._value(a)}", f"i{width(a)}", name)
        elif kind == "reduce_xnor":
            parity = self._op(f"comb.parity {self._value(a)}", f"i{width(a)}")
            self._op(f"comb.xor {parity}, {self._constant(1, 1)}", "i1", name)
        elif kind in ("logic_and", "logic_or"):
            self._op(f"comb.{kind.removeprefix('logic_')} {test('ne', a, 0)}, {test('ne', b, 0)}", "i1", name)
        else:
            raise ValueError(f"a cell ${kind}")
        if cell.out.width > 1:
            zeros = cell.out.width - 1
            self._op(f"comb.concat {self._constant(0, zeros)}, {name}", f"i{zeros}, i1", self.of[cell.out])

    def _memory(self, m: Memory) -> None:
        """A memory with its ports. `undefined` is what a read with registers sees of a write at the same edge."""
        if m.initial:
            raise ValueError(f"{m.name}: a memory that does not begin with zeros")
        if any(r.clocked for r in m.reads):
            raise ValueError(f"{m.name}: a read port with a register")
        enables = [part(m.enable, n, 1) for n in range(width(m.enable))]
        grain = next(
            g for g in range(m.width, 0, -1)
            if m.width % g == 0 and all(e == enables[n - n % g] for n, e in enumerate(enables))
        )  # fmt: skip
        kind = f"<{m.size} x {m.width}{f', mask {m.width // grain}' if grain < m.width else ''}>"
        address = max(1, (m.size - 1).bit_length())
        memory = self._op("seq.firmem 0, 1, undefined, undefined", kind, self._fresh(m.name))
        for r in m.reads:
            place = f"{memory}[{self._wide(r.address, address, False)}]"
            self._op(f"seq.firmem.read_port {place}, clock %clk", kind, self.of[r.word])
        if enables:
            enable, masked = f"enable {self._value(enables[0])}", ""
            if grain < m.width:
                bits: Value = tuple(c for e in enables[::grain] for c in e)
                enable, masked = f"enable {self._constant(1, 1)} mask {self._value(bits)}", f", i{m.width // grain}"
            place = f"{memory}[{self._wide(m.address, address, False)}]"
            self._line(f"seq.firmem.write_port {place} = {self._value(m.data)}, clock %clk {enable} : {kind}{masked}")


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f'"{name}"'
