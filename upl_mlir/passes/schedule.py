"""`schedule`: equations, the order of their statements, and where their elements live."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.infer_domains import domains_known, infer_domains
from upl_mlir.passes.loops.equations import System, equations
from upl_mlir.passes.loops.order import Scheduler, Tree
from upl_mlir.passes.loops.statements import edges, statements
from upl_mlir.passes.loops.terms import Kind
from upl_mlir.passes.storage import Array, Storage


@dataclass(frozen=True, eq=False)
class Plan:
    """A scheduled program: its equations, the tree of loops, and the arrays between."""

    system: System
    tree: list[Tree]
    arrays: dict[str, Array]
    ordered: bool


@bounded("the schedule")
def schedule(program: ProgramOp, *, real: str = "f64", gather: str = "relaxed") -> Plan:
    """Schedule a checked affine program (with `adjoint of` expanded); sizes stay symbolic.

    `real` is what `real` means ("f64" or "f32"), `gather` whether folds keep their order ("ordered") or not ("relaxed").
    Raises UplError (UPL19xx) for what is not such a program.
    """
    if not domains_known(program):
        infer_domains(program)
    ordered = gather == "ordered"
    system = equations(program, Kind(real), ordered=ordered)
    stmts = statements(system)
    deps = edges(system.lin, stmts)
    tree = Scheduler(system.lin, stmts, deps).tree()
    return Plan(system, tree, Storage(system, tree, deps).arrays(), ordered)


@dataclass(frozen=True)
class SchedulePass(ModulePass):
    """Note on a program how it will run as loops: the attribute `upl.schedule` holds the text.

    Requires: all domains known; nothing refuted; no arrow decided by data.
    Establishes: nothing that other passes need: `lower-loops` makes the same schedule again.
    Source: Feautrier 1991 (recurrences to loops), Allen and Kennedy 1987 (order), Bondhugula et al. 2008 (fusion).

        upl.program @scan { ... }
        ->
        upl.program @scan { ... } {upl.schedule = "for L1 in 1..n ..."}
    """

    name = "schedule"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from upl_mlir.passes.loops.show import schedule_text

        program = program_of(op)
        plan = schedule(program, real=self.real, gather=self.gather)
        program.attributes["upl.schedule"] = StringAttr(schedule_text(plan.tree, plan.arrays))
