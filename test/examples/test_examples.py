"""Every example: formatted, reads back from its own print, proved in full, equal to numpy, counted as it runs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend.upl_text.printing.format import format_text
from upl_mlir.passes.analysis.obligations import Kind, Status
from upl_mlir.poly.counts.entry_sums import EntrySums
from upl_mlir.poly.expr import IndexExpr

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.upl"))

UNPROVED: dict[str, set[tuple[Kind, str]]] = {
    "newton": {
        *((kind, port) for kind in (Kind.COVERAGE, Kind.UNIQUE) for port in ("E", "Steps")),
        *((Kind.COVERAGE, port) for port in ("It.m", "It.e", "It.E")),
        *((Kind.AFFINE, arrow) for arrow in ("It -> It.m", "It -> It.e", "It -> It.E", "It -> E", "It -> Steps")),
    },
    "spmv": {
        (Kind.AFFINE, "Elem -> Mul.v"), (Kind.COVERAGE, "Mul.v"), (Kind.GATHER, "Row.s"), (Kind.COVERAGE, "Y"),
    },
}  # fmt: skip
"""What cannot be proved because data decide it (LANGUAGE 3.6); all else is."""

NOT_COUNTED = {
    "newton": {"It", "E", "Steps"},  # data decide
    "spmv": {"Mul", "Row", "Y"},
    "scan": {"S"},
}
"""Nodes and outputs of which firings or tokens have no polynomial while every size is open."""


def test_every_example_has_data(example_data):
    assert set(NAMES) == example_data.EXAMPLES.keys() and len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_it_is_formatted_and_says_what_it_shows(ex, name):
    text = ex.text(name)
    assert format_text(text) == text
    assert text.startswith("//") and f"\nprogram {name}\n" in text


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_back_from_its_print(ex, name):
    p = upl.load(ex.text(name))
    again = upl.load(str(p))
    assert str(again) == str(p) and p.module.is_structurally_equivalent(again.module)


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_proved_for_all_sizes(ex, name):
    found = upl.load(ex.text(name)).check()
    assert found.ok and not found.diagnostics()
    unproved = {(o.kind, o.where) for o in found.obligations if o.status is Status.UNPROVED}
    assert unproved == UNPROVED.get(name, set())
    assert {Kind.UNIQUE, Kind.EXISTS} <= {o.kind for o in found.obligations if o.status is Status.PROVED}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scale", "seed"), [(1, 0), (2, 1)])
def test_the_interpreter_agrees_with_numpy(example_data, ex, name, scale, seed):
    d = example_data.generate(name, scale, seed)
    p = ex.expanded(name, d.params)
    assert set(d.inputs) == set(p.inputs) and set(d.outputs) == set(p.outputs)
    for order in ("fifo", "random"):
        out = upl.compile(p, order=order, seed=seed)(**d.inputs)
        for port, expected in d.outputs.items():
            assert out[port].shape == np.shape(expected)
            np.testing.assert_allclose(out[port], expected, rtol=1e-10, atol=1e-10, err_msg=f"{port}, {order}")


COSTLY = {"digits", "iris", "iris_batch", "training"}
"""Whole training runs: counted at fewer sizes."""


def given(counts, params):
    """The counts that the report gives, for given parameters, arrays included."""
    sizes = {k: v for k, v in params.items() if isinstance(v, int)}
    return {
        k: n.evaluate(sizes, lambda array, i: params[array][i]) if isinstance(n, IndexExpr | EntrySums) else n
        for k, n in counts.items()
        if n is not None
    }


def agree(report, params, stats, open_):
    """What the report counts is what a run counted; `open_` names what it does not count."""
    assert {n for n, c in (report.firings | report.tokens).items() if c is None} == open_
    for counts, found in ((report.firings, stats["firings"]), (report.tokens, stats["tokens"])):
        numbers = given(counts, params)
        assert numbers == {n: found[n] for n in numbers}
    if not open_:
        totals = given({"sent": report.tokens.total, "waiting": report.waiting_bound}, params)
        assert totals["sent"] == stats["tokens_sent"] and totals["waiting"] >= stats["peak_waiting"]


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_what_a_run_counts(example_data, ex, name):
    """At the least sizes and one or two others; where open sizes leave a count open, it is given once they are bound."""
    sizes = ex.least(name)
    some = [example_data.generate(name, scale) for scale in ((1,) if name in COSTLY else (1, 2))]
    constants = {n: v for n, v in some[0].params.items() if n not in sizes}
    least = sizes | constants
    runs = [] if name == "digits" else [(least, ex.random_inputs(ex.expanded(name, least), np.random.default_rng(8)))]
    for params, inputs in [*runs, *((d.params, d.inputs) for d in some)]:
        p = ex.expanded(name, params)
        run = upl.compile(p, order="random", seed=3)
        run(**inputs)
        agree(ex.report(name, constants), params, run.stats, NOT_COUNTED.get(name, set()))
        if name in NOT_COUNTED:
            agree(p.check(), params, run.stats, NOT_COUNTED[name] if name in UNPROVED else set())


def test_the_command_line_makes_data_for_the_command_line(ex, tmp_path):
    """`data.py` writes the arrays and prints the command that runs the program on them."""
    made = subprocess.run(
        [sys.executable, EXAMPLES / "data.py", "matrix_chain", "-o", tmp_path / "in.npz", "--expected", tmp_path / "e.npz"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    command = shlex.split(made.stdout)
    assert command[:2] == ["upl", "run"]
    tool = [sys.executable, "-c", "from upl_mlir.tools.upl import main; main()"]
    subprocess.run([*tool, *command[1:], "--output", tmp_path / "out.npz"], capture_output=True, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["P"], np.load(tmp_path / "e.npz")["P"], rtol=1e-12)


def test_the_readme_lists_every_example(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    assert [n for n in NAMES if f"`examples/{n}.upl`" not in text] == []
