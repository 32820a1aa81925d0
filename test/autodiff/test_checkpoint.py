"""Checkpointing: the same results, fewer waiting tokens, exactly the firings that were announced; what is refused."""

from __future__ import annotations

import re
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.checkpoint.runs import revolve
from upl_mlir.passes.checkpoint.time_loop import Loop
from upl_mlir.poly.parse import parse_index

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

LOOP = """program {name}
param T >= 2
param n >= 3
input U0<i> in 0<=i<n {{ -> U.u<0,i> }}
output Y<i>
node U<t,i> in 0<=t<=T, 0<=i<n {{
  in u
  if t<T && i<=n-3: u -> Upd.l<t+1,i+1>
  if t<T && 1<=i<=n-2: u -> Upd.c<t+1,i>
  if t<T && i>=2: u -> Upd.r<t+1,i-1>
  if t<T && (i==0 || i==n-1): u -> U.u<t+1,i>
  if t==T: -> Y<i>
}}
node Upd<t,i> {{ in l, c, r; {step} -> U.u<t,i> }}
"""
JACOBI = LOOP.format(name="jacobi", step="(l + c*c + r)/3")
NONLINEAR = LOOP.format(name="nonlinear", step="c + 0.1*c*(l - 2*c + r)")

# A coefficient that serves all steps, and a value for each of them.
FORCED = LOOP.replace(
    "output Y", "input K {{ #T*(n-2) -> Upd.k<*,*> }}\ninput F<t,i> in 1<=t<=T, 1<=i<=n-2 {{ -> Upd.f<t,i> }}\noutput Y"
)
FORCED = FORCED.replace("in l, c, r;", "in l, c, r, k, f;").format(name="forced", step="c + k*c*(l - 2*c + r) + f")

WAVE = """program wave
param T >= 2
param n >= 3
input U0<i> in 0<=i<n { -> U.u<0,i> }
input U1<i> in 0<=i<n { -> U.u<1,i> }
output Y<i>
node U<t,i> in 0<=t<=T, 0<=i<n {
  in u
  if 1<=t<T && i<=n-3: u -> Upd.l<t+1,i+1>
  if 1<=t<T && 1<=i<=n-2: u -> Upd.c<t+1,i>
  if 1<=t<T && i>=2: u -> Upd.r<t+1,i-1>
  if t<=T-2 && 1<=i<=n-2: u -> Upd.p<t+2,i>
  if 1<=t<T && (i==0 || i==n-1): u -> U.u<t+1,i>
  if t==T: -> Y<i>
}
node Upd<t,i> { in l, c, r, p; 2*c - p + 0.1*(l - 2*c + r) - 0.05*sin(c) -> U.u<t,i> }
"""

# An end that an input moves at each step; both ends, and a push inside while the ends stand still: they have no adjoint.
STRING = WAVE.replace("output Y", "input L<t> in 2<=t<=T { -> U.u<t,0> }\noutput Y").replace("(i==0 || i==n-1)", "i==n-1")
ENDS = STRING.replace("  if 1<=t<T && i==n-1: u -> U.u<t+1,i>\n", "").replace(
    "output Y", "input R<t> in 2<=t<=T { -> U.u<t,n-1> }\noutput Y"
)
PUSHED = WAVE.replace("output Y", "input L<t> in 2<=t<=T { #n-2 -> Upd.f<t,*> }\noutput Y")
PUSHED = PUSHED.replace("in l, c, r, p; 2*c", "in l, c, r, p, f; f + 2*c")

# Ends that stay as they are at step 1: one arrow takes them to all steps.
FIXED = WAVE.replace(
    "  if 1<=t<T && (i==0 || i==n-1): u -> U.u<t+1,i>\n", "  if t==1 && (i==0 || i==n-1): u -> U.u<s,i> for s in 2..T\n"
)

