"""Plans: what is proved of every one, what is refused, and that latencies are those of the units."""

from __future__ import annotations

from dataclasses import replace

import pytest
from circuit.circuits import CASES, EXAMPLES, Case

import upl_mlir as upl
from upl_mlir.engines.circuit.engine import CircuitEngine
from upl_mlir.hw.circuit.units import unit
from upl_mlir.passes.circuit.body import LATENCY
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.ports import Runs
from upl_mlir.passes.circuit.prove import proofs
from upl_mlir.passes.lower_to_circuit import planned_circuit


@pytest.mark.parametrize("case", CASES, ids=str)
def test_everything_is_proved(case: Case) -> None:
    for lanes in (1, 2, 4, 16):
        _, plan = case.planned(lanes)
        found = proofs(plan)
        assert len(found) > 5
        assert not [str(p) for p in found if not p.holds], lanes


def small(name: str, lanes: int):  # type: ignore[no-untyped-def]
    return next(c for c in CASES if c.name == name).planned(lanes)[1]


def test_a_link_that_is_too_short_is_refuted() -> None:
    plan = small("jacobi1d", 16)
    site = next(s for s in plan.sites if s.written is not None)
    links = tuple(replace(k, lengths=tuple(None if n is None else n - 1 for n in k.lengths)) for k in plan.links[site])
    found = proofs(replace(plan, links={**plan.links, site: links}))
    (wrong,) = [p for p in found if not p.holds]
    assert wrong.claim == "is as long as the time between write and read"
    assert wrong.counterexample == "U.u<t=1, i=0>"


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
def test_a_window_that_is_too_small_is_refuted(name: str) -> None:
    plan = small(name, 2)
    inputs = tuple(replace(i, window=1) for i in plan.inputs)
    assert [p.claim for p in proofs(replace(plan, inputs=inputs)) if not p.holds] == ["what is waited for has room"] * 2


def test_words_that_come_late_are_refuted() -> None:
    plan = small("fir", 1)
    x, h = plan.inputs
    (many, rate), *rest = x.need.runs  # the first group waits for nothing
    late = replace(x, need=Runs(x.need.level, ((1, 0), (many - 1, rate), (1, rate + rest[0][1]), (rest[0][0] - 1, 0))))
    wrong = [p for p in proofs(replace(plan, inputs=(late, h))) if not p.holds]
    assert "a word has come when it is read" in [p.claim for p in wrong]
    assert all(p.counterexample for p in wrong)


def test_a_queue_that_is_too_short_is_refuted() -> None:
    plan = small("matmul", 16)
    (o,) = plan.outputs
    assert [p.claim for p in proofs(replace(plan, outputs=(replace(o, depth=o.depth - 1),))) if not p.holds] == [
        "the queue of a lane holds what waits"
    ]
    (wrong,) = [p for p in proofs(replace(plan, outputs=(replace(o, wait=o.wait - 1),))) if not p.holds]
    assert wrong.claim == "a word is there when its lane has its turn"


def test_latencies_are_those_of_the_units() -> None:
    for kind in ("add", "sub", "mul", "div", "by 3", "up 1", "down 1"):
        name = kind.split()[0]
        made = unit(kind, LATENCY, "generic")
        assert made.latency == LATENCY[name], kind
        made._MustUse__used = True
        steps = made.steps(made.format) if callable(made.steps) else made.steps
        assert steps == LATENCY[name], f"{kind}: the highest clock takes {steps} registers"


REFUSED = [
    ("lstm", {"T": 2, "E": 2, "H": 2}, "UPL2001"),
    ("conv2d", {"H": 5, "W": 5}, "UPL2002"),
    ("jacobi1d", {"T": 2}, "UPL2001"),
    ("floyd_warshall", {"n": 3}, "UPL2002"),
    ("triangular_solve", {"n": 3}, "UPL2001"),
    ("newton", {"n": 3}, "UPL1821"),
]


@pytest.mark.parametrize(("name", "params", "code"), REFUSED, ids=str)
def test_what_has_no_circuit_is_refused(name: str, params: dict[str, int], code: str) -> None:
    p = upl.load(EXAMPLES / f"{name}.upl").infer_domains()
    with pytest.raises(upl.UplError) as caught:
        planned_circuit(p.module.clone(), params, Wish(1))
    (d,) = caught.value.diagnostics
    assert d.code == code and d.span is not None and d.help


def test_options() -> None:
    p = upl.load(EXAMPLES / "fir.upl").infer_domains()
    for wish, message in ((Wish(2, "x"), "along=x: expected one of i, k_1"), (Wish(2, None, ("i",)), "order=i: expected")):
        with pytest.raises(upl.UplError, match="UPL2004") as caught:
            CircuitEngine(p.module, {"K": 2, "n": 4}, wish)
        assert message in str(caught.value)
