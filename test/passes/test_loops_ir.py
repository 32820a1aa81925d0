"""The dialect `upl_loops`: what is written reads back as the same program, and malformed programs are told where."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

import upl_mlir as upl
from upl_mlir.dialects.loops.ops import LoopProgramOp
from upl_mlir.dialects.verifying import verify
from upl_mlir.passes.loops.ir import read, write
from upl_mlir.passes.lower_to_loops import written
from upl_mlir.passes.schedule import prepared, raised, schedule
from upl_mlir.pipeline import new_context

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOPS = (Path(__file__).parents[1] / "Inputs" / "scan.mlir").read_text()


def parsed(text: str) -> LoopProgramOp:
    """A verified program of loops.  Raises UplError."""
    module = Parser(new_context(), text).parse_module()
    verify(module)
    (op,) = module.body.block.ops
    assert isinstance(op, LoopProgramOp)
    return op


def ready(name: str, gradient: str) -> upl.Program:
    """An example, or the derivative of one of its outputs."""
    p = upl.load(EXAMPLES / f"{name}.upl")
    if not gradient:
        return p
    return upl.vjp(p, of=gradient, wrt=[n for n, v in p.inputs.items() if v.dtype.kind == "f"])


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        ("jacobi2d", ""), ("wave", ""), ("matmul", "C"), ("perceptron", "R"), ("conv2d", ""), ("triangular_solve", "X"),
        ("training", ""), ("jacobi2d", "B"),
    ],
)  # fmt: skip
def test_programs_read_back(name, gradient, gather):
    """Equations and schedules: the same text, and the same function."""
    program = prepared(ready(name, gradient).expanded().infer_domains().module.clone(), "f64", gather)
    equations = raised(program, real="f64", gather=gather, fixed={})
    text = str(write(equations))
    assert str(write(read(parsed(text)))) == text
    scheduled = schedule(program, gather=gather)
    text = str(write(scheduled))
    again = read(parsed(text))
    assert str(write(again)) == text
    assert str(written(again).module) == str(written(scheduled).module)


def test_a_program_by_hand():
    """It is read, and written as it was."""
    assert str(write(read(parsed(LOOPS)))).split() == str(ModuleOp([parsed(LOOPS).clone()]).body.block.first_op).split()
