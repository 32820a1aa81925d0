"""Units that processes use in turn: in front of each a register with the operands of the process whose turn it is.

The schedule sees to it that there is one at most in each slot, run upon run (`passes/circuit/share.py`).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# pyright: reportUnknownMemberType=false, reportGeneralTypeIssues=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal, Value

from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.circuit.units import BITS, operands, result, unit
from upl_mlir.passes.circuit.body import Node
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.share import Unit, units_of


@dataclass(frozen=True, eq=False)
class _User:
    """An operation of a lane of a process: when it is its turn, its operands, the lane's enable; where the result goes."""

    turn: Value
    args: Sequence[Value]
    enable: Value
    result: Signal


class Turns:
    """Collects what the lanes of a plan want of units that are shared, and makes these."""

    def __init__(self, plan: Plan, target: Target):
        self.plan, self.target = plan, target
        self.units = {x.node: u for u in units_of(plan.parts, plan.shared) if len(u.uses) > 1 for x in u.uses}
        self.users: dict[tuple[Unit, int], list[_User]] = {}

    def shares(self, node: Node) -> bool:
        """Whether an operation is done by a unit that is shared."""
        return node in self.units

    def use(self, node: Node, lane: int, turn: Value, args: Sequence[Value], enable: Value) -> Value:
        """The result of an operation of a lane, whose operands are there when it is its turn."""
        users = self.users.setdefault((self.units[node], lane), [])
        made = Signal(BITS, name=f"{self.units[node].name}_{lane}_{len(users)}")
        users.append(_User(turn, operands(node.kind, args), enable, made))
        return made

    def build(self, m: Module) -> None:
        """Make the units, each with its register of operands."""
        for (u, lane), users in self.users.items():
            made = unit(u.kind, self.plan.units, self.target)
            m.submodules[f"{u.name}_{lane}"] = made
            enable = users[0].enable  # that of the lane with this number is the same in each process
            for n, (port, *_) in enumerate(zip("abc", users[0].args, strict=False)):
                taken = Signal(BITS, name=f"{u.name}_{lane}_{port}", reset_less=True)
                chosen = reduce(or_, [x.args[n] & x.turn.replicate(BITS) for x in users])
                with m.If(enable):
                    m.d.sync += taken.eq(chosen)
                m.d.comb += getattr(made, port).eq(taken)
            m.d.comb += made.enable.eq(enable)
            m.d.comb += [x.result.eq(result(u.kind, made)) for x in users]
