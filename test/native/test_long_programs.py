"""Programs of hundreds of nodes: no recursion as deep as a program is long, and functions that LLVM can take."""

from __future__ import annotations

import re

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.engines.native import target
from upl_mlir.engines.native.llvm.entry import emit_module
from upl_mlir.passes.loops.graph import DEEPEST, Graph
from upl_mlir.passes.lower_to_loops import lower_to_loops
from upl_mlir.poly.linear import Linear


def chain(n: int) -> str:
    """Nodes one after the other, which share one loop."""
    nodes = [
        f"node N{k}<i> {{ in x; 0.5*x + {k % 7} -> {f'N{k + 1}.x' if k + 1 < n else 'R'} }}" for k in range(n)
    ]  # fmt: skip
    return "\n".join(["program chain", "param m >= 1", "input X<i> in 0<=i<m { -> N0.x }", *nodes, "output R<i>"])


def rounds(n: int) -> str:
    """Sums between the nodes, which need loops of their own: each element less the mean, and a neighbour."""
    lines = ["program rounds", "param n >= 2", "input X<i> in 0<=i<n { -> A0.x }", "output Y<i>"]
    for k in range(n):
        to = f"A{k + 1}.x" if k + 1 < n else "Y"
        turn = f"if i<n-1: z -> C{k}.l<i+1>; if i==n-1: z -> C{k}.l<0>"
        lines += [
            f"node A{k}<i> in 0<=i<n {{ in x; y = tanh(x + {k}); y -> M{k}.s<>; y -> B{k}.y }}",
            f"node M{k} {{ in @(+) s[n]; s/n #n -> B{k}.m<*> }}",
            f"node B{k}<i> in 0<=i<n {{ in y, m; z = y - m; z -> C{k}.z; {turn} }}",
            f"node C{k}<i> in 0<=i<n {{ in l, z; 0.5*l + z -> {to} }}",
        ]
    return "\n".join(lines)


def rounds_of(x: np.ndarray, n: int) -> np.ndarray:
    """The same in numpy."""
    for k in range(n):
        y = np.tanh(x + k)
        z = y - y.mean()
        x = 0.5 * np.roll(z, 1) + z
    return x


@pytest.mark.parametrize("n", [40, 400])
def test_a_long_chain_and_its_gradient(n: int) -> None:
    x = np.linspace(-1, 1, 5)
    p = upl.load(chain(n))
    want = x
    for k in range(n):
        want = 0.5 * want + k % 7
    np.testing.assert_allclose(upl.compile(p, engine="native")(X=x)["R"], want, rtol=1e-14)
    out = upl.compile(upl.vjp(p, "R", "X"), engine="native")(X=x, d_R=np.ones(5))
    np.testing.assert_array_equal(out["d_X"], 0.5**n)


def behind_a_loop(n: int) -> str:
    """A loop over grids before a chain: what is stored of the loop depends on all that reads it."""
    nodes = [f"node N{k}<i,j> {{ in x; 0.5*x + {k % 7} -> {f'N{k + 1}.x' if k + 1 < n else 'R'} }}" for k in range(n)]
    return "\n".join([
        "program behind", "param m >= 1", "param T >= 1", "input X<i,j> in 0<=i<m, 0<=j<m { -> U.x<0,i,j> }",
        "node U<t,i,j> in 0<=t<=T, 0<=i<m, 0<=j<m { in x; if t<T: x -> V.x<t+1,i,j>; if t==T: x -> N0.x<i,j> }",
        "node V<t,i,j> in 1<=t<=T, 0<=i<m, 0<=j<m { in x; 2*x -> U.x }", *nodes, "output R<i,j>",
    ])  # fmt: skip


def test_what_is_stored_of_a_loop_before_a_long_chain() -> None:
    """Of the loop one state; of the chain one node of so many, from which the rest is computed."""
    program = upl.load(behind_a_loop(400)).op
    graph = Graph(program, Linear(poly_context(program, {})))
    graph.choose()
    assert graph.stored_ports == {("U", "x"), *((f"N{k}", "x") for k in range(DEEPEST - 1, 400, DEEPEST))}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_program_and_its_gradient(threads: int) -> None:
    """Divided into functions; the derivative in one direction by complex steps."""
    n = 40
    x, u = np.linspace(-1, 1, 6), np.linspace(1, 2, 6)
    p = upl.load(rounds(n))
    np.testing.assert_allclose(upl.compile(p, engine="native", threads=threads)(X=x)["Y"], rounds_of(x, n), atol=1e-13)
    v = np.linspace(-2, 1, 6)
    got = upl.compile(upl.vjp(p, "Y", "X"), engine="native", threads=threads)(X=x, d_Y=v)["d_X"]
    want = rounds_of(x + 1e-30j * u, n).imag @ v / 1e-30
    assert abs(got @ u - want) <= 1e-12 * max(1, abs(want))


def test_bits_are_those_of_the_interpreter() -> None:
    p = upl.load(rounds(30))
    x = np.linspace(-1, 1, 7)
    native = upl.compile(p, engine="native", gather="ordered")(X=x)["Y"]
    assert native.tobytes() == upl.compile(p, gather="ordered")(X=x)["Y"].tobytes()


def test_only_long_functions_are_divided() -> None:
    def groups(n: int) -> list[str]:
        ir = emit_module(lower_to_loops(upl.load(rounds(n)).expanded().infer_domains().op).module, target.host(), 1).ir
        return re.findall(r"^define internal void @group\d+", ir, flags=re.MULTILINE)

    assert groups(4) == []
    assert len(groups(60)) > 4
