"""`lower-linalg`: a checked affine program as one function on tensors."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from upl_mlir.dialects.loops.ops import LoopProgramOp
from upl_mlir.passes.loops.emit.function import FunctionWriter
from upl_mlir.passes.loops.emit.standard import to_standard
from upl_mlir.passes.loops.passes import FollowCopiesPass, TileTimePass, UnrollLoopsPass
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.tensors.convert import to_tensors
from upl_mlir.passes.lower_to_loops import legal
from upl_mlir.passes.schedule import prepared, schedule

FOR_LOOPS = frozenset({FollowCopiesPass.name, TileTimePass.name, UnrollLoopsPass.name})
"""Passes of the schedule that pay in loops only: they break up what is one operation on tensors."""


def lower_to_linalg(p: LoopProgram) -> ModuleOp:
    """The function of a scheduled program, on tensors: it takes the inputs and returns the outputs.

    One that can fail while it runs (a division by 0, an integer too great) returns its status behind them.
    """
    module = FunctionWriter(p, returned=True).write()
    to_standard(module)
    for op in module.body.block.ops:
        if isinstance(op, func.FuncOp):
            _without_status(op)
    return to_tensors(module)


def _without_status(f: func.FuncOp) -> None:
    """Return no status from a function that notes no fault."""
    end = f.body.block.last_op
    assert isinstance(end, func.ReturnOp)
    *results, status = end.operands
    users = [u.operation for u in status.uses if u.operation is not end]
    if len(users) > 1:
        return
    f.body.block.insert_op_before(func.ReturnOp(*results), end)
    for op in (end, *users, status.owner):
        assert isinstance(op, Operation)
        op.detach()
        op.erase()
    f.properties["function_type"] = FunctionType.from_lists([a.type for a in f.body.block.args], [r.type for r in results])


@dataclass(frozen=True)
class LowerLinalgPass(ModulePass):
    """Replace a program, or the loops that `schedule` made of one, by a function on tensors (docs/native.md).

    Requires: as `lower-loops`.
    Establishes: one `func.func` in `func`, `scf`, `arith`, `math`, `tensor`, `linalg`, which takes a tensor for each
    input and returns one for each output. Parallel loops and folds become `linalg.generic` where arrays are read and
    written with step 1 along their axes; the others become `scf.for` with tensors as loop-carried values.
    Source: docs/native.md; Allen and Kennedy 1987 (loops split into operations on arrays).

        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> ...
        ->
        func.func @perceptron(%D: index, %X: tensor<?x?xf64>, ...) -> tensor<?x?xf64> { linalg.generic ... }
    """

    name = "lower-linalg"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program: Operation | None = next((o for o in op.body.block.ops if isinstance(o, LoopProgramOp)), None)
        if isinstance(program, LoopProgramOp):
            scheduled = legal(program)
        else:
            program = prepared(op, self.real, self.gather)
            scheduled = schedule(program, real=self.real, gather=self.gather, without=FOR_LOOPS)
        module = lower_to_linalg(scheduled)
        program.detach()
        for new in list(module.body.block.ops):
            new.detach()
            op.body.block.add_op(new)
        program.erase()