LSTM = """program lstm
param T >= 1
param H >= 1
param I >= 1
input X<t,j> in 1<=t<=T, 1<=j<=I { #4*H -> Mx.x<t,*,*,j> }
input Wx<g,i,j> in 0<=g<4, 1<=i<=H, 1<=j<=I { #T -> Mx.w<*,g,i,j> }
input Wh<g,i,j> in 0<=g<4, 1<=i<=H, 1<=j<=H { #T -> Mh.w<*,g,i,j> }
input B<g,i> in 0<=g<4, 1<=i<=H { #T -> Z.b<*,g,i> }
input h0<j> in 1<=j<=H { #4*H -> Mh.h<1,*,*,j> }
input c0<i> in 1<=i<=H { -> Cell.c<1,i> }
output Y<t,i>
node Mx<t,g,i,j> { in x, w; x*w #H+I -> Z.s<t,g,i> }
node Mh<t,g,i,j> in 1<=t<=T, 0<=g<4, 1<=i<=H, 1<=j<=H { in h, w; h*w #H+I -> Z.s<t,g,i> }
node Z<t,g,i> {
  in @(+) s[#], b
  z = s + b
  if g==0: sigmoid(z) -> Cell.gi<t,i>
  if g==1: sigmoid(z) -> Cell.gf<t,i>
  if g==2: sigmoid(z) -> Cell.go<t,i>
  if g==3: tanh(z) -> Cell.gg<t,i>
}
node Cell<t,i> in 1<=t<=T, 1<=i<=H {
  in c, gi, gf, go, gg
  c2 = gf*c + gi*gg
  h = go*tanh(c2)
  if t<T: c2 -> Cell.c<t+1,i>
  if t<T: h #4*H -> Mh.h<t+1,*,*,i>
  h -> Y<t,i>
}
"""

NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8")


def _arrays(p: upl.Program, rng: np.random.Generator, **sizes: int) -> dict[str, Any]:
    return {n: 0.3 * rng.normal(size=v.shape(**sizes)) for n, v in p.inputs.items()}


def _figures(note: str, **sizes: int) -> tuple[int, int, int, int]:
    """What a note announces: values that waited, values kept, values that wait at a time, firings more."""
    found = re.fullmatch(
        r".*: (.*) forward values waited for the adjoint; now (.*) are kept and (.*) wait at a time; (.*?) firings more"
        r"(?:; .*)?",
        note,
    )
    assert found is not None, note
    waited, kept, once, more = found.groups()
    times, _, each = kept.removeprefix("at most ").rpartition(" times ")

    def number(text: str) -> int:
        return parse_index(text).evaluate(sizes, lambda _a, _i: 0)

    return number(waited), number(each) * int(times or 1), number(once), number(more)


CASES = [
    (JACOBI, "Y", "U0", {"T": 12, "n": 6}),
    (NONLINEAR, "Y", "U0", {"T": 13, "n": 5}),
    (WAVE, "Y", "U0 U1", {"T": 12, "n": 5}),
    (FORCED, "Y", "U0 K F", {"T": 12, "n": 6}),
    (LSTM, "Y", "Wx Wh B X", {"T": 10, "H": 2, "I": 2}),
    (STRING, "Y", "U0 L", {"T": 9, "n": 5}),
    (ENDS, "Y", "L", {"T": 8, "n": 4}),
    (PUSHED, "Y", "U0 L", {"T": 9, "n": 5}),
    (FIXED, "Y", "U0 U1", {"T": 9, "n": 5}),
]


@pytest.mark.parametrize("every", [1, 3, 40])
@pytest.mark.parametrize(("text", "of", "wrt", "sizes"), CASES)
def test_segments(tools, rng, text, of, wrt, sizes, every) -> None:
    """Bit-equal results; the announced number of firings; the peak falls by what was announced."""
    g = tools.vjp(text, of, wrt)
    c = upl.checkpoint(g, along="t", every=every)
    inputs = _arrays(g, rng, **sizes)
    if every == 3:  # proved for all sizes, printed, in any order
        after = tools.consistent(c, {**inputs, **sizes})
    else:
        after = upl.compile(c, gather="ordered")(**inputs, **sizes)
    before = upl.compile(g, gather="ordered")
    expected = before(**inputs, **sizes)
    for name, value in expected.items():
        np.testing.assert_array_equal(after[name], value)
    run = upl.compile(c)
    run(**inputs, **sizes)
    waited, kept, once, more = _figures(c.notes[0], **sizes)
    assert sum(run.stats["firings"].values()) - sum(before.stats["firings"].values()) == more
    fall = before.stats["peak_waiting"] - run.stats["peak_waiting"]
    if every == 40:
        assert (more, fall) == (0, 0)
    else:  # each input that serves all steps waits once more, for the copies; some tokens are under way
        shared = sum(v.size for n, v in inputs.items() if n in ("Wx", "Wh", "B", "F")) + 2 * sizes["T"] * (text is FIXED)
        gain = waited - kept - once
        assert fall >= min(gain, 0.8 * gain) - shared - 2 * sizes.get("n", 0)


