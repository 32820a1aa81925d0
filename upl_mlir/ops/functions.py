"""Elementary functions of reals, one row each: all parts of the compiler take what they must know of one from its row.

A new function is a new row and its tests: it then stands in `.upl` text, in the front ends, has its derivative in both
modes, and runs on all engines.  `test/ops` lists what rows leave out, and which functions an engine has code of its own for.

A partial derivative is written for the general point.  It gets ``d`` (the derivative of the result in reverse mode, of
the operand in forward mode), the operands `a` and `b` and the result `o`, and gives ``d`` times the partial.  What it reads
decides which values of the forward sweep are kept: ``d * o`` keeps the exponential's result, ``d * a.call(math.ExpOp)``
computes it again.
"""

from __future__ import annotations

import math as py
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import math
from xdsl.ir import Attribute, Block, Operation, SSAValue

from upl_mlir.dialects.upl import SigmoidOp
from upl_mlir.ops.values import Body, Val

Partial = Callable[[Val, Val, Val, Val], Val]
"""(d, a, b, o) -> contribution; `b` is `a` for functions of one argument."""


@dataclass(frozen=True)
class Function:
    """A row.

    `name`: as C's library has it, in UPL's text too if it is `spoken`.
    `compute`: the meaning, in Python; may raise ValueError where there is no value and OverflowError where it is too large.
    `partials`: one for each operand; none if the function cannot be differentiated.
    `poles`: arguments of infinite results.  `odd`: an infinite result has the sign of the argument.
    `ufuncs`: the names in numpy and scipy.special.
    `machine`: the function in terms of others, for a machine that has no operation of its own for it.
    """

    name: str
    op: type[Operation]
    compute: Callable[..., float]
    partials: tuple[Partial, ...] = ()
    spoken: bool = False
    arity: int = 1
    poles: Mapping[float, float] = field(default_factory=dict[float, float])
    odd: bool = False
    ufuncs: tuple[str, ...] = ()
    machine: Callable[[Val], Val] | None = None


def total(f: Function) -> Callable[..., float]:
    """The function without exceptions, as IEEE has it: NaN outside its domain, infinite at poles and on overflow."""
    compute, poles, odd = f.compute, f.poles, f.odd

    def function(*args: float) -> float:
        try:
            return compute(*args)
        except ValueError:
            return poles.get(args[0], py.nan)
        except OverflowError:
            return py.copysign(py.inf, args[0]) if odd else py.inf

    return function


def _logistic(x: float) -> float:
    e = py.exp(-abs(x))  # at most 1: nothing overflows
    return (1.0 if x >= 0 else e) / (1.0 + e)


def expansion(f: Function, type_: Attribute) -> tuple[Block, SSAValue]:
    """A block that computes the function of its one argument by others, and the result in it."""
    assert f.machine is not None, f.name
    block = Block(arg_types=[type_])
    return block, f.machine(Body(block).val(block.args[0])).ssa


def _power_of_two(x: float) -> float:
    return py.pow(2.0, x)


def _log1p_by_log(x: Val) -> Val:
    """log(u) x/(u - 1) with u = 1 + x rounded: the two errors of u cancel (Kahan, in Higham 2002, section 1.14.1)."""
    u = x + 1.0
    quotient = u.call(math.LogOp) * (x / (u - 1.0))
    return x.where(u.compare("oeq", 1.0), u.where(u.compare("oeq", py.inf), quotient))


def _expm1_by_exp(x: Val) -> Val:
    """(u - 1) x/log(u) with u = exp(x) rounded, whose error cancels (Kahan, in Higham 2002, section 1.14.1)."""
    u = x.call(math.ExpOp)
    less = u - 1.0
    quotient = less * (x / u.call(math.LogOp))
    ends = less.where(less.compare("oeq", -1.0), u.where(u.compare("oeq", py.inf), quotient))
    return x.where(u.compare("oeq", 1.0), ends)


_AT_ZERO = {0.0: -py.inf}

FUNCTIONS: tuple[Function, ...] = (
    Function("sqrt", math.SqrtOp, py.sqrt, (lambda d, a, b, o: 0.5 * d / o,), spoken=True, ufuncs=("sqrt",)),
    Function("exp", math.ExpOp, py.exp, (lambda d, a, b, o: d * o,), spoken=True, ufuncs=("exp",)),
    Function("log", math.LogOp, py.log, (lambda d, a, b, o: d / a,), spoken=True, poles=_AT_ZERO, ufuncs=("log",)),
    Function("sin", math.SinOp, py.sin, (lambda d, a, b, o: d * a.call(math.CosOp),), spoken=True, ufuncs=("sin",)),
    Function("cos", math.CosOp, py.cos, (lambda d, a, b, o: -(d * a.call(math.SinOp)),), spoken=True, ufuncs=("cos",)),
    Function("tan", math.TanOp, py.tan, (lambda d, a, b, o: d * (o * o + 1.0),), spoken=True, ufuncs=("tan",)),
    Function("tanh", math.TanhOp, py.tanh, (lambda d, a, b, o: d * (1.0 - o * o),), spoken=True, ufuncs=("tanh",)),
    Function(
        "atan2", math.Atan2Op, py.atan2,
        (lambda d, a, b, o: d * b / (a * a + b * b), lambda d, a, b, o: -(d * a / (a * a + b * b))),
        spoken=True, arity=2, ufuncs=("arctan2",),
    ),
    Function(
        "erf", math.ErfOp, py.erf,
        (lambda d, a, b, o: d * (2.0 / py.sqrt(py.pi)) * (-(a * a)).call(math.ExpOp),), spoken=True, ufuncs=("erf",),
    ),
    Function("sigmoid", SigmoidOp, _logistic, (lambda d, a, b, o: d * (o * (1.0 - o)),), spoken=True, ufuncs=("expit",)),
    Function(
        "log1p", math.Log1pOp, py.log1p, (lambda d, a, b, o: d / (a + 1.0),),
        spoken=True, poles={-1.0: -py.inf}, ufuncs=("log1p",), machine=_log1p_by_log,
    ),
    Function(
        "expm1", math.ExpM1Op, py.expm1, (lambda d, a, b, o: d * (o + 1.0),),
        spoken=True, ufuncs=("expm1",), machine=_expm1_by_exp,
    ),
    # known in MLIR's text alone
    Function("exp2", math.Exp2Op, _power_of_two),
    Function("log2", math.Log2Op, py.log2, poles=_AT_ZERO),
    Function("log10", math.Log10Op, py.log10, poles=_AT_ZERO),
    Function("cbrt", math.CbrtOp, py.cbrt),
    Function("asin", math.AsinOp, py.asin),
    Function("acos", math.AcosOp, py.acos),
    Function("atan", math.AtanOp, py.atan),
    Function("sinh", math.SinhOp, py.sinh, odd=True),
    Function("cosh", math.CoshOp, py.cosh),
    Function("asinh", math.AsinhOp, py.asinh),
    Function("acosh", math.AcoshOp, py.acosh),
    Function("atanh", math.AtanhOp, py.atanh, poles={1.0: py.inf, -1.0: -py.inf}),
)  # fmt: skip

BY_OP: Mapping[type[Operation], Function] = {f.op: f for f in FUNCTIONS}
SPOKEN: Mapping[str, Function] = {f.name: f for f in FUNCTIONS if f.spoken}
"""The functions of UPL's text, by name."""
TWO_ARGUMENTS = ("pow", *(f.name for f in FUNCTIONS if f.arity == 2))
"""Functions of C's library with two arguments."""
