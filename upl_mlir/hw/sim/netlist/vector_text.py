"""Statements of steps, rewritten for vectors with a lane for each core: bits become masks, numbers vectors.

What `lower` writes is C++ for one core. Here its expressions are read (names, literals, operators, calls, rows of memories
and of tables) and written anew with the functions of `lanes.h`. There a variable of one bit is a mask (`Mask`, a bit for
each lane), any other a vector (`Vector`, 64 bits for each lane). What is not known here raises `Unknown`, and is done lane
by lane.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_TOKEN = re.compile(r"\s*(0x[0-9a-f]+ull|\d+ull|\d+|[A-Za-z_]\w*|<<|>>|<=|>=|==|!=|&&|[-+*&|^~!?:(),<>=\[\].])")
_BINARY = {"&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8,
           "+": 9, "-": 9, "*": 10}  # fmt: skip
_COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_SHIFTS = {"shl": "sllv", "shl_less": "sllv", "shr": "srlv", "shr_less": "srlv", "sar": "srav", "sar_less": "srav"}
ADDRESS = "a"
"""The name that `lower` gives to an address."""


class Unknown(Exception):
    """A form that has none for vectors."""


class Node(NamedTuple):
    """An expression: `kind` is an operator, `number`, `name`, `row`, `table`, or `call`; `text` a name, or the digits."""

    kind: str
    text: str = ""
    parts: tuple[Node, ...] = ()

    @property
    def number(self) -> int | None:
        """The value of a literal."""
        return int(self.text.removesuffix("ull"), 0) if self.kind == "number" else None


def statement(text: str, widths: Mapping[str, int]) -> str:
    """A step's text for vectors. `widths`: bits of the variables. Raises `Unknown`."""
    text = text.strip()
    before, after = "", ""
    if text.startswith(f"{{ const u64 {ADDRESS} ="):
        head, _, text = text[1:-1].partition(";")
        before, after = f"{{ const Vector {ADDRESS} = {_Writer(widths).vector(read(head.partition('=')[2]))}; ", " }"
    if "{" in text:
        raise Unknown(text)
    out: list[str] = []
    for one in filter(None, map(str.strip, text.split(";"))):
        name, _, value = (s.strip() for s in one.partition("="))
        node, write = read(value), _Writer(widths)
        out.append(f"{name} = {write.mask(node) if widths[name] == 1 else write.vector(node)};")
    return before + " ".join(out) + after


def read(text: str) -> Node:
    """The tree of an expression.  Raises `Unknown`."""
    reader = _Reader(text)
    node = reader.choice()
    if reader.peek():
        raise Unknown(text)
    return node


class _Reader:
    """Operator precedence as in C++."""

    def __init__(self, text: str):
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise Unknown(text)
            self.tokens.append(found[1])
            at = found.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise Unknown(f"{token} for {wanted}")
        self.at += 1
        return token

    def choice(self) -> Node:
        node = self.binary(0)
        if self.peek() != "?":
            return node
        self.take()
        yes = self.choice()
        self.take(":")
        return Node("?", "", (node, yes, self.choice()))

    def binary(self, least: int) -> Node:
        node = self.unary()
        while _BINARY.get(self.peek(), -1) >= least:
            operator = self.take()
            node = Node(operator, "", (node, self.binary(_BINARY[operator] + 1)))
        return node

    def unary(self) -> Node:
        token = self.take()
        if token in ("!", "-", "~"):
            return Node(f"unary {token}", "", (self.unary(),))
        if token == "(":
            node = self.choice()
            self.take(")")
            return node
        if token[0].isdigit():
            return Node("number", token)
        if self.peek() == "(":
            self.take()
            parts: list[Node] = []
            while self.peek() != ")":
                parts.append(self.choice())
                if self.peek() != ")":
                    self.take(",")
            self.take()
            return Node("call", token, tuple(parts))
        if token == "m" and self.peek() == ".":
            self.take()
            return Node("row", self.take(), (self.index(),))
        if self.peek() == "[":
            part = self.index()
            return Node("table", f"{token}[{part.text}]", (self.index(),))
        return Node("name", token)

    def index(self) -> Node:
        self.take("[")
        node = self.choice()
        self.take("]")
        return node


