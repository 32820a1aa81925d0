"""The engine "mpi": every rank computes its blocks by native code, and exchanges what the plan says.

    f = upl.compile(p, engine="mpi", gather="ordered")     # on every rank of an mpi4py program
    out = f(A=a, T=100)                                    # whole arrays in, whole results on every rank

Each rank gives whole inputs, of which the parts that it does not read stay untouched.  The arrays between are as large as a
rank's blocks and what it receives.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import poly_context, span_of
from upl_mlir.engines.mpi.boxes import Blocks, Boxes, Memory, exchanges_of, size_of
from upl_mlir.engines.mpi.checkpoint import Checkpoints, Identity
from upl_mlir.engines.mpi.plan import Plan, make_plan
from upl_mlir.engines.mpi.world import in_place, operator, wait_for_all, world
from upl_mlir.engines.native import call, target
from upl_mlir.engines.native.backend import compile_emitted
from upl_mlir.engines.native.engine import fault_of, target_of
from upl_mlir.engines.native.outside import handling, memory
from upl_mlir.engines.native.whole import Source
from upl_mlir.host.arrays import HostPort, bind_arrays, bind_parameters, host_ports
from upl_mlir.passes.analysis.at_sizes import require_at
from upl_mlir.passes.analysis.proved import require_proved
from upl_mlir.passes.analysis.sizes import Sizes, total
from upl_mlir.poly.expr import IndexExpr

Array = NDArray[Any]


@dataclass(frozen=True)
class Stats:
    """What one run did: the part of ``stats.json`` that this engine has; bytes of this rank and, together, of all.

    `firings` and `tokens` are those of the program, counted without running it, as for the engine "native".
    """

    firings: dict[str, int | None]
    tokens: dict[str, int | None]
    ranks: int
    rank: int
    seconds: float
    compile_seconds: float
    bytes_sent: int
    messages_sent: int
    bytes_sent_by_all: int
    taken_up_at: int | None = None
    """The iteration of a checkpoint with which the run began."""

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return {
            "engine": "mpi", "firings": self.firings, "tokens": self.tokens, "tokens_sent": total(self.tokens),
            "peak_waiting": None, "seconds": self.seconds, "compile_seconds": self.compile_seconds, "ranks": self.ranks,
            "rank": self.rank, "bytes_sent": self.bytes_sent, "messages_sent": self.messages_sent,
            "bytes_sent_by_all": self.bytes_sent_by_all, "taken_up_at": self.taken_up_at,
        }  # fmt: skip


class MpiEngine:
    """A program distributed over the ranks of a communicator (`mpi4py.MPI.COMM_WORLD` unless told); all ranks call alike.

    Raises UplError on every rank: UPL13xx if the program is wrong, UPL18xx, UPL2101 and UPL2102 if it cannot be
    distributed, UPL2103 without MPI.
    """

    last = None

    def __init__(
        self, source: Source, *, real: str = "f64", gather: str = "relaxed", threads: int = 1, comm: Any = None,
        checkpoint: str | Path | None = None, every: int = 1, sizes: Mapping[str, int] | None = None,
    ):  # fmt: skip
        """With a `checkpoint`, a folder, the state is saved every so many steps of a loop over steps, and a run that was
        ended before its time is taken up there.  `sizes` are parameters for which the division should be good."""
        start = time.perf_counter()
        self.comm = world() if comm is None else comm
        self.source = source
        self.folder = None if checkpoint is None else Path(checkpoint)
        self.every, self.options = every, f"{gather} sums, {real}"
        if every < 1:
            raise error("UPL1802", f"every={every}: expected 1 or more")
        self.real = np.dtype(np.float32 if real == "f32" else np.float64)
        self.rank: int = self.comm.Get_rank()
        self.ranks: int = self.comm.Get_size()
        call.prepare()
        made = self._made(real, gather, threads, sizes) if self.rank == 0 else None
        wait_for_all(self.comm)
        made = self.comm.bcast(made, root=0)
        if isinstance(made, UplError):
            raise made
        self.plan: Plan = made[0]
        self._open: tuple[tuple[str, str], ...] = made[1]
        self.kernel = compile_emitted(self.plan.emitted, target.host(), threads)
        self.compile_seconds = time.perf_counter() - start
        firings, tokens = dict.fromkeys(self._sizes.firings), dict.fromkeys(self._sizes.tokens)
        self._stats = Stats(firings, tokens, self.ranks, self.rank, 0.0, self.compile_seconds, 0, 0, 0)

    def _made(
        self, real: str, gather: str, threads: int, sizes: Mapping[str, int] | None
    ) -> tuple[Plan, tuple[tuple[str, str], ...]] | UplError:
        try:
            program = self.source.read()
            open_ = require_proved(program)
            return make_plan(
                program, target.host(), real=real, gather=gather, threads=threads, saved=self.folder is not None,
                sizes=sizes,
            ), open_
        except UplError as e:
            return e

    @cached_property
    def program(self) -> ProgramOp:
        """The program."""
        return self.source.read()

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes.of(self.program)

    def stats(self) -> Stats:
        """What the last run did."""
        return self._stats

    def scalar(self) -> Any:
        """There is nothing to distribute in a program without fields."""
        raise error("UPL2101", "a program of scalars has nothing to distribute", span_of(self.program))

    def __call__(
        self, arrays: Mapping[str, Any], given: Mapping[str, int], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run on whole arrays; the results are whole on every rank.  Raises UplError (UPL15xx, UPL1604, UPL2105)."""
        params = bind_parameters(self.program, arrays, given)
        self._alike(params)
        if self._open:
            require_at(self.program, params, self._open)
        ports = host_ports(self.program, params, self.real)
        dense = bind_arrays(self.program, ports, arrays)
        start = time.perf_counter()
        context = poly_context(self.program)
        blocks = Blocks(self.plan.blocks, {**context.constants, **params}, self.ranks, context.read)
        own: dict[str, int] = blocks.of[self.rank]
        saved = self._checkpoints(params, dense, blocks)
        own |= {} if saved is None else saved.begin()
        run = _Run(self, blocks, [*exchanges_of(self.plan, blocks)], saved)
        layouts = {n: self._number(la.lower, own, context.read) for n, la in self.plan.layouts.items()}
        args, results = self.arguments(own, ports, dense, layouts, context.read)
        status: Any = np.zeros((), np.int64)
        with handling(run.exchange):
            self.kernel.run([*args, status])
        worst = max(self.comm.allgather(int(status)))
        if worst:
            raise fault_of(worst, self.program)
        for name, (axis, b) in self.plan.cut.items():
            owned: list[tuple[int, int]] = [blocks.owned(r, b) for r in range(self.ranks)]
            self._whole(results[name], axis, layouts[name][axis], owned)
        if saved is not None:
            saved.end()
        seconds = time.perf_counter() - start
        by_all = sum(self.comm.allgather(run.bytes))
        self._stats = Stats(
            *self._sizes.at(params), self.ranks, self.rank, seconds, self.compile_seconds, run.bytes, run.messages, by_all,
            None if saved is None else saved.taken_up,
        )  # fmt: skip
        final: dict[str, Array] = {}
        for name, found in results.items():
            port = ports[name]
            final[name] = target_of(port, out)
            final[name][...] = found[_part(port, layouts[name])]
        return final

    def arguments(
        self, own: Mapping[str, int], ports: Mapping[str, HostPort], dense: Mapping[str, Array],
        layouts: Mapping[str, tuple[int, ...]], read: Any,
    ) -> tuple[list[Any], dict[str, Array]]:  # fmt: skip
        """What the code of a rank with parameters `own` is called with, the status apart, and the arrays of its results."""
        args: list[Any] = [int(own[p]) for p in self.plan.params]
        results: dict[str, Array] = {}
        for a in self.kernel.arguments[len(args) : -1]:
            port, shape = ports[a.name], self._number(self.plan.layouts[a.name].shape, own, read)
            if a.name in dense:
                args.append(_placed(port, dense[a.name], layouts[a.name], shape))
                continue
            results[a.name] = np.zeros(_room(port, layouts[a.name], shape), port.dtype)
            args.append(results[a.name])
        return args, results

    def _checkpoints(
        self, params: Mapping[str, int], dense: Mapping[str, Array], blocks: Blocks
    ) -> Checkpoints | None:
        if self.folder is None:
            return None
        what = Identity.of(str(self.program), params, dense, self.options) if self.rank == 0 else None
        return Checkpoints(self.comm, self.folder, self.every, self.plan.states, what, blocks)

    def _alike(self, params: Mapping[str, int]) -> None:
        """All ranks call with the same sizes.  Raises UplError (UPL2105)."""
        for rank, other in enumerate(self.comm.allgather(dict(params))):
            for name, value in other.items():
                if params.get(name) != value:
                    message = f"rank {rank} runs with {name}={value}, rank {self.rank} with {name}={params.get(name)}"
                    help_ = "give every rank whole arrays of the same shapes, and the same parameters"
                    raise error("UPL2105", message, span_of(self.program), help=help_)

    def _whole(self, array: Array, axis: int, lower: int, owned: list[tuple[int, int]]) -> None:
        """Bring every rank the blocks of the others."""
        for rank, (first, last) in enumerate(owned):
            at = (slice(None),) * axis + (slice(max(0, first - lower), max(0, last - lower + 1)),)
            buffer = np.ascontiguousarray(array[at])
            if buffer.size:
                self.comm.Bcast(buffer.view(np.uint8).reshape(-1), root=rank)
                if rank != self.rank:
                    array[at] = buffer

    def _number(self, e: tuple[IndexExpr, ...], own: Mapping[str, int], read: Any) -> tuple[int, ...]:
        return tuple(x.evaluate(own, read) for x in e)


