"""Variables of at most 64 bits, and the expressions that a model computes from them: trees, and their C++ for one core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

from upl_mlir.netsim.read import WORD, Word


@dataclass(eq=False)
class Variable:
    """Bits `low` to `low + width - 1` of a word."""

    word: Word
    low: int
    width: int
    number: int

    @property
    def name(self) -> str:
        return f"v{self.number}"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """An expression of 64 bits, or of 128 where a cast or a function makes it so.

    `kind` is an operator of C++ with two operands, or `?`, with three; or `neg`, `inv`, `not`, for `-`, `~`, `!`; or
    `number`; `variable`; `let`, what a step calls `name`; `row`, of the memory `name` at the place that is its operand;
    `linear`, the value of the linear map whose table is `name`; `call`, of the function `name`; `unit`, of the method
    `name` of a unit.
    """

    kind: str
    parts: tuple[Node, ...] = ()
    name: str = ""
    number: int | None = None
    variable: Variable | None = None

    def __and__(self, other: Node | int) -> Node:
        return binary("&", self, other)

    def __or__(self, other: Node | int) -> Node:
        return binary("|", self, other)

    def __xor__(self, other: Node | int) -> Node:
        return binary("^", self, other)

    def __add__(self, other: Node | int) -> Node:
        return binary("+", self, other)

    def __sub__(self, other: Node | int) -> Node:
        return binary("-", self, other)

    def __mul__(self, other: Node | int) -> Node:
        return binary("*", self, other)

    def __lshift__(self, by: int) -> Node:
        return binary("<<", self, by) if by else self

    def __rshift__(self, by: int) -> Node:
        return binary(">>", self, by) if by else self

    def __neg__(self) -> Node:
        return Node("neg", (self,))

    def __invert__(self) -> Node:
        return Node("inv", (self,))

    def variables(self) -> Iterator[Variable]:
        """Those in it, from left to right, as often as they are there."""
        if self.variable is not None:
            yield self.variable
        for part in self.parts:
            yield from part.variables()


def ones(bits: int) -> int:
    """The number with that many ones."""
    return (1 << bits) - 1


def number(value: int) -> Node:
    """A number, modulo 2^64."""
    return Node("number", number=value & ones(WORD))


def variable(v: Variable) -> Node:
    """The value of a variable."""
    return Node("variable", variable=v)


def binary(operator: str, x: Node, y: Node | int) -> Node:
    """An operator of C++ with two operands."""
    return Node(operator, (x, number(y) if isinstance(y, int) else y))


def equal(x: Node, y: Node | int) -> Node:
    """1 if they are equal, else 0."""
    return binary("==", x, y)


def differ(x: Node, y: Node | int) -> Node:
    """0 if they are equal, else 1."""
    return binary("!=", x, y)


def less(x: Node, y: Node | int) -> Node:
    """1 if x < y, else 0."""
    return binary("<", x, y)


def choose(condition: Node, yes: Node, no: Node) -> Node:
    """One of two, by a condition."""
    return Node("?", (condition, yes, no))


def call(name: str, *parts: Node | int) -> Node:
    """A function of `model.h`, or a cast."""
    return Node("call", tuple(number(p) if isinstance(p, int) else p for p in parts), name)


def cut(x: Node, bits: int) -> Node:
    """The lowest bits."""
    return x & ones(bits) if bits < WORD else x


def joined(terms: Iterable[Node], operator: str = "|") -> Node:
    """At least one term with an operator of C++ between them."""
    return reduce(lambda x, y: binary(operator, x, y), terms)


def literal(value: int) -> str:
    """A literal of 64 bits."""
    return f"{value:#x}ull" if value > 9 else f"{value}ull"


_UNARY = {"neg": "-", "inv": "~", "not": "!"}


def scalar(node: Node, owner: str = "m", nested: bool = False) -> str:
    """An expression in C++, for one core; in parentheses, where it needs some, if it is `nested`. `owner` has the memories
    and units."""
    kind, parts = node.kind, node.parts
    if node.variable is not None:
        return node.variable.name
    if node.number is not None:
        return literal(node.number)
    match kind:
        case "let":
            return node.name
        case "row":
            return f"{owner}.{node.name}[{scalar(parts[0], owner)}]"
        case "linear":
            return f"linear({node.name}, {scalar(parts[0], owner)})"
        case "call" | "unit":
            told = ", ".join(scalar(p, owner) for p in parts)
            return f"{f'{owner}.' if kind == 'unit' else ''}{node.name}({told})"
        case _:
            flat = {"|": 0, "^": 0, "&": 0, "?": 2}.get(kind)  # long chains without parentheses: compilers bear some hundred
            each = [scalar(p, owner, n != flat or p.kind != kind) for n, p in enumerate(parts)]
            if len(each) == 1:
                return f"{_UNARY[kind]}{each[0]}"
            text = f"{each[0]} ? {each[1]} : {each[2]}" if kind == "?" else f"{each[0]} {kind} {each[1]}"
            return f"({text})" if nested else text
