"""The functions of the core: their bounds on dense samples, special values, and the core itself against the model."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.code.evaluate import evaluate, fma
from upl_mlir.hw.core.code.functions import FUNCTIONS, LIMIT, Bits, lines_of
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.fp import model
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, layout_fields
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.microcode import Instruction, Op, Send, ToHost, ValueType
from upl_mlir.hw.results import HostToken

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ulps import any_bits, sigmoid, units

F32 = ValueType.F32
MACHINE = Machine(matching=Matching(organisation=Organisation.HASHED, spill_capacity=1023))
SPECIAL = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-126, 3.4e38, -3.4e38, 0.5, 2, -2, 3, -3,
                    2.5, 1e-20, 1e20, 1e5, -1e5], np.float32)  # fmt: skip
SAMPLES = 60_000


REFERENCE: dict[Op, Callable[..., Any]] = {
    Op.EXP_F32: np.exp, Op.LOG_F32: np.log, Op.SIN_F32: np.sin, Op.COS_F32: np.cos, Op.TAN_F32: np.tan,
    Op.TANH_F32: np.tanh, Op.SIGMOID_F32: sigmoid, Op.ERF_F32: np.vectorize(math.erf, otypes=[np.float64]),
    Op.ATAN2_F32: np.arctan2, Op.POW_F32: np.power,
}  # fmt: skip
"""In binary64, whose errors are some 1e-9 of the units that are counted here."""
AROUND: dict[Op, list[tuple[tuple[float, float], ...]]] = {
    Op.EXP_F32: [((-105, 90),), ((-1, 1),)],
    Op.LOG_F32: [((0, 4),), ((0.6, 1.4),)],
    Op.SIN_F32: [((-10, 10),), ((-LIMIT, LIMIT),)],
    Op.COS_F32: [((-10, 10),), ((-LIMIT, LIMIT),)],
    Op.TAN_F32: [((-10, 10),), ((-LIMIT, LIMIT),)],
    Op.TANH_F32: [((-10, 10),), ((-1, 1),)],
    Op.SIGMOID_F32: [((-105, 20),), ((-5, 5),)],
    Op.ERF_F32: [((-5, 5),), ((-1.2, 1.2),)],
    Op.ATAN2_F32: [((-4, 4), (-4, 4)), ((0, 1e-30), (-1, 1))],
    Op.POW_F32: [((0, 4), (-30, 30)), ((0.99, 1.01), (-8000, 8000)), ((1e-30, 1e30), (-2, 2))],
}
"""Where the functions are sampled evenly, one range an argument."""


def exact(op: Op, *arguments: Any) -> Any:
    """What should come out; sin, cos and tan are NaN beyond their range."""
    with np.errstate(all="ignore"):
        wanted = REFERENCE[op](*(a.astype(np.float64) for a in arguments))
        if op in (Op.SIN_F32, Op.COS_F32, Op.TAN_F32):
            return np.where(np.abs(arguments[0]) < LIMIT, wanted, np.nan)
        return wanted


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.value)
def test_the_bounds(op: Op) -> None:
    """On numbers with any bits, and evenly over ranges. The bound is not far from what is found."""
    rng = np.random.default_rng(1)
    samples = [tuple(any_bits(rng, SAMPLES) for _ in range(FUNCTIONS[op].arguments))]
    for ranges in AROUND[op]:
        samples.append(tuple(rng.uniform(low, high, SAMPLES).astype(np.float32) for low, high in ranges))
    worst = 0.0
    for arguments in samples:
        errors = units(evaluate(op, *arguments), exact(op, *arguments))
        at = int(errors.argmax())
        assert errors[at] <= FUNCTIONS[op].ulp, [float(a[at]) for a in arguments]
        worst = max(worst, float(errors[at]))
    assert worst > 0.5 * FUNCTIONS[op].ulp


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.value)
def test_special_values(op: Op) -> None:
    """Zeros, infinities, NaN, subnormals: as C's functions, and every NaN is the canonical one."""
    grid = [a.ravel() for a in np.meshgrid(*[SPECIAL] * FUNCTIONS[op].arguments)]
    got, wanted = evaluate(op, *grid), exact(op, *grid)
    assert np.all(units(got, wanted) <= FUNCTIONS[op].ulp)
    assert set(got[np.isnan(got)].view(np.uint32)) <= {0x7FC00000}
    signs = np.signbit(got) == np.signbit(wanted)
    assert np.all(signs | np.isnan(got))


