"""UPL programs printed back as kernels, where they are kernels; what is none is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend import einsum
from upl_mlir.frontend.einsum.resolve import resolve
from upl_mlir.tools.upl import main

GUARDED = {"onto_diagonal", "interleaved"}
"""Kernels that assign a part of a tensor: read backwards, what an element is depends on where it is."""


def text(case: Any) -> str:
    """A case as JSON."""
    return json.dumps(msgspec.to_builtins(case))


def test_a_kernel_comes_back(kernel: Any) -> None:
    p = einsum.load(kernel.json())
    if kernel.name in GUARDED:
        with pytest.raises(upl.UplError, match="this program is no einsum"):
            einsum.recognise(p)
        return
    case = einsum.recognise(p)
    assert case.ins == list(kernel.ins)
    again = einsum.load(text(case))
    inputs = kernel.inputs(11)
    want, got = upl.compile(p)(**inputs), upl.compile(again)(**inputs)
    assert set(want) == set(got)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6)


def test_integers_come_back(int_kernel: Any) -> None:
    case = einsum.recognise(einsum.load(int_kernel.json()))
    assert case.data_type == "int"
    first = einsum.read(int_kernel.json())
    assert resolve(case, einsum.read(text(case)).kernel) == resolve(first.case, first.kernel)


def test_the_kernel_is_the_one_written() -> None:
    kernel = "A<2, 8, 5, 5>[n, k, p, q] = B<2, 16, 7, 7>[n, c, p + r, q + s] * C<8, 16, 3, 3>[k, c, r, s];"
    case = {"name": "conv", "ins": ["B", "C"], "outs": ["A"], "data_type": "float", "kernel": kernel}
    assert einsum.recognise(einsum.load(json.dumps(case))).kernel == kernel


def test_adjoints_of_products_are_kernels() -> None:
    case = """{"name": "mm", "ins": ["A", "B"], "outs": ["C"], "data_type": "float", "grad_to": ["A", "B"],
               "kernel": "C<4, 5>[i, j] = A<4, 6>[i, k] * B<6, 5>[k, j];"}"""
    got = einsum.recognise(einsum.gradient(case), ["d_A", "d_B"])
    assert got.ins == ["A", "B", "d_C"]
    assert got.kernel == (
        "d_A<4, 6>[i, k] = d_C<4, 5>[i, j] * B<6, 5>[k, j];\nd_B<6, 5>[k, j] = d_C<4, 5>[i, j] * A<4, 6>[i, k];"
    )


def test_a_program_written_by_hand() -> None:
    """Bounds that do not start at 0, a copy on the way, a constant, a sum that is used twice."""
    p = upl.load("""
        program hand
        const n = 4
        input A<i,j> in 1<=i<=n, 2<=j<n { -> Copy.a }
        input x<j> in 2<=j<n { #n -> P.x<*,j> }
        output y<i> in 1<=i<=n
        output z
        node Copy<i,j> { in a; -> P.a }
        node P<i,j> { in a, x; a*x #n-2 -> S.s<i> }
        node S<i> { in @(+) s[#]; 2*s -> y; s #n -> T.s<> }
        node T { in @(+) s[#]; s*s -> z<> }
        """)
    case = einsum.recognise(p)
    assert case.kernel.splitlines()[-1] == "z<1> = z_sum<1> * z_sum<1>;"
    a, x = np.arange(8.0).reshape(4, 2), np.array([2.0, -1.0])
    got = upl.compile(einsum.load(text(case)))(A=a, x=x)
    np.testing.assert_array_equal(got["y"], 2 * (a @ x))
    assert got["z"] == (a @ x).sum() ** 2


def test_what_is_not_asked_for_may_be_anything() -> None:
    """Another output's arrows depend on data, and on a sum of another kind."""
    p = upl.load("""
        program two
        input A<i> in 0<=i<3 { -> M.a; -> B; #3 -> N.a<> }
        output B<i> in 0<=i<3
        output C<i> in 0<=i<3
        output D
        node M<i> { in a; if a>0: a -> C; if a<=0: -a -> C }
        node N { in @(max) a[#]; a -> D }
        """)
    assert einsum.recognise(p, ["B"]).kernel == "B<3>[i] = A<3>[i];"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("param n >= 1\ninput A<i> in 0<=i<n { -> B }\noutput B<i> in 0<=i<n", "but these are open: n"),
        ("input A<i> in 0<=i<3 { -> M.a }\noutput B<i>\nnode M<i> { in a; exp(a) -> B }", "it computes `exp`"),
        ("input A<i> in 0<=i<3 { -> M.a }\noutput B<i>\nnode M<i> { in a; i*a -> B }", "`M` computes with its index `i`"),
        (
            "input A<i> in 0<=i<3 { -> M.a }\noutput B<i> in 0<=i<3\nnode M<i> { in a; if a>0: a -> B; if a<=0: -a -> B }",
            "the arrow M -> B depends on data",
        ),
        (
            "input A<i> in 0<=i<3 { #3 -> M.a<> }\noutput B\nnode M { in @(max) a[#]; a -> B }",
            "`M.a` gathers by `max`",
        ),
        (
            "input A { -> M.a<0> }\noutput B\nnode M<t> in 0<=t<4 { in a; if t<3: 2*a -> M.a<t+1>; if t==3: a -> B }",
            "`M` depends on itself",
        ),
        (
            "input A<i> in 0<=i<4 { -> S.s<0>; if i>0: -> S.s<0> }\noutput B\nnode S<i> { in @(+) s[7]; if i==0: s -> B }",
            "goes from 1 to 3, but the accesses allow 0 to 3",
        ),
        ("input A<i>: int in 0<=i<3 { -> M.a }\noutput B<i>\nnode M<i> { in a: int; a/2 -> B }", "several types: int, real"),
    ],
)  # fmt: skip
def test_what_is_no_einsum(program: str, why: str) -> None:
    p = upl.load(f"program p\n{program}\n")
    with pytest.raises(upl.UplError, match=why) as e:
        einsum.recognise(p)
    assert e.value.diagnostics[0].code == "UPL1910"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, back = tmp_path / "p.upl", tmp_path / "p.json"
    path.write_text(
        "program mv\nparam n >= 1\ninput A<i,k> in 0<=i<n, 0<=k<3 { -> P.a }\ninput x<k> in 0<=k<3 { #n -> P.x<*,k> }\n"
        "output y<i>\nnode P<i,k> { in a, x; a*x #3 -> S.s<i> }\nnode S<i> { in @(+) s[#]; s -> y }\n",
        encoding="utf-8",
    )
    assert main(["einsum", str(path), "--recognise"]) == 1
    assert "but these are open: n" in capsys.readouterr().err
    assert main(["einsum", str(path), "--recognise", "-D", "n=5", "-o", str(back)]) == 0
    assert json.loads(back.read_text())["kernel"] == "y<5>[i] = A<5, 3>[i, k] * x<3>[k];"
    assert main(["einsum", str(back), "-t", "c"]) == 0
    assert "void mv(float (&A)[5][3], float (&x)[3], float (&y)[5]) {" in capsys.readouterr().out
