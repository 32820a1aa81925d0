"""Whole training runs as loops: products of mini-batches stay whole, weights stand in one place through epochs and batches,
functions are not computed twice, inputs are not copied; and results stay right.

The facts are read from the schedule, the numbers compared with the interpreter and with numpy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import math

import upl_mlir as upl
from upl_mlir.engines.native import target
from upl_mlir.engines.native.llvm import entry
from upl_mlir.engines.native.llvm.entry import emit_module
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.terms import Apply, Get, walk
from upl_mlir.passes.loops.transform.contractions import of_matrices
from upl_mlir.passes.loops.tree import Box, Leaf, Loop, subtrees
from upl_mlir.passes.lower_to_loops import lower_to_loops
from upl_mlir.passes.schedule import schedule

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def digits() -> LoopProgram:
    return schedule(upl.load(EXAMPLES / "digits.upl").expanded().op)


def arrays_of(text: str) -> dict[str, list[int]]:
    """The fields of each array that have room for more than one value."""
    return {n: [a.at for a in x.axes] for n, x in schedule(upl.load(text).op).arrays.items()}


def compare(text: str, given: dict[str, Any], **sizes: int) -> None:
    """Native against interpreted, bit by bit."""
    program = upl.load(text)
    wanted = upl.compile(program, gather="ordered")(**given, **sizes)
    found = upl.compile(program, engine="native", gather="ordered")(**given, **sizes)
    for name, w in wanted.items():
        np.testing.assert_array_equal(found[name], w, err_msg=name)


# -- digits -----------------------------------------------------------------------------------------------------------
def test_products_of_a_mini_batch_stay_whole(digits: LoopProgram) -> None:
    """Two forward, one and two back: none is cut by the loop over images, all extents but the last batch's are known."""
    boxes = [t for t in subtrees(digits.tree) if isinstance(t, Box)]
    assert sorted(t.leaf.stmt.array for t in boxes) == ["DRes.d_r", *["DWeight.d_w"] * 2, *["Sum.s"] * 2]
    assert all(of_matrices(x) for t in boxes for x in t.contraction.terms)
    bounds = [e for t in boxes for r in (*t.contraction.fields,) for e in (*r.lows, *r.highs)]
    assert bounds and not any("N[" in str(e) for e in bounds)


def test_weights_stand_in_one_place(digits: LoopProgram) -> None:
    for name in ("Weight.w", "DWeight.d_w"):
        assert [str(a.extent) for a in digits.arrays[name].axes] == ["2", "64", "32"], name  # no epochs, no batches


def test_what_the_value_has_computed_is_not_computed_again(digits: LoopProgram) -> None:
    """tanh forward only: going back, its results are read."""
    leaves = [t for t in subtrees(digits.tree) if isinstance(t, Leaf)]
    made = {
        t.stmt.array for t in leaves for x, _ in walk(t.stmt.term) if isinstance(x, Apply) and isinstance(x.op, math.TanhOp)
    }
    assert made == {"Res.r"}


def test_images_are_read_where_they_stand(digits: LoopProgram) -> None:
    boxes = [t for t in subtrees(digits.tree) if isinstance(t, Box)]
    assert sum(g.array == "X" for t in boxes for x in t.contraction.terms for g in x.arrays) == 2
    assert not any(isinstance(t, Leaf) and isinstance(t.stmt.term, Get) and t.stmt.term.array == "X"
                   for t in subtrees(digits.tree))  # fmt: skip


def test_rows_of_a_few_vectors_stay_loops() -> None:
    """Else LLVM writes them out and makes vectors of the loop outside, whose elements lie apart."""
    program = upl.load(EXAMPLES / "digits.upl").expanded()
    for gather, told in (("relaxed", True), ("ordered", False)):
        ir = emit_module(lower_to_loops(program.op, gather=gather).module, target.host(), 1).ir
        innermost = [line for line in ir.splitlines() if "llvm.loop.parallel_accesses" in line]
        assert any("llvm.loop.unroll.disable" in line for line in innermost) == told


