"""The `upl_loops` dialect: programs as arrays, statements and schedules."""

from upl_mlir.dialects.loops.ops import LoopProgramOp
from upl_mlir.dialects.loops.verify import verify_program

LoopProgramOp.RULES.append(verify_program)
