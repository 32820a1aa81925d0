"""A netlist with less in it that shows the same: what yosys' passes leave where they look at whole cells and wires.

Cells whose result is known or is that of another cell are replaced, and so are registers that keep their initial value or
take the same values as another; what no output depends on is left out.
"""

from __future__ import annotations

from upl_mlir.netsim.read import Cell, Chunk, Memory, Netlist, Read, Register, Value, Word, constant, part, width
from upl_mlir.netsim.rewrite import Replacement, in_order, joined

_SYMMETRIC = ("and", "or", "xor", "xnor", "add", "mul", "eq", "ne", "logic_and", "logic_or")


def simplify(netlist: Netlist) -> None:
    """Replaces and leaves out until nothing changes."""
    while _Pass(netlist).changed:
        pass
    _live(netlist)


def _zeros(bits: int) -> Value:
    return (Chunk(None, 0, bits),) if bits else ()


def _number(x: int, bits: int) -> Value:
    return (Chunk(None, x, bits),)


def _fit(value: Value, bits: int) -> Value:
    """A number without a sign with more or fewer bits."""
    have = width(value)
    return part(value, 0, bits) if have >= bits else joined(value, _zeros(bits - have))


class _Pass:
    """Looks at each cell once, after those that it uses."""

    def __init__(self, netlist: Netlist):
        self.replaced = Replacement()
        self.known: dict[object, Word] = {}
        self.made: dict[Word, Cell] = {}
        self.changed = False
        cells: list[Cell] = []
        self._registers(netlist)
        self._memories(netlist)
        for cell in in_order(netlist):
            if not isinstance(cell, Cell):
                continue
            cell.inputs = {name: self.replaced(value) for name, value in cell.inputs.items()}
            value = self._value(cell)
            if value is None:
                values = (value for _, value in sorted(cell.inputs.items()))
                inputs = frozenset(values) if cell.type in _SYMMETRIC else tuple(values)
                key = (cell.type, cell.signed, cell.out.width, cell.maps, cell.shows, inputs)
                first = self.known.setdefault(key, cell.out)
                if first is not cell.out:
                    value = (Chunk(first, 0, first.width),)
            if value is None:
                cells.append(cell)
                self.made[cell.out] = cell
            else:
                assert width(value) == cell.out.width, (cell, value)
                self.replaced.set(cell.out, value)
                self.changed = True
        netlist.cells = cells
        self.replaced.apply(netlist)

    def _registers(self, netlist: Netlist) -> None:
        """Registers that keep their initial value, or take the same values as another."""
        same: dict[object, Word] = {}
        kept: list[Register] = []
        for r in netlist.registers:
            initial = _number(r.initial, r.word.width)
            if r.next in (initial, ((Chunk(r.word, 0, r.word.width),))):
                self.replaced.set(r.word, initial)
                self.changed = True
                continue
            first = same.setdefault((r.next, r.initial), r.word)
            if first is not r.word:
                self.replaced.set(r.word, (Chunk(first, 0, first.width),))
                self.changed = True
                continue
            kept.append(r)
        netlist.registers = kept

    def _memories(self, netlist: Netlist) -> None:
        """Memories in which the same is written become one, and so do its read ports that show the same row."""
        same: dict[object, Memory] = {}
        for m in netlist.memories:
            first = same.setdefault((m.size, m.width, m.initial, m.address, m.data, m.enable), m)
            if first is not m:
                first.reads += m.reads
                first.word.cuts |= m.word.cuts
                self.changed = True
        netlist.memories = list(same.values())
        for m in netlist.memories:
            ports: dict[object, Read] = {}
            for port in m.reads:
                first = ports.setdefault(
                    (port.address, port.enable, port.clocked, port.transparent, port.initial), port
                )
                if first is not port:
                    self.replaced.set(port.word, (Chunk(first.word, 0, first.word.width),))
                    first.word.cuts |= port.word.cuts
                    self.changed = True
            m.reads = list(ports.values())

    def _cell(self, value: Value, *types: str) -> Cell | None:
        """The cell whose whole result a value is."""
        if len(value) != 1 or value[0].word is None:
            return None
        cell = self.made.get(value[0].word)
        return cell if cell is not None and cell.type in types and cell.out.width == value[0].width else None

    def _value(self, cell: Cell) -> Value | None:
        """The value that a cell's result is. A cell may also be changed into a simpler one."""
        i, bits = cell.inputs, cell.out.width
        match cell.type:
            case "mux":
                return self._mux(cell)
            case "pmux":
                return self._pmux(cell)
            case "not":
                other = self._cell(i["A"], "not")
                if other is not None and width(i["A"]) == bits == width(other.inputs["A"]):
                    return other.inputs["A"]
                x = constant(i["A"])
                return None if x is None or width(i["A"]) != bits else _number(~x & (1 << bits) - 1, bits)
            case "and" | "or" | "xor":
                return self._both(cell)
            case "logic_not" | "reduce_bool" | "reduce_or":
                return self._any(cell)
            case "reduce_and":
                return _fit(i["A"], bits) if width(i["A"]) == 1 else None
            case "logic_and" | "logic_or":
                if width(i["A"]) == width(i["B"]) == bits == 1:
                    cell.type = cell.type[6:]
                    return self._both(cell)
                return None
            case "eq" | "ne":
                return self._equal(cell)
            case "ge" | "lt":
                if not cell.signed and constant(i["B"]) == 0:
                    return _number(int(cell.type == "ge"), bits)
                return None
            case "add" | "sub":
                if constant(i["B"]) == 0 and not cell.signed:
                    return _fit(i["A"], bits)
                if constant(i["A"]) == 0 and cell.type == "add" and not cell.signed:
                    return _fit(i["B"], bits)
                return None
            case "shl" | "shr":
                by = constant(i["B"])
                if by is None or cell.signed:
                    return None
                if cell.type == "shl":
                    return _fit(joined(_zeros(by), i["A"]), bits) if by < bits else _zeros(bits)
                return _fit(part(i["A"], by, width(i["A"])), bits)
            case _:
                return None

    def _mux(self, cell: Cell) -> Value | None:
        a, b, s = (cell.inputs[name] for name in "ABS")
        known = constant(s)
        if known is not None:
            return b if known else a
        if a == b:
            return a
        other = self._cell(s, "not")
        if other is not None and width(other.inputs["A"]) == 1:
            cell.inputs = {"A": b, "B": a, "S": other.inputs["A"]}
            self.changed = True
            return self._mux(cell)
        for name, value in (("A", a), ("B", b)):
            inner = self._cell(value, "mux")
            if inner is not None and inner.inputs["S"] == s:
                cell.inputs = cell.inputs | {name: inner.inputs[name]}
                self.changed = True
                return self._mux(cell)
        if cell.out.width != 1:
            return None
        x, y = constant(a), constant(b)
        if (x, y) == (0, 1):
            return s
        if (x, y) == (1, 0):
            cell.type, cell.inputs = "not", {"A": s}
        elif x == 0:
            cell.type, cell.inputs = "and", {"A": s, "B": b}
        elif y == 1:
            cell.type, cell.inputs = "or", {"A": s, "B": a}
        else:
            return None
        self.changed = True
        return self._value(cell)

    def _pmux(self, cell: Cell) -> Value | None:
        a, b, s = (cell.inputs[name] for name in "ABS")
        bits = cell.out.width
        arms = [(part(s, n, 1), part(b, n * bits, bits)) for n in range(width(s))]
        kept = [(one, arm) for one, arm in arms if constant(one) != 0]
        if not kept:
            return a
        if all(arm == a for _, arm in kept):
            return a
        if len(kept) == 1:
            (one, arm), cell.type = kept[0], "mux"
            cell.inputs = {"A": a, "B": arm, "S": one}
            self.changed = True
            return self._mux(cell)
        if len(kept) != len(arms):
            cell.inputs = {"A": a, "B": joined(*(arm for _, arm in kept)), "S": joined(*(one for one, _ in kept))}
            self.changed = True
        return None

    def _both(self, cell: Cell) -> Value | None:
        a, b = (_fit(cell.inputs[name], cell.out.width) for name in "AB")
        if cell.signed:
            return None
        bits = cell.out.width
        if a == b:
            return _zeros(bits) if cell.type == "xor" else a
        for x, y in ((a, b), (b, a)):
            known = constant(x)
            if known == 0:
                return _zeros(bits) if cell.type == "and" else y
            if known == (1 << bits) - 1:
                if cell.type != "xor":
                    return y if cell.type == "and" else x
                cell.type, cell.inputs = "not", {"A": y}
                self.changed = True
                return self._value(cell)
            other = self._cell(x, "not")
            if other is not None and other.inputs["A"] == y:
                return _zeros(bits) if cell.type == "and" else _number((1 << bits) - 1, bits)
        return None

    def _any(self, cell: Cell) -> Value | None:
        """Whether any bit is set, or none is."""
        none, bits = cell.type == "logic_not", cell.out.width
        a = tuple(c for c in cell.inputs["A"] if c.word is not None or c.low)
        if any(c.word is None for c in a):
            return _number(int(not none), bits)
        if not a:
            return _number(int(none), bits)
        if width(a) == 1:
            if not none:
                return _fit(a, bits)
            if bits == 1:
                cell.type, cell.inputs = "not", {"A": a}
                self.changed = True
                return self._value(cell)
        cell.inputs = {"A": joined(a)}
        return None

    def _equal(self, cell: Cell) -> Value | None:
        a, b = cell.inputs["A"], cell.inputs["B"]
        if cell.signed and width(a) != width(b):
            return None
        wide, bits, same = max(width(a), width(b)), cell.out.width, cell.type == "eq"
        left: list[Value] = []
        right: list[Value] = []
        for low, n in _steps(_fit(a, wide), _fit(b, wide)):
            x, y = part(_fit(a, wide), low, n), part(_fit(b, wide), low, n)
            if x == y:
                continue
            if constant(x) is not None and constant(y) is not None:
                return _number(int(not same), bits)
            left.append(x)
            right.append(y)
        if not left:
            return _number(int(same), bits)
        a, b = joined(*left), joined(*right)
        for x, y in ((a, b), (b, a)):
            known = constant(y)
            if known is None or bits != 1:
                continue
            if known == 0:
                cell.type, cell.inputs = ("logic_not" if same else "reduce_bool"), {"A": x}
                self.changed = True
                return self._any(cell)
            if width(x) == 1:
                if same:
                    return x
                cell.type, cell.inputs = "not", {"A": x}
                self.changed = True
                return self._value(cell)
        cell.inputs, cell.signed = {"A": a, "B": b}, False
        return None