def test_loops_with_loops_inside_stay_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """In large programs: else LLVM writes out nests of short loops whole, which takes it twice the time."""
    program = upl.load(EXAMPLES / "matmul.upl", m=3, n=3, r=3)
    for large, told in ((entry.LARGE, False), (0, True)):
        monkeypatch.setattr(entry, "LARGE", large)
        ir = emit_module(lower_to_loops(program.op).module, target.host(), 1).ir
        assert ("llvm.loop.unroll.disable" in ir) == told


def test_digits_equals_the_interpreter() -> None:
    with np.load(EXAMPLES / "data" / "digits.npz") as found:
        given = {n: found[n] if n == "W" else found[n][:6] for n in found.files}
    program = upl.load(EXAMPLES / "digits.upl", D=4)
    wanted = upl.compile(program, gather="ordered")(**given, E=2)
    same = upl.compile(program, engine="native", gather="ordered")(**given, E=2)
    close = upl.compile(program, engine="native", threads=2)(**given, E=2)
    for name, w in wanted.items():
        np.testing.assert_array_equal(same[name], w, err_msg=name)
        np.testing.assert_allclose(close[name], w, rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("name", ["iris", "iris_batch"])
@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_small_layers_too(name: str, gather: str) -> None:
    random = np.random.default_rng(1)
    given = {"X": random.normal(size=(9, 5)), "Y": random.normal(size=(9, 3)), "W": random.normal(size=(2, 8, 8))}
    program = upl.load(EXAMPLES / f"{name}.upl")
    wanted = upl.compile(program, gather=gather)(**given)
    found = upl.compile(program, engine="native", gather=gather)(**given)
    for port, w in wanted.items():
        np.testing.assert_allclose(found[port], w, rtol=0 if gather == "ordered" else 1e-11, err_msg=port)


def test_layers_of_any_number_and_size() -> None:
    """A network as `examples/mlp.upl`, its sizes from an array, in a mini-batch: products, and the right gradient."""
    program = upl.grad(upl.load(EXAMPLES / "mlp.upl", K=4, N=[20, 33, 17, 10]), "Loss", ["W", "B"])
    boxes = [t for t in subtrees(schedule(program.op).tree) if isinstance(t, Box)]
    assert len(boxes) >= 6
    random = np.random.default_rng(2)
    given = {n: random.normal(size=p.shape(D=5)) * 0.3 for n, p in program.inputs.items() if n != "Y"}
    given["Y"] = np.eye(10)[[3, 1, 0, 9, 3]]
    wanted = upl.compile(program)(**given)
    found = upl.compile(program, engine="native")(**given)
    for name, w in wanted.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-10, atol=1e-13, err_msg=name)


# -- places -----------------------------------------------------------------------------------------------------------
EPOCHS = """program epochs
param E >= 1
param B >= 1
param n >= 1
input W<i> in 1<=i<=n { -> Run.w<1,1,i> }
output R<i>
node Run<e,b,i> in 1<=e<=E, 1<=b<=B, 1<=i<=n { in w; #n -> Tot.s<e,b>; w -> Upd.w }
node Tot<e,b>   { in @(+) s[#]; #n -> Upd.t<e,b,*> }
node Upd<e,b,i> {
  in w, t
  v = w - 0.1*t
  if b<B:         v -> Run.w<e,b+1,i>
  if b==B && e<E: v -> Run.w<e+1,1,i>
  if b==B && e==E: v -> R<i>
}
"""
# At the end of an epoch the weights from its beginning are read again.
RETURN = EPOCHS.replace("w -> Upd.w }", "w -> Upd.w; if b==1: w -> End.first<e,i> }").replace(
    """  if b==B && e<E: v -> Run.w<e+1,1,i>
  if b==B && e==E: v -> R<i>
}""",
    """  if b==B: v -> End.w<e,i>
}
node End<e,i> in 1<=e<=E, 1<=i<=n { in w, first; v = 0.5*w + first; if e<E: v -> Run.w<e+1,1,i>; if e==E: v -> R<i> }""",
)
# All weights of the last epoch are results.
KEPT = EPOCHS.replace("output R<i>", "output R<i>\noutput H<b,i>").replace(
    "w -> Upd.w }", "w -> Upd.w; if e==E: w -> H<b,i> }"
)


