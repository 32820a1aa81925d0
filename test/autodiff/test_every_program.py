"""`check_grads` over every program of the repository that has a derivative: each real output by each real input, and by all.

The programs are the files of `test/`, `docs/`, `bench/` and `examples/`, and the texts in the tests.  One counts if it is
proved (but for what data decide) and runs on random data at small sizes; whatever has no derivative then stands below, with
the error that says so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import upl_mlir as upl
from upl_mlir.api.programs import added
from upl_mlir.passes.analysis.small_sizes import small_programs

ROOT = Path(__file__).resolve().parents[2]
BEGINNING = re.compile(r"\s*(//[^\n]*\n\s*)*program\s+\w+\s*\n")

REFUSED = {("test/native/test_read_where_stored.py", "faulty"): "UPL1402"}
"""Programs that have no derivative, with the error that says so."""


@cache
def texts() -> dict[str, list[str]]:
    """What looks like a program, by file."""
    found: dict[str, list[str]] = {}
    for folder in ("test", "docs", "bench", "examples"):
        for path in sorted((ROOT / folder).rglob("*.upl")):
            parts = path.read_text(encoding="utf-8").split("// -----\n")
            found[str(path.relative_to(ROOT))] = [part for part in parts if re.search(r"^program\s", part, re.M)]
    for path in sorted((ROOT / "test").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        found[str(path.relative_to(ROOT))] = [s for s in strings if BEGINNING.match(s)]
    return {name: these for name, these in found.items() if these}


def ports(p: upl.Program) -> tuple[list[str], list[str]]:
    """The real outputs and inputs."""
    outs, ins = ([n for n, v in which.items() if v.dtype.kind == "f"] for which in (p.outputs, p.inputs))
    return outs, ins


def small(p: upl.Program) -> upl.Program:
    """The program with its parameters bound to small values, where its conditions allow some."""
    if not p.params:
        return p
    found = [op for op, _, _ in small_programs(p.read())]
    return upl.Program(ModuleOp([found[-1]]), p.sources) if found else p


def prepared(text: str) -> tuple[upl.Program, dict[str, Any]] | None:
    """The program at small sizes and data on which it runs; None for one that is wrong, or is about something else."""
    try:
        p = upl.load(text)
        if not all(ports(p)):
            return None
        p = small(p)
        if not p.check().ok:
            return None
        rng = np.random.default_rng(1)
        inputs: dict[str, Any] = {}
        for n, v in p.inputs.items():
            given = rng.uniform(0.3, 0.9, v.shape()) if v.dtype.kind == "f" else rng.integers(0, 2, v.shape())
            inputs[n] = given.astype(v.dtype)
        out = upl.compile(p)(**inputs)
    except upl.UplError:
        return None
    return (p, inputs) if all(np.all(np.isfinite(v)) for v in out.values()) else None


def pairs(p: upl.Program) -> Iterator[tuple[str, list[str]]]:
    """Each output by all inputs, and by each."""
    outs, ins = ports(p)
    for of in outs:
        yield of, ins
        if len(ins) > 1:
            yield from ((of, [n]) for n in ins)


def transposed(p: upl.Program, of: str, wrt: list[str], inputs: dict[str, Any]) -> None:
    """<J t, d> = <t, J^T d>: what there is to check where the author says what the derivative is."""
    p = p.expanded()
    rng = np.random.default_rng(2)
    forward, backward = upl.jvp(p, of, wrt), upl.vjp(p, of, wrt)
    along = {n: rng.normal(size=inputs[n].shape) for n in wrt}
    twins = dict(zip(added(p.inputs, forward.inputs), along.values(), strict=True))
    (tangent,) = added(p.outputs, forward.outputs)
    pushed = upl.compile(forward)(**inputs, **twins)[tangent]
    d = rng.normal(size=pushed.shape)
    pulled = upl.compile(backward)(**inputs, **dict.fromkeys(added(p.inputs, backward.inputs), d))
    parts = [pulled[m] * along[n] for n, m in zip(wrt, added(p.outputs, backward.outputs), strict=True)]
    size = sum(float(np.sum(np.abs(part))) for part in parts) + float(np.sum(np.abs(pushed * d)))
    assert abs(float(np.sum(pushed * d)) - sum(float(np.sum(part)) for part in parts)) <= 1e-6 * size + 1e-12


def checked(text: str, refused: str | None) -> tuple[int, int]:
    """Check one program; how many derivatives were right, and how many refused."""
    found = prepared(text)
    if found is None:
        return 0, 0
    p, inputs = found
    told = "with_derivative(" in text or "stop_gradient(" in text
    right = wrong = 0
    for of, wrt in pairs(p):
        try:
            if told:
                transposed(p, of, wrt, inputs)
            else:
                upl.check_grads(p, of, wrt, inputs)
            right += 1
        except upl.UplError as e:
            assert refused in {d.code for d in e.diagnostics}, f"{of} by {wrt} of\n{text}\n{e}"
            wrong += 1
    return right, wrong


@pytest.mark.parametrize("file", texts())
def test_every_derivative_of_every_program(file: str) -> None:
    refused: set[tuple[str, str]] = set()
    for text in texts()[file]:
        name = re.search(r"^program\s+(\w+)", text, re.M)
        key = (file, name[1] if name else "")
        if checked(text, REFUSED.get(key))[1]:
            refused.add(key)
    assert refused == {key for key in REFUSED if key[0] == file}


def test_there_are_programs() -> None:
    """The search finds them, those of the tests and with directives included; a wrong derivative is noticed."""
    found = texts()
    assert sum(map(len, found.values())) > 200 and {"examples/training.upl", "test/autodiff/test_gathers.py"} <= found.keys()
    assert checked(found["test/Inputs/stencil.upl"][0], None)[0] >= 1
    assert any("adjoint of" in text for text in found["test/autodiff/test_directives.py"])
    wrong = "program p\ninput x { -> F.x }\noutput L\nnode F { in x; with_derivative(x*x, x, x) -> L }\n"
    p, inputs = prepared(wrong) or pytest.fail("it runs")
    with pytest.raises(upl.UplError, match="UPL1410"):
        upl.check_grads(p, "L", "x", inputs)


def test_a_program_in_f32_is_checked_as_exactly_as_it_computes() -> None:
    """A difference of f32 values with the step of f64 would tell nothing; a wrong derivative is still found."""
    text = "program p\ninput x: f32 { -> F.x }\noutput L\nnode F { in x: f32; VALUE -> L }\n"
    upl.check_grads(upl.load(text.replace("VALUE", "sin(x)*x")), "L", "x", {"x": 1.25}, order=2)
    with pytest.raises(upl.UplError, match="UPL1410"):
        upl.check_grads(upl.load(text.replace("VALUE", "with_derivative(x*x, x, 2.1*x)")), "L", "x", {"x": 1.25})
