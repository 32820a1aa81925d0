"""The cursor over the tokens of a `.upl` text, the grammar of expressions, and what a syntax error says.

`parser.py` builds items and statements on it.  Expressions are read by precedence climbing; the operators, from loose
to tight (`?:` and `**` associate to the right, comparisons chain, the others associate to the left):

    e ::= e ? e : e  |  e || e  |  e && e  |  e (== != < <= > >=) e  |  e (+ -) e  |  e (* / floordiv ceildiv mod) e
        | - e  |  ! e  |  e ** e
        | NUMBER  |  true  |  false  |  NAME  |  NAME[e]  |  (NAME|TYPE)(e, ...)  |  (e)

A unary operator is looser than a `**` to its right (`-a**b` is `-(a**b)`) and may begin an exponent (`a**-b`).

The errors of this stage:

| code    | what is wrong                                                    |
|---------|------------------------------------------------------------------|
| UPL1001 | a file cannot be read or is not UTF-8                            |
| UPL1002 | something else is expected here                                  |
| UPL1003 | a character that cannot stand here                               |
| UPL1004 | a comment that is not closed                                     |
| UPL1005 | a malformed number                                               |
| UPL1006 | a number that is too large                                       |
| UPL1007 | a reserved word used as a name                                   |
| UPL1008 | a brace, bracket or index that is not closed, or not opened      |
| UPL1009 | expressions nested too deeply                                    |
| UPL1010 | `=` where `==` is meant                                          |
| UPL1011 | a comparison inside an index without parentheses                 |
| UPL1012 | a statement or item that cannot stand here, or has no arrow      |
| UPL1013 | a text without a program                                         |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NoReturn, TypeVar

from upl_mlir.diagnostics import Note, Span, UplError, did_you_mean, error
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
    ScalarType,
    TypeRef,
    Unary,
    UnaryOp,
)
from upl_mlir.frontend.upl_text.lexer import ITEM_WORDS, LITERAL_WORDS, TYPE_WORDS, Kind, Token, tokenize

MAX_NESTING = 200
"""Expressions directly inside one another: `1+(1+(…` has two for each parenthesis.

