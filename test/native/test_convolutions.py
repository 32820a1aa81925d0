"""Gradients of convolutions in native code: both forms of the sum over taps, and data that are not finite.

The gradient by the images is one product on a copy with zeros round it, where kernels are finite: 0 times infinity would
be a summand that the program does not have.
"""

from __future__ import annotations

import operator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects import arith, func
from xdsl.ir import SSAValue

import upl_mlir as upl
from upl_mlir.passes.loops.emit.boxes import GROWTH
from upl_mlir.passes.lower_to_loops import lower_to_loops

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "native" / "programs" / "convolution.upl"
Floats = NDArray[Any]
SIZES = [(2, 3, 4, 5), (1, 16, 9, 11), (3, 5, 8, 4), (2, 1, 1, 3), (1, 2, 3, 1), (2, 20, 17, 2), (5, 33, 40, 13)]
"""Images, channels in and out, extent of the result: padded and not, by vectors, tiles and plain loops, in several parts."""
NUMBERS = {"f64": (np.float64, 1e-12), "f32": (np.float32, 1e-4)}


@cache
def gradient() -> upl.Program:
    """Value and both gradients."""
    return upl.vjp(upl.load(PROGRAM.read_text(encoding="utf-8")), of="R", wrt=["X", "W"])


@cache
def native(real: Any = "f64", gather: Any = "relaxed", threads: int = 1) -> Any:
    """One compilation for all sizes."""
    return upl.compile(gradient(), engine="native", real=real, gather=gather, threads=threads)


def data(sizes: tuple[int, ...], dtype: Any = np.float64) -> dict[str, Floats]:
    n, c, k, o = sizes
    shapes = {"X": (n, c, o + 2, o + 2), "W": (k, c, 3, 3), "d_R": (n, k, o, o)}
    rng = np.random.default_rng(sum(sizes))
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def exact(X: Floats, W: Floats, d_R: Floats) -> dict[str, Floats]:
    """Tap by tap, so that no summand is there that the program does not have."""
    x, w, d = (a.astype(np.float64) for a in (X, W, d_R))
    o = d.shape[2]
    out = {"R": np.zeros_like(d), "d_X": np.zeros_like(x), "d_W": np.zeros_like(w)}
    with np.errstate(invalid="ignore"):
        for p in range(3):
            for q in range(3):
                window = (slice(None), slice(None), slice(p, p + o), slice(q, q + o))
                tap = w[:, :, p, q]
                for g in range(tap.shape[0]):  # by multiplications: a matrix product may add zeros of its own
                    out["R"][:, g] += (x[window] * tap[g][None, :, None, None]).sum(axis=1)
                    out["d_X"][window] += d[:, g][:, None] * tap[g][None, :, None, None]
                    out["d_W"][g, :, p, q] = (d[:, g][:, None] * x[window]).sum(axis=(0, 2, 3))
    return out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("real", NUMBERS)
def test_gradients_of_all_shapes(real: str, threads: int) -> None:
    dtype, tolerance = NUMBERS[real]
    for sizes in SIZES:
        given = data(sizes, dtype)
        found, expected = native(real, threads=threads)(**given), exact(**given)
        for name, value in expected.items():
            scale = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance * scale, err_msg=f"{name} {sizes}")


def test_kernels_that_count_channels_backwards() -> None:
    """Their places fall where those of the images rise."""
    text = PROGRAM.read_text(encoding="utf-8")
    backwards = text.replace("Mul.x<b,*,f,", "Mul.x<b,*,c-1-f,")
    assert backwards != text
    given = data((1, 16, 9, 6))
    expected = exact(given["X"], given["W"][:, ::-1], given["d_R"])["d_X"]
    program = upl.vjp(upl.load(backwards), of="R", wrt=["X"])
    found = upl.compile(program, engine="native")(**given)["d_X"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


PLACES = [
    ("W", (0, 0, 0, 0)),
    ("W", (-1, -1, 1, 2)),
    ("d_R", (0, 0, 0, 0)),
    ("d_R", (-1, -1, -1, 1)),
    ("X", (0, 0, 1, 1)),
]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("name", "place"), PLACES, ids=[f"{n}{''.join(map(str, p))}" for n, p in PLACES])
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1, 16, 9, 6)])
def test_what_is_not_finite_goes_where_the_program_sends_it(
    sizes: tuple[int, ...], name: str, place: tuple[int, ...], bad: float
) -> None:
    given = data(sizes)
    given[name][place] = bad
    found, expected = native()(**given), exact(**given)
    for port, value in expected.items():
        np.testing.assert_allclose(
            found[port], value, rtol=1e-9, atol=1e-9, err_msg=port
        )  # infinities and NaN in place
        assert np.isfinite(value).any() or port != "d_X", "a case that would not see a NaN too many"


def test_an_infinite_kernel_and_an_infinite_derivative_as_the_interpreter_has_them() -> None:
    given = data((2, 2, 3, 3))
    given["W"][1, 0, 2, 0] = np.inf
    given["d_R"][0, 1, 2, 2] = -np.inf
    given["d_R"][1, 2, 0, 1] = 0.0
    expected = upl.compile(gradient(), engine="interp")(**given)
    for gather in ("relaxed", "ordered"):
        found = native(gather=gather)(**given)
        for port, value in expected.items():
            np.testing.assert_allclose(found[port], value, rtol=1e-12, atol=1e-12, err_msg=port)


def test_ordered_sums_are_those_of_the_interpreter() -> None:
    """Bit for bit, though lanes run along channels and tiles are summed elsewhere."""
    given = data((1, 16, 9, 4))
    expected = upl.compile(gradient(), engine="interp", gather="ordered")(**given)
    found = native(gather="ordered")(**given)
    for port, value in expected.items():
        np.testing.assert_array_equal(found[port], value, err_msg=port)


def value(v: SSAValue, sizes: dict[str, int]) -> int:
    """What a program computes of its sizes."""
    if not isinstance(v.owner, arith.ConstantOp | arith.SignlessIntegerBinaryOperation):
        return sizes[v.name_hint or ""]
    if isinstance(v.owner, arith.ConstantOp):
        return int(v.owner.value.value.data)  # pyright: ignore
    compute: dict[type, Any] = {
        arith.AddiOp: operator.add, arith.SubiOp: operator.sub, arith.MuliOp: operator.mul, arith.MaxSIOp: max,
        arith.MinSIOp: min,
    }  # fmt: skip
    return compute[type(v.owner)](*(value(a, sizes) for a in v.owner.operands))


def test_which_images_are_worth_a_copy_with_zeros() -> None:
    """Those whose copy is not much larger: two zeros stand at each end of a row, and of a column."""
    module = lower_to_loops(upl.vjp(upl.load(PROGRAM.read_text(encoding="utf-8")), of="R", wrt=["X"]).op).module
    (f,) = (op for op in module.walk() if isinstance(op, func.FuncOp))
    (finite,) = (op for op in f.walk() if isinstance(op, arith.CmpfOp))
    (both,) = (use.operation for use in finite.result.uses)
    test = both.operands[0].owner
    assert isinstance(both, arith.AndIOp) and isinstance(test, arith.CmpiOp)
    for o in (1, 2, 3, 5, 100):
        copied, own = (value(v, {"n": 2, "c": 3, "k": 5, "o": o}) for v in test.operands)
        assert (copied, own) == ((o + 4) ** 2, o**2 * GROWTH)
