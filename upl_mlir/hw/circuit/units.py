"""The units of circuits by the operation of a body."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add, and_, eq, ge, gt, le, lt, mul, ne, or_, sub, xor
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value

from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.fp.angles import Cosine, Sine
from upl_mlir.hw.fp.by_constant import DivideByConstant, ScaleByPowerOfTwo
from upl_mlir.hw.fp.conversions import Comparer
from upl_mlir.hw.fp.digits import Divider, SquareRoot
from upl_mlir.hw.fp.functions import Exponential, Function, HyperbolicTangent, Logarithm, Logistic
from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.fp.truths import Combined, Mask
from upl_mlir.passes.circuit.body import INTEGER, INTEGER_TESTS
from upl_mlir.passes.circuit.numbers import Numbers

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
INTEGERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "int_add": add, "int_sub": sub, "int_mul": mul,
    "int_min": lambda a, b: Mux(a.as_signed() < b.as_signed(), a, b),
    "int_max": lambda a, b: Mux(a.as_signed() < b.as_signed(), b, a),
}  # fmt: skip
"""Operations on integers that fit a word, as does the result."""
TESTS: Sequence[Callable[[Any, Any], Any]] = (eq, ne, lt, le, gt, ge)
"""Comparisons of integers, in the order of `INTEGER_TESTS`."""


class Units:
    """The units of a circuit whose reals are floating-point numbers of a format."""

    def __init__(self, numbers: Numbers, latency: Mapping[str, int], target: Target):
        self.width, self.latency, self.target = numbers.width, latency, target
        self.format = Format(numbers.width - numbers.precision, numbers.precision - 1)

    def wires(self, kind: str, args: Sequence[Any]) -> Any | None:
        """The result of an operation that is wires only, else None."""
        match kind:
            case "neg":
                return Cat(args[0][:-1], ~args[0][-1])
            case "abs":
                return Cat(args[0][:-1], Const(0, 1))
            case "not":
                return ~args[0]
            case "int":
                return Cat(args[0], Const(0, INTEGER - 1))
            case "real":
                one = self.format.bias << self.format.mantissa
                return Const(one, self.width) & args[0].replicate(self.width)
            case _:
                return None

    def operands(self, kind: str, args: Sequence[Any]) -> Sequence[Any]:
        """What the unit of an operation takes: a difference is a sum."""
        return [args[0], Cat(args[1][:-1], ~args[1][-1])] if kind == "sub" else integers(kind, args)

    def unit(self, kind: str) -> Any:
        """A new unit for an operation, with the latency that the plan gives it; its operands are `a`, `b`, `c`."""
        operation, _, number = kind.partition(" ")
        latency, f, target = self.latency[operation], self.format, self.target
        match operation:
            case "add" | "sub":
                return Adder(f, latency, target=target)
            case "mul":
                return Multiplier(f, latency, target=target)
            case "div":
                return Divider(f, latency, target=target)
            case "sqrt":
                return SquareRoot(f, latency, target=target)
            case "exp" | "log" | "tanh" | "sigmoid" | "sin" | "cos":
                return FUNCTIONS[operation](f, latency, target=target)
            case "by":
                return DivideByConstant(f, int(number), latency)
            case "up" | "down":
                return ScaleByPowerOfTwo(f, int(number) * (1 if operation == "up" else -1), latency)
            case "min" | "max" | "compare":
                return Comparer(f, latency)
            case "mask":
                return Mask(f, latency)
            case _:
                return logic(kind, latency, self.width)

    def result(self, kind: str, made: Any) -> Value:
        """What an operation takes of its unit."""
        return result(kind, made)


def tested(predicate: str) -> Callable[[Any, Any], Any]:
    """A comparison of integers by its sign."""
    test = TESTS[INTEGER_TESTS.index(predicate)]

    def compute(a: Any, b: Any) -> Any:
        return test(a.as_signed(), b.as_signed())

    return compute


def integers(kind: str, args: Sequence[Any]) -> Sequence[Any]:
    """The operands of an operation on integers, each as wide as the unit."""
    if not kind.startswith("int_"):
        return args
    bits = int(kind.rpartition(" ")[2])
    return [a if len(a) == bits else Cat(a, a[-1].replicate(bits - len(a))) for a in args]


def logic(kind: str, latency: int, width: int) -> Any:
    """A unit of truth values or integers, or a choice between two words."""
    operation, _, more = kind.partition(" ")
    if operation in LOGIC:
        return Combined((1, 1), LOGIC[operation], latency)
    if operation in INTEGERS:
        return Combined((int(more),) * 2, INTEGERS[operation], latency)
    if operation == "int_compare":
        predicate, _, bits = more.partition(" ")
        return Combined((int(bits),) * 2, tested(predicate), latency, 1)
    assert operation == "choose", kind
    width = 1 if more else width
    return Combined((1, width, width), Mux, latency)


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
