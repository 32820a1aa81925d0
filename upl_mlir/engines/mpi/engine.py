"""The engine "mpi": every rank computes its blocks by native code, and exchanges what the plan says.

    f = upl.compile(p, engine="mpi", gather="ordered")     # on every rank of an mpi4py program
    out = f(A=a, T=100)                                    # whole arrays in, whole results on every rank

Each rank gives whole inputs, of which the parts that it does not read stay untouched.  The arrays between are as large as a
rank's blocks and what it receives.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import UplError, error, nearest_or_all
from upl_mlir.dialects.upl import Gather, ProgramOp
from upl_mlir.dialects.upl.query import inputs as all_inputs
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.engines.mpi.binding import Binding
from upl_mlir.engines.mpi.checkpoint import Checkpoints, Identity
from upl_mlir.engines.mpi.kept import Open, plan_of_text, states_digest, text_of
from upl_mlir.engines.mpi.plan import Plan, make_plan
from upl_mlir.engines.mpi.world import in_place, operator, wait_for_all, world
from upl_mlir.engines.native import call, target
from upl_mlir.engines.native.backend import compile_emitted
from upl_mlir.engines.native.call import Again
from upl_mlir.engines.native.engine import MAX_KNOWN, fault_of, in_place_of, signature, target_of
from upl_mlir.engines.native.outside import handling
from upl_mlir.engines.native.whole import Source, key_of
from upl_mlir.host.arrays import bind_arrays, bind_parameters, check_names, dense_arrays
from upl_mlir.host.cache import open_cache
from upl_mlir.host.given import cast_values
from upl_mlir.passes.analysis.at_sizes import require_at
from upl_mlir.passes.analysis.proved import require_proved
from upl_mlir.passes.analysis.sizes import Sizes, total

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
    cached: bool
    """Whether the division and its proof were found on disk."""
    taken_up_at: int | None = None
    """The iteration of a checkpoint with which the run began."""

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return {
            "engine": "mpi", "firings": self.firings, "tokens": self.tokens, "tokens_sent": total(self.tokens),
            "peak_waiting": None, "seconds": self.seconds, "compile_seconds": self.compile_seconds, "ranks": self.ranks,
            "rank": self.rank, "bytes_sent": self.bytes_sent, "messages_sent": self.messages_sent,
            "bytes_sent_by_all": self.bytes_sent_by_all, "cached": self.cached,
            "taken_up_at": self.taken_up_at,
        }  # fmt: skip


class MpiEngine:
    """A program distributed over the ranks of a communicator (`mpi4py.MPI.COMM_WORLD` unless told); all ranks call alike.

    Raises UplError on every rank: UPL13xx if the program is wrong, UPL18xx, UPL2101 and UPL2102 if it cannot be
    distributed, UPL2103 without MPI.
    """

    last = None

    def __init__(
        self, source: Source, *, real: str = "f64", gather: str = "relaxed", threads: int = 1, comm: Any = None,
        checkpoint: str | Path | None = None, every: int = 1, local: bool = False, sizes: Mapping[str, int] | None = None,
    ):  # fmt: skip
        """With a `checkpoint`, a folder, the state is saved every so many steps of a loop over steps, and a run that was
        ended before its time is taken up there.  With `local` a rank gives its block of an input of which it reads no
        more, and gets its block of a result.  `sizes` are parameters for which the division should be good."""
        start = time.perf_counter()
        self.comm = world() if comm is None else comm
        self.source = source
        self.folder = None if checkpoint is None else Path(checkpoint)
        self.every, self.options, self.local = every, f"{gather} sums, {real}", local
        if local and checkpoint is not None:
            raise error("UPL1802", "a run of local arrays cannot be saved", help="leave out `checkpoint` or `local`")
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
        self._open: Open = made[1]
        self.kernel = compile_emitted(self.plan.emitted, target.host(), threads)
        self.compile_seconds = time.perf_counter() - start
        self._stats = Stats({}, {}, self.ranks, self.rank, 0.0, self.compile_seconds, 0, 0, 0, made[2])
        self._bound: Mapping[str, int] | None = None
        self._known: dict[tuple[object, ...], Binding] = {}

    def _made(
        self, real: str, gather: str, threads: int, sizes: Mapping[str, int] | None
    ) -> tuple[Plan, Open, bool] | UplError:
        """The plan, which is proved, the inputs of which tokens are to be counted, and whether they were found on disk."""
        machine, store = target.host(), open_cache()
        saved = self.folder is not None
        options = f"ranks {real} {gather} {threads} saved={saved} {sorted((sizes or {}).items())}"
        try:
            key, keep = key_of(self.source, options, machine)
            found = store.read(f"{key}.plan")
            if found is not None:
                return *plan_of_text(found), True
            program = self.source.read()
            open_ = require_proved(program)
            plan = make_plan(program, machine, real=real, gather=gather, threads=threads, saved=saved, sizes=sizes)
        except UplError as e:
            return e
        store.write(f"{key}.plan", text_of(plan, open_))
        keep()
        return plan, open_, False

    @cached_property
    def program(self) -> ProgramOp:
        """The program."""
        return self.source.read()

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes.of(self.program)

    def stats(self) -> Stats:
        """What the last run did."""
        sizes = self._sizes
        if self._bound is None:
            return replace(self._stats, firings=dict.fromkeys(sizes.firings), tokens=dict.fromkeys(sizes.tokens))
        firings, tokens = sizes.at(self._bound)
        return replace(self._stats, firings=firings, tokens=tokens)

    def scalar(self) -> Any:
        """There is nothing to distribute in a program without fields."""
        raise error("UPL2101", "a program of scalars has nothing to distribute", span_of(self.program))

    def __call__(
        self, arrays: Mapping[str, Any], given: Mapping[str, int], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run on whole arrays; the results are whole on every rank.  Raises UplError (UPL15xx, UPL1604, UPL2105)."""
        lengths: Mapping[str, tuple[int, ...]] = {}
        if self.local:
            if out:
                raise error("UPL1802", "`out` is for whole arrays", help="leave it out, or leave out `local`")
            lengths = self._lengths(arrays)
        b = self._binding(arrays, given, lengths)
        self._alike(b)
        if lengths:
            blocks = {n: self._block(b, n, arrays[n]) for n in lengths}  # they live until the function is done
            arrays = {**arrays, **{n: b.placed(n, a) for n, a in blocks.items()}}
        into = {n: target_of(b.ports[n], out) for n in out or () if self._is_output(n)}
        start = time.perf_counter()
        run, saved = b.exchanges(self.comm), None
        if self.folder is None and (again := b.again) is not None:
            run.begin(None)
            with handling(run.exchange):
                status, results = _again(again, self.program, b, dict(arrays), into)
        else:
            dense = bind_arrays(self.program, b.ports, arrays)
            saved = self._checkpoints(b, dense)
            args, results = b.arguments(b.own if saved is None else {**b.own, **saved.begin()}, dense)
            code: Any = np.zeros((), np.int64)
            run.begin(None if saved is None else saved.call)
            with handling(run.exchange):
                self.kernel.run([*args, code])
            status = int(code)
        every = np.empty((self.ranks, 2), np.int64)
        self.comm.Allgather(np.array((status, run.bytes), np.int64), every)
        if worst := int(every[:, 0].max()):
            raise fault_of(worst, self.program)
        if self.local:
            results = {n: b.own_part(n, found) for n, found in results.items()}
        else:
            b.gather(self.comm, results)
        if saved is not None:
            saved.end()
        self._bound = b.params
        self._stats = Stats(
            {}, {}, self.ranks, self.rank, time.perf_counter() - start, self.compile_seconds, run.bytes,
            run.messages, int(every[:, 1].sum()), self._stats.cached, None if saved is None else saved.taken_up,
        )  # fmt: skip
        return results if self.local else {n: _result(b, n, found, into) for n, found in results.items()}

    def _is_output(self, name: str) -> bool:
        """That it is one.  Raises UplError (UPL1502)."""
        names = self.source.facts.outputs
        if name not in names:
            raise error("UPL1502", f"out[{name!r}]: there is no such output", help=nearest_or_all(str(name), [*names]))
        return True

    def _lengths(self, arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """How long the blocks of all ranks are, of each input that is given in blocks.  Raises UplError (UPL1503) on all."""
        out: dict[str, tuple[int, ...]] = {}
        for name, (axis, _) in self.plan.inputs.items():
            fields = len(self.plan.layouts[name].lower)
            mine = np.shape(arrays[name]) if name in arrays else ()
            every = np.empty((self.ranks, fields), np.int64)
            self.comm.Allgather(np.array(mine if len(mine) == fields else [-1] * fields, np.int64), every)
            if int(every.min()) < 0:
                rank = int(every.min(axis=1).argmin())
                raise error("UPL1503", f"`{name}`: rank {rank} gave no array with {fields} dimensions")
            for rank, shape in enumerate(every):
                if (np.delete(shape, axis) != np.delete(every[0], axis)).any():
                    found = f"found shape {(*map(int, shape),)} on rank {rank}, {(*map(int, every[0]),)} on rank 0"
                    raise error("UPL1503", f"`{name}`: expected blocks along axis {axis} of one array, {found}")
            out[name] = tuple(map(int, every[:, axis]))
        return out

    def _block(self, b: Binding, name: str, array: Any) -> Array:
        """A rank's block of an input, in its type.  Raises UplError (UPL1503, UPL1504)."""
        port, axis = b.ports[name], self.plan.inputs[name][0]
        if _shape(array, axis, port.shape[axis]) != port.shape:
            message = f"`{name}`: expected a block, along axis {axis}, of an array of shape {port.shape}"
            raise error("UPL1503", f"{message}; found shape {np.shape(array)}", port.span)
        return np.ascontiguousarray(cast_values(name, port.type, port.dtype, np.asarray(array), port.span))

    def _binding(
        self, arrays: Mapping[str, Any], given: Mapping[str, int], lengths: Mapping[str, tuple[int, ...]]
    ) -> Binding:
        """What follows from the sizes of a call.  Raises UplError (UPL15xx, UPL2105)."""
        if lengths:  # the shapes are those of the whole arrays
            whole = {n: _shape(arrays[n], self.plan.inputs[n][0], sum(found)) for n, found in lengths.items()}
            arrays = {n: np.broadcast_to(np.float64(0), whole[n]) if n in whole else a for n, a in arrays.items()}
        key = signature(arrays, given)
        key = None if key is None else (key, *lengths.items())
        found = None if key is None else self._known.get(key)
        if found is None:
            params = bind_parameters(self.program, arrays, given)
            if self._open:
                require_at(self.program, params, self._open)
            found = Binding(self.program, self.plan, self.kernel, params, self.real, (self.rank, self.ranks), lengths)
            if key is not None:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[key] = found
        return found

    def _checkpoints(self, b: Binding, dense: Mapping[str, Array]) -> Checkpoints | None:
        if self.folder is None:
            return None
        what = None
        if self.rank == 0:
            what = Identity.of(str(self.program), b.params, dense, self.options, states_digest(self.plan))
        return Checkpoints(self.comm, self.folder, self.every, self.plan.states, what, b.blocks)

    def _alike(self, b: Binding) -> None:
        """All ranks call with the same sizes.  Raises UplError (UPL2105)."""
        ends = np.array((b.digest, -b.digest), np.int64)
        self.comm.Allreduce(in_place(), ends, op=operator(Gather.MAX, "int64"))
        if ends[0] == -ends[1]:
            return
        for rank, other in enumerate(self.comm.allgather(b.params)):
            for name, value in other.items():
                if b.params.get(name) != value:
                    message = f"rank {rank} runs with {name}={value}, rank {self.rank} with {name}={b.params.get(name)}"
                    help_ = "give every rank whole arrays of the same shapes, and the same parameters"
                    raise error("UPL2105", message, span_of(self.program), help=help_)


def _shape(array: Any, axis: int, length: int) -> tuple[int, ...]:
    """The shape of an array of another length along an axis."""
    shape = np.shape(array)
    return (*shape[:axis], length, *shape[axis + 1 :])


def _again(
    again: Again, program: ProgramOp, b: Binding, arrays: dict[str, Any], into: dict[str, Array]
) -> tuple[int, dict[str, Array]]:
    """The status of a run and its results: on the caller's arrays where they serve, else on copies.  Raises UplError."""
    found = again.run(arrays, into or None)
    if found is None:
        check_names(program, arrays)
        fitting = {n: a for n, a in arrays.items() if in_place_of(a, b.ports[n])}
        inputs = [b.ports[op.symbol] for op in all_inputs(program) if op.symbol not in fitting]
        found = again.run(fitting | dense_arrays(inputs, arrays), None)
    assert found is not None
    return (found, {}) if isinstance(found, int) else (0, found)


def _result(b: Binding, name: str, found: Array, into: Mapping[str, Array]) -> Array:
    """A result as the caller gets it."""
    if b.moved(name):
        found = found[b.part(name)]
        into = into if name in into else {name: np.empty(found.shape, found.dtype)}
    if name not in into or into[name] is found:
        return found
    into[name][...] = found
    return into[name]
