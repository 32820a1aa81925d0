"""Words become variables of at most 64 bits, values become expressions. Bits that nobody uses are left out."""

from __future__ import annotations

from bisect import bisect_right

from upl_mlir.netsim.expression import Node, Variable, call, joined, number, ones, variable
from upl_mlir.netsim.read import WORD, Cell, Netlist, Value, Word, part, width
from upl_mlir.netsim.rewrite import in_order
from upl_mlir.netsim.split import BITWISE, spans

LOW_FIRST = (*BITWISE, "add", "sub", "mul", "neg", "shl")
"""Cells whose lower bits of the result depend on lower bits of the operands only."""


class Variables:
    """The variables of words, and expressions for parts of values."""

    def __init__(self, netlist: Netlist):
        self.used = used_bits(netlist)
        self.of: dict[Word, list[Variable]] = {}
        self._lows: dict[Word, list[int]] = {}
        self._count = 0

    def make(self, word: Word) -> list[Variable]:
        """Makes the variables of a word."""
        return self._made(word, spans(word, min(word.width, self.used.get(word, word.width))))

    def _made(self, word: Word, pieces: list[tuple[int, int]]) -> list[Variable]:
        made = [self._new(word, low, wide) for low, wide in pieces]
        self.of[word] = made
        self._lows[word] = [v.low for v in made]
        return made

    def _new(self, word: Word, low: int, wide: int) -> Variable:
        self._count += 1
        return Variable(word, low, wide, self._count)

    def single(self, wide: int, name: str = "") -> Variable:
        """The variable of a new word of at most 64 bits: one, however other words are split."""
        return self._made(Word(wide, name), [(0, wide)])[0]

    def over(self, value: Value) -> list[tuple[Variable | None, int, int, int]]:
        """A value as pieces of variables: variable (none: a constant), its first bit or the constant, width, place."""
        out: list[tuple[Variable | None, int, int, int]] = []
        at = 0
        for c in value:
            if c.word is None:
                out.append((None, c.low, c.width, at))
                at += c.width
                continue
            variables, lows = self.of.get(c.word, []), self._lows.get(c.word, [])
            low, end = c.low, c.low + c.width
            n = max(0, bisect_right(lows, low) - 1)
            while low < end:
                if n >= len(variables):  # bits that nobody uses
                    out.append((None, 0, end - low, at))
                    at += end - low
                    break
                v = variables[n]
                bits = min(end, v.low + v.width) - low
                if bits <= 0:
                    n += 1
                    continue
                out.append((v, low - v.low, bits, at))
                low, at, n = low + bits, at + bits, n + 1
        return out

    def bits(self, value: Value, low: int, bits: int) -> Node:
        """An expression of 64 bits for at most 64 bits of a value."""
        constant = 0
        copies: dict[tuple[Variable, int], list[int]] = {}
        pieces: list[tuple[Variable, int, int, int]] = []
        for v, first, wide, at in self.over(part(value, low, bits)):
            if v is None:
                constant |= first << at
            elif wide == 1:
                copies.setdefault((v, first), []).append(at)
            else:
                pieces.append((v, first, wide, at))
        terms = [_moved(*piece) for piece in pieces]
        for (v, first), places in copies.items():
            if len(places) > 2:
                terms.append(-_moved(v, first, 1, 0) & sum(1 << at for at in places))
            else:
                terms += [_moved(v, first, 1, at) for at in places]
        if constant or not terms:
            terms.append(number(constant))
        return joined(terms)

    def number(self, value: Value, bits: int, signed: bool = False) -> Node:
        """A value, extended to `bits` bits, as an expression: of 64 bits, or of 128 if `bits` is more."""
        wide = width(value)
        if wide > bits:
            value, wide = part(value, 0, bits), bits
        if bits <= WORD:
            some = self.bits(value, 0, wide)
            return call("sext", some, wide) if signed and wide < WORD else some
        if bits > 2 * WORD:
            raise ValueError(f"arithmetic with {bits} bits")
        low = self.bits(value, 0, min(wide, WORD))
        some = call("u128", self.bits(value, WORD, wide - WORD)) << WORD | low if wide > WORD else call("u128", low)
        return call("sext128", some, wide) if signed and wide < 2 * WORD else some

    def truth(self, value: Value) -> Node:
        """Not 0 if any bit is set."""
        terms = [self.bits(value, n, min(WORD, width(value) - n)) for n in range(0, width(value), WORD)]
        return joined([t for t in terms if t.number != 0] or [number(0)])

    def spans(self, value: Value) -> list[tuple[int, int]]:
        """Spans of at most 64 bits in which a value is best looked at."""
        out: list[tuple[int, int]] = []
        for _, _, wide, at in self.over(value):
            if out and at + wide - out[-1][0] <= WORD:
                out[-1] = (out[-1][0], at + wide - out[-1][0])
            else:
                out += [(n, min(WORD, at + wide - n)) for n in range(at, at + wide, WORD)]  # a constant may be long
        return out

    def reads(self, *values: Value) -> list[Variable]:
        """The variables that values have bits of."""
        found = {v: None for value in values for v, _, _, _ in self.over(value) if v is not None}
        return list(found)


def _moved(v: Variable, first: int, wide: int, at: int) -> Node:
    """`wide` bits of a variable from bit `first` on, as bits from `at` on, all others 0."""
    if first + wide == v.width:
        return variable(v) >> first << at
    up = at - first
    return (variable(v) << up if up > 0 else variable(v) >> -up) & (ones(wide) << at)


def used_bits(netlist: Netlist) -> dict[Word, int]:
    """Highest used bits. Registers and memories count as used as a whole where they are used at all."""
    used: dict[Word, int] = {}

    def use(value: Value, bits: int | None = None) -> None:
        at = 0
        for c in value:
            if bits is not None and at >= bits:
                return
            top = c.low + (c.width if bits is None else min(c.width, bits - at))
            if c.word is not None and top > used.get(c.word, 0):
                used[c.word] = top
            at += c.width

    for value in netlist.outputs.values():
        use(value)
    for r in netlist.registers:
        used[r.word] = r.word.width
        use(r.next)
    for m in netlist.memories:
        used[m.word] = m.width
        for value in (m.address, m.data, m.enable):
            use(value)
        for port in m.reads:
            used[port.word] = port.word.width
            use(port.address)
            use(port.enable)
    for unit in netlist.units:
        for value in unit.inputs.values():
            use(value)
    for cell in reversed(in_order(netlist)):
        if not isinstance(cell, Cell):
            continue
        bits = used.get(cell.out, 0)
        if not bits:
            continue
        wide = cell.out.width
        for name, value in cell.inputs.items():
            if cell.type == "pmux" and name == "B":
                for n in range(0, width(value), wide):
                    use(part(value, n, bits))
            elif (cell.type == "shl" and name == "B") or name == "S" or cell.type not in LOW_FIRST:
                use(value)
            else:
                use(value, bits)
    return used
