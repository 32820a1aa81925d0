"""A core: matching, execution, its token queue, and the ports by which it takes tokens and gives them away."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import enum
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.execution import Execution
from upl_mlir.hw.core.layouts import (
    CONFIG_BITS,
    CORE_BITS,
    Dimensions,
    Failure,
    Memory,
    TokenKind,
    activation_layout,
    flit_layout,
    token_layout,
    watch_layout,
)
from upl_mlir.hw.core.matching import Matching
from upl_mlir.hw.core.place import Placer, place_layout
from upl_mlir.hw.core.queue import TokenQueue
from upl_mlir.hw.core.settings import settings, settings_layout
from upl_mlir.hw.core.stores.open_gathers import OpenGathers
from upl_mlir.hw.direct.matching import DirectMatching
from upl_mlir.hw.direct.mixed import MixedMatching
from upl_mlir.hw.machine import Organisation
from upl_mlir.hw.matching_unit.in_core import CamMatching


class Event(enum.IntEnum):
    """What may happen in a core in a cycle; bit n of the port `events` stands for event n."""

    TAKEN = 0
    """A token went into the matching unit."""
    FIRED = 1
    """An activation left it."""
    PROBED = 2
    """A record was looked for."""
    WALKED = 3
    """One of the indices of a token with `*` was tried."""
    ISSUED = 4
    """An instruction was issued."""
    SENT = 5
    """A token left the send engine."""
    HOST_IN = 6
    """The token that the matching unit took came from the host."""
    HOST_OUT = 7
    """A token went to the host."""
    WAIT_ACTIVATION = 8
    """The matching unit waited with a firing, as the execution unit had no room."""
    WAIT_REDUCER = 9
    """A token waited, as too many additions were under way."""
    WAIT_QUEUE = 10
    """The send engine waited for the token queue, the network or the host."""
    WAIT_HOST = 11
    """A token of the host waited."""
    WAIT_CONTEXT = 12
    """An activation waited for a free context."""
    SPILLED = 13
    """A record went from its set to the backing memory."""
    WAIT_BACKING = 14
    """A token waited for the backing memory."""
    QUEUE_SPILLED = 15
    """A token went to the backing memory of the token queue."""
    LEFT = 16
    """A token left for another core."""
    CAME = 17
    """A token came from another core."""
    WAIT_NETWORK = 18
    """A token for another core waited for the network."""
    EXECUTING = 19
    """Activations were under way."""
    MATCHING = 20
    """Something was under way in the matching unit, sums among it."""
    QUEUED = 21
    """Tokens were in the queue."""
    CLOSING = 22
    """Open gathers were ended: the list of them was gone through."""


STATES = (Event.EXECUTING, Event.MATCHING, Event.QUEUED, Event.CLOSING)
MOVES = sum(1 << e for e in Event if not e.name.startswith("WAIT") and e not in STATES)
"""The events that show that a machine goes on."""

CHECKSUM_BITS = 32
"""Bits of the sum over all ports of a unit, by which two simulations are compared."""
BUFFER = 2
"""Depth of the queues at the ports of the host."""
NETWORK_BUFFER = 16
"""Depth of those at the network: a core sends in bursts, and a token waits for those before it whatever core it is for."""
HOST_BURST = 128
"""Depth of the queue for tokens of the host where there are several cores: the host gives its tokens in order, many for one
core after the other, and the other cores need something to do meanwhile."""


def configuration_ports() -> dict[str, Any]:
    """The bus that loads a machine: `select` names a memory; wide rows come in parts of 64 bits, the highest first, all but
    the last with select 0."""
    return {
        "config_en": In(1),
        "config_select": In(Memory),
        "config_address": In(16),
        "config_data": In(CONFIG_BITS),
    }


def closing_ports(d: Dimensions) -> dict[str, Any]:
    """The ports by which open gathers are ended: see `OpenGathers`."""
    bits = d.multiplicity_bits
    return {"close": In(1), "close_rank": In(bits), "run_over": In(1), "least": Out(bits)}


def core_ports(d: Dimensions) -> dict[str, Any]:
    """The ports of a core."""
    token, flit = token_layout(d).size, flit_layout(d).size
    return {
        "host_valid": In(1),
        "host_ready": Out(1),
        "host_data": In(token),
        "network_valid": In(1),
        "network_ready": Out(1),
        "network_data": In(token),
        "sent_valid": Out(1),
        "sent_ready": In(1),
        "sent_data": Out(flit),
        "output_valid": Out(1),
        "output_ready": In(1),
        "output_data": Out(token),
        "number": In(CORE_BITS),
        **({"live": Out(d.stages)} if d.stages else {}),
        **(closing_ports(d) if d.closes else {}),
        **configuration_ports(),
        "idle": Out(1),
        "failure": Out(Failure),
        "failing_node": Out(d.node_bits),
        "failing_input": Out(d.input_bits),
        "failing_tag": Out(d.tag_bits),
        "events": Out(len(Event)),
        "fired_node": Out(d.node_bits),
        "taken_node": Out(d.node_bits),
        "watch": Out(watch_layout(d).size),
        "used": Out(range(d.most_records + 1)),
        "spilled": Out(bits_for(d.look_spilled)),
        "queued": Out(range(d.queue_front + d.queue_words + 1)),
        "checksum": Out(CHECKSUM_BITS),
        "look_set": In(d.look_bits),
        "look_way": In(d.way_bits),
        "look_spilled": In(bits_for(d.look_spilled)),
        "look_valid": Out(1),
        "look_class": Out(d.class_bits),
        "look_node": Out(d.node_bits),
        "look_tag": Out(d.tag_bits),
        "look_left": Out(d.multiplicity_bits),
        "look_present": Out(d.max_inputs),
        "look_total": Out(d.multiplicity_bits),
    }


Unit = Matching | DirectMatching | MixedMatching | CamMatching


def matching_unit(d: Dimensions) -> Unit:
    """The matching unit of the organisation."""
    match d.organisation:
        case Organisation.CAM:
            return CamMatching(d)
        case Organisation.DIRECT:
            return DirectMatching(d) if d.beside is None else MixedMatching(d)
        case Organisation.HASHED:
            return Matching(d)


class Core(wiring.Component):
    """One core. All ports depend on registers only, and go into registers.

    host_*: tokens of the host, which are taken when nothing else waits; network_*: tokens from other cores, which are
    always taken in the end; sent_*: tokens for other cores; output_*: tokens to the host, whose node is the number of
    the output. number (in): of this core. config_*: see `configuration_ports`. live (out, if there is a throttle): see
    `Throttle`. close, close_rank, run_over (in), least (out), if there are open gathers: see `OpenGathers`.
    idle: nothing is under way. failure, failing_*: why the core has stopped. events, fired_node, taken_node: see
    `Event`; watch: the same with tokens and indices. used: records in the store, spilled: those of them in backing memory.
    queued: tokens in the queue. checksum: a digest of all that went through the ports of the units, to compare simulators.
    look_*: at rest, looks at a record of the store, or of the backing memory, three cycles later.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(core_ports(d))

    def elaborate(self, platform: object) -> Module:
        """queue → matching → activations → execution → queue or network."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.matching = matching = matching_unit(d)
        m.submodules.execution = execution = Execution(d)
        m.submodules.activations = activations = SyncFIFOBuffered(width=activation_layout(d).size, depth=d.activations)
        m.submodules.queue = queue = TokenQueue(token.size, d.queue_front, d.queue_words, d.backing_cycles)
        m.submodules.hosts = hosts = SyncFIFO(width=token.size, depth=HOST_BURST if d.network else BUFFER)
        m.submodules.outputs = outputs = SyncFIFO(width=token.size, depth=BUFFER)
        placer = Placer(d) if d.network else None
        opens = self._opens(m, matching, queue) if isinstance(matching, Matching | MixedMatching) and d.closes else None
        setting = self._load(m, matching, execution, placer)
        m.d.comb += [queue.used_words.eq(setting.queue_words), queue.cycles.eq(setting.limits.backing_cycles)]
        if isinstance(matching, Matching):
            m.d.comb += matching.limits.eq(setting.limits)
        elif isinstance(matching, CamMatching):
            m.d.comb += matching.last_entry.eq(setting.limits.set_mask)
        m.d.comb += matching.roomy.eq(activations.level < d.activations // 2)

        m.d.comb += [
            activations.w_data.eq(matching.activation.payload.as_value()),
            activations.w_en.eq(matching.activation.valid),
            matching.activation.ready.eq(activations.w_rdy),
            execution.activation.payload.as_value().eq(activations.r_data),
            execution.activation.valid.eq(activations.r_rdy),
            activations.r_en.eq(execution.activation.ready),
        ]
        sent = execution.token.payload
        outward = Signal()
        inward, inward_ready = Signal(), Signal()
        m.d.comb += [
            outward.eq(sent.kind == TokenKind.HOST),
            inward.eq(execution.token.valid & ~outward),
            execution.token.ready.eq(Mux(outward, outputs.w_rdy, inward_ready)),
            outputs.w_en.eq(execution.token.valid & outward),
            outputs.w_data.eq(sent.as_value()),
            self.output_valid.eq(outputs.r_rdy),
            self.output_data.eq(outputs.r_data),
            outputs.r_en.eq(self.output_ready),
        ]
        if placer is None:
            m.d.comb += [queue.w_valid.eq(inward), queue.w_data.eq(sent.as_value()), inward_ready.eq(queue.w_ready)]
            at_rest, network = Const(1), {}
        else:
            m.submodules.placer = placer
            at_rest, network = self._connect(m, placer, queue, sent, inward, inward_ready)

        # Tokens of the program go before those that end open gathers, and these, as they come when the host has no more,
        # before those of the host: what is begun is finished before more is begun.
        ends, end = Const(0), Const(0, token.size)
        if opens is not None:
            ends, end = opens.token.valid, opens.token.payload.as_value()
        m.d.comb += [
            hosts.w_en.eq(self.host_valid),
            hosts.w_data.eq(self.host_data),
            self.host_ready.eq(hosts.w_rdy),
            matching.token.payload.eq(Mux(queue.r_valid, queue.r_data, Mux(ends, end, hosts.r_data))),
            matching.token.valid.eq(queue.r_valid | ends | (hosts.r_rdy & ~matching.crowded)),
            queue.r_ready.eq(matching.token.ready),
            hosts.r_en.eq(matching.token.ready & ~queue.r_valid & ~ends & ~matching.crowded),
        ]
        self._fail(m, matching, execution, queue, opens)
        m.d.comb += [
            self.idle.eq(
                matching.idle & execution.idle & (queue.level == 0) & (activations.level == 0) & (hosts.level == 0)
                & (outputs.level == 0) & at_rest & (Const(1) if opens is None else ~opens.busy)
            ),
            self.used.eq(matching.used),
            self.spilled.eq(matching.spilled),
            self.queued.eq(queue.level),
            self.fired_node.eq(matching.activation.payload.node),
            self.taken_node.eq(matching.taken_node),
            self.look_valid.eq(matching.looked_key.valid),
            self.look_class.eq(matching.looked_key["class"]),
            self.look_node.eq(matching.looked_key.node),
            self.look_tag.eq(matching.looked_key.tag),
            self.look_left.eq(matching.looked_state.left),
            self.look_present.eq(matching.looked_state.present),
            self.look_total.eq(matching.looked_state.total),
        ]  # fmt: skip
        m.d.sync += [  # in registers, so that nothing inside depends on these ports at once
            matching.look.eq(self.look_set), matching.look_way.eq(self.look_way),
            matching.look_spilled.eq(self.look_spilled),
        ]  # fmt: skip
        events: dict[Event, Value] = {
            Event.TAKEN: matching.taken,
            Event.FIRED: matching.activation.valid & matching.activation.ready,
            Event.PROBED: matching.probing,
            Event.WALKED: matching.walking,
            Event.ISSUED: execution.issuing,
            Event.SENT: execution.sending,
            Event.HOST_IN: hosts.r_rdy & hosts.r_en,
            Event.HOST_OUT: outputs.w_en & outputs.w_rdy,
            Event.WAIT_ACTIVATION: matching.waiting_activation,
            Event.WAIT_REDUCER: matching.waiting_reducer,
            Event.WAIT_QUEUE: execution.token.valid & ~execution.token.ready,
            Event.WAIT_HOST: hosts.r_rdy & ~hosts.r_en,
            Event.WAIT_CONTEXT: execution.full,
            Event.SPILLED: matching.spilling,
            Event.WAIT_BACKING: matching.waiting_backing,
            Event.QUEUE_SPILLED: queue.spilling,
            Event.EXECUTING: ~execution.idle | (activations.level != 0),
            Event.MATCHING: ~matching.idle,
            Event.QUEUED: queue.level != 0,
            **({} if opens is None else {Event.CLOSING: opens.busy}),
            **network,
        }
        m.d.comb += self.events.eq(Cat(*(events.get(e, Const(0, 1)) for e in Event)))
        self._watch(m, matching, execution)
        self._digest(m, matching, execution)
        return m

    def _fail(
        self, m: Module, matching: Unit, execution: Execution, queue: TokenQueue, opens: OpenGathers | None
    ) -> None:
        """Why the core has stopped, if it has."""
        waiting = data.View(token_layout(self.d), queue.w_data)
        with m.If(matching.failure != Failure.NONE):
            m.d.comb += [
                self.failure.eq(matching.failure), self.failing_node.eq(matching.failing.node),
                self.failing_input.eq(matching.failing.input), self.failing_tag.eq(matching.failing.tag),
            ]  # fmt: skip
        with m.Elif(execution.failure != Failure.NONE):
            m.d.comb += [
                self.failure.eq(execution.failure), self.failing_node.eq(execution.failing_node),
                self.failing_tag.eq(execution.failing_tag),
            ]  # fmt: skip
        with m.Elif(queue.full):
            m.d.comb += [self.failure.eq(Failure.QUEUE), self.failing_node.eq(waiting.node),
                         self.failing_input.eq(waiting.input), self.failing_tag.eq(waiting.tag)]  # fmt: skip
        if opens is not None:
            with m.Elif(opens.late):
                m.d.comb += [self.failure.eq(Failure.LATE), self.failing_node.eq(opens.which.node),
                             self.failing_input.eq(opens.which.input), self.failing_tag.eq(opens.which.tag)]  # fmt: skip

    def _opens(self, m: Module, matching: Matching | MixedMatching, queue: TokenQueue) -> OpenGathers:
        """The list of open gathers; its tokens go to the matching unit when the queue is empty."""
        m.submodules.opens = opens = OpenGathers(self.d)
        m.d.comb += [
            opens.opened.eq(matching.opened), opens.close.eq(self.close), opens.rank.eq(self.close_rank),
            opens.over.eq(self.run_over), self.least.eq(opens.least),
            opens.token.ready.eq(matching.token.ready & ~queue.r_valid),
        ]  # fmt: skip
        return opens

    def _connect(
        self, m: Module, placer: Placer, queue: TokenQueue, sent: Value, inward: Value, inward_ready: Value
    ) -> tuple[Value, dict[Event, Value]]:
        """Tokens for this core go to the queue, taking turns with those from the network; the others leave. The values:
        nothing is under way here; and what happens."""
        m.submodules.departures = departures = SyncFIFO(width=flit_layout(self.d).size, depth=NETWORK_BUFFER)
        m.submodules.arrivals = arrivals = SyncFIFO(width=token_layout(self.d).size, depth=NETWORK_BUFFER)
        flit = placer.flit
        own, away, turn, chosen = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            placer.token.valid.eq(inward),
            placer.token.payload.eq(sent),
            inward_ready.eq(placer.token.ready),
            own.eq(flit.valid & (flit.payload.home == self.number)),
            away.eq(flit.valid & (flit.payload.home != self.number)),
            chosen.eq(own & (turn | ~arrivals.r_rdy)),  # the token for this core, not the one from the network
            queue.w_valid.eq(own | arrivals.r_rdy),
            queue.w_data.eq(Mux(chosen, flit.payload.token.as_value(), arrivals.r_data)),
            arrivals.r_en.eq(queue.w_ready & ~chosen),
            flit.ready.eq(Mux(away, departures.w_rdy, queue.w_ready & chosen)),
            departures.w_en.eq(away),
            departures.w_data.eq(flit.payload.as_value()),
            self.sent_valid.eq(departures.r_rdy),
            self.sent_data.eq(departures.r_data),
            departures.r_en.eq(self.sent_ready),
            arrivals.w_en.eq(self.network_valid),
            arrivals.w_data.eq(self.network_data),
            self.network_ready.eq(arrivals.w_rdy),
        ]
        with m.If(own & arrivals.r_rdy & queue.w_ready):
            m.d.sync += turn.eq(~turn)
        events: dict[Event, Value] = {
            Event.LEFT: away & departures.w_rdy,
            Event.CAME: arrivals.r_rdy & arrivals.r_en,
            Event.WAIT_NETWORK: away & ~departures.w_rdy,
        }
        return placer.idle & (departures.level == 0) & (arrivals.level == 0), events

    def _watch(self, m: Module, matching: Unit, execution: Execution) -> None:
        watch = data.View(watch_layout(self.d), self.watch)
        m.d.comb += [
            watch.taken.valid.eq(matching.taken),
            watch.taken.token.eq(matching.token.payload),
            watch.fired.valid.eq(matching.activation.valid & matching.activation.ready),
            watch.fired.node.eq(matching.activation.payload.node),
            watch.fired.tag.eq(matching.activation.payload.tag),
            watch.sent.valid.eq(execution.sending),
            watch.sent.token.eq(execution.token.payload),
            watch.added.eq(matching.added),
        ]
        if isinstance(matching, MixedMatching):
            m.d.comb += watch.added_beside.eq(matching.added_beside)

    def _load(
        self, m: Module, matching: Unit, execution: Execution, placer: Placer | None
    ) -> data.View:
        """The configuration bus: a staging register, from which a row goes into the selected memory.  The settings."""
        layout = settings_layout(self.d)
        setting: data.View = layout.const(settings(self.d))
        targets = {
            Memory.NODE: (matching.node_en, matching.node_address, matching.node_data),
            Memory.ENTRY: (execution.entry_en, execution.entry_address, execution.entry_data),
            Memory.CODE: (execution.code_en, execution.code_address, execution.code_data),
            Memory.SEND: (execution.send_en, execution.send_address, execution.send_data),
            Memory.TABLE: (execution.table_en, execution.table_address, execution.table_data),
        }
        if isinstance(matching, DirectMatching | MixedMatching):
            targets[Memory.RANK] = (matching.rank_en, matching.rank_address, matching.rank_data)
        if isinstance(matching, Matching | MixedMatching):
            targets[Memory.WALK] = (matching.walk_en, matching.walk_address, matching.walk_data)
        if placer is not None:
            targets[Memory.PLACE] = (placer.place_en, placer.place_address, placer.place_data)
        if self.d.stages:
            self._stage(m, matching, placer, targets)
        if self.d.adjustable:
            setting, loads, loaded = Signal(layout, init=settings(self.d)), Signal(), Signal(layout)
            targets[Memory.SETTING] = (loads, Signal(), loaded)
            with m.If(loads):
                m.d.sync += setting.eq(loaded)
        row = configuration_row(m, self, max(len(Value.cast(written)) for _, _, written in targets.values()))
        for select, (enable, address, written) in targets.items():
            m.d.comb += [
                enable.eq(self.config_en & (self.config_select == select)),
                address.eq(self.config_address),
                (written if select is Memory.TABLE else written.as_value()).eq(row),
            ]
        return setting

    def _stage(self, m: Module, matching: Unit, placer: Placer | None, targets: dict[Memory, Any]) -> None:
        """The stages of which records wait."""
        assert isinstance(matching, Matching | CamMatching), "`require_built` refuses the others"
        placed = Signal(place_layout(self.d)) if placer is None else placer.place_data
        enable, address, _ = targets.setdefault(Memory.PLACE, (Signal(), Signal(self.d.node_bits), placed))
        m.d.comb += [
            self.live.eq(matching.live), matching.stage_en.eq(enable), matching.stage_address.eq(address),
            matching.stage_data.eq(placed.stage),
        ]  # fmt: skip

    def _digest(self, m: Module, matching: Unit, execution: Execution) -> None:
        """Turn the checksum by one place and mix in what went through the ports in the cycle before; it stays while idle."""
        mixed: Value = Const(0, CHECKSUM_BITS)
        for place, (valid, what) in enumerate(
            (
                (matching.taken, matching.token.payload.as_value()),
                (matching.activation.valid & matching.activation.ready, matching.activation.payload.as_value()),
                (execution.sending, execution.token.payload.as_value()),
                (Const(1, 1), Cat(self.events, self.used, self.queued)),
            )
        ):
            for first in range(0, len(what), CHECKSUM_BITS):
                piece = what[first : first + CHECKSUM_BITS]
                padded = Cat(piece, Const(0, CHECKSUM_BITS - len(piece))) if len(piece) < CHECKSUM_BITS else piece
                mixed = mixed ^ Mux(valid, padded.rotate_left((first // 7 + 5 * place) % CHECKSUM_BITS), 0)
        before = Signal(CHECKSUM_BITS)
        with m.If(~self.idle):
            m.d.sync += [before.eq(mixed), self.checksum.eq((self.checksum.rotate_left(1) ^ before) + 1)]


def configuration_row(m: Module, ports: Core | wiring.Component, bits: int) -> Value:
    """The row that is being written by the configuration bus of a component, of at most so many bits."""
    parts = -(-bits // CONFIG_BITS)
    staged = Signal(parts * CONFIG_BITS)
    row = Signal(parts * CONFIG_BITS)
    m.d.comb += row.eq(Cat(ports.config_data, staged))
    with m.If(ports.config_en):
        m.d.sync += staged.eq(row)
    return row
