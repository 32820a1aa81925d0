"""The plan of a circuit as the dialect `ppn`, and back: a text may change the schedule, the latencies and the orders
of streams; what follows from them is found again, and must be what the text says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolRefAttr, i64
from xdsl.ir import Attribute, Operation

from upl_mlir.diagnostics import error
from upl_mlir.dialects.loops.ops import LoopProgramOp
from upl_mlir.dialects.ppn import BindOp, ChannelOp, CircuitOp, PortOp, ProcessOp, RangesAttr, RunsAttr, UnitOp
from upl_mlir.dialects.ppn.attributes import NumbersAttr, OrderAttr
from upl_mlir.dialects.upl.attributes import IndexAttr, NamesAttr
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.circuit.body import LATENCY, Node
from upl_mlir.passes.circuit.nest import Nest
from upl_mlir.passes.circuit.plan import Fixed, Plan, cycles, planned
from upl_mlir.passes.circuit.ports import Axis, Input, Order, Output, Runs
from upl_mlir.passes.circuit.process import Process, process_of
from upl_mlir.passes.circuit.stages import Site
from upl_mlir.passes.loops.ir import read as read_loops
from upl_mlir.passes.loops.ir import write as write_loops
from upl_mlir.passes.loops.program import LoopProgram


def write(loops: LoopProgram, plan: Plan) -> CircuitOp:
    """The operation that says a plan."""
    return CircuitOp(loops.name, [write_loops(loops), *_operations(plan)])


def _operations(plan: Plan) -> list[Operation]:
    """Process, units, channels, ports."""
    return [_process(plan), *_units(plan), *channels(plan), *map(_input, plan.inputs), *map(_output, plan.outputs)]


def process_name(plan: Plan) -> str:
    """What the process is called: ports and arrays have names of their own."""
    return f"{plan.process.name}.process"


def _number(n: int) -> IntegerAttr:
    return IntegerAttr(n, i64)


def _process(plan: Plan) -> ProcessOp:
    nest = plan.nest
    return ProcessOp(
        properties={
            "sym_name": StringAttr(process_name(plan)), "array": SymbolRefAttr(plan.process.name),
            "over": RangesAttr(tuple((d.name, d.low, d.low + d.extent - 1) for d in nest.dims)),
            "lanes": _number(nest.lanes), "along": StringAttr(nest.along), "order": NamesAttr(nest.order),
            "every": NumbersAttr(nest.every), "skew": _number(nest.skew), "slots": _number(nest.slots),
            "stages": _number(plan.at.result), "cycles": _number(cycles(plan)),
        }
    )  # fmt: skip


def units(plan: Plan) -> list[tuple[str, Node]]:
    """The units of a lane, by name: one for each operation of the body."""
    out: list[tuple[str, Node]] = []
    for node in plan.process.body.nodes:
        if node.kind not in ("read", "constant", "previous"):
            operation = node.kind.partition(" ")[0]
            out.append((f"{operation}_{sum(n.kind.startswith(operation) for _, n in out)}", node))
    return out


def _units(plan: Plan) -> Iterator[Operation]:
    for name, node in units(plan):
        latency = plan.units[node.kind.partition(" ")[0]]
        yield UnitOp(
            properties={
                "sym_name": StringAttr(name), "operation": StringAttr(node.kind), "latency": _number(latency),
                "interval": _number(1),
            }
        )  # fmt: skip
    for name, node in units(plan):
        yield BindOp(properties={"unit": SymbolRefAttr(name), "process": SymbolRefAttr(process_name(plan)),
                                 "stage": _number(plan.at.start[node])})  # fmt: skip


def channels(plan: Plan) -> Iterator[ChannelOp]:
    """The channels of a plan, one for each of its sites."""
    counts: dict[str, int] = {}
    by_site = {r.site: (i, r) for i in plan.inputs for r in i.reads}
    for s in plan.sites:
        n = counts[s.array] = counts.get(s.array, -1) + 1
        if s.written is None:
            i, _ = by_site[s]
            kind, depth = "window" if i.shared else "held" if i.held else "dealt" if i.dealt else "windows", i.window
        else:
            lengths = [n for link in plan.links[s] for n in link.lengths if n is not None]
            kind = "varying" if any(link.constant is None for link in plan.links[s]) else "delay"
            depth = max(lengths, default=0)
        props: dict[str, Attribute] = {
            "sym_name": StringAttr(f"{s.array}_{n}"),
            "source": SymbolRefAttr(s.array if s.written is None else process_name(plan)),
            "target": SymbolRefAttr(process_name(plan)), "stage": _number(s.stage), "kind": StringAttr(kind),
            "depth": _number(depth), "reads": _number(reads(plan, s)),
        }  # fmt: skip
        if s.index:
            props["index"] = IndexAttr(s.index)
        yield ChannelOp(properties=props)


def reads(plan: Plan, s: Site) -> int:
    """How often a site reads in a run."""
    return int(np.count_nonzero(plan.nest.mask(s.when, plan.process.sizes)))


def _input(i: Input) -> PortOp:
    props = _port(i.host.name, "in", i.order, i.words)
    return PortOp(properties=props | {"need": _runs(i.need), "free": _runs(i.free)})


def _output(o: Output) -> PortOp:
    props = _port(o.host.name, "out", o.order, o.words)
    if len(o.lanes) > 1:
        props |= {"wait": _number(o.wait), "depth": _number(o.depth)}
    return PortOp(properties=props)


def _port(name: str, role: str, order: Order, words: int) -> dict[str, Attribute]:
    return {
        "sym_name": StringAttr(name), "role": StringAttr(role), "words": _number(words),
        "order": OrderAttr(tuple((a.field, a.part) for a in order)),
    }  # fmt: skip


def _runs(runs: Runs) -> RunsAttr:
    return RunsAttr((runs.level, runs.runs))


# -- reading ----------------------------------------------------------------------------------------------------------
def read(op: CircuitOp) -> tuple[LoopProgram, Plan]:
    """The plan that a verified operation says.  Raises UplError UPL2010 where the text says what does not follow, and
    as
    `planned`."""
    ops = list(op.body.block.ops)
    loops = read_loops(next(o for o in ops if isinstance(o, LoopProgramOp)))
    says = next(o for o in ops if isinstance(o, ProcessOp))
    process = replace(process_of(loops), span=span_of(says))
    if says.array.root_reference.data != process.name:
        raise error("UPL2010", f"the process of this program computes `{process.name}`", span_of(says))
    latencies = dict(LATENCY)
    latencies |= {o.operation.data.partition(" ")[0]: o.latency.value.data for o in ops if isinstance(o, UnitOp)}
    orders = {o.sym_name.data: tuple(Axis(*axis) for axis in o.order.data) for o in ops if isinstance(o, PortOp)}
    plan = planned(process, Fixed(_nest(process, says), orders), latencies)
    _compare(ops, _operations(plan))
    return loops, plan


def _nest(process: Process, says: ProcessOp) -> Nest:
    ranges = tuple((d.name, d.low, d.low + d.extent - 1) for d in process.dims)
    if says.over.data != ranges:
        raise error("UPL2010", f"the process `{process.name}` is over {RangesAttr(ranges)}", span_of(says))
    return Nest(
        process.dims, says.along.data, says.lanes.value.data, says.order.data, says.every.data, says.skew.value.data,
        says.slots.value.data,
    )  # fmt: skip


WORDS = {"stages": "result", "stage": "at", "index": "of"}
"""Properties whose word in the text is another one."""


def _compare(said: list[Operation], follows: list[Operation]) -> None:
    """Every operation that the plan has, as the plan has it."""
    wanted = {_key(o): o for o in follows}
    found: set[object] = set()
    for o in said:
        if isinstance(o, LoopProgramOp):
            continue
        key = _key(o)
        if key not in wanted or key in found:
            raise error("UPL2010", f"`{o.name}` of {key[1]} has no place in this circuit", span_of(o))
        found.add(key)
        for name, value in wanted[key].properties.items():
            if o.properties.get(name) != value:
                is_ = o.properties.get(name)
                what = WORDS.get(name, name)
                message = f"`{what}` of {key[1]} is {_text(is_)}: {_text(value)} follows from the schedule"
                raise error("UPL2010", message, span_of(o))
    for key, o in wanted.items():
        if key not in found:
            where = next(x for x in said if isinstance(x, ProcessOp))
            raise error("UPL2010", f"`{o.name}` of {key[1]} is missing", span_of(where))


def _key(o: Operation) -> tuple[str, str]:
    named: Mapping[str, Attribute] = o.properties
    name = named.get("sym_name", named.get("unit"))
    return o.name, f"`{name.root_reference.data if isinstance(name, SymbolRefAttr) else name.data}`"  # pyright: ignore


def _text(a: Attribute | None) -> str:
    if a is None:
        return "missing"
    return str(a.value.data) if isinstance(a, IntegerAttr) else str(a)
