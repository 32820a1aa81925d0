"""Parities of bits of the same words become one cell: a linear map over GF(2), as a hash of a key is.

Its value is the sum of a row of a table for each byte of what it maps, so that a hash of 49 bits takes seven look-ups, where
each of its bits alone would take all of the masks and folds of a parity.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from upl_mlir.netsim.read import WORD, Cell, Chunk, Netlist, Value, Word, constant, width
from upl_mlir.netsim.rewrite import Replacement, in_order, joined, uses

FEWEST = 3
"""Parities of the same words below which tables are not worth while."""
BYTE = 8
"""Bits that choose a row of a table."""
_Bit = tuple[Word | None, int]


@dataclass(eq=False)
class _Function:
    """A linear map, as far as it is known: for each bit of an argument the bits of the result that it changes."""

    bits: int
    columns: dict[int, int] = field(default_factory=dict[int, int])
    cells: list[Cell] = field(default_factory=list[Cell])

    def takes(self, columns: dict[int, int]) -> bool:
        """Whether a map with these columns is this one: they have some in common, and all of those are the same."""
        common = columns.keys() & self.columns.keys()
        return len(common) > 1 and all(columns[n] == self.columns[n] for n in common)


def join_parities(netlist: Netlist) -> None:
    """Cells `reduce_xor` of bits of the same words are replaced by one cell `linear`. Where a key has constant bits, nothing
    is seen of what the hash would make of them: maps that agree where both are seen are taken for one, so that they share
    tables, and of several keys the one is chosen before it is hashed."""
    alike: dict[frozenset[Word], list[Cell]] = {}
    for cell in netlist.cells:
        if cell.type == "reduce_xor" and cell.out.width == 1:
            words = frozenset(c.word for c in cell.inputs["A"] if c.word is not None)
            alike.setdefault(words, []).append(cell)
    # Rows of tables have at most 64 bits.
    groups = [(words, cells[n : n + WORD]) for words, cells in alike.items() for n in range(0, len(cells), WORD)]
    replaced = Replacement()
    gone: set[Cell] = set()
    functions: list[_Function] = []
    for words, cells in groups:
        argument = _argument(cells) if words and len(cells) >= FEWEST else None
        if argument is None:
            continue
        columns = _columns(cells)
        function = next((f for f in functions if f.bits == len(cells) and f.takes(columns)), None)
        if function is None:
            function = _Function(len(cells))
            functions.append(function)
        function.columns |= columns
        made = Cell("linear", cells[0].path, {"A": argument}, Word(len(cells)))
        function.cells.append(made)
        netlist.cells.append(made)
        for n, cell in enumerate(cells):
            replaced.set(cell.out, (Chunk(made.out, n, 1),))
            gone.add(cell)
    for function in functions:
        wide = max(function.columns) + 1
        maps = tuple(
            sum((function.columns.get(n, 0) >> bit & 1) << n for n in range(wide)) for bit in range(function.bits)
        )
        for made in function.cells:
            value = made.inputs["A"]
            made.inputs["A"] = joined(value, (Chunk(None, 0, wide - width(value)),)) if width(value) < wide else value
            made.maps = maps
    netlist.cells = [c for c in netlist.cells if c not in gone]
    replaced.apply(netlist)
    _choose_first(netlist)


def _bits(value: Value) -> list[_Bit]:
    return [
        (c.word, c.low + n) if c.word is not None else (None, c.low >> n & 1) for c in value for n in range(c.width)
    ]


def _argument(cells: list[Cell]) -> Value | None:
    """What parities are taken of, if each bit of it has its place: where a parity leaves it out, there is a constant 0."""
    places: dict[int, _Bit] = {}
    for cell in cells:
        for n, bit in enumerate(_bits(cell.inputs["A"])):
            if bit != (None, 0) and places.setdefault(n, bit) != bit:
                return None
    bits = (places.get(n, (None, 0)) for n in range(max(places) + 1))
    return joined(tuple(Chunk(word, low, 1) for word, low in bits))


def _columns(cells: list[Cell]) -> dict[int, int]:
    """For each place of the argument the parities that it is in."""
    out: dict[int, int] = {}
    for at, cell in enumerate(cells):
        for n, bit in enumerate(_bits(cell.inputs["A"])):
            if bit != (None, 0):
                out[n] = out.get(n, 0) | 1 << at
    return out


def _choose_first(netlist: Netlist) -> None:
    """A choice of values of a map becomes the value of the chosen argument."""
    counts = uses(netlist)
    made = {c.out: c for c in netlist.cells if c.type == "linear"}
    order = [c for c in in_order(netlist) if isinstance(c, Cell)]

    def argument(value: Value, like: Cell | None) -> Cell | None:
        cell = made.get(value[0].word) if len(value) == 1 and value[0].word is not None else None
        whole = cell is not None and cell.out.width == value[0].width and counts[cell.out] == 1
        return cell if whole and (like is None or (cell is not None and cell.maps == like.maps)) else None

    cells: list[Cell] = []
    for cell in order:
        cells.append(cell)
        if cell.type != "mux":
            continue
        a, b = cell.inputs["A"], cell.inputs["B"]
        x = argument(a, None)
        y = argument(b, x)
        like = x or y
        if like is None or (x is None and constant(a) != 0) or (y is None and constant(b) != 0):
            continue
        none: Value = (Chunk(None, 0, width(like.inputs["A"])),)
        chosen = Word(width(none))
        of = {"A": x.inputs["A"] if x else none, "B": y.inputs["A"] if y else none, "S": cell.inputs["S"]}
        cells[-1] = Cell("mux", cell.path, of, chosen)
        after = Cell("linear", cell.path, {"A": (Chunk(chosen, 0, chosen.width),)}, cell.out, maps=like.maps)
        cells.append(after)
        made[cell.out] = after
    netlist.cells = cells


def tables(maps: tuple[int, ...], wide: int) -> list[list[int]]:
    """For each byte of an argument of `wide` bits, what each of its values adds to the result."""
    out: list[list[int]] = []
    for low in range(0, wide, BYTE):
        columns = [
            sum((ones >> low + n & 1) << bit for bit, ones in enumerate(maps)) for n in range(min(BYTE, wide - low))
        ]
        rows = [0]
        for column in columns:
            rows += [row ^ column for row in rows]
        out.append(rows)
    return out
