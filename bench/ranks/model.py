"""A model of a program on many ranks: what one rank computes is measured, what it sends is counted, messages have two costs.

    seconds(R) = work of a rank of R + messages * latency + bytes * seconds per byte

The work is measured here: the code of one rank, the one in the middle, runs alone with the blocks that it has among R, and
its exchanges are counted in place of being done.  So replicated work and deep halos are in it.  That ranks share a machine's
memory is not.  Latency and bandwidth are those of this machine (`worker.py`).  For a network they are other numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.engines.mpi.boxes import Blocks, Boxes, size_of
from upl_mlir.engines.mpi.engine import MpiEngine
from upl_mlir.engines.mpi.plan import Moved
from upl_mlir.engines.native.outside import handling
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports


@dataclass
class Part:
    """What one of `ranks` ranks does: seconds of work, messages one after the other, bytes that it receives."""

    ranks: int
    seconds: float
    messages: float = 0
    bytes: float = 0

    def time(self, latency: float, per_byte: float) -> float:
        """Seconds."""
        return self.seconds + self.messages * latency + self.bytes * per_byte


def part(engine: MpiEngine, arrays: Mapping[str, Any], given: Mapping[str, int], ranks: int, rounds: int = 3) -> Part | None:
    """What the rank in the middle does; None if there are more ranks than indices to divide."""
    params = bind_parameters(engine.program, arrays, given)
    context = poly_context(engine.program)
    blocks = Blocks(engine.plan.blocks, {**context.constants, **params}, ranks, context.read)
    own = blocks.of[ranks // 2]
    if any(own[b.first] > own[b.last] for b in engine.plan.blocks):
        return None
    ports = host_ports(engine.program, params, engine.real)
    dense = bind_arrays(engine.program, ports, arrays)
    layouts = {n: tuple(e.evaluate(own, context.read) for e in la.lower) for n, la in engine.plan.layouts.items()}
    out = Part(ranks, math.inf)
    blocks.of = [own]  # boxes of this rank alone
    boxes = [Boxes(m, blocks) for m in engine.plan.moved]
    results: dict[str, Any] = {}
    for n in range(rounds):
        args, results = engine.arguments(own, ports, dense, layouts, context.read)
        spent = 0.0

        def exchange(number: int, _address: int, variables: Any, counted: bool = n == 0) -> None:
            nonlocal spent
            start = time.perf_counter()
            if counted:
                b = boxes[number]
                values = tuple(variables[i] for i in range(len(b.moved.variables)))
                messages, size = _message(b.moved, b.needed(values)[0], own, ranks)
                out.messages += messages
                out.bytes += size
            spent += time.perf_counter() - start

        start = time.perf_counter()
        with handling(exchange):
            engine.kernel.run([*args, np.zeros((), np.int64)])
        out.seconds = min(out.seconds, time.perf_counter() - start - spent)
    if ranks > 1:
        whole = sum(results[n].nbytes for n in engine.plan.cut)
        out.bytes += whole
        out.messages += ranks * len(engine.plan.cut)
    return out


def _message(m: Moved, box: tuple[tuple[int, int], ...], own: Mapping[str, int], ranks: int) -> tuple[float, float]:
    """Messages one after the other of an exchange, and the bytes that a rank receives."""
    width = np.dtype(m.dtype).itemsize
    if ranks == 1 or not size_of(box):
        return 0, 0
    if m.combined is not None:  # half of the elements to and fro in each of log2(R) steps, as in Rabenseifner's way
        return math.ceil(math.log2(ranks)), 2 * size_of(box) * width * (ranks - 1) / ranks
    assert m.block is not None
    low, high = box[m.at]
    first, last = own[m.block.first], own[m.block.last]
    missing = max(0, high - low + 1) - max(0, min(high, last) - max(low, first) + 1)
    size = size_of(box) / max(1, high - low + 1) * missing * width
    if low == high:  # one rank sends it to all others
        return ranks - 1, size if missing else size_of(box) * width
    wide = max(1, last - first + 1)
    return min(ranks - 1, math.ceil(max(0, first - low) / wide) + math.ceil(max(0, high - last) / wide)), size
