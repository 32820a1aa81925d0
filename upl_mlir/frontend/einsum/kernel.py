"""The text of a kernel: its lexer and parser, with a position for everything.

Comments are ``/* … */``, and `#` to the end of the line (``//`` is the quotient).

    P   ::= S {S}            S ::= T = E ;
    T   ::= Id<n, ...>[I, ...]   a tensor with its shape and index       |   Id<1>   a scalar
    E   ::= E + E | E - E | E * E | E / E | E % E | E // E | - E | ( E ) | T | number
    I   ::= Id | integer | I + I | I - I | I * I | I // I | I % I | - I | ( I )

`* / % //` bind tighter than `+ -`, all are left-associative.  In an index one factor of a product, and every divisor, is a
constant; divisors are positive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from upl_mlir.diagnostics import Span, error
from upl_mlir.poly.expr import IndexExpr, divide
from upl_mlir.poly.operators import DivKind

MAX_DEPTH = 200
"""Brackets inside one another: the parser takes a few Python frames for each."""
MAX_DIGITS = 400  # of a number; the greatest double has 309
MAX_EXTENT = 2**31 - 1
"""The greatest extent of an index: indices are `int` in the C++ that is written."""


@dataclass(frozen=True)
class Access:
    """A tensor where it is used; `index` is None for a scalar.  `names` are its indices in text order."""

    name: str
    shape: tuple[int, ...]
    index: tuple[IndexExpr, ...] | None
    names: tuple[str, ...]
    span: Span
    name_span: Span
    index_spans: tuple[Span, ...]


@dataclass(frozen=True)
class Literal:
    """A number as written."""

    value: int | float
    span: Span


@dataclass(frozen=True)
class Negated:
    """``-operand``."""

    operand: Tree
    span: Span


@dataclass(frozen=True)
class Binary:
    """``left op right``; the span is the operator's."""

    op: str
    left: Tree
    right: Tree
    span: Span


Tree: TypeAlias = Access | Literal | Negated | Binary


@dataclass(frozen=True)
class Assignment:
    """``target = value;``"""

    target: Access
    value: Tree
    span: Span


@dataclass(frozen=True)
class _Token:
    kind: str  # "name", "int", "real", "end", or the character(s) themselves
    text: str
    span: Span


_TOKEN = re.compile(
    r"(?P<space>\s+|\#[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)|(?P<name>[A-Za-z_]\w*)|(?P<real>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<int>\d+)|(?P<sign>//|[-+*/%()<>\[\],;=])",
    re.ASCII,
)


def _tokens(text: str, file: str) -> list[_Token]:
    out: list[_Token] = []
    at, line, start = 0, 1, 0  # `start`: offset of the line

    def span(lo: int, hi: int) -> Span:
        return Span(file, line, lo - start + 1, line, hi - start + 1)

    while at < len(text):
        m = _TOKEN.match(text, at)
        if m is None:
            raise error("UPL1902", f"`{text[at]}` means nothing in a kernel", span(at, at + 1))
        if m.lastgroup == "int" and len(m.group()) > MAX_DIGITS:
            message = f"a number of {len(m.group())} digits; there are at most {MAX_DIGITS}"
            raise error("UPL1902", message, span(at, m.end()))
        kind, piece = m.lastgroup or "", m.group()
        if kind == "space":
            for i, ch in enumerate(piece):
                if ch == "\n":
                    line, start = line + 1, at + i + 1
        else:
            out.append(_Token(piece if kind == "sign" else kind, piece, span(at, m.end())))
        at = m.end()
    out.append(_Token("end", "", span(at, at + 1)))
    return out


def parse_kernel(text: str, file: str = "<kernel>") -> list[Assignment]:
    """The statements of a kernel.  Raises UplError (UPL1902 for the form, UPL1905 for an index expression)."""
    return _Parser(_tokens(text, file)).program()


