"""Random programs that are right by construction, and mistakes in them: proofs, runs, texts and derivatives must agree.

Sizes are for less than a minute on one core; `UPL_AGREEMENT=10` looks at ten times as many programs and
`UPL_AGREEMENT_SEED=5000` at others.  `make soak MINUTES=30` goes on for as long as one likes.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mpi import needs_mpi

import upl_mlir as upl
from agreement import campaign, naive, witness
from agreement import properties as P
from agreement.campaign import SAVED, Tally, case_of, examine, examine_mutants, judge
from agreement.engines import ENGINES, RELAXED, Engine
from agreement.generator import generate, mix
from agreement.ledger import FIRST as FIRST_OF_SOAK
from agreement.ledger import Ledger
from agreement.mutants import MISTAKES, Truth, mutants, truth
from agreement.rounding import apart, gathered
from agreement.shrink import shrink
from agreement.values import Val, lit, name, op
from upl_mlir.passes.analysis.obligations import Status

SCALE = float(os.environ.get("UPL_AGREEMENT", "1"))
FIRST = int(os.environ.get("UPL_AGREEMENT_SEED", "0"))
ENOUGH = 95.0  # percent proved, percent refuted


def seeds(count: int, start: int = 0) -> range:
    """Some seeds, as many as the environment asks for."""
    return range(FIRST + start, FIRST + start + max(1, int(count * SCALE)))


def no_failures(tally: Tally) -> None:
    """Fail with everything that is wrong."""
    print("\n".join(tally.lines()))
    assert not tally.failures, "\n\n".join(map(str, tally.failures))


# -- the programs -----------------------------------------------------------------------------------------------------
def test_the_mix_of_features() -> None:
    """Everything that the generator can make occurs, and often enough."""
    programs = [generate(s) for s in seeds(150)]
    found = mix(programs)
    print("\n".join(f"{n:5} {feature}" for feature, n in sorted(found.items())))
    wanted = {
        "symbolic": 60, "non-box": 25, "layers": 10, "layer chain": 10, "wildcard": 50, "join of wildcards": 8, "for": 50,
        "slice": 40, "guarded arrows": 60, "mod condition": 25, "recurrence": 50, "recurrence aslant": 15,
        "cycle of nodes": 30,
        "declared domain": 60, "index left out": 50, "value left out": 60, "glued": 20, "part of a space": 20,
        "layout: split": 20, "layout: merge": 3, "layout: skew": 15, "layout: scale": 25, "layout: reverse": 25,
        "layout: permuted fields": 50, "type int": 50, "type f32": 40, "type bool": 40,
        "@(+) carried": 30, "@(+) constant": 10, "@(*) carried": 8, "@(min) carried": 8, "@(max) carried": 8,
        "@(&&) carried": 2, "@(||) carried": 2,
    }  # fmt: skip
    rare = {f: found[f] for f, n in wanted.items() if found[f] < n * SCALE * 0.5}
    assert not rare
    assert sum(f.startswith("@(") and f.endswith("expression") for p in programs for f in p.features) > 5 * SCALE
    assert len({p.text() for p in programs}) == len(programs)
    assert len({len(p.params) for p in programs}) == 3, "none, one and two parameters"
    assert {len(e.fields) for p in programs for e in p.ends} >= {0, 1, 2, 3}


@settings(max_examples=25)
@given(st.integers(0, 2**40))
def test_any_seed_gives_a_right_program_that_reads(seed: int) -> None:
    program = generate(seed)
    assert generate(seed).text() == program.text()
    assert not truth(program, naive.small_params(program)[:3]).wrong
    P.printing(P.Case(program.text(), True))


def test_a_domain_beyond_the_first_span_is_enumerated() -> None:
    """The only instance of a node of this program has the index 11, far from all others."""
    program = generate(1012699)
    assert "q floordiv 3<=3" in program.text()
    assert naive.run(program, naive.small_params(program)[0]).ok


def test_valid_programs_are_proved() -> None:
    tally = Tally()
    for s in seeds(60):
        examine(s, ["proof"], tally)
    no_failures(tally)
    assert tally.share("proof: proved", "programs") >= ENOUGH


@pytest.mark.parametrize(
    ("prop", "count"), [("results", 40), ("printing", 40), ("inferred", 15), ("directive", 8), ("passes", 8),
     ("engines", 10), ("native", 32), ("machine", 6), ("gradients", 12)],
)  # fmt: skip
def test_valid_programs(prop: str, count: int) -> None:
    """Engines agree with each other and with the naive values; texts read back; passes keep the meaning."""
    tally = Tally()
    for s in seeds(count, 1000):
        examine(s, [prop], tally)
    no_failures(tally)


def test_rare_engines() -> None:
    """Those that the test before tries on few programs or none: slow to build or slow to run."""
    few = tuple(e for e in ENGINES if e.every >= 12 and e.name != "native, f32")
    tally = Tally()
    for s in range(5000, 5030):
        left = tuple(e for e in few if not tally.reached[f"{e.name}: equal bit for bit"])
        tally.reached.update(campaign.engines(case_of(generate(s, 2), s), left) if left else {})
    print("\n".join(tally.lines()))
    assert {e.name for e in few} == {"RTL cam", "RTL hashed, Amaranth's simulator", "token"}
    assert all(tally.reached[f"{e.name}: equal bit for bit"] for e in few)


def test_derivatives() -> None:
    """Both modes agree with each other and with naive dual numbers, keep the primal, and pass `check`."""
    tally = Tally()
    for s in seeds(9, 2000):
        examine(s, ["derivatives"], tally)
    no_failures(tally)
    refused = sum(n for k, n in tally.reached.items() if k.startswith("derivatives: refused"))
    assert refused <= 0.05 * tally.reached["derivatives: outputs"] + 1
    assert tally.share("derivatives: programs fully proved", "derivatives: programs checked") >= 90


def test_mistakes_are_refuted() -> None:
    """Of the mutants that enumeration shows to be wrong, none is proved and nearly all are refuted, with real witnesses."""
    tally = Tally()
    for s in seeds(24, 3000):
        examine_mutants(s, 4, tally)
    no_failures(tally)
    assert tally.reached["mutants: wrong"] > 60 * SCALE
    assert tally.share("mutants: wrong and refuted", "mutants: wrong") >= ENOUGH
    assert tally.share("witnesses: confirmed", "witnesses") >= ENOUGH
    assert len([k for k in tally.features if k.startswith("mistake")]) >= min(10, len(MISTAKES))


def test_mistakes_show_in_runs() -> None:
    """What enumeration calls wrong fails in some order (declared domains apart: they are claims); what is right in none."""
    found = Counter[str]()
    for s in seeds(14, 4000):
        for m in mutants(generate(s), s, 4):
            known = truth(m.program)
            try:
                p = upl.load(m.program.text()).infer_domains()
            except upl.UplError:
                continue
            rule = known.rule.kind if isinstance(known.rule, naive.Violation) else "runaway"
            if not known.wrong:
                params = naive.small_params(m.program)[-1]
                assert not P.fails_in_some_order(p, params, s), f"{m.kind}: right, but fails at {params}\n{m.program.text()}"
                found["right"] += 1
            elif rule not in ("DOMAIN", "runaway"):
                found["wrong"] += 1
                found["fails"] += P.fails_in_some_order(p, known.params or {}, s, tries=20)
    print(found)
    assert found["wrong"] and found["fails"] >= 0.9 * found["wrong"]


def test_the_same_text_gives_the_same_bytes() -> None:
    """Printed domains, derivatives and reports do not depend on the order in which Python keeps its sets."""
    folder = Path(__file__).resolve().parents[1]
    texts = {
        subprocess.run(
            [sys.executable, "-m", "agreement.outputs", *map(str, seeds(4, 5000))], check=True, capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": h, "PYTHONPATH": str(folder)}, cwd=folder.parent,
        ).stdout
        for h in ("0", "1", "4242")
    }  # fmt: skip
    (text,) = texts
    assert text.count(b"exit 0") >= 3 * len(seeds(4)) and b"derivative of" in text


# -- saved cases ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=[needs_mpi] if p.stem.startswith("ranks_") else [])
        for p in sorted(SAVED.glob("*.upl"))
    ],
)
def test_saved(path: Path) -> None:
    prop, case = campaign.read(path)
    campaign.PROPERTIES[prop](case)


# -- the tests can fail -----------------------------------------------------------------------------------------------
SEED = 9


def test_a_proof_of_something_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = next(m for m in mutants(generate(SEED), SEED, 20) if P.checked(m.program.text()).refuted)
    real = P.checked

    def credulous(text: str) -> P.Checked:
        found = real(text)
        for n, o in enumerate(found.report.obligations):
            found.report.obligations[n] = replace(o, status=Status.PROVED)
        return found

    monkeypatch.setattr(P, "checked", credulous)
    with pytest.raises(P.Broken, match="proved, but wrong"):
        judge(wrong.program, truth(wrong.program), Tally())


def test_a_refutation_of_something_right_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = generate(SEED)
    real = P.checked

    def suspicious(text: str) -> P.Checked:
        found = real(text)
        o = found.report.obligations[0]
        at = dict.fromkeys((*program.end(o.where.partition(".")[0]).fields, *(p.name for p in program.params)), 3)
        found.report.obligations[0] = replace(o, status=Status.REFUTED, witness=at)
        return found

    monkeypatch.setattr(P, "checked", suspicious)
    with pytest.raises(P.Broken):
        judge(program, Truth(False), Tally())


def test_a_witness_that_is_none_is_found() -> None:
    for m in mutants(generate(SEED), SEED, 20):
        for o in P.checked(m.program.text()).refuted:
            if o.kind.name not in ("COVERAGE", "UNIQUE", "MULTIPLICITY"):
                continue
            assert witness.genuine(m.program, o) and o.witness
            params = {p.name: p.low for p in m.program.params}
            with pytest.raises(P.Broken):
                witness.genuine(m.program, replace(o, witness=dict.fromkeys(o.witness, -7) | params))
            return
    raise AssertionError("no such witness")


def test_a_wrong_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(generate(SEED), SEED)
    real = P.run_on

    def wrong(p: upl.Program, way: P.Way, arrays: P.Arrays, params: object) -> P.Arrays:
        out = real(p, way, arrays, case.params)
        return {n: a + (way.options.get("seed") == 1) for n, a in out.items()}

    monkeypatch.setattr(P, "run_on", wrong)
    with pytest.raises(P.Broken, match="'seed': 1"):
        P.results(case)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_every_engine_is_compared(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A last bit that is wrong is found, whichever engine it comes from."""
    case = case_of(generate(5001, 2), 5001)
    assert case.exact_single and case.any_order and not case.smooth
    arrays = P.host_arrays(upl.load(case.text), case.params, case.seed)
    right = upl.compile(upl.load(case.text), real="f32" if engine.single else "f64")(**arrays, **case.params)
    wrong = {n: np.nextafter(a, a.dtype.type(9)) if a.dtype.kind == "f" else a + 1 for n, a in right.items()}
    monkeypatch.setattr(Engine, "run", lambda *_: wrong)
    with pytest.raises(P.Broken, match=engine.name):
        campaign.engines(case, (engine,))
    monkeypatch.setattr(Engine, "run", lambda *_: right)
    campaign.engines(case, (engine,))


