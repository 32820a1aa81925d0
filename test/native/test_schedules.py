"""What the schedules of programs are made of: contractions, tiled loops over time, windows; and that results stay right.

The facts are read from the schedule itself, the numbers compared with the interpreter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.native.backend import compile_module
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.show import schedule_lines
from upl_mlir.passes.loops.transform.checkpoints import SEGMENT
from upl_mlir.passes.loops.transform.wavefront import power_of_two
from upl_mlir.passes.loops.tree import Box, Loop, subtrees
from upl_mlir.passes.lower_to_loops import lower_to_loops
from upl_mlir.passes.schedule import schedule

PROGRAMS = Path(__file__).resolve().parents[2] / "bench" / "native" / "programs"
EXAMPLES = PROGRAMS.parents[2] / "examples"


def plan(program: upl.Program, **options: Any) -> LoopProgram:
    return schedule(program.op, **options)


def boxes(found: LoopProgram) -> dict[str, Box]:
    return {t.leaf.stmt.array: t for t in subtrees(found.tree) if isinstance(t, Box)}


def lowered_ir(program: upl.Program) -> str:
    return compile_module(lower_to_loops(program.op).module, cache=False).ir


def random_inputs(program: upl.Program, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {n: random.standard_normal(port.shape(**sizes)) for n, port in program.inputs.items()}


def compare(
    program: upl.Program, sizes: dict[str, int], gather: str, between: tuple[float, float] | None = None
) -> None:
    """Native against interpreted; with inputs `between` two numbers, of which all results must be finite."""
    given = random_inputs(program, sizes)
    if between is not None:
        random = np.random.default_rng(0)
        given = {n: random.uniform(*between, a.shape) for n, a in given.items()}
    wanted = upl.compile(program, gather=gather)(**given, **sizes)
    assert between is None or all(np.isfinite(w).all() and np.any(w) for w in wanted.values())
    found = upl.compile(program, engine="native", gather=gather)(**given, **sizes)
    for name, w in wanted.items():
        if gather == "ordered":
            np.testing.assert_array_equal(found[name], w, err_msg=name)
        else:
            np.testing.assert_allclose(found[name], w, rtol=1e-10, atol=1e-11, err_msg=name)


# A product inside another term, one with a factor that is computed, and a sum of two sums of products.
LAYERS = """program layers
param n >= 1
const I = 40
const J = 30
input X<d,i> in 0<=d<n, 0<=i<I { #J -> P.x<d,i,*> }
input V<d,i> in 0<=d<n, 0<=i<I { V*V + 1 #J -> Q.x<d,i,*> }
input W<i,j> in 0<=i<I, 0<=j<J { #n -> P.w<*,i,j>; #n -> Q.w<*,i,j> }
output Y<d,j>
node P<d,i,j> { in x, w; x*w #I -> S.a<d,j> }
node Q<d,i,j> { in x, w; x*w #I -> S.b<d,j> }
node S<d,j> { in @(+) a[#], @(+) b[#]; z = a > 0 ? b : 0.5*a; z -> Y }
"""


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_products_are_found_inside_of_terms(gather: str) -> None:
    program = upl.load(LAYERS)
    found = plan(program, gather=gather)
    assert len(boxes(found)) == 2
    assert all(len(b.contraction.fields) == 2 for b in boxes(found).values())
    for n in (1, 3, 50):
        compare(program, {"n": n}, gather)


# Of the two iterators of the sum one is bounded by the other, which has three values.
BELOW_EACH_OTHER = """program pairs
param n >= 1
param m >= 3
param q >= 1
input A<i,k,l> in 0<=i<n, 0<=k<3, k<=l<m { #q -> P.a<i,*,k,l> }
input B<j,k,l> in 0<=j<q, 0<=k<3, k<=l<m { #n -> P.b<*,j,k,l> }
output Y<i,j>
node P<i,j,k,l> in 0<=i<n, 0<=j<q, 0<=k<3, k<=l<m { in a, b; a*b -> S.s<i,j> }
node S<i,j> in 0<=i<n, 0<=j<q { in @(+) s[3*m-3]; s -> Y }
"""


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_several_products_add_to_one_result(gather: str) -> None:
    """In a loop over an iterator with few values, round which the result is begun once."""
    program = upl.load(BELOW_EACH_OTHER)
    (product,) = boxes(plan(program, gather=gather))["Y"].contraction.terms
    assert (len(product.around), len(product.fields), len(product.summed)) == (1, 2, 1)
    for n, m, q in ((5, 6, 7), (1, 3, 1)):
        compare(program, {"n": n, "m": m, "q": q}, gather)


def inverse(a: Any) -> Any:
    """Newton's steps: each matrix is read by both products, and by the sum after them."""
    x = a.T / np.sum(a * a)
    for _ in range(3):
        x = 2 * x - x @ a @ x
    return x


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_summands_of_a_sum_that_is_kept_are_not(gather: str) -> None:
    a = np.random.default_rng(0).standard_normal((30, 30))
    program = upl.function(inverse).program(a)
    found = plan(program, gather=gather)
    assert not {n for n in found.arrays if "term" in n}
    assert len(boxes(found)) == 6
    (result,) = upl.compile(program, engine="native", gather=gather)(a=a).values()
    np.testing.assert_allclose(result, inverse(a), rtol=1e-10)


# What is cheap but for a sum that has an array of its own is computed where it is used.
COLUMNS = """program columns
param n >= 1
const m = 40
input X<i,j> in 0<=i<n, 0<=j<m { -> M.x<j>; -> D.x<i,j> }
output R<i,j>
output V<j>
node M<j> { in @(+) x[n]; x/n #n -> D.mean<*,j> }
node D<i,j> { in x, mean; d = x - mean; d -> R; d -> W.d<j> }
node W<j> { in @(+) d[n]; d -> V }
"""


def test_cheap_values_behind_a_sum_are_computed_again() -> None:
    program = upl.load(COLUMNS)
    found = plan(program)
    assert "D:0" not in found.arrays and "M:0" in found.arrays
    compare(program, {"n": 7}, "relaxed")


def test_small_products_stay_loops() -> None:
    small = LAYERS.replace("param n >= 1", "const n = 4").replace("= 40", "= 2").replace("= 30", "= 3")
    assert not boxes(plan(upl.load(small)))


def test_a_sum_times_a_number_is_no_product() -> None:
    """No operation on matrices computes it, so it gets no array for that."""
    text = "program p\nparam n >= 1\ninput X<i,j> in 0<=i<n, 0<=j<n { 2*X -> S.s<i> }\noutput R<i>\n"
    program = upl.load(text + "node S<i> in 0<=i<n { in @(+) s[n]; tanh(s)*s -> R }\n")
    assert not plan(program).arrays
    compare(program, {"n": 5}, "relaxed")


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_gradients_of_a_convolution(gather: str) -> None:
    gradient = upl.vjp(upl.load(PROGRAMS / "convolution.upl"), of="R", wrt=["X", "W"])
    found = boxes(plan(gradient, gather=gather))
    assert {"R", "d_W"} <= found.keys()
    assert [r.var for t in found["d_W"].contraction.terms for r in t.around] == []
    if gather == "relaxed":  # two loops over the nine taps, for one image at a time
        (term,) = found["d_X"].contraction.terms
        assert len(term.around) == 2 and len(found["d_X"].contraction.around) == 1
        # or, where all of the kernels is finite, one product on a copy with zeros round it
        assert str(lower_to_loops(gradient.op).module).count("arith.cmpf oeq") == 1
    else:  # the taps would come in another order
        assert "d_X" not in found
    for sizes in (
        {"n": 1, "c": 1, "k": 1, "o": 1},
        {"n": 2, "c": 3, "k": 5, "o": 4},
        {"n": 2, "c": 20, "k": 9, "o": 11},
    ):
        compare(gradient, sizes, gather)


@pytest.mark.parametrize("name", ["jacobi", "reaction"])
def test_a_loop_over_time_runs_as_a_wavefront(name: str) -> None:
    program = upl.grad(upl.load(PROGRAMS / f"{name}.upl"), "L", ["U0"])
    found = plan(program)
    tiled = [t for t in found.tree if isinstance(t, Loop) and not t.parallel]
    assert tiled
    for t in tiled:  # blocks of steps, waves, steps
        (wave,) = t.body
        assert isinstance(wave, Loop) and not wave.parallel
        assert all(isinstance(time, Loop) and not time.parallel for time in wave.body)
    assert len(tiled) == 2
    # also for several threads: sharing step by step is slower, as both cores then wait for memory
    assert len([t for t in plan(program, threads=2).tree if isinstance(t, Loop) and not t.parallel]) == 2
    # one step, fewer than a block, a block and one more, several blocks; grids without, with one, with many inner rows
    for steps, m in ((1, 3), (3, 4), (16, 5), (17, 9), (40, 7), (33, 30)):
        compare(program, {"T": steps, "m": m}, "ordered")
        compare(program, {"T": steps, "m": m}, "relaxed")


def test_what_is_kept_of_a_grid() -> None:
    arrays = plan(upl.grad(upl.load(PROGRAMS / "jacobi.upl"), "L", ["U0"])).arrays
    assert [a.modulus for a in arrays["U.u"].axes] == [2, None, None]
    assert [a.modulus for a in arrays["DU.d_u"].axes] == [2, None, None]
    assert set(arrays) == {"U.u", "DU.d_u"}


FIBONACCI = """program fibonacci
const T = 9
input X<k> in 0<=k<2 { -> F.a<k> }
output R
node F<k> in 0<=k<=T { in a; if k==T: a -> R; if k>=1 && k<T: a -> G.x<k+1>; if k<T-1: a -> G.y<k+2> }
node G<k> in 2<=k<=T { in x, y; x+y -> F.a<k> }
"""
MIXED = """program mixed
param T >= 1
param n >= 1
input X<i> in 0<=i<n { -> U.u<0,i> }
output R<i>
node U<t,i> in 0<=t<=T, 0<=i<n { in u; if t<T: u -> M.u<t+1,i,j> for j in 0..n-1; if t==T: u -> R }
node M<t,i,j> in 1<=t<=T, 0<=i<n, 0<=j<n { in u; sin(u+j) -> S.s<t,j> }
node S<t,j> in 1<=t<=T, 0<=j<n { in @(+) s[n]; s -> U.u<t,j> }
"""


@pytest.mark.parametrize(
    ("text", "kept", "sizes"),
    [(FIBONACCI, {"F.a": [2]}, {}), (MIXED, {"U.u": [2, None], "S.s": []}, {"T": 3, "n": 4})],
    ids=["fibonacci", "mixed"],
)
def test_what_is_kept_from_step_to_step(text: str, kept: dict[str, list[int | None]], sizes: dict[str, int]) -> None:
    """As many steps as are read later, and of what is read at once one element."""
    program = upl.load(text)
    assert {n: [a.modulus for a in x.axes] for n, x in plan(program).arrays.items()} == kept
    compare(program, sizes, "ordered")


@pytest.mark.parametrize(("real", "line"), [("f64", 8), ("f32", 16)])
def test_rows_of_grids_begin_where_vectors_should(real: str, line: int) -> None:
    arrays = plan(upl.grad(upl.load(PROGRAMS / "jacobi.upl"), "L", ["U0"]), real=real).arrays
    for name, begin in (("U.u", 1), ("DU.d_u", 2)):  # where the loop over most of a row begins
        row = arrays[name].axes[-1]
        assert (row.lead + begin) % line == 0
        for m in (3, 12, 512, 504, 1024):
            places = row.size.evaluate({"m": m}, lambda *_: 0)
            assert places >= m + row.lead
            assert places // line % 2 == 1 and places % line == 0


def test_the_rows_of_a_grid_of_known_height_too() -> None:
    """What counts is how long its rows may be."""
    text = (PROGRAMS / "jacobi.upl").read_text(encoding="utf-8")
    for old, new in (
        ("i<m", "i<20"),
        ("i<=m-3", "i<=17"),
        ("<=i<=m-2", "<=i<=18"),
        ("i==m-1", "i==19"),
        ("#m -> T", "#20 -> T"),
    ):
        assert old in text
        text = text.replace(old, new)
    row = plan(upl.load(text)).arrays["U.u"].axes[-1]
    assert (row.lead + 1) % 8 == 0 and row.line == 8


def test_small_arrays_lie_on_the_stack() -> None:
    """Those of a known size: the layers and weights of a small net, but not the grid of a stencil."""
    training = upl.load(EXAMPLES / "training.upl").expanded()
    assert lowered_ir(training).count("alloca") == len(plan(training).arrays) == 5
    assert "alloca" not in lowered_ir(upl.load(PROGRAMS / "jacobi.upl"))


def test_of_a_trajectory_few_states_are_kept() -> None:
    """Every tenth state is kept; of those made again a window of steps and rows."""
    arrays = plan(upl.grad(upl.load(PROGRAMS / "reaction.upl"), "L", ["U0"])).arrays
    assert {n: [a.modulus for a in x.axes] for n, x in arrays.items()} == {
        "U.u": [2, None, None],
        "DU.d_u": [2, None, None],
        "U.u.kept": [None, None, None],
        "U.u.again": [power_of_two(SEGMENT), power_of_two(2 * SEGMENT + 1), None],
    }
    assert [arrays["U.u.kept"].axes[0].extent.evaluate({"T": t}, lambda *_: 0) for t in (1, 10, 11, 100)] == [
        1,
        1,
        2,
        10,
    ]


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_states_made_again_are_the_same(gather: str) -> None:
    """Segments that are full, begin before the start, are one step; grids narrower and wider than the window of rows."""
    program = upl.grad(upl.load(PROGRAMS / "reaction.upl"), "L", ["U0"])
    for steps, m in ((9, 4), (10, 40), (11, 9), (20, 26), (21, 24), (39, 3)):
        compare(program, {"T": steps, "m": m}, gather, between=(0, 1))


BELOW = """program below
param T >= 1
param m >= 2
input A0<i,j> in -5<=i<m-5, 0<=j<m { -> A.u<0,i,j> }
output L
node A<t,i,j> in 0<=t<=T, -5<=i<m-5, 0<=j<m {
  in u
  if t<T: u -> F.u<t+1,i,j>
  if t<T && i>=-4: u -> F.n<t+1,i-1,j>
  if t<T && i==m-6: u -> F.n<t+1,i,j>
  if t==T: u -> Sum.s<>
}
node F<t,i,j> in 1<=t<=T, -5<=i<m-5, 0<=j<m { in u, n; u - 0.1*u*n -> A.u }
node Sum { in @(+) s[m*m]; -> L }
"""


def test_states_of_a_grid_that_begins_below_zero() -> None:
    """As many rows are kept as there are, wherever they are counted from."""
    program = upl.grad(upl.load(BELOW), "L", ["A0"])
    assert [str(a.extent) for a in plan(program).arrays["A.u.kept"].axes[1:]] == ["m", "m"]
    compare(program, {"T": 11, "m": 7}, "ordered", between=(0, 1))


def test_states_made_again_of_infinities_and_nan() -> None:
    program = upl.grad(upl.load(PROGRAMS / "reaction.upl"), "L", ["U0"])
    start = random_inputs(program, {"T": 12, "m": 8})["U0"]
    start[2, 3], start[6, 1] = np.inf, np.nan
    wanted = upl.compile(program, gather="ordered")(U0=start, T=12)
    found = upl.compile(program, engine="native", gather="ordered")(U0=start, T=12)
    assert np.isnan(found["d_U0"]).any() and not np.isnan(found["d_U0"]).all()
    np.testing.assert_array_equal(found["d_U0"], wanted["d_U0"])


# Two grids that react with each other; one moves along the rows. The adjoint reads both.
TWO_GRIDS = """program two_grids
param T >= 1
param m >= 3
input A0<i,j> in 0<=i<m, 0<=j<m { -> A.u<0,i,j> }
input B0<i,j> in 0<=i<m, 0<=j<m { -> B.u<0,i,j> }
output L
node A<t,i,j> in 0<=t<=T, 0<=i<m, 0<=j<m {
  in u
  if t<T: u -> F.a<t+1,i,j>
  if t<T: u -> G.a<t+1,i,j>
  if t<T && i>=1: u -> F.n<t+1,i-1,j>
  if t<T && i==m-1: u -> F.n<t+1,i,j>
  if t==T: u #m -> Row.s<i>
}
node B<t,i,j> in 0<=t<=T, 0<=i<m, 0<=j<m {
  in u
  if t<T: u -> F.b<t+1,i,j>
  if t<T: u -> G.b<t+1,i,j>
}
node F<t,i,j> in 1<=t<=T, 0<=i<m, 0<=j<m { in a, b, n; 0.5*a*b + 0.3*n*a -> A.u }
node G<t,i,j> in 1<=t<=T, 0<=i<m, 0<=j<m { in a, b; b - 0.1*a*b -> B.u }
node Row<i>   { in @(+) s[#]; #m -> Total.s<> }
node Total    { in @(+) s[#]; -> L }
"""


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_two_grids_are_made_again(gather: str) -> None:
    program = upl.grad(upl.load(TWO_GRIDS), "L", ["A0", "B0"])
    arrays = plan(program, gather=gather).arrays
    # F.n, which both loops read, follows from A.u: it is made again and not kept
    assert {n for n in arrays if "." in n.partition(".")[2]} == {
        "A.u.kept", "A.u.again", "B.u.kept", "B.u.again", "F.n.again",
    }  # fmt: skip
    for steps, m in ((1, 3), (10, 4), (23, 12), (11, 30)):
        compare(program, {"T": steps, "m": m}, gather, between=(0.5, 1.5))


# Weights that change from example to example, each after its last use.
TRAINING = """program training
param D >= 1
const I = 5
const J = 4
input X<d,i> in 1<=d<=D, 1<=i<=I { #J -> P.x<d,i,*>; #J -> U.x<d,i,*> }
input W<i,j> in 1<=i<=I, 1<=j<=J { -> H.w<1,i,j> }
output V<i,j>
node H<d,i,j> in 1<=d<=D+1, 1<=i<=I, 1<=j<=J {
  in w
  if d<=D: w -> P.w<d,i,j>
  if d<=D: w -> U.w<d,i,j>
  if d==D+1: w -> V<i,j>
}
node P<d,i,j> { in x, w; x*w #I -> S.s<d,j> }
node S<d,j>   { in @(+) s[#]; 0.1*s #I -> U.e<d,*,j> }
node U<d,i,j> { in x, w, e; w - e*x -> H.w<d+1,i,j> }
"""


def test_new_elements_take_the_places_of_old_ones() -> None:
    program = upl.load(TRAINING)
    weights = plan(program).arrays["H.w"]
    assert [a.at for a in weights.axes] == [1, 2]  # the examples are no axis
    for d in (1, 2, 7):
        compare(program, {"D": d}, "ordered")


def test_no_place_is_given_away_too_early() -> None:
    """The sum over all rows reads old elements after some new ones are there: two of each are kept."""
    text = TRAINING.replace("node U<d,i,j> { in x, w, e; w - e*x", "node U<d,i,j> { in x, w, e, v; w - e*x*v").replace(
        "  if d==D+1", "  if d<=D: w -> U.v<d,I+1-i,j>\n  if d==D+1"
    )
    program = upl.load(text)
    assert [(a.at, a.modulus) for a in plan(program).arrays["H.w"].axes] == [(0, 2), (1, None), (2, None)]
    for d in (1, 2, 7):
        compare(program, {"D": d}, "ordered")


def test_layers_of_known_sizes_are_written_out() -> None:
    found = plan(upl.load(EXAMPLES / "training.upl").expanded())
    bounds = [e for t in subtrees(found.tree) if isinstance(t, Loop) for e in (*t.lows, *t.highs)]
    assert bounds and not any("N[" in str(e) for e in bounds)


def test_products_read_what_is_copied_from_an_input() -> None:
    """The first layer's copies are gone; what is no copy is read as before."""
    program = upl.load(EXAMPLES / "perceptron.upl", K=3, N=[30, 20, 10])
    found = plan(program)
    (line,) = (x for x in schedule_lines(found.tree, found.arrays) if "contraction Sum.s<L1,1," in x)
    assert "X<L1," in line and "Res.r" not in line
    compare(program, {"D": 2}, "relaxed")


def test_the_bounds_of_loops_are_shown() -> None:
    text = "program p\nparam n >= 1\nparam m >= 1\ninput X<i> in 0<=i<n, i<m { -> A.x }\noutput R<i>\n"
    found = plan(upl.load(text + "node A<i> { in x; 2.0*x -> R }\n").infer_domains())
    assert schedule_lines(found.tree, found.arrays) == ["parallel for L1 in 0..min(m-1, n-1)", "  R<L1> = (2 * X<L1>)"]


def test_comparisons_are_shown() -> None:
    """As UPL writes them, of reals and of integers."""
    text = """program p
param n >= 1
input X<i> in 0<=i<n { -> A.x }
output R<i>
node A<i> {
  in x
  k = int(x)
  (x == 1 || x < 2) && (x != 3 || x >= 4) && (k == 5 || k > 6) && (k != 7 || k <= i) ? x : 0 -> R
}
"""
    found = plan(upl.load(text).infer_domains())
    (line,) = (x.strip() for x in schedule_lines(found.tree, found.arrays) if "R<L1> =" in x)
    for wanted in ("X<L1> == 1", "X<L1> < 2", "X<L1> != 3", "X<L1> >= 4", "== 5", "> 6", "!= 7", "<= L1"):
        assert f"{wanted})" in line, line


def test_one_compilation_serves_calls_of_all_kinds() -> None:
    program = upl.load(LAYERS)
    run, slow = upl.compile(program, engine="native"), upl.compile(program)
    for n, order in ((3, "C"), (3, "C"), (5, "C"), (3, "F"), (3, "C")):
        given = {k: np.asarray(a, order=order) for k, a in random_inputs(program, {"n": n}, n).items()}
        np.testing.assert_allclose(run(**given)["Y"], slow(**given)["Y"], rtol=1e-12, atol=1e-12)
    with pytest.raises(upl.UplError):
        run(**(given | {"W": given["W"][:-1]}))
    as_ints = {k: np.ones_like(a, dtype=np.int64) for k, a in given.items()}
    np.testing.assert_allclose(run(**as_ints)["Y"], slow(**as_ints)["Y"])
