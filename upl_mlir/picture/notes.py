"""Footnotes: a text that is too long for its place is a number there, and stands in full under the picture."""

from __future__ import annotations

from dataclasses import dataclass, field

from upl_mlir.picture.text import LONGEST, marked


@dataclass
class Notes:
    """The footnotes of a picture, numbered in the order in which they are asked for; equal texts are one."""

    longest: int = LONGEST
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def is_long(self, text: str) -> bool:
        """Whether a text becomes a footnote."""
        return len(text) > self.longest

    def mark(self, text: str) -> str:
        """The number of a footnote with this text."""
        return marked(self.numbers.setdefault(text, len(self.numbers) + 1))

    def short(self, text: str, head: str = "", tail: str = "") -> str:
        """The text between a head and a tail, or its number if all of it would be too long."""
        text = " ".join(text.split())
        return f"{head}{self.mark(text) if self.is_long(head + text + tail) else text}{tail}"

    def value(self, value: str, count: str) -> str:
        """A value with its multiplicity; of two that are too long together, the longer one is a footnote."""
        if not value or not count:
            return self.short(count[1:], "#") if count.startswith("#") else self.short(value or count)
        if not self.is_long(f"{value} {count}"):
            return f"{value} {count}"
        if len(value) >= len(count):
            return f"{self.mark(value)} {self.short(count[1:], '#')}"
        return f"{self.short(value)} #{self.mark(count[1:])}"