SUMS = """program sums
input X<i> in 0<=i<40 { -> A.s<> }
output R
output Q
node A { in @(+) s[40]; t = s; 3*t - 1 -> R; tanh(t) -> Q }
"""


def test_how_far_another_order_may_come() -> None:
    """n·ε·Σ|x| for the sum; three times as much and two roundings for what is made of it."""
    x = [Val("lit", (), "real", v) for v in (1.0, -3.0, 2.5)]
    near = gathered("+", "real", [1.0, -3.0, 2.5], [0.0, 0.0, 0.0])
    assert near == 3 * 2.0**-52 * 6.5
    assert gathered("+", "real", [5.0], [0.0]) == 0.0
    assert gathered("max", "real", [1.0, 2.0], [0.25, 0.125]) == 0.25
    product = gathered("*", "f32", [2.0, 3.0], [0.5, 0.0])
    assert 1.5 < product < 1.5 + 1e-5
    t = name("t", "real")
    assert apart(op("*", lit(3.0), t), {"t": 0.5}, {"t": near}) == pytest.approx(3 * near + 1.5 * 2.0**-52, rel=1e-9)
    assert apart(op(">", t, lit(0.5)), {"t": 0.5}, {"t": near}) == math.inf, "nobody knows which way it goes"
    assert apart(op(">", t, lit(0.25)), {"t": 0.5}, {"t": near}) == 0.0
    assert apart(op("+", x[0], x[1]), {}, {}) == 0.0


