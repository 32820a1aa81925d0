"""The plain evaluator: runs a program token by token, as docs/language.md section 3 says.  Slow, and meant to be read.

    result = Evaluator(program, {"D": 3}).run({"X": x, "W": w})
    result.outputs["R"], result.stats.firings

| here                 | docs/language.md                                                                    |
|----------------------|-------------------------------------------------------------------------------------|
| `_start`             | 3.7 each element of a host input is an instance; 3.3 instances that wait for nothing |
| `_fire`              | 3.6 the body, then each arrow under its condition (`bodies.Firing`)                 |
| `_send`              | 3.2 multiplicity, 3.5 index; host outputs                                           |
| `_deliver`           | one token in flight arrives                                                         |
| `_arrive`, `_joins`  | 3.1 a token is joined once with the stored ones; what is left of it is stored       |
| `_gather`            | 3.3 a summand comes; a complete gather arrives as one token                         |
| `_quiet`             | 3.3 nothing is in flight: the open gathers of least rank end                        |
| `_end`               | 3.8 what is left over or missing                                                    |
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import Diagnostic, UplError, error
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, Port, ProgramOp, Special
from upl_mlir.dialects.upl.query import domain_of, inputs, nodes, outputs, span_of
from upl_mlir.engines.reference import reports
from upl_mlir.engines.reference.bodies import Count, Firing, Index, Token, World
from upl_mlir.engines.reference.points import NoValue, Point, Unbounded, points
from upl_mlir.engines.reference.reports import Waiting, left_of, unified
from upl_mlir.engines.reference.values import Form, Value, fitted, folded, form_of, identity, named
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr

MAX_FIRINGS = 10**9
"""Firings after which a run is taken to be endless; as the interpreter's."""
_DTYPES = {Form.BOOL: np.bool_, Form.INT: np.int64, Form.F32: np.float32, Form.F64: np.float64}


@dataclass
class Stored:
    """A token on an input of a node: `left` activations of it are to come.  In a gather under way, `summands` have come, of
    `of` (None: another input will say).  `nothing`: no token, but a gather that may have nothing to wait for."""

    index: Index
    value: Value = 0
    left: Count = 1
    summands: list[Token] = field(default_factory=list[Token])
    of: Count | None = None
    nothing: bool = False


Store = dict[tuple[bool, ...], dict[Index, Stored]]
"""The tokens on one input: by which fields are `*`, then by index."""


@dataclass
class Stats:
    """What a run did.  A multicast is one token; a gather under way counts as one that waits."""

    engine: str = "reference"
    firings: dict[str, int] = field(default_factory=dict[str, int])
    tokens: dict[str, int] = field(default_factory=dict[str, int])
    tokens_sent: int = 0
    peak_waiting: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return dict(vars(self))


@dataclass(frozen=True)
class Result:
    """Outputs as dense arrays over the boxes of their domains (0 outside), and the `##` tokens that still wait."""

    outputs: dict[str, NDArray[Any]]
    stats: Stats
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True)
class Layout:
    """The elements of a host port: the points of its domain, and the box round them (LANGUAGE 3.7)."""

    points: list[Point]
    origin: Point
    shape: Point

    def at(self, x: Point) -> Point:
        """The place of an element in the array."""
        return tuple(i - o for i, o in zip(x, self.origin, strict=True))