@pytest.mark.parametrize(
    ("text", "fields"), [(EPOCHS, [2]), (RETURN, [0, 1, 2]), (KEPT, [0, 1, 2])], ids=["in turn", "return", "kept"]
)
def test_a_place_for_elements_of_several_loops(text: str, fields: list[int]) -> None:
    """One place for all epochs and batches where each element is read before the next one comes, and only there."""
    assert arrays_of(text)["Run.w"] == fields
    for e, b, n in ((1, 1, 3), (1, 4, 2), (3, 1, 4), (4, 5, 3)):
        compare(text, {"W": np.random.default_rng(e).normal(size=n)}, E=e, B=b)


POWER = """program power
param T >= 1
param n >= 1
input A<i,j> in 1<=i<=n, 1<=j<=n { #T*n -> Mul.a<*,*,i,j> }
input S<i,j> in 1<=i<=n, 1<=j<=n { -> Pow.p<1,i,j> }
output P<i,j>
node Pow<t,i,j> in 1<=t<=T+1, 1<=i<=n, 1<=j<=n {
  in @(+) p[#]
  if t<=T: #n -> Mul.p<t,i,j,*>
  if t==T+1: -> P<i,j>
}
node Mul<t,i,l,j> in 1<=t<=T, 1<=i<=n, 1<=l<=n, 1<=j<=n { in p, a; p*a #n -> Pow.p<t+1,i,j> }
"""


def test_a_product_does_not_overwrite_its_own_factor() -> None:
    program = upl.load(POWER)
    found = schedule(program.op)
    assert any(isinstance(t, Box) and t.leaf.stmt.array == "Pow.p" for t in subtrees(found.tree))
    assert [a.modulus for a in found.arrays["Pow.p"].axes] == [2, None, None]
    run = upl.compile(program, engine="native")
    for n in (2, 9, 40):
        a = np.random.default_rng(n).normal(size=(n, n)) / np.sqrt(n)
        np.testing.assert_allclose(run(A=a, S=a, T=5)["P"], np.linalg.matrix_power(a, 6), rtol=1e-10, atol=1e-13)


# -- functions and reads ----------------------------------------------------------------------------------------------
# tanh(S<i>) is kept for i >= 2, as it is used n times. A asks for it again for all i, B and C for those; C also for S.
AGAIN = """program again
param n >= 3
input V<i,j> in 1<=i<=n, 1<=j<=n { -> S.v<i> }
output A<i>
output B<i>
output C<i>
output D<j>
node S<i> in 1<=i<=n {
  in @(+) v[n]
  h = tanh(v)
  if i>=2: h -> U.h<i,j> for j in 1..n
  v -> F.v<i>
  if i>=2: v -> G.v<i>
  if i>=2: v -> H.v<i>
}
node U<i,j> in 2<=i<=n, 1<=j<=n { in h; h*j -> T.s<j> }
node T<j> in 1<=j<=n { in @(+) s[n-1]; -> D<j> }
node F<i> in 1<=i<=n { in v; y = tanh(v) + 1.0; y -> A<i> }
node G<i> in 2<=i<=n { in v; y = tanh(v) * 2.0; y -> B<n+2-i> }
node H<i> in 2<=i<=n { in v; y = tanh(v) - v; y -> C<i> }
"""


def test_functions_that_are_kept_are_read() -> None:
    """Where the other array has the element, and nothing else of the argument is read."""
    leaves = [t for t in subtrees(schedule(upl.load(AGAIN).op).tree) if isinstance(t, Leaf)]
    made = {
        t.stmt.array for t in leaves for x, _ in walk(t.stmt.term) if isinstance(x, Apply) and isinstance(x.op, math.TanhOp)
    }
    assert made == {"S:0", "A", "C"}
    for n in (3, 10):
        compare(AGAIN, {"V": np.random.default_rng(n).normal(size=(n, n))})


def test_two_threads_share_a_mini_batch() -> None:
    program = upl.load(EXAMPLES / "digits.upl")
    loops = [t for t in subtrees(schedule(program.expanded().op, threads=2).tree) if isinstance(t, Loop)]
    assert [t.parallel for t in loops].count(False) == 2  # epochs and batches
