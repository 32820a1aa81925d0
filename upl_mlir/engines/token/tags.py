"""Packed tags: the fields of an index side by side in one 64-bit or 128-bit word.

Fields whose least and greatest value follow from the domain take the bits that they need, the others share what is
left; all get some slack on both sides, because a token may go beyond a declared domain (which is a claim, not a
filter).  The first field has the highest bits, so the order of words is that of indices.  A token of a pattern with `*`
has 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import InputOp, NodeOp
from upl_mlir.dialects.upl.query import domain_of, span_of
from upl_mlir.engines.interp.plan import Pattern, Plan
from upl_mlir.poly.convert import NotAffine
from upl_mlir.poly.counts.dense import Box, Contradiction, Unbounded, bounding_box

WIDTHS = (64, 128)
"""Bits of a tag: a word of the processor, or two."""
MOST_BITS = 62  # of one field: all arithmetic on it stays within 64 bits
LEAST_OPEN = {64: 40, 128: 24}  # a field without known bounds gets at least so many bits
_SLACK = 16
"""Bits to spare, at most, of a field whose domain has bounds. Chosen, not measured."""


@dataclass(frozen=True)
class Field:
    """Where one field lies in the word: `bits` from `shift` up; the value 0 stands for `lower`."""

    shift: int
    bits: int
    lower: int

    @property
    def mask(self) -> int:
        """The bits of the word that belong to the field."""
        return ((1 << self.bits) - 1) << self.shift


@dataclass(frozen=True)
class Layout:
    """How the indices of one node or host input are packed."""

    fields: tuple[Field, ...]

    def mask(self, pattern: Pattern) -> int:
        """The bits of the fields of a pattern."""
        return sum(self.fields[i].mask for i in pattern)

    def unpack(self, word: int) -> tuple[int, ...]:
        """The index of a packed tag."""
        return tuple(((word & f.mask) >> f.shift) + f.lower for f in self.fields)


@dataclass(frozen=True)
class Tags:
    """The layouts of all nodes, then of all host inputs, and the width of the word that holds each of them."""

    width: int
    layouts: tuple[Layout, ...]

    @property
    def type(self) -> str:
        """The word's type in C++."""
        return "uint64_t" if self.width == WIDTHS[0] else "unsigned __int128"

    def literal(self, word: int) -> str:
        """A word as C++ source."""
        if word < 1 << 64:
            return f"(Key){word}ULL"
        return f"((Key){word >> 64}ULL << 64 | {word & (1 << 64) - 1}ULL)"


def make_tags(plan: Plan, *, wide: bool = False) -> Tags:
    """Choose how tags are packed; `wide`: into 128 bits, whatever the domains are.

    Raises UplError (UPL1608) if an index does not fit 128 bits.
    """
    ops = [*(n.op for n in plan.nodes), *plan.inputs]
    boxes = [None if wide else _bounds(plan, op) for op in ops]
    found: list[Layout | None] = []
    for width in WIDTHS[wide:]:
        found = [_layout(box, len(op.fields), width) for op, box in zip(ops, boxes, strict=True)]
        if None not in found:
            return Tags(width, tuple(x for x in found if x is not None))
    at = found.index(None)
    raise error(
        "UPL1608", f"the {len(ops[at].fields)} index fields of `{ops[at].symbol}` do not fit the {WIDTHS[-1]} bits that "
        "the token engine has for an index", span_of(ops[at]), help="declare the node's domain, or use engine interp",
    )  # fmt: skip


def _bounds(plan: Plan, op: NodeOp | InputOp) -> Box | None:
    """The bounding box of the domain, None if there is none."""
    domain = domain_of(op)
    if domain is None:
        return None
    try:
        return bounding_box(plan.ctx, op.fields, domain)
    except (Unbounded, NotAffine, Contradiction):
        return None


def _layout(box: Box | None, fields: int, width: int) -> Layout | None:
    """Pack fields into a word of so many bits; None if they do not fit."""
    if not fields:
        return Layout(())
    need: Sequence[int] = [max(0, n - 1).bit_length() for n in box.shape] if box else [LEAST_OPEN[width]] * fields
    if sum(need) > width or max(need) > MOST_BITS:
        return None
    slack = (width - sum(need)) // fields
    out: list[Field] = []
    shift = 0
    for at in reversed(range(fields)):
        bits = min(MOST_BITS, need[at] + (min(slack, _SLACK) if box else slack))
        lower = -(1 << (bits - 1))
        if box:
            lower = box.lower[at] - ((1 << bits) - (1 << need[at])) // 2
        out.append(Field(shift, bits, lower))
        shift += bits
    return Layout(tuple(reversed(out)))