def test_steps_that_do_not_follow_from_one_another(tools, rng) -> None:
    """The perceptron's examples are no chain of states: each segment is a batch, held back alike."""
    g = tools.vjp("perceptron", "R", "W", K=3, N=(2, 3, 2))
    c = upl.checkpoint(g, along="d", every=2)
    inputs = _arrays(g, rng, D=5)
    found = tools.consistent(c, inputs)
    before, run = upl.compile(g, gather="ordered"), upl.compile(c)
    np.testing.assert_array_equal(found["d_W"], before(**inputs)["d_W"])
    unmarked = str(upl.checkpoint(upl.load(str(g)), along="d", every=2))
    assert re.findall(r"node (\w+)", unmarked) == re.findall(r"node (\w+)", str(c))
    run(**inputs)
    more = sum(run.stats["firings"].values()) - sum(before.stats["firings"].values())
    assert more == _figures(c.notes[0], D=5)[3]


@pytest.mark.parametrize("every", [2, 3])
def test_layers_of_different_widths(tools, rng, every) -> None:
    """Along the layers, narrower and wider ones follow: the adjoint of a narrow layer lets go what a wide one holds."""
    g = tools.vjp("perceptron", "R", "W")  # widths 4, 4, 5, 6, 4, 3, 3
    c = upl.checkpoint(g, along="k", every=every)
    inputs = _arrays(g, rng, D=3)
    found = tools.consistent(c, inputs)
    before, run = upl.compile(g, gather="ordered"), upl.compile(c)
    for name, value in before(**inputs).items():
        np.testing.assert_array_equal(found[name], value)
    run(**inputs)
    assert run.stats["peak_waiting"] < before.stats["peak_waiting"]
    more = sum(run.stats["firings"].values()) - sum(before.stats["firings"].values())
    assert more == _figures(c.notes[0], D=3)[3] > 0
    assert c.check().notes == c.notes


def test_the_peak_of_a_long_loop(tools, rng) -> None:
    """Square-root law: 64 steps of 8 values."""
    g = tools.vjp(NONLINEAR, "Y", "U0")
    sizes = {"T": 64, "n": 10}
    inputs = _arrays(g, rng, **sizes)
    peaks: dict[tuple[int, str], int] = {}
    for every, p in ((0, g), (8, upl.checkpoint(g, along="t", every=8))):
        for order in ("fifo", "random"):
            run = upl.compile(p, order=order)  # pyright: ignore[reportArgumentType]
            run(**inputs, **sizes)
            peaks[every, order] = run.stats["peak_waiting"]
    assert peaks[0, "fifo"] > 1000 and peaks[8, "fifo"] < 240
    assert peaks[8, "random"] < 0.4 * peaks[0, "random"]


