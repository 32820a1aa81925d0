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
from upl_mlir.passes.circuit.body import Node
from upl_mlir.passes.circuit.channels.inner import Stream
from upl_mlir.passes.circuit.channels.inputs import Input, Runs
from upl_mlir.passes.circuit.channels.orders import Axis, Order
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.nest import Nest
from upl_mlir.passes.circuit.plan import Fixed, Part, Plan, at_sites, cycles, planned
from upl_mlir.passes.circuit.process import Process, network_of
from upl_mlir.passes.circuit.share import Shared, units_of
from upl_mlir.passes.circuit.stages import Site
from upl_mlir.passes.loops.ir import read as read_loops
from upl_mlir.passes.loops.ir import write as write_loops
from upl_mlir.passes.loops.program import LoopProgram


def write(loops: LoopProgram, plan: Plan) -> CircuitOp:
    """The operation that says a plan."""
    return CircuitOp(loops.name, [write_loops(loops), *_operations(plan)])


def _operations(plan: Plan) -> list[Operation]:
    """Processes, units, channels, streams, ports."""
    processes = [_process(plan, p) for p in plan.parts]
    streams = [_output(s.sent, "inner", stream_name(plan, s)) for s in plan.streams]
    outputs = [_output(o, "out", o.name) for o in plan.outputs]
    return [*processes, *_units(plan), *channels(plan), *streams, *(_input(plan, i) for i in plan.inputs), *outputs]


def process_name(part: Part) -> str:
    """What a process is called: ports and arrays have names of their own."""
    return f"{part.process.name}.process"


def stream_name(plan: Plan, s: Stream) -> str:
    """What a stream between processes is called."""
    return f"{s.sent.name}.to.{plan.parts[s.feed.part].process.name}"


def _number(n: int) -> IntegerAttr:
    return IntegerAttr(n, i64)


def _process(plan: Plan, part: Part) -> ProcessOp:
    nest = part.nest
    props: dict[str, Attribute] = {
        "sym_name": StringAttr(process_name(part)), "array": SymbolRefAttr(part.process.name),
        "over": RangesAttr(tuple((d.name, d.low, d.low + d.extent - 1) for d in nest.dims)),
        "lanes": _number(nest.lanes), "along": StringAttr(nest.along), "order": NamesAttr(nest.order),
        "every": NumbersAttr(nest.every), "skew": _number(nest.skew), "slots": _number(nest.slots),
        "stages": _number(part.at.result), "cycles": _number(cycles(plan)),
    }  # fmt: skip
    if nest.down:
        props["down"] = NamesAttr(nest.down)
    if nest.start:
        props["start"] = _number(nest.start)
    return ProcessOp(properties=props)


def units(plan: Plan) -> list[tuple[str, Part, Node]]:
    """What operations use which unit of a lane, by name."""
    return [(u.name, plan.parts[x.part], x.node) for u in units_of(plan.parts, plan.shared) for x in u.uses]


def _units(plan: Plan) -> Iterator[Operation]:
    for unit in units_of(plan.parts, plan.shared):
        latency = plan.units[unit.kind.partition(" ")[0]]
        yield UnitOp(
            properties={
                "sym_name": StringAttr(unit.name), "operation": StringAttr(unit.kind), "latency": _number(latency),
                "interval": _number(1),
            }
        )  # fmt: skip
    for name, part, node in units(plan):
        yield BindOp(properties={"unit": SymbolRefAttr(name), "process": SymbolRefAttr(process_name(part)),
                                 "stage": _number(part.at.start[node])})  # fmt: skip


def channels(plan: Plan) -> Iterator[ChannelOp]:
    """The channels of a plan, one for each of its sites."""
    counts: dict[str, int] = {}
    by_array = {p.process.name: process_name(p) for p in plan.parts}
    for part, s in at_sites(plan):
        n = counts[s.array] = counts.get(s.array, -1) + 1
        kind, depth = channel(plan, part, s)
        props: dict[str, Attribute] = {
            "sym_name": StringAttr(f"{s.array}_{n}"), "source": SymbolRefAttr(by_array.get(s.array, s.array)),
            "target": SymbolRefAttr(process_name(part)), "stage": _number(s.stage), "kind": StringAttr(kind),
            "depth": _number(depth), "reads": _number(reads(part, s)),
        }  # fmt: skip
        if s.index:
            props["index"] = IndexAttr(s.index)
        yield ChannelOp(properties=props)


