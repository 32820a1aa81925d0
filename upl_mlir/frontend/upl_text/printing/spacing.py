"""The formatter's view of a text: tokens and comments in one sequence, each with the space that belongs before it.

Two styles of expression are told apart by where an expression stands.  Domains, indices, conditions (also that of
`?:`), counts, bounds and iterators are *tight*: ``1<=k<K``, ``N[k-1]``.  Values are *loose*: ``w - eta*dw``,
``s > 0``.  In both, products, quotients and powers have no spaces, and `?:`, `&&`, `||` and operators that are words do.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from upl_mlir.diagnostics import Span
from upl_mlir.frontend.upl_text.ast import (
    Arrow,
    Comment,
    Conditional,
    ConstArray,
    HostInput,
    HostOutput,
    InputDecl,
    Iterator,
    Lookup,
    Node,
    NodeBlock,
    Param,
    Program,
)
from upl_mlir.frontend.upl_text.grammar import ends_operand
from upl_mlir.frontend.upl_text.lexer import ITEM_WORDS, TYPE_WORDS, WORD_OPERATORS, Kind, Token

Position = tuple[int, int]

_COMPARISONS = frozenset("< <= > >= == !=".split())
_SPACED = frozenset("? && ||".split()) | WORD_OPERATORS


@dataclass
class Piece:
    """A token or comment as it will be written.

    `space` tells whether a space stands before it, `soft` whether a line that is too long may be broken there (the
    less, the better), `hard` whether one must be, because of a comment, and `blank` whether an empty line was there.
    """

    text: str
    start: Position
    end: Position
    token: Token | None
    space: bool = True
    soft: int | None = None
    hard: bool = False
    blank: bool = False

    def is_(self, *texts: str) -> bool:
        """Whether it is one of these symbols or reserved words."""
        return self.token is not None and self.token.kind in (Kind.SYMBOL, Kind.WORD) and self.token.text in texts


def begin(span: Span) -> Position:
    """Where a span begins."""
    return span.line, span.col


def end(span: Span) -> Position:
    """Where a span ends."""
    return span.end_line, span.end_col


def below(node: Node) -> Iterable[Node]:
    """A node and all nodes below it; not recursive: a long sum is a deep tree."""
    stack: list[Any] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            stack.extend(top)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(top, Node):
            yield top
            stack.extend(getattr(top, f.name) for f in dataclasses.fields(top) if f.compare)


def same_tree(left: Any, right: Any) -> bool:
    """Whether two trees are equal; as `==`, but not recursive."""
    stack: list[tuple[Any, Any]] = [(left, right)]
    while stack:
        a, b = stack.pop()
        if type(a) is not type(b):
            return False
        if isinstance(a, tuple):
            if len(a) != len(b):  # pyright: ignore[reportUnknownArgumentType]
                return False
            stack.extend(zip(a, b, strict=True))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(a, Node):
            stack.extend((getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a) if f.compare)
        elif a != b:
            return False
    return True


def _tight_parts(node: Node) -> Iterable[Any]:
    """The expressions directly below a node that are written without spaces: nodes, None and tuples of them."""
    match node:
        case Param():
            return [*(node.bounds or ()), *(e for _, e in (node.condition.rest if node.condition else ()))]
        case ConstArray():
            return [node.lo, node.hi]
        case HostInput() | HostOutput() | NodeBlock():
            return node.domain or ()
        case InputDecl():
            return [node.count]
        case Arrow():
            return [node.condition, node.multiplicity, *(node.index or ()), node.iterator_condition]
        case Iterator():
            return [node.lo, node.hi]
        case Lookup():
            return [node.index]
        case Conditional():
            return [node.condition]
        case _:
            return ()


def _tight(program: Program, starts: Sequence[Position]) -> list[bool]:
    """For each token, by where it begins, whether it belongs to a tight expression."""
    change = [0] * (len(starts) + 1)
    for node in below(program):
        for part in _tight_parts(node):
            if isinstance(part, Node):
                change[bisect_left(starts, begin(part.span))] += 1
                change[bisect_left(starts, end(part.span))] -= 1
    return [depth > 0 for depth in accumulate(change[:-1])]


class _Spacer:
    """Goes through the tokens and tells of each whether there is space before it."""

    def __init__(self) -> None:
        self._brackets: list[str] = []  # `(`, `[`, `<` and `?` that are open
        self._previous: Token | None = None
        self._after = True  # whether the previous token wants a space after it
        self._item = ""  # the word the current item begins with
        self._rank: int | None = None  # how good a break after the previous token is

    def line_ends(self) -> None:
        """A statement may begin here: a minus sign is none between operands."""
        self._previous = None

    def space(self, token: Token, tight: bool) -> tuple[bool, int | None]:
        """Whether a space stands before the next token, and how good a line break is there."""
        if token.kind is Kind.WORD and token.text in ITEM_WORDS:
            self._item = token.text
        before, after, rank = self._wants(token, tight)
        space = before and self._after
        if self._previous is not None and self._previous.text.endswith(".") and token.text.startswith("."):
            space = True  # the range `1. .. 2`
        soft = self._rank if space else None
        if self._item in ("input", "node") and not self._brackets and token.text in ("->", "for"):
            soft = 0
        depth = 10 * sum(b != "?" for b in self._brackets)
        self._previous, self._after, self._rank = token, after, None if rank is None else rank + depth
        return space, soft

    def _wants(self, token: Token, tight: bool) -> tuple[bool, bool, int | None]:
        """Whether a token wants space before and after it, and how good a line break after it is."""
        previous, text = self._previous, token.text
        word = previous is not None and (previous.kind is Kind.NAME or previous.text in TYPE_WORDS)
        if token.kind is Kind.INDEX_OPEN:
            self._brackets.append("<")
            return False, False, None
        if token.kind is Kind.INDEX_CLOSE:
            self._brackets.pop()
            return False, True, None
        if token.kind is Kind.WORD and text in WORD_OPERATORS:
            return True, True, 2
        if token.kind is not Kind.SYMBOL:
            return True, True, None
        top = self._brackets[-1] if self._brackets else ""
        match text:
            case "(" | "[":
                self._brackets.append(text)
                gathering = previous is not None and previous.text == "@"
                return not word and not gathering, False, None
            case ")" | "]":
                self._brackets.pop()
                return False, True, None
            case "," | ";":
                return False, top != "<", 1 if top != "<" else None
            case ":" if top == "?":
                self._brackets.pop()
                return True, True, 1
            case ":":
                return False, top != "[", 90
            case "?":
                self._brackets.append("?")
                return True, True, 1
            case "." | "..":
                return False, False, None
            case "@" | "!" | "#":
                return True, False, None
            case "->" | "=":
                return True, True, 90
            case _:
                return self._operator(text, tight)

    def _operator(self, text: str, tight: bool) -> tuple[bool, bool, int | None]:
        if text == "-" and (self._previous is None or not ends_operand(self._previous)):
            return True, False, None
        if text in ("*", "/", "**"):
            return False, False, None
        if text in _SPACED:
            return True, True, 1
        if text in _COMPARISONS or text in ("+", "-"):
            return not tight, not tight, 2
        return True, True, None


def pieces(program: Program, tokens: Iterable[Token], text: str) -> list[Piece]:
    """Tokens and comments of a text in order, without line ends; `;` is among them."""
    lines = text.removeprefix("\ufeff").split("\n")
    real: list[Token] = []
    first: set[Position] = set()  # where the tokens begin that a line end stands before: what they follow is over
    ended = False
    for t in tokens:
        if t.kind in (Kind.NEWLINE, Kind.END):
            ended = True
            continue
        real.append(t)
        if ended:
            first.add(begin(t.span))
        ended = False
    starts = [begin(t.span) for t in real]
    spacer = _Spacer()
    out = [_comment(c) for c in program.comments]
    for token, tight in zip(real, _tight(program, starts), strict=True):
        span = token.span
        if begin(span) in first:
            spacer.line_ends()
        space, soft = spacer.space(token, tight)
        as_written = lines[span.line - 1][span.col - 1 : span.end_col - 1]
        out.append(Piece(as_written, begin(span), end(span), token, space, soft))
    out.sort(key=lambda p: p.start)
    for before, piece in pairwise(out):
        piece.blank = piece.start[0] - before.end[0] > 1
        if before.token is None:
            piece.hard, piece.space, piece.soft = piece.start[0] > before.start[0], True, None
        elif piece.token is None:
            piece.hard = piece.start[0] > before.end[0]
    return out


def comment_text(comment: Comment) -> str:
    """A comment as it is written: `//` ends before blanks at the end of its line; lines end with a line feed."""
    text = comment.text.replace("\r\n", "\n")
    return text.rstrip() if text.startswith("//") else text


def _comment(comment: Comment) -> Piece:
    return Piece(comment_text(comment), begin(comment.span), end(comment.span), None)
