"""The engine "token": the interpreter's semantics compiled.

    engine = TokenEngine(program, {"D": 3})
    result = engine.run({"X": x, "W": w})                  # dense arrays, as `host.bind_arrays` makes them

What a run does is what the interpreter does, token for token, in FIFO and in random order: the same outputs, counts and
diagnostics.  The program is generated as C++ for given parameters and compiled once (0.5 to 2 s, then from the cache);
indices are packed into words of 64 or 128 bits.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import Diagnostic, UplError, error
from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.dialects.upl.query import poly_context, span_of
from upl_mlir.engines.interp.engine import (
    CHECK_EVERY,
    MAX_FIRINGS,
    Engine,
    RunResult,
    Stats,
    empty_instances,
    make_stats,
    open_instances,
)
from upl_mlir.engines.interp.errors import Reporter, WaitingToken, full_index
from upl_mlir.engines.interp.plan import GatherOrder, Mode, Order, make_plan
from upl_mlir.engines.token.library import Library, build
from upl_mlir.engines.token.source import Code, make_source
from upl_mlir.engines.token.tags import make_tags
from upl_mlir.host.arrays import HostPort, make_port
from upl_mlir.poly.counts.dense import points

Array = NDArray[Any]

_SLICE = 1 << 21
"""Tokens between two looks at what Python has to do, such as Ctrl-C."""
_FOREVER = 2**63 - 1
"""A number of firings that no run reaches."""
_DONE, _MORE = 0, 1


class Fault(IntEnum):
    """What went wrong, as `runtime.h` numbers it."""

    NONE = 0
    DUPLICATE = 1
    TWICE = 2
    TRAP = 3
    SURPLUS = 4
    UNKNOWN_SURPLUS = 5
    DISAGREE = 6
    OVERFLOW = 7
    COUNT = 8
    TAG = 9
    MEMORY = 10
    RUNAWAY = 11
    LATE = 12


class TokenEngine:
    """A program ready to run with given parameters; `run` may be called any number of times, by any thread.

    The options are those of the interpreter (`interp.Engine`).  Raises UplError: UPL1507, UPL1607 to UPL1609, UPL1733.
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
    ):
        self.order, self.seed, self.max_firings = Order(order), seed, max_firings
        self._real = real if isinstance(real, Kind) else Kind.of_real(real)
        if self._real.format is not None:
            raise error("UPL1733", f"the token engine has no {self._real.value}", span_of(program), help="use `interp`")
        self.gather, self.params = GatherOrder(gather), dict(params or {})
        ctx = poly_context(program, self.params)
        self.plan = make_plan(program, ctx, self._real, self.gather)
        real_type = np.dtype(np.float32 if self._real is Kind.F32 else np.float64)
        self.ports: dict[str, HostPort] = {
            op.symbol: make_port(op, ctx, real_type) for op in (*self.plan.inputs, *self.plan.outputs)
        }
        self.reporter = Reporter(self.plan)
        start = time.perf_counter()
        self._compile(wide=False)
        self.compile_seconds = time.perf_counter() - start

    def _compile(self, *, wide: bool) -> None:
        self._wide = wide
        self.code: Code = make_source(self.plan, make_tags(self.plan, wide=wide))
        self.library: Library = build(self.code.text, span_of(self.plan.program))

    def run(self, inputs: Mapping[str, Array]) -> RunResult:
        """Run on dense arrays in the types and shapes of `self.ports`.

        Raises UplError (UPL1601 to UPL1606, UPL1608, UPL1020).
        """
        try:
            return _Run(self, inputs).result()
        except _TooNarrow as e:
            if self._wide:
                raise e.error from None
        self._compile(wide=True)  # a token left its node's domain: once more, with all the bits that there are
        return self.run(inputs)


class _TooNarrow(Exception):
    """An index does not fit its tag."""

    def __init__(self, error: UplError):
        super().__init__(str(error))
        self.error = error


