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
from typing import Any

from amaranth.hdl import Const, Module, Signal, Value

from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.circuit.wires import Wires
from upl_mlir.passes.circuit.body import Node
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.share import Unit, in_turn, units_of


@dataclass(frozen=True, eq=False)
class Operand:
    """What a process gives to a unit when it is its turn: `value` where `keep` is 1, else the bits of `constant`; without
    a `keep`, `value`."""

    value: Any
    keep: Any = None
    constant: int = 0


@dataclass(frozen=True, eq=False)
class _User:
    """An operation of a lane of a process: when it is its turn, its operands, the wires of the process."""

    turn: Value
    args: Sequence[Operand]
    wires: Wires


class Turns:
    """Collects what the lanes of a plan want of units that are shared, and makes these."""

    def __init__(self, plan: Plan, target: Target, made: Any):
        self.plan, self.target = plan, target
        self.made, self.width = made, plan.numbers.width
        units = units_of(plan.parts, plan.shared)
        self.units = {x.node: u for u in units for x in u.uses if in_turn(plan.parts[x.part], x.node, plan.shared)}
        self.users: dict[tuple[Unit, int], list[_User]] = {}
        self.results: dict[tuple[Unit, int], Signal] = {}

    def shares(self, node: Node) -> bool:
        """Whether an operation is done by a unit with a register in front: one that is shared, or could be."""
        return node in self.units

    def use(self, node: Node, lane: int, turn: Value, args: Sequence[Operand], wires: Wires) -> Value:
        """The result of an operation of a lane, whose operands are there when it is its turn."""
        key = self.units[node], lane
        if key not in self.results:
            self.results[key] = Signal(self.width, name=f"{key[0].name}_{lane}_result")
        values = self.made.operands(node.kind, [a.value for a in args])
        args = [Operand(v, a.keep, a.constant) for v, a in zip(values, args, strict=True)]
        self.users.setdefault(key, []).append(_User(turn, args, wires))
        return self.results[key]

    def build(self, m: Module) -> None:
        """Make the units, each with its register of operands."""
        for (u, lane), users in self.users.items():
            made = self.made.unit(u.kind)
            m.submodules[unit_name(u, lane)] = made
            # The enable of the lane with this number is the same in each process.
            enable = users[0].wires.enable_of(m, lane, f"{u.name}_{lane}_enable")
            for n, (port, *_) in enumerate(zip("abc", users[0].args, strict=False)):
                taken = Signal(self.width, name=f"{u.name}_{lane}_{port}", reset_less=True)
                with m.If(enable):
                    m.d.sync += taken.eq(_chosen([(x.turn, x.args[n]) for x in users]))
                m.d.comb += getattr(made, port).eq(taken)
            m.d.comb += [made.enable.eq(enable), self.results[u, lane].eq(self.made.result(u.kind, made))]


def unit_name(u: Unit, lane: int) -> str:
    """The name of the module of a unit that is shared, in a lane."""
    return f"{u.name}_{lane}"


def _chosen(users: Sequence[tuple[Value, Operand]]) -> Value:
    """The operand of the user whose turn it is.  What all of them take from the same place needs no choice."""
    same = {id(x.value) for _, x in users}
    if len(same) == 1 and all(x.keep is None for _, x in users):
        return users[0][1].value
    out: list[Value] = []
    for turn, x in users:
        keep = turn if x.keep is None else x.keep
        width = len(x.value)
        out.append(x.value & keep.replicate(width))
        if x.keep is not None and x.constant:
            out.append(Const(x.constant, width) & (turn & ~x.keep).replicate(width))
    return reduce(or_, out)
