"""What a derivative program is made of: each new arrow next to the arrow that it comes from and the rule that made it,
and each forward value that is kept, with the reason.

A program of derivatives holds its primal unchanged, and every arrow that a pass made keeps the location of the arrow it
comes from, so the table is read off the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr

from upl_mlir.api.programs import Program
from upl_mlir.dialects.upl.query import arrows, source_of, span_of
from upl_mlir.frontend.upl_text.printing.printer import arrow_texts
from upl_mlir.passes.arrows import WHY

SENT_FORWARD = "stash"


@dataclass(frozen=True)
class Row:
    """One arrow that differentiation made; texts as `.upl` has them, empty where there is nothing to say."""

    source: str
    value: str
    target: str  # with index
    condition: str
    count: str
    iterators: str
    rule: str
    primal: str  # the arrow that it comes from
    where: str  # FILE:LINE:COLUMN of that


@dataclass(frozen=True)
class Kept:
    """A forward value that travels to an adjoint node."""

    node: str
    value: str
    target: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """The tables of one derivative program, in its order."""

    arrows: tuple[Row, ...]
    kept: tuple[Kept, ...]


def explain(p: Program) -> Explanation:
    """The tables of a program of derivatives, as `vjp`, `grad` or `jvp` makes it (`adjoint of` is expanded)."""
    program = p.expanded().infer_domains().op
    texts = arrow_texts(program)
    originals: dict[str, list[str]] = {}
    for s in arrows(program):
        if s.rule is None and (span := span_of(s)) is not None:
            originals.setdefault(str(span), []).append(f"{source_of(s).symbol}: {texts[s]}")
    rows: list[Row] = []
    kept: list[Kept] = []
    for s in arrows(program):
        if s.rule is None:
            continue
        text, source = texts[s], source_of(s).symbol
        if s.rule.data == SENT_FORWARD:
            why = s.attributes.get(WHY)
            kept.append(Kept(source, text.value, text.target, why.data if isinstance(why, StringAttr) else ""))
            continue
        where = str(span_of(s) or "")
        rows.append(
            Row(
                source, text.value, text.target, text.condition, text.count, text.loops, s.rule.data,
                "; ".join(originals.get(where, [])), where,
            )
        )  # fmt: skip
    return Explanation(tuple(rows), tuple(kept))
