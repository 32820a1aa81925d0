"""Steps in C++ for several cores at once: a variable of one bit is a mask (`Mask`, a bit for each lane), any other a vector
(`Vector`, 64 bits for each lane). An expression is written with the functions of `lanes.h`, as a mask or as a vector,
whatever its user needs. What has no form for vectors raises `Unknown`, and is done lane by lane.
"""

from __future__ import annotations

from upl_mlir.hw.sim.netlist.expression import Node, literal, scalar
from upl_mlir.hw.sim.netlist.program import Step

_COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_SHIFTS = {"shl": "sllv", "shl_less": "sllv", "shr": "srlv", "shr_less": "srlv", "sar": "srav", "sar_less": "srav"}


class Unknown(Exception):
    """A form that has none for vectors."""


def statement(step: Step) -> str:
    """A step for all lanes.  Raises `Unknown`."""
    text = " ".join(f"{v.name} = {mask(value) if v.width == 1 else vector(value)};" for v, value in step.sets)
    if step.let is None:
        return text
    if step.let.wide:
        raise Unknown("a number of 128 bits")
    return f"{{ const Vector {step.let.name} = {vector(step.let.value)}; {text} }}"


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
        case ">>" if parts[1].number is not None:
            return f"bit({vector(parts[0])}, {parts[1].number})"
        case "==" | "!=":
            return _equal(kind, *parts)
        case "<" | "<=" | ">" | ">=":
            signed = all(p.kind == "call" and p.name == "i64" for p in parts)
            x, y = (vector(p.parts[0] if signed else p) for p in parts)
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
    if y.number == 0:
        return _truth(x) if kind == "!=" else f"zero({vector(x)})"
    return f"{_COMPARE[kind]}({vector(x)}, {vector(y)})"


def _truth(node: Node) -> str:
    """Whether it is not 0."""
    if _fits(node):
        return mask(node)
    if node.kind == "&":
        return f"test({vector(node.parts[0])}, {vector(node.parts[1])})"
    return f"test({vector(node)})"


def vector(node: Node) -> str:
    """The number."""
    kind, parts = node.kind, node.parts
    if node.number is not None:
        return f"all({literal(node.number)})"
    if _one_bit(node):
        return f"word({mask(node)}, 0)"
    match kind:
        case "variable" | "let":
            return scalar(node)
        case "row":
            return f"row(m.core, m.core[0].{node.name}, {vector(parts[0])})"
        case "table":
            return f"look({node.name}, {vector(parts[0])})"
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
        case "call" if node.name == "u64":
            return vector(parts[0])
        case "call" if node.name in _SHIFTS:
            return f"{_SHIFTS[node.name]}({vector(parts[0])}, {vector(parts[1])})"
        case "call" if node.name == "sext":
            return f"sext<{parts[1].number}>({vector(parts[0])})"
        case _:
            raise Unknown(f"{kind} {node.name}")