def test_a_state_is_kept_once(tools) -> None:
    """Phases: U's values are kept where a segment begins, not the three copies of each on their way to Upd; the adjoint of
    U, for which they are kept, lets them go, though that of Upd has the same fields and fires at these steps too."""
    text = str(upl.checkpoint(tools.vjp(JACOBI, "Y", "U0"), along="t", every=4))
    assert "-> Keep_Upd.v<t,i>" in text
    assert not re.search(r"(Keep|RUpd)[^\n]*\.(l|c|r)<[^\n]*mod 4", text)
    held = re.search(r"node Keep_Upd<t,i> in (.*) \{", text)
    assert held is not None and "t mod 4==0" in held.group(1)
    bodies = dict(re.findall(r"^node (\w+)<(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    assert [name for name, body in bodies.items() if "true -> Keep_Upd.go" in body] == ["DU"]


def test_what_is_kept_goes_to_as_many_as_the_author_leaves_uncounted(tools, rng) -> None:
    """A state multicast by `##`: so is the token that was kept of it (it went to one instance, and others starved)."""
    text = """program spread
param T >= 2
param n >= 1
input U0<i> in 0<=i<n { -> U.u<0,i> }
input W<j,i> in 0<=j<n, 0<=i<n { #T -> P.w<*,j,i> }
output Y<i>
node U<t,i> in 0<=t<=T, 0<=i<n {
  in u
  if t<T: u ## -> P.u<t+1,*,i>
  if t==T: -> Y<i>
}
node P<t,j,i> in 1<=t<=T, 0<=j<n, 0<=i<n { in u, w; w*sin(u) -> S.s<t,j> }
node S<t,j> in 1<=t<=T, 0<=j<n { in @(+) s[n]; s -> U.u<t,j> }
"""
    g = tools.vjp(text, "Y", "U0")
    c = upl.checkpoint(g, along="t", every=3)
    assert re.search(r"node Keep_U<.*\n.*\n  v ## -> RP.u<t\+1,\*,i>\n", str(c))
    inputs = _arrays(g, rng, T=7, n=3)
    expected = upl.compile(g, gather="ordered")(**inputs, T=7)["d_U0"]
    assert np.all(expected)
    np.testing.assert_array_equal(upl.compile(c, gather="ordered")(**inputs, T=7)["d_U0"], expected)


def test_from_text(tools, rng) -> None:
    """A gradient that was printed and read is checkpointed alike, though the marks of its adjoint nodes are gone."""
    g = upl.load(str(tools.vjp(NONLINEAR, "Y", "U0")))
    c = upl.checkpoint(g, along="t", every=4)
    inputs = _arrays(g, rng, T=9, n=5)
    found = upl.compile(c, gather="ordered")(**inputs, T=9)
    np.testing.assert_array_equal(found["d_U0"], upl.compile(g, gather="ordered")(**inputs, T=9)["d_U0"])
    assert "node RUpd<t,i>" in str(c)


def test_every_may_be_a_constant(tools) -> None:
    """By name; a parameter must be bound first."""
    text = JACOBI.replace("param n", "const S = 3\nparam R >= 1\nparam n")
    g = upl.vjp(upl.load(text), of="Y", wrt="U0")
    assert str(upl.checkpoint(g, along="t", every="S")) == str(upl.checkpoint(g, along="t", every=3))
    with pytest.raises(upl.UplError, match="UPL1430") as e:
        upl.checkpoint(g, along="t", every="R")
    assert "bind it: -D R=4" in str(e.value)


def test_second_derivatives_are_checkpointed(tools, rng) -> None:
    """Forward over reverse along a loop."""
    text = NONLINEAR.replace("output Y<i>", "output L\nnode Sum { in @(+) s[#]; s*s -> L }")
    h = upl.hvp(upl.load(text.replace("if t==T: -> Y<i>", "if t==T: u*u #n -> Sum.s<>")), of="L", wrt="U0")
    c = upl.checkpoint(h, along="t", every=3)
    inputs = _arrays(h, rng, T=8, n=5)
    expected = upl.compile(h, gather="ordered")(**inputs, T=8)["t_d_U0"]
    np.testing.assert_array_equal(upl.compile(c, gather="ordered")(**inputs, T=8)["t_d_U0"], expected)


# -- the schedule of fewest firings ----------------------------------------------------------------------------------------


def _griewank(steps: int, states: int) -> int:
    """Forward steps of the optimal schedule, in closed form."""
    if states == 1:
        return steps * (steps - 1) // 2
    r = 0
    while comb(states + r, states) < steps:
        r += 1
    return r * steps - comb(states + r, r - 1) if r else 0


@pytest.mark.parametrize("states", [1, 2, 3, 5, 9])
def test_the_schedule_is_optimal(states) -> None:
    """As many repeated steps as the closed form says; never more states stored than allowed; every run can begin."""
    for steps in (*range(1, 30), 60):
        s = revolve(steps, states)
        assert s.repeated == _griewank(steps, states)
        stored = {0}
        for run in range(steps - 1, -1, -1):  # in time
            assert s.start[run] in stored and s.start[run] <= run
            stored |= {q for q in range(s.start[run] + 1, run + 1) if s.maker[q] == run}
            stored = {q for q in stored if any(s.start[r] == q for r in range(run))}
            assert len(stored) <= states


@pytest.mark.parametrize(
    ("text", "steps", "snapshots"),
    [(NONLINEAR, 10, 3), (NONLINEAR, 7, 1), (JACOBI, 9, 9), (FORCED, 8, 3), (WAVE, 6, 2), (STRING, 7, 2), (ENDS, 8, 3),
     (PUSHED, 7, 3), (FIXED, 7, 3)],
)  # fmt: skip
def test_snapshots(tools, rng, monkeypatch, text, steps, snapshots) -> None:
    """Bit-equal; firings as announced; the peak within what is kept and what a step needs."""
    monkeypatch.setenv("UPL_MAX_OPERATIONS", "48000000")
    p = upl.load(text, T=steps)
    g = upl.vjp(p, of="Y", wrt=list(p.inputs))
    c = upl.checkpoint(g, along="t", snapshots=snapshots)
    inputs = _arrays(g, rng, n=6)
    if text is NONLINEAR:
        after = tools.consistent(c, inputs)
    else:
        assert c.check().ok
        after = upl.compile(c, gather="ordered", order="random")(**inputs)
    before = upl.compile(g, gather="ordered")
    native = upl.compile(c, engine="native", gather="ordered")(**inputs)
    for name, value in before(**inputs).items():
        np.testing.assert_array_equal(after[name], value)
        np.testing.assert_array_equal(native[name], value)
    run = upl.compile(c)
    run(**inputs)
    waited, kept, once, more = _figures(c.notes[0], n=6)
    if text is FIXED:
        assert c.notes[0].endswith(f"; {2 * (steps - 1)} values that go more than one step on wait from first to last")
    assert sum(run.stats["firings"].values()) - sum(before.stats["firings"].values()) == more
    under_way = max(0, before.stats["peak_waiting"] - waited)
    entering = sum(v.size for name, v in inputs.items() if name in ("F", "L", "R")) + 2 * steps * (text is FIXED)
    assert run.stats["peak_waiting"] <= kept + once + under_way + 2 * 6 + 2 * entering


@pytest.mark.parametrize(
    ("text", "lowest", "entered"), [(NONLINEAR, 0, 0), (WAVE, 0, 1), (STRING, 0, 1), (LSTM, 1, 1)],
    ids=["one state", "two states", "two states and an end", "one state and a value"],
)  # fmt: skip
def test_when_all_states_have_entered(text, lowest, entered) -> None:
    """A schedule begins where no more states come from outside: what comes at each step is none."""
    p = upl.load(text, T=6)
    g = upl.vjp(p, of="Y", wrt=list(p.inputs)).infer_domains()
    assert Loop(ProgramSets(g.op), "t").entered(lowest) == entered


def test_snapshots_of_an_lstm(tools, rng) -> None:
    """A value and a weight that enter at each step: one token of the value serves all runs of its step."""
    g = upl.vjp(upl.load(LSTM, T=6), of="Y", wrt=["Wh", "X"])
    inputs = _arrays(g, rng, H=2, I=2)
    expected = upl.compile(g, gather="ordered")(**inputs)
    found = tools.consistent(upl.checkpoint(g, along="t", snapshots=2), inputs)
    native = upl.compile(upl.checkpoint(g, along="t", snapshots=3), engine="native", gather="ordered")(**inputs)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
        np.testing.assert_array_equal(native[name], value)


@pytest.mark.parametrize("options", [{"every": 2}, {"snapshots": 2}])
def test_on_the_machine(tools, rng, options) -> None:
    """The simulated hardware runs the checkpointed program too, in single precision."""
    g = upl.vjp(upl.load(NONLINEAR, T=5, n=4), of="Y", wrt="U0")
    inputs = {n: v.astype(np.float32) for n, v in _arrays(g, rng).items()}
    expected = upl.compile(g, real="f32")(**inputs)["d_U0"]
    found = upl.compile(upl.checkpoint(g, along="t", **options), engine="rtl")(**inputs)["d_U0"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("text", "of", "wrt", "options", "message"),
    [
        (JACOBI, "Y", "U0", {"along": "k", "every": 2}, "UPL1430.*no node has the index field `k`"),
        (JACOBI, "Y", "U0", {"along": "i", "every": 2}, "UPL1431.*goes back along `i`"),
        (JACOBI, "Y", "U0", {"along": "t"}, "UPL1430.*either `every` or `snapshots`"),
        (JACOBI, "Y", "U0", {"along": "t", "every": 2, "snapshots": 3}, "UPL1430.*either `every` or `snapshots`"),
        (JACOBI, "Y", "U0", {"along": "t", "every": 0}, "UPL1430.*at least one step"),
        (JACOBI, "Y", "U0", {"along": "t", "every": "S"}, "UPL1430.*no such integer constant"),
        (JACOBI, "Y", "U0", {"along": "t", "snapshots": 2}, "UPL1430.*needs a known number of steps, not T"),
        (NEWTON, "Root", "A", {"along": "n", "every": 2}, "UPL1431.*data decide what"),
    ],
)
def test_what_is_refused(tools, text, of, wrt, options, message) -> None:
    """Each refusal says why."""
    g = tools.vjp(text, of, wrt)
    with pytest.raises(upl.UplError) as e:
        upl.checkpoint(g, **options)
    assert re.search(message, str(e.value)), str(e.value)


def test_more_is_refused(tools) -> None:
    """A program without a gradient; a directive is expanded first; no snapshot at all."""
    with pytest.raises(upl.UplError, match=r"UPL1430.*nothing waits along"):
        upl.checkpoint(tools.load(JACOBI), along="t", every=2)
    with pytest.raises(upl.UplError, match=r"UPL1430.*the first step's must be kept"):
        upl.checkpoint(upl.vjp(upl.load(JACOBI, T=6), of="Y", wrt="U0"), along="t", snapshots=0)
