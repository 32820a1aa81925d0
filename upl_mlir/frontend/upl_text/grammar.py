"""The cursor over the tokens, its error messages, and the grammar of expressions.

Expressions are read by precedence climbing; `_LEVELS` is the whole table.  Two limits keep every later stage, which
may walk a tree by recursion, within Python's stack: how deep the text nests and how high the resulting tree is.
"""

from __future__ import annotations

from collections.abc import Iterable

from upl_mlir.diagnostics import Note, Span, UplError, error
from upl_mlir.frontend.upl_text.ast import (
    Binary,
    BinaryOp,
    BoolLit,
    Call,
    Compare,
    CompareOp,
    Conditional,
    Expr,
    Ident,
    Logical,
    LogicalOp,
    Lookup,
    Name,
    Number,
    Unary,
    UnaryOp,
)
from upl_mlir.frontend.upl_text.lexer import LITERAL_WORDS, RESERVED, TYPE_WORDS, Kind, Token

MAX_DEPTH = 200

_TERNARY, _OR, _AND, _COMPARE, _SUM, _PRODUCT, _UNARY, _POWER = range(1, 9)

_LEVELS = {
    "?": _TERNARY,
    "||": _OR,
    "&&": _AND,
    **{op.value: _COMPARE for op in CompareOp},
    **{op: _SUM for op in ("+", "-")},
    **{op: _PRODUCT for op in ("*", "/", "floordiv", "ceildiv", "mod")},
    "**": _POWER,
}

_WORDS_FOR_OPERATORS = {"and": "&&", "or": "||", "not": "!"}


