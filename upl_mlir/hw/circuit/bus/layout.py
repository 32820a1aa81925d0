"""Arrays in memory, and in which bursts a port of a circuit passes over one.

An array lies row by row from the least indices, an element in each word of 32 bits.  The order of a port is a nest of
loops, in which an address is affine; loops that follow each other in memory are joined, and what is left of stride 1
innermost is cut into bursts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.passes.circuit.channels.inputs import Input
from upl_mlir.passes.circuit.channels.orders import elements, extents, part_of
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.nest import Dim
from upl_mlir.passes.circuit.plan import Plan, lanes_of
from upl_mlir.passes.loops.program import Host

BYTES = 4
"""Of a word."""
MOST_WORDS = 1 << 30
"""That an address of 32 bits reaches."""
BURST = 16
"""Words of a burst unless told: 64 bytes, those of a burst of a 64-bit DDR3 memory. Chosen, not measured."""
MOST_BURST = 256
"""Words of a burst: a queue of two such bursts fills a block RAM of an ECP5, 512 words of 36 bits. Chosen."""


class Array(NamedTuple):
    """A port of the program in memory: the ranges of its fields, and how many words apart neighbours along each are."""

    name: str
    output: bool
    dims: tuple[Dim, ...]
    strides: tuple[int, ...]

    @property
    def words(self) -> int:
        """From the first element to the last one, both included."""
        return 1 + sum((d.extent - 1) * s for d, s in zip(self.dims, self.strides, strict=True))


@dataclass(frozen=True)
class Walk:
    """The bursts of a port in words from the array's first one: loops as numbers of values and strides, outermost first.

    A burst has `full` words, but the last one of each innermost loop `rest`.
    """

    offset: int
    loops: tuple[tuple[int, int], ...]
    full: int
    rest: int

    def bursts(self) -> Iterator[tuple[int, int]]:
        """First word and length of each burst."""
        for at in product(*(range(n) for n, _ in self.loops)):
            first = self.offset + sum(i * s for i, (_, s) in zip(at, self.loops, strict=True))
            last = not at or at[-1] == self.loops[-1][0] - 1
            yield first, self.rest if last else self.full


@dataclass(frozen=True)
class Memory:
    """The arrays of a program by name, inputs first, and how many words a burst has at most."""

    arrays: Mapping[str, Array]
    burst: int


def memory_of(plan: Plan, burst: int = BURST, shapes: Mapping[str, Sequence[int]] | None = None) -> Memory:
    """How a circuit's arrays lie in memory.  Those in `shapes` are tiles of an array of that shape.

    Raises UplError UPL2004 for a burst or a shape that cannot be.
    """
    if not 1 <= burst <= MOST_BURST:
        raise error("UPL2004", f"burst={burst}: expected 1 to {MOST_BURST}")
    shapes = shapes or {}
    out: dict[str, Array] = {}
    for h in (*plan.network.inputs.values(), *(d.host for d in plan.network.outputs.values())):
        whole = h.whole or h
        dims = elements(plan.network.sizes, whole)
        own = [d.extent for d in dims]
        shape = shapes.get(whole.name, own)
        if len(shape) != len(own) or any(n < least for n, least in zip(shape, own, strict=False)):
            least = "x".join(map(str, own))
            raise error("UPL2004", f"{whole.name}={'x'.join(map(str, shape))}: expected at least {least or 'no number'}")
        strides = tuple(prod(shape[k + 1 :]) for k in range(len(shape)))
        out[whole.name] = Array(whole.name, h.output, dims, strides)
        if out[whole.name].words > MOST_WORDS:
            raise error("UPL2004", f"`{whole.name}` takes {out[whole.name].words} words: expected at most {MOST_WORDS}")
    for name in shapes:
        if name not in out:
            raise error("UPL2004", f"{name}: expected one of {', '.join(out)}", help=nearest_or_all(name, out))
    return Memory(out, burst)


def host_of(plan: Plan, port: Input | Output) -> Host:
    """The host port, or the piece of one, that a port of a circuit is."""
    net = plan.network
    return net.inputs[port.name] if isinstance(port, Input) else net.outputs[port.name].host


def walk(plan: Plan, port: Input | Output, memory: Memory) -> Walk:
    """The bursts of a port."""
    h, most = host_of(plan, port), memory.burst
    array = memory.arrays[(h.whole or h).name]
    offset, strides = 0, list[int]()
    for at, stride in zip(part_of(plan.network.sizes, h), array.strides, strict=True):
        if isinstance(at, slice):
            offset += at.start * stride
            strides.append(stride)
        else:
            offset += at * stride
    by_field = dict(zip(h.fields, strides, strict=True))
    lanes = lanes_of(port)
    sizes = extents(port.dims, port.order, lanes)
    loops = [(n, by_field[a.field] * (lanes if a.part == "block" else 1)) for a, n in zip(port.order, sizes, strict=True)]
    joined = _joined(loops)
    run = 1
    if joined and joined[-1][1] == 1:
        run = joined.pop()[0]
        if run > most:
            joined.append((-(-run // most), most))
    return Walk(offset, tuple(joined), min(run, most), (run - 1) % most + 1)


def _joined(loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Loops of more than one value; one that goes on where the next inner one ends is one loop with it."""
    out: list[tuple[int, int]] = []
    for n, stride in loops:
        if n == 1:
            continue
        if out and out[-1][1] == n * stride:
            out[-1] = (out[-1][0] * n, stride)
        else:
            out.append((n, stride))
    return out
