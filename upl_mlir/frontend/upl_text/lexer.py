"""From text to tokens, with the rules of the text form that depend on context.

1. A line break becomes a `NEWLINE` token only where it may end a statement: not inside `( )`, `[ ]` or an index, not
   after an operator or comma, not before `{`.  (That `->` and `for` may continue a statement is the parser's part: it
   depends on what the statement is.)  A line break inside `/* */` counts like any other.
2. `<` opens an index, `INDEX_OPEN`, exactly after ``node|input|output NAME`` and ``-> NAME[.NAME]``; the next `>` that
   is not inside parentheses closes it, `INDEX_CLOSE`.  Every other `<` and `>` is a comparison.
3. A number's dot is not followed by a second one: `0..2` is three tokens.

An error of this stage is an `ERROR` token, raised when the parser comes to it: so the first error in the text is
the first one reported.
"""

from __future__ import annotations

import math
import re
import unicodedata
from enum import Enum, auto
from typing import NamedTuple

from upl_mlir.diagnostics import Span, UplError, error
from upl_mlir.frontend.upl_text.ast import Comment, ScalarType

ITEM_WORDS = ("program", "param", "const", "input", "output", "node", "adjoint")
WORD_OPERATORS = frozenset({"floordiv", "ceildiv", "mod"})
TYPE_WORDS = frozenset(t.value for t in ScalarType)
LITERAL_WORDS = frozenset({"true", "false"})
_OTHER_WORDS = frozenset({"in", "if", "for", "of", "wrt", "seed"})
RESERVED = frozenset(ITEM_WORDS) | _OTHER_WORDS | WORD_OPERATORS | TYPE_WORDS | LITERAL_WORDS

