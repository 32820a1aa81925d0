"""Attributes of the `upl` dialect: index expressions, conditions, counts, ports, iterators.

Each holds an object of `poly.expr` in normal form, so attribute equality is structural equality of the text that is
printed; semantic questions go through `poly.sets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from xdsl.dialects.builtin import Float32Type, Float64Type, IntegerType, f32, f64, i1, i64
from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.parse import PolySyntaxError, parse_formula, parse_index

Index = tuple[IndexExpr | None, ...]
"""A tag: one expression for each field, None for `*`."""


class UplType(Enum):
    """The types of UPL values (LANGUAGE section 1).  `REAL` is f64 unless a pass makes it f32."""

    REAL = "real"
    F32 = "f32"
    F64 = "f64"
    INT = "int"
    BOOL = "bool"

    def mlir(self, real: Float32Type | Float64Type = f64) -> Attribute:
        """The MLIR type of a value of this type."""
        return {UplType.REAL: real, UplType.F32: f32, UplType.F64: f64, UplType.INT: i64, UplType.BOOL: i1}[self]

    @property
    def derivative(self) -> UplType:
        """The type of derivatives by a value, and of what is multiplied with them: f32 and f64 where that was chosen."""
        return self if self in (UplType.F32, UplType.F64) else UplType.REAL

    @property
    def bits(self) -> int:
        """Size of a value in bits, as a cost: what a token of this type carries."""
        return {UplType.BOOL: 1, UplType.F32: 32}.get(self, 64)


def upl_type(t: Attribute) -> UplType:
    """The UPL type that a body value of an MLIR type prints as."""
    if isinstance(t, IntegerType):
        return UplType.BOOL if t.width.data == 1 else UplType.INT
    return UplType.F32 if isinstance(t, Float32Type) else UplType.REAL


class Special(Enum):
    """Counts that are not expressions."""

    UNBOUNDED = "##"  # a token's multiplicity without end; a gather that ends when no summand can come any more
    CARRIED = "#"  # a gather whose summands carry their number


@dataclass(frozen=True)
class Port:
    """An input of a node.  `gather` is None for an ordinary input; otherwise `count` says how many summands come: a
    `Special`, or an expression over fields (or the name of another input)."""

    name: str
    type: UplType = UplType.REAL
    gather: Gather | None = None
    count: IndexExpr | Special | None = None

    @property
    def open(self) -> bool:
        """Whether this is an open gather, ``[##]``: nothing says how many summands come."""
        return self.gather is not None and self.count is Special.UNBOUNDED

    def __str__(self) -> str:
        head = f"@({self.gather.value}) {self.name}[{count_text(self.count)}]" if self.gather else self.name
        return head if self.type is UplType.REAL else f"{head}: {self.type.value}"


@dataclass(frozen=True)
class Iterator:
    """One `for` iterator with inclusive bounds."""

    name: str
    lo: IndexExpr
    hi: IndexExpr

    def __str__(self) -> str:
        return f"{self.name} in {self.lo}..{self.hi}"


def count_text(c: IndexExpr | Special | None) -> str:
    """UPL text of a count."""
    return c.value if isinstance(c, Special) else str(c)


def index_text(index: Index) -> str:
    """UPL text of a tag, without brackets: ``d,k+1,*``."""
    return ",".join("*" if e is None else str(e) for e in index)


_T = TypeVar("_T")


class TextAttr(Data[_T], Generic[_T]):
    """An attribute written as one string in angle brackets."""

    @classmethod
    def _read(cls, text: str) -> _T:
        raise NotImplementedError  # each subclass reads its own normal form

    def _write(self) -> str:
        return str(self.data)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> _T:
        with parser.in_angle_brackets():
            pos = parser.pos
            raw = parser.parse_optional_bytes_literal()  # xDSL takes text with letters beyond ASCII for bytes
            text = parser.parse_str_literal() if raw is None else raw.decode("utf-8", "replace")
            try:
                return cls._read(text)
            except PolySyntaxError as e:
                parser.raise_error(f"in `{text}`: {e.message}", pos, parser.pos)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self._write())


def matched(pattern: re.Pattern[str], text: str, expected: str) -> re.Match[str]:
    """The match of a whole text; PolySyntaxError, with what was expected, if there is none."""
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise PolySyntaxError(f"expected {expected}, found `{text.strip()}`", 0)
    return found


class ListAttr(TextAttr[tuple[_T, ...]], Generic[_T]):
    """A list of items; commas inside brackets belong to an item."""

    @classmethod
    def _read(cls, text: str) -> tuple[_T, ...]:
        return tuple(cls._item(part.strip()) for part in split_commas(text))

    @classmethod
    def _item(cls, text: str) -> _T:
        raise NotImplementedError  # each subclass reads its own items

    def _write(self) -> str:
        return ", ".join(map(str, self.data))


