"""Long words are split where their users and their sources begin and end.

A field of a record is then a word of its own, and a record never is put together where only fields of it are used.
"""

from __future__ import annotations

from collections.abc import Iterable

from upl_mlir.netsim.read import WORD, Cell, Chunk, Netlist, Register, Value, Word, part
from upl_mlir.netsim.rewrite import Replacement, joined

BITWISE = ("and", "or", "xor", "xnor", "not", "mux", "pmux")


def split(netlist: Netlist) -> None:
    """Cells that work bit by bit, and registers, of more than a machine word become several of at most that. What has to
    stay long (ports, rows of memories, results of arithmetic) has marks in `Word.cuts` where it is better split."""
    _cut(netlist)
    replaced = Replacement()
    cells: list[Cell] = []
    for cell in netlist.cells:
        if cell.type not in BITWISE or cell.out.width <= WORD:
            cells.append(cell)
            continue
        fields = _fields(cell.out)
        replaced.set(cell.out, joined(*((Chunk(w, 0, w.width),) for _, w in fields)))
        cells += [Cell(cell.type, cell.path, _inputs(cell, low, w.width), w) for low, w in fields]
    registers: list[Register] = []
    for r in netlist.registers:
        if r.word.width <= WORD:
            registers.append(r)
            continue
        fields = _fields(r.word)
        replaced.set(r.word, joined(*((Chunk(w, 0, w.width),) for _, w in fields)))
        registers += [
            Register(w, part(r.next, low, w.width), r.initial >> low & (1 << w.width) - 1) for low, w in fields
        ]
    netlist.cells, netlist.registers = cells, registers
    replaced.apply(netlist)


def spans(word: Word, bits: int) -> list[tuple[int, int]]:
    """First bits and widths of the pieces of the lowest `bits` bits of a word: as many fields together as fit a machine
    word."""
    out: list[tuple[int, int]] = []
    first = last = 0
    for end in [*sorted(x for x in word.cuts if x < bits), bits]:
        if end - first > WORD and last > first:
            out.append((first, last - first))
            first = last
        while end - first > WORD:
            out.append((first, WORD))
            first += WORD
        last = end
    if last > first:
        out.append((first, last - first))
    return out


def _fields(word: Word) -> list[tuple[int, Word]]:
    return [(low, Word(bits, f"{word.name}[{low}]" if word.name else "")) for low, bits in spans(word, word.width)]


def _inputs(cell: Cell, low: int, bits: int) -> dict[str, Value]:
    """What gives bits of the result of a cell that works bit by bit."""
    out: dict[str, Value] = {}
    for name, value in cell.inputs.items():
        if name == "S":
            out[name] = value
        elif name == "B" and cell.type == "pmux":
            out[name] = joined(
                *(part(value, at, bits) for at in range(low, sum(c.width for c in value), cell.out.width))
            )
        else:
            have = sum(c.width for c in value)
            if have < cell.out.width:
                if cell.signed:
                    raise ValueError(f"{cell.path}: a signed number and bits")
                value = (*value, Chunk(None, 0, cell.out.width - have))
            out[name] = part(value, low, bits)
    return out


def _aligned(netlist: Netlist) -> Iterable[tuple[Word, Value]]:
    """Words and values that correspond bit for bit."""
    for cell in netlist.cells:
        if cell.type in BITWISE:
            for name, value in cell.inputs.items():
                if cell.type == "pmux" and name == "B":
                    for n in range(0, sum(c.width for c in value), cell.out.width):
                        yield cell.out, part(value, n, cell.out.width)
                elif name != "S":
                    yield cell.out, value
    for r in netlist.registers:
        yield r.word, r.next
    for m in netlist.memories:
        if m.data:
            yield m.word, m.data
            yield m.word, m.enable
        for port in m.reads:
            yield m.word, (Chunk(port.word, 0, m.width),)


def _cut(netlist: Netlist) -> None:
    """Where long words are used, and what is joined to make them, is where they are split; and so on through what works bit
    by bit."""
    aligned = [(w, v) for w, v in _aligned(netlist) if w.width > WORD]
    for cell in netlist.cells:
        for value in cell.inputs.values():
            _ends(value)
    for value in netlist.outputs.values():
        _ends(value)
    for r in netlist.registers:
        _ends(r.next)
    for unit in netlist.units:
        for value in unit.inputs.values():
            _ends(value)
    changed = True
    while changed:
        changed = False
        for word, value in aligned:
            at = 0
            for c in value:
                before = len(word.cuts)
                if 0 < at < word.width:
                    word.cuts.add(at)
                if c.word is not None and c.word.width > WORD:
                    other = len(c.word.cuts)
                    down = at - c.low
                    word.cuts.update(x + down for x in c.word.cuts if c.low < x < c.low + c.width)
                    c.word.cuts.update(
                        x - down for x in word.cuts if at <= x <= at + c.width and 0 < x - down < c.word.width
                    )
                    changed |= len(c.word.cuts) != other
                changed |= len(word.cuts) != before
                at += c.width


def _ends(value: Value) -> None:
    for c in value:
        if c.word is not None and c.word.width > WORD:
            c.word.cuts.update(x for x in (c.low, c.low + c.width) if 0 < x < c.word.width)
