"""The units of circuits by the operation of a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder, Multiplier

BITS = BINARY32.bits


def unit(kind: str, latencies: Mapping[str, int], target: Target) -> Any:
    """A new unit for an operation, with the latency that the plan gives it."""
    operation, _, number = kind.partition(" ")
    match operation:
        case "add" | "sub":
            return Adder(BINARY32, latencies[operation], target=target)
        case "mul":
            return Multiplier(BINARY32, latencies["mul"], target=target)
        case "div":
            from upl_mlir.hw.fp.by_constant import DivideByConstant

            return DivideByConstant(BINARY32, float(number), latencies["div"])
        case _:
            raise AssertionError(kind)
