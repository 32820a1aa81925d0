"""The C++ of a case: what its parameters are, what it does not read, names that C++ keeps for itself, large tensors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from upl_mlir.frontend import einsum


def cpp(kernel: str, ins: str, outs: str, grad_to: str = "", *, grad: bool = False, **more: Any) -> str:
    """The C++ of a kernel; lists of names are separated by spaces."""
    case = {"name": "f", "ins": ins.split(), "outs": outs.split(), "data_type": "float", "kernel": kernel}
    return einsum.cpp_of(einsum.read(json.dumps(case | {"grad_to": grad_to.split()} | more)), grad=grad)


def signature(text: str) -> str:
    """The line that declares the function."""
    found = re.search(r"^void .*$", text, re.MULTILINE)
    assert found is not None
    return found.group()


@pytest.mark.parametrize(
    ("kernel", "ins", "outs", "grad_to", "parameters"),
    [
        # a linear kernel: its derivative reads no input
        ("A<4>[i] = B<4>[i] * 2 + C<4>[i];", "B C", "A", "B C", "dA[4] dB[4] dC[4]"),
        # bilinear: the derivative by one operand reads the other
        ("A<4>[i] = B<4>[i] * C<4>[i];", "B C", "A", "B", "C[4] dA[4] dB[4]"),
        ("A<4>[i] = B<4>[i] * C<4>[i];", "B C", "A", "C B", "B[4] C[4] dA[4] dC[4] dB[4]"),
        # in the order of `ins`, whatever the order in the kernel
        ("A<4>[i] = C<4>[i] * B<4>[i] * x<1>;", "x B C", "A", "x", "B[4] C[4] dA[4] dx"),
        # several results; one of them does not depend on what is differentiated by
        ("A<4>[i] = B<4>[i]; D<4>[i] = C<4>[i];", "B C", "A D", "B", "dA[4] dD[4] dB[4]"),
        # a tensor that is in `ins`, `outs` and `grad_to`: one parameter brings the seed and takes the derivative
        ("A<4>[i] = A<4>[i] * A<4>[3 - i];", "A", "A", "A", "A[4] dA[4]"),
    ],
)
def test_parameters_of_gradients(kernel: str, ins: str, outs: str, grad_to: str, parameters: str) -> None:
    want = ", ".join(
        f"float (&{n})[{size[:-1]}" + "]" if size else f"float &{n}"
        for n, _, size in (p.partition("[") for p in parameters.split())
    )
    assert signature(cpp(kernel, ins, outs, grad_to, grad=True)) == f"void f({want}) {{"


def test_parameters_of_values() -> None:
    text = cpp("A<2, 8>[i, j] = x<1> * A<2, 8>[i, j]; S<1> = A<2, 8>[i, j]; Z<3>[i] = U<3>[i] * 0;", "x A U", "A S Z")
    assert signature(text) == "void f(float &x, float (&A)[2][8], float (&U)[3], float &S, float (&Z)[3]) {"


def test_seed_and_derivative_in_one_place(compile_cpp: Any) -> None:
    f = compile_cpp(cpp("A<4>[i] = A<4>[i] * A<4>[3 - i];", "A", "A", "A", grad=True))
    a, d = np.array([1.0, 2, 3, 5]), np.array([1.0, -1, 2, 3])
    np.testing.assert_array_equal(f(A=a, dA=d)["dA"], d * a[::-1] + (d * a)[::-1])


def test_what_is_not_needed_is_not_read(compile_cpp: Any) -> None:
    """Unwritten memory is NaN here: a read of it would show, also one that is multiplied by 0 afterwards."""
    f = compile_cpp(cpp("A<4>[i] = B<6>[i + 1] * C<4>[i];", "B C", "A", "B C", grad=True))
    b, c, d = np.array([np.nan, 1, 2, 3, 4, np.nan]), np.arange(4.0), np.ones(4)
    out = f(B=b, C=c, dA=d)
    np.testing.assert_array_equal(out["dB"], [0, 0, 1, 2, 3, 0])
    np.testing.assert_array_equal(out["dC"], [1, 2, 3, 4])


def test_names_that_derivatives_would_have(compile_cpp: Any) -> None:
    """Inputs called as the seed and the derivative are, in C++ and in UPL: nothing is mixed up."""
    kernel = "A<4>[i] = B<4>[i] * dA<4>[i] * dB<4>[i] * d_A<4>[i] * d_B<4>[i];"
    text = cpp(kernel, "B dA dB d_A d_B", "A", "B dA", grad=True)
    f = compile_cpp(text)
    assert f.parameters == ("B", "dA", "dB", "d_A", "d_B", "dA_2", "dB_2", "ddA")
    values = dict(zip(f.parameters, np.random.default_rng(0).integers(1, 4, (6, 4)).astype(float), strict=False))
    out, rest = f(**values), values["dB"] * values["d_A"] * values["d_B"]
    np.testing.assert_array_equal(out["dB_2"], values["dA_2"] * values["dA"] * rest)
    np.testing.assert_array_equal(out["ddA"], values["dA_2"] * values["B"] * rest)


@pytest.mark.parametrize(
    "kernel", ["new<4>[int] = for<4>[int] * s<1>;", "std<4>[i] = f<4>[i]; new<4>[i] = std<4>[i] * s<1>;"]
)
def test_words_of_cpp_as_names(kernel: str, compile_cpp: Any) -> None:
    ins = "for s" if "for" in kernel else "f s"
    f = compile_cpp(cpp(kernel, ins, "new", name="float"))
    x = np.arange(4.0)
    got = f(**{f.parameters[0]: x, f.parameters[1]: 3.0})
    np.testing.assert_array_equal(got[f.parameters[-1]], 3 * x)


def test_large_tensors_of_its_own(compile_cpp: Any) -> None:
    """More than fits a stack: on the heap, and freed."""
    text = cpp(
        "T<700, 800>[i, j] = a<700>[i] * b<800>[j];\nU<700, 800>[i, j] = T<700, 800>[i, j] * T<700, 800>[699 - i, j];\n"
        "y<700>[i] = U<700, 800>[i, j] + T<700, 800>[i, j];",
        "a b", "y",
    )  # fmt: skip
    assert text.count("= new float") == text.count("delete[]") > 0
    assert not re.search(r"float \w+\[700\]\[800\];", text)
    a, b = np.arange(700.0) % 3, np.arange(800.0) % 2
    got = compile_cpp(text)(a=a, b=b)["y"]
    np.testing.assert_array_equal(got, a * a[::-1] * (b * b).sum() + a * b.sum())


def test_literals_have_the_data_type() -> None:
    text = cpp("A<4>[i] = B<4>[i] * 0.1 + 3 - B<4>[i] / 1e-10;", "B", "A")
    assert "B[i] * 0.1f + 3.0f - B[i] / 1e-10f;" in text
    text = cpp("A<4>[i] = B<4>[i] * 7 - 3;", "B", "A", data_type="int")
    assert "int (&B)[4]" in text and "A[i] = B[i] * 7 - 3;" in text


def test_one_of_two_places_needs_one_condition() -> None:
    text = cpp("A<8>[2*i] = B<4>[i]; A<8>[2*i + 1] = C<4>[i];", "B C", "A")
    assert "A[i0] = i0 % 2 == 0 ? B[i0 / 2] : C[" in text


def test_divisions_of_indices_need_no_function() -> None:
    """C++ cuts off towards 0: numerators are made positive by multiples of the divisor."""
    text = cpp("A<5>[i] = B<3>[(i - 3)//2 + 2] * C<3>[(i - 4)%3];", "B C", "A")
    assert "A[i] = B[(i + 1) / 2] * C[(i + 2) % 3];" in text and "upl_" not in text


def test_what_is_passed_on_has_no_tensor() -> None:
    """`n` has one value: the element that the kernel names is the element of the result."""
    text = cpp("A<1, 3>[n, p] = B<1, 5>[n, p + r] * C<3>[r];", "B C", "A")
    assert not re.search(r"^ +float \w+\[", text, re.MULTILINE)


def test_one_element_of_many_is_no_sum() -> None:
    """Of the elements ``i`` with ``i//2 == k`` and ``i % 2 == 0`` there is one: no loop looks for it."""
    kernel = "A<4>[2*i] = A<4>[2*i] + B<4>[i]; A<4>[2*i + 1] = A<4>[2*i];"
    text = cpp(kernel, "B", "A", "B A", grad=True)
    assert "= dA[2 * i] + dA[2 * i + 1];" in text