@irdl_attr_definition
class ExprAttr(TextAttr[IndexExpr]):
    """An index expression: ``#upl.expr<"2*i+1">``."""

    name = "upl.expr"

    @classmethod
    def _read(cls, text: str) -> IndexExpr:
        return parse_index(text)


@irdl_attr_definition
class FormulaAttr(TextAttr[Formula]):
    """A condition or a domain: ``#upl.where<"1<=k<K && i!=j">``."""

    name = "upl.where"

    @classmethod
    def _read(cls, text: str) -> Formula:
        return parse_formula(text)

    @classmethod
    def unless_true(cls, condition: Formula | None) -> FormulaAttr | None:
        """The attribute of a condition; None where there is none to say."""
        return None if condition is None or condition.is_true else cls(condition)


@irdl_attr_definition
class CountAttr(TextAttr[IndexExpr | Special]):
    """A multiplicity or a number of summands: an expression, ``##`` or ``#``."""

    name = "upl.count"

    @classmethod
    def read(cls, text: str) -> IndexExpr | Special:
        """A count from its text.  Raises PolySyntaxError."""
        special = next((s for s in Special if s.value == text), None)
        return parse_index(text) if special is None else special

    @classmethod
    def _read(cls, text: str) -> IndexExpr | Special:
        return cls.read(text)

    def _write(self) -> str:
        return count_text(self.data)


@irdl_attr_definition
class IndexAttr(TextAttr[Index]):
    """The tag of a sent token: ``#upl.index<"d,k+1,*">``; the empty string has no fields."""

    name = "upl.index"

    @classmethod
    def _read(cls, text: str) -> Index:
        return tuple(None if p.strip() == "*" else parse_index(p) for p in split_commas(text))

    def _write(self) -> str:
        return index_text(self.data)


@irdl_attr_definition
class RankAttr(ListAttr[IndexExpr]):
    """The rank of the open gathers of a node, over its fields: ``#upl.rank<"1, t, 0">``; the lesser ones end first."""

    name = "upl.rank"

    @classmethod
    def _item(cls, text: str) -> IndexExpr:
        return parse_index(text)


@irdl_attr_definition
class NamesAttr(TextAttr[tuple[str, ...]]):
    """Index fields: ``#upl.names<"d,k,i">``."""

    name = "upl.names"

    @classmethod
    def _read(cls, text: str) -> tuple[str, ...]:
        return tuple(n.strip() for n in split_commas(text))

    def _write(self) -> str:
        return ",".join(self.data)


@irdl_attr_definition
class IteratorsAttr(ListAttr[Iterator]):
    """`for` iterators: ``#upl.iterators<"a in 0..F-1, b in 0..a">``."""

    name = "upl.iterators"

    @classmethod
    def _item(cls, text: str) -> Iterator:
        name, sep, bounds = text.partition(" in ")
        lo, dots, hi = bounds.partition("..")
        if not sep or not dots:
            raise PolySyntaxError("expected `name in lo..hi`", 0)
        return Iterator(name.strip(), parse_index(lo), parse_index(hi))


@irdl_attr_definition
class PortsAttr(ListAttr[Port]):
    """The inputs of a node: ``#upl.ports<"x, n: int, @(+) s[#]">``."""

    name = "upl.ports"

    @classmethod
    def _item(cls, text: str) -> Port:
        head, sep, type_name = text.rpartition(":")
        if not sep or "]" in type_name:  # a count may have `?:`
            head, type_name = text, "real"
        type_name = type_name.strip()
        if type_name not in {t.value for t in UplType}:
            raise PolySyntaxError(f"unknown type `{type_name}`", 0)
        type_ = UplType(type_name)
        head = head.strip()
        if not head.startswith("@("):
            return Port(head, type_)
        op, _, rest = head[2:].partition(")")
        name, _, count = rest.strip().partition("[")
        if op not in {g.value for g in Gather} or not count.endswith("]"):
            raise PolySyntaxError("expected `@(op) name[count]`", 0)
        return Port(name.strip(), type_, Gather(op), CountAttr.read(count[:-1]))


def split_commas(text: str) -> Sequence[str]:
    """The parts of a list separated by commas that stand outside brackets; empty text has none."""
    out: list[str] = []
    depth, start = 0, 0
    for i, ch in enumerate(text):
        depth += (ch in "([") - (ch in ")]")
        if ch == "," and not depth:
            out.append(text[start:i])
            start = i + 1
    return [*out, text[start:]] if text.strip() else []


def names(parts: Iterable[str]) -> NamesAttr:
    """A `NamesAttr` from any iterable."""
    return NamesAttr(tuple(parts))
