"""The state of one derivative request while its adjoint nodes and arrows are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import SSAValue

from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import ports_and_fields
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.autodiff.activity import Activity, PortKey
from upl_mlir.passes.autodiff.adjoint_plan import AdjointPlan, Planner
from upl_mlir.passes.autodiff.dynamic import Dynamics
from upl_mlir.passes.build import unused


@dataclass
class Derivation:
    """One derivative request on one program."""

    program: ProgramOp
    sets: ProgramSets
    dynamics: Dynamics
    activity: Activity
    planner: Planner
    plans: dict[str, AdjointPlan] = field(default_factory=dict[str, AdjointPlan])
    seed: tuple[InputOp | NodeOp, SSAValue] | None = None  # None: the number 1, sent by whoever sends the objective
    result: dict[PortKey, SymbolRefAttr] = field(default_factory=dict[PortKey, SymbolRefAttr])
    taken: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.taken |= ports_and_fields(self.program)

    def fresh(self, name: str) -> str:
        """The name, or one made from it that nothing in the program has."""
        return unused(name, self.taken)