class Evaluator:
    """A program with numbers for all its parameters; each `run` begins anew.

    `real`: what the type `real` means, "f64", "f32" or a small type; `gather`: sums fold as they come ("relaxed") or
    in the order of LANGUAGE 3.10 ("ordered"); `order`: tokens arrive as they were sent ("fifo") or at random.  Raises
    UplError: UPL1410, UPL1507 (no bounds of a domain are found), UPL1513, UPL1607.
    """

    def __init__(
        self, program: ProgramOp, params: Mapping[str, int] | None = None, *, real: str = "f64", gather: str = "relaxed",
        order: str = "fifo", seed: int = 0, max_firings: int = MAX_FIRINGS,
    ):  # fmt: skip
        self.program, self.world = program, World(program, params or {}, named(real))
        self.ordered = gather == "ordered" or self.world.real.small is not None
        self.random, self.seed, self.max_firings = order == "random", seed, max_firings
        self.nodes = {op.symbol: op for op in nodes(program)}
        self.outputs = {op.symbol: op for op in outputs(program)}
        self.ports = {op.symbol: self._layout(op) for op in (*inputs(program), *self.outputs.values())}

    # -- domains ---------------------------------------------------------------------------------------------------
    def _domain(self, op: InputOp | OutputOp | NodeOp, *also: Formula) -> list[Point]:
        """The points of the declared domain, else of the inferred one, at which the conditions hold."""
        domain = op.declared.data if op.declared else domain_of(op)
        if domain is None and isinstance(op, NodeOp):
            return []
        if domain is None and op.fields:
            help_ = "run `infer-domains` first"
            raise error("UPL1507", f"the domain of `{op.symbol}` is not known", span_of(op), help=help_)
        try:
            return points(op.fields, (domain or TRUE, *also), self.world.integers, self.world.tables)
        except Unbounded as e:
            raise reports.unbounded(op, str(e)) from None

    def _layout(self, op: InputOp | OutputOp) -> Layout:
        inside = self._domain(op)
        if not inside:
            return Layout([], (0,) * len(op.fields), (0,) * len(op.fields))
        columns = list(zip(*inside, strict=True))
        lower = tuple(map(min, columns))
        return Layout(inside, lower, tuple(max(c) - lo + 1 for c, lo in zip(columns, lower, strict=True)))

    # -- a run -----------------------------------------------------------------------------------------------------
    def run(self, arrays: Mapping[str, NDArray[Any]]) -> Result:
        """Run on dense arrays, one for each host input.  Raises UplError (UPL1601 to UPL1606)."""
        began = time.perf_counter()
        self.flight: deque[Token] = deque()
        self.stores: dict[tuple[str, str], Store] = {(n.symbol, p.name): {} for n in self.nodes.values() for p in n.ports}
        self.done: set[tuple[str, str, Index]] = set()  # gathers that are complete
        self.results: dict[str, dict[Point, Value]] = {name: {} for name in self.outputs}
        self.stats = Stats(firings=dict.fromkeys(self.nodes, 0), tokens=dict.fromkeys([*self.nodes, *self.outputs], 0))
        self.waiting = 0
        self.open: set[tuple[str, Point]] = set()  # instances whose open gathers have not ended
        self._start(arrays)
        draw = random.Random(self.seed).random
        while self.flight or self.open:
            if not self.flight:
                self._quiet()
                continue
            if self.random:  # any token in flight: it changes places with the last
                i = int(draw() * len(self.flight))
                self.flight[i], self.flight[-1] = self.flight[-1], self.flight[i]
            self._deliver(self.flight.pop() if self.random else self.flight.popleft())
        result = self._end()
        self.stats.seconds = time.perf_counter() - began
        return result

    def _start(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Instances whose gathers all wait for nothing fire (LANGUAGE 3.3), then each element of each host input."""
        for node in self.nodes.values():
            alone = all(p.open or _counted(node, p) for p in node.ports)
            if any(p.open for p in node.ports) and (alone or node.declared is not None):
                self.open |= {(node.symbol, x) for x in self._domain(node)}
            elif node.ports and all(_counted(node, p) for p in node.ports):
                none = [Formula.compare(p.count, "<=", 0) for p in node.ports if isinstance(p.count, IndexExpr)]
                for x in self._domain(node, *none):
                    self._fire(node, x, [identity(p.gather, self._form(p)) for p in node.ports if p.gather is not None])
        for op in inputs(self.program):
            layout, form = self.ports[op.symbol], form_of(op.type, self.world.real)
            with np.errstate(over="ignore"):  # a real beyond f32 is an infinity
                array = np.asarray(arrays[op.symbol]).astype(_DTYPES.get(form, np.float64))
            if array.shape != layout.shape:
                raise error("UPL1503", f"`{op.symbol}` has the shape {layout.shape}, the array {array.shape}")
            for x in layout.points:
                self._fire(op, x, [fitted(array[layout.at(x)].item(), form)])

    def _fire(self, op: NodeOp | InputOp, x: Point, values: Sequence[Value]) -> None:
        """One instance fires: its arrows send, in text order (LANGUAGE 3.6)."""
        if isinstance(op, NodeOp):
            self.stats.firings[op.symbol] += 1
            if (all_ := sum(self.stats.firings.values())) > self.max_firings:
                raise reports.runaway(self.program, all_, self.max_firings)
        body = self.world.bodies[op]
        firing = Firing(body, x, values)
        for send in body.sends:
            try:
                for token in firing.sent(send):
                    self._send(token, x)
            except NoValue as why:
                raise reports.no_value(why, send.op, op.symbol, x) from None

    def _send(self, t: Token, source: Point) -> None:
        """A token leaves: to a host output at once, else it is in flight (LANGUAGE 3.2, 3.5)."""
        self.stats.tokens[t.target] += 1
        self.stats.tokens_sent += 1
        if t.left < 1:
            raise reports.few(t, source)
        if t.target in self.nodes:
            self.flight.append(t)
            return
        found, x = self.results[t.target], _full(t.index)
        if x in found:
            raise reports.output_twice(self.program, self.outputs[t.target], x, found[x], t.value)
        found[x] = t.value

    def _deliver(self, t: Token) -> None:
        """A token arrives at an input of a node."""
        node = self.nodes[t.target]
        port = _port(node, t.port)
        try:
            if port.gather is not None:
                self._gather(node, port, t)
            else:
                self._arrive(node, port, Stored(t.index, t.value, t.left))
        except NoValue as why:
            raise reports.no_value(why, node, node.symbol, t.index) from None

    # -- joins (LANGUAGE 3.1) --------------------------------------------------------------------------------------
    def _arrive(self, node: NodeOp, port: Port, new: Stored) -> None:
        """Join a token once with the stored ones; what is left of it is stored.  Each token used loses 1 multiplicity."""
        self._joins(node, port, new)
        if not new.left:
            return
        store = self._tokens(node, port).setdefault(_stars(new.index), {})
        if new.index in store:
            raise reports.twice(self.program, node, port.name, new.index, store[new.index].value, new.value)
        store[new.index] = new
        self._waits(1)

    def _joins(self, node: NodeOp, port: Port, new: Stored) -> None:
        """Fire every instance that a token completes, until it is used up."""
        others = [p for p in node.ports if p is not port]
        for index, found in self._partners(node, others, new.index, {port.name: new}):
            if not new.left:
                return
            if None in index or any(not t.left for t in found.values()):
                continue  # not determined, or a partner was used up by a firing before
            values = self._values(node, _full(index), found)
            if values is None:
                continue
            for p in node.ports:
                self._use(node, p, found[p.name], _full(index))
            self._fire(node, _full(index), values)

    def _partners(
        self, node: NodeOp, others: Sequence[Port], index: Index, found: dict[str, Stored]
    ) -> Iterator[tuple[Index, dict[str, Stored]]]:
        """All ways to take one stored token from each of the other inputs so that the indices unify."""
        if not others:
            yield index, found
            return
        port = others[0]
        candidates = self._candidates(self._tokens(node, port), index)
        if port.gather is not None and port.count is not Special.CARRIED:
            candidates.append(Stored((None,) * len(index), left=math.inf, nothing=True))  # `_values` asks whether it is so
        for t in candidates:
            both = unified(index, t.index)
            if both is not None:
                yield from self._partners(node, others[1:], both, {**found, port.name: t})

    def _candidates(self, store: Store, index: Index) -> list[Stored]:
        """The stored tokens that may unify with an index: one for each pattern of `*` where all other fields are known."""
        out: list[Stored] = []
        for stars, tokens in store.items():
            key = tuple(None if star else i for star, i in zip(stars, index, strict=True))
            if _stars(key) != stars:
                out += tokens.values()
            elif key in tokens:
                out.append(tokens[key])
        return out

    def _values(self, node: NodeOp, x: Point, found: Mapping[str, Stored]) -> list[Value] | None:
        """The inputs of an instance; None if a gather is not complete."""
        out: list[Value] = []
        unended = False
        for p in node.ports:
            t = found[p.name]
            if p.open and t.nothing:
                unended = (node.symbol, p.name, x) not in self.done
                if not unended:
                    return None
            elif _by_input(node, p):
                wanted = max(0, int(found[_name(p)].value))
                if len(t.summands) > wanted:
                    raise reports.surplus(self.program, node, p.name, x, wanted)
                if len(t.summands) < wanted:
                    return None
                out.append(self._folded(p, t))
            elif not t.nothing:
                out.append(t.value)
            elif self._count(node, p, x) <= 0:
                out.append(self._folded(p, t))
            else:
                return None
        if unended:  # all else is there
            self.open.add((node.symbol, x))
            return None
        return out

    def _use(self, node: NodeOp, port: Port, t: Stored, x: Point) -> None:
        """A token takes part in the firing of instance x: it loses 1 multiplicity and leaves at 0."""
        t.left -= 1
        if port.gather is not None:
            self.done.add((node.symbol, port.name, x))
        store = self._tokens(node, port).get(_stars(t.index), {})
        if not t.left and store.get(t.index) is t:
            del store[t.index]
            self._waits(-1)

    # -- gathers (LANGUAGE 3.3) ------------------------------------------------------------------------------------
    def _gather(self, node: NodeOp, port: Port, t: Token) -> None:
        """A summand comes.  A complete gather arrives as one token; one that another input counts is joined each time."""
        key = (node.symbol, port.name, t.index)
        under_way = self._under_way(node, port)
        g = under_way.get(t.index)
        if g is None and port.open:
            if key in self.done:
                raise reports.late(self.program, node, port.name, t.index)
            self.open.add((node.symbol, _full(t.index)))
            g = under_way[t.index] = Stored(t.index)
            self._waits(1)
        elif g is None:
            count = None if _by_input(node, port) else t.left if port.count is Special.CARRIED else self._count(
                node, port, _full(t.index))  # fmt: skip
            if key in self.done or (count is not None and count < 1):
                raise reports.surplus(self.program, node, port.name, t.index, count)
            g = under_way[t.index] = Stored(t.index, of=count)
            self._waits(count != 1)
        elif port.count is Special.CARRIED and t.left != g.of:
            raise reports.disagree(self.program, node, port.name, t.index, g.of or 0, t.left)
        g.summands.append(t)
        if port.open:
            return
        if g.of is None:
            self._joins(node, port, g)
        elif len(g.summands) == g.of:
            del under_way[t.index]
            self._waits(-(g.of != 1))
            self.done.add(key)
            self._arrive(node, port, Stored(t.index, self._folded(port, g)))

    def _quiet(self) -> None:
        """Nothing is in flight: the open gathers of least rank end, each arrives as one token."""
        ranks = {(name, x): self._rank(self.nodes[name], x) for name, x in self.open}
        least = min(ranks.values())
        ended = sorted(i for i, rank in ranks.items() if rank == least)
        if self.random:
            random.Random(self.seed + len(self.done)).shuffle(ended)
        self.open -= set(ended)
        for name, x in ended:
            node = self.nodes[name]
            ports = [p for p in node.ports if p.open]
            self.done |= {(name, p.name, x) for p in ports}
            gathers = [self._under_way(node, p).pop(x, None) for p in ports]
            self._waits(-sum(g is not None for g in gathers))
            try:
                for p, g in zip(ports, gathers, strict=True):
                    self._arrive(node, p, Stored(x, self._folded(p, g or Stored(x))))
            except NoValue as why:
                raise reports.no_value(why, node, node.symbol, x) from None

    def _rank(self, node: NodeOp, x: Point) -> Point:
        if node.rank is None:
            raise reports.unranked(node)
        return tuple(self.world.count(e, node.fields, x) for e in node.rank.data)

    def _folded(self, port: Port, g: Stored) -> Value:
        """The value of a complete gather; in ordered mode its summands stand as LANGUAGE 3.10 says."""
        assert port.gather is not None
        summands = sorted(g.summands, key=lambda t: t.place) if self.ordered else g.summands
        return folded(port.gather, self._form(port), [t.value for t in summands])

    def _count(self, node: NodeOp, port: Port, x: Point) -> int:
        """The number of summands that an instance waits for, where it follows from the index."""
        assert isinstance(port.count, IndexExpr)
        return self.world.count(port.count, node.fields, x)

    # -- stores ----------------------------------------------------------------------------------------------------
    def _tokens(self, node: NodeOp, port: Port) -> Store:
        return self.stores[node.symbol, port.name]

    def _under_way(self, node: NodeOp, port: Port) -> dict[Index, Stored]:
        """The gathers that are not complete.  Those that another input counts lie where joins find them."""
        if _by_input(node, port):
            return self._tokens(node, port).setdefault((False,) * len(node.fields), {})
        return self.stores.setdefault((node.symbol, f"{port.name}[]"), {}).setdefault((), {})

    def _waits(self, more: int) -> None:
        self.waiting += more
        self.stats.peak_waiting = max(self.stats.peak_waiting, self.waiting)

    def _form(self, port: Port) -> Form:
        return form_of(port.type, self.world.real)

    # -- the end (LANGUAGE 3.8) ------------------------------------------------------------------------------------
    def _end(self) -> Result:
        """Nothing is in flight: a stored token (but `##`), or a missing output, is an error."""
        left = list(self._left())
        found: list[Diagnostic] = reports.stranded(list(self.nodes.values()), left)
        arrays: dict[str, NDArray[Any]] = {}
        for name, op in self.outputs.items():
            layout, came = self.ports[name], self.results[name]
            array = arrays[name] = np.zeros(layout.shape, _DTYPES.get(form_of(op.type, self.world.real), np.float64))
            inside = set(layout.points)
            if absent := [x for x in layout.points if x not in came]:
                found.append(reports.missing(op, absent, len(inside)))
            if extra := [x for x in came if x not in inside]:
                found.append(reports.outside(op, extra))
            for x in inside & came.keys():
                array[layout.at(x)] = came[x]
        if found:
            raise UplError(*found)
        return Result(arrays, self.stats, tuple(left))

    def _left(self) -> Iterator[Waiting]:
        for node in self.nodes.values():
            for p in node.ports:
                under_way = self._under_way(node, p)
                for tokens in self._tokens(node, p).values():
                    for t in tokens.values() if tokens is not under_way else ():
                        yield Waiting(node.symbol, p.name, t.index, t.value, left_of(t.left))
                for g in under_way.values():
                    have = (len(g.summands), None if g.of is None else left_of(g.of))
                    yield Waiting(node.symbol, p.name, g.index, [t.value for t in g.summands], 1, have)


def _port(node: NodeOp, name: str | None) -> Port:
    return next(p for p in node.ports if p.name == name)


def _name(port: Port) -> str:
    """The input that counts a gather."""
    assert isinstance(port.count, IndexExpr) and port.count.name is not None
    return port.count.name


def _by_input(node: NodeOp, port: Port) -> bool:
    """Whether another input says how many summands a gather has."""
    return isinstance(port.count, IndexExpr) and any(p.name in port.count.names for p in node.ports)


def _counted(node: NodeOp, port: Port) -> bool:
    """Whether the number of summands of a gather follows from the index."""
    return port.gather is not None and isinstance(port.count, IndexExpr) and not _by_input(node, port)


def _stars(index: Index) -> tuple[bool, ...]:
    return tuple(i is None for i in index)


def _full(index: Index) -> Point:
    """An index without `*`."""
    assert None not in index, index
    return tuple(i for i in index if i is not None)
