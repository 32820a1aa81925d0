"""The units of circuits by the operation of a body."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import and_, or_, xor
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value

from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.fp.angles import Cosine, Sine
from upl_mlir.hw.fp.by_constant import DivideByConstant, ScaleByPowerOfTwo
from upl_mlir.hw.fp.conversions import Comparer
from upl_mlir.hw.fp.digits import Divider, SquareRoot
from upl_mlir.hw.fp.functions import Exponential, Function, HyperbolicTangent, Logarithm, Logistic
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.fp.truths import Combined, Mask

BITS = BINARY32.bits
ONE = BINARY32.bias << BINARY32.mantissa
OUTCOMES = {
    "oeq": "e", "ogt": "g", "oge": "ge", "olt": "l", "ole": "le", "one": "gl", "ord": "gle", "ueq": "eu", "ugt": "gu",
    "uge": "geu", "ult": "lu", "ule": "leu", "une": "glu", "uno": "u",
}  # fmt: skip
"""When a comparison of reals, by its name in `arith.cmpf`, holds: equal, greater, less, unordered."""
FUNCTIONS: Mapping[str, type[Function]] = {
    "exp": Exponential, "log": Logarithm, "tanh": HyperbolicTangent, "sigmoid": Logistic, "sin": Sine,
    "cos": Cosine,
}  # fmt: skip
LOGIC: Mapping[str, Callable[[Any, Any], Any]] = {"and": and_, "or": or_, "xor": xor}


def wires(kind: str, args: Sequence[Any]) -> Any | None:
    """The result of an operation that is wires only, else None."""
    match kind:
        case "neg":
            return Cat(args[0][:-1], ~args[0][-1])
        case "abs":
            return Cat(args[0][:-1], Const(0, 1))
        case "not":
            return ~args[0]
        case "real":
            return Const(ONE, BITS) & args[0].replicate(BITS)
        case _:
            return None


def operands(kind: str, args: Sequence[Any]) -> list[Any]:
    """What an operation gives to its unit: a difference is a sum with the other sign."""
    return [args[0], Cat(args[1][:-1], ~args[1][-1])] if kind == "sub" else [*args]


def unit(kind: str, latencies: Mapping[str, int], target: Target) -> Any:
    """A new unit for an operation, with the latency that the plan gives it; its operands are `a`, `b`, `c`."""
    operation, _, number = kind.partition(" ")
    latency = latencies[operation]
    match operation:
        case "add" | "sub":
            return Adder(BINARY32, latency, target=target)
        case "mul":
            return Multiplier(BINARY32, latency, target=target)
        case "div":
            return Divider(BINARY32, latency, target=target)
        case "sqrt":
            return SquareRoot(BINARY32, latency, target=target)
        case "exp" | "log" | "tanh" | "sigmoid" | "sin" | "cos":
            return FUNCTIONS[operation](BINARY32, latency, target=target)
        case "by":
            return DivideByConstant(BINARY32, int(number), latency)
        case "up" | "down":
            return ScaleByPowerOfTwo(BINARY32, int(number) * (1 if operation == "up" else -1), latency)
        case "min" | "max" | "compare":
            return Comparer(BINARY32, latency)
        case "mask":
            return Mask(BINARY32, latency)
        case "and" | "or" | "xor":
            return Combined((1, 1), LOGIC[operation], latency)
        case "choose":
            width = 1 if number else BITS
            return Combined((1, width, width), Mux, latency)
        case _:
            raise AssertionError(kind)


def result(kind: str, made: Any) -> Value:
    """What an operation takes of its unit."""
    operation, _, predicate = kind.partition(" ")
    match operation:
        case "min":
            return made.least
        case "max":
            return made.greatest
        case "compare":
            greater = ~(made.equal | made.less | made.unordered)
            outcomes = {"e": made.equal, "g": greater, "l": made.less, "u": made.unordered}
            return Cat(*(outcomes[o] for o in OUTCOMES[predicate])).any()
        case _:
            return made.result