@dataclass
class _Parser:
    tokens: list[_Token]
    at: int = 0
    depth: int = 0
    names: dict[str, None] = field(default_factory=dict[str, None])  # of the access being read

    @property
    def here(self) -> _Token:
        return self.tokens[self.at]

    def take(self, kind: str, what: str | None = None, help: str | None = None) -> _Token:
        token = self.here
        if token.kind != kind:
            found = f"`{token.text}`" if token.text else "the end of the kernel"
            raise error("UPL1902", f"expected {what or f'`{kind}`'}, found {found}", token.span, help=help)
        self.at += 1
        return token

    def accept(self, *kinds: str) -> _Token | None:
        token = self.here
        if token.kind not in kinds:
            return None
        self.at += 1
        return token

    def program(self) -> list[Assignment]:
        out: list[Assignment] = []
        while self.here.kind != "end":
            out.append(self.statement())
        if not out:
            raise error("UPL1902", "the kernel has no statements", self.here.span, help="write `A<4>[i] = B<4>[i];`")
        return out

    def statement(self) -> Assignment:
        target = self.access()
        self.take("=", help="a statement is `tensor = expression;`")
        value = self.sum()
        end = self.take(";", "an operator or `;`")
        first = target.span
        return Assignment(target, value, Span(first.file, first.line, first.col, end.span.line, end.span.end_col))

    # -- expressions ---------------------------------------------------------------------------------------------
    def sum(self) -> Tree:
        out = self.product()
        while (op := self.accept("+", "-")) is not None:
            out = Binary(op.kind, out, self.product(), op.span)
        return out

    def product(self) -> Tree:
        out = self.factor()
        while (op := self.accept("*", "/", "%", "//")) is not None:
            out = Binary(op.kind, out, self.factor(), op.span)
        return out

    def _enter(self, token: _Token) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise error("UPL1902", "nested too deeply", token.span)

    def factor(self) -> Tree:
        token = self.here
        match token.kind:
            case "-":
                self._enter(self.take("-"))
                out: Tree = Negated(self.factor(), token.span)
                self.depth -= 1
                return out
            case "(":
                self._enter(self.take("("))
                out = self.sum()
                self.take(")", "an operator or `)`")
                self.depth -= 1
                return out
            case "int" | "real":
                self.at += 1
                return Literal(int(token.text) if token.kind == "int" else float(token.text), token.span)
            case _:
                return self.access()

    def access(self) -> Access:
        name = self.take("name", "a tensor, a number or `(`" if self.at else "a tensor")
        self.take("<", help=f"a tensor is written with its shape: `{name.text}<4, 8>[i, j]`, a scalar as `{name.text}<1>`")
        shape = [self.extent()]
        while self.accept(","):
            shape.append(self.extent())
        self.take(">", "`,` or `>`")
        opening = self.accept("[")
        end = self.tokens[self.at - 1].span
        index: list[IndexExpr] = []
        spans: list[Span] = []
        self.names = {}
        if opening is not None:
            while True:
                first = self.here.span
                index.append(self.index_sum())
                last = self.tokens[self.at - 1].span
                spans.append(Span(first.file, first.line, first.col, last.line, last.end_col))
                if not self.accept(","):
                    break
            end = self.take("]", "`,` or `]`").span
        span = Span(name.span.file, name.span.line, name.span.col, end.line, end.end_col)
        exprs = tuple(index) if opening is not None else None
        return Access(name.text, tuple(shape), exprs, tuple(self.names), span, name.span, tuple(spans))

    def extent(self) -> int:
        token = self.take("int", "an extent")
        if not 1 <= int(token.text) <= MAX_EXTENT:
            raise error("UPL1904", f"an extent is at least 1 and at most {MAX_EXTENT}", token.span)
        return int(token.text)

    # -- indices -------------------------------------------------------------------------------------------------
    def index_sum(self) -> IndexExpr:
        out = self.index_product()
        while (op := self.accept("+", "-")) is not None:
            right = self.index_product()
            out = out + right if op.kind == "+" else out - right
        return out

    def index_product(self) -> IndexExpr:
        out = self.index_factor()
        while (op := self.accept("*", "//", "%")) is not None:
            first = self.here
            right = self.index_factor()
            if op.kind == "*":
                if out.constant is None and right.constant is None:
                    help = "an index expression is linear: one factor is a number"
                    raise error("UPL1905", "a product of two indices", op.span, help=help)
                out = out * right
                continue
            if right.constant is None or right.constant < 1:
                raise error("UPL1905", f"the right side of `{op.kind}` must be a positive number here", first.span)
            out = divide(DivKind.FLOORDIV if op.kind == "//" else DivKind.MOD, out, right)
        if self.here.kind == "/":
            raise error("UPL1905", "`/` cannot stand in an index", self.here.span, help="write `//` for the quotient")
        return out

    def index_factor(self) -> IndexExpr:
        token = self.here
        match token.kind:
            case "-" | "(":
                self.at += 1
                self._enter(token)
                if token.kind == "-":
                    out = -self.index_factor()
                else:
                    out = self.index_sum()
                    self.take(")", "an operator or `)`")
                self.depth -= 1
                return out
            case "int":
                self.at += 1
                if int(token.text) > MAX_EXTENT:
                    raise error("UPL1905", f"a number in an index is at most {MAX_EXTENT}", token.span)
                return IndexExpr.of(int(token.text))
            case "real":
                raise error("UPL1905", f"`{token.text}` is not an integer", token.span)
            case _:
                name = self.take("name", "an index, an integer or `(`").text
                self.names[name] = None
                return IndexExpr.of(name)
