"""The interpreter: runs a program token by token, exactly as LANGUAGE section 3 says.

    engine = Engine(program, {"D": 3}, order="random", seed=7)
    result = engine.run({"X": x, "W": w})                  # dense arrays, as `host.bind_arrays` makes them
    result.outputs["R"], result.stats.firings

The program is specialised once, at construction, into Python source (`Engine.source`); each run has its own state.
In FIFO order the tokens in flight form one queue; host tokens enter it first, in text order of the inputs and
lexicographic order of indices.  In random order each step takes any token in flight.
"""

from __future__ import annotations

import gc
import random
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import Diagnostic
from upl_mlir.dialects.upl import ArrayOp, ProgramOp, UplType
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import array_values, domain_of, first_index, poly_context
from upl_mlir.engines.interp import ieee
from upl_mlir.engines.interp.bodies import Body, entry_tables
from upl_mlir.engines.interp.errors import Reporter, WaitingToken, full_index
from upl_mlir.engines.interp.exprs import Scope, Writer, run_source
from upl_mlir.engines.interp.matching import NodeMatching, fold_rule, identity_value
from upl_mlir.engines.interp.plan import GatherOrder, Mode, NodePlan, Order, Plan, make_plan
from upl_mlir.engines.interp.small import ROUND, small_names
from upl_mlir.engines.interp.strata import Strata
from upl_mlir.host.arrays import HostPort, make_port
from upl_mlir.poly.counts.dense import points_where
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr

MAX_FIRINGS = 10**9
"""Firings after which a run is taken to be endless, unless one says otherwise. Chosen, not measured."""
CHECK_EVERY = 10_000  # tokens between two looks at the number of firings


class Event(Enum):
    """What a trace tells."""

    SEND = "send"  # a token leaves: target "Node.input" or "Output", index with None for `*`, value
    FIRE = "fire"  # an instance fires: node, index, None


Trace = Callable[[Event, str, tuple[int | None, ...], Any], None]
"""A callback (event, node, index, value)."""


@dataclass(frozen=True)
class Stats:
    """What one run did: the part of ``stats.json`` that every engine has.

    `firings` by node; `tokens` received by node and host output (a multicast is one token), `tokens_sent` in all;
    `peak_waiting` is the greatest number of tokens in the matching store, where a gather under way counts as one.
    """

    engine: str
    firings: dict[str, int]
    tokens: dict[str, int]
    tokens_sent: int
    peak_waiting: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return {
            "engine": self.engine, "firings": self.firings, "tokens": self.tokens, "tokens_sent": self.tokens_sent,
            "peak_waiting": self.peak_waiting, "seconds": self.seconds,
        }  # fmt: skip


@dataclass(frozen=True)
class RunResult:
    """Outputs as dense arrays over their boxes (0 outside their domains), and the ``##`` tokens still waiting."""

    outputs: dict[str, NDArray[Any]]
    stats: Stats
    waiting: tuple[WaitingToken, ...] = field(default=())


