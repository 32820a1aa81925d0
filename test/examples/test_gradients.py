"""Derivatives of every example: both modes against differences, and the program of the derivatives proved as well."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis.obligations import Status

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.upl"))

OPEN = {"newton", "spmv"}
"""Examples whose derivative has obligations that stay open because data decide them, as in the example itself."""


def differentiable(p: upl.Program) -> tuple[list[str], list[str]]:
    """The outputs and inputs that are real numbers."""
    real = [[n for n, v in ports.items() if v.dtype.kind == "f"] for ports in (p.outputs, p.inputs)]
    return real[0], real[1]


@pytest.mark.parametrize("name", NAMES)
def test_both_modes_against_differences(example_data, ex, name):
    """Every real output by all real inputs at once; of the program as it was written, directives included."""
    d = example_data.generate(name)
    p = ex.bound(name, d.params)
    outputs, inputs = differentiable(p)
    assert outputs and inputs
    for of in outputs:
        upl.check_grads(p, of, inputs, d.inputs, modes=("fwd", "rev"))


@pytest.mark.parametrize("name", NAMES)
def test_both_modes_by_each_input(example_data, ex, name):
    """Every real output by every real input alone: other programs than by all at once, since less is active."""
    d = example_data.generate(name)
    p = ex.bound(name, d.params)
    outputs, inputs = differentiable(p)
    for of in outputs:
        for wrt in inputs:
            upl.check_grads(p, of, wrt, d.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_the_derivative_is_proved_for_all_sizes(ex, name):
    """The first output by all inputs: the adjoint of a program that is right is right, whatever the sizes."""
    p = upl.load(ex.text(name)).expanded()
    outputs, inputs = differentiable(p)
    report = upl.vjp(p, of=outputs[0], wrt=inputs).check()
    assert report.ok
    unproved = [o.message for o in report.obligations if o.status is Status.UNPROVED]
    if name in OPEN:
        assert unproved and all("data" in message for message in unproved)
    else:
        assert unproved == []
