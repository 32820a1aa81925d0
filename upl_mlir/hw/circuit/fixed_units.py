"""The units of circuits of fixed point by the operation of a body; and the units of any circuit."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value

from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.circuit.units import OUTCOMES, Units, integers, logic
from upl_mlir.hw.fp import saturating
from upl_mlir.hw.fp.saturating import FixedDivider, FixedMultiplier, FixedProduct, FixedSum
from upl_mlir.hw.fp.truths import Combined
from upl_mlir.numbers.formats import FixedFormat
from upl_mlir.passes.circuit.body import INTEGER
from upl_mlir.passes.circuit.numbers import Numbers

ONE_OPERAND: Mapping[str, Callable[[Any], Any]] = {"neg": saturating.negated, "abs": saturating.sized}
TWO_OPERANDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": saturating.added, "sub": saturating.subtracted,
    "min": lambda a, b: Mux(a.as_signed() < b.as_signed(), a, b),
    "max": lambda a, b: Mux(a.as_signed() < b.as_signed(), b, a),
}  # fmt: skip


class FixedUnits:
    """As `Units`, of a fixed-point type."""

    def __init__(self, numbers: Numbers, latency: Mapping[str, int], target: Target):
        assert numbers.fixed is not None
        self.format: FixedFormat = numbers.fixed
        self.width, self.latency, self.target = numbers.width, latency, target

    def wires(self, kind: str, args: Sequence[Any]) -> Any | None:
        """The result of an operation that is wires only, else None."""
        if kind == "not":
            return ~args[0]
        if kind == "int":
            return Cat(args[0], Const(0, INTEGER - 1))
        one = min(self.format.scale, self.format.greatest_step)
        return Const(one, self.width) & args[0].replicate(self.width) if kind == "real" else None

    def operands(self, kind: str, args: Sequence[Any]) -> Sequence[Any]:
        """What the unit of an operation takes."""
        return integers(kind, args)

    def unit(self, kind: str) -> Any:
        """A new unit for an operation, with the latency that the plan gives it; its operands are `a`, `b`, `c`."""
        operation, _, number = kind.partition(" ")
        latency, width = self.latency[operation], self.width
        match operation:
            case "mul":
                return FixedMultiplier(self.format, latency, self.target)
            case "product":
                return FixedProduct(self.format, latency, self.target)
            case "sum":
                return FixedSum(self.format, latency, self.target)
            case "div":
                return FixedDivider(self.format, latency)
            case "by":
                return FixedDivider(self.format, latency, int(float(number) * self.format.scale))
            case "up" | "down":
                move = saturating.moved_up if operation == "up" else saturating.moved_down
                return Combined((width,), partial(move, places=int(number)), latency)
            case "mask":
                return Combined((width, 1), masked, latency, width)
            case "compare":
                return Combined((width, width), compared(number), latency, 1)
            case _ if operation in ONE_OPERAND:
                return Combined((width,), ONE_OPERAND[operation], latency)
            case _ if operation in TWO_OPERANDS:
                return Combined((width, width), TWO_OPERANDS[operation], latency)
            case _:
                return logic(kind, latency, width)

    def result(self, kind: str, made: Any) -> Value:
        """What an operation takes of its unit."""
        return made.result


def masked(a: Any, b: Any) -> Any:
    """A number times a truth value."""
    return a & b.replicate(len(a))


def compared(predicate: str) -> Callable[[Any, Any], Any]:
    """A comparison by its name in `arith.cmpf`; nothing is unordered."""
    outcomes = OUTCOMES[predicate]

    def compute(a: Any, b: Any) -> Any:
        less, equal = a.as_signed() < b.as_signed(), a == b
        found = {"l": less, "e": equal, "g": ~(less | equal)}
        return Cat(*(found[o] for o in outcomes if o in found), Const(0, 1)).any()

    return compute


def units_of(numbers: Numbers, latency: Mapping[str, int], target: Target) -> Units | FixedUnits:
    """The units of a circuit."""
    return (Units if numbers.fixed is None else FixedUnits)(numbers, latency, target)
