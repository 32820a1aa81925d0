"""Reads the text normal form of index expressions and formulas back (dialect attributes, tests, command lines).

A precedence-climbing parser over the integer part of UPL's expression language.  Positions are columns of the given
text: the caller, which knows where the text stands, turns a `PolySyntaxError` into a diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from upl_mlir.poly.expr import FALSE, TRUE, Formula, IndexExpr, Lookup, Select, divide, extremum
from upl_mlir.poly.operators import CmpOp, DivKind, Extremum

_TOKEN = re.compile(r"\s*(?:(\d+)|([^\W\d]\w*)|(<=|>=|==|!=|&&|\|\||[-+*()\[\],<>!?:]))")
_CMP = {op.value for op in CmpOp}
_MAX_DEPTH = 80  # of brackets and prefix operators together; each level takes seven Python frames at most


@dataclass
class PolySyntaxError(Exception):
    """A malformed expression; `col` counts from 0 inside the text."""

    message: str
    col: int


def parse_index(text: str) -> IndexExpr:
    """An integer expression such as ``2*i+N[k-1] floordiv 4``.  Raises PolySyntaxError."""
    p = _Parser(text)
    out = p.index(p.conditional(), 0)
    p.expect_end()
    return out


def parse_formula(text: str) -> Formula:
    """A formula such as ``1<=k<K && i!=j``; a comma means ``&&``; empty text is true.  Raises PolySyntaxError."""
    p = _Parser(text)
    if not p.tokens:
        return TRUE
    parts = [p.formula(p.conditional(), 0)]
    while p.take(","):
        parts.append(p.formula(p.conditional(), p.col))
    p.expect_end()
    return Formula.all(parts)


class _Parser:
    """Tokens and a cursor; each method parses one level of the grammar."""

    def __init__(self, text: str):
        self.tokens: list[tuple[str, int]] = []
        self.pos = 0
        self.depth = 0
        at = 0
        text = text.rstrip()
        while at < len(text):
            m = _TOKEN.match(text, at)
            if not m:
                raise PolySyntaxError(f"unexpected character {text[at:].lstrip()[:1]!r}", at)
            self.tokens.append((m.group().strip(), m.end() - len(m.group().strip())))
            at = m.end()
        self.end = len(text)

    @property
    def here(self) -> str:
        return self.tokens[self.pos][0] if self.pos < len(self.tokens) else ""

    @property
    def col(self) -> int:
        return self.tokens[self.pos][1] if self.pos < len(self.tokens) else self.end

    def take(self, *texts: str) -> str | None:
        if self.here in texts:
            self.pos += 1
            return texts[texts.index(self.tokens[self.pos - 1][0])]
        return None

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise PolySyntaxError(f"expected `{text}`, found {self.shown}", self.col)

    def expect_end(self) -> None:
        if self.pos < len(self.tokens):
            raise PolySyntaxError(f"unexpected {self.shown}", self.col)

    @property
    def shown(self) -> str:
        return f"`{self.here}`" if self.here else "the end"

    def index(self, value: IndexExpr | Formula, col: int) -> IndexExpr:
        if isinstance(value, Formula):
            raise PolySyntaxError("expected an integer expression, found a condition", col)
        return value

    def formula(self, value: IndexExpr | Formula, col: int) -> Formula:
        if isinstance(value, IndexExpr):
            raise PolySyntaxError("expected a condition, found an integer expression", col)
        return value

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise PolySyntaxError("expression nested too deeply", self.col)

    def conditional(self) -> IndexExpr | Formula:
        self.deeper()
        col = self.col
        value = self.disjunction()
        if self.take("?"):
            cond = self.formula(value, col)
            then = self.index(self.conditional(), self.col)
            self.expect(":")
            value = IndexExpr.of(Select(cond, then, self.index(self.conditional(), self.col)))
        self.depth -= 1
        return value

    def disjunction(self) -> IndexExpr | Formula:
        return self.joined("||", Formula.any, self.conjunction)

    def conjunction(self) -> IndexExpr | Formula:
        return self.joined("&&", Formula.all, self.comparison)

    def joined(
        self, sign: str, join: Callable[[Iterable[Formula]], Formula], part: Callable[[], IndexExpr | Formula]
    ) -> IndexExpr | Formula:
        """Parts with signs between them; one part alone is itself."""
        col = self.col
        value = part()
        while self.take(sign):
            value = join((self.formula(value, col), self.formula(part(), self.col)))
        return value

    def comparison(self) -> IndexExpr | Formula:
        col = self.col
        if self.take("!"):
            self.deeper()
            value = self.formula(self.comparison(), col).negate()
            self.depth -= 1
            return value
        first = self.sum()
        if self.here not in _CMP:
            return first
        parts: list[Formula] = []
        left = self.index(first, col)
        while (op := self.take(*_CMP)) is not None:
            right = self.index(self.sum(), self.col)
            parts.append(Formula.compare(left, op, right))
            left = right
        return Formula.all(parts)

    def sum(self) -> IndexExpr | Formula:
        col = self.col
        value = self.product()
        while (op := self.take("+", "-")) is not None:
            right = self.index(self.product(), self.col)
            value = self.index(value, col) + (right if op == "+" else -right)
        return value

    def product(self) -> IndexExpr | Formula:
        col = self.col
        value = self.factor()
        while (op := self.take("*", "floordiv", "ceildiv", "mod")) is not None:
            right = self.index(self.factor(), self.col)
            left = self.index(value, col)
            value = left * right if op == "*" else divide(DivKind(op), left, right)
        return value

    def factor(self) -> IndexExpr | Formula:
        col, token = self.col, self.here
        if self.take("("):
            value = self.conditional()
            self.expect(")")
            return value
        if self.take("-"):
            self.deeper()
            value = -self.index(self.factor(), col)
            self.depth -= 1
            return value
        if not token or not (token[0].isalnum() or token[0] == "_"):
            raise PolySyntaxError(f"expected an integer expression, found {self.shown}", col)
        self.pos += 1
        if token[0].isdigit():
            return IndexExpr.of(int(token))
        if token in ("true", "false"):
            return TRUE if token == "true" else FALSE
        if token in ("min", "max") and self.take("("):
            args = [self.index(self.conditional(), self.col)]
            while self.take(","):
                args.append(self.index(self.conditional(), self.col))
            self.expect(")")
            return extremum(Extremum(token), args)
        if self.take("["):
            index = self.index(self.conditional(), self.col)
            self.expect("]")
            return IndexExpr.of(Lookup(token, index))
        return IndexExpr.of(token)