def test_a_relaxed_sum_out_of_bounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is passed by twice its size."""
    (relaxed,) = (e for e in ENGINES if e.name == RELAXED)
    p = upl.load(SUMS)
    arrays = P.host_arrays(p, {}, 3, noise=True)
    right = upl.compile(p, gather="ordered")(**arrays)
    bound = {"R": {(): 4 * 40 * 2.0**-52 * float(np.abs(arrays["X"]).sum())}, "Q": {(): 1e-12}}
    case = P.Case(SUMS, True, {}, 3, noise=True, apart=bound)
    (found,) = campaign.engines(case, (relaxed,))
    assert found in (f"{RELAXED}: equal bit for bit", f"{RELAXED}: within the bound")
    monkeypatch.setattr(Engine, "run", lambda *_: {**right, "R": right["R"] + 2 * bound["R"][()]})
    with pytest.raises(P.Broken, match=r"native, relaxed: R<> is"):
        campaign.engines(case, (relaxed,))


@pytest.mark.parametrize("prop", ["native", "machine"])
def test_the_campaign_of_one_engine_compares(prop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A last bit that is wrong at either size, or from the machine, is found."""
    case = case_of(generate(5008, 2), 5008)
    assert case.exact_single and not case.smooth and case.params
    assert campaign.PROPERTIES[prop](case)
    real = upl.compile

    class Wrong:
        def __init__(self, *given: Any, **options: Any):
            self.inner = real(*given, **options)

        def __call__(self, **arrays: Any) -> P.Arrays:
            out = self.inner(**arrays)
            if prop == "native" and all(arrays[n] == v for n, v in case.params.items()):
                return out  # right at the first size
            return {n: np.nextafter(a, a.dtype.type(9)) if a.dtype.kind == "f" else a + 1 for n, a in out.items()}

    monkeypatch.setattr(upl, "compile", lambda p, **k: (Wrong if k.get("engine") in ("native", "rtl") else real)(p, **k))
    with pytest.raises(P.Broken, match="native at" if prop == "native" else "RTL hashed"):
        campaign.PROPERTIES[prop](case)


