"""The dialect `upl_loops`: what is written reads back as the same program, and malformed programs are told where."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

import upl_mlir as upl
from upl_mlir.dialects.loops.ops import LoopProgramOp
from upl_mlir.passes.loops.ir import read, write
from upl_mlir.passes.lower_to_loops import written
from upl_mlir.passes.schedule import prepared, raised, schedule
from upl_mlir.pipeline import new_context, verify

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOPS = """upl_loops.program @scan "relaxed" {
  upl.param @n where <"n>=2">
  upl_loops.array @A <"i"> f64 "input" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && n >= i+1">]
  upl_loops.array @B <""> f64 "output" [#upl_loops.all<"">]
  upl_loops.array @S <"i"> f64 "local" [#upl_loops.all<"i >= 0 && n >= i+1">] kept <"0 from 0 size 2 mod 2">
  upl_loops.statement @S0 writes @S where <"i == 0"> {
    %0 = upl_loops.read @A <"i"> : f64
    upl_loops.yield %0 : f64
  }
  upl_loops.statement @S1 writes @S where <"i >= 1 && n >= i+1"> {
    %0 = upl_loops.read @S <"i-1"> : f64
    %1 = upl_loops.read @A <"i"> : f64
    %2 = arith.addf %0, %1 : f64
    upl_loops.yield %2 : f64
  }
  upl_loops.statement @S2 writes @B where <""> {
    %0 = upl_loops.read @S <"n-1"> : f64
    upl_loops.yield %0 : f64
  }
  upl_loops.schedule {
    upl_loops.run @S0 at <"0">
    upl_loops.for "L1" from <"1"> to <"n-1"> {
      upl_loops.run @S1 at <"L1">
    }
    upl_loops.run @S2 at <"">
  }
}
"""


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('@S1 at <"L1">', '@S9 at <"L1">', "there is no statement `S9`"),
        ('@S1 at <"L1">', '@S1 at <"L1,0">', "`S` has 1 fields, found 2"),
        ('@S1 at <"L1">', '@S1 at <"*">', "an index of `S` has no `\\*` here"),
        ('@S1 at <"L1">', '@S1 at <"L2">', "`L2` in `L2` is no name here"),
        ('for "L1"', 'for "n"', "`n` has a meaning here already"),
        ('from <"1"> to', 'from <""> to', "has a bound on each side"),
        ("writes @B", "writes @A", "`A` is an input"),
        ("writes @B", "writes @C", "there is no array `C`"),
        ("read @S <\"n-1\">", "read @T <\"n-1\">", "there is no array `T`"),
        ("read @S <\"n-1\">", "read @S <\"m-1\">", "`m` in `m-1` is no name here"),
        ("read @S <\"n-1\">", "read @S <\"n-1,0\">", "`S` has 1 fields, found 2"),
        ("0 from 0 size 2 mod 2", "1 from 0 size 2 mod 2", "no field number 1"),
        ("0 from 0 size 2 mod 2", "0 from 0 size 2 mod 0", "is no axis"),
        ("0 from 0 size 2 mod 2", "0 from 0 size 1 mod 2", "has not as many places as values are kept"),
        ("0 from 0 size 2 mod 2", "0 from 0", "expected `FIELD from LOWER size EXTENT"),
        ('"relaxed"', '"loose"', "expected one of ordered, relaxed"),
        ('f64 "input"', 'f64 "host"', "expected one of input, output, local"),
        ('where <"i == 0">', 'where <"i = 0">', "in `i = 0`"),
        ('where <"i == 0">', 'where <"i <= 0">', "expected `left >= right` or `left == right`"),
        ('where <"i == 0">', 'where <"P[i] == 0">', "there is no table `P`"),
        ("%2 = arith.addf", 'upl_loops.run @S0 at <"0">\n    %2 = arith.addf', "`upl_loops.run` cannot stand in a body"),
        ('kept <"0 from 0 size 2 mod 2">', 'kept <"0 from 0 size 2 mod 2"> private "L7"', "private to the loop `L7`"),
    ],
)  # fmt: skip
def test_malformed_programs(old, new, message):
    """A placed error for each, never an exception of another kind."""
    from upl_mlir.api.programs import load

    assert old in LOOPS
    with pytest.raises(upl.UplError, match=message):
        load("builtin.module {\n" + LOOPS.replace(old, new, 1) + "}\n").infer_domains()
