"""The exchanges of the runs of one size: what goes where is worked out once, each run then only sends and receives.

An exchange has a *route* for each place that its box may have: the messages, and where in the array their elements lie.
Iterations whose boxes lie at the same place share a route: in an array that keeps two steps there are two for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.engines.mpi.boxes import Blocks, Box, Boxes, Memory, size_of
from upl_mlir.engines.mpi.plan import Moved
from upl_mlir.engines.mpi.world import buffer_at, in_place, operator, wait_for_messages
from upl_mlir.engines.native.outside import memory
from upl_mlir.poly.expr import IndexExpr, Var

Array = NDArray[Any]
MOST = 1 << 14
"""So many routes of an exchange are remembered. Chosen: some MB."""


@dataclass(frozen=True)
class Piece:
    """Elements of an array that a message has: those of a box; `offset` is where they begin, in bytes.

    `apart` is their index in numpy's manner; None if they lie side by side.
    """

    rank: int
    offset: int
    bytes: int
    apart: tuple[Any, ...] | None


@dataclass(frozen=True)
class Route:
    """The messages of an exchange, or the piece of a partial array that is combined."""

    sent: tuple[Piece, ...]
    received: tuple[Piece, ...]
    combined: Piece | None = None


NOTHING = Route((), ())


def key_of(moved: Moved) -> Callable[[Any], tuple[int, ...]]:
    """What decides the place of an exchange's box, as a function of the loops' variables.

    A variable that says which step is meant, of an array that keeps the last steps only, counts modulo their number.
    """
    names = moved.variables
    plain: set[str] = set()
    residues: list[tuple[tuple[tuple[int, int], ...], int]] = []
    axes = {a.at: a for a in moved.axes}
    for at, r in enumerate(moved.ranges):
        used = {n for e in (*r.lows, *r.highs) for n in e.names} & {*names}
        one = len(r.lows) == 1 and r.lows == r.highs
        axis = axes.get(at)
        factors = _factors(r.lows[0], names) if one else None
        cut = moved.block is not None and at == moved.at  # it says who owns the elements, too
        if one and axis is None and not cut:
            continue  # the array has no axis for it
        if not cut and axis is not None and axis.modulus is not None and factors is not None:
            residues.append((factors, axis.modulus))
        else:
            plain |= used
    numbers = [n for n, name in enumerate(names) if name in plain]

    def key(variables: Any) -> tuple[int, ...]:
        return (
            *[variables[n] for n in numbers], *[sum(k * variables[n] for n, k in f) % m for f, m in residues]
        )  # fmt: skip

    return key


def _factors(e: IndexExpr, names: Sequence[str]) -> tuple[tuple[int, int], ...] | None:
    """The factors of the loops' variables in an expression, by their numbers; None if it is not affine in them."""
    out: list[tuple[int, int]] = []
    for monomial, k in e.terms:
        if not IndexExpr(((monomial, 1),)).names & {*names}:
            continue
        if len(monomial) != 1 or not isinstance(monomial[0], Var) or int(k) != k:
            return None
        out.append((names.index(monomial[0].name), int(k)))
    return tuple(out)


