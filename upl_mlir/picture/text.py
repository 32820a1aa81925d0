"""Text in pictures: how wide it is, how it is cut, wrapped and escaped.

Everything is set in one monospaced face, so that widths are known without a font at hand and the same picture comes out
on every machine.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

FACE = "'DejaVu Sans Mono', Menlo, 'Liberation Mono', Consolas, monospace"
ADVANCE = 0.602  # ems; DejaVu Sans Mono and Menlo; the others of FACE are not wider
SIZE, SMALL = 13.0, 11.0  # pixels
LONGEST = 46  # characters of a line; what is longer ends in an ellipsis and stands in full in the tooltip
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def width(text: str, size: float = SIZE) -> float:
    """Width of a line of text in pixels; bold letters of a monospaced face are as wide as the others."""
    return ADVANCE * size * columns(text)


def columns(text: str) -> int:
    """How many columns of a monospaced face a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, longest: int = LONGEST) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def wrap(text: str, at_most: int, lines: int = 4) -> list[str]:
    """The text in lines of about `at_most` characters, broken behind commas and before `||` and `&&`; at most so many."""
    pieces = [p for p in re.split(r"(?<=,) |(?= \|\| )|(?= && )", text) if p.strip()]
    out: list[str] = []
    for piece in pieces:
        joined = f"{out[-1]} {piece.strip()}" if out else ""
        if out and len(joined) <= at_most:
            out[-1] = joined
        else:
            out.append(piece.strip())
    if len(out) > lines:
        out = [*out[: lines - 1], f"{out[lines - 1]} …"]
    return [cut(line, max(at_most, LONGEST)) for line in out]


def widest(lines: Sequence[str], size: float = SIZE) -> float:
    """Width of the widest of some lines, in pixels."""
    return max((width(line, size) for line in lines), default=0.0)


def escape(text: str) -> str:
    """Any text as content of an element or of a quoted attribute of XML and HTML."""
    text = _ILLEGAL.sub("\ufffd", text)
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(raw, safe)
    return text
