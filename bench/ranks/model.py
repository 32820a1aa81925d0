"""A model of a program on many ranks: what one rank computes is measured, what it sends is counted, messages are measured.

    seconds(R) = work of a rank of R + sum over its messages, one after the other, of what one of that size takes

The work is measured: two ranks both run the code of one rank, the one in the middle, with the blocks that it has among R,
and have an exchange of a few bytes in place of each of its own.  So replicated work, deep halos, waiting for each other, and
that two ranks share a machine's memory are in it.  The messages are counted: those of the exchanges, of the gathering of
whole results, and of what ranks agree on.  What one takes is measured between two ranks of this machine, between pieces of
work (`worker.py`).  For a network it is another number.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from upl_mlir.engines.mpi.binding import Binding
from upl_mlir.engines.mpi.boxes import Boxes, size_of
from upl_mlir.engines.mpi.engine import MpiEngine
from upl_mlir.engines.mpi.plan import Moved
from upl_mlir.engines.mpi.world import wait_for_messages
from upl_mlir.engines.native.outside import handling
from upl_mlir.host.arrays import bind_parameters

ROUNDS = 25
"""So often the work is measured at most."""
MOST_S = 1.0
"""Seconds that the rounds take, about."""
Network = Sequence[tuple[float, float]]
"""What an exchange of so many bytes with another rank takes: bytes, the least first, and seconds."""


def seconds_of(size: float, network: Network) -> float:
    """Seconds of an exchange: between those that were measured in proportion, beyond the largest one at its bandwidth."""
    (least, first), *_, (most, last) = network
    if size <= least:
        return first
    if size >= most:
        return last * size / most
    return float(np.interp(size, [n for n, _ in network], [s for _, s in network]))


@dataclass
class Part:
    """What one of `ranks` ranks does: seconds of work with `small` exchanges of a few bytes in it, and its messages, one
    after the other, by their bytes."""

    ranks: int
    seconds: float
    small: int = 0
    messages: Counter[float] = field(default_factory=Counter[float])

    def time(self, network: Network) -> float:
        """Seconds."""
        messages = sum(n * seconds_of(size, network) for size, n in self.messages.items())
        return self.seconds + messages - self.small * seconds_of(0, network)


def part(engine: MpiEngine, arrays: Mapping[str, Any], given: Mapping[str, int], ranks: int) -> Part | None:
    """What the rank in the middle does; None if there are more ranks than indices to divide.  Two ranks call it together."""
    params = bind_parameters(engine.program, arrays, given)
    b = Binding(engine.program, engine.plan, engine.kernel, params, engine.real, (ranks // 2, ranks))
    if any(b.own[x.first] > b.own[x.last] for x in engine.plan.blocks):
        return None
    again = b.again
    assert again is not None, "arrays are used as they are"
    out = Part(ranks, math.inf)
    b.blocks.of = [dict(b.own)]  # boxes of this rank alone
    boxes = [Boxes(m, b.blocks) for m in engine.plan.moved]
    comm, nothing = engine.comm, np.zeros(8, np.uint8)
    other, into = 1 - comm.Get_rank(), np.zeros(8, np.uint8)
    began = time.perf_counter()
    for n in range(ROUNDS):

        def exchange(number: int, _address: int, variables: Any, counted: bool = n == 0) -> None:
            if counted:
                x = boxes[number]
                values = tuple(variables[i] for i in range(len(x.moved.variables)))
                found = _messages(x.moved, x.needed(values)[0], b.own, ranks)
                out.messages.update(found)
                out.small += bool(found)
            elif ranks > 1:
                wait_for_messages([comm.Irecv(into, other, 0), comm.Isend(nothing, other, 0)])

        comm.Barrier()
        start = time.perf_counter()
        with handling(exchange):
            results = again.run(dict(arrays))
        seconds = max(comm.allgather(time.perf_counter() - start))
        if n:  # the first one finds memory that was never used
            out.seconds = min(out.seconds, seconds)
        if comm.bcast(n > 2 and time.perf_counter() - began > MOST_S, root=0):
            break
        assert isinstance(results, dict)
        if ranks > 1 and n == 0:
            out.messages[0] += 2 * math.ceil(math.log2(ranks))  # that sizes agree, and that no rank met a fault
            for name in engine.plan.cut:
                out.messages[results[name].nbytes / ranks] += ranks - 1
    return out


def _messages(m: Moved, box: tuple[tuple[int, int], ...], own: Mapping[str, int], ranks: int) -> list[float]:
    """The messages of an exchange that come one after the other, in bytes."""
    width = np.dtype(m.dtype).itemsize
    size = size_of(box) * width
    if ranks == 1 or not size:
        return []
    if m.combined is not None:  # halves of halves to and fro, as in Rabenseifner's way
        return [size / 2**n for n in range(1, math.ceil(math.log2(ranks)) + 1) for _ in range(2)]
    assert m.block is not None
    low, high = box[m.at]
    first, last = own[m.block.first], own[m.block.last]
    if low == high:  # one rank sends it to all others
        return [size] * (ranks - 1)
    below, above = max(0, first - low), max(0, high - last)
    row, wide = size / (high - low + 1), max(1, last - first + 1)
    count = min(ranks - 1, math.ceil(below / wide) + math.ceil(above / wide))
    return [row * (below + above) / count] * count if count else []
