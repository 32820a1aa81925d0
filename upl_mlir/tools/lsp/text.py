"""A text with its lines: our positions (line and column from 1, by code points) and those of the protocol (from 0, by the
units that client and server have agreed on)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from upl_mlir.diagnostics import Span

Place = tuple[int, int]
"""Line and column, from 1 on."""


@dataclass(frozen=True)
class Edit:
    """A piece of text in place of what stands from `start` to before `end`."""

    start: Place
    end: Place
    text: str


@dataclass(frozen=True)
class Text:
    """A text; `encoding` is "utf-8", "utf-16" or "utf-32", the units of columns in the protocol."""

    content: str
    encoding: str = "utf-16"

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return [line.removesuffix("\r") for line in self.content.split("\n")]

    def line(self, number: int) -> str:
        """A line by its number from 1 on; empty where there is none."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    def to_client(self, place: Place) -> Place:
        """The protocol's line and column of a place."""
        line, col = place
        return max(0, line - 1), self._units(self.line(line)[: max(0, col - 1)])

    def from_client(self, line: int, column: int) -> Place:
        """The place of the protocol's line and column; in the line, whatever the column."""
        text, units = self.line(line + 1), 0
        for n, char in enumerate(text):
            if units >= column:
                return line + 1, n + 1
            units += self._units(char)
        return line + 1, len(text) + 1

    def _units(self, text: str) -> int:
        if self.encoding == "utf-32":
            return len(text)
        return len(text.encode("utf-8")) if self.encoding == "utf-8" else len(text.encode("utf-16-le", "surrogatepass")) // 2

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.content.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def offset(self, place: Place) -> int:
        """Where a place is in the content."""
        line = min(max(place[0], 1), len(self.lines))
        return min(self._starts[line - 1] + max(0, place[1] - 1), len(self.content))

    def place(self, offset: int) -> Place:
        """Line and column of an offset in the content."""
        before = self.content[:offset]
        return before.count("\n") + 1, offset - before.rfind("\n")

    def slice(self, span: Span) -> str:
        """The text of a span."""
        start, end = extent(span)
        return self.content[self.offset(start) : self.offset(end)]

    def edited(self, edits: Iterable[Edit]) -> str:
        """The content after edits that do not overlap."""
        content = self.content
        for e in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
            content = content[: self.offset(e.start)] + e.text + content[self.offset(e.end) :]
        return content

    @property
    def end(self) -> Place:
        """The place behind the last character."""
        return len(self.lines), len(self.lines[-1]) + 1


def extent(span: Span) -> tuple[Place, Place]:
    """First place of a span, and the place behind it."""
    start = max(1, span.line), max(1, span.col)
    end = span.end_line, span.end_col
    return start, end if end > start else (start[0], start[1] + 1)


def within(span: Span, place: Place) -> bool:
    """Whether a place is in a span or just behind it."""
    start, end = extent(span)
    return start <= place <= end
