"""Attributes of the `upl_loops` dialect: conjunctions of constraints, ranges, axes of arrays; all in text normal form."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from xdsl.irdl import irdl_attr_definition

from upl_mlir.dialects.upl.attributes import ListAttr, TextAttr, matched, split_commas
from upl_mlir.poly.expr import IndexExpr, divide
from upl_mlir.poly.linear import Con, Cons
from upl_mlir.poly.operators import DivKind
from upl_mlir.poly.parse import PolySyntaxError, parse_index


@dataclass(frozen=True)
class Axis:
    """A dimension of an array: field number `at`, from `lower`, `extent` values, kept modulo `modulus` if that is given.

    With a step, `every`, only ``lower + every * place`` is kept; downwards, if it is negative.
    `lead` places before the first value are not used; with a `line` (numbers in a cache line) some behind the last neither.
    """

    at: int
    lower: IndexExpr
    extent: IndexExpr
    modulus: int | None = None
    lead: int = 0
    line: int | None = None
    every: int | None = None

    def place(self, value: IndexExpr) -> IndexExpr:
        """The place of a value that is kept."""
        if self.modulus is not None:
            return divide(DivKind.MOD, value - self.origin, IndexExpr.of(self.modulus))
        if self.every is not None:
            sign = 1 if self.every > 0 else -1
            return divide(DivKind.FLOORDIV, (value - self.lower) * sign, IndexExpr.of(abs(self.every)))
        return value - self.origin

    @property
    def origin(self) -> IndexExpr:
        """The value at place 0."""
        return self.lower - self.lead

    @property
    def size(self) -> IndexExpr:
        """The number of places.

        With a line an odd number of lines: rows whose distance is a multiple of 4096 bytes are in each other's way, in the
        cache's sets, and as a read then seems to need what is being written.
        """
        if self.line is None:
            return self.extent
        needed = self.extent + self.lead
        if (n := needed.constant) is not None:
            return IndexExpr.of((-(-n // self.line) | 1) * self.line)
        return divide(DivKind.CEILDIV, needed, IndexExpr.of(4 * self.line)) * (4 * self.line) + self.line

    def __str__(self) -> str:
        out = f"{self.at} from {self.lower} size {self.extent}"
        for word, n in (("mod", self.modulus), ("lead", self.lead or None), ("line", self.line), ("every", self.every)):
            out += "" if n is None else f" {word} {n}"
        return out


@dataclass(frozen=True)
class Range:
    """``max(lows) <= var <= min(highs)``."""

    var: str
    lows: tuple[IndexExpr, ...]
    highs: tuple[IndexExpr, ...]

    def rewritten(self, new: Callable[[IndexExpr], IndexExpr]) -> Range:
        """With other bounds."""
        return Range(self.var, tuple(map(new, self.lows)), tuple(map(new, self.highs)))

    @property
    def cons(self) -> Cons:
        """The same as constraints."""
        x = IndexExpr.of(self.var)
        return (*(Con(x - e) for e in self.lows), *(Con(e - x) for e in self.highs))

    def __str__(self) -> str:
        return f"{self.var} in {_list(self.lows)}..{_list(self.highs)}"


def _list(parts: tuple[IndexExpr, ...]) -> str:
    return ", ".join(map(str, parts))


_AXIS = re.compile(r"(\d+) from (.+?) size (.+?)(?: mod (\d+))?(?: lead (\d+))?(?: line (\d+))?(?: every (-?\d+))?")
_RANGE = re.compile(r"(\w+) in (.+?)\.\.(.+)")


def con_text(c: Con) -> str:
    """A constraint with what is subtracted on the other side: ``n >= i+1``."""
    plus = IndexExpr(tuple((m, k) for m, k in c.e.terms if k > 0))
    return f"{plus} {'==' if c.eq else '>='} {plus - c.e}"


def _outside(text: str, sign: str) -> list[str]:
    """The parts of a text between signs that stand outside of brackets."""
    out, depth, start, i = list[str](), 0, 0, 0
    while i < len(text):
        depth += (text[i] in "([") - (text[i] in ")]")
        if not depth and text.startswith(sign, i):
            out.append(text[start:i])
            start = i = i + len(sign)
            continue
        i += 1
    return [*out, text[start:]]


def _con(text: str) -> Con:
    for sign in ("==", ">="):
        sides = _outside(text, sign)
        if len(sides) == 2:
            return Con(parse_index(sides[0]) - parse_index(sides[1]), sign == "==")
    raise PolySyntaxError("expected `left >= right` or `left == right`", 0)


@irdl_attr_definition
class ConsAttr(TextAttr[Cons]):
    """Constraints all of which hold: ``#upl_loops.all<"i >= 0 && n >= i+1">``; the empty text is true."""

    name = "upl_loops.all"

    @classmethod
    def _read(cls, text: str) -> Cons:
        return tuple(map(_con, _outside(text, "&&"))) if text.strip() else ()

    def _write(self) -> str:
        return " && ".join(map(con_text, self.data))


@irdl_attr_definition
class AxesAttr(ListAttr[Axis]):
    """The dimensions of an array: ``#upl_loops.axes<"1 from 0 size n lead 7 line 8">``, fields by number."""

    name = "upl_loops.axes"

    @classmethod
    def _item(cls, text: str) -> Axis:
        form = "`FIELD from LOWER size EXTENT [mod N] [lead N] [line N] [every N]`"
        at, lower, extent, *numbers = matched(_AXIS, text, form).groups()
        modulus, lead, line, every = (None if n is None else int(n) for n in numbers)
        return Axis(int(at), parse_index(lower), parse_index(extent), modulus, lead or 0, line, every)


@irdl_attr_definition
class RangesAttr(TextAttr[tuple[Range, ...]]):
    """Ranges, outer ones first: ``#upl_loops.ranges<"i in 0..n-1; j in 0, k..n-1">``, each from the maximum of its
    lower bounds to the minimum of its upper bounds."""

    name = "upl_loops.ranges"

    @classmethod
    def _read(cls, text: str) -> tuple[Range, ...]:
        return tuple(map(cls._range, text.split(";"))) if text.strip() else ()

    @staticmethod
    def _range(text: str) -> Range:
        var, lows, highs = matched(_RANGE, text, "`name in bounds..bounds`").groups()
        return Range(var, *(tuple(map(parse_index, split_commas(x))) for x in (lows, highs)))

    def _write(self) -> str:
        return "; ".join(map(str, self.data))
