"""Kernels in the form of courses on code generation: an output is often what it was plus something, and is no input.

Each case has its loops as a person writes them, which change arrays in place.  On float32 they have every rounding of the
C++; on complex numbers they give the derivatives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend import einsum

Arrays = dict[str, Any]
Loops = Callable[[Arrays], None]


@dataclass(frozen=True)
class CourseCase:
    """A case: names are separated by spaces, `updated` are the outputs whose old contents are read.

    `grad_loops` put d<tensor> into the arrays for each of `grad_to`, and find d<out> there.
    """

    name: str
    kernel: str
    ins: str
    outs: str
    shapes: Mapping[str, tuple[int, ...]]
    loops: Loops
    updated: str = ""
    grad_to: str = ""
    grad_loops: Loops | None = None

    def json(self) -> str:
        """The case as its JSON text."""
        case = {"name": self.name, "ins": self.ins.split(), "outs": self.outs.split(), "data_type": "float"}
        return json.dumps(case | {"kernel": self.kernel, "grad_to": self.grad_to.split()})

    @property
    def inputs(self) -> list[str]:
        """The inputs of the UPL program."""
        return [*self.ins.split(), *self.updated.split()]

    def arrays(self, seed: int) -> Arrays:
        """Random numbers for every tensor."""
        rng = np.random.default_rng(seed)
        return {n: rng.normal(size=s).astype(np.float32) for n, s in self.shapes.items()}

    def seeds(self, seed: int) -> Arrays:
        """Random weights d<out>."""
        rng = np.random.default_rng(seed)
        return {f"d{n}": rng.normal(size=self.shapes[n]).astype(np.float32) for n in self.outs.split()}

    def derivative(self, x: Arrays, seeds: Arrays, by: str) -> Any:
        """By complex steps on the loops."""
        out = np.zeros(self.shapes[by])
        for at in np.ndindex(*out.shape):
            z = {n: v.astype(complex) for n, v in x.items()}
            z[by][at] += 1e-30j
            self.loops(z)
            out[at] = sum((seeds[f"d{n}"] * z[n].imag).sum() for n in self.outs.split()) / 1e-30
        return out


def box(*extents: int) -> Any:
    """The points of a loop nest, the last index fastest."""
    return product(*map(range, extents))


# -- forward ---------------------------------------------------------------------------------------------------------
def copy(x: Arrays) -> None:
    for i, j in box(4, 6):
        x["A"][i, j] = x["B"][i, j]


def scale(x: Arrays) -> None:
    for i in range(7):
        x["A"][i] = x["a"][()] * x["B"][i] / x["A"].dtype.type(3)


def transpose_and_reshape(x: Arrays) -> None:
    for i, j in box(6, 4):
        x["T"][i, j] = x["B"][j, i]
    for i in range(24):
        x["R"][i] = x["B"][i // 6, i % 6]


def products(x: Arrays) -> None:
    for i, j in box(4, 3):
        x["P"][i, j] = x["B"][i] * x["C"][j]
    for i in range(4):
        x["E"][i] = x["B"][i] * x["D"][i]


def add_product(x: Arrays) -> None:
    for i, j, k in box(4, 5, 9):
        x["A"][i, j] += x["B"][i, k] * x["C"][k, j]


def gemm(x: Arrays) -> None:
    for i, j, k in box(4, 5, 9):
        x["A"][i, j] += x["alpha"][()] * (x["B"][i, k] * x["C"][k, j])
    for i, j in box(4, 5):
        x["A"][i, j] += x["beta"][()] * x["D"][i, j]


def two_reductions(x: Arrays) -> None:
    for i, j, k, m in box(3, 4, 7, 5):
        x["A"][i, j] += x["B"][i, k, m] * x["C"][k, j] * x["D"][m, j]


def convolution(x: Arrays) -> None:
    for n, k, p, q, c, r, s in box(1, 2, 3, 3, 4, 3, 3):
        x["A"][n, k, p, q] += x["B"][n, c, p + r, q + s] * x["C"][k, c, r, s]


def batched_and_matvec(x: Arrays) -> None:
    for b, i, j in box(2, 3, 4):
        x["A"][b, i, j] = 0
        for k in range(8):
            x["A"][b, i, j] += x["B"][b, i, k] * x["C"][b, k, j]
    for b, i in box(2, 3):
        x["y"][b, i] = 0
        for j in range(4):
            x["y"][b, i] += x["A"][b, i, j] * x["v"][j]


def shared_places(x: Arrays) -> None:
    old = {n: v.copy() for n, v in x.items()}
    for i, j in box(5, 6):
        x["A"][i, j] = old["A"][i + 1, j] + old["B"][i // 2, j % 4] * old["B"][i % 3, j // 2]
    for i in range(6):  # A's last row keeps what it held
        x["r"][i] = 0
        for j in range(6):
            x["r"][i] += x["A"][i, j]


def several_terms(x: Arrays) -> None:
    for i in range(4):
        s = x["B"].dtype.type(0)
        for k, m in box(6, 5):
            s += x["B"][i, k] * x["C"][k, m]
        for (m,) in box(5):
            s -= x["D"][i, m]
        s += x["b"][i]
        x["A"][i] = s
    s = x["L"][()]
    for i in range(4):
        s += x["A"][i] * x["A"][i]
    for k in range(6):
        s += x["e"][k]
    x["L"][()] = s


GEMM = (
    "A<4, 5>[i, j] = A<4, 5>[i, j] + alpha<1> * (B<4, 9>[i, k] * C<9, 5>[k, j]);\n"
    "A<4, 5>[i, j] = A<4, 5>[i, j] + beta<1> * D<4, 5>[i, j];"
)
CONVOLUTION = (
    "A<1, 2, 3, 3>[n, k, p, q] =\n"
    "    A<1, 2, 3, 3>[n, k, p, q] + B<1, 4, 5, 5>[n, c, p + r, q + s] * C<2, 4, 3, 3>[k, c, r, s];"
)

FORWARD = [
    CourseCase("copy", "A<4, 6>[i, j] = B<4, 6>[i, j];", "B", "A", {"A": (4, 6), "B": (4, 6)}, copy),
    CourseCase("scale", "A<7>[i] = a<1> * B<7>[i] / 3.0;", "a B", "A", {"A": (7,), "a": (), "B": (7,)}, scale),
    CourseCase(
        "transpose_and_reshape", "T<6, 4>[i, j] = B<4, 6>[j, i]; R<24>[i] = B<4, 6>[i // 6, i % 6];", "B", "T R",
        {"B": (4, 6), "T": (6, 4), "R": (24,)}, transpose_and_reshape,
    ),
    CourseCase(
        "products", "P<4, 3>[i, j] = B<4>[i] * C<3>[j]; E<4>[i] = B<4>[i] * D<4>[i];", "B C D", "P E",
        {"B": (4,), "C": (3,), "D": (4,), "P": (4, 3), "E": (4,)}, products,
    ),
    CourseCase(
        "add_product", "A<4, 5>[i, j] = A<4, 5>[i, j] + B<4, 9>[i, k] * C<9, 5>[k, j];", "B C", "A",
        {"B": (4, 9), "C": (9, 5), "A": (4, 5)}, add_product, "A",
    ),
    CourseCase(
        "gemm", GEMM, "B C D alpha beta", "A",
        {"B": (4, 9), "C": (9, 5), "D": (4, 5), "alpha": (), "beta": (), "A": (4, 5)}, gemm, "A",
    ),
    CourseCase(
        "two_reductions", "A<3, 4>[i, j] = A<3, 4>[i, j] + B<3, 7, 5>[i, k, m] * C<7, 4>[k, j] * D<5, 4>[m, j];",
        "B C D", "A", {"B": (3, 7, 5), "C": (7, 4), "D": (5, 4), "A": (3, 4)}, two_reductions, "A",
    ),
    CourseCase(
        "convolution", CONVOLUTION, "B C", "A", {"B": (1, 4, 5, 5), "C": (2, 4, 3, 3), "A": (1, 2, 3, 3)}, convolution, "A",
    ),
    CourseCase(
        "batched_and_matvec",
        "A<2, 3, 4>[b, i, j] = B<2, 3, 8>[b, i, k] * C<2, 8, 4>[b, k, j]; y<2, 3>[b, i] = A<2, 3, 4>[b, i, j] * v<4>[j];",
        "B C v", "A y", {"B": (2, 3, 8), "C": (2, 8, 4), "v": (4,), "A": (2, 3, 4), "y": (2, 3)}, batched_and_matvec,
    ),
    CourseCase(
        "shared_places",
        "A<6, 6>[i, j] = A<6, 6>[i + 1, j] + B<3, 4>[i // 2, j % 4] * B<3, 4>[i % 3, j // 2]; r<6>[i] = A<6, 6>[i, j];",
        "B", "A r", {"B": (3, 4), "A": (6, 6), "r": (6,)}, shared_places, "A",
    ),
    CourseCase(
        "several_terms",
        "A<4>[i] = B<4, 6>[i, k] * C<6, 5>[k, m] - D<4, 5>[i, m] + b<4>[i]; L<1> = L<1> + A<4>[i] * A<4>[i] + e<6>[k];",
        "B C D b e", "A L", {"B": (4, 6), "C": (6, 5), "D": (4, 5), "b": (4,), "e": (6,), "A": (4,), "L": ()},
        several_terms, "L",
    ),
]  # fmt: skip


# -- gradients -------------------------------------------------------------------------------------------------------
def affine(x: Arrays) -> None:
    for i in range(5):
        x["A"][i] = x["B"][i] * x["C"][i] + 1


def d_affine(x: Arrays) -> None:
    x["dB"], x["dC"] = x["dA"] * x["C"], x["dA"] * x["B"]


def square(x: Arrays) -> None:
    for i in range(5):
        x["A"][i] = x["A"][i] * x["A"][i] - x["B"][i]


def d_square(x: Arrays) -> None:
    x["dB"], x["dA"] = -x["dA"], 2 * x["dA"] * x["A"]


def times(x: Arrays) -> None:
    for i in range(5):
        x["A"][i] = x["A"][i] * x["B"][i]


def d_times(x: Arrays) -> None:
    x["dB"], x["dA"] = x["dA"] * x["A"], x["dA"] * x["B"]


def d_add_product(x: Arrays) -> None:
    x["dB"], x["dC"] = zeros(4, 9), zeros(9, 5)  # dA stays what it is
    for i, k, j in box(4, 9, 5):
        x["dB"][i, k] += x["dA"][i, j] * x["C"][k, j]
    for k, j, i in box(9, 5, 4):
        x["dC"][k, j] += x["dA"][i, j] * x["B"][i, k]


def d_gemm(x: Arrays) -> None:
    x["dB"], x["dalpha"], x["dbeta"] = zeros(4, 9), zeros(), zeros()
    for i, k, j in box(4, 9, 5):
        x["dB"][i, k] += x["dA"][i, j] * x["alpha"] * x["C"][k, j]
    for i, j, k in box(4, 5, 9):
        x["dalpha"][()] += x["dA"][i, j] * (x["B"][i, k] * x["C"][k, j])
    for i, j in box(4, 5):
        x["dbeta"][()] += x["dA"][i, j] * x["D"][i, j]


def d_two_reductions(x: Arrays) -> None:
    x["dB"], x["dD"] = zeros(3, 7, 5), zeros(5, 4)
    for i, k, m, j in box(3, 7, 5, 4):
        x["dB"][i, k, m] += x["dA"][i, j] * x["D"][m, j] * x["C"][k, j]
    for m, j, i, k in box(5, 4, 3, 7):
        x["dD"][m, j] += x["dA"][i, j] * (x["B"][i, k, m] * x["C"][k, j])


def d_convolution(x: Arrays) -> None:
    x["dB"], x["dC"] = zeros(1, 4, 5, 5), zeros(2, 4, 3, 3)
    for n, k, p, q, c, r, s in box(1, 2, 3, 3, 4, 3, 3):
        x["dB"][n, c, p + r, q + s] += x["dA"][n, k, p, q] * x["C"][k, c, r, s]
        x["dC"][k, c, r, s] += x["dA"][n, k, p, q] * x["B"][n, c, p + r, q + s]


def upsampled(x: Arrays) -> None:
    for i, j in box(4, 6):
        x["A"][i, j] = x["B"][i // 2, j // 2] * x["C"][j % 2]


def d_upsampled(x: Arrays) -> None:
    x["dB"], x["dC"] = zeros(2, 3), zeros(2)
    for i, j in box(4, 6):
        x["dB"][i // 2, j // 2] += x["dA"][i, j] * x["C"][j % 2]
        x["dC"][j % 2] += x["dA"][i, j] * x["B"][i // 2, j // 2]


def stencil(x: Arrays) -> None:
    for i, j in box(4, 3):
        x["A"][i, j] = (x["B"][i, j] + x["B"][i + 1, j] + x["B"][i + 2, j]) / x["A"].dtype.type(3)


def d_stencil(x: Arrays) -> None:
    x["dB"] = zeros(6, 3)
    for shift in range(3):
        for i, j in box(4, 3):
            x["dB"][i + shift, j] += x["dA"][i, j] / np.float32(3)


def reused(x: Arrays) -> None:
    for i in range(3):
        s = x["B"].dtype.type(0)
        for k in range(4):
            s += x["B"][i, k] * x["c"][k]
        for k in range(4):
            s += x["B"][i, k] * x["B"][i, k]
        x["A"][i] = s
    for i in range(3):
        for k in range(4):
            x["L"][()] -= x["A"][i] * x["B"][i, k]


def d_reused(x: Arrays) -> None:
    """What the last statement contributes comes first, and in a statement what its last sum does."""
    d_a, x["dB"], x["dc"] = zeros(3), zeros(3, 4), zeros(4)
    a = np.zeros(3, np.float32)
    for i in range(3):
        for k in range(4):
            a[i] += x["B"][i, k] * x["c"][k]
        for k in range(4):
            a[i] += x["B"][i, k] * x["B"][i, k]
    for i, k in box(3, 4):
        x["dB"][i, k] += -x["dL"] * a[i]
        d_a[i] += -x["dL"] * x["B"][i, k]
    for i, k in box(3, 4):
        x["dB"][i, k] += 2 * d_a[i] * x["B"][i, k]
    for i, k in box(3, 4):
        x["dB"][i, k] += d_a[i] * x["c"][k]
        x["dc"][k] += d_a[i] * x["B"][i, k]


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


LINES = {"A": (5,), "B": (5,)}
GRADIENTS = [
    CourseCase(
        "affine", "A<5>[i] = B<5>[i] * C<5>[i] + 1.0;", "B C", "A", LINES | {"C": (5,)}, affine, "", "B C", d_affine,
    ),
    CourseCase("square", "A<5>[i] = A<5>[i] * A<5>[i] - B<5>[i];", "B", "A", LINES, square, "A", "A B", d_square),
    CourseCase("times", "A<5>[i] = A<5>[i] * B<5>[i];", "B", "A", LINES, times, "A", "B A", d_times),
    replace(FORWARD[4], grad_to="A B C", grad_loops=d_add_product),
    replace(FORWARD[5], grad_to="B alpha beta", grad_loops=d_gemm),
    replace(FORWARD[6], grad_to="B D", grad_loops=d_two_reductions),
    replace(FORWARD[7], grad_to="B C", grad_loops=d_convolution),
    CourseCase(
        "upsampled", "A<4, 6>[i, j] = B<2, 3>[i // 2, j // 2] * C<2>[j % 2];", "B C", "A",
        {"A": (4, 6), "B": (2, 3), "C": (2,)}, upsampled, "", "B C", d_upsampled,
    ),
    CourseCase(
        "stencil", "A<4, 3>[i, j] = (B<6, 3>[i, j] + B<6, 3>[i + 1, j] + B<6, 3>[i + 2, j]) / 3.0;", "B", "A",
        {"A": (4, 3), "B": (6, 3)}, stencil, "", "B", d_stencil,
    ),
    CourseCase(
        "reused",
        "A<3>[i] = B<3, 4>[i, k] * c<4>[k] + B<3, 4>[i, k] * B<3, 4>[i, k]; L<1> = L<1> - A<3>[i] * B<3, 4>[i, k];",
        "B c", "L", {"A": (3,), "B": (3, 4), "c": (4,), "L": ()}, reused, "L", "B c L", d_reused,
    ),
]  # fmt: skip


# -- tests -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory, compile_texts: Any) -> Arrays:
    """The compiled functions by case and by whether they are gradients."""
    cases = [*((c, False) for c in FORWARD), *((c, True) for c in GRADIENTS)]
    texts = [einsum.cpp_of(einsum.read(c.json()), grad=grad) for c, grad in cases]
    made = compile_texts(texts, tmp_path_factory.mktemp("course"))
    return {f"{c.name} {grad}": f for (c, grad), f in zip(cases, made, strict=True)}


@pytest.mark.parametrize("case", FORWARD, ids=lambda c: c.name)
def test_values_are_those_of_loops(case: CourseCase, functions: Arrays) -> None:
    x = case.arrays(1)
    want = {n: v.copy() for n, v in x.items()}
    case.loops(want)
    f, given = functions[f"{case.name} False"], {n: x[n] for n in case.inputs}  # what else there is starts as NaN
    assert f.parameters == (*case.ins.split(), *case.outs.split())
    got = f(**given)
    for n, v in want.items():
        np.testing.assert_array_equal(got[n], v, err_msg=n)
    p = upl.load(str(einsum.load(case.json())))
    assert p.check().ok
    for engine in ("interp", "native"):
        out = upl.compile(p, engine=engine, gather="ordered")(**given)
        for n in case.outs.split():
            np.testing.assert_array_equal(out[f"{n}_out" if n in case.inputs else n], want[n], err_msg=f"{engine} {n}")


@pytest.mark.parametrize("case", GRADIENTS, ids=lambda c: c.name)
def test_gradients_are_those_of_loops(case: CourseCase, functions: Arrays) -> None:
    x, seeds = case.arrays(2), case.seeds(3)
    assert case.grad_loops is not None
    by, want = case.grad_to.split(), {n: v.copy() for n, v in (x | seeds).items()}
    case.grad_loops(want)
    f = functions[f"{case.name} True"]
    got = f(**{n: x[n] for n in case.inputs if n in f.parameters}, **seeds)
    g = einsum.read(case.json()).gradient()
    weights = {g.seeds[n]: seeds[f"d{n}"] for n in case.outs.split()}
    out = upl.compile(g.program, gather="ordered")(**{n: x[n] for n in case.inputs}, **weights)
    for n in by:
        np.testing.assert_allclose(got[f"d{n}"], case.derivative(x, seeds, n), rtol=1e-4, atol=1e-5, err_msg=n)
        np.testing.assert_array_equal(got[f"d{n}"], want[f"d{n}"], err_msg=n)
        np.testing.assert_array_equal(out[g.derivatives[n]], want[f"d{n}"], err_msg=n)
