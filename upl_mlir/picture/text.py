"""Text in pictures: how wide it is, how it is cut, wrapped, marked and escaped.

Everything is set in one monospaced face, so that widths are known without a font at hand and the same picture comes out
on every machine.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

FACE = "'DejaVu Sans Mono', Menlo, 'Liberation Mono', Consolas, monospace"
ADVANCE = 0.602  # ems; DejaVu Sans Mono and Menlo; the others of FACE are not wider
SIZE, SMALL = 13.0, 11.0  # pixels
LONGEST = 46  # characters of a text in its place; what is longer is a footnote
_OPEN, _CLOSE = "\ue000", "\ue001"  # of Unicode's private area, round the number of a footnote
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def width(text: str, size: float = SIZE) -> float:
    """Width of a line of text in pixels; bold letters of a monospaced face are as wide as the others."""
    if _OPEN in text:
        return sum(mark_width(piece, size) if is_mark else width(piece, size) for piece, is_mark in pieces(text))
    return ADVANCE * size * columns(text)


def marked(number: int) -> str:
    """The number of a footnote, to stand in a text that is drawn."""
    return f"{_OPEN}{number}{_CLOSE}"


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a text that is drawn, each with whether it is the number of a footnote."""
    for i, piece in enumerate(_MARK.split(text)):
        if piece:
            yield piece, i % 2 == 1


def mark_width(number: str, size: float = SIZE) -> float:
    """Width of the number of a footnote with its circle, in a text of that size."""
    return ADVANCE * size * len(number) + 0.9 * size


def columns(text: str) -> int:
    """How many columns of a monospaced face a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, longest: int = LONGEST) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def wrap(text: str, at_most: int) -> list[str]:
    """The text in lines of about `at_most` characters, broken behind commas and before `||` and `&&`."""
    return _filled(re.split(r"(?<=, )|(?<= )(?=\|\| |&& )", text), at_most)


def fold(text: str, at_most: int) -> list[str]:
    """All of the text in lines of at most so many characters, broken at spaces, commas and operators, else anywhere."""
    pieces = [p for p in re.split(r"(?<=[ ,*])|(?<=[\w)\]])(?=[-+])", text) if p]
    return _filled([p[i : i + at_most] for p in pieces for i in range(0, len(p), at_most)], at_most)


def _filled(pieces: Sequence[str], at_most: int) -> list[str]:
    """Pieces of a text in lines, as many in each as it has room for."""
    out: list[str] = []
    for piece in pieces:
        if out and len((out[-1] + piece).rstrip()) <= at_most:
            out[-1] += piece
        else:
            out.append(piece)
    return [line.rstrip() for line in out if line.strip()]


def widest(lines: Sequence[str], size: float = SIZE) -> float:
    """Width of the widest of some lines, in pixels."""
    return max((width(line, size) for line in lines), default=0.0)


def escape(text: str) -> str:
    """Any text as content of an element or of a quoted attribute of XML and HTML."""
    text = _ILLEGAL.sub("\ufffd", text)
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(raw, safe)
    return text
