"""Expressions for yosys' cells whose results are numbers of up to 128 bits or single bits."""

from __future__ import annotations

from itertools import accumulate

from upl_mlir.netsim.expression import Node, binary, call, choose, cut, differ, equal, joined, ones
from upl_mlir.netsim.read import WORD, Cell, Chunk, Value, width
from upl_mlir.netsim.variables import Variables

_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}


def expression(to: Variables, cell: Cell, bits: int) -> Node:
    """The expression for the lowest `bits` bits of a cell's result (yosys' manual, "Word-level cells")."""
    i, kind = cell.inputs, cell.type
    a, b = i["A"], i.get("B", ())
    match kind:
        case "logic_not":
            return equal(to.truth(a), 0)
        case "reduce_or" | "reduce_bool":
            return differ(to.truth(a), 0)
        case "logic_and" | "logic_or":
            x, y = differ(to.truth(a), 0), differ(to.truth(b), 0)
            return x & y if kind == "logic_and" else x | y
        case "reduce_and":
            return joined((equal(to.bits(a, at, n), ones(n)) for at, n in to.spans(a)), "&")
        case "reduce_xor" | "reduce_xnor":
            folded = call("parity", joined((to.bits(a, at, n) for at, n in to.spans(a)), "^"))
            return folded ^ 1 if kind == "reduce_xnor" else folded
        case "eq" | "ne":
            wide = max(width(a), width(b))
            if cell.signed and width(a) != width(b):
                return binary(_COMPARISONS[kind], to.number(a, wide, True), to.number(b, wide, True))
            a, b = (v if width(v) == wide else (*v, Chunk(None, 0, wide - width(v))) for v in (a, b))
            if wide <= WORD:
                return binary(_COMPARISONS[kind], to.bits(a, 0, wide), to.bits(b, 0, wide))
            differences = joined(to.bits(a, at, n) ^ to.bits(b, at, n) for at, n in to.spans(a))
            return binary(_COMPARISONS[kind], differences, 0)
        case "lt" | "le" | "gt" | "ge":
            wide = max(width(a), width(b))
            x, y = (to.number(v, wide, cell.signed) for v in (a, b))
            if cell.signed:
                x, y = (call("i64" if wide <= WORD else "i128", v) for v in (x, y))
            return binary(_COMPARISONS[kind], x, y)
        case "add" | "sub" | "mul":
            x, y = (to.number(v, bits, cell.signed) for v in (a, b))
            return cut(binary(_ARITHMETIC[kind], x, y), bits)
        case "neg":
            return cut(-to.number(a, bits, cell.signed), bits)
        case "shl" | "sshl":
            return cut(call(_shift("shl", b, bits), to.number(a, bits, cell.signed), to.number(b, WORD)), bits)
        case "shr" | "shift" | "shiftx" if not cell.signed and (chosen := _chosen(to, a, b, bits)):
            return chosen
        case "shr" | "sshr":
            return _right(to, cell, bits)
        case "shift" | "shiftx":
            whole = max(width(a), bits)
            if cell.signed:
                wide = width(b)
                if wide > WORD:
                    raise ValueError(f"a shift by a number of {wide} bits")
                by = call("sext", to.bits(b, 0, wide), wide)
                shifted = call(f"shift{'' if whole <= WORD else '128'}", to.number(a, whole), by)
            else:
                shifted = call(_shift("shr", b, whole), to.number(a, whole), to.number(b, WORD))
            return cut(_narrow(shifted, whole, bits), bits)
        case _:
            raise ValueError(f"a cell ${kind}")


_MOST_CHOICES = 4
"""Fields of which a shift chooses one: among more of them shifting is shorter."""


def _chosen(to: Variables, a: Value, by: Value, bits: int) -> Node | None:
    """A shift to the right that chooses one of a few fields of so many bits, none of which has bits of another."""
    low, high = nonzero(by)
    count = 1 << high - low
    if bits > min(1 << low, WORD) or count > _MOST_CHOICES:
        return None
    whole = (*a, Chunk(None, 0, max(0, (count << low) - width(a))))
    fields = [to.bits(whole, n << low, bits) for n in range(count)]
    for at in range(low, high):
        bit = to.bits(by, at, 1)
        fields = [choose(bit, yes, no) for no, yes in zip(fields[::2], fields[1::2], strict=True)]
    return fields[0]


def _narrow(x: Node, have: int, bits: int) -> Node:
    """An expression of that many bits as one of 64, if that will do."""
    return call("u64", x) if have > WORD >= bits else x


def _shift(name: str, by: Value, bits: int) -> str:
    """The function that shifts `bits` bits by that much: it needs to look only if that can be more than a word has."""
    most = sum((1 << c.width) - 1 << at if c.word is not None else c.low << at for c, at in _placed(by))
    if most >= 1 << WORD:
        raise ValueError(f"a shift by a number of {sum(c.width for c in by)} bits")
    whole = WORD if bits <= WORD else 2 * WORD
    return f"{name}{'' if bits <= WORD else '128'}{'_less' if most < whole else ''}"


def _placed(value: Value) -> list[tuple[Chunk, int]]:
    """Chunks of a value and their places."""
    ends = list(accumulate((c.width for c in value), initial=0))
    return list(zip(value, ends, strict=False))


def _right(to: Variables, cell: Cell, bits: int) -> Node:
    """A shift to the right.  What is shifted may be longer than 128 bits if most of it is constant zeros: only where ones
    can be is shifted."""
    a, b = cell.inputs["A"], cell.inputs["B"]
    by = to.number(b, WORD)
    whole = max(width(a), bits)
    if cell.signed:
        shifted = call(_shift("sar", b, whole), to.number(a, max(whole, WORD), True), by)
    else:
        shifted = call(_shift("shr", b, whole), to.number(a, whole), by)
    return cut(_narrow(shifted, whole, bits), bits)


def nonzero(value: Value) -> tuple[int, int]:
    """From which bit to which a value can be other than 0."""
    at, first, last = 0, None, 0
    for c in value:
        if c.word is not None or c.low:
            first = at if first is None else first
            last = at + c.width
        at += c.width
    return first or 0, last