class Engine:
    """A program ready to run with given parameters; `run` may be called any number of times.

    `real` is what `real` means ("f64", or a smaller type: then every operation is rounded), `gather` the order in
    which summands are folded ("relaxed": as they arrive; "ordered": LANGUAGE 3.10), `order` the order of arrival ("fifo" or
    "random").
    The program must have been verified; domains are needed on host outputs, and on nodes that may fire at the start.

    Raises UplError: UPL1507, UPL1607, UPL1802 and UPL1808 (`real`).
    """

    def __init__(
        self,
        program: ProgramOp,
        params: Mapping[str, int] | None = None,
        *,
        real: str | Kind = Kind.F64,
        gather: str | GatherOrder = GatherOrder.RELAXED,
        order: str | Order = Order.FIFO,
        seed: int = 0,
        max_firings: int = MAX_FIRINGS,
        trace: Trace | None = None,
    ):
        kind = real if isinstance(real, Kind) else Kind.of_real(real)
        self.order, self.seed, self.max_firings = Order(order), seed, max_firings
        self._rounded = small_names(kind).get(ROUND)
        self._real = np.dtype(np.float32 if kind is Kind.F32 else np.float64)
        ctx = poly_context(program, params or {})
        self.plan = make_plan(program, ctx, kind, GatherOrder(gather))
        self.ports: dict[str, HostPort] = {
            op.symbol: make_port(op, ctx, self._real) for op in (*self.plan.inputs, *self.plan.outputs)
        }
        self._reporter = Reporter(self.plan)
        self.source = self._generate(traced=trace is not None)
        self._make = self._compile(trace)

    # -- code ------------------------------------------------------------------------------------------------------
    def _generate(self, *, traced: bool) -> str:
        """The source of `make`, which returns the functions of a fresh run."""
        plan, w = self.plan, Writer()
        sources = [*(n.op for n in plan.nodes), *plan.inputs]
        tables = entry_tables(plan)
        with w.block("def make():"):
            w.line("waiting = peak = 0")
            w.line("put = None")
            for i in range(len(sources)):
                w.line(f"fired{i} = 0")
            counted = [a.at for a in plan.arrows if a.counted]
            for at in counted:
                w.line(f"sent{at} = 0")
            for i in range(len(plan.outputs)):
                w.line(f"o{i} = {{}}")
            scope = Scope(plan.ctx, tables)
            for i, op in enumerate(sources):
                own = [a for a in plan.arrows if a.source is op]
                Body(plan, op, i, own, scope, tables, traced).write(w)
            open_ = [n.at for n in plan.nodes if n.open]
            if open_:
                w.line("strata = Strata()")
            for node in plan.nodes:
                names = {f: f"f{i}" for i, f in enumerate(node.op.fields)}
                NodeMatching(node, scope.extended(names)).write(w)
            with w.block("def state():"):
                fired = ", ".join(f"fired{i}" for i in range(len(sources)))
                sent = ", ".join(f"{at}: sent{at}" for at in counted)
                w.line(f"return [{fired}], {{{sent}}}, peak")
            total = " + ".join(f"fired{n.at}" for n in plan.nodes) or "0"
            if open_:
                w.line(f"ends = {{{', '.join(f'{n}: end{n}' for n in open_)}}}")
            ended = ("(batch := quiet([], None))", "quiet(flight, choose)") if open_ else ("False", "False")
            loops = _LOOPS.replace("TOTAL", total).replace("ENDED_1", ended[0]).replace("ENDED_2", ended[1])
            loops += _QUIET if open_ else ""
            w.lines += ["    " * w.depth + line for line in loops.splitlines()]
            stores = [
                (p.node, p.at, pattern, p.store(pattern))
                for n in plan.nodes for p in n.ports for pattern in p.patterns if p.mode is not Mode.NAMED
            ]  # fmt: skip
            partial = [(p.node, p.at, p.partial) for n in plan.nodes for p in n.ports if p.gathers]
            w.line("return {")
            w.line("    'begin': begin, 'fifo': fifo, 'random': shuffled, 'state': state,")
            w.line(f"    'awaits': {{{', '.join(f'{n}: await{n}' for n in open_)}}},")
            w.line(f"    'fire': [{', '.join(f'fire{i}' for i in range(len(sources)))}],")
            w.line(f"    'outputs': [{', '.join(f'o{i}' for i in range(len(plan.outputs)))}],")
            w.line(f"    'stores': [{', '.join(f'({n}, {p}, {pattern}, {s})' for n, p, pattern, s in stores)}],")
            w.line(f"    'partial': [{', '.join(f'({n}, {p}, {g})' for n, p, g in partial)}],")
            w.line("}")
        return w.source

    def _compile(self, trace: Trace | None) -> Callable[[], dict[str, Any]]:
        space = self._space(trace)
        run_source(self.source, space)
        return space["make"]

    def _space(self, trace: Trace | None) -> dict[str, Any]:
        """The namespace of generated source."""
        plan, report = self.plan, self._reporter
        space: dict[str, Any] = {name: value for name, value in vars(ieee).items() if not name.startswith("_")}
        space |= ieee.FUNCTIONS
        space |= small_names(plan.real)
        space |= {
            "copysign": ieee.math.copysign, "INF": ieee.math.inf, "NAN": ieee.math.nan, "F": array("f", (0.0,)),
            "FIRST": itemgetter(0), "PORTS": [n.ports for n in plan.nodes], "ARROWS": plan.arrows,
            "SOURCES": [*(n.op for n in plan.nodes), *plan.inputs],
            "NAMES": [op.symbol for op in (*(n.op for n in plan.nodes), *plan.inputs)],
            "TARGETS": [".".join(filter(None, (a.op.target_name, a.op.target_port))) for a in plan.arrows],
            "trace": trace, "SEND": Event.SEND, "FIRE": Event.FIRE, "runaway": report.runaway,
            "duplicate": report.duplicate, "output_twice": report.output_twice, "surplus": report.surplus,
            "disagree": report.disagree, "few": report.few, "trapped": report.trapped, "late": report.late,
            "Strata": Strata,
        }  # fmt: skip
        for name, i in entry_tables(plan).items():
            op = next(o for o in plan.program.body.block.ops if isinstance(o, ArrayOp) and o.symbol == name)
            space[i] = ieee.EntryTable(name, first_index(op), array_values(op))
        return space

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self, inputs: Mapping[str, NDArray[Any]]) -> RunResult:
        """Run on dense arrays in the types and shapes of `self.ports`.

        Raises UplError (UPL1601 to UPL1606) with the source position of the arrow or node.
        """
        start = time.perf_counter()
        code, collecting = self._make(), gc.isenabled()
        gc.disable()  # tokens are tuples without cycles: there is nothing to look for among millions of them
        try:
            flight: list[Any] = []
            code["begin"](flight)
            for node, keys in empty_instances(self.plan):  # (LANGUAGE 3.3)
                for key in keys:
                    code["fire"][node.at](key, *self._identities(node))
            for node, keys in open_instances(self.plan):
                for key in keys:
                    code["awaits"][node.at](key)
            for i, op in enumerate(self.plan.inputs):
                fire, port = code["fire"][len(self.plan.nodes) + i], self.ports[op.symbol]
                for key, value in zip(port.points(), self._values(port, inputs[op.symbol]), strict=True):
                    fire(key, value)
            if self.order is Order.FIFO:
                code["fifo"](flight, self.max_firings, min(CHECK_EVERY, self.max_firings))
            else:
                choose = random.Random(self.seed).random
                code["random"](flight, self.max_firings, min(CHECK_EVERY, self.max_firings), choose)
        finally:
            if collecting:
                gc.enable()
        left = list(self._waiting(code))
        outputs: dict[str, NDArray[Any]] = {}
        self._reporter.finish(left, lambda: self._collect(code, outputs))
        return RunResult(outputs, self._stats(code, time.perf_counter() - start), tuple(left))

    def _values(self, port: HostPort, array: NDArray[Any]) -> list[Any]:
        """The elements of the domain, in lexicographic order, as Python values."""
        given = np.asarray(array)[port.inside]
        with np.errstate(over="ignore"):  # a real beyond f32 is an infinity
            values = given.tolist() if given.dtype == object else given.astype(port.dtype).tolist()  # object: intervals
        if self._rounded is not None and port.type is UplType.REAL:
            return list(map(self._rounded, values))
        return values

    def _identities(self, node: NodePlan) -> list[Any]:
        return [identity_value(p.port.gather, p.kind) for p in node.ports if p.port.gather is not None]

    # -- the end ---------------------------------------------------------------------------------------------------
    def _waiting(self, code: dict[str, Any]) -> Iterable[WaitingToken]:
        """Everything in the matching store."""
        n: int
        p: int
        for n, p, pattern, store in code["stores"]:
            node = self.plan.nodes[n]
            plan = node.ports[p]
            for key, entry in store.items():
                value, left = (entry, 1) if plan.patterns[pattern] else entry
                index = full_index(pattern, key, len(node.op.fields))
                multiplicity = None if left == ieee.math.inf else left
                yield WaitingToken(node.op.symbol, plan.port.name, index, value, multiplicity)
        for n, p, partial in code["partial"]:
            node = self.plan.nodes[n]
            plan = node.ports[p]
            for key, entry in partial.items():
                have = (entry[1], None)
                if plan.mode is not Mode.NAMED:
                    count = entry[2] if plan.mode is Mode.CARRIED else self._count(node, plan.port.count, key)
                    have = (count - entry[1], count)
                yield WaitingToken(node.op.symbol, plan.port.name, key, entry[0], 1, have)

    def _count(self, node: NodePlan, count: Any, key: tuple[int, ...]) -> int:
        env = {**self.plan.ctx.constants, **dict(zip(node.op.fields, key, strict=True))}
        return count.evaluate(env, self.plan.ctx.read)

    def _collect(self, code: dict[str, Any], outputs: dict[str, NDArray[Any]]) -> list[Diagnostic]:
        """Fill the dense arrays; what is wrong with them is returned."""
        found: list[Diagnostic] = []
        for i, (op, tokens) in enumerate(zip(self.plan.outputs, code["outputs"], strict=True)):
            port = self.ports[op.symbol]
            order = list(port.points())
            absent = [p for p in order if p not in tokens]
            array = port.zeros()
            if absent:
                found.append(self._reporter.missing(i, port, absent, len(order)))
            else:
                array[port.inside] = [tokens[p] for p in order]
            if len(tokens) + len(absent) > len(order):
                known = set(order)
                found.append(self._reporter.outside(i, port, [k for k in tokens if k not in known]))
            outputs[op.symbol] = array
        return found

    def _stats(self, code: dict[str, Any], seconds: float) -> Stats:
        fired, sent, peak = code["state"]()
        return make_stats(self.plan, "interp", fired, sent, peak, seconds)

    # -- one instance by itself ------------------------------------------------------------------------------------
    def fire_alone(self, source: int, key: tuple[int, ...], values: Sequence[Any]) -> None:
        """Fire one instance of a node or host input (by number: nodes first); what it sends is lost.

        Raises UplError (UPL1604) if the body or an arrow has no value there.
        """
        code = self._make()
        code["begin"]([])
        code["fire"][source](key, *values)

    def gather_alone(self, node: int, at: int, key: tuple[int, ...], values: Sequence[int], *, counting: bool) -> None:
        """Compute the number of summands of a gather (`values` are the inputs that it names), or add two summands.

        Raises UplError (UPL1604) if there is no value.
        """
        plan = self.plan.nodes[node]
        port = plan.ports[at]
        used = port.port.count.names if isinstance(port.port.count, IndexExpr) else frozenset[str]()
        names = [p.port.name for p in plan.ports if p.port.name in used]
        w = Writer()
        with w.block("def once(key, values):"):
            scope = Scope(self.plan.ctx, entry_tables(self.plan))
            fields = {f: f"key[{i}]" for i, f in enumerate(plan.op.fields)}
            scope = scope.extended(fields | {name: f"values[{i}]" for i, name in enumerate(names)})
            if counting:
                assert isinstance(port.port.count, IndexExpr)
                w.line(f"return {scope.expr(port.port.count)}")
            else:
                assert port.port.gather is not None
                w.line(f"return in_range({fold_rule(port.port.gather, Kind.INT).text.format('values[0]', 'values[1]')})")
        space = self._space(None)
        run_source(w.source, space)
        try:
            space["once"](key, values)
        except ieee.Trap as trap:
            self._reporter.trapped(trap, plan.op, key)


