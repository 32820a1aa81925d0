"""The units of circuits by the operation of a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.fp.by_constant import DivideByConstant, ScaleByPowerOfTwo
from upl_mlir.hw.fp.digits import Divider
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder, Multiplier

BITS = BINARY32.bits


def unit(kind: str, latencies: Mapping[str, int], target: Target) -> Any:
    """A new unit for an operation, with the latency that the plan gives it."""
    operation, _, number = kind.partition(" ")
    latency = latencies[operation]
    match operation:
        case "add" | "sub":
            return Adder(BINARY32, latency, target=target)
        case "mul":
            return Multiplier(BINARY32, latency, target=target)
        case "div":
            return Divider(BINARY32, latency, target=target)
        case "by":
            return DivideByConstant(BINARY32, int(number), latency)
        case "up" | "down":
            return ScaleByPowerOfTwo(BINARY32, int(number) * (1 if operation == "up" else -1), latency)
        case _:
            raise AssertionError(kind)
