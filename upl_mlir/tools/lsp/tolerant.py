"""Reading a text that is being typed: what can be read of it, and all places where it is wrong.

The parser stops at the first error.  Here the part of the text with the error is blanked, as little of it as helps, and
the rest is read again: first the line of the error, then that and the line before, then the body of the item, then all of
it.  Blanks keep every other character where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from upl_mlir.diagnostics import Diagnostic, Span, UplError
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.lexer import ITEM_WORDS, Kind, tokenize
from upl_mlir.frontend.upl_text.parser import parse_text
from upl_mlir.tools.lsp.text import Text

MOST_ERRORS = 20
"""So many errors of one text are told; reading goes on at most so often."""
_NOT_BLANK = re.compile(r"[^\r\n]")


@dataclass(frozen=True)
class Read:
    """What was read: the items, without what could not be understood, and the errors."""

    program: ast.Program
    errors: tuple[Diagnostic, ...]


def read(text: str, file: str) -> Read:
    """The tree of a text of whatever kind.  Raises nothing."""
    errors: list[Diagnostic] = []
    for _ in range(MOST_ERRORS):
        try:
            return Read(parse_text(text, file), tuple(errors))
        except UplError as e:
            errors += e.diagnostics
            found = e.diagnostics[0]
        except RecursionError:  # the parser counts; a shallow stack of the caller is left
            return Read(_nothing(file), tuple(errors))
        if found.code == "UPL1013" or found.span is None:  # no program in the text
            break
        text = _without(text, file, found.span)
    return Read(_nothing(file), tuple(errors))


def _nothing(file: str) -> ast.Program:
    return ast.Program(Span(file, 1, 1, 1, 1), None, ())


def _without(text: str, file: str, wrong: Span) -> str:
    """The text with the least blanked that makes the item of an error readable."""
    t = Text(text)
    starts = sorted({1, *_item_lines(text, file), len(t.lines) + 1})
    first = max((n for n in starts if n <= wrong.line), default=1)
    if first == wrong.line and wrong.col == 1 and first != starts[0]:  # the item before is not finished
        previous = max(n for n in starts if n < first)
        if not _readable(t, file, previous, first):
            first = previous
    last = min((n for n in starts if n > first), default=len(t.lines) + 1)
    body = _body(t, first, last)
    for blanked in (
        {wrong.line} - {first}, {wrong.line, wrong.line - 1} - {first}, {wrong.line - 1} - {first, first - 1}, body,
    ):  # fmt: skip
        if not blanked:
            continue
        lines = _blanked(t, {n for n in blanked if first <= n < last}, first, closed=blanked is body)
        if _readable(Text("\n".join(lines)), file, first, last):
            return "\n".join(lines)
    return "\n".join(_blanked(t, set(range(first, last)), 0, closed=False))


def _item_lines(text: str, file: str) -> Iterator[int]:
    tokens, _ = tokenize(text, file)
    for token in tokens:
        if token.leads and token.kind is Kind.WORD and token.text in ITEM_WORDS:
            yield token.span.line


def _body(t: Text, first: int, last: int) -> set[int]:
    """The lines of an item behind the one that its block opens in; none without a block."""
    return set(range(first + 1, last)) if "{" in t.line(first) else set()


def _blanked(t: Text, lines: set[int], head: int, *, closed: bool) -> list[str]:
    """The lines of a text with some blanked; where all of a block are, what is behind its `{` is `}`."""
    out = [_NOT_BLANK.sub(" ", line) if n in lines else line for n, line in enumerate(t.lines, 1)]
    if closed:
        line = out[head - 1]
        at = line.index("{") + 1
        out[head - 1] = line[:at] + " " * (len(line) - at) + "}"
    return out


def _readable(t: Text, file: str, first: int, last: int) -> bool:
    """Whether the lines from one to before another are items by themselves."""
    try:
        parse_text("program p\n" + "\n".join(t.lines[first - 1 : last - 1]) + "\n", file)
    except UplError:
        return t.line(first).lstrip().startswith("program") and last - first == 1
    return True