The parser needs at most two Python frames for each.
"""

_T = TypeVar("_T")

_CONDITIONAL, _OR, _AND, _COMPARISON, _SUM, _PRODUCT, _UNARY, _POWER = range(8)

_Operator = BinaryOp | LogicalOp | CompareOp | None

_OPERATORS: Mapping[str, tuple[int, _Operator]] = MappingProxyType(
    {
        "?": (_CONDITIONAL, None),
        "||": (_OR, LogicalOp.OR),
        "&&": (_AND, LogicalOp.AND),
        **{op.value: (_COMPARISON, op) for op in CompareOp},
        **{op.value: (_SUM, op) for op in (BinaryOp.ADD, BinaryOp.SUB)},
        **{op.value: (_PRODUCT, op) for op in (BinaryOp.MUL, BinaryOp.DIV)},
        **{op.value: (_PRODUCT, op) for op in (BinaryOp.FLOORDIV, BinaryOp.CEILDIV, BinaryOp.MOD)},
        "**": (_POWER, BinaryOp.POW),
    }
)

_FOREIGN_WORDS = MappingProxyType(
    {
        "and": "logical and is written `&&`",
        "or": "logical or is written `||`",
        "not": "negation is written `!`",
        "else": "there is no `else`: write a second arrow with the opposite condition, or use `c ? a : b`",
        "then": "a condition ends with `:`",
        "div": "write `floordiv` for the integer quotient, `/` for the real one",
    }
)


class Cursor:
    """The tokens of a text, the position among them, and the expressions that begin there.

    An error found by the lexer is raised when the cursor comes to it.  Every method named after a construct reads it
    and leaves the cursor behind it.  Raises UplError.
    """

    def __init__(self, text: str, file: str) -> None:
        self._tokens, self.comments = tokenize(text, file)
        self._at = 0
        self._nesting = 0
        self._index: Token | None = None  # the `<` of the index in which a comparison needs parentheses
        self.token = self._tokens[0]
        self.previous = self.token
        self._raise_error_token()

    # --- tokens ------------------------------------------------------------------------------------------------------

    def advance(self) -> Token:
        """Step over the current token, which is not `END`, and return it."""
        self.previous = self.token
        self._at += 1
        self.token = self._tokens[self._at]
        self._raise_error_token()
        return self.previous

    def _raise_error_token(self) -> None:
        if isinstance(self.token.value, UplError):
            raise self.token.value

    def following(self) -> Token:
        """The token after the current one, or `END`."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def on_this_line(self, text: str) -> bool:
        """Whether this symbol or reserved word comes before the end of the statement."""
        for token in self._tokens[self._at :]:
            if token.kind in (Kind.NEWLINE, Kind.END) or is_one_of(token, (";", "}")):
                return False
            if is_one_of(token, (text,)):
                return True
        return False

    def at(self, *texts: str) -> bool:
        """Whether the current token is one of these symbols or reserved words."""
        return is_one_of(self.token, texts)

    def at_index_close(self) -> bool:
        """Whether the current token is the `>` that closes an index."""
        return self.token.kind is Kind.INDEX_CLOSE

    def accept(self, *texts: str) -> Token | None:
        """Step over one of these symbols or reserved words, if it is there."""
        return self.advance() if self.at(*texts) else None

    def expect(self, text: str, *, after: str = "", help: str | None = None) -> Token:
        """Step over this symbol or reserved word; it is an error if it is not there."""
        return self.accept(text) or self.fail(f"`{text}`{after and ' after ' + after}", help=help)

    def since(self, start: Token | Span) -> Span:
        """From the beginning of a token or span to the last token read."""
        first = start.span if isinstance(start, Token) else start
        last = self.previous.span
        return Span(first.file, first.line, first.col, last.end_line, last.end_col)

    def skip_separators(self) -> None:
        """Step over line ends and `;`."""
        while self.token.kind is Kind.NEWLINE or self.at(";"):
            self.advance()

    def list_of(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        """One or more, with commas between them."""
        out = [read()]
        while self.accept(","):
            out.append(read())
        return tuple(out)

    # --- errors ------------------------------------------------------------------------------------------------------

    def fail(self, expected: str, *, help: str | None = None, opening: Token | None = None) -> NoReturn:
        """Raise the error that something else is expected; `opening` is the bracket that should be closed here."""
        token = self.token
        notes = [Note(f"this `{opening.text}` is still open", opening.span)] if opening else []
        if is_one_of(token, ("=",)) and self.following().text == ">":
            help = "an arrow is written `->`"
            raise error("UPL1002", f"expected {expected}, found `=>`", token.span, notes=notes, help=help)
        if is_one_of(self.previous, (",",)) and token.text in (">", ")", "]", "}", ";"):
            help = "leave out the comma before it"
        if help is None and is_one_of(token, ("=",)) and ends_operand(self.previous):
            help = "compare with `==`; an assignment is a statement of its own, `name = value`"
            raise error("UPL1010", f"expected {expected}, found `=`", token.span, notes=notes, help=help)
        if token.kind is Kind.NAME:
            help = _FOREIGN_WORDS.get(token.text, help)
        open_still = opening and (token.kind is Kind.END or is_one_of(token, ("{", "}", ";", *ITEM_WORDS)))
        code = "UPL1008" if open_still else "UPL1002"
        raise error(code, f"expected {expected}, found {describe(token)}", token.span, notes=notes, help=help)

    def close(self, opening: Token, expected: str) -> None:
        """Step over the bracket that closes `opening`; `expected` tells what else might follow, in words."""
        text = {"(": ")", "[": "]", "<": ">", "{": "}"}[opening.text]
        if self.token.text == text and self.token.kind in (Kind.SYMBOL, Kind.INDEX_CLOSE):
            self.advance()
        else:
            self.fail(f"{expected} or `{text}`", opening=opening)

    # --- names and types ---------------------------------------------------------------------------------------------

    def ident(self, what: str, *, help: str | None = None) -> Ident:
        """A name that is declared or refers to a port; `what` is what it names, such as "a field name"."""
        token = self.token
        if token.kind is Kind.WORD and (not token.leads or self.following().text in ("<", "{", "=", ":")):
            message = f"expected {what}, but `{token.text}` is a reserved word"
            raise error("UPL1007", message, token.span, help=help or f"choose another name, such as `{token.text}_`")
        if token.kind is not Kind.NAME:
            self.fail(what, help=help)
        self.advance()
        return Ident(token.span, token.text)

    def type_after_colon(self) -> TypeRef | None:
        """`: type`, or None if there is no colon."""
        if not self.accept(":"):
            return None
        token = self.token
        if token.kind is not Kind.WORD or token.text not in TYPE_WORDS:
            self._no_type()
        self.advance()
        return TypeRef(token.span, ScalarType(token.text))

    def _no_type(self) -> NoReturn:
        text = self.token.text
        known = {"float": "f32", "double": "f64", "integer": "int", "boolean": "bool", "i64": "int", "i1": "bool"}
        help = f"did you mean `{known[text]}`?" if text in known else did_you_mean(text, TYPE_WORDS)
        if self.at("="):
            help = "an assignment is written with `=`"
        self.fail("a type (`real`, `f32`, `f64`, `int` or `bool`)", help=help)

    # --- expressions -------------------------------------------------------------------------------------------------

    def expression(self, floor: int = _CONDITIONAL) -> Expr:
        """An expression whose outermost operators bind at least as tightly as `floor` (without it: any)."""
        start = self.token
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise error("UPL1009", "this expression is nested too deeply", start.span, help="name parts of it: `t = …`")
        left = self._operand()
        while True:
            token = self.token
            if token.kind is not Kind.SYMBOL and token.kind is not Kind.WORD:
                break
            level, op = _OPERATORS.get(token.text, (-1, None))
            if level < floor:
                break
            if level == _COMPARISON:
                left = self.comparisons(left, start)
                continue
            self.advance()
            match op:
                case BinaryOp():
                    right = self.expression(_UNARY if op is BinaryOp.POW else level + 1)
                    left = Binary(self.since(start), op, left, right)
                case LogicalOp():
                    right = self.expression(level + 1)
                    left = Logical(self.since(start), op, left, right)
                case _:
                    then = self.expression()
                    self.expect(":", after="the first alternative of `?`")
                    otherwise = self.expression()
                    left = Conditional(self.since(start), left, then, otherwise)
        self._nesting -= 1
        return left

    def comparisons(self, first: Expr, start: Token | Span) -> Compare:
        """The chain of comparisons, at least one, that follows on its first operand."""
        rest: list[tuple[CompareOp, Expr]] = []
        while self.token.kind is Kind.SYMBOL:
            op = _OPERATORS.get(self.token.text, (-1, None))[1]
            if not isinstance(op, CompareOp):
                break
            if self._index:
                message = f"the comparison `{op.value}` stands directly inside an index"
                notes = [Note("the index begins here", self._index.span)]
                help = "put the comparison in parentheses; `>` closes the index"
                raise error("UPL1011", message, self.token.span, notes=notes, help=help)
            self.advance()
            rest.append((op, self.expression(_SUM)))
        return Compare(self.since(start), first, tuple(rest))

    def index_element(self, opening: Token) -> Expr:
        """An expression directly inside the index that `opening` opens."""
        self._index = opening
        out = self.expression()
        self._index = None
        return out

    def _operand(self) -> Expr:
        """An operand with the unary operators before it."""
        token = self.token
        kind, text = token.kind, token.text
        if kind is Kind.INT or kind is Kind.REAL:
            self.advance()
            assert isinstance(token.value, int | float)
            return Number(token.span, token.value, kind is Kind.REAL)
        if kind is Kind.SYMBOL and text in ("-", "!"):
            self.advance()
            operand = self.expression(_UNARY)
            return Unary(self.since(token), UnaryOp(text), operand)
        if kind is Kind.SYMBOL and text == "(":
            self.advance()
            outer, self._index = self._index, None
            inner = self.expression()
            self.close(token, "an operator")
            self._index = outer
            return replace(inner, span=self.since(token))
        if kind is Kind.WORD and text in LITERAL_WORDS:
            self.advance()
            return BoolLit(token.span, text == "true")
        if kind is not Kind.NAME and not (kind is Kind.WORD and text in TYPE_WORDS and self.following().text == "("):
            self._no_operand()
        self.advance()
        opening = self.accept("(", "[")
        if opening is None:
            return Name(token.span, text)
        outer, self._index = self._index, None
        arguments: list[Expr] = []
        if opening.text == "[" or not self.at(")"):
            arguments.append(self.expression())
            while opening.text == "(" and self.accept(","):
                arguments.append(self.expression())
        if opening.text == "[" and self.at(","):
            self.fail("`]`", opening=opening, help="an array has one index")
        self.close(opening, "an operator" if opening.text == "[" else "`,`")
        self._index = outer
        ident = Ident(token.span, text)
        if opening.text == "[":
            return Lookup(self.since(token), ident, arguments[0])
        return Call(self.since(token), ident, tuple(arguments))

    def _no_operand(self) -> NoReturn:
        token = self.token
        if token.kind is Kind.WORD and token.text not in ITEM_WORDS and not token.leads:
            message = f"expected an expression, but `{token.text}` is a reserved word"
            help = f"a conversion is written `{token.text}(x)`" if token.text in TYPE_WORDS else None
            raise error("UPL1007", message, token.span, help=help)
        help = None
        if token.kind is Kind.SYMBOL and token.text == "*" and self.previous.text in (",", "<"):
            help = "`*` stands alone as an element of an arrow's index"
        elif token.kind is Kind.SYMBOL and token.text == "." and self.following().kind is Kind.INT:
            help = f"write a digit before the dot: `0.{self.following().text}`"
        elif token.kind is Kind.SYMBOL and token.text == "+":
            help = "there is no unary `+`"
        elif token.kind is Kind.SYMBOL and token.text == ">" and self.previous.text == "=":
            help = "an arrow is written `->`"
        self.fail("an expression", help=help)


def is_one_of(token: Token, texts: Collection[str]) -> bool:
    """Whether a token is one of these symbols or reserved words."""
    return token.text in texts and token.kind in (Kind.SYMBOL, Kind.WORD)


def ends_operand(token: Token) -> bool:
    """Whether an expression may end with this token."""
    return token.kind in (Kind.NAME, Kind.INT, Kind.REAL) or is_one_of(token, (")", "]", *LITERAL_WORDS))


def begins_operand(token: Token) -> bool:
    """Whether an expression may begin with this token."""
    number_or_name = token.kind in (Kind.NAME, Kind.INT, Kind.REAL)
    return number_or_name or is_one_of(token, ("(", "-", "!", *LITERAL_WORDS, *TYPE_WORDS))


def describe(token: Token) -> str:
    """A token in the words of an error message."""
    match token.kind:
        case Kind.END:
            return "the end of the text"
        case Kind.NEWLINE:
            return "the end of the line"
        case Kind.NAME:
            return f"the name `{shorten(token.text)}`"
        case Kind.WORD:
            return f"the reserved word `{token.text}`"
        case Kind.INT | Kind.REAL:
            return f"the number `{shorten(token.text)}`"
        case _:
            return f"`{token.text}`"


def shorten(text: str) -> str:
    """A text that fits into a message."""
    return text if len(text) <= 40 else text[:20] + "…"
