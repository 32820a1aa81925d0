"""What can go wrong while a program runs, as diagnostics (codes UPL16xx).

| code    | meaning                                                                              |
|---------|--------------------------------------------------------------------------------------|
| UPL1601 | a token is left over at the end: stranded, or part of a gather that never completed  |
| UPL1602 | two tokens on one input and index at once, or two tokens for one element of an output |
| UPL1603 | elements of a host output never came, or a token came for one that does not exist    |
| UPL1604 | a multiplicity below 1, or an integer operation without a value                      |
| UPL1605 | a gather with more summands than announced, or whose summands disagree on the number |
| UPL1606 | too many firings                                                                     |
| UPL1607 | the interpreter does not know an operation or a conversion                           |
| UPL1610 | a summand comes to an open gather that has ended                                     |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from upl_mlir.diagnostics import Diagnostic, Note, UplError, error
from upl_mlir.dialects.upl import InputOp, NodeOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.engines.interp.ieee import Trap
from upl_mlir.engines.interp.plan import Arrow, NodePlan, Pattern, Plan, PortPlan
from upl_mlir.host.arrays import HostPort, index_text, listed

Index = tuple[int | None, ...]
"""An index; None stands for `*`."""


@dataclass(frozen=True)
class WaitingToken:
    """A token (or a gather under way) in the matching store.

    `multiplicity` is what is left of it, None for `##`.  `summands` is the number received of a gather under way.
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
            return f"{where} ({have} of {want if want is not None else 'an unknown number of'} summands)"
        if self.multiplicity not in (1, None):
            return f"{where} ({self.multiplicity} activations left)"
        return where


def tag(index: Sequence[int | None]) -> str:
    """``<1,2,*>``"""
    return f"<{','.join('*' if i is None else str(i) for i in index)}>"


def full_index(pattern: Pattern, key: Sequence[int], fields: int) -> Index:
    """The index of a token from the fields that it has."""
    out: list[int | None] = [None] * fields
    for i, k in zip(pattern, key, strict=True):
        out[i] = k
    return tuple(out)


def unify(a: Index, b: Index) -> Index | None:
    """The index in which both agree, None if they do not."""
    out: list[int | None] = []
    for x, y in zip(a, b, strict=True):
        if x is not None and y is not None and x != y:
            return None
        out.append(y if x is None else x)
    return tuple(out)


