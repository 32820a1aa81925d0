"""Kernels against numpy: values and gradients on the interpreter, and in the C++ that is made of them.

Inputs are small integers, so that most results are exact: then they must be equal, not close.  The reference derivatives
are complex steps on the numpy functions, which share nothing with this package.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.frontend import einsum


def close(got: Any, want: Any) -> None:
    """Equal up to the rounding of f32: exact wherever the numbers are small integers or halves."""
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=3e-6, atol=1e-6)


def out_name(kernel: Any, tensor: str) -> str:
    """The host output for a result."""
    return f"{tensor}_out" if tensor in kernel.ins else tensor


def test_value_on_the_interpreter(kernel: Any) -> None:
    p = einsum.load(kernel.json())
    assert p.check().ok
    inputs = kernel.inputs()
    out = upl.compile(p)(**inputs)
    for name, want in kernel.results(inputs).items():
        close(out[out_name(kernel, name)], want)
        assert out[out_name(kernel, name)].dtype == np.float32


def test_gradient_on_the_interpreter(kernel: Any) -> None:
    g = einsum.gradient(kernel.json())
    assert g.check().ok
    inputs = kernel.inputs()
    seeds = kernel.seeds(inputs)
    out = upl.compile(g)(**inputs, **{f"d_{out_name(kernel, n)}": v for n, v in seeds.items()})
    for name, want in kernel.gradients(inputs, seeds).items():
        close(out[f"d_{name}"], want)


def test_text_of_the_program_means_the_same(kernel: Any) -> None:
    p = einsum.load(kernel.json())
    again = upl.load(str(p))
    inputs = kernel.inputs(3)
    one, two = upl.compile(p)(**inputs), upl.compile(again)(**inputs)
    for name, value in one.items():
        np.testing.assert_array_equal(two[name], value)


def test_values_for_many_instances_are_one_token() -> None:
    case = """{"name": "f", "ins": ["B", "C"], "outs": ["A"], "data_type": "float", "grad_to": ["B"],
               "kernel": "A<4, 5>[i, j] = B<4, 6>[i, k] * C<6, 5>[k, j];"}"""
    f = upl.compile(einsum.load(case))
    f(B=np.ones((4, 6)), C=np.ones((6, 5)))
    assert f.stats["tokens"] == {"A_1_term": 24 + 30, "A_1": 120, "A": 20}
    case = case.replace("B<4, 6>[i, k] * C<6, 5>[k, j]", "B<4>[i] * C<4>[i]")  # nobody brings j: the first input does
    f = upl.compile(einsum.load(case))
    f(B=np.ones(4), C=np.ones(4))
    assert f.stats["tokens"] == {"A_1": 20 + 4, "A": 20}


def test_value_in_cpp(kernel: Any, compile_cpp: Any) -> None:
    f = compile_cpp(einsum.cpp_of(einsum.read(kernel.json())))
    assert f.parameters == (*kernel.ins, *(o for o in kernel.outs if o not in kernel.ins))
    inputs = kernel.inputs()
    out = f(**inputs)
    for name, want in kernel.results(inputs).items():
        close(out[name], want)
    for name in set(kernel.ins) - set(kernel.outs):
        np.testing.assert_array_equal(out[name], inputs[name].astype(np.float32))


def test_gradient_in_cpp(kernel: Any, compile_cpp: Any) -> None:
    f = compile_cpp(einsum.cpp_of(einsum.read(kernel.json()), grad=True))
    inputs = kernel.inputs()
    seeds = kernel.seeds(inputs)
    primal = [n for n in kernel.ins if n in f.parameters]
    order = dict.fromkeys([*primal, *(f"d{n}" for n in kernel.outs), *(f"d{n}" for n in kernel.grad_to)])
    assert f.parameters == tuple(order)
    given = {n: inputs[n] for n in primal} | {f"d{n}": v for n, v in seeds.items()}
    out = f(**given)  # what it may not read is NaN
    for name, want in kernel.gradients(inputs, seeds).items():
        close(out[f"d{name}"], want)


def test_ordered_sums_are_bit_equal_to_the_interpreter(kernel: Any, compile_cpp: Any) -> None:
    rng = np.random.default_rng(5)
    inputs = {n: rng.normal(size=s).astype(np.float32) for n, s in kernel.ins.items()}
    want = upl.compile(einsum.load(kernel.json()), gather="ordered")(**inputs)
    got = compile_cpp(einsum.cpp_of(einsum.read(kernel.json())))(**inputs)
    for name in kernel.outs:
        np.testing.assert_array_equal(got[name], want[out_name(kernel, name)])


def test_integers(int_kernel: Any, compile_cpp: Any) -> None:
    inputs = {n: v.astype(np.int64) for n, v in int_kernel.inputs(7).items()}
    out = upl.compile(einsum.load(int_kernel.json()))(**inputs)
    c = compile_cpp(einsum.cpp_of(einsum.read(int_kernel.json())))(**inputs)
    for name, want in int_kernel.results(inputs).items():
        np.testing.assert_array_equal(out[name], want)
        np.testing.assert_array_equal(c[name], want)


def test_gradient_of_an_integer_polynomial(compile_cpp: Any) -> None:
    case = """{"name": "f", "ins": ["B"], "outs": ["A"], "data_type": "int", "grad_to": ["B"],
               "kernel": "A<3>[i] = B<3>[i] * B<3>[i] * 3 - B<3>[0];"}"""
    b, d = np.array([3, -2, 50000]), np.array([1, 2, -1])
    want = 6 * b * d - np.array([d.sum(), 0, 0])
    text = einsum.cpp_of(einsum.read(case), grad=True)
    assert "float" not in text
    np.testing.assert_array_equal(compile_cpp(text)(B=b, dA=d)["dB"], want)
    np.testing.assert_array_equal(upl.compile(einsum.gradient(case))(B=b, d_A=d)["d_B"], want)
