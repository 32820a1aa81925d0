"""Runs a program on a machine whose every unit is RTL: loads it, feeds the host's tokens, reads what came out.

The machine is compiled where a C++ compiler is there, else it runs on Amaranth's simulator; both give the same cycles.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from upl_mlir.diagnostics import UplError, error
from upl_mlir.engines.names import Simulator
from upl_mlir.engines.rtl.leftovers import direct_leftovers
from upl_mlir.engines.rtl.observe.statistics import stats
from upl_mlir.engines.rtl.observe.stranded import Leftover, place, stranded_error
from upl_mlir.engines.rtl.observe.watch import Recorded, events
from upl_mlir.engines.rtl.prepare import adjustable_system, setting_writes
from upl_mlir.engines.rtl.trees import check_run
from upl_mlir.hw.core.code.encode import Encoded, encode, input_kind
from upl_mlir.hw.core.core import Event
from upl_mlir.hw.core.layouts import Dimensions, Failure, Mode, TokenKind
from upl_mlir.hw.direct.home import ONE_CORE, Spread
from upl_mlir.hw.direct.lanes import aligned
from upl_mlir.hw.direct.late import LATE_FRONT
from upl_mlir.hw.execute import from_bits, is_value, to_bits
from upl_mlir.hw.image import IndexField, ProgramImage, pack, unpack, with_open_gathers
from upl_mlir.hw.machine import Machine, Organisation, require_built
from upl_mlir.hw.records import fit
from upl_mlir.hw.results import HostToken, OutputElement, SimulationResult
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.sim.compiled import CompiledSimulation, available
from upl_mlir.hw.sim.interface import TOKEN, CoreReport, Ended, Record, Report, Simulation, Tokens
from upl_mlir.hw.sim.verilator import verilator_library
from upl_mlir.hw.stages import NO_STREAM, Stream, by_stage, name_of, throttled_stream
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.placement import placement_writes


def run_machine(
    image: ProgramImage,
    machine: Machine,
    tokens: Sequence[HostToken],
    *,
    simulator: Simulator | None = None,
    max_cycles: int = 10_000_000,
    vcd: str | Path | None = None,
    audit: bool = False,
    watch: Callable[[Recorded], None] | None = None,
    simulation: AmaranthSimulation | None = None,
) -> SimulationResult:
    """Run a program to its end.

    `tokens` are those of the host, sent in their order, one a cycle at each port, whenever no token of the program itself
    waits. `simulator`: which one; None takes the compiled one where it can be built and no waveforms are asked for.
    `vcd`: a file for the waveforms of all signals. `audit`: record firings and additions, and compare the outputs bit for
    bit with their re-execution (`trees.py`; UPL1709). `watch` is given what the cores did, also of a run that fails.
    `simulation`: one of this machine, to be used once more.

    Raises `UplError`: UPL1701 tokens are stranded; UPL1702 a store or queue is full; UPL1703 a fault of the machine (nothing
    moves any more); UPL1704 an activation whose index is open; UPL1705 summands that disagree on their number, or too
    many of them; UPL1706 arithmetic that has no 32-bit result; UPL1707 an output element came twice; UPL1708 not finished
    after `max_cycles`; UPL1710 to UPL1714 the program or a token does not fit the machine; UPL1716 parity; UPL1723 the
    machine is not built yet.
    """
    machine = with_open_gathers(machine, image)
    require_built(machine)
    image.validate(machine)
    wanted = System.of(machine)
    if simulation is not None:
        simulator = "amaranth"
    elif simulator is None:
        simulator = "compiled" if vcd is None and available() else "amaranth"
    # One library serves many machines: it has room for more, and is set to what is wanted.
    system = adjustable_system(wanted) if simulator == "compiled" else wanted
    d = system.core
    stream, window = throttled_stream(image, machine, tokens), machine.host.window
    found = None
    if machine.host.fit:
        found = fit(image, machine, _encoded(image, d, tokens, Spread.of(machine))[1], tokens)
        stream, window = found.stream, found.window
    image, program, words = _encoded(image, d, tokens, Spread.of(machine), stream)
    runs = simulation or _simulation(system, simulator, vcd)
    settings = setting_writes(d, wanted.core)
    runs.configure([*settings, *program.writes, *placement_writes(image, machine, d, program, stream, window)])
    started = time.perf_counter()
    report = runs.run(words, max_cycles, watch=audit or watch is not None)
    seconds = time.perf_counter() - started
    seen = {} if report.seen is None else events(report.seen, d)
    if watch is not None:
        watch(Recorded(image, program, tokens, d, seen))
    _check(image, machine, program, report, runs, d)
    outputs = list(_outputs(image, program, report))
    if audit:
        check_run(image, program, tokens, outputs, seen)
    came = Counter(element.output for element in outputs)
    elements = {output.name: came[output.name] for output in image.outputs}
    figures = replace(stats(image, machine, report, seconds, simulator), elements=elements)
    if stream or found is not None:
        throttle: dict[str, Any] = {"along": name_of(image, stream) if stream else "", "window": window}
        throttle |= {} if found is None else {"joins": found.most.joins, "gathers": found.most.gathers}
        figures = replace(figures, throttle=throttle)
    if program.ranks is not None:
        store = {**program.ranks.report(image), "put_off": report.count(Event.WAIT_BACKING)}
        figures = replace(figures, store=store)
    return SimulationResult(outputs, figures)


def _simulation(system: System, simulator: Simulator, vcd: str | Path | None) -> Simulation:
    """A machine on a simulator.  Raises UplError (UPL1737, UPL1804)."""
    match simulator:
        case "amaranth":
            return AmaranthSimulation(system, vcd)
        case "compiled":
            return CompiledSimulation(system)
        case "verilator":  # in one thread: its models share a context
            return CompiledSimulation(system, threads=1, library=verilator_library(system))


_KEPT = 8
"""Programs in words that are remembered. Chosen, not measured."""
_Key = tuple[int, int, Dimensions, Spread, frozenset[tuple[str, int]]]
_last: OrderedDict[_Key, tuple[object, tuple[ProgramImage, Encoded, Tokens]]] = OrderedDict()
"""Programs in words, of the last runs: a sweep runs the same one on many machines of one make."""


def _encoded(
    image: ProgramImage, d: Dimensions, tokens: Sequence[HostToken], spread: Spread, stream: Stream = NO_STREAM
) -> tuple[ProgramImage, Encoded, Tokens]:
    """The program and its tokens in words, and the image that they are of; `spread` matters to stores without search.
    `stream`: the field in whose order the tokens are sent, if any."""
    tokens = tuple(tokens)  # the same object if it is one
    spread = spread if d.organisation is Organisation.DIRECT else ONE_CORE
    key = (id(image), id(tokens), d, spread, frozenset(stream.items()))
    if key not in _last:
        whole = aligned(image, d.tag_bits) if d.organisation is Organisation.DIRECT else image
        program = encode(whole, d, [(t.node, t.input, t.index, t.multiplicity) for t in tokens], spread=spread)
        # What the key names is kept with it, so that no other object gets its identity.
        _last[key] = (image, tokens), (program.image, program, _tokens(program.image, d, program, tokens, stream))
        if len(_last) > _KEPT:
            _last.popitem(last=False)
    _last.move_to_end(key)
    return _last[key][1]


def _tokens(
    image: ProgramImage, d: Dimensions, program: Encoded, tokens: Sequence[HostToken], stream: Stream
) -> Tokens:
    """The tokens of the host as the machine takes them, stage by stage, those of gathers without summands first."""
    out = np.zeros(len(image.boot) + len(tokens), TOKEN)
    for n, boot in enumerate(image.boot):
        node = image.nodes[boot.node]
        tag, _ = pack(node.fields, boot.index, f"a gather of {place(node, boot.input, boot.index)}")
        value = to_bits(boot.value, node.inputs[boot.input].type)
        kind, times = (TokenKind.COMPLETE, 1) if boot.rank is None else (TokenKind.PRESENT, boot.rank + 1)
        if times >= d.unbounded:
            message = f"a gather of {place(node, boot.input, boot.index)} has rank {boot.rank}; at most {d.unbounded - 2}"
            raise error("UPL1712", message, help="set token.multiplicity_bits higher in the machine description")
        out[n] = (tag, int(kind), boot.node, boot.input, times, value, 0)
    for n, token in enumerate(tokens, len(image.boot)):
        node = image.nodes[token.node]
        what = f"a token to {place(node, token.input, token.index)}"
        kind = node.inputs[token.input].type
        if not is_value(token.value, kind):
            raise error("UPL1712", f"{what} has the value {token.value}, which is no {kind.value}")
        if token.multiplicity is not None and not 1 <= token.multiplicity < d.unbounded:
            limit = f"1..{d.unbounded - 1}"
            raise error("UPL1712", f"{what} has multiplicity {token.multiplicity}; the machine has {limit}")
        tag, wild = pack(node.fields, token.index, what)
        if d.organisation is Organisation.CAM:
            tag |= wild << d.index_bits
        times = d.unbounded if token.multiplicity is None else token.multiplicity
        what_kind = input_kind(node.inputs[token.input], present=token.present)
        out[n] = (tag, int(what_kind), token.node, token.input, times, to_bits(token.value, kind), 0)
    stream = stream if program.ranks is None else program.ranks.stream
    return out[by_stage(image, stream, tokens)] if stream else out


def _outputs(image: ProgramImage, program: Encoded, report: Report) -> list[OutputElement]:
    rows = cast("list[tuple[int, ...]]", report.outputs[["tag", "node", "value"]].tolist())
    seen: set[tuple[int, int]] = set()
    out: list[OutputElement] = []
    for tag, number, value in rows:
        output = image.outputs[number]
        index = _index(program.outputs[number], tag)
        if (number, tag) in seen:
            raise error("UPL1707", f"output {output.name}<{','.join(map(str, index))}> came twice")
        seen.add((number, tag))
        out.append(OutputElement(output.name, index, from_bits(value, output.type)))
    return out


def _index(fields: Sequence[IndexField], tag: int) -> tuple[int, ...]:
    return tuple(i for i in unpack(fields, tag) if i is not None)


# ------------------------------------------------------------------------------------------------------------- errors


def _check(
    image: ProgramImage, machine: Machine, program: Encoded, report: Report, simulation: Simulation, d: Dimensions
) -> None:
    """Raise what a run ended with, if not with everything done."""
    match report.ended:
        case Ended.FAILURE:
            failed = report.failed
            assert failed is not None
            raise _failure(image, machine, program, failed)
        case Ended.STUCK:
            message = "the machine is not at rest, but nothing has moved for a long time"
            raise error("UPL1703", message, notes=["this is a fault of the machine, not of the program"])
        case Ended.IDLE:
            records: list[tuple[int, int, int, Record]] = []  # core, set, way
            for core, found in enumerate(report.cores):
                if not found.left:
                    continue
                records += [(core, s, w, simulation.look(core, s, w)) for s in range(d.look_sets) for w in range(d.ways)]
                if found.spilled:
                    spilled = (simulation.look(core, 0, 0, n) for n in range(1, d.look_spilled + 1))
                    records += [(core, d.look_sets, 0, record) for record in spilled]
            there = [record for record in records if record[3].valid]
            places = 0 if program.ranks is None else d.sets  # records beyond say themselves what they are
            leftovers = [left for _, s, _, r in there if s >= places for left in _leftovers(image, program, r, d)]
            if program.ranks is not None:
                own = (record for record in there if record[1] < places)
                leftovers += direct_leftovers(image, program.roles, program.ranks, own, d)
            stranded = stranded_error(image, leftovers)
            if stranded is not None:
                raise stranded
        case _:
            raise error("UPL1708", f"the program has not finished after {report.cycles} cycles")


def _leftovers(image: ProgramImage, program: Encoded, record: Record, d: Dimensions) -> list[Leftover]:
    """The tokens, or the gather, that a record of the store holds."""
    known = record.node < len(image.nodes)
    if not known or (record.kind != d.max_inputs and record.kind >= len(image.nodes[record.node].inputs)):
        raise error("UPL1703", f"the store holds a record of node {record.node}, input {record.kind}, which there is not")
    node = image.nodes[record.node]
    if record.kind == d.max_inputs:
        index = unpack(node.fields, record.tag)
        present = [n for n in range(len(node.inputs)) if record.present >> n & 1]
        return [Leftover(record.node, n, index, 1) for n in present]
    if program.modes[record.node][record.kind] is Mode.COUNTED:
        if d.organisation is Organisation.CAM:
            wild = record.tag >> d.index_bits
        else:
            wild = sum(1 << f for f in program.patterns[record.node, record.kind].wild)
        left = None if record.left == d.unbounded else record.left
        return [Leftover(record.node, record.kind, unpack(node.fields, record.tag, wild), left)]
    return [Leftover(record.node, record.kind, unpack(node.fields, record.tag), record.left, record.total)]


_REASONS = {
    Failure.OVERFLOW: "a result overflows a 32-bit integer",
    Failure.DIVISION: "integer division by 0",
    Failure.CONVERSION: "a real that has no 32-bit integer",
    Failure.TABLE: "an index that is outside of its array",
    Failure.MULTIPLICITY: "sends a token with a multiplicity that is below 1 or too large",
}


def _failure(image: ProgramImage, machine: Machine, program: Encoded, report: CoreReport) -> UplError:
    """The error that a core stopped with."""
    d = Dimensions.of(machine)
    why = report.failure
    if report.failing_node >= len(image.nodes):
        return error("UPL1703", f"the machine was given a token for node {report.failing_node}, which there is not")
    node = image.nodes[report.failing_node]
    index = unpack(node.fields, report.failing_tag)
    activation = f"{node.name}<{','.join(map(str, index))}>"
    if why in _REASONS:
        return error("UPL1706", f"{activation}: {_REASONS[why]}", node.span)
    if why is Failure.INDEX:
        message = f"{activation}: sends a token to an index that does not fit in its target's bits"
        return error("UPL1712", message, node.span)
    if report.failing_input >= len(node.inputs):
        return error("UPL1703", f"the machine was given a token for input {report.failing_input} of {activation}")
    where = place(node, report.failing_input, _open(program, d, report, index))

    def full(message: str, *keys: str) -> UplError:
        written = next(filter(None, map(machine.place, keys)), None)
        return error("UPL1702", message, written, help=f"set {' or '.join(keys)} higher in the machine description")

    match why:
        case Failure.FULL if machine.matching.organisation is Organisation.CAM:
            entries = machine.matching.entries
            message = f"the matching store is full: all {entries} entries are in use when {where} arrives"
            return full(message, "matching.capacity")
        case Failure.OPEN:
            return error("UPL1704", f"an activation has no complete index when {where} arrives", node.span)
        case Failure.FULL if program.ranks is not None and program.ranks.nodes[report.failing_node] is None:
            room = f"{machine.matching.beside} records and {d.late_words} of backing memory"
            message = f"the store beside the direct one is full when {where} arrives: {room}"
            return full(message, "matching.beside", "matching.spill_capacity")
        case Failure.FULL if d.organisation is Organisation.DIRECT:
            message = f"{where} is put off, as its place is still in use, and there is no room for more such tokens"
            room = f"{LATE_FRONT} and {d.late_words} of backing memory"
            return full(f"{message}: {room}", "matching.stages", "matching.spill_capacity")
        case Failure.FULL:
            room = f"{machine.matching.entries} entries and {machine.matching.spill_capacity} of backing memory"
            message = f"the matching store is full when {where} arrives: {room}, {report.used_peak} in use at most"
            return full(message, "matching.spill_capacity", "matching.capacity")
        case Failure.QUEUE:
            room = f"{d.queue_front} and {d.queue_words} of backing memory"
            return full(f"the token queue is full when a token for {where} comes: {room}", "matching.queue_capacity")
        case Failure.PARITY:
            message = f"a record of the store was not as it was written when {where} arrived"
            return error("UPL1716", message, notes=["this is a fault of the machine, not of the program"])
        case Failure.COUNT:
            message = f"{where}: a summand that states another number of summands than the first one, or is one"
            return error("UPL1705", f"{message} more than stated", node.span)
        case Failure.LATE:
            message = f"a summand for {where} came after that open gather had ended: its rank is wrong"
            return error("UPL1705", message, node.span)
        case Failure.DUPLICATE:
            return error(
                "UPL1714", f"two tokens wait at {where}, where the hashed store keeps one", node.span,
                help='use [matching] organisation = "cam", which keeps any number',
            )  # fmt: skip
        case _:
            return error("UPL1703", f"the matching unit was given a token that it cannot take: {where}")


def _open(program: Encoded, d: Dimensions, report: CoreReport, index: Sequence[int | None]) -> list[int | None]:
    """The index of the failing token with its `*` fields open."""
    pattern = program.patterns.get((report.failing_node, report.failing_input))
    wild = pattern.wild if pattern is not None else frozenset[int]()
    if pattern is not None and pattern.others:
        said = report.failing_tag >> d.index_bits
        wild = frozenset(n for n in range(len(index)) if said >> n & 1)
    return [None if n in wild else value for n, value in enumerate(index)]