def _part(port: HostPort, lower: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a port's elements lie in the array of the function."""
    if 0 in port.shape:
        return tuple(slice(0, 0) for _ in port.shape)
    return tuple(slice(o - lo, o - lo + n) for o, lo, n in zip(port.origin, lower, port.shape, strict=True))


def _placed(port: HostPort, array: Array, lower: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """An input where the function looks for it."""
    room = _room(port, lower, shape)
    if (lower == tuple(port.origin) or 0 in port.shape) and room == tuple(port.shape):
        return array
    whole = np.zeros(room, port.dtype)
    whole[_part(port, lower)] = array
    return whole


def _room(port: HostPort, lower: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a port's array, as the function takes it: no less than the port's own."""
    return tuple(max(0, n, s.stop) for n, s in zip(shape, _part(port, lower), strict=True))


class _Run:
    """The exchanges of one run."""

    def __init__(self, engine: MpiEngine, blocks: Blocks, boxes: list[Boxes], saved: Checkpoints | None):
        self.saved = saved
        self.comm, self.rank = engine.comm, engine.rank
        self.boxes = boxes
        own = blocks.of[engine.rank]
        self.memories = [Memory(b.moved.axes, own, blocks.read) for b in boxes]
        self.bytes = self.messages = 0

    def exchange(self, number: int, address: int, variables: Any) -> None:
        """One exchange: everything is sent and received before it ends; or an array for a checkpoint."""
        if number >= len(self.boxes):
            assert self.saved is not None
            self.saved.call(number, address, variables[0])
            return
        boxes, place = self.boxes[number], self.memories[number]
        values = tuple(variables[i] for i in range(len(boxes.moved.variables)))
        if boxes.moved.combined is not None:
            self._combine(boxes, place, memory(address, place.shape, np.dtype(boxes.moved.dtype)), values)
            return
        sent, received = boxes.messages(self.rank, values)
        if not sent and not received:
            return
        array = memory(address, place.shape, np.dtype(boxes.moved.dtype))
        requests: list[Any] = []
        buffers: list[tuple[Any, Array]] = []
        for m in received:
            at = place.index(m.box)
            into = array[at]
            buffer = into if into.flags.c_contiguous and into.base is not None else np.empty(into.shape, into.dtype)
            if buffer is not into:
                buffers.append((at, buffer))
            requests.append(self.comm.Irecv(_bytes(buffer), source=m.rank, tag=number))
        for m in sent:
            buffer = np.ascontiguousarray(array[place.index(m.box)])
            requests.append(self.comm.Isend(_bytes(buffer), dest=m.rank, tag=number))
            self.bytes += buffer.nbytes
            self.messages += 1
        for r in requests:
            r.Wait()
        for at, buffer in buffers:
            array[at] = buffer

    def _combine(self, boxes: Boxes, place: Memory, array: Array, values: tuple[int, ...]) -> None:
        """Combine the parts that the ranks have of the elements in a box, which is the same for all."""
        box = boxes.needed(values)[self.rank]
        if not size_of(box) or self.comm.Get_size() == 1:
            return
        at = place.index(box)
        buffer = np.array(array[at], order="C")
        assert boxes.moved.combined is not None
        self.comm.Allreduce(in_place(), buffer.reshape(-1), op=operator(boxes.moved.combined, boxes.moved.dtype))
        array[at] = buffer
        self.bytes += buffer.nbytes
        self.messages += 1


def _bytes(a: Array) -> Array:
    """The memory of a contiguous array."""
    return a.reshape(-1).view(np.uint8)