class ExpressionParser:
    """A cursor over tokens that can read expressions.

    Every method that reads something leaves the cursor behind it, or raises `UplError`.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = -1
        self._depth = 0
        self._height = 0  # of the expression read last
        self._in_index = False  # directly inside `< >`, not inside parentheses in it
        self.token = tokens[0]
        self.previous = tokens[0]

    # --- cursor ---

    def advance(self) -> Token:
        """Step to the next token and return the one left behind; raises if the next one is a lexical error."""
        self.previous = self.token
        self._position = min(self._position + 1, len(self._tokens) - 1)
        self.token = self._tokens[self._position]
        if isinstance(self.token.value, UplError):
            raise self.token.value
        return self.previous

    def peek(self) -> Token:
        """The token after the current one."""
        return self._tokens[min(self._position + 1, len(self._tokens) - 1)]

    def at(self, *texts: str) -> bool:
        """Whether the current token is one of these symbols or reserved words."""
        return self.token.text in texts and self.token.kind in (Kind.SYMBOL, Kind.WORD)

    def accept(self, text: str) -> bool:
        """Step over this symbol or reserved word if it is the current token."""
        if self.at(text):
            self.advance()
            return True
        return False

    def expect(self, text: str, opening: Token | None = None) -> Token:
        """Step over this symbol; `opening` is the bracket that it closes."""
        if not self.at(text):
            raise self.unexpected(f"`{text}`", opening=opening)
        return self.advance()

    def since(self, start: Token) -> Span:
        """The span from this token to the one before the current one."""
        first, last = start.span, self.previous.span
        return Span(first.file, first.line, first.col, last.end_line, last.end_col)

    # --- errors ---

    def unexpected(
        self,
        wanted: str,
        *,
        opening: Token | None = None,
        help: str | None = None,
        notes: Iterable[Note] = (),
    ) -> UplError:
        """The error "expected … , found …" at the current token, with a suggestion if there is one."""
        notes = list(notes)
        if opening is not None:
            notes.append(Note(f"`{opening.text}` was opened here", opening.span))
            if self.token.kind is Kind.END or self.at("}", ";", "program", "param", "node", "input", "output"):
                code = "UPL1009"
                return error(code, f"expected {wanted}, found {self.found()}", self.token.span, notes=notes, help=help)
        return error(
            "UPL1007", f"expected {wanted}, found {self.found()}", self.token.span, notes=notes, help=help or self._hint()
        )

    def found(self) -> str:
        """The current token in the user's terms."""
        token = self.token
        if token.kind is Kind.END:
            return "the end of the text"
        if token.kind is Kind.NEWLINE:
            return "the end of the line"
        shown = token.text if len(token.text) <= 40 else token.text[:40] + "…"
        return f"the reserved word `{shown}`" if token.kind is Kind.WORD else f"`{shown}`"

    def _hint(self) -> str | None:
        """A suggestion that depends on the two tokens at the cursor only."""
        token, before = self.token, self.previous
        if self.at("="):
            return "`=` assigns; equality is written `==`"
        if token.kind is Kind.NAME and token.text in _WORDS_FOR_OPERATORS:
            return f"write `{_WORDS_FOR_OPERATORS[token.text]}`"
        if before.kind is Kind.INDEX_CLOSE and token.kind in (Kind.NAME, Kind.INT, Kind.REAL):
            return "`>` closes the index; a comparison inside an index needs parentheses"
        if self.at("<") and before.kind is Kind.NAME:
            return "`<` opens an index only after `node`, `input`, `output` and `->` with a name"
        return None

    # --- names ---

    def ident(self, what: str) -> Ident:
        """A name that is not reserved; `what` says which: "a field name"."""
        token = self.token
        if token.kind is Kind.NAME:
            self.advance()
            return Ident(token.span, token.text)
        if token.kind is Kind.WORD and token.text in RESERVED:
            message = f"expected {what}, but `{token.text}` is a reserved word"
            raise error("UPL1008", message, token.span, help=f"choose another name, such as `{token.text}_`")
        raise self.unexpected(what)

    # --- expressions ---

    def expression(self) -> Expr:
        """An expression."""
        return self._climb(_TERNARY)

    def bracketed(self) -> Expr:
        """An expression between brackets other than those of an index: comparisons are free in it."""
        outside, self._in_index = self._in_index, False
        inner = self.expression()
        self._in_index = outside
        return inner

    def index_expression(self) -> Expr:
        """An expression directly between `<` and `>`: no comparison outside parentheses."""
        self._in_index = True
        inner = self.expression()
        self._in_index = False
        return inner

    def _climb(self, level: int) -> Expr:
        """An expression whose operators outside brackets have at least this level."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep(self.token.span)
        start = self.token
        left = self._operand()
        while True:
            found = _LEVELS.get(self.token.text, 0) if self.token.kind in (Kind.SYMBOL, Kind.WORD) else 0
            if found < level or not found:
                break
            height = self._height
            left, height = self._operator(left, found, start, height)
            self._height = height + 1
            if self._height > MAX_DEPTH:
                raise self._too_deep(self.since(start))
        self._depth -= 1
        return left

    def _operator(self, left: Expr, level: int, start: Token, height: int) -> tuple[Expr, int]:
        """The operator at the cursor with what follows, applied to `left`; and the height of the highest operand."""
        text = self.token.text
        if level == _COMPARE:
            return self._comparison(left, start, height)
        question = self.advance()
        if level == _TERNARY:
            then = self.bracketed() if not self._in_index else self._climb(_TERNARY)
            height = max(height, self._height)
            if not self.at(":"):
                raise self.unexpected("`:` of `… ? … : …`", notes=(Note("the `?` is here", question.span),))
            self.advance()
            otherwise = self._climb(_TERNARY)
            return Conditional(self.since(start), left, then, otherwise), max(height, self._height)
        right = self._climb(_POWER if level == _POWER else level + 1)
        height = max(height, self._height)
        if level in (_AND, _OR):
            return Logical(self.since(start), LogicalOp(text), left, right), height
        return Binary(self.since(start), BinaryOp(text), left, right), height

    def _comparison(self, first: Expr, start: Token, height: int) -> tuple[Expr, int]:
        if self._in_index:
            text = "inside an index a comparison needs parentheses: `<(a<b) ? 1 : 2>`"
            shown = self.token.text
            raise error("UPL1012", f"`{shown}` inside an index without parentheses", self.token.span, help=text)
        rest: list[tuple[CompareOp, Expr]] = []
        while self.token.kind is Kind.SYMBOL and _LEVELS.get(self.token.text) == _COMPARE:
            op = CompareOp(self.advance().text)
            rest.append((op, self._climb(_COMPARE + 1)))
            height = max(height, self._height)
        return Compare(self.since(start), first, tuple(rest)), height

    def _operand(self) -> Expr:
        """A literal, name, lookup, call, expression in parentheses, or one of these after `-` or `!`."""
        start = self.token
        self._height = 1
        if start.kind in (Kind.INT, Kind.REAL) and isinstance(start.value, (int, float)):
            self.advance()
            return Number(start.span, start.value, start.kind is Kind.REAL)
        if self.at("-", "!"):
            self.advance()
            operand = self._climb(_UNARY)
            self._height += 1
            if self._height > MAX_DEPTH:
                raise self._too_deep(self.since(start))
            return Unary(self.since(start), UnaryOp(start.text), operand)
        if self.at("("):
            self.advance()
            inner = self.bracketed()
            self.expect(")", start)
            return inner
        if self.at(*LITERAL_WORDS):
            self.advance()
            return BoolLit(start.span, start.text == "true")
        if start.kind is Kind.NAME or (self.at(*TYPE_WORDS) and self.peek().text == "("):
            self.advance()
            return self._after_name(start)
        if start.kind is Kind.WORD and start.text in RESERVED:
            message = f"expected an expression, found the reserved word `{start.text}`"
            raise error("UPL1008", message, start.span, help="a reserved word cannot be used as a name")
        raise self.unexpected("an expression", help=self._operand_hint())

    def _operand_hint(self) -> str | None:
        if self.at(".") and self.peek().kind is Kind.INT:
            return f"write `0.{self.peek().text}`"
        if self.at("##") or (self.at("#") and self.previous.text == "["):
            return "`#` alone is a count only in an input declaration, `@(+) s[#]`; `##` only before `->`"
        if self.at("+"):
            return "there is no unary `+`"
        if self.at("=") and self.previous.text in ("+", "-", "*", "/"):
            return f"a variable is assigned once; there is no `{self.previous.text}=`"
        return None

    def _after_name(self, start: Token) -> Expr:
        name = Ident(start.span, start.text)
        if self.at("["):
            opening = self.advance()
            index = self.bracketed()
            self._height += 1
            self.expect("]", opening)
            return Lookup(self.since(start), name, index)
        if not self.at("("):
            return Name(start.span, start.text)
        opening = self.advance()
        arguments: list[Expr] = []
        height = 0
        while not self.at(")"):
            arguments.append(self.bracketed())
            height = max(height, self._height)
            if not self.accept(","):
                break
            if self.at(")"):
                raise self.unexpected("an expression")
        if not self.at(")"):
            raise self.unexpected("`,` or `)`", opening=opening)
        self.advance()
        self._height = height + 1
        return Call(self.since(start), name, tuple(arguments))

    def _too_deep(self, span: Span) -> UplError:
        text = f"an expression has at most {MAX_DEPTH} levels; split it into several assignments"
        return error("UPL1010", f"this expression is more than {MAX_DEPTH} levels deep", span, help=text)
