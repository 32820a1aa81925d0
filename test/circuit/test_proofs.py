"""The proofs of a plan: they hold for the plans that the compiler makes, and refute seeded defects at an instance.

A defect is a number of a plan that is changed by hand, as if another step of the compiler had been wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from circuit.circuits import CASES, EXAMPLES, Case

from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import Input
from upl_mlir.passes.circuit.prove import Proof, proofs
from upl_mlir.passes.lower_to_circuit import planned_circuit
from upl_mlir.tools.circuits import as_json, as_text
from upl_mlir.tools.upl import main

INSTANCE = re.compile(r"[\w.]+<(\w+=-?\d+)(, \w+=-?\d+)*>")


def product() -> Plan:
    """A product of matrices with a lane for each row: all lanes send, and take turns."""
    case = Case("matmul", (("m", 4), ("n", 4), ("r", 4)))
    return planned_circuit(case.program.infer_domains().module.clone(), case.params, Wish(4, "i"))[1]


def stencil() -> Plan:
    """A stencil with four lanes, which read each other's values."""
    return Case("jacobi1d", (("T", 6), ("n", 100))).planned(4)[1]


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_compilers_plans_are_proved(case: Case, lanes: int) -> None:
    _, plan = case.planned(lanes)
    found = proofs(plan)
    assert [str(p) for p in found if not p.holds] == []
    own = [s for s in plan.sites if s.written is not None]
    assert len(found) >= 2 * len(own) + len(plan.inputs) + len(plan.outputs)


def short_link(plan: Plan) -> Plan:
    """One link of one lane is a slot shorter."""
    site = next(s for s in plan.sites if s.written is not None)
    first, *rest = plan.links[site]
    less = replace(first, lengths=tuple(None if n is None else n - 1 for n in first.lengths))
    return replace(plan, links={**plan.links, site: (less, *rest)})


def other_lane(plan: Plan) -> Plan:
    """One link comes of another lane."""
    site = next(s for s in plan.sites if s.written is not None)
    first, *rest = plan.links[site]
    return replace(plan, links={**plan.links, site: (replace(first, source=first.source + 1), *rest)})


def with_input(plan: Plan, change: Callable[[Input], Input], which: int = 0) -> Plan:
    """A plan with one input changed."""
    ins = [change(i) if n == which else i for n, i in enumerate(plan.inputs)]
    return replace(plan, inputs=tuple(ins))


def small_window(plan: Plan) -> Plan:
    """The last input's window has a quarter of its size."""
    return with_input(plan, lambda i: replace(i, window=i.window // 4), len(plan.inputs) - 1)


def late_need(plan: Plan) -> Plan:
    """The last group needs all words that the others did."""

    def change(i: Input) -> Input:
        groups = sum(n for n, _ in i.need.runs)
        return replace(i, need=replace(i.need, runs=((groups - 1, 0), (1, i.words))))

    return with_input(plan, change)


def early_free(plan: Plan) -> Plan:
    """The first group frees all words."""

    def change(i: Input) -> Input:
        groups = sum(n for n, _ in i.free.runs)
        return replace(i, free=replace(i.free, runs=((1, i.words), (groups - 1, 0))))

    return with_input(plan, change, len(plan.inputs) - 1)


def wrong_address(plan: Plan) -> Plan:
    """A read begins one word further on."""

    def change(i: Input) -> Input:
        first, *rest = i.reads
        return replace(i, reads=(replace(first, first=first.first + 1), *rest))

    return with_input(plan, change)


def short_queue(plan: Plan) -> Plan:
    """The queues of lanes hold a word less."""
    return replace(plan, outputs=tuple(replace(o, depth=o.depth - 1) for o in plan.outputs))


def early_turn(plan: Plan) -> Plan:
    """Lanes take turns a slot too early."""
    return replace(plan, outputs=tuple(replace(o, wait=o.wait - 1) for o in plan.outputs))


DEFECTS = [
    (product, short_link, "link 0 of C", "is as long as the time between write and read"),
    (stencil, short_link, "link 0 of U.u", "is as long as the time between write and read"),
    (stencil, other_lane, "link 0 of U.u", "is as long as the time between write and read"),
    (product, small_window, "port B", "what is waited for has room"),
    (stencil, small_window, "port A", "what is waited for has room"),
    (product, late_need, "read 0 of A", "a word has come when it is read"),
    (product, early_free, "read 0 of B", "a word is kept until it is read"),
    (product, wrong_address, "read 0 of A", "the address is that of the element"),
    (product, short_queue, "port C", "the queue of a lane holds what waits"),
    (product, early_turn, "port C", "a word is there when its lane has its turn"),
]


NAMES = [f"{good.__name__}-{defect.__name__}" for good, defect, *_ in DEFECTS]


@pytest.mark.parametrize(("good", "defect", "subject", "claim"), DEFECTS, ids=NAMES)
def test_a_seeded_defect_is_refuted(
    good: Callable[[], Plan], defect: Callable[[Plan], Plan], subject: str, claim: str
) -> None:
    plan = good()
    assert all(p.holds for p in proofs(plan))
    found = proofs(defect(plan))
    refuted = {(p.subject, p.claim): p for p in found if not p.holds}
    assert (subject, claim) in refuted, list(map(str, found))
    assert INSTANCE.search(refuted[subject, claim].counterexample)


def test_what_is_printed_of_a_refuted_plan() -> None:
    found = [Proof("port C", "waits", 3, True), Proof("link 0 of C", "is long", 5, False, "C<i=0, j=1>")]
    assert as_text("f.upl", found) == (
        "port C: waits: holds in all 3\nlink 0 of C: is long: fails: C<i=0, j=1>\nf.upl: 1 proved, 1 refuted"
    )
    said = json.loads(as_json(found))
    assert not said["ok"]
    assert [p["counterexample"] for p in said["proofs"]] == [None, "C<i=0, j=1>"]


def command(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    """`upl check matmul.upl` with more options: status, output, errors."""
    status = main(["check", str(EXAMPLES / "matmul.upl"), *more])
    got = capsys.readouterr()
    return status, got.out, got.err


SIZES = ("-D", "m=4", "-D", "n=4", "-D", "r=4")


def test_the_command_prints_the_proofs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = command(capsys, "--circuit", "--lanes", "4", "--along", "i", *SIZES)
    lines = out.splitlines()
    assert status == 0
    assert len(lines) > 10
    assert all(": holds in all " in line for line in lines[:-1])
    assert lines[-1].endswith(f"matmul.upl: {len(lines) - 1} proved")
    status, out, _ = command(capsys, "--circuit", "--lanes", "4", "--along", "i", "--json", *SIZES)
    said = json.loads(out)
    assert (status, said["ok"], len(said["proofs"])) == (0, True, len(lines) - 1)


def test_the_command_fails_with_a_counterexample(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_args: object) -> Plan:
        return short_link(product())

    monkeypatch.setattr("upl_mlir.api.circuits.circuit_plan", wrong)
    status, out, _ = command(capsys, "--circuit", *SIZES)
    assert status == 1
    assert re.search(r"link 0 of C: .*: fails: C<i=0, j=0, k_1=1>", out)
    assert out.splitlines()[-1].endswith("1 refuted")


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "--circuit")[0] == 1  # sizes are open
    status, _, err = command(capsys, "--lanes", "4", *SIZES)
    assert (status, "--lanes and --along go with --circuit" in err) == (2, True)
    status, _, err = command(capsys, "--circuit", "--lanes", "0", *SIZES)
    assert (status, "UPL2004" in err) == (1, True)
