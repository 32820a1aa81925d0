"""The operations of one run and what each waits for, from the interpreter: what a machine without matching would compute.

An operation is counted if its operands come with tokens; what index fields alone determine is known before the run.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.api.programs import Program
from upl_mlir.dialects.upl import InputOp, LetOp, NodeOp, SendOp
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.dialects.upl.query import endpoints
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.hw.core.alu import Code
from upl_mlir.hw.core.code.functions import FUNCTIONS, lines_of
from upl_mlir.hw.machine import Execution
from upl_mlir.hw.microcode import Op
from upl_mlir.observe.replay import Index, Recorder
from upl_mlir.ops import BY_OP, expansion


class Unit(IntEnum):
    """Which unit an operation needs; LIGHT needs none: comparisons, selections, integers take a cycle anywhere."""

    ADD = 0
    MUL = 1
    DIV = 2
    SQRT = 3
    LIGHT = 4


_UNITS = {"arith.addf": Unit.ADD, "arith.subf": Unit.ADD, "arith.mulf": Unit.MUL, "arith.divf": Unit.DIV,
          "math.sqrt": Unit.SQRT}  # fmt: skip
_CODES = {Code.ADD_F32: Unit.ADD, Code.SUB_F32: Unit.ADD, Code.MUL_F32: Unit.MUL, Code.FMA_F32: Unit.MUL,
          Code.FMC_F32: Unit.MUL, Code.DIV_F32: Unit.DIV, Code.SQRT_F32: Unit.SQRT}  # fmt: skip
_NAMES = {"math.powf": "pow.f32"}

Value = tuple[int, int]
"""When a value is there if units are never short, in cycles, and the operation that makes it (-1: there from the start)."""
NOTHING: Value = (0, -1)


@dataclass
class Dependences:
    """The operations of a run in an order in which they can be done: unit, and the operations whose results each takes.

    `ideal` are the cycles that the longest chain of operations takes; `loads` and `stores` are tokens that firings used
    and sent."""

    latency: tuple[int, ...]
    units: list[Unit] = field(default_factory=list[Unit])
    before: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    ideal: int = 0
    depth: int = 0
    """The longest chain of firings."""
    loads: int = 0
    stores: int = 0

    def add(self, unit: Unit, *operands: Value) -> Value:
        """A further operation; its result."""
        number = len(self.units)
        self.units.append(unit)
        self.before.append(tuple(o[1] for o in operands if o[1] >= 0))
        end = max((o[0] for o in operands), default=0) + self.latency[unit]
        self.ideal = max(self.ideal, end)
        return end, number

    def combine(self, unit: Unit, values: list[Value]) -> Value:
        """The values joined two by two, those that are there first before the others."""
        heapq.heapify(values)
        while len(values) > 1:
            a = heapq.heappop(values)
            heapq.heapreplace(values, self.add(unit, a, values[0]))
        return values[0] if values else NOTHING


def latencies(execution: Execution) -> tuple[int, ...]:
    """Cycles of an operation of each unit."""
    return (execution.add_cycles, execution.mul_cycles, execution.div_cycles, execution.sqrt_cycles, 1)


def dependences(program: Program, bound: Mapping[str, int], dense: Mapping[str, Any], execution: Execution) -> Dependences:
    """Run a program (domains inferred) on the interpreter and note what depends on what.  Raises UplError."""
    graph = Dependences(latencies(execution))
    recorder = _Operations(program, bound, graph)
    with program.errors():
        Engine(program.op, bound, real="f32", trace=recorder.note).run(dense)
    return graph


@dataclass(frozen=True)
class _Step:
    """An operation of a body; operands are inputs (from 0 on) or, from ~0 downwards, steps before it."""

    unit: Unit
    operands: tuple[int, ...]


@dataclass
class _Body:
    """What a node computes: its steps, and which value goes to which target (several arrows to one: the last of them)."""

    ports: tuple[Unit | None, ...] = ()
    """Of the gathers among its inputs the unit that joins their summands."""
    steps: list[_Step] = field(default_factory=list[_Step])
    sends: dict[str, list[int | None]] = field(default_factory=dict[str, list[int | None]])


class _Operations(Recorder):
    """The recorder of a run that keeps operations in place of events."""

    def __init__(self, program: Program, bound: Mapping[str, int], graph: Dependences):
        super().__init__(program, bound)
        self.graph = graph
        self.bodies = {name: _body(op) for name, op in endpoints(program.op).items() if isinstance(op, NodeOp | InputOp)}
        self.made: dict[int, Value] = {}
        """The value of each token, by the event that sent it."""
        self.depths: dict[int, int] = {}
        """The number of firings before each token that had to come one after the other."""
        self.now: dict[str, Value] = {}
        self.depth = 0

    def _fire(self, name: str, index: tuple[int, ...]) -> None:
        body, graph = self.bodies[name], self.graph
        values: list[Value] = []
        depth = 0
        for unit, entry in zip(body.ports, self.inputs[name], strict=True):
            used = self._used(entry, index)
            graph.loads += len(used)
            for token in used:
                token.left = token.left if token.left is None else token.left - 1
                depth = max(depth, self.depths[token.at])
            arrived = [self.made[t.at] for t in used]
            values.append(graph.combine(unit, arrived) if unit is not None else max(arrived, default=NOTHING))
        steps: list[Value] = []

        def of(number: int) -> Value:
            return values[number] if number >= 0 else steps[~number]

        for step in body.steps:
            steps.append(graph.add(step.unit, *map(of, step.operands)))
        self.now = {
            target: max((of(n) if n is not None else NOTHING for n in found), default=NOTHING)
            for target, found in body.sends.items()
        }
        self.depth = depth + 1 if body.steps or body.ports else 0
        graph.depth = max(graph.depth, self.depth)
        self.events.append(None)  # pyright: ignore[reportArgumentType]  # only the number of events matters here
        self.source = (name, index, 0)

    def _send(self, name: str, index: Index, value: Any) -> None:
        self.made[len(self.events)] = self.now.get(name, NOTHING)
        self.depths[len(self.events)] = self.depth
        self.graph.stores += 1
        super()._send(name, index, 0)


def _joining(gather: Gather) -> Unit:
    return _UNITS.get(gather.real.name, Unit.LIGHT) if gather.real is not None else Unit.LIGHT


def _body(op: NodeOp | InputOp) -> _Body:
    if isinstance(op, InputOp):
        return _Body()
    block = op.body.block
    ports = block.args[len(op.fields) :]
    number: dict[SSAValue, int | None] = {p: n for n, p in enumerate(ports)}
    gathers = tuple(_joining(p.gather) if p.gather is not None else None for p in op.ports)
    out = _Body(gathers)
    _steps(block, number, out)
    return out


def _steps(block: Block, number: dict[SSAValue, int | None], out: _Body) -> None:
    """Read a block: `number` has the inputs and steps that values are; None is known before the run."""
    for op in block.ops:
        operands = tuple(n for v in op.operands if (n := number.get(v)) is not None)
        if isinstance(op, SendOp):
            target = ".".join(filter(None, (op.target_name, op.target_port)))
            out.sends.setdefault(target, []).append(number.get(op.operands[0]))
        elif isinstance(op, LetOp):
            number[op.results[0]] = number.get(op.operands[0])
        elif op.results:
            number[op.results[0]] = _expand(op, operands, out) if operands else None


def _expand(op: Operation, operands: tuple[int, ...], out: _Body) -> int:
    """The steps of an operation: one, or those of the function's code; the number of the last."""
    row = BY_OP.get(type(op))
    if row is not None and row.machine is not None:
        block, result = expansion(row, op.results[0].type)
        number: dict[SSAValue, int | None] = {block.args[0]: operands[0]}
        _steps(block, number, out)
        last = number[result]
        assert last is not None, row.name
        return last
    name = row.name if row is not None else op.name.partition(".")[2]
    function = next((o for o in FUNCTIONS if o.value in (f"{name}.f32", _NAMES.get(op.name))), None)
    if function is None:
        return _step(out, _UNITS.get(op.name, Unit.LIGHT), operands)
    return _function(function, operands, out)


def _function(function: Op, operands: tuple[int, ...], out: _Body) -> int:
    values = list(operands)
    for line in lines_of(function):
        found = tuple(values[v] for v in (line.a, line.b, line.c) if isinstance(v, int) and v < len(values))
        values.append(_step(out, _CODES.get(line.code, Unit.LIGHT), found))
    return values[-1]


def _step(out: _Body, unit: Unit, operands: tuple[int, ...]) -> int:
    out.steps.append(_Step(unit, operands))
    return ~(len(out.steps) - 1)