def test_a_wrong_second_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hessian that is not symmetric, as its row i is multiplied by i+1."""
    text = "program two\ninput X<i> in 0<=i<2 { -> A.x<i> }\noutput R\nnode A<i> { in x; x #2 -> B.s<> }\n"
    case = P.Case(text + "node B { in @(+) s[#]; sin(s) -> R }\n", True, {}, 2)
    found = campaign.gradients(case)
    assert found["gradients"] == found["second order symmetric, not zero"] == 1
    second = str(upl.jvp(upl.vjp(upl.load(case.text), "R", "X"), "d_X", "X"))
    wrong = second.replace("t_d_x -> t_d_X", "t_d_x*(1+i) -> t_d_X")
    assert wrong != second
    real = upl.jvp
    monkeypatch.setattr(upl, "jvp", lambda p, of, wrt: upl.load(wrong) if of == "d_X" else real(p, of=of, wrt=wrt))
    with pytest.raises(P.Broken, match="⟨H u, v⟩"):
        campaign.gradients(case)


def test_a_wrong_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from xdsl.dialects import arith

    from upl_mlir.passes.autodiff import derivative_table

    program = generate(4)  # small, and the loss of a hundredth shows
    case = case_of(program, 4)
    P.derivatives(case, campaign.tangents_of(program, case))
    table = derivative_table.TABLE
    for kind in (arith.AddfOp, arith.SubfOp, arith.MulfOp):
        monkeypatch.setitem(table, kind, tuple(lambda d, a, b, o, r=r: r(d, a, b, o) * 1.01 for r in table[kind]))
    with pytest.raises(P.Broken, match="expected"):
        P.derivatives(case, campaign.tangents_of(program, case))


def test_what_fails_is_made_smaller_and_saved(tmp_path: Path) -> None:
    program = generate(2)
    small = shrink(program, lambda p: any(q.type == "f32" for e in p.ends for q in e.ports), 20)
    assert len(small.text()) < 0.25 * len(program.text())
    case = replace(case_of(program, 2), never={"kind": "UNIQUE", "where": "A.x", "witness": {"i": 1}})
    path = campaign.write(campaign.Failure("results", 2, "as an example", case, "no mistake"), tmp_path)
    prop, again = campaign.read(path)
    assert prop == "results" and again == replace(case, text=again.text)
    P.PROPERTIES[prop](again)


def test_a_soak_goes_on_where_it_stopped(tmp_path: Path) -> None:
    from agreement import soak

    place = tmp_path / "ledger.json"
    for _ in range(2):
        soak.main(["--minutes", "0.00001", "--only", "mistakes", "--ledger", str(place), "--most", "1"])
    ledger = Ledger.load(place)
    assert ledger.next("mistakes") == FIRST_OF_SOAK + 2
    assert ledger.reached("mistakes")["programs"] == 2
    assert [run["seeds"] for run in ledger.campaigns["mistakes"]["runs"]] == [[FIRST_OF_SOAK, FIRST_OF_SOAK + 2]]


@pytest.mark.parametrize("end", ["import os; os.abort()", "raise SystemExit(3)", "import time; time.sleep(60)"])
def test_a_seed_that_crashes_or_hangs_is_a_failure(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agreement import soak

    monkeypatch.setattr(soak, "HANG_SECONDS", 5.0)
    monkeypatch.setattr(soak, "WORKER", [sys.executable, "-c", end])
    place = tmp_path / "ledger.json"
    assert soak.main(["--minutes", "0.00001", "--only", "mistakes", "--ledger", str(place)]) == 1
    ledger = Ledger.load(place)
    assert ledger.next("mistakes") == FIRST_OF_SOAK + 1
    assert [f["seed"] for f in ledger.open()] == [FIRST_OF_SOAK]


STARTS_ANOTHER = """
import json, os, subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"seed": int(sys.argv[2]), "reached": {"programs": 1}, "failures": []}), flush=True)
with open(PLACE + ".part", "w") as f:
    f.write(f"{os.getpid()} {other.pid}")
os.rename(PLACE + ".part", PLACE)
time.sleep(600)
"""


def _runs(pid: str) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_ends_the_workers_of_a_soak_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And what these have started; what was reached before counts, and being ended is no failure."""
    from agreement import soak

    pids = tmp_path / "pids"
    monkeypatch.setattr(soak, "WORKER", [sys.executable, "-c", STARTS_ANOTHER.replace("PLACE", repr(str(pids)))])

    def interrupt() -> None:
        while not pids.exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    start = time.monotonic()
    assert soak.main(["--minutes", "9", "--only", "mistakes", "--ledger", str(tmp_path / "ledger.json")]) == 0
    assert time.monotonic() - start < 120, "the worker would have gone on for ten minutes"
    while any(_runs(pid) for pid in pids.read_text().split()):  # a process that was killed takes a moment to end
        assert time.monotonic() - start < 120, "what the worker started goes on"
        time.sleep(0.01)
    found = Ledger.load(tmp_path / "ledger.json")
    assert found.reached("mistakes") == {"programs": 1} and not found.open()