@dataclass(frozen=True)
class Reporter:
    """Raises the diagnostics of a run; the generated code calls the methods."""

    plan: Plan

    def _port(self, p: PortPlan) -> tuple[NodePlan, str]:
        node = self.plan.nodes[p.node]
        return node, f"{node.op.symbol}.{p.port.name}"

    def _senders(self, p: PortPlan, pattern: Pattern | None = None) -> list[Note]:
        """The arrows that may have sent a token."""
        found = self.plan.arrows_into(p, pattern)
        who = "sent by" if len(found) == 1 else "perhaps sent by"
        return [Note(f"{who} an arrow of `{a.source.symbol}`", span_of(a.op)) for a in found]

    def duplicate(self, p: PortPlan, pattern: Pattern, key: Sequence[int], old: Any, new: Any) -> NoReturn:
        """Two tokens wait on one input and index."""
        node, name = self._port(p)
        where = tag(full_index(pattern, key, len(node.op.fields)))
        first: Any = cast("list[Any]", old)[0] if isinstance(old, list) else old
        raise error(
            "UPL1602", f"two tokens wait on `{name}{where}` at once: {first!r} and {new!r}", span_of(node.op),
            notes=self._senders(p, pattern),
        )  # fmt: skip

    def output_twice(self, at: int, key: Sequence[int], old: Any, new: Any) -> NoReturn:
        """Two tokens for one element of a host output."""
        op = self.plan.outputs[at]
        notes = [Note(f"an arrow of `{a.source.symbol}`", span_of(a.op)) for a in self.plan.arrows if a.output == at]
        raise error(
            "UPL1602", f"the host output `{op.symbol}{tag(key)}` receives two tokens: {old!r} and {new!r}", span_of(op),
            notes=notes,
        )  # fmt: skip

    def surplus(self, p: PortPlan, key: Sequence[int], count: int | None) -> NoReturn:
        """A gather receives more summands than announced."""
        node, name = self._port(p)
        announced = "than announced" if count is None else f"than the {max(count, 0)} announced"
        raise error(
            "UPL1605", f"the gather `{name}{tag(key)}` receives more summands {announced}", span_of(node.op),
            notes=self._senders(p),
        )  # fmt: skip

    def disagree(self, p: PortPlan, key: Sequence[int], one: int, other: int) -> NoReturn:
        """Summands announce different numbers."""
        node, name = self._port(p)
        raise error(
            "UPL1605", f"the summands of `{name}{tag(key)}` disagree on their number: {one} and {other}",
            span_of(node.op), notes=self._senders(p),
        )  # fmt: skip

    def late(self, p: PortPlan, key: Sequence[int]) -> NoReturn:
        """A summand comes to an open gather that has ended: its rank does not rise along every way."""
        node, name = self._port(p)
        rank = ", ".join(map(str, node.rank))
        raise error(
            "UPL1610", f"a summand comes to `{name}{tag(key)}`, which has ended", span_of(node.op), notes=self._senders(p),
            help=f"the rank ({rank}) of `{node.op.symbol}` is wrong; `infer-domains` finds a right one",
        )  # fmt: skip

    def few(self, a: Arrow, key: Sequence[int], count: int) -> NoReturn:
        """A multiplicity below 1."""
        raise error(
            "UPL1604", f"`{a.source.symbol}{tag(key)}` sends a token of multiplicity {count} to "
            f"`{a.op.target_name}.{a.op.target_port}`", span_of(a.op),
            help="guard the arrow by a condition that holds where the multiplicity is at least 1",
        )  # fmt: skip

    def trapped(self, trap: Trap, at: Arrow | InputOp | NodeOp, key: Sequence[int]) -> NoReturn:
        """An operation that has no value."""
        op, source = (at.op, at.source) if isinstance(at, Arrow) else (at, at)
        raise error("UPL1604", f"in `{source.symbol}{tag(key)}`: {trap.why}", span_of(op)) from None

    def runaway(self, firings: int, limit: int) -> NoReturn:
        """Too many firings."""
        raise error(
            "UPL1606", f"stopped after {firings} firings: the limit is {limit}", span_of(self.plan.program),
            help="a program that never ends? otherwise raise `max_firings`",
        )  # fmt: skip

    # -- at the end ------------------------------------------------------------------------------------------------
    def finish(self, left: Sequence[WaitingToken], missing: Callable[[], list[Diagnostic]]) -> None:
        """Raise if tokens are left over or outputs are missing (LANGUAGE 3.8)."""
        stranded = [t for t in left if t.multiplicity is not None]
        found: list[Diagnostic] = []
        for node in self.plan.nodes:
            here = [t for t in stranded if t.node == node.op.symbol]
            if here:
                found.append(self._stranded(node, here, left))
        found += missing()
        if found:
            raise UplError(*found)

    def _stranded(self, node: NodePlan, here: Sequence[WaitingToken], left: Sequence[WaitingToken]) -> Diagnostic:
        count = "a token is" if len(here) == 1 else f"{len(here)} tokens are"
        notes: list[str] = []
        for t in here[:10]:
            absent = self._absent(node, t, left)
            if absent and any(t.index != w.index and unify(t.index, w.index) == w.index for w in here):
                continue  # said of the instance that waits for the same
            if absent:
                notes.append(f"{node.op.symbol}{tag(t.index)}: {', '.join(f'`{a}`' for a in absent)} never came")
            elif t.summands is None:
                notes.append(f"{t}: every instance that it could take part in has fired, or met it too late")
        return Diagnostic(
            "UPL1601", f"{count} left over in `{node.op.symbol}`: {listed(here)}", span_of(node.op),
            tuple(Note(text) for text in dict.fromkeys(notes)),
        )  # fmt: skip

    def _absent(self, node: NodePlan, t: WaitingToken, left: Sequence[WaitingToken]) -> list[str]:
        """The other inputs on which no token waits that could be joined with `t`."""
        same = [w for w in left if w.node == t.node and w.summands is None]
        return [
            p.port.name
            for p in node.ports
            if p.port.name != t.input
            and not any(w.input == p.port.name and unify(w.index, t.index) is not None for w in same)
        ]

    def missing(self, at: int, port: HostPort, absent: Sequence[tuple[int, ...]], all_: int) -> Diagnostic:
        """Elements of a host output never came."""
        op = self.plan.outputs[at]
        names = listed(absent, lambda p: f"{port.name}<{index_text(p)}>")
        return Diagnostic(
            "UPL1603", f"{len(absent)} of {all_} elements of the host output `{port.name}` never came: {names}",
            span_of(op),
        )  # fmt: skip

    def outside(self, at: int, port: HostPort, extra: Sequence[tuple[int, ...]]) -> Diagnostic:
        """Tokens came for elements that a host output does not have."""
        op = self.plan.outputs[at]
        names = listed(extra, lambda p: f"{port.name}<{index_text(p)}>")
        message = f"tokens came for elements that the host output `{port.name}` does not have: {names}"
        return Diagnostic("UPL1603", message, span_of(op))
