"""Native code of programs that data decide: the interpreter's results, and its errors in its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from agreement.by_data import SIZES, data, program
from upl_mlir.engines.token.all_sizes import LoopsOrTokens, TokensInCode

SPARSE = Path(__file__).resolve().parents[2] / "examples" / "sparse"
RNG = np.random.default_rng(7)

COO = """program coo
param m >= 1
param n >= 1
param z >= 1
input V<e> in 0<=e<z { -> Elem.v }
input Row<e>: int in 0<=e<z { -> Elem.row }
input Col<e>: int in 0<=e<z { -> Elem.col }
input Count<i>: int in 0<=i<m { -> Sum.count }
input X<j> in 0<=j<n { ## -> Mul.x<j,*> }
output Y<i>
node Elem<e> { in v, row: int, col: int; v -> Mul.v<col,e>; row -> Mul.row<col,e> }
node Mul<j,e> { in x, v, row: int; x*v -> Sum.s<row> }
node Sum<i> in 0<=i<m { in count: int, @(+) s[count]; s -> Y }
"""
RANK = """program pagerank
param n >= 1
param m >= 1
param T >= 1
input Src<e>: int in 0<=e<m { -> Edge.src }
input Dst<e>: int in 0<=e<m { -> Edge.dst }
input In<v>: int in 0<=v<n { -> Sum.indeg<t,v> for t in 0..T-1 }
input Out<v> in 0<=v<n { #T+1 -> R.out<*,v> }
input R0<v> in 0<=v<n { -> R.r<0,v> }
output Rank<v>
node Edge<e> { in src: int, dst: int; dst -> Msg.dst<t,src,e> for t in 0..T-1 }
node R<t,v> in 0<=t<=T, 0<=v<n { in r, out; if t<T: r/out ## -> Msg.r<t,v,*>; if t==T: r -> Rank<v> }
node Msg<t,v,e> { in r, dst: int; r -> Sum.s<t,dst> }
node Sum<t,v> in 0<=t<T, 0<=v<n { in indeg: int, @(+) s[indeg]; 0.15/n + 0.85*s -> R.r<t+1,v> }
"""
MESSAGES = """program messages
param n >= 1
param m >= 1
param f >= 1
input S<e>: int in 0<=e<m { -> E.s<e> }
input D<e>: int in 0<=e<m { -> E.d<e> }
input N<v>: int in 0<=v<n { -> Sum.k<v,c> for c in 0..f-1 }
input H<v,c> in 0<=v<n, 0<=c<f { ## -> M.h<v,*,c> }
output Y<v,c>
node E<e> { in s: int, d: int; d -> M.d<s,e,c> for c in 0..f-1 }
node M<v,e,c> { in h, d: int; tanh(h) -> Sum.x<d,c> }
node Sum<v,c> in 0<=v<n, 0<=c<f { in k: int, @(+) x[k]; x -> Y }
"""


@pytest.fixture(autouse=True)
def _same_data() -> None:
    """Data do not depend on which tests ran before."""
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state


def engine(f: Any) -> Any:
    """What runs a compiled program."""
    return f._native


def by_loops(f: Any) -> bool:
    """Whether loops gave the last results."""
    return isinstance(engine(f), LoopsOrTokens) and not engine(f)._by_tokens


def graph(n: int, m: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Ends of edges, and how many come to each place."""
    src, dst = RNG.integers(0, n, m), RNG.integers(0, n, m)
    return src, dst, np.bincount(dst, minlength=n)


def sparse() -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    m, n, z = 6, 9, 40
    row, col = RNG.integers(0, m, z), RNG.integers(0, n, z)
    v, x = RNG.random(z), RNG.random(n)
    dense = np.zeros((m, n))
    np.add.at(dense, (row, col), v)
    arrays = {"V": v, "Row": row, "Col": col, "Count": np.bincount(row, minlength=m), "X": x}
    return arrays, lambda: {"Y": dense @ x}


def rank() -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    n, m, steps = 8, 30, 5
    src, dst, count = graph(n, m)
    out, r0 = 1.0 + np.bincount(src, minlength=n), RNG.random(n)

    def expected() -> dict[str, Any]:
        r = r0
        for _ in range(steps):
            r = 0.15 / n + 0.85 * np.bincount(dst, (r / out)[src], minlength=n)
        return {"Rank": r}

    return {"Src": src, "Dst": dst, "In": count, "Out": out, "R0": r0, "T": steps}, expected


def messages() -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    n, m, f = 5, 17, 3
    src, dst, count = graph(n, m)
    h, y = RNG.random((n, f)), np.zeros((n, f))
    np.add.at(y, dst, np.tanh(h)[src])
    return {"S": src, "D": dst, "N": count, "H": h}, lambda: {"Y": y}


KERNELS = {"coo": (COO, sparse), "rank": (RANK, rank), "messages": (MESSAGES, messages)}


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
@pytest.mark.parametrize("name", KERNELS)
def test_numbers_are_those_of_numpy(name: str, gather: Any) -> None:
    text, make = KERNELS[name]
    arrays, expected = make()
    f = upl.compile(upl.load(text), engine="native", gather=gather)
    found = f(**arrays)
    assert by_loops(f) or gather == "ordered"
    for port, values in expected().items():
        np.testing.assert_allclose(found[port], values, rtol=1e-12)
    assert found.keys() == expected().keys()  # the bit that says whether something went wrong is no result
    if gather == "ordered":  # the order of summands goes by the indices from data
        exact = upl.compile(upl.load(text), gather="ordered")(**arrays)
        assert all(np.array_equal(found[port], exact[port]) for port in exact)


@pytest.mark.parametrize("name", ["embedding", "knapsack", "message_passing", "viterbi", "pagerank"])
def test_examples(name: str) -> None:
    """With gathers that take what comes, and a chain back whose places data choose."""
    p = upl.load(SPARSE / f"{name}.upl")
    sizes = dict.fromkeys(p.params, 4)
    arrays: dict[str, Any] = {}
    for port, view in p.inputs.items():
        shape = view.shape(**sizes)
        arrays[port] = RNG.integers(0, 3, shape) if view.dtype.kind == "i" else RNG.random(shape)
    f = upl.compile(p, engine="native")
    expected, found = upl.compile(p)(**arrays, **sizes), f(**arrays, **sizes)
    for port, values in expected.items():
        np.testing.assert_allclose(found[port], values, rtol=1e-12)
    assert by_loops(f)


EDGE, WEIGHT = "to -> Link.to<t,e,from>", "#T -> Link.w<*,e,*>"


@pytest.mark.parametrize(("old", "new", "loops"), [
    (WEIGHT, WEIGHT, True),  # a number of activations of which data choose no field
    (WEIGHT, "## -> Link.w<*,e,*>", True),
    (WEIGHT, "## -> Link.w<0,e,*>; ## -> Link.w<t,e,*> for t in 1..T-1", True),  # all of the instances, in two parts
    (EDGE, f"if from >= 0: {EDGE}", True),
    (EDGE, f"if from > 0: {EDGE}", False),  # some instances do not fire: activations are left
    (WEIGHT, "#T+1 -> Link.w<*,e,*>", False), (WEIGHT, "#T-1 -> Link.w<*,e,*>", False),
    (WEIGHT, "## -> Link.w<0,e,*>", False), (WEIGHT, "#1 -> Link.w<0,e,*>", False),  # instances without a weight
    (WEIGHT, "## -> Link.w<*,e+1,*>", False),
])  # fmt: skip
def test_a_token_for_instances_that_data_choose(old: str, new: str, loops: bool) -> None:
    """It is used as often as it says, and comes to each of them; else the error is the interpreter's."""
    text = (SPARSE / "pagerank.upl").read_text()
    assert old in text
    p = upl.load(text.replace(old, new))
    ends = {"From": np.array([0, 1, 2, 0, 1]), "To": np.array([1, 2, 0, 2, 2])}
    arrays = {**ends, "W": RNG.random(5), "R0": RNG.random(3), "T": 3}
    f = upl.compile(p, engine="native")
    try:
        expected = upl.compile(p)(**arrays)["R"]
    except upl.UplError as e:
        with pytest.raises(upl.UplError) as found:
            f(**arrays)
        assert not loops and {d.code for d in found.value.diagnostics} == {d.code for d in e.diagnostics}
    else:
        np.testing.assert_allclose(f(**arrays)["R"], expected, rtol=1e-12)
        assert loops and by_loops(f)


@pytest.mark.parametrize("change", [{}, {"Col": (3, 1, 3)}, {"Col": (3, 1, 5)}, {"Col": (3, 1, -1)}, {"Count": (2, 3)},
                                    {"Count": (0, 1)}, {"Col": (3, 0, 7)}])  # fmt: skip
def test_what_a_domain_says_of_data(change: dict[str, tuple[int, ...]]) -> None:
    """A row is solved by those before it, as `Mul<j,i,p>` has no other instances: that orders loops, and is seen to."""
    n, w = 5, 2
    col = np.array([[0, 0], [0, 0], [1, 0], [9, 2], [3, 1]])  # 9: a place that is not in use
    arrays: dict[str, Any] = {"V": RNG.random((n, w)), "Col": col, "Count": np.array([0, 1, 2, 0, 2]),
                              "Diag": 1 + RNG.random(n), "B": RNG.random(n)}  # fmt: skip
    for port, (*at, value) in change.items():
        arrays[port][tuple(at)] = value
    if change.get("Col", (0,))[0] == 3 and "Col" in change:
        arrays["Count"][3] = 2
        arrays["Col"][3] = np.where(arrays["Col"][3] == 9, 0, arrays["Col"][3])
    p = upl.load(SPARSE / "lower_solve.upl")
    f = upl.compile(p, engine="native")
    try:
        expected = upl.compile(p)(**arrays)
    except upl.UplError as e:
        assert change
        with pytest.raises(upl.UplError) as found:
            f(**arrays)
        assert {d.code for d in found.value.diagnostics} == {d.code for d in e.diagnostics}
        return
    assert not change and np.array_equal(f(**arrays)["X"], expected["X"]) and by_loops(f)


@pytest.mark.parametrize("change", [{}, {"Count": (1, 4)}, {"Col": (2, 1, 5)}, {"Col": (2, 1, -1)}])
def test_one_loop_asks_all(change: dict[str, tuple[int, ...]]) -> None:
    """Value, both derivatives and what may go wrong of a sparse product, which come of one loop over the places of a row."""
    p = upl.load(SPARSE.parent / "spmv.upl")
    g = upl.vjp(p, of="Y", wrt=["V", "X"])
    m, n, w = 4, 5, 3
    v, col, count = RNG.normal(size=(m, w)), RNG.integers(0, n, (m, w)), np.array([3, 0, 2, 1])
    col[3, 2] = 77  # not in use
    arrays: dict[str, Any] = {"V": v, "Col": col, "Count": count, "X": RNG.normal(size=n), "d_Y": RNG.normal(size=m)}
    for port, (*at, wrong) in change.items():
        arrays[port][tuple(at)] = wrong
    f = upl.compile(g, engine="native")
    if change:
        with pytest.raises(upl.UplError) as expected:
            upl.compile(g)(**arrays)
        with pytest.raises(upl.UplError) as found:
            f(**arrays)
        assert {d.code for d in found.value.diagnostics} == {d.code for d in expected.value.diagnostics}
        return
    out = f(**arrays)
    assert by_loops(f)
    used = np.arange(w) < count[:, None]
    at_ = np.where(used, col, 0)
    x, d = arrays["X"], arrays["d_Y"]
    np.testing.assert_allclose(out["Y"], (np.where(used, v, 0) * x[at_]).sum(1), rtol=1e-13)
    np.testing.assert_allclose(out["d_V"], np.where(used, d[:, None] * x[at_], 0), rtol=1e-13)
    back = np.zeros(n)
    np.add.at(back, at_[used], (d[:, None] * v)[used])
    np.testing.assert_allclose(out["d_X"], back, rtol=1e-13)


JUMP = """program jump
param n >= 1
input X<i> in 0<=i<n { -> Cell.x }
input To<i>: int in 0<=i<n { if To >= 0 && To < n: true -> Go.there<i,To> }
output Y<i>
node Cell<i> in 0<=i<n { in x, @(+) s[##]; y = x + 0.5*s; y -> Y; y ## -> Go.y<i,*> }
node Go<i,j> in 0<=i<j, j<n { in y, there: bool; y*y -> Cell.s<j> }
"""
"""Cells that send to cells behind them, which data choose."""


@pytest.mark.parametrize("way", ["up", "down", "max"])
def test_cells_that_add_to_others_ahead(way: str) -> None:
    """A loop makes the cells in order, and each step adds to those that data choose; backwards as well."""
    text = JUMP.replace("0<=i<j, j<n", "0<=j<i, i<n") if way == "down" else JUMP
    p = upl.load(text.replace("@(+)", "@(max)").replace("0.5*s", "(s > 0 ? 0.5*s : 0)") if way == "max" else text)
    f = upl.compile(p, engine="native")
    for n in (1, 2, 30):
        i, x = np.arange(n), RNG.normal(size=n) / 2
        to = RNG.integers(-3, np.maximum(i, -2)) if way == "down" else RNG.integers(i + 1, n + 3)
        y = np.zeros(n)
        come: list[list[float]] = [[] for _ in i]
        for k in i[::-1] if way == "down" else i:
            s = max(0, *come[k], 0) if way == "max" else sum(come[k])
            y[k] = x[k] + 0.5 * s
            if 0 <= to[k] < n:
                come[to[k]].append(y[k] ** 2)
        np.testing.assert_allclose(f(X=x, To=to)["Y"], y, rtol=1e-14)
        assert by_loops(f)
        g = upl.vjp(p, of="Y", wrt="X")
        back, seeded = upl.compile(g, engine="native"), {"X": x, "To": to, "d_Y": RNG.random(n)}
        np.testing.assert_allclose(back(**seeded)["d_X"], upl.compile(g)(**seeded)["d_X"], rtol=1e-13)
        assert by_loops(back) or way == "max"
    to[3] = 3  # to itself: there is no such instance
    with pytest.raises(upl.UplError, match="UPL1610"):
        f(X=x, To=to)


@pytest.mark.parametrize(("change", "code"), [
    ({"Col": (3, 9)}, "UPL1601"), ({"Col": (0, -1)}, "UPL1601"), ({"Row": (2, 77)}, "UPL1601"),
    ({"Count": (1, 99)}, "UPL1601"),
])  # fmt: skip
def test_errors_are_the_interpreters(change: dict[str, tuple[int, int]], code: str) -> None:
    arrays, _ = sparse()
    for port, (at, value) in change.items():
        arrays[port][at] = value
    p = upl.load(COO)
    f = upl.compile(p, engine="native")
    with pytest.raises(upl.UplError) as expected:
        upl.compile(p)(**arrays)
    y = np.zeros(6)
    with pytest.raises(upl.UplError, match=code) as found:
        f(**arrays, out={"Y": y})

    def said(e: pytest.ExceptionInfo[upl.UplError]) -> list[Any]:  # but for the order in which tokens are listed
        return [(d.code, d.span, sorted(re.findall(r"[^\s,]+", d.message))) for d in e.value.diagnostics]

    assert said(found) == said(expected)
    arrays, good = sparse()
    np.testing.assert_allclose(f(**arrays)["Y"], good()["Y"], rtol=1e-12)  # the next run is right again


def test_what_loops_ran_is_not_counted() -> None:
    """To say so takes no C++ compiler: nothing is made in which tokens move."""
    arrays, _ = sparse()
    f = upl.compile(upl.load(COO), engine="native")
    f(**arrays)
    assert by_loops(f) and set(f.stats["firings"].values()) == {None} and f.stats["tokens"] == {
        "Y": None, "Elem": None, "Mul": None, "Sum": None
    }
    assert not engine(f)._tokens.cache_info().currsize


def test_results_in_the_place_of_inputs() -> None:
    """An input that a result is written over is still there when the tokens say what went wrong."""
    arrays, _ = rank()
    f = upl.compile(upl.load(RANK), engine="native")
    good = f(**arrays)["Rank"]
    place = arrays["R0"].copy()
    np.testing.assert_array_equal(f(**arrays | {"R0": place}, out={"Rank": place})["Rank"], good)
    arrays["In"][0] += 1
    with pytest.raises(upl.UplError, match="UPL1601"):
        f(**arrays | {"R0": place}, out={"Rank": place})


def test_an_instance_that_is_not_there_may_overflow() -> None:
    """Loops pass it all the same; it is no error of the program."""
    text = """program late
param n >= 1
input X<i>: int in 0<=i<n { -> A.x }
output Y<i>: int in 0<=i<n
node A<i> { in x: int; if x > 0: x -> B.x; if x <= 0: x -> Y<i> }
node B<i> { in x: int; (x + 9223372036854775800) - 9223372036854775800 -> Y<i> }
"""
    f = upl.compile(upl.load(text), engine="native")
    x = np.array([-5, 3, 7, -1])
    np.testing.assert_array_equal(f(X=x)["Y"], x)
    assert by_loops(f)
    y = np.array([-(2**63), 1])
    np.testing.assert_array_equal(f(X=y)["Y"], y)
    with pytest.raises(upl.UplError, match="UPL1604"):
        f(X=np.array([100]))


def test_what_is_met_by_data_alone() -> None:
    """A field without bounds, two tokens that meet where data say, an order that data choose."""
    text = """program walk
param T >= 1
input A: int { -> W.a<0,A> }
output Y
node W<t,x> in 0<=t<=T { in a: int; if t < T: 3*a + 1 -> W.a<t+1,a - 7*x>; if t == T: 1.0*x -> Y<> }
"""
    p = upl.load(text)
    f = upl.compile(p, engine="native")
    assert f(A=5, T=4)["Y"] == upl.compile(p)(A=5, T=4)["Y"]
    meet = """program meet
param n >= 1
input A<i>: int in 0<=i<n { -> E.a }
input B<i>: int in 0<=i<n { -> F.b }
output Y<i> in 0<=i<n
node E<i> { in a: int; 1.0*i -> M.x<a> }
node F<i> { in b: int; 2.0*i -> M.y<b> }
node M<j> { in x, y; x*y -> Y<j> }
"""
    with pytest.raises(upl.UplError, match="UPL1203"):  # as on every engine
        upl.compile(upl.load(meet), engine="native")
    g = upl.compile(upl.load(meet.replace("M<j> {", "M<j> in 0<=j<n {")), engine="native")
    assert g(A=[2, 0, 1], B=[0, 1, 2])["Y"].tolist() == [0.0, 4.0, 0.0]
    arrays, _ = sparse()
    with pytest.warns(RuntimeWarning, match="one thread"):  # the order of summands goes by what data choose
        h = upl.compile(upl.load(COO), engine="native", gather="ordered", threads=2)
    assert isinstance(engine(h), TokensInCode)
    np.testing.assert_array_equal(h(**arrays)["Y"], upl.compile(upl.load(COO), gather="ordered")(**arrays)["Y"])


def shapes(p: upl.Program, params: dict[str, int]) -> dict[str, Any]:
    return {n: (port.shape(**params), port.dtype) for n, port in p.inputs.items()}


def agree(seed: int, gather: Any, runs: int) -> int:
    """Native code and the interpreter on a random program; how many runs were right."""
    p = upl.load(program(seed))
    params = {n: SIZES[n] for n in p.params}
    one = upl.compile(p, gather=gather)
    try:
        other = upl.compile(p, engine="native", gather=gather)
    except upl.UplError as e:
        assert {d.code[:5] for d in e.diagnostics} == {"UPL13"}, str(e)  # refuted, at any size
        return 0
    right = 0
    for number in range(runs):
        arrays = data(seed, number, shapes(p, params))
        try:
            expected = one(**arrays, **params)
        except upl.UplError as e:
            with pytest.raises(upl.UplError) as found:
                other(**arrays, **params)
            codes = [sorted((d.code, str(d.span)) for d in x.diagnostics) for x in (e, found.value)]
            assert codes[0] == codes[1], (seed, number)
            continue
        right += 1
        for port, values in other(**arrays, **params).items():
            if gather == "ordered":
                np.testing.assert_array_equal(values, expected[port], err_msg=f"{seed} {number} {port}")
            else:
                np.testing.assert_allclose(values, expected[port], rtol=1e-12, err_msg=f"{seed} {number} {port}")
    return right


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_random_programs(gather: Any) -> None:
    assert sum(agree(seed, gather, 8) for seed in (6, 28, 40, 1059, 20001, 20003)) > 8


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_many_random_programs(gather: Any) -> None:
    assert sum(agree(seed, gather, 8) for seed in range(20000, 20040)) > 40