class _Run:
    """One run."""

    def __init__(self, engine: TokenEngine, inputs: Mapping[str, Array]):
        self.engine, self.plan, self.code, self.inputs = engine, engine.plan, engine.code, inputs
        self.library, self.reporter = engine.library, engine.reporter
        self.fault = np.zeros(4 + self.code.values, np.uint64)
        self.kept: list[Array] = []
        self.state: int | None = None

    def result(self) -> RunResult:
        """Run, and collect what came out."""
        start = time.perf_counter()
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.state = self.library.upl_new(pages, self._address(self.fault))
        try:
            if self.state is None:
                self._failed()
            outputs = self._outputs()
            self._start()
            self._loop()
            left = list(self._waiting())
            self.reporter.finish(left, lambda: list(self._collect(outputs)))
            arrays = {name: values for name, (values, _) in outputs.items()}
            return RunResult(arrays, self._stats(time.perf_counter() - start), tuple(left))
        finally:
            if self.state is not None:
                self.library.upl_delete(self.state)

    # -- host arrays -----------------------------------------------------------------------------------------------
    def _address(self, array: Array) -> int:
        self.kept.append(array)
        return array.ctypes.data

    def _layout(self, port: HostPort) -> tuple[int, int, int]:
        """Addresses of the mask of the domain, and of the lower bounds and the shape of its box."""
        inside = np.ascontiguousarray(port.inside).view(np.uint8)
        lower, shape = np.array(port.origin, np.int64), np.array(port.shape, np.int64)
        return self._address(inside), self._address(lower), self._address(shape)

    def _outputs(self) -> dict[str, tuple[Array, Array]]:
        """The arrays that outputs are written to, each with the marks of what came."""
        out: dict[str, tuple[Array, Array]] = {}
        for i, op in enumerate(self.plan.outputs):
            port = self.engine.ports[op.symbol]
            values, have = port.zeros(), np.zeros(port.shape, np.uint8)
            self.library.upl_output(self.state, i, self._address(values), self._address(have), *self._layout(port))
            out[op.symbol] = values, have
        return out

    def _start(self) -> None:
        """Fire instances without summands, note those whose open gathers end with none, then fire the host inputs."""
        for node, keys in (*empty_instances(self.plan), *open_instances(self.plan)):
            found = np.array(list(keys), np.int64)
            self._try("upl_empty", node.at, len(found), self._address(found))
        for i, op in enumerate(self.plan.inputs):
            port = self.engine.ports[op.symbol]
            with np.errstate(over="ignore"):  # a real beyond f32 is an infinity
                values = np.ascontiguousarray(np.asarray(self.inputs[op.symbol]).astype(port.dtype, copy=False))
            self._try("upl_input", i, self._address(values), *self._layout(port))

    def _loop(self) -> None:
        """Until no token is in flight."""
        name, limit = "upl_fifo", self.engine.max_firings
        if self.engine.order is Order.RANDOM:
            name = "upl_random"
            twister = np.array(random.Random(self.engine.seed).getstate()[1], np.uint32)
            self.library.upl_seed(self.state, self._address(twister))
        while self._try(name, _SLICE, limit, min(CHECK_EVERY, limit)) == _MORE:
            pass

    # -- the end ---------------------------------------------------------------------------------------------------
    def _value(self, kind: Kind, bits: np.uint64 | int) -> Any:
        """The Python value of a token's 64 bits."""
        cell = np.array([bits], np.uint64)
        if kind.is_float:
            return cell.view(np.float64)[0].item()
        whole = cell.view(np.int64)[0].item()
        return bool(whole) if kind is Kind.BOOL else whole

    def _waiting(self) -> Iterator[WaitingToken]:
        """Everything in the matching store, by index."""
        if not self._counts()[2]:
            return
        for i, (port, pattern) in enumerate(self.code.stores):
            count = self.library.upl_left(self.state, i, None)
            if not count:
                continue
            rows = np.zeros((count, 5), np.uint64)
            self.library.upl_left(self.state, i, rows.ctypes.data)
            node = self.plan.nodes[port.node]
            layout = self.code.tags.layouts[port.node]
            found = [(int(low) | int(high) << 64, v, int(left), int(n)) for low, high, v, left, n in rows.tolist()]
            for word, bits, left, n in sorted(found):
                whole = layout.unpack(word)
                if pattern is not None:
                    index = full_index(pattern, [whole[f] for f in pattern], len(whole))
                    value, multiplicity = self._value(port.kind, bits), None if left == _FOREVER else left
                    yield WaitingToken(node.op.symbol, port.port.name, index, value, multiplicity)
                else:
                    have = (left, None) if port.mode is Mode.NAMED else (n - left, n)
                    value = None if port.folded else self._value(port.kind, bits)
                    yield WaitingToken(node.op.symbol, port.port.name, whole, value, 1, have)

    def _collect(self, outputs: Mapping[str, tuple[Array, Array]]) -> Iterator[Diagnostic]:
        """What is wrong with the outputs."""
        for i, (name, (_, have)) in enumerate(outputs.items()):
            port = self.engine.ports[name]
            absent = port.inside & (have == 0)
            if absent.any():
                places = list(points(port.box, absent))
                yield self.reporter.missing(i, port, places, int(np.count_nonzero(port.inside)))
            count = self.library.upl_outside(self.state, i, None)
            if count:
                found = np.zeros((count, len(port.fields)), np.int64)
                self.library.upl_outside(self.state, i, found.ctypes.data)
                yield self.reporter.outside(i, port, [tuple(row) for row in found.tolist()])

    def _counts(self) -> tuple[list[int], list[int], int, int]:
        """Firings by source, tokens by arrow, tokens waiting now and at most."""
        fired = np.zeros(len(self.plan.nodes) + len(self.plan.inputs), np.int64)
        sent, waiting = np.zeros(len(self.plan.arrows), np.int64), np.zeros(2, np.int64)
        where = [a.ctypes.data for a in (fired, sent, waiting[:1], waiting[1:])]
        self.library.upl_counts(self.state, *where)
        return fired.tolist(), sent.tolist(), int(waiting[0]), int(waiting[1])

    def _stats(self, seconds: float) -> Stats:
        fired, sent, _, peak = self._counts()
        counted = {a.at: sent[a.at] for a in self.plan.arrows if a.counted}
        return make_stats(self.plan, "token", fired, counted, peak, seconds)

    # -- what goes wrong -------------------------------------------------------------------------------------------
    def _try(self, name: str, *arguments: int) -> int:
        """Call a function that can fail."""
        status = getattr(self.library, name)(self.state, *arguments, self.fault.ctypes.data)
        if status not in (_DONE, _MORE):
            self._failed()
        return status

    def _failed(self) -> NoReturn:
        """Raise what the interpreter raises."""
        fault, place, low, high, *v = (int(x) for x in self.fault)
        word, report = low | high << 64, self.reporter
        match Fault(fault):
            case Fault.DUPLICATE:
                port, pattern = self.code.receivers[place]
                whole = self._index(port.node, word)
                key = tuple(whole[f] for f in pattern)
                report.duplicate(port, pattern, key, self._value(port.kind, v[0]), self._value(port.kind, v[1]))
            case Fault.TWICE:
                op = self.plan.outputs[place]
                kind = kind_of(op.type, self.plan.real)
                index = [self._value(Kind.INT, x) for x in v[2 : 2 + len(op.fields)]]
                report.output_twice(place, index, self._value(kind, v[0]), self._value(kind, v[1]))
            case Fault.SURPLUS | Fault.UNKNOWN_SURPLUS:
                port = self.code.gathers[place]
                count = self._value(Kind.INT, v[0]) if fault == Fault.SURPLUS else None
                report.surplus(port, self._index(port.node, word), count)
            case Fault.DISAGREE:
                port = self.code.gathers[place]
                one, other = (self._value(Kind.INT, x) for x in v[:2])
                report.disagree(port, self._index(port.node, word), one, other)
            case Fault.LATE:
                port = self.code.gathers[place]
                report.late(port, self._index(port.node, word))
            case Fault.RUNAWAY:
                report.runaway(v[0], self.engine.max_firings)
            case Fault.MEMORY:
                raise error("UPL1020", f"out of memory: the tokens need {v[1]} bytes and {v[0]} more")
            case _:
                self._no_value(Fault(fault), place, word, v)

    def _index(self, source: int, word: int) -> tuple[int, ...]:
        return self.code.tags.layouts[source].unpack(word)

    def _no_value(self, fault: Fault, place: int, word: int, v: list[int]) -> NoReturn:
        """An operation without a value: the interpreter does it again, and says what is wrong.

        Where it finds nothing wrong, integers of more than 64 bits are on the way, which this engine does not have.
        """
        again = Engine(self.plan.program, self.engine.params, real=self.plan.real, gather=self.engine.gather)
        if fault in (Fault.TRAP, Fault.TAG):
            source = place
            kinds = self._kinds(source)
            values = [self._value(kind, x) for kind, x in zip(kinds, v, strict=False)]
            again.fire_alone(source, self._index(source, word), values)
        else:
            port = self.code.gathers[place]
            source = port.node
            values = [self._value(Kind.INT, x) for x in v]
            again.gather_alone(port.node, port.at, self._index(source, word), values, counting=fault is Fault.COUNT)
        ops: list[NodeOp | InputOp] = [*(n.op for n in self.plan.nodes), *self.plan.inputs]
        op, index = ops[source], self._index(source, word)
        text = f"{op.symbol}<{','.join(map(str, index))}>"
        found = error(
            "UPL1608", f"an index computed in `{text}` does not fit the {self.code.tags.width} bits that the token engine "
            "has for an index", span_of(op), help="use engine interp",
        )  # fmt: skip
        if fault is Fault.TAG:
            raise _TooNarrow(found)
        raise found

    def _kinds(self, source: int) -> list[Kind]:
        """The kinds of the values that a source fires with."""
        if source < len(self.plan.nodes):
            return [p.kind for p in self.plan.nodes[source].ports]
        return [kind_of(self.plan.inputs[source - len(self.plan.nodes)].type, self.plan.real)]
