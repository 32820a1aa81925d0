"""What a circuit must be for its passes to read it: names, ranges and numbers; each fault at its operation.

Whether every value is there when it is read is another question: `passes/circuit/ir.py` asks it when a circuit is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr, SymbolRefAttr
from xdsl.ir import Operation

from upl_mlir.dialects.bases import RuleError
from upl_mlir.dialects.loops.ops import ArrayOp, LoopProgramOp, ScheduleOp
from upl_mlir.dialects.ppn.attributes import PARTS
from upl_mlir.dialects.ppn.ops import BindOp, ChannelOp, CircuitOp, PortOp, ProcessOp, UnitOp

KINDS = ("delay", "varying", "fifo", "sticky", "buffer", "window", "windows", "dealt", "held")


def verify_circuit(op: CircuitOp) -> None:
    """Raise RuleError for the first fault."""
    _Verifier(op).run()


class _Verifier:
    def __init__(self, op: CircuitOp):
        self.op = op
        ops = list(op.body.block.ops)
        self.programs = [o for o in ops if isinstance(o, LoopProgramOp)]
        self.processes = {o.sym_name.data: o for o in ops if isinstance(o, ProcessOp)}
        self.units = {o.sym_name.data: o for o in ops if isinstance(o, UnitOp)}
        self.ports = {o.sym_name.data: o for o in ops if isinstance(o, PortOp)}
        self.arrays: dict[str, ArrayOp] = {}

    def run(self) -> None:
        if len(self.programs) != 1 or not self.processes:
            found = f"{len(self.programs)} programs and {len(self.processes)} processes"
            raise RuleError(f"expected one program of equations, and processes, found {found}", self.op)
        (program,) = self.programs
        if any(isinstance(o, ScheduleOp) for o in program.body.block.ops):
            raise RuleError("expected equations, found a schedule of loops", program)
        self.arrays = {o.symbol: o for o in program.body.block.ops if isinstance(o, ArrayOp)}
        for o in self.op.body.block.ops:
            match o:
                case LoopProgramOp():
                    pass
                case ProcessOp():
                    self._process(o)
                case UnitOp():
                    self._positive(o, latency=o.latency, interval=o.interval, zero=("latency",))
                case BindOp():
                    self._known(o, o.unit, self.units, "unit")
                    self._known(o, o.process, self.processes, "process")
                    self._positive(o, at=o.stage, zero=("at",))
                case ChannelOp():
                    self._channel(o)
                case PortOp():
                    self._port(o)
                case _:
                    raise RuleError(f"`{o.name}` cannot stand in a circuit", o)

    def _process(self, o: ProcessOp) -> None:
        array = o.array.root_reference.data
        if any(p is not o and p.array == o.array for p in self.processes.values()):
            raise RuleError(f"`{array}` is computed by two processes", o)
        if array not in self.arrays or self.arrays[array].role.data == "input":
            raise RuleError(f"`{array}` is no array that the program computes", o)
        fields = [name for name, _, _ in o.over.data]
        order = list(o.order.data)
        if len(set(fields)) < len(fields) or sorted(order) != sorted(fields):
            raise RuleError(f"expected the order of {_list(fields)}, each once, found {_list(order)}", o)
        if o.along.data not in fields:
            raise RuleError(f"the lanes lie along one of {_list(fields)}, found `{o.along.data}`", o)
        if len(o.every.data) != len(order):
            raise RuleError(f"expected slots for {len(order)} loops, found {len(o.every.data)}", o)
        self._positive(o, lanes=o.lanes, slots=o.slots, skew=o.skew, result=o.stages, cycles=o.cycles,
                       zero=("skew", "result"))  # fmt: skip
        sizes = {name: last - first + 1 for name, first, last in o.over.data}
        if o.lanes.value.data > sizes[o.along.data]:
            raise RuleError(f"{o.lanes.value.data} lanes are more than the values of `{o.along.data}`", o)
        inner = 1
        for field, every in zip(reversed(order), reversed(o.every.data), strict=True):
            if every < inner:
                raise RuleError(f"an iteration of `{field}` takes {inner} slots or more, found {every}", o)
            inner = every * (-(-sizes[field] // o.lanes.value.data) if field == o.along.data else sizes[field])
        if o.slots.value.data < inner:
            raise RuleError(f"a run takes {inner} slots or more, found {o.slots.value.data}", o)
        first = next(iter(self.processes.values()))
        if o.slots.value.data != first.slots.value.data:
            raise RuleError(f"a run takes {first.slots.value.data} slots in another process, found {o.slots.value.data}", o)
        for f in () if o.down is None else o.down.data:
            if f not in fields or f == o.along.data:
                raise RuleError(f"a loop that runs down is one of {_list(fields)} without lanes, found `{f}`", o)
        if o.start is not None:
            self._positive(o, start=o.start)

    def _channel(self, o: ChannelOp) -> None:
        self._known(o, o.target, self.processes, "process")
        self._known(o, o.source, {**self.processes, **self.ports}, "port or process")
        source = o.source.root_reference.data
        if o.kind.data not in KINDS:
            raise RuleError(f"expected one of {_list(KINDS)}, found `{o.kind.data}`", o)
        array = self.processes[source].array.root_reference.data if source in self.processes else source
        if o.index is not None and array in self.arrays and len(o.index.data) != len(self.arrays[array].fields):
            raise RuleError(f"`{array}` has {len(self.arrays[array].fields)} fields, found {len(o.index.data)}", o)
        scalar = array in self.arrays and not self.arrays[array].fields
        if o.index is None and source != o.target.root_reference.data and not scalar:
            raise RuleError(f"an index into `{source}` is missing", o)
        self._positive(o, at=o.stage, depth=o.depth, reads=o.reads, zero=("at", "depth", "reads"))

    def _port(self, o: PortOp) -> None:
        name = o.sym_name.data
        if o.role.data == "inner":
            self._inner(o)
            return
        for of in (o.by, o.until):
            if of is not None:
                self._known(o, of, self.processes, "process")
        if name not in self.arrays or self.arrays[name].role.data != {"in": "input", "out": "output"}.get(o.role.data):
            raise RuleError(f"`{name}` is no host port of the program with the role `{o.role.data}`", o)
        self._order(o, self.arrays[name].fields)

    def _inner(self, o: PortOp) -> None:
        """A stream `ARRAY.to.READER`."""
        made = {p.array.root_reference.data for p in self.processes.values()}
        source, _, reader = o.sym_name.data.partition(".to.")
        if source not in made or reader not in made:
            raise RuleError(f"expected a stream `A.to.B` from the process of A to that of B, found `{o.sym_name.data}`", o)
        self._order(o, self.arrays[source].fields)

    def _order(self, o: PortOp, fields: Sequence[str]) -> None:
        whole = sorted(name for name, part in o.order.data if part != "lane")
        parts = [sorted(name for name, part in o.order.data if part == which) for which in PARTS]
        if whole != sorted(fields) or parts[0] != parts[1]:
            raise RuleError(f"expected the fields {_list(fields)} in some order", o)
        self._positive(o, words=o.words)

    def _known(self, o: Operation, ref: SymbolRefAttr, among: Mapping[str, Operation], what: str) -> None:
        if ref.root_reference.data not in among:
            raise RuleError(f"no {what} is called `{ref.root_reference.data}`", o)

    def _positive(self, o: Operation, *, zero: Sequence[str] = (), **numbers: IntegerAttr) -> None:
        for name, n in numbers.items():
            if n.value.data < (0 if name in zero else 1):
                raise RuleError(f"`{name}` is {n.value.data}: expected {0 if name in zero else 1} or more", o)


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)