def test_order_and_contraction_are_stated() -> None:
    case = einsum.read(Path(__file__).parents[3] / "examples" / "einsum" / "gemm.json")
    assert "-ffp-contract=off" in einsum.cpp_of(case)
    assert "contract" not in einsum.cpp_of(case, ordered=False)


@pytest.mark.parametrize("name", ["conv2d", "gemm", "layer", "reshape", "stencil"])
def test_examples(name: str, examples: Path, compile_cpp: Any) -> None:
    """Every example compiles, forward and gradient, and the two agree in a direction."""
    loaded = einsum.read(examples / "einsum" / f"{name}.json")
    f, g = compile_cpp(einsum.cpp_of(loaded)), compile_cpp(einsum.cpp_of(loaded, grad=True))
    rng = np.random.default_rng(0)
    shapes = {n: t.shape for n, t in loaded.tensors().tensors.items()}
    inputs = {n: rng.integers(-2, 3, shapes[n]).astype(float) for n in loaded.case.ins}
    seeds = {f"d{n}": rng.integers(-2, 3, shapes[n]).astype(float) for n in loaded.case.outs}
    derivatives = g(**{n: v for n, v in inputs.items() if n in g.parameters}, **seeds)

    def weighted(values: Any) -> float:
        out = f(**values)
        return sum(float((seeds[f"d{n}"] * out[n].astype(float)).sum()) for n in loaded.case.outs)

    for n in loaded.case.grad_to:
        direction = rng.integers(-1, 2, shapes[n]).astype(float)
        up, down = weighted(inputs | {n: inputs[n] + direction}), weighted(inputs | {n: inputs[n] - direction})
        # of a polynomial of degree two the central difference is exact
        np.testing.assert_allclose((derivatives[f"d{n}"] * direction).sum(), (up - down) / 2, rtol=1e-5, atol=1e-3)
