"""The tree of a `.upl` text as it was written: frozen dataclasses, one class for each construct.

Nothing is resolved here: names are text, types and domains are what the author wrote, omitted parts are `None`, two
blocks of one (glued) node are two items.  Every node has a `span`; spans do not take part in equality, so two texts that
differ in layout and comments only give equal trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from upl_mlir.diagnostics import Span


class ScalarType(Enum):
    """The types a token or variable can have; `REAL` is f64 or f32 by option."""

    REAL = "real"
    F32 = "f32"
    F64 = "f64"
    INT = "int"
    BOOL = "bool"


class UnaryOp(Enum):
    """Prefix operators."""

    NEG = "-"
    NOT = "!"


class BinaryOp(Enum):
    """Arithmetic operators of two operands; `FLOORDIV`, `CEILDIV` and `MOD` are MLIR's affine ones."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    FLOORDIV = "floordiv"
    CEILDIV = "ceildiv"
    MOD = "mod"
    POW = "**"


class CompareOp(Enum):
    """Comparisons; they chain."""

    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="


class LogicalOp(Enum):
    """Logical operators of two operands."""

    AND = "&&"
    OR = "||"


@dataclass(frozen=True)
class Node:
    """Base of all nodes: a piece of text at `span`."""

    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Ident(Node):
    """A name where it is declared or where it names a port; `name` is in Unicode normal form C."""

    name: str


@dataclass(frozen=True)
class TypeRef(Node):
    """A type as written."""

    type: ScalarType


@dataclass(frozen=True)
class Comment(Node):
    """A comment with its delimiters."""

    text: str


# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number(Node):
    """A literal: `7` is an integer of at most 63 bits, `7.` and `7e0` are real."""

    value: int | float
    is_real: bool


@dataclass(frozen=True)
class BoolLit(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True)
class Name(Node):
    """A field, iterator, constant, parameter, input or variable used as a value."""

    name: str


@dataclass(frozen=True)
class Lookup(Node):
    """`array[index]`: an element of an array constant."""

    array: Ident
    index: Expr


@dataclass(frozen=True)
class Unary(Node):
    """`-x` or `!x`."""

    op: UnaryOp
    operand: Expr


@dataclass(frozen=True)
class Binary(Node):
    """`left op right`, arithmetic."""

    op: BinaryOp
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Compare(Node):
    """`first op1 e1 op2 e2 …`: all comparisons between neighbours hold, as in Python; `rest` is never empty."""

    first: Expr
    rest: tuple[tuple[CompareOp, Expr], ...]


@dataclass(frozen=True)
class Logical(Node):
    """`left && right` or `left || right`."""

    op: LogicalOp
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Conditional(Node):
    """`condition ? then : otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Call(Node):
    """`function(arguments)`; neither the function's existence nor its arity is checked here.

    The function may be a type name: `int(x)`.
    """

    function: Ident
    arguments: tuple[Expr, ...]


Expr: TypeAlias = Number | BoolLit | Name | Lookup | Unary | Binary | Compare | Logical | Conditional | Call


@dataclass(frozen=True)
class Star(Node):
    """`*` as a whole index element: unifies with anything."""


IndexElement: TypeAlias = Expr | Star

# --- arrows and bodies -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unbounded(Node):
    """The multiplicity `##`; as the count of a gathering input `@(op) s[##]`, that it ends when no summand can come."""


@dataclass(frozen=True)
class StatedBySummands(Node):
    """The count `#` of a gathering input `@(op) s[#]`: the multiplicity of each summand states it."""


@dataclass(frozen=True)
class PortRef(Node):
    """`NAME` or `NAME.MEMBER`: a host port, a node's only input, a node's input, or a body variable (a seed)."""

    port: Ident
    member: Ident | None


@dataclass(frozen=True)
class Iterator(Node):
    """`name in lo..hi`, both ends included."""

    name: Ident
    lo: Expr
    hi: Expr


@dataclass(frozen=True)
class Arrow(Node):
    """`[if condition:] [value] [#multiplicity] -> target[<index>] [for iterators [if iterator_condition]]`.

    Omitted parts are None; `index` is None when omitted and `()` for `<>`.
    """

    condition: Expr | None
    value: Expr | None
    multiplicity: Expr | Unbounded | None
    target: PortRef
    index: tuple[IndexElement, ...] | None
    iterators: tuple[Iterator, ...] = ()
    iterator_condition: Expr | None = None


@dataclass(frozen=True)
class Assign(Node):
    """`name[: type] = value`."""

    name: Ident
    type: TypeRef | None
    value: Expr


@dataclass(frozen=True)
class Bare(Node):
    """`value;`: an expression by itself, which arrows below take where they leave their value out; the span has the `;`."""

    value: Expr


@dataclass(frozen=True)
class InputDecl(Node):
    """One input of a node: `name[: type]`, or gathering, `@(gather) name[count][: type]`.

    `gather`, the operator's symbol, and `count` are both None (an ordinary input) or both given.
    """

    name: Ident
    type: TypeRef | None
    gather: Ident | None = None
    count: Expr | StatedBySummands | Unbounded | None = None


@dataclass(frozen=True)
class Inputs(Node):
    """The statement `in input, input, …`."""

    inputs: tuple[InputDecl, ...]


Statement: TypeAlias = Inputs | Assign | Bare | Arrow

# --- items -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Param(Node):
    """`param name [op bound]`: a symbolic integer; `condition` is the comparison with `name` as its first operand.

    `param name[lo:hi] [op bound]`: a symbolic array of integers, each of which satisfies the condition.
    """

    name: Ident
    condition: Compare | None
    bounds: tuple[Expr, Expr] | None = None


@dataclass(frozen=True)
class Const(Node):
    """`const name = value`."""

    name: Ident
    value: Expr


@dataclass(frozen=True)
class ConstArray(Node):
    """`const name[lo:hi] = [values]`, both ends included; that the number of values fits is checked later."""

    name: Ident
    lo: Expr
    hi: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class HostInput(Node):
    """`input name[<fields>][: type] [in domain] [{ arrows }]`; `fields` is None when omitted."""

    name: Ident
    fields: tuple[Ident, ...] | None
    type: TypeRef | None
    domain: tuple[Expr, ...] | None
    arrows: tuple[Arrow, ...]


@dataclass(frozen=True)
class HostOutput(Node):
    """`output name[<fields>][: type] [in domain]`; `fields` is None when omitted."""

    name: Ident
    fields: tuple[Ident, ...] | None
    type: TypeRef | None
    domain: tuple[Expr, ...] | None


@dataclass(frozen=True)
class NodeBlock(Node):
    """`node name[<fields>] [in domain] { body }`; several blocks of one name are one node.

    `fields` is None when omitted (no fields, or those of the other block); `domain` is None when it is to be inferred.
    """

    name: Ident
    fields: tuple[Ident, ...] | None
    domain: tuple[Expr, ...] | None
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Adjoint(Node):
    """`adjoint of of [seed seed] wrt [total] wrt [-> targets]`; `targets` is empty in the short form."""

    of: PortRef
    seed: PortRef | None
    total: bool
    wrt: tuple[PortRef, ...]
    targets: tuple[PortRef, ...]


Item: TypeAlias = Param | Const | ConstArray | HostInput | HostOutput | NodeBlock | Adjoint


@dataclass(frozen=True)
class Program(Node):
    """A whole text: its items in text order.

    `name` is None if there is no `program` line; `comments` do not take part in equality.
    """

    name: Ident | None
    items: tuple[Item, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False, repr=False)