class Routes:
    """One exchange of a rank."""

    def __init__(self, comm: Any, boxes: Boxes, own: Mapping[str, int], number: int):
        self.comm, self.rank, self.boxes, self.number = comm, int(comm.Get_rank()), boxes, number
        self.place = Memory(boxes.moved.axes, own, boxes.blocks.read)
        self.dtype = np.dtype(boxes.moved.dtype)
        self.key = key_of(boxes.moved)
        self._known: dict[tuple[int, ...], Route] = {}

    def route(self, variables: Any) -> Route:
        """The messages at values of the loops' variables."""
        key = self.key(variables)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[key] = self._found(tuple(variables[i] for i in range(len(self.boxes.moved.variables))))
        return found

    def _found(self, values: tuple[int, ...]) -> Route:
        if self.boxes.moved.combined is not None:
            box = self.boxes.needed(values)[self.rank]
            if not size_of(box) or self.comm.Get_size() == 1:
                return NOTHING
            return Route((), (), self._piece(self.rank, box))
        sent, received = self.boxes.messages(self.rank, values)
        if not sent and not received:
            return NOTHING
        return Route(
            tuple(self._piece(m.rank, m.box) for m in sent), tuple(self._piece(m.rank, m.box) for m in received)
        )  # fmt: skip

    def _piece(self, rank: int, box: Box) -> Piece:
        index = self.place.index(box)
        size = size_of(box) * self.dtype.itemsize
        offset = self.place.offset(index)
        return Piece(rank, 0 if offset is None else offset * self.dtype.itemsize, size, index if offset is None else None)

    def array(self, address: int) -> Array:
        """The array at an address."""
        return memory(address, self.place.shape, self.dtype)


@dataclass
class Exchanges:
    """The exchanges of a rank, for all runs of one size; bytes and messages are those that the rank has sent in one run."""

    comm: Any
    routes: list[Routes]
    bytes: int = 0
    messages: int = 0
    after: Callable[[int, int, int], None] | None = field(default=None, repr=False)
    """What answers calls with the numbers behind those of the exchanges: of checkpoints."""

    @classmethod
    def of(cls, comm: Any, moved: Sequence[Moved], blocks: Blocks) -> Exchanges:
        """Of a plan, for the calling rank."""
        own: Mapping[str, int] = blocks.of[int(comm.Get_rank())]
        return cls(comm, [Routes(comm, Boxes(m, blocks), own, n) for n, m in enumerate(moved)])

    def begin(self, after: Callable[[int, int, int], None] | None) -> None:
        """A new run."""
        self.bytes = self.messages = 0
        self.after = after

    def exchange(self, number: int, address: int, variables: Any) -> None:
        """One exchange: everything is sent and received before it ends; or an array for a checkpoint."""
        if number >= len(self.routes):
            assert self.after is not None
            self.after(number, address, variables[0])
            return
        routes = self.routes[number]
        route = routes.route(variables)
        if route.combined is not None:
            self._combine(routes, route.combined, address)
            return
        if route is NOTHING:
            return
        requests: list[Any] = []
        buffers: list[tuple[Any, Array]] = []
        for m in route.received:
            if m.apart is None:
                buffer = buffer_at(address + m.offset, m.bytes)
            else:
                buffer = np.empty(m.bytes, np.uint8)
                buffers.append((m.apart, buffer))
            requests.append(self.comm.Irecv(buffer, m.rank, number))
        for m in route.sent:
            if m.apart is None:
                buffer = buffer_at(address + m.offset, m.bytes)
            else:
                buffer = np.ascontiguousarray(routes.array(address)[m.apart])
            requests.append(self.comm.Isend(buffer, m.rank, number))
            self.bytes += m.bytes
            self.messages += 1
        wait_for_messages(requests)
        if buffers:
            array = routes.array(address)
            for at, buffer in buffers:
                into = array[at]
                array[at] = buffer.view(array.dtype).reshape(into.shape)

    def _combine(self, routes: Routes, m: Piece, address: int) -> None:
        """Combine the parts that the ranks have of the elements in a box, which is the same for all."""
        moved = routes.boxes.moved
        assert moved.combined is not None
        op = operator(moved.combined, moved.dtype)
        if m.apart is None:
            buffer = memory(address + m.offset, (m.bytes // routes.dtype.itemsize,), routes.dtype)
            self.comm.Allreduce(in_place(), buffer, op=op)
        else:
            array = routes.array(address)
            buffer = np.array(array[m.apart], order="C")
            self.comm.Allreduce(in_place(), buffer.reshape(-1), op=op)
            array[m.apart] = buffer
        self.bytes += m.bytes
        self.messages += 1