def empty_instances(plan: Plan) -> Iterator[tuple[NodePlan, Iterable[tuple[int, ...]]]]:
    """The instances that fire at the start because all their inputs are gathers of no summands (LANGUAGE 3.3)."""
    for node in plan.nodes:
        domain = domain_of(node.op)
        if node.may_boot and domain is not None:
            empty = Formula.all(Formula.compare(cast(IndexExpr, p.port.count), "<=", 0) for p in node.ports)
            yield node, points_where(plan.ctx, node.op.fields, domain, empty)


def open_instances(plan: Plan) -> Iterator[tuple[NodePlan, Iterable[tuple[int, ...]]]]:
    """The instances whose open gathers end also where no token comes (LANGUAGE 3.3)."""
    for node in plan.nodes:
        domain = domain_of(node.op)
        if node.ends_on_domain and domain is not None:
            yield node, points_where(plan.ctx, node.op.fields, domain, TRUE)


def make_stats(
    plan: Plan, engine: str, fired: Sequence[int], sent: Mapping[int, int], peak: int, seconds: float
) -> Stats:
    """Counts by name from the firings of each source (nodes, then host inputs), and the tokens of each arrow that sends
    another number."""
    sources = {op: i for i, op in enumerate([*(n.op for n in plan.nodes), *plan.inputs])}
    tokens = {n.op.symbol: 0 for n in plan.nodes} | {op.symbol: 0 for op in plan.outputs}
    for a in plan.arrows:
        tokens[a.op.target_name] += sent.get(a.at, fired[sources[a.source]])
    firings = {n.op.symbol: fired[n.at] for n in plan.nodes}
    return Stats(engine, firings, tokens, sum(tokens.values()), peak, seconds)


