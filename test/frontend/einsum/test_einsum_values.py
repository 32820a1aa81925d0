"""Kernels against numpy: values and gradients on the interpreter, and in the C++ that is made of them.

Inputs are small integers, so that most results are exact: then they must be equal, not close.  The reference derivatives
are complex steps on the numpy functions, which share nothing with this package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
    if not kernel.grad_to:
        with pytest.raises(upl.UplError, match="`grad_to` is empty"):
            einsum.gradient(kernel.json())
        return
    g = einsum.gradient(kernel.json())
    assert g.check().ok
    inputs = kernel.inputs()
    seeds = kernel.seeds(inputs)
    out = upl.compile(g)(**inputs, **{f"d_{out_name(kernel, n)}": v for n, v in seeds.items()})
    for name, want in kernel.gradients(inputs, seeds).items():
        close(out[f"d_{name}"], want)


def test_derivatives_have_the_types_of_the_ports(kernels: Any) -> None:
    """f32 like the kernel's own ports: native code multiplies in one type, and results are not widened."""
    p = einsum.load(kernels["gemm"].json())
    for g in (upl.vjp(p, of="C_out", wrt=["A", "b"]), upl.jvp(p, of="C_out", wrt=["A", "b"])):
        new = {n: v.dtype for n, v in (g.inputs | g.outputs).items() if n[:2] in ("d_", "t_")}
        assert len(new) == 3 and set(new.values()) == {np.dtype(np.float32)}


NATIVE = ["three_factors", "convolution", "flatten", "strided", "diagonal", "part_in_place", "statements", "gemm"]


@pytest.mark.parametrize("name", NATIVE)
def test_native_code_gives_the_interpreters_bits(name: str, kernels: Any) -> None:
    """Value and gradients, folded in text order."""
    kernel = kernels[name]
    g = einsum.gradient(kernel.json())
    rng = np.random.default_rng(8)
    inputs = {n: rng.normal(size=p.shape()) for n, p in g.inputs.items()}
    want, got = (upl.compile(g, engine=e, gather="ordered")(**inputs) for e in ("interp", "native"))
    for port, value in want.items():
        np.testing.assert_array_equal(got[port], value, err_msg=port)


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


def test_value_in_cpp(kernel: Any, cpp_of_kernels: Any) -> None:
    f = cpp_of_kernels(kernel, False)
    assert f.parameters == (*kernel.ins, *(o for o in kernel.outs if o not in kernel.ins))
    inputs = kernel.inputs()
    out = f(**inputs)
    for name, want in kernel.results(inputs).items():
        close(out[name], want)
    for name in set(kernel.ins) - set(kernel.outs):
        np.testing.assert_array_equal(out[name], inputs[name].astype(np.float32))


def test_gradient_in_cpp(kernel: Any, cpp_of_kernels: Any) -> None:
    if not kernel.grad_to:
        with pytest.raises(upl.UplError, match="`grad_to` is empty"):
            einsum.cpp_of(einsum.read(kernel.json()), grad=True)
        return
    f = cpp_of_kernels(kernel, True)
    inputs = kernel.inputs()
    seeds = kernel.seeds(inputs)
    primal = [n for n in kernel.ins if n in f.parameters]
    order = dict.fromkeys([*primal, *(f"d{n}" for n in kernel.outs), *(f"d{n}" for n in kernel.grad_to)])
    assert f.parameters == tuple(order)
    given = {n: inputs[n] for n in primal} | {f"d{n}": v for n, v in seeds.items()}
    out = f(**given)  # what it may not read is NaN
    for name, want in kernel.gradients(inputs, seeds).items():
        close(out[f"d{name}"], want)


def test_ordered_sums_are_bit_equal_to_the_interpreter(kernel: Any, cpp_of_kernels: Any) -> None:
    rng = np.random.default_rng(5)
    inputs = {n: rng.normal(size=s).astype(np.float32) for n, s in kernel.ins.items()}
    want = upl.compile(einsum.load(kernel.json()), gather="ordered")(**inputs)
    got = cpp_of_kernels(kernel, False)(**inputs)
    for name in kernel.outs:
        np.testing.assert_array_equal(got[name], want[out_name(kernel, name)])


def test_sums_are_those_of_loops_in_float32(kernels: Any, cpp_of_kernels: Any) -> None:
    """Each product and each sum is rounded to float32; sums go in the order in which the text names the indices."""
    kernel = kernels["three_factors"]
    rng = np.random.default_rng(6)
    x = {n: rng.normal(size=s).astype(np.float32) for n, s in kernel.ins.items()}
    seed = rng.normal(size=(3, 4)).astype(np.float32)
    b, c, d = x["B"], x["C"], x["D"]
    a, d_c = np.zeros((3, 4), np.float32), np.zeros((5, 4), np.float32)
    for i, j, k, m in np.ndindex(3, 4, 5, 2):
        a[i, j] += b[i, k, m] * c[k, j] * d[m, j]
    for k, j, i, m in np.ndindex(5, 4, 3, 2):
        d_c[k, j] += seed[i, j] * d[m, j] * b[i, k, m]
    np.testing.assert_array_equal(cpp_of_kernels(kernel, False)(**x)["A"], a)
    np.testing.assert_array_equal(cpp_of_kernels(kernel, True)(**x, dA=seed)["dC"], d_c)


def test_integers(int_kernel: Any, cpp_of_kernels: Any) -> None:
    inputs = {n: v.astype(np.int64) for n, v in int_kernel.inputs(7).items()}
    out = upl.compile(einsum.load(int_kernel.json()))(**inputs)
    c = cpp_of_kernels(int_kernel, False)(**inputs)
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
