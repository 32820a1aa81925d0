"""Steps in C++ for several cores at once: a variable of one bit is a mask (`Mask`, a bit for each lane), any other a vector
(`Vector`, 64 bits for each lane). An expression is written with the functions of `lanes.h`, as a mask, a vector or a pair of
them (`Pair`, 128 bits for each lane), whatever its user needs. What has no form for vectors raises `Unknown`, and is done
lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from upl_mlir.netsim.expression import Node, literal, scalar
from upl_mlir.netsim.program import WIDE, Step

_COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_SHIFTS = {"shl": "sllv", "shl_less": "sllv", "shr": "srlv", "shr_less": "srlv", "sar": "srav", "sar_less": "srav",
           "shift": "shift"}  # fmt: skip
_WIDE_SHIFTS = {f"{name}128{end}": f"{name}128" for name in ("shl", "shr", "sar", "shift") for end in ("", "_less")}


class Unknown(Exception):
    """A form that has none for vectors."""


def statement(step: Step) -> str:
    """A step for all lanes.  Raises `Unknown`."""
    text = " ".join(f"{v.name} = {mask(value) if v.width == 1 else vector(value)};" for v, value in step.sets)
    if step.let is None:
        return text
    kind, value = ("Pair", pair(step.let.value)) if step.let.wide else ("Vector", vector(step.let.value))
    return f"{{ const {kind} {step.let.name} = {value}; {text} }}"


def _wide(node: Node) -> bool:
    """Whether a tree is a number of 128 bits."""
    match node.kind:
        case "call":
            return node.name.removesuffix("_less").endswith("128")
        case "let":
            return node.name == WIDE
        case "<<" | ">>":
            return _wide(node.parts[0])
        case "&" | "|" | "^" | "+" | "-" | "*" | "neg" | "inv":
            return any(map(_wide, node.parts))
        case _:
            return False


def _one_bit(node: Node) -> bool:
    """Whether a tree is 0 or 1, and best made as a mask."""
    match node.kind:
        case "variable":
            return node.variable is not None and node.variable.width == 1
        case "==" | "!=" | "<" | ">" | "<=" | ">=" | "&&" | "not":
            return True
        case "&" | "|" | "^":
            return any(map(_one_bit, node.parts)) and all(map(_fits, node.parts))
        case "?":
            return any(map(_one_bit, node.parts[1:])) and all(map(_fits, node.parts[1:]))
        case "call":
            return node.name == "parity" or (node.name == "u64" and _one_bit(node.parts[0]))
        case _:
            return False


def _fits(node: Node) -> bool:
    return _one_bit(node) or node.number in (0, 1)


def mask(node: Node) -> str:
    """The lowest bit."""
    kind, parts = node.kind, node.parts
    if node.number is not None:
        return "ALL" if node.number & 1 else "NONE"
    match kind:
        case "variable" if _one_bit(node):
            return scalar(node)
        case "^" if parts[1].number == 1:
            return f"inv({mask(parts[0])})"
        case "&" if parts[1].number == 1:
            return mask(parts[0])
        case "&" | "|" | "^":
            return f"Mask({mask(parts[0])} {kind} {mask(parts[1])})"
        case ">>" if parts[1].number is not None and not _wide(node):
            return f"bit({vector(parts[0])}, {parts[1].number})"
        case "==" | "!=":
            return _equal(kind, *parts)
        case "<" | "<=" | ">" | ">=":
            signed = all(p.kind == "call" and p.name in ("i64", "i128") for p in parts)
            x, y = _like([p.parts[0] if signed else p for p in parts])
            return f"{'s' if signed else ''}{_COMPARE[kind]}({x}, {y})"
        case "not":
            return f"inv({_truth(parts[0])})"
        case "&&":
            return f"Mask({_truth(parts[0])} & {_truth(parts[1])})"
        case "?":
            return f"pick({_truth(parts[0])}, {mask(parts[1])}, {mask(parts[2])})"
        case "call" if node.name == "parity":
            return f"parity({vector(parts[0])})"
        case "call" if node.name == "u64":
            return mask(parts[0])
        case _:
            return f"bit({vector(node)}, 0)"


def _equal(kind: str, x: Node, y: Node) -> str:
    if _fits(x) and _fits(y):
        differ = f"Mask({mask(x)} ^ {mask(y)})"
        return differ if kind == "!=" else f"inv({differ})"
    if y.number == 0 and not _wide(x):
        return _truth(x) if kind == "!=" else f"zero({vector(x)})"
    return f"{_COMPARE[kind]}({', '.join(_like((x, y)))})"


def _like(nodes: Sequence[Node]) -> list[str]:
    """Numbers that are compared: all of them pairs if one is."""
    return list(map(pair if any(map(_wide, nodes)) else vector, nodes))


def _truth(node: Node) -> str:
    """Whether it is not 0."""
    if _fits(node):
        return mask(node)
    if node.kind == "&":
        return f"test({vector(node.parts[0])}, {vector(node.parts[1])})"
    return f"test({vector(node)})"


def vector(node: Node) -> str:
    """The number, or the lowest 64 bits of one of 128."""
    kind, parts = node.kind, node.parts
    if _wide(node):
        return _word(node)
    if node.number is not None:
        return f"all({literal(node.number)})"
    if _one_bit(node):
        return f"word({mask(node)}, 0)"
    match kind:
        case "variable" | "let":
            return scalar(node)
        case "row":
            return f"row(m.core, m.core[0].{node.name}, {vector(parts[0])})"
        case "linear":
            return f"linear({node.name}, {vector(parts[0])})"
        case "<<" if parts[1].number is not None:
            if _one_bit(parts[0]):
                return f"word({mask(parts[0])}, {parts[1].number})"
            return f"({vector(parts[0])} << {parts[1].number})"
        case ">>" if parts[1].number is not None:
            return f"({vector(parts[0])} >> {parts[1].number})"
        case "&" | "|" | "^" | "+" | "-" | "*":
            return f"({vector(parts[0])} {kind} {vector(parts[1])})"
        case "neg":
            return f"(all(0) - {vector(parts[0])})"
        case "inv":
            return f"(~{vector(parts[0])})"
        case "?":
            return f"pick({_truth(parts[0])}, {vector(parts[1])}, {vector(parts[2])})"
        case "call" if node.name in ("u64", "i64"):
            return vector(parts[0])
        case "call" if node.name in _SHIFTS:
            return f"{_SHIFTS[node.name]}({vector(parts[0])}, {vector(parts[1])})"
        case "call" if node.name == "sext":
            return f"sext<{parts[1].number}>({vector(parts[0])})"
        case _:
            raise Unknown(f"{kind} {node.name}")


def _word(node: Node) -> str:
    """The lowest 64 bits of a pair, mostly of one that is shifted."""
    if node.kind == ">>" and node.parts[1].number is not None:
        return f"word({pair(node.parts[0])}, {node.parts[1].number})"
    return f"({pair(node)}).low"


def pair(node: Node) -> str:
    """The number of 128 bits."""
    kind, parts = node.kind, node.parts
    if not _wide(node):
        return f"Pair{{{vector(node)}}}"
    match kind:
        case "let":
            return node.name
        case "&" | "|" | "^" | "+" | "-":
            return f"({pair(parts[0])} {kind} {pair(parts[1])})"
        case "<<" if parts[1].number is not None:
            return f"shl128({pair(parts[0])}, all({parts[1].number}))"
        case ">>" if parts[1].number is not None:
            return f"shr128({pair(parts[0])}, all({parts[1].number}))"
        case "neg":
            return f"(Pair{{}} - {pair(parts[0])})"
        case "call" if node.name in ("u128", "i128"):
            return pair(parts[0])
        case "call" if node.name == "sext128":
            return f"sext128<{parts[1].number}>({pair(parts[0])})"
        case "call" if node.name in _WIDE_SHIFTS:
            return f"{_WIDE_SHIFTS[node.name]}({pair(parts[0])}, {vector(parts[1])})"
        case _:
            raise Unknown(f"{kind} {node.name}")
