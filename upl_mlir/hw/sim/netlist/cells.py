"""C++ expressions for yosys' cells whose results are numbers of up to 128 bits or single bits."""

from __future__ import annotations

from itertools import accumulate

from upl_mlir.hw.sim.netlist.read import WORD, Cell, Chunk, Value, width
from upl_mlir.hw.sim.netlist.variables import Variables, mask


def expression(to: Variables, cell: Cell, bits: int) -> str:
    """The expression for the lowest `bits` bits of a cell's result (yosys' manual, "Word-level cells")."""
    i, kind = cell.inputs, cell.type
    a, b = i["A"], i.get("B", ())
    cut = f" & {mask(bits)}" if bits < WORD else ""
    match kind:
        case "logic_not":
            return f"({to.truth(a)}) == 0"
        case "reduce_or" | "reduce_bool":
            return f"({to.truth(a)}) != 0"
        case "logic_and" | "logic_or":
            return f"(({to.truth(a)}) != 0) {'&' if kind == 'logic_and' else '|'} (({to.truth(b)}) != 0)"
        case "reduce_and":
            spans = to.spans(a)
            return " & ".join(f"({to.bits(a, at, n)} == {mask(n)})" for at, n in spans)
        case "reduce_xor" | "reduce_xnor":
            folded = " ^ ".join(to.bits(a, at, n) for at, n in to.spans(a))
            return f"parity({folded}){' ^ 1' if kind == 'reduce_xnor' else ''}"
        case "eq" | "ne":
            wide = max(width(a), width(b))
            if cell.signed and width(a) != width(b):
                return f"{to.number(a, wide, True)} {'==' if kind == 'eq' else '!='} {to.number(b, wide, True)}"
            a, b = (v if width(v) == wide else (*v, Chunk(None, 0, wide - width(v))) for v in (a, b))
            if wide <= WORD:
                return f"{to.bits(a, 0, wide)} {'==' if kind == 'eq' else '!='} {to.bits(b, 0, wide)}"
            spans = to.spans(a)
            terms = " | ".join(f"({to.bits(a, at, n)} ^ {to.bits(b, at, n)})" for at, n in spans)
            return f"({terms}) {'==' if kind == 'eq' else '!='} 0"
        case "lt" | "le" | "gt" | "ge":
            wide = max(width(a), width(b))
            sign = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}[kind]
            cast = ("i64" if wide <= WORD else "i128") if cell.signed else ""
            x, y = (f"{cast}({to.number(v, wide, cell.signed)})" for v in (a, b))
            return f"{x} {sign} {y}"
        case "add" | "sub" | "mul":
            sign = {"add": "+", "sub": "-", "mul": "*"}[kind]
            text = f"{to.number(a, bits, cell.signed)} {sign} {to.number(b, bits, cell.signed)}"
            return f"({text}){cut}"
        case "neg":
            return f"-{to.number(a, bits, cell.signed)}{cut}"
        case "shl" | "sshl":
            return f"{_shift('shl', b, bits)}({to.number(a, bits, cell.signed)}, {to.number(b, WORD)}){cut}"
        case "shr" | "sshr":
            return _right(to, cell, bits)
        case "shift" | "shiftx":
            whole = max(width(a), bits)
            if cell.signed:
                wide = width(b)
                if wide > WORD:
                    raise ValueError(f"a shift by a number of {wide} bits")
                text = (
                    f"shift{'' if whole <= WORD else '128'}({to.number(a, whole)}, sext({to.bits(b, 0, wide)}, {wide}))"
                )
            else:
                text = f"{_shift('shr', b, whole)}({to.number(a, whole)}, {to.number(b, WORD)})"
            return f"{text if whole <= WORD or bits > WORD else f'u64({text})'}{cut}"
        case _:
            raise ValueError(f"a cell ${kind}")


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


def _right(to: Variables, cell: Cell, bits: int) -> str:
    """A shift to the right.  What is shifted may be longer than 128 bits if most of it is constant zeros: only where ones
    can be is shifted."""
    a, b = cell.inputs["A"], cell.inputs["B"]
    by = to.number(b, WORD)
    whole = max(width(a), bits)
    cut = f" & {mask(bits)}" if bits < WORD else ""
    if cell.signed:
        wide = whole if whole > WORD else WORD
        text = f"{_shift('sar', b, whole)}({to.number(a, wide, True)}, {by})"
    else:
        text = f"{_shift('shr', b, whole)}({to.number(a, whole)}, {by})"
    return f"{f'u64({text})' if whole > WORD >= bits else text}{cut}"


def nonzero(value: Value) -> tuple[int, int]:
    """From which bit to which a value can be other than 0."""
    at, first, last = 0, None, 0
    for c in value:
        if c.word is not None or c.low:
            first = at if first is None else first
            last = at + c.width
        at += c.width
    return first or 0, last