_LOOPS = """
def begin(flight):
    nonlocal put
    put = flight.append
def fifo(batch, limit, every):
    nonlocal put
    steps = 0
    while batch or ENDED_1:
        out = []
        put = out.append
        for f, k, v, m in batch:
            f(k, v, m)
        steps += len(batch)
        if steps >= every:
            steps = 0
            if TOTAL > limit: runaway(TOTAL, limit)
        batch = out
    if TOTAL > limit: runaway(TOTAL, limit)
def shuffled(flight, limit, every, choose):
    pop = flight.pop
    steps = 0
    while flight or ENDED_2:
        i = int(choose() * len(flight))
        last = pop()
        if i < len(flight):
            last, flight[i] = flight[i], last
        f, k, v, m = last
        f(k, v, m)
        steps += 1
        if steps >= every:
            steps = 0
            if TOTAL > limit: runaway(TOTAL, limit)
    if TOTAL > limit: runaway(TOTAL, limit)
"""
"""The loops over tokens in flight.  A batch of the FIFO queue is what the batch before has sent, so order is kept."""

_QUIET = """
def quiet(flight, choose):
    nonlocal put
    put = flight.append
    while not flight and strata.ranks:
        for node, key in strata.pop(choose):
            ends[node](key)
    return flight
"""
"""When nothing is in flight: the open gathers of least rank end, until a token is sent.  (LANGUAGE 3.3)"""