def test_a_wrong_coefficient_is_noticed() -> None:
    """The measure itself: one bit more in the exponent of one coefficient."""
    lines = list(lines_of(Op.EXP_F32))
    at = next(n for n, line in enumerate(lines) if getattr(line.b, "bits", 0) == 0x3F000000)
    lines[at] = replace(lines[at], b=Bits(0x3F000010))
    x = np.linspace(-1, 1, 1000).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__globals__, "lines_of", {Op.EXP_F32: tuple(lines)}.get)
        assert units(evaluate(Op.EXP_F32, x), np.exp(x.astype(np.float64))).max() > FUNCTIONS[Op.EXP_F32].ulp


def test_the_models_fused_multiply_add_is_exact() -> None:
    """The arrays' one against rationals, with sums that nearly cancel, subnormals, and ties."""
    rng = np.random.default_rng(2)
    a, b = any_bits(rng, 6000), any_bits(rng, 6000)
    with np.errstate(all="ignore"):
        product = (a * b).view(np.uint32)
    near = (product ^ np.uint32(1 << 31)) + rng.integers(0, 5, 6000).astype(np.uint32)
    small = rng.integers(-9, 10, (3, 2000)).astype(np.float32) * np.float32(2.0**-70)
    triples = [
        (a, b, any_bits(rng, 6000)), (a, b, near.view(np.float32)), (a, b, (near ^ np.uint32(1 << 31)).view(np.float32)),
        (small[0], small[1], small[2] * np.float32(2.0**-75)),
    ]  # fmt: skip
    for x, y, z in triples:
        with np.errstate(all="ignore"):
            got = [to_bits(v, F32) for v in fma(x, y, z)]
        words = [[int(w) for w in v.view(np.uint32)] for v in (x, y, z)]
        assert got == [model.fma(BINARY32, *t) for t in zip(*words, strict=True)]


def test_the_core_computes_what_the_model_does() -> None:
    """Some hundred vectors a function through the RTL, bit for bit."""
    rng = np.random.default_rng(3)
    nodes: list[Node] = []
    tokens: list[HostToken] = []
    given: list[list[Any]] = []
    for n, (op, function) in enumerate(FUNCTIONS.items()):
        arity = function.arguments
        body = [Instruction(i, Op.INPUT, (), i) for i in range(arity)]
        body += [Instruction(arity, Op.FIELD, (), 0), Instruction(arity + 1, op, tuple(range(arity)))]
        inputs = tuple(Input(name, F32) for name in "ab"[:arity])
        send = Send(ToHost(n), arity + 1, (arity,))
        nodes.append(Node(op.name.lower(), layout_fields([("i", 0, 511)]), inputs, tuple(body), (send,)))
        arguments = [
            np.concatenate([rng.permutation(SPECIAL), rng.uniform(-9, 9, 120).astype(np.float32), any_bits(rng, 120)])
            for _ in range(arity)
        ]
        given.append(arguments)
        for number, values in enumerate(zip(*arguments, strict=True)):
            tokens += [HostToken(n, place, (number,), float(v), 1) for place, v in enumerate(values)]
    outputs = tuple(HostOutput(node.name, ("i",), F32) for node in nodes)
    found = run_machine(ProgramImage("functions", tuple(nodes), outputs), MACHINE, tokens)
    got = {(o.output, o.index[0]): to_bits(o.value, F32) for o in found.outputs}
    for node, op, arguments in zip(nodes, FUNCTIONS, given, strict=True):
        wanted = [to_bits(v, F32) for v in evaluate(op, *arguments)]
        assert [got[node.name, n] for n in range(len(wanted))] == wanted, op