INT_MAX = 2**63 - 1
"""The greatest integer: `int` has 64 bits."""

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\f]+)
    | (?P<newline>\r?\n)
    | (?P<comment>//[^\r\n]* | /\*[\s\S]*?\*/)
    | (?P<open_comment>/\*)
    | (?P<number>[0-9]+(?:\.(?!\.)[0-9]*)?(?:[eE][+-]?[0-9]+)?(?P<junk>[.]?\w[\w.]*|\.(?!\.))?)
    | (?P<name>[^\W\d][\w\u0300-\u036f]*)
    | (?P<symbol>->|\.\.|\*\*|&&|\|\||<=|>=|==|!=|\#\#|[-+*/<>=!?:;,.(){}\[\]\#@])
    """,
    re.VERBOSE,
)

# After these a line break does not end the statement.
_CONTINUES = frozenset("-> .. ** && || <= >= == != + - * / < > = ! ? : , . ( [ # @".split()) | WORD_OPERATORS

_LOOKALIKES = {
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "−": "-",
    "–": "-",
    "×": "*",
    "·": "*",
    "⟨": "<",
    "⟩": ">",
    "〈": "<",
    "〉": ">",
    "∧": "&&",
    "∨": "||",
    "¬": "!",
    "…": "..",
    "&": "&&",
    "|": "||",
    "%": "mod",
    "^": "**",
}


class Kind(Enum):
    """What a token is."""

    NAME = auto()
    WORD = auto()
    INT = auto()
    REAL = auto()
    SYMBOL = auto()
    INDEX_OPEN = auto()
    INDEX_CLOSE = auto()
    NEWLINE = auto()
    ERROR = auto()
    END = auto()


class Token(NamedTuple):
    """A token: `text` as written (a name in normal form C); `value` is set for numbers and errors.

    `leads` tells that it is the first token on its line.
    """

    kind: Kind
    text: str
    span: Span
    leads: bool = False
    value: int | float | UplError | None = None


class _Lexer:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.tokens: list[Token] = []
        self.comments: list[Comment] = []
        self._line = 1
        self._line_start = 0
        self._brackets: list[str] = []
        self._newline: Span | None = None  # where the line break before the next token is
        self._recent: tuple[str, str, str, str] = ("", "", "", "")  # the last four tokens, a name as "NAME"

    def run(self) -> None:
        """Fill `tokens` and `comments`."""
        text, position = self.text, 1 if self.text.startswith("\ufeff") else 0
        self._line_start = position
        while position < len(text):
            match = _TOKEN.match(text, position)
            end = match.end() if match else position + 1
            group = match.lastgroup if match else None
            if group == "space":
                pass
            elif group == "newline":
                self._line_break(position, end)
            elif group == "comment":
                self._comment(position, end)
            elif group == "open_comment":
                opening = self._span(position, end)
                self._error(
                    error("UPL1004", "this comment is never closed", opening, help="close it with `*/`"), opening
                )
                end = len(text)
            elif group == "name":
                self._word(position, end)
            elif match is not None and match["number"] is not None:
                self._number(match)
            elif group == "symbol":
                self._symbol(text[position:end], self._span(position, end))
            else:
                self._bad_character(position)
            position = end
        last = self.tokens[-1].span if self.tokens else Span(self.file, 1, 1, 1, 1)
        end_span = Span(self.file, last.end_line, last.end_col, last.end_line, last.end_col)
        self.tokens.append(Token(Kind.END, "", end_span, True))

    def _span(self, start: int, end: int) -> Span:
        """The span of text within one line."""
        return Span(self.file, self._line, start - self._line_start + 1, self._line, end - self._line_start + 1)

    def _line_break(self, start: int, end: int) -> None:
        if self._newline is None:
            self._newline = self._span(start, start + 1)
        self._line += 1
        self._line_start = end

    def _comment(self, start: int, end: int) -> None:
        line, col = self._line, start - self._line_start + 1
        body = self.text[start:end]
        breaks = body.count("\n")
        if breaks:
            self._newline = self._newline or self._span(start, start + 1)
            self._line += breaks
            self._line_start = start + body.rindex("\n") + 1
        self.comments.append(Comment(Span(self.file, line, col, self._line, end - self._line_start + 1), body))

    def _add(self, kind: Kind, text: str, span: Span, value: int | float | UplError | None = None) -> None:
        """Append a token, before it the line break if it may end a statement."""
        leads = self._newline is not None or not self.tokens
        if leads and kind is Kind.WORD and text in ITEM_WORDS:
            self._brackets.clear()  # an item begins: what was left open is an error; keep it local
        if self._newline is not None:
            previous = self.tokens[-1] if self.tokens else None
            continues = previous is not None and (
                previous.text in _CONTINUES and previous.kind in (Kind.SYMBOL, Kind.WORD)
            )
            if previous is not None and not continues and not self._brackets and text != "{":
                self.tokens.append(Token(Kind.NEWLINE, "\n", self._newline))
            self._newline = None
        self.tokens.append(Token(kind, text, span, leads, value))
        self._recent = (*self._recent[1:], "NAME" if kind is Kind.NAME else text)

    def _error(self, problem: UplError, span: Span) -> None:
        self._add(Kind.ERROR, "", span, problem)

    def _word(self, start: int, end: int) -> None:
        span, raw = self._span(start, end), self.text[start:end]
        name = unicodedata.normalize("NFC", raw)
        if name in RESERVED:
            self._add(Kind.WORD, name, span)
        elif name.isidentifier():
            self._add(Kind.NAME, name, span)
        else:
            bad = next(c for i, c in enumerate(name) if not ("_" + c if i else c).isidentifier())
            shown = f"`{bad}` (U+{ord(bad):04X})"
            text = "a name consists of letters, digits and `_`"
            self._error(error("UPL1003", f"the character {shown} cannot stand in a name", span, help=text), span)

    def _number(self, match: re.Match[str]) -> None:
        raw, span = match["number"], self._span(match.start(), match.end())
        junk = match["junk"]
        if junk:
            self._error(_malformed_number(raw, junk, span), span)
            return
        if raw.isdigit():
            digits = raw.lstrip("0") or "0"
            if len(digits) > 19 or int(digits) > INT_MAX:
                text = f"integers have 64 bits: at most {INT_MAX}; write a real number with a dot, such as `1e20`"
                shown = raw if len(raw) <= 40 else raw[:20] + "…"
                self._error(error("UPL1006", f"the integer `{shown}` is too large", span, help=text), span)
            else:
                self._add(Kind.INT, raw, span, int(digits))
            return
        value = float(raw)
        if math.isinf(value):
            shown = raw if len(raw) <= 40 else raw[:20] + "…"
            problem = error("UPL1006", f"the real number `{shown}` is too large for f64", span)
            self._error(problem, span)
        else:
            self._add(Kind.REAL, raw, span, value)

    def _symbol(self, text: str, span: Span) -> None:
        kind = Kind.SYMBOL
        if text == "<" and self._opens_index():
            kind = Kind.INDEX_OPEN
        elif text == ">" and self._brackets and self._brackets[-1] == "<":
            kind = Kind.INDEX_CLOSE
        self._add(kind, text, span)  # before the bracket is closed: a line break just before `)` is inside
        if text in ("(", "[") or kind is Kind.INDEX_OPEN:
            self._brackets.append(text)
        elif text in ("{", "}", ";"):
            self._brackets.clear()
        elif self._brackets and (kind is Kind.INDEX_CLOSE or self._brackets[-1] + text in ("()", "[]")):
            self._brackets.pop()

    def _opens_index(self) -> bool:
        """Whether `<` here comes after ``node|input|output NAME`` or ``-> NAME[.NAME]``.

        A reserved word in place of the name is let through: the parser has an error for it.
        """
        fourth, third, second, first = self._recent
        if first != "NAME" and first not in RESERVED:
            return False
        return second in ("node", "input", "output", "->") or (second == "." and third != "" and fourth == "->")

    def _bad_character(self, position: int) -> None:
        span, char = self._span(position, position + 1), self.text[position]
        code = f"U+{ord(char):04X}"
        if char in _LOOKALIKES:
            message, text = f"unexpected character `{char}`", f"write `{_LOOKALIKES[char]}`"
        elif char == "\r":
            message, text = "a carriage return without a line feed", "end lines with a line feed"
        elif char.isspace():
            message, text = f"unexpected white space {code}", "write an ordinary space"
        elif char == "\0":
            message, text = "a NUL byte: this is not a text file", None
        elif char.isprintable():
            message, text = f"unexpected character `{char}` ({code})", None
        else:
            message, text = f"unexpected invisible character {code}", "remove it"
        self._error(error("UPL1003", message, span, help=text), span)


def _malformed_number(raw: str, junk: str, span: Span) -> UplError:
    shown = raw if len(raw) <= 40 else raw[:20] + "…"
    plain = raw[: len(raw) - len(junk)]
    if plain == "0" and junk[0] in "xXbBoO":
        text = "only decimal numbers are known"
    elif junk[0] == "_":
        text = "write the digits without `_`"
    elif "." in plain and junk[0] == ".":
        text = "a number has one dot; a range is written with two in a row, `lo..hi`"
    elif junk[0] == ".":
        text = "write a digit after the dot"
    else:
        text = f"a name does not begin with a digit; a product is written `{plain[:20]}*{junk[:20]}`"
    return error("UPL1005", f"malformed number `{shown}`", span, help=text)


def tokenize(text: str, file: str) -> tuple[list[Token], list[Comment]]:
    """The tokens of a text, the last one `END`, and its comments in text order.  Raises nothing."""
    lexer = _Lexer(text, file)
    lexer.run()
    return lexer.tokens, lexer.comments
