"""Outputs that a kernel reads: as they came, as an earlier statement left them, at another place than the one written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend import einsum


def case(kernel: str, ins: str, outs: str, **more: Any) -> str:
    """The JSON of a case; lists of names are separated by spaces."""
    head = {"name": "t", "ins": ins.split(), "outs": outs.split(), "data_type": "float", "kernel": kernel}
    return json.dumps(head | more)


KERNELS = [
    # (kernel, ins, outs, which of them are updated, what comes out of A, B, C as numpy has it)
    ("A<4>[i] = A<4>[i] * B<4>[i];", "B", "A", "A", lambda A, B, C: (A * B, B, C)),
    # at another place than the one written: the old contents throughout, though some are overwritten by then
    ("A<4>[i] = A<4>[3 - i] + B<4>[i];", "B", "A", "A", lambda A, B, C: (A[::-1] + B, B, C)),
    ("A<4>[i] = A<4>[i + 1] + B<4>[i];", "B", "A", "A", lambda A, B, C: (np.r_[A[1:] + B[:-1], A[3]], B, C)),
    ("A<4>[i + 1] = A<4>[i] + B<4>[i];", "B", "A", "A", lambda A, B, C: (np.r_[A[0], A[:-1] + B[:-1]], B, C)),
    ("A<4>[i] = A<4>[k];", "", "A", "A", lambda A, B, C: (np.full(4, A.sum()), B, C)),
    # by two statements, and in parts
    ("A<4>[i] = A<4>[i] + B<4>[i]; A<4>[i] = A<4>[i] * A<4>[0];", "B", "A", "A",
     lambda A, B, C: ((A + B) * (A + B)[0], B, C)),
    ("A<4>[2*i] = A<4>[2*i] + B<4>[i]; A<4>[2*i + 1] = A<4>[2*i];", "B", "A", "A",
     lambda A, B, C: (np.repeat(A[::2] + B[:2], 2), B, C)),
    # read by a later statement for another output
    ("A<4>[i] = A<4>[i] + B<4>[i]; C<4>[i] = A<4>[3 - i];", "B", "A C", "A", lambda A, B, C: (A + B, B, (A + B)[::-1])),
    # read before it is written by a statement for another output
    ("C<4>[i] = A<4>[i] - B<4>[i]; A<4>[i] = B<4>[i];", "B", "C A", "A", lambda A, B, C: (B, B, A - B)),
    ("C<4>[i] = A<4>[i]; A<4>[i] = C<4>[i] + A<4>[3 - i];", "", "C A", "A", lambda A, B, C: (A + A[::-1], B, A)),
    ("C<4>[i] = A<4>[i]; A<4>[i] = B<4>[i]; B<4>[i] = C<4>[i];", "", "A B", "A B", lambda A, B, C: (B, A, C)),
    # assigned first: the old contents are not read, and what is not assigned is 0
    ("A<4>[i] = B<4>[i]; A<4>[i] = A<4>[i] * 2;", "B", "A", "", lambda A, B, C: (2 * B, B, C)),
    ("A<4>[2*i] = B<4>[i]; A<4>[i] = A<4>[i] + 1;", "B", "A", "",
     lambda A, B, C: (np.array([B[0], 0, B[1], 0]) + 1, B, C)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "ins", "outs", "updated", "numpy"), KERNELS, ids=[k[0] for k in KERNELS])
def test_values(kernel: str, ins: str, outs: str, updated: str, numpy: Any, compile_cpp: Any) -> None:
    x = {n: np.random.default_rng(at).integers(-3, 4, 4).astype(float) for at, n in enumerate("ABC")}
    want = dict(zip("ABC", numpy(**x), strict=True))
    given = {n: x[n] for n in (*ins.split(), *updated.split())}
    p = einsum.load(case(kernel, ins, outs))
    assert p.check().ok and set(p.inputs) == set(given)
    out = upl.compile(p)(**given)
    f = compile_cpp(einsum.cpp_of(einsum.read(case(kernel, ins, outs))))
    assert f.parameters == (*ins.split(), *outs.split())
    got = f(**given)  # what is not given starts as NaN
    for n in outs.split():
        np.testing.assert_array_equal(out[f"{n}_out" if n in given else n], want[n], err_msg=n)
        np.testing.assert_array_equal(got[n], want[n], err_msg=n)


@pytest.mark.parametrize(("kernel", "ins", "outs", "updated", "numpy"), KERNELS, ids=[k[0] for k in KERNELS])
def test_gradients(kernel: str, ins: str, outs: str, updated: str, numpy: Any, compile_cpp: Any) -> None:
    """By everything that comes in, against complex steps."""
    rng = np.random.default_rng(9)
    x = {n: rng.integers(-3, 4, 4).astype(float) for n in "ABC"}
    seeds = {n: rng.integers(-3, 4, 4).astype(float) for n in outs.split()}
    by = [*ins.split(), *updated.split()]
    loaded = einsum.read(case(kernel, ins, outs, grad_to=by))
    f = compile_cpp(einsum.cpp_of(loaded, grad=True))
    got = f(**{n: x[n] for n in by if n in f.parameters}, **{f"d{n}": v for n, v in seeds.items()})
    g = loaded.gradient()
    out = upl.compile(g.program)(**{n: x[n] for n in by}, **{g.seeds[n]: v for n, v in seeds.items()})
    for n in by:
        want = np.zeros(4)
        for at in range(4):
            z = {m: v.astype(complex) for m, v in x.items()}
            z[n][at] += 1e-30j
            values = dict(zip("ABC", numpy(**z), strict=True))
            want[at] = sum((seeds[m] * np.imag(values[m])).sum() for m in seeds) / 1e-30
        np.testing.assert_allclose(out[g.derivatives[n]], want, err_msg=n)
        np.testing.assert_allclose(got[f"d{n}"], want, err_msg=n)


def test_an_updated_output_is_as_if_it_were_in_both_lists() -> None:
    kernel = "A<4>[i] = A<4>[i] + B<4, 3>[i, k] * B<4, 3>[i, k];"
    one, two = einsum.read(case(kernel, "B", "A", grad_to=["A"])), einsum.read(case(kernel, "B A", "A", grad_to=["A"]))
    assert str(one.program()) == str(two.program())
    assert str(one.gradient().program) == str(two.gradient().program)
    for grad in (False, True):
        assert einsum.cpp_of(one, grad=grad) == einsum.cpp_of(two, grad=grad)


def test_derivatives_are_by_what_comes_in() -> None:
    with pytest.raises(upl.UplError) as e:
        einsum.gradient(case("T<4>[i] = B<4>[i]; A<4>[i] = T<4>[i];", "B", "A", grad_to=["B", "A"]))
    d = e.value.diagnostics[0]
    assert (d.code, d.span.line, d.span.col) == ("UPL1901", 1, 20)
    assert d.message == "`grad_to`: `A` is no input: the kernel does not read its old contents"
    assert d.help == "derivatives are by inputs: B"


def test_integers(compile_cpp: Any) -> None:
    text = case("A<3>[i] = A<3>[i] + B<3, 4>[i, k] / 2;", "B", "A", data_type="int")
    a, b = np.array([5, -3, 0]), np.random.default_rng(0).integers(-9, 9, (3, 4))
    want = a + np.trunc(b / 2).sum(1)
    np.testing.assert_array_equal(upl.compile(einsum.load(text))(A=a, B=b)["A_out"], want)
    np.testing.assert_array_equal(compile_cpp(einsum.cpp_of(einsum.read(text)))(A=a, B=b)["A"], want)


def test_what_stays_in_its_place_is_not_copied() -> None:
    """The derivative by the old contents is the seed, where the kernel only adds."""
    kernel = "A<4, 5>[i, j] = A<4, 5>[i, j] + B<4, 6>[i, k] * C<6, 5>[k, j];"
    text = einsum.cpp_of(einsum.read(case(kernel, "B C", "A", grad_to=["A", "B"])), grad=True)
    body = text[text.index("void") :]
    assert "(&dA)[4][5]" in body and "dA[i][j] =" not in body and "float d_A" not in body


def test_sums_of_parts_in_parentheses_have_their_own_accumulator(compile_cpp: Any) -> None:
    kernel = "A<3>[i] = A<3>[i] + (B<3, 7>[i, k] - C<3, 5>[i, m]) - -(B<3, 7>[i, k] * B<3, 7>[i, k]);"
    rng = np.random.default_rng(0)
    x = {n: rng.normal(size=s).astype(np.float32) for n, s in (("A", 3), ("B", (3, 7)), ("C", (3, 5)))}
    want = np.zeros(3, np.float32)
    for i in range(3):
        inner = np.float32(0)
        for k in range(7):
            inner += x["B"][i, k]
        for m in range(5):
            inner -= x["C"][i, m]
        want[i] = x["A"][i] + inner
        for k in range(7):
            want[i] -= -(x["B"][i, k] * x["B"][i, k])
    got = compile_cpp(einsum.cpp_of(einsum.read(case(kernel, "B C", "A"))))(**x)["A"]
    np.testing.assert_array_equal(got, want)
    out = upl.compile(einsum.load(case(kernel, "B C", "A")), gather="ordered")(**x)["A_out"]
    np.testing.assert_array_equal(out, want)