def channel(plan: Plan, part: Part, s: Site) -> tuple[str, int]:
    """The kind of a site's channel, and its depth."""
    if s in part.links:
        lengths = [n for link in part.links[s] for n in link.lengths if n is not None]
        return "varying" if any(k.constant is None for k in part.links[s]) else "delay", max(lengths, default=0)
    if s in part.buffers:
        return part.buffers[s].kind, part.buffers[s].depth
    feeds = [(f, i.held, i.places(f)) for i in plan.inputs for f in i.feeds]
    feeds += [(x.feed, False, x.window) for x in plan.streams]
    f, held, window = next(x for x in feeds if any(r.site is s for r in x[0].reads))
    return "window" if f.shared else "held" if held else "dealt" if f.dealt else "windows", window


def reads(part: Part, s: Site) -> int:
    """How often a site reads in a run."""
    return int(np.count_nonzero(part.mask(s.when)))


def _input(plan: Plan, i: Input) -> PortOp:
    props = _port(i.name, "in", i.order, i.words)
    if len(plan.parts) > 1:
        props["by"] = SymbolRefAttr(process_name(plan.parts[i.by]))
    if i.until != i.by:
        props["until"] = SymbolRefAttr(process_name(plan.parts[i.until]))
    return PortOp(properties=props | {"need": _runs(i.need), "free": _runs(i.free)})


def _output(o: Output, role: str, name: str) -> PortOp:
    props = _port(name, role, o.order, o.words)
    if len(o.lanes) > 1:
        props |= {"wait": _number(o.wait), "depth": _number(o.depth)}
        props |= {"pace": _number(o.pace)} if o.pace > o.when.shape[-1] else {}
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
    """The plan that a verified operation says.  Raises UplError UPL2010 where the text says what does not follow, and as
    `planned`."""
    ops = list(op.body.block.ops)
    loops = read_loops(next(o for o in ops if isinstance(o, LoopProgramOp)))
    net = network_of(loops)
    said = {o.array.root_reference.data: o for o in ops if isinstance(o, ProcessOp)}
    names = {p.name for p in net.processes}
    for array, o in said.items():
        if array not in names:
            expected = ", ".join(f"`{p.name}`" for p in net.processes)
            raise error("UPL2010", f"the processes of this program compute {expected}, not `{array}`", span_of(o))
    for p in net.processes:
        if p.name not in said:
            raise error("UPL2010", f"the process that computes `{p.name}` is missing", span_of(op))
    net = replace(net, groups=tuple(tuple(replace(p, span=span_of(said[p.name])) for p in g) for g in net.groups))
    latencies = dict(net.numbers.latency)
    latencies |= {o.operation.data.partition(" ")[0]: o.latency.value.data for o in ops if isinstance(o, UnitOp)}
    orders = {o.sym_name.data: tuple(Axis(*axis) for axis in o.order.data) for o in ops if isinstance(o, PortOp)}
    nests = {p.name: _nest(p, said[p.name]) for p in net.processes}
    plan = planned(net, Fixed(nests, orders, _sharers([o for o in ops if isinstance(o, BindOp)], said)), latencies)
    _compare(ops, _operations(plan))
    return loops, plan


def _nest(process: Process, says: ProcessOp) -> Nest:
    ranges = tuple((d.name, d.low, d.low + d.extent - 1) for d in process.dims)
    if says.over.data != ranges:
        raise error("UPL2010", f"the process `{process.name}` is over {RangesAttr(ranges)}", span_of(says))
    return Nest(
        process.dims, says.along.data, says.lanes.value.data, says.order.data, says.every.data, says.skew.value.data,
        says.slots.value.data, 0 if says.start is None else says.start.value.data,
        () if says.down is None else says.down.data,
    )  # fmt: skip


def _sharers(binds: list[BindOp], said: Mapping[str, ProcessOp]) -> Shared:
    """The arrays of the processes that use a unit in turn with others; those that have one in common are in one set."""
    arrays = {o.sym_name.data: array for array, o in said.items()}
    users: dict[str, set[str]] = {}
    for b in binds:
        if (array := arrays.get(b.process.root_reference.data)) is not None:
            users.setdefault(b.unit.root_reference.data, set()).add(array)
    out: list[frozenset[str]] = []
    for names in (frozenset(found) for found in users.values() if len(found) > 1):
        apart = [g for g in out if not g & names]
        out = [*apart, names.union(*(g for g in out if g & names))]
    return tuple(out)


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
    if isinstance(o, BindOp):
        return o.name, f"`{o.unit.root_reference.data}` to `{o.process.root_reference.data}`"
    name: Attribute = o.properties["sym_name"]
    assert isinstance(name, StringAttr)
    return o.name, f"`{name.data}`"


def _text(a: Attribute | None) -> str:
    if a is None:
        return "missing"
    return str(a.value.data) if isinstance(a, IntegerAttr) else str(a)
