"""The dialect `ppn`: the example of its page is a circuit, verified and proved."""

from __future__ import annotations

import inspect

from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from upl_mlir.dialects.ppn import CircuitOp, ops
from upl_mlir.dialects.verifying import verify
from upl_mlir.passes.circuit.ir import read
from upl_mlir.passes.circuit.prove import proofs
from upl_mlir.pipeline import new_context


def example() -> ModuleOp:
    """The program in the docstring of the dialect's module."""
    doc = inspect.getdoc(ops) or ""
    lines = [line for line in doc.splitlines() if line.startswith("    ")]
    return Parser(new_context(), "\n".join(lines)).parse_module()


def test_the_example_of_the_page_is_a_circuit() -> None:
    module = example()
    verify(module)
    (op,) = module.body.block.ops
    assert isinstance(op, CircuitOp)
    _, plan = read(op)  # what the text says follows from its schedule
    (part,) = plan.parts
    assert (part.nest.lanes, part.nest.along) == (16, "i")
    assert all(p.holds for p in proofs(plan))
