"""Netlists are rewritten: some words are replaced by values of other words, wherever they are used."""

from __future__ import annotations

from graphlib import TopologicalSorter

from upl_mlir.netsim.read import Cell, Chunk, Memory, Netlist, Read, Value, Word, part

Look = tuple[Memory, Read]
"""A read port that shows a row at once."""


def in_order(netlist: Netlist) -> list[Cell | Look]:
    """Cells, and reads that show a row at once, each after those whose results it uses.  Raises `CycleError` if there is a
    loop without a register."""
    looks: list[Look] = [(m, port) for m in netlist.memories for port in m.reads if not port.clocked]
    made: dict[Word, Cell | Look] = {c.out: c for c in netlist.cells} | {look[1].word: look for look in looks}

    def before(*values: Value) -> list[Cell | Look]:
        return [made[c.word] for value in values for c in value if c.word is not None and c.word in made]

    graph: dict[Cell | Look, list[Cell | Look]] = {c: before(*c.inputs.values()) for c in netlist.cells}
    graph |= {look: before(look[1].address) for look in looks}
    return list(TopologicalSorter(graph).static_order())


def joined(*values: Value) -> Value:
    """Values one after another, the lowest first, in as few chunks as there can be."""
    out: list[Chunk] = []
    for c in (c for value in values for c in value):
        last = out[-1] if out else None
        if last is not None and last.word is None and c.word is None:
            out[-1] = Chunk(None, last.low | c.low << last.width, last.width + c.width)
        elif last is not None and last.word is not None and last.word is c.word and last.low + last.width == c.low:
            out[-1] = Chunk(c.word, last.low, last.width + c.width)
        else:
            out.append(c)
    return tuple(out)


def uses(netlist: Netlist) -> dict[Word, int]:
    """How often each word is used."""
    values = [value for cell in netlist.cells for value in cell.inputs.values()]
    values += [r.next for r in netlist.registers] + list(netlist.outputs.values())
    for m in netlist.memories:
        values += [m.address, m.data, m.enable, *(v for port in m.reads for v in (port.address, port.enable))]
    out: dict[Word, int] = {}
    for value in values:
        for c in value:
            if c.word is not None:
                out[c.word] = out.get(c.word, 0) + 1
    return out


class Replacement:
    """Values that stand for words."""

    def __init__(self) -> None:
        self._of: dict[Word, Value] = {}

    def set(self, word: Word, value: Value) -> None:
        """`value`, as wide as the word, stands for it from now on."""
        self._of[word] = self(value)

    def __call__(self, value: Value) -> Value:
        """A value with words replaced."""
        of = self._of
        if not any(c.word in of for c in value if c.word is not None):
            return joined(value)
        out: list[Value] = []
        for c in value:
            if c.word is not None and c.word in of:
                out.append(self(part(of[c.word], c.low, c.width)))
            else:
                out.append((c,))
        return joined(*out)

    def apply(self, netlist: Netlist) -> None:
        """Replaces words in everything that uses them; the cells that gave them are not removed."""
        for cell in netlist.cells:
            cell.inputs = {name: self(value) for name, value in cell.inputs.items()}
        for r in netlist.registers:
            r.next = self(r.next)
        for m in netlist.memories:
            m.address, m.data, m.enable = self(m.address), self(m.data), self(m.enable)
            for port in m.reads:
                port.address, port.enable = self(port.address), self(port.enable)
        for unit in netlist.units:
            unit.inputs = {name: self(value) for name, value in unit.inputs.items()}
        netlist.outputs = {name: self(value) for name, value in netlist.outputs.items()}
