"""How many records wait at once at most where the host sends a window of stages at a time: proved, before the run.

With `[host] fit = true` the next window begins when nothing is under way, so that all instances of earlier stages have fired
(`hw/stages.py`). What waits then belongs to the stages of the window, to later ones that tokens reach early, or to nodes
without stages. Records are counted by the instances of the nodes that keep them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.code.encode import Encoded
from upl_mlir.hw.core.code.index_values import IndexValues
from upl_mlir.hw.image import Node, ProgramImage
from upl_mlir.hw.machine import Machine
from upl_mlir.hw.microcode import ToNode
from upl_mlir.hw.results import HostToken
from upl_mlir.hw.stages import NO_STREAM, Stream, candidates

_Port = tuple[int, int]
"""The numbers of a node and of an input of it."""


class Most(NamedTuple):
    """Records that wait at once at most: of tokens that wait for partners, and of gathers."""

    joins: int
    gathers: int

    @property
    def entries(self) -> int:
        """The store must have so many of each kind."""
        return max(self.joins, self.gathers)


@dataclass(frozen=True)
class _Kept:
    """Records that one node may have: by stage, from `first` on; `early`: so many stages after the window, too."""

    gather: bool
    first: int
    counts: np.ndarray
    early: float

    def most(self, start: int, window: int) -> int:
        """Those of the stages from `start` on."""
        low = max(0, start - self.first)
        high = start + window + self.early - self.first
        return int(self.counts[low : max(low, int(min(high, len(self.counts))))].sum())


@dataclass(frozen=True)
class Fit:
    """A field, a window of its values, and the records that wait at most with it."""

    stream: Stream
    window: int
    most: Most


def fit(image: ProgramImage, machine: Machine, program: Encoded, tokens: Sequence[HostToken]) -> Fit:
    """The greatest window with which all records find room in the store, along the field that divides the tokens best;
    where none is small enough, the field with fewest records and a window of one stage.  A program that streams along no
    field has no window, and all of its records.

    Raises UplError UPL1722 for a program that does not say which instances its nodes have.
    """
    unknown = [n for n in image.nodes if n.name not in image.domains]
    if unknown:
        found = f"host.fit: the program `{image.name}` does not say which instances `{unknown[0].name}` has"
        raise error("UPL1722", f"machine description: {found}", machine.place("host.fit"), help="leave host.fit out")
    smallest: list[Fit] = []
    for stream in candidates(image, machine, tokens):
        records, window = _Records(image, program, tokens, stream), machine.stages
        while window > 1 and records.most(window).entries > machine.matching.entries:
            window //= 2
        smallest.append(Fit(stream, window, records.most(window)))
        if smallest[-1].most.entries <= machine.matching.entries:
            return smallest[-1]
    everything = Fit(NO_STREAM, 0, _Records(image, program, tokens, NO_STREAM).most(0))
    return min(smallest, key=lambda f: f.most.entries, default=everything)


class _Records:
    """The records of a program by stage."""

    def __init__(self, image: ProgramImage, program: Encoded, tokens: Sequence[HostToken], stream: Stream):
        self.image, self.program, self.stream = image, program, stream
        self.producers = self._producers(tokens)
        self.leads = self._leads()
        self.kept = [k for number in range(len(image.nodes)) for k in self._kept(number)]

    def most(self, window: int) -> Most:
        """The records of the worst window."""
        staged = [k for k in self.kept if len(k.counts)]
        first, end = min((k.first for k in staged), default=0), max((k.first + len(k.counts) for k in staged), default=1)

        def worst(*, gather: bool) -> int:
            return max(sum(k.most(start, window) for k in staged if k.gather is gather) for start in range(first, end))

        return Most(worst(gather=False), worst(gather=True))

    def _producers(self, tokens: Sequence[HostToken]) -> dict[_Port, list[tuple[int | None, float]]]:
        """Who sends to an input: a node, or None for the host; how many stages later the token's is than the sender's."""
        out: dict[_Port, list[tuple[int | None, float]]] = {}
        for port in {(t.node, t.input) for t in (*tokens, *self.image.boot)}:
            out[port] = [(None, 0 if self._staged(port) else inf)]
        for number, node in enumerate(self.image.nodes):
            values = IndexValues(node)
            for send in node.sends:
                if isinstance(send.target, ToNode):
                    port = send.target.node, send.target.input
                    out.setdefault(port, []).append((number, self._shift(node, values, send.index, port)))
        return out

    def _staged(self, port: _Port) -> bool:
        """Whether tokens of an input have a stage."""
        place = self.stream.get(self.image.nodes[port[0]].name)
        pattern = self.program.patterns.get(port)
        return place is not None and (pattern is None or place not in pattern.wild)

    def _shift(self, node: Node, values: IndexValues, index: Sequence[int | None], port: _Port) -> float:
        own = self.stream.get(node.name)
        if own is None or not self._staged(port):
            return inf
        register = index[self.stream[self.image.nodes[port[0]].name]]
        place = None if register is None else values.place(register)
        if place is None or place.base_field != own or place.operand is not None:
            return inf
        return place.constant - node.fields[own].bias

    def _leads(self) -> list[float]:
        """How many stages after the window instances of each node may fire: those that need no token of the host for it.

        The least solution of ``lead(N) = min over inputs, max over senders (lead(M) + shift)``; whatever fires has had a
        token on every input, so that any solution is right, by induction over the run."""
        image = self.image
        leads = [0.0 if n.name in self.stream else inf for n in image.nodes]
        reach = float(max((len(c) for c in map(self._stages_of, range(len(image.nodes)))), default=0))
        changed = True
        while changed:
            changed = False
            for number, node in enumerate(image.nodes):
                if node.name in self.stream:
                    now = min((self._early((number, p), leads) for p in range(len(node.inputs))), default=inf)
                    now = inf if now > reach else max(now, leads[number])
                    changed |= now != leads[number]
                    leads[number] = now
        return leads

    def _early(self, port: _Port, leads: Sequence[float]) -> float:
        """How many stages after the window tokens of an input may be."""
        return max((shift + (0 if m is None else leads[m]) for m, shift in self.producers.get(port, ())), default=0)

    def _stages_of(self, number: int) -> np.ndarray:
        """The instances of a node by stage; of one without stages all of them, as one."""
        return self._counts(number, frozenset())[1]

    def _counts(self, number: int, wild: frozenset[int]) -> tuple[int, np.ndarray]:
        """The first stage, and by stage the different tags of a node's instances, `*` in some fields; all as one if there is
        no stage."""
        node = self.image.nodes[number]
        domain = self.image.domains[node.name]
        place = self.stream.get(node.name)
        if domain.bounds is None:
            return 0, np.zeros(0, np.int64)
        shape = tuple(high - low + 1 for low, high in domain.bounds)
        inside = np.ones(shape, np.bool_) if domain.inside is None else domain.inside
        tags = inside.any(axis=tuple(wild), keepdims=True)
        if place is None or place in wild:
            return 0, np.array([tags.sum()], np.int64)
        others = tuple(a for a in range(len(shape)) if a != place)
        return domain.bounds[place][0], tags.sum(axis=others, dtype=np.int64)

    def _kept(self, number: int) -> Iterator[_Kept]:
        """The records of a node: of its gathers, of each input whose tokens have records of their own, of all others
        together."""
        node = self.image.nodes[number]
        shared: list[float] = []
        for port, one in enumerate(node.inputs):
            pattern = self.program.patterns.get((number, port))
            early = self._early((number, port), self.leads)
            if one.gather is not None:
                yield self._record(number, frozenset(), early, gather=True)
            if len(node.inputs) < 2:
                continue
            if one.gather is not None or pattern is None or pattern.plain:
                shared.append(early)
            else:
                yield self._record(number, pattern.wild, early)
        if shared:
            yield self._record(number, frozenset(), max(shared))

    def _record(self, number: int, wild: frozenset[int], early: float, *, gather: bool = False) -> _Kept:
        first, counts = self._counts(number, wild)
        place = self.stream.get(self.image.nodes[number].name)
        if place is None or place in wild:  # whenever: as if in all stages
            return _Always(gather, 0, counts, inf)
        return _Kept(gather, first, counts, early)


class _Always(_Kept):
    """Records without a stage."""

    def most(self, start: int, window: int) -> int:
        """All of them."""
        return int(self.counts.sum())
