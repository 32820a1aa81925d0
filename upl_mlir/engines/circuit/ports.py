"""Arrays of a program's ports as arrays of its circuit's ports, which may be pieces of them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.passes.circuit.body import formula
from upl_mlir.passes.circuit.channels.orders import part_of
from upl_mlir.passes.circuit.process import Network
from upl_mlir.passes.loops.program import Host
from upl_mlir.poly.counts.dense import Box, bounding_box, mask
from upl_mlir.poly.expr import Formula

Array = NDArray[Any]


@dataclass(frozen=True)
class Ports:
    """Where the elements of a circuit's ports `hosts` are, found once for all runs.  All arrays are dense."""

    net: Network
    hosts: Mapping[str, Host]

    @staticmethod
    def inputs(net: Network) -> Ports:
        """The input ports of a circuit."""
        return Ports(net, net.inputs)

    @staticmethod
    def outputs(net: Network) -> Ports:
        """The output ports of a circuit."""
        return Ports(net, {n: d.host for n, d in net.outputs.items()})

    def pieces(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays of the circuit's ports, of those of the program's."""
        return {n: arrays[name][at] for n, (name, at, _) in self._parts.items()}

    def whole(self, arrays: Mapping[str, Array], elsewhere: Mapping[str, int] | None = None) -> dict[str, Array]:
        """The arrays of the program's ports, of those of the circuit's; `elsewhere`, or 0, where there is no element."""
        out: dict[str, Array] = {}
        for n, (name, at, shape) in self._parts.items():
            if name not in out:
                out[name] = np.full(shape, (elsewhere or {}).get(name, 0), arrays[n].dtype)
            out[name][at] = np.where(self._there[n], arrays[n], out[name][at])
        return out

    @cached_property
    def _parts(self) -> dict[str, tuple[str, tuple[int | slice, ...], tuple[int, ...]]]:
        """Of each port of the circuit the program's port, where its elements are in the array of that one, and its shape."""
        out: dict[str, tuple[str, tuple[int | slice, ...], tuple[int, ...]]] = {}
        for n, h in self.hosts.items():
            of = h.whole or h
            out[n] = of.name, part_of(self.net.sizes, h), self.box(of).shape
        return out

    @cached_property
    def _there(self) -> dict[str, NDArray[np.bool_]]:
        """Of each port of the circuit, which places of its bounding box have an element."""
        ctx = self.net.sizes.ctx
        return {n: mask(ctx, h.fields, _domain(h), self.box(h)) for n, h in self.hosts.items()}

    def box(self, h: Host) -> Box:
        """The bounding box of the elements of a port."""
        return bounding_box(self.net.sizes.ctx, h.fields, _domain(h))


def _domain(h: Host) -> Formula:
    return Formula.any(map(formula, h.cases))
