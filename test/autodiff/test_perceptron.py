"""The paper's perceptron: its derivative against backpropagation by hand, and every number that the paper states."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.interp import Engine, Event
from upl_mlir.passes.autodiff.autodiff import AutodiffPass
from upl_mlir.passes.infer_domains import InferDomainsPass
from upl_mlir.pipeline import run as run_passes

SIZES = (4, 4, 5, 6, 4, 3, 3)
PRIMAL = {"Res": 29, "Link": 111, "Sum": 25, "AF_ReLU": 25}
BY_W = {"DRes": 25, "DLink": 111, "DSum": 25, "DAF_ReLU": 25}
BY_XW = {**BY_W, "DRes": 29}


def data(rng, sizes, examples):
    """Inputs such that every layer has neurons on both sides of the kink, and none near it."""
    depth = len(sizes) - 1
    x = rng.standard_normal((examples, sizes[0]))
    w = np.zeros((examples, depth, max(sizes[:-1]), max(sizes[1:])))
    for k, (n, m) in enumerate(pairwise(sizes)):
        w[:, k, :n, :m] = rng.standard_normal((examples, n, m)) + 0.3
    seed = rng.standard_normal((examples, sizes[-1]))
    return {"X": x, "W": w, "d_R": seed}


def backpropagation(sizes, x, w, seed):
    """(R, d_X, d_W) for one example, written without looking at the compiler."""
    layers = [x]
    sums = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        sums.append(layers[-1] @ w[k, :n, :m])
        layers.append(np.maximum(sums[-1], 0))
    d_w, d = np.zeros_like(w), seed
    for k in reversed(range(len(sizes) - 1)):
        d = d * (sums[k] > 0)
        n, m = sizes[k], sizes[k + 1]
        d_w[k, :n, :m] = np.outer(layers[k], d)
        d = w[k, :n, :m] @ d
    return layers[-1], d, d_w


def by_hand(sizes, inputs):
    """(R, d_X, d_W) for all examples."""
    rows = [backpropagation(sizes, *row) for row in zip(inputs["X"], inputs["W"], inputs["d_R"], strict=True)]
    return [np.array(column) for column in zip(*rows, strict=True)]


def stats_of(g, inputs):
    """Counts of one run."""
    compiled = upl.compile(g)
    compiled(**inputs)
    return compiled.stats


@pytest.mark.parametrize("wrt", ["W", "X W", "X"])
def test_backpropagation(tools, rng, wrt):
    inputs = data(rng, SIZES, 3)
    g = tools.vjp("perceptron", "R", wrt)
    out = tools.consistent(g, inputs)
    r, d_x, d_w = by_hand(SIZES, inputs)
    assert (r > 0).any() and np.count_nonzero(d_w)
    np.testing.assert_allclose(out["R"], r, rtol=1e-12)
    assert set(out) == {"R", *(f"d_{n}" for n in wrt.split())}
    for name, expected in (("d_X", d_x), ("d_W", d_w)):
        if name in out:
            assert out[name].shape == expected.shape
            np.testing.assert_allclose(out[name], expected, rtol=1e-12, atol=1e-12)


def test_all_entries_of_a_small_instance_by_differences(tools, rng):
    sizes = (2, 3, 2)
    g = tools.vjp("perceptron", "R", "X W", K=3, N=sizes)
    inputs = data(rng, sizes, 2)
    out = tools.consistent(g, inputs)
    run = upl.compile(tools.load("perceptron", K=3, N=sizes))

    def objective(arrays):
        return float(np.sum(run(X=arrays["X"], W=arrays["W"])["R"] * inputs["d_R"]))

    for name in ("X", "W"):
        np.testing.assert_allclose(out[f"d_{name}"], tools.slopes(objective, inputs, name), rtol=1e-8, atol=1e-9)


def test_numbers_of_firings_and_tokens(tools, rng):
    for wrt, adjoint, tokens in (("W", BY_W, 836), ("X W", BY_XW, 856)):
        g = tools.vjp("perceptron", "R", wrt)
        report = g.check()
        assert {n: str(f) for n, f in report.firings.items()} == {n: f"{c}*D" for n, c in (PRIMAL | adjoint).items()}
        assert str(report.tokens.total) == f"{tokens}*D"
        for d in (1, 2, 3):
            stats = stats_of(g, data(rng, SIZES, d))
            assert stats["firings"] == {n: c * d for n, c in (PRIMAL | adjoint).items()}
            assert stats["tokens_sent"] == tokens * d
    assert sum(BY_XW.values()) == 190 and sum(BY_W.values()) == 186
    stats = stats_of(tools.vjp("perceptron", "R", "W"), data(rng, SIZES, 3))
    assert sum(stats["firings"].values()) == 1128 and stats["tokens_sent"] == 2508


@cache
def undone(wrt: str) -> upl.Program:
    """The derivative without `eliminate-dead-derivatives`."""
    p = upl.load(upl.__path__[0] + "/../examples/perceptron.upl").clone()
    run_passes(p.module, [InferDomainsPass(), AutodiffPass("R", tuple(wrt.split()))])
    return p


@pytest.mark.parametrize("wrt", ["W", "X W", "X"])
def test_no_instance_fires_for_nothing(tools, rng, wrt):
    """After elimination every firing of an adjoint node sends something; results are those of autodiff alone."""
    inputs = data(rng, SIZES, 1)
    whole, pruned = undone(wrt), tools.vjp("perceptron", "R", wrt)
    a = upl.compile(whole, gather="ordered")(**inputs)
    b = upl.compile(pruned, gather="ordered")(**inputs)
    assert a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)
    idle, firings = idle_firings(pruned, inputs, 1)
    assert not idle
    assert firings == {"W": 186, "X W": 190, "X": 190}[wrt]
    if wrt == "W":
        idle, _ = idle_firings(whole, inputs, 1)
        assert {i[:3] for _, i in idle} <= {(1, 1, i) for i in range(1, 5)}, "the layer of the data"


def idle_firings(g, inputs, examples):
    """Instances of adjoint nodes that fire and send nothing; the number of firings of adjoint nodes."""
    seen = []
    engine = Engine(g.op, {"D": examples}, trace=lambda *event: seen.append(event))
    engine.run({n: np.asarray(inputs[n]) for n in g.inputs})
    idle, current, count = [], None, 0
    for event, name, index, _ in seen:
        if event is Event.FIRE:
            if current is not None:
                idle.append(current)
            current = (name, index) if name.startswith("D") else None
            count += name.startswith("D")
        else:
            current = None
    return idle, count


def test_a_carried_weight_gathers_its_derivative(tools, rng):
    """One token for all examples: the adjoint gathers D summands in 111 more firings; results are sums over examples."""
    text = str(tools.load("perceptron"))
    lines = [line for line in text.splitlines() if not line.startswith("input W")]
    at = next(i for i, line in enumerate(lines) if line.startswith("input X"))
    lines.insert(at + 1, "input W<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] { #D -> Link.w<*,k,i,j> }")
    shared = "\n".join(lines)
    inputs = data(rng, SIZES, 3)
    inputs["W"] = inputs["W"][0]
    every = {**inputs, "W": np.array([inputs["W"]] * 3)}
    r, _, d_w = by_hand(SIZES, every)
    forward = upl.compile(tools.load(shared))
    np.testing.assert_allclose(forward(X=inputs["X"], W=inputs["W"])["R"], r, rtol=1e-12)
    assert forward.stats["tokens"]["Link"] == 111 + 26 * 3, "111 weight tokens instead of 333"
    g = tools.vjp(shared, "R", "W")
    out = tools.consistent(g, inputs)
    np.testing.assert_allclose(out["d_W"], d_w.sum(axis=0), rtol=1e-12, atol=1e-12)
    stats = stats_of(g, inputs)
    assert stats["firings"] == {n: 3 * c for n, c in (PRIMAL | BY_W).items()} | {"DW": 111}


def test_linear_in_the_seed(tools, rng):
    g = upl.compile(tools.vjp("perceptron", "R", "X W"))
    inputs = data(rng, SIZES, 2)
    one, other = inputs["d_R"], rng.standard_normal(inputs["d_R"].shape)

    def at(seed):
        return g(**{**inputs, "d_R": seed})

    a, b, both, none = at(one), at(other), at(2 * one - 3 * other), at(0 * one)
    for name in ("d_X", "d_W"):
        np.testing.assert_allclose(both[name], 2 * a[name] - 3 * b[name], rtol=1e-11, atol=1e-12)
        assert not none[name].any()


def test_by_the_value_that_arrives_at_a_node(tools, rng):
    inputs = data(rng, SIZES, 2)
    _, _, d_w = by_hand(SIZES, inputs)
    out = tools.consistent(tools.vjp("perceptron", "R", "Link.w"), inputs)
    np.testing.assert_allclose(out["d_Link_w"], d_w, rtol=1e-12, atol=1e-12)
    whole = tools.vjp("perceptron", "R", "Link.w W")
    assert set(whole.outputs) == {"R", "d_Link_w", "d_W"}
    out = upl.compile(whole)(**inputs)
    np.testing.assert_allclose(out["d_Link_w"], d_w, rtol=1e-12, atol=1e-12)
    assert not out["d_W"].any(), "arrows into a wrt port carry no derivative"


def test_of_the_value_that_arrives_at_a_node(tools, rng):
    """`of Res.r`: a seed for every layer; nothing is cut there."""
    sizes = (3, 4, 2)
    inputs = data(rng, sizes, 1)
    g = tools.vjp("perceptron", "Res.r", "W", K=3, N=sizes)
    seed = np.zeros(g.inputs["d_Res_r"].shape(D=1))
    hidden, last = rng.standard_normal(4), rng.standard_normal(2)
    seed[0, 1, :4], seed[0, 2, :2] = hidden, last
    out = tools.consistent(g, {"X": inputs["X"], "W": inputs["W"], "d_Res_r": seed})
    x, w = inputs["X"][0], inputs["W"][0]
    s1 = x @ w[0, :3, :4]
    h = np.maximum(s1, 0)
    d2 = last * (h @ w[1, :4, :2] > 0)
    d1 = (hidden + w[1, :4, :2] @ d2) * (s1 > 0)
    np.testing.assert_allclose(out["d_W"][0, 0, :3, :4], np.outer(x, d1), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(out["d_W"][0, 1, :4, :2], np.outer(h, d2), rtol=1e-12, atol=1e-13)


# -- the erratum ---------------------------------------------------------------------------------------------------
def test_the_condition_printed_in_the_paper_strands_tokens(tools, rng):
    """With k<K where k>1 must stand, on the arrow from DRes to DAF_ReLU, nothing flows beyond the last layer."""
    text = str(tools.vjp("perceptron", "R", "X W"))
    right = "if k>1: d_r -> DAF_ReLU.d_r<d,k-1,i>"
    assert text.count(right) == 1
    wrong = upl.load(text.replace(right, right.replace("k>1", "k<K")))
    report = wrong.check()
    refuted = [o for o in report.obligations if o.status.name == "REFUTED"]
    assert any(o.witness == {"D": 1, "d": 1, "k": 6, "i": 1} for o in refuted)
    assert any("DAF_ReLU<1,6,1>" in o.message for o in refuted)
    for order in ("fifo", "random"):
        fired = []
        engine = Engine(wrong.op, {"D": 2}, order=order, trace=lambda *event, to=fired: to.append(event))
        with pytest.raises(upl.UplError) as e:
            engine.run(data(rng, SIZES, 2))
        assert "UPL1601" in {d.code for d in e.value.diagnostics}
        count = {n: sum(1 for event, name, *_ in fired if event is Event.FIRE and name == n) for n in BY_W}
        assert count == {"DRes": 3 * 2, "DAF_ReLU": 0, "DSum": 0, "DLink": 0}
    upl.compile(upl.load(text))(**data(rng, SIZES, 2))


# -- training ------------------------------------------------------------------------------------------------------
def test_training_is_gradient_descent(tools, rng):
    sizes, eta, examples = (4, 4, 5, 6, 4, 3, 3), 0.1, 3
    x = rng.uniform(0, 1, (examples, sizes[0]))
    y = rng.standard_normal((examples, sizes[-1]))
    w = np.where(data(rng, sizes, 1)["W"][0] != 0, rng.uniform(-0.2, 0.6, (6, 6, 6)), 0.0)
    current = w.copy()
    for d in range(examples):
        r, _, _ = backpropagation(sizes, x[d], current, np.zeros(3))
        _, _, d_w = backpropagation(sizes, x[d], current, r - y[d])
        assert np.count_nonzero(d_w)
        current = current - eta * d_w
    g = tools.load("training").expanded()
    out = tools.consistent(g, {"X": x, "Y": y, "W": w})
    np.testing.assert_allclose(out["W_out"], current, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        upl.compile(tools.load("training"))(X=x, Y=y, W=w)["W_out"], current, rtol=1e-12, atol=1e-13
    )


def test_training_counts(tools, rng):
    g = tools.load("training").expanded()
    report = g.check()
    for d in (1, 2):
        inputs = {"X": rng.standard_normal((d, 4)), "Y": np.zeros((d, 3)), "W": data(rng, SIZES, 1)["W"][0]}
        stats = stats_of(g, inputs)
        firings = PRIMAL | BY_W | {"Err": 3, "DErr": 3, "Upd": 111}
        assert stats["firings"] == {n: c * d for n, c in firings.items()}
        assert stats["tokens_sent"] == sum(report.tokens.at(D=d).values())
        if d == 1:
            assert sum(stats["firings"].values()) == 493 and stats["tokens_sent"] == 1064


@pytest.mark.parametrize("name", ["iris", "iris_batch"])
def test_the_iris_examples_are_gradient_descent(tools, rng, name):
    sizes, examples = (5, 8, 3), 3
    eta = {"iris": 0.05, "iris_batch": 0.02}[name]
    x, y = rng.standard_normal((examples, 5)), rng.standard_normal((examples, 3))
    start = rng.standard_normal((2, 8, 8)) * 0.4
    w = np.zeros_like(start)
    w[0, :5, :8], w[1, :8, :3] = start[0, :5, :8], start[1, :8, :3]
    current, total = w.copy(), np.zeros_like(w)
    for d in range(examples):
        h = np.tanh(x[d] @ current[0, :5, :8])
        e = h @ current[1, :8, :3] - y[d]
        step = np.zeros_like(w)
        step[1, :8, :3] = np.outer(h, e)
        step[0, :5, :8] = np.outer(x[d], (current[1, :8, :3] @ e) * (1 - h * h))
        if name == "iris":
            current = current - eta * step
        total += step
    wanted = current if name == "iris" else w - eta * total
    out = tools.consistent(tools.load(name).expanded(), {"X": x, "Y": y, "W": w}, proved=False)
    assert out["W_out"].shape == (2, 8, 8), sizes
    np.testing.assert_allclose(out["W_out"], wanted, rtol=1e-12, atol=1e-13)
