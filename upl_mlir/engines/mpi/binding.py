"""What follows from the sizes of a run: the blocks of ranks, the exchanges, and the places of inputs and results.

Worked out for the first call of its kind, and kept for those like it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import poly_context, span_of
from upl_mlir.engines.mpi.boxes import Blocks
from upl_mlir.engines.mpi.plan import Plan
from upl_mlir.engines.mpi.routes import Exchanges
from upl_mlir.engines.mpi.world import wait_for_messages
from upl_mlir.engines.native.backend import Kernel
from upl_mlir.engines.native.call import Again, again_call
from upl_mlir.engines.native.outside import memory
from upl_mlir.host.arrays import HostPort, host_ports
from upl_mlir.passes.layouts import require_reach
from upl_mlir.passes.loops.program import Block
from upl_mlir.poly.expr import IndexExpr

Array = NDArray[Any]


@dataclass(frozen=True)
class Gathered:
    """A result of which each rank has a block: the axis along which it is cut, and where the blocks of all ranks lie."""

    axis: int
    blocks: tuple[slice, ...]

    def part(self, rank: int) -> tuple[slice, ...]:
        """The index of a rank's block."""
        return (slice(None),) * self.axis + (self.blocks[rank],)


class Binding:
    """A plan at the sizes of a run, for one rank of so many."""

    def __init__(
        self, program: ProgramOp, plan: Plan, kernel: Kernel, params: Mapping[str, int], real: Any, world: tuple[int, int],
        lengths: Mapping[str, Sequence[int]] | None = None,
    ):  # fmt: skip
        """`world` is the rank and the number of ranks, `lengths` how long the blocks are that ranks have of inputs."""
        self.plan, self.kernel, self.params = plan, kernel, dict(params)
        self.rank, self.ranks = world
        context = poly_context(program)
        self._read = context.read
        self.ports: dict[str, HostPort] = host_ports(program, params, real)
        self.starts: dict[str, int] = {}
        """Where the rank's blocks of inputs begin, for inputs in blocks."""
        starts = self._starts(lengths or {})
        self.blocks = Blocks(plan.blocks, {**context.constants, **params}, self.ranks, context.read, starts)
        self.own: Mapping[str, int] = self.blocks.of[self.rank]
        largest = {n: max(abs(of[n]) for of in self.blocks.of) for n in self.own}  # all ranks find the same
        require_reach([t.given(largest, but=params) for t in plan.reach], params, lambda: span_of(program))
        self.lower = {n: self._number(la.lower) for n, la in plan.layouts.items()}
        self.shape = {n: self._number(la.shape) for n, la in plan.layouts.items()}
        text = repr(sorted(self.params.items())).encode()
        self.digest = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
        """A number that tells bindings of different sizes apart."""

    def _starts(self, lengths: Mapping[str, Sequence[int]]) -> dict[Block, list[int]]:
        """Where the blocks of all ranks begin, by the lengths of inputs.  Raises UplError (UPL2105)."""
        out: dict[Block, list[int]] = {}
        by: dict[Block, str] = {}
        for name, found in lengths.items():
            axis, block = self.plan.inputs[name]
            port = self.ports[name]
            if axis < len(port.shape) and sum(found) != port.shape[axis]:
                message = f"`{name}`: the blocks have {sum(found)} indices together; expected {port.shape[axis]}"
                raise error("UPL1503", message, port.span)
            starts = [port.origin[axis] + sum(found[:r]) for r in range(self.ranks)]
            self.starts[name] = starts[self.rank]
            if out.setdefault(block, starts)[1:] != starts[1:]:
                other = f"those of `{by[block]}`, to which they belong, at {out[block]}"
                message = f"the blocks of `{name}` begin at {starts}, {other}"
                raise error("UPL2105", message, self.ports[name].span, help="cut both at the same indices")
            by.setdefault(block, name)
        return out

    def _number(self, expressions: tuple[IndexExpr, ...]) -> tuple[int, ...]:
        return tuple(e.evaluate(self.own, self._read) for e in expressions)

    # -- places -------------------------------------------------------------------------------------------------------
    def room(self, name: str) -> tuple[int, ...]:
        """The shape of a port's array, as the function takes it: no less than the port's own."""
        part = self.part(name)
        return tuple(max(0, n, s.stop) for n, s in zip(self.shape[name], part, strict=True))

    def part(self, name: str) -> tuple[slice, ...]:
        """Where a port's elements lie in the array of the function."""
        port = self.ports[name]
        if 0 in port.shape:
            return tuple(slice(0, 0) for _ in port.shape)
        return tuple(slice(o - lo, o - lo + n) for o, lo, n in zip(port.origin, self.lower[name], port.shape, strict=True))

    def moved(self, name: str) -> bool:
        """Whether the function takes another array than the caller has."""
        port = self.ports[name]
        return not ((self.lower[name] == tuple(port.origin) or 0 in port.shape) and self.room(name) == tuple(port.shape))

    @cached_property
    def gathered(self) -> dict[str, Gathered]:
        """The results of which each rank has a block, by name: places in the array of the function."""
        out: dict[str, Gathered] = {}
        for name, (axis, b) in self.plan.cut.items():
            lower = self.lower[name][axis]
            owned = [self.blocks.owned(r, b) for r in range(self.ranks)]
            out[name] = Gathered(axis, tuple(slice(max(0, i - lower), max(0, k - lower + 1)) for i, k in owned))
        return out

    def placed(self, name: str, array: Array) -> Array:
        """A rank's block of an input, where the function looks for it in the whole array: of which the rest is not there.

        Rows lie side by side, so a block of them can stay where it is.  Other blocks are copied.
        """
        port, (axis, _) = self.ports[name], self.plan.inputs[name]
        before = self.starts[name] - port.origin[axis]
        if axis == 0 and array.size and self.again is not None:
            row = array.nbytes // array.shape[0]
            return memory(array.ctypes.data - before * row, port.shape, port.dtype)
        whole = np.empty(port.shape, port.dtype)
        whole[(slice(None),) * axis + (slice(before, before + array.shape[axis]),)] = array
        return whole

    @cached_property
    def again(self) -> Again | None:
        """What runs the function on arrays of the caller's; None where arrays have to be moved."""
        names = [a.name for a in self.kernel.arguments[len(self.plan.params) : -1]]
        if any(map(self.moved, names)):
            return None
        written = {a.name for a in self.kernel.arguments[:-1] if a.written}
        inputs = [(n, self.ports[n].shape) for n in names if n not in written]
        outputs = [(n, self.ports[n].shape, self.ports[n].dtype) for n in names if n in written]
        return again_call(self.kernel.run, [int(self.own[p]) for p in self.plan.params], inputs, outputs)

    def arguments(self, own: Mapping[str, int], dense: Mapping[str, Array]) -> tuple[list[Any], dict[str, Array]]:
        """What the code of a rank with parameters `own` is called with, the status apart, and the arrays of its results."""
        args: list[Any] = [int(own[p]) for p in self.plan.params]
        results: dict[str, Array] = {}
        for a in self.kernel.arguments[len(args) : -1]:
            port = self.ports[a.name]
            if a.name not in dense:
                results[a.name] = np.zeros(self.room(a.name), port.dtype)
                args.append(results[a.name])
            elif self.moved(a.name):
                whole = np.zeros(self.room(a.name), port.dtype)
                whole[self.part(a.name)] = dense[a.name]
                args.append(whole)
            else:
                args.append(dense[a.name])
        return args, results

    # -- what ranks do together ---------------------------------------------------------------------------------------
    def exchanges(self, comm: Any) -> Exchanges:
        """The exchanges of the rank, made once."""
        if self._exchanges is None:
            self._exchanges = Exchanges.of(comm, self.plan.moved, self.blocks)
        return self._exchanges

    _exchanges: Exchanges | None = None

    def own_part(self, name: str, array: Array) -> Array:
        """The rank's block of a result, of one that is not cut the whole; the array of the function may be larger."""
        own = list(self.part(name))
        if name in self.gathered:
            axis, mine = self.gathered[name].axis, self.gathered[name].blocks[self.rank]
            low = max(mine.start, own[axis].start)
            own[axis] = slice(low, max(low, min(mine.stop, own[axis].stop)))
        return array[tuple(own)].copy()

    def gather(self, comm: Any, results: Mapping[str, Array]) -> None:
        """Bring every rank the blocks of the others, each to its place."""
        requests: list[Any] = []
        apart: list[tuple[Array, tuple[slice, ...], Array]] = []
        for tag, (name, g) in enumerate(self.gathered.items()):
            array = results[name]
            mine = np.ascontiguousarray(array[g.part(self.rank)])
            for other in range(self.ranks):
                if other == self.rank:
                    continue
                part = array[g.part(other)]
                if part.size:
                    into = part if part.flags.c_contiguous else np.empty(part.shape, part.dtype)
                    requests.append(comm.Irecv(_bytes(into), other, tag))
                    if into is not part:
                        apart.append((array, g.part(other), into))
                if mine.size:
                    requests.append(comm.Isend(_bytes(mine), other, tag))
        wait_for_messages(requests)
        for array, at, found in apart:
            array[at] = found


def _bytes(a: Array) -> Array:
    """The memory of a contiguous array."""
    return a.reshape(-1).view(np.uint8)
