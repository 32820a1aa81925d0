"""What a run of the reference finds wrong, in words: the codes are those of the interpreter (docs/diagnostics.md).

UPL1601 a token is left over; 1602 two tokens in one place; 1603 host outputs; 1604 no value; 1605 gathers; 1606 too many
firings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation

from upl_mlir.diagnostics import Diagnostic, Note, UplError, error
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, ProgramOp
from upl_mlir.dialects.upl.query import arrows, source_of, span_of
from upl_mlir.engines.reference.bodies import Index, Token
from upl_mlir.engines.reference.points import NoValue, Point

LISTED = 10
"""How many tokens or elements a message lists."""


@dataclass(frozen=True)
class Waiting:
    """A token, or a gather under way, that is left at the end.

    `multiplicity` is what is left of it, None for `##`; `summands` how many of how many have come (None: not known).
    """

    node: str
    input: str
    index: Index
    value: Any
    multiplicity: int | None = 1
    summands: tuple[int, int | None] | None = None

    def __str__(self) -> str:
        where = f"{self.node}.{self.input}{tag(self.index)}"
        if self.summands is not None:
            have, want = self.summands
            return f"{where} ({have} of {'an unknown number of' if want is None else want} summands)"
        return where if self.multiplicity in (1, None) else f"{where} ({self.multiplicity} activations left)"


def tag(index: Index) -> str:
    """``<1,2,*>``"""
    return f"<{','.join('*' if i is None else str(i) for i in index)}>"


def _list(things: Iterable[object]) -> str:
    texts = [str(t) for t in things]
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ", ".join(texts[:LISTED]) + more


def _senders(program: ProgramOp, target: str, port: str | None) -> list[Note]:
    found = [a for a in arrows(program) if (a.target_name, a.target_port) == (target, port)]
    who = "sent by" if len(found) == 1 else "perhaps sent by"
    return [Note(f"{who} an arrow of `{source_of(a).symbol}`", span_of(a)) for a in found]


def no_value(why: NoValue, op: Operation, name: str, at: Index) -> UplError:
    """An operation without a value; `op` is the arrow or node at fault."""
    return error("UPL1604", f"in `{name}{tag(at)}`: {why.why}", span_of(op))


def few(t: Token, at: Point) -> UplError:
    """A multiplicity below 1."""
    source = source_of(t.arrow).symbol
    return error(
        "UPL1604", f"`{source}{tag(at)}` sends a token of multiplicity {t.left} to `{t.target}.{t.port}`", span_of(t.arrow),
        help="guard the arrow by a condition that holds where the multiplicity is at least 1",
    )  # fmt: skip


def twice(program: ProgramOp, node: NodeOp, port: str, index: Index, old: object, new: object) -> UplError:
    """Two tokens wait on one input and index."""
    return error(
        "UPL1602", f"two tokens wait on `{node.symbol}.{port}{tag(index)}` at once: {old!r} and {new!r}", span_of(node),
        notes=_senders(program, node.symbol, port),
    )  # fmt: skip


def output_twice(program: ProgramOp, op: OutputOp, index: Index, old: object, new: object) -> UplError:
    """Two tokens for one element of a host output."""
    return error(
        "UPL1602", f"the host output `{op.symbol}{tag(index)}` receives two tokens: {old!r} and {new!r}", span_of(op),
        notes=_senders(program, op.symbol, None),
    )  # fmt: skip


def surplus(program: ProgramOp, node: NodeOp, port: str, at: Index, count: float | None) -> UplError:
    """A gather receives more summands than announced."""
    announced = "than announced" if count is None else f"than the {max(count, 0)} announced"
    return error(
        "UPL1605", f"the gather `{node.symbol}.{port}{tag(at)}` receives more summands {announced}", span_of(node),
        notes=_senders(program, node.symbol, port),
    )  # fmt: skip


def late(program: ProgramOp, node: NodeOp, port: str, index: Index) -> UplError:
    """A summand comes to an open gather that has ended."""
    name = f"{node.symbol}.{port}"
    return error(
        "UPL1610", f"a summand comes to `{name}{tag(index)}`, which has ended", span_of(node),
        notes=_senders(program, node.symbol, port),
    )  # fmt: skip


def unranked(node: NodeOp) -> UplError:
    """Nothing tells when the open gathers of a node end."""
    port = next(p.name for p in node.ports if p.open)
    return error("UPL1309", f"no rank tells when `{node.symbol}.{port}[##]` ends", span_of(node))


def disagree(program: ProgramOp, node: NodeOp, port: str, at: Index, one: float, other: float) -> UplError:
    """Summands announce different numbers."""
    where = f"`{node.symbol}.{port}{tag(at)}`"
    message = f"the summands of {where} disagree on their number: {one} and {other}"
    return error("UPL1605", message, span_of(node), notes=_senders(program, node.symbol, port))


def runaway(program: ProgramOp, firings: int, limit: int) -> UplError:
    """Too many firings."""
    help_ = "a program that never ends? otherwise raise `max_firings`"
    return error("UPL1606", f"stopped after {firings} firings: the limit is {limit}", span_of(program), help=help_)


def unbounded(op: InputOp | OutputOp | NodeOp, field: str) -> UplError:
    """A domain whose points the reference does not find."""
    message = f"the reference finds no bounds of `{field}` in the domain of `{op.symbol}`"
    return error("UPL1507", message, span_of(op), help="bound each field by a comparison of its own, or take another engine")


def missing(op: OutputOp, absent: Sequence[Point], all_: int) -> Diagnostic:
    """Elements of a host output never came."""
    names = _list(_element(op, p) for p in absent)
    message = f"{len(absent)} of {all_} elements of the host output `{op.symbol}` never came: {names}"
    return Diagnostic("UPL1603", message, span_of(op))


def outside(op: OutputOp, extra: Sequence[Point]) -> Diagnostic:
    """Tokens came for elements that a host output does not have."""
    names = _list(_element(op, p) for p in extra)
    message = f"tokens came for elements that the host output `{op.symbol}` does not have: {names}"
    return Diagnostic("UPL1603", message, span_of(op))


def _element(op: OutputOp, at: Point) -> str:
    return f"{op.symbol}<{','.join(map(str, at))}>"


def stranded(nodes: Sequence[NodeOp], left: Sequence[Waiting]) -> list[Diagnostic]:
    """The tokens that are left over (all but `##`), node by node, with the inputs that never came (LANGUAGE 3.8)."""
    found: list[Diagnostic] = []
    for node in nodes:
        here = [w for w in left if w.node == node.symbol and w.multiplicity is not None]
        if not here:
            continue
        notes: dict[str, None] = {}
        for w in here[:LISTED]:
            absent = [p.name for p in node.ports if p.name != w.input and not _partner(w, p.name, left)]
            if absent:
                notes[f"{node.symbol}{tag(w.index)}: {', '.join(f'`{a}`' for a in absent)} never came"] = None
            elif w.summands is None:
                notes[f"{w}: every instance that it could take part in has fired, or met it too late"] = None
        count = "a token is" if len(here) == 1 else f"{len(here)} tokens are"
        message = f"{count} left over in `{node.symbol}`: {_list(here)}"
        found.append(Diagnostic("UPL1601", message, span_of(node), tuple(map(Note, notes))))
    return found


def _partner(w: Waiting, port: str, left: Sequence[Waiting]) -> bool:
    """Whether a whole token waits on another input of the node with which this one could be joined."""
    return any(
        other.node == w.node and other.input == port and other.summands is None and unified(w.index, other.index) is not None
        for other in left
    )


def unified(a: Index, b: Index) -> Index | None:
    """The index in which two agree field by field, `*` with anything (LANGUAGE 3.1); None if they do not."""
    if any(x is not None and y is not None and x != y for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def left_of(n: float) -> int | None:
    """A number of activations for a reader: None for `##`."""
    return None if n == math.inf else int(n)