class _Writer:
    """Writes a tree as a mask or as a vector, whatever its user needs."""

    def __init__(self, widths: Mapping[str, int]):
        self.widths = widths

    def one_bit(self, node: Node) -> bool:
        """Whether a tree is 0 or 1, and best made as a mask."""
        match node.kind:
            case "name":
                return self.widths.get(node.text) == 1
            case "==" | "!=" | "<" | ">" | "<=" | ">=" | "&&" | "unary !":
                return True
            case "&" | "|" | "^":
                return any(map(self.one_bit, node.parts)) and all(map(self.fits, node.parts))
            case "?":
                return any(map(self.one_bit, node.parts[1:])) and all(map(self.fits, node.parts[1:]))
            case "call":
                return node.text == "parity" or (node.text == "u64" and self.one_bit(node.parts[0]))
            case _:
                return False

    def fits(self, node: Node) -> bool:
        return self.one_bit(node) or node.number in (0, 1)

    def mask(self, node: Node) -> str:
        """The lowest bit."""
        kind, parts = node.kind, node.parts
        match kind:
            case "number":
                return "ALL" if node.number == 1 else "NONE"
            case "name" if self.one_bit(node):
                return node.text
            case "^" if parts[1].number == 1:
                return f"inv({self.mask(parts[0])})"
            case "&" if parts[1].number == 1:
                return self.mask(parts[0])
            case "&" | "|" | "^":
                return f"Mask({self.mask(parts[0])} {kind} {self.mask(parts[1])})"
            case ">>" if parts[1].number is not None:
                return f"bit({self.vector(parts[0])}, {parts[1].number})"
            case "==" | "!=":
                return self._equal(kind, *parts)
            case "<" | "<=" | ">" | ">=":
                signed = all(p.kind == "call" and p.text == "i64" for p in parts)
                x, y = (self.vector(p.parts[0] if signed else p) for p in parts)
                return f"{'s' if signed else ''}{_COMPARE[kind]}({x}, {y})"
            case "unary !":
                return f"inv({self.truth(parts[0])})"
            case "&&":
                return f"Mask({self.truth(parts[0])} & {self.truth(parts[1])})"
            case "?":
                return f"pick({self.truth(parts[0])}, {self.mask(parts[1])}, {self.mask(parts[2])})"
            case "call" if node.text == "parity":
                return f"parity({self.vector(parts[0])})"
            case "call" if node.text == "u64":
                return self.mask(parts[0])
            case _:
                return f"bit({self.vector(node)}, 0)"

    def _equal(self, kind: str, x: Node, y: Node) -> str:
        if self.fits(x) and self.fits(y):
            differ = f"Mask({self.mask(x)} ^ {self.mask(y)})"
            return differ if kind == "!=" else f"inv({differ})"
        if y.number == 0:
            return self.truth(x) if kind == "!=" else f"zero({self.vector(x)})"
        return f"{_COMPARE[kind]}({self.vector(x)}, {self.vector(y)})"

    def truth(self, node: Node) -> str:
        """Whether it is not 0."""
        if self.fits(node):
            return self.mask(node)
        if node.kind == "&":
            return f"test({self.vector(node.parts[0])}, {self.vector(node.parts[1])})"
        return f"test({self.vector(node)})"

    def vector(self, node: Node) -> str:
        """The number."""
        kind, parts = node.kind, node.parts
        if kind == "number":
            return f"all({node.text})"
        if self.one_bit(node):
            return f"word({self.mask(node)}, 0)"
        match kind:
            case "name" if node.text in self.widths or node.text == ADDRESS:
                return node.text
            case "row":
                return f"row(m.core, m.core[0].{node.text}, {self.vector(parts[0])})"
            case "table":
                return f"look({node.text}, {self.vector(parts[0])})"
            case "<<" if parts[1].number is not None:
                if self.one_bit(parts[0]):
                    return f"word({self.mask(parts[0])}, {parts[1].number})"
                return f"({self.vector(parts[0])} << {parts[1].number})"
            case ">>" if parts[1].number is not None:
                return f"({self.vector(parts[0])} >> {parts[1].number})"
            case "&" | "|" | "^" | "+" | "-" | "*":
                return f"({self.vector(parts[0])} {kind} {self.vector(parts[1])})"
            case "unary -":
                return f"(all(0) - {self.vector(parts[0])})"
            case "unary ~":
                return f"(~{self.vector(parts[0])})"
            case "?":
                return f"pick({self.truth(parts[0])}, {self.vector(parts[1])}, {self.vector(parts[2])})"
            case "call" if node.text == "u64":
                return self.vector(parts[0])
            case "call" if node.text in _SHIFTS:
                return f"{_SHIFTS[node.text]}({self.vector(parts[0])}, {self.vector(parts[1])})"
            case "call" if node.text == "sext":
                return f"sext<{parts[1].number}>({self.vector(parts[0])})"
            case _:
                raise Unknown(f"{kind} {node.text}")