def _steps(*values: Value) -> list[tuple[int, int]]:
    """Spans in which each of some values of the same width has one chunk."""
    ends: set[int] = set()
    for value in values:
        at = 0
        for c in value:
            at += c.width
            ends.add(at)
    out: list[tuple[int, int]] = []
    at = 0
    for end in sorted(ends):
        out.append((at, end - at))
        at = end
    return out


def _live(netlist: Netlist) -> None:
    """Leaves out what no output depends on."""
    cells = {c.out: c for c in netlist.cells}
    registers = {r.word: r for r in netlist.registers}
    reads = {port.word: (m, port) for m in netlist.memories for port in m.reads}
    live: set[Word] = set()
    work: list[Value] = list(netlist.outputs.values())
    while work:
        for c in work.pop():
            if c.word is None or c.word in live:
                continue
            live.add(c.word)
            if c.word in cells:
                work += cells[c.word].inputs.values()
                shows = cells[c.word].shows
                work += shows[0].inputs.values() if shows is not None else ()
            elif c.word in registers:
                work.append(registers[c.word].next)
            elif c.word in reads:
                m, port = reads[c.word]
                work += [port.address, port.enable, m.address, m.data, m.enable]
    netlist.cells = [c for c in netlist.cells if c.out in live]
    netlist.registers = [r for r in netlist.registers if r.word in live]
    for m in netlist.memories:
        m.reads = [port for port in m.reads if port.word in live]
    netlist.memories = [m for m in netlist.memories if m.reads]
    shown = {cell.shows[0] for cell in netlist.cells if cell.shows is not None}
    netlist.units = [unit for unit in netlist.units if unit in shown]
