"""A whole core, and the machine of one core with its ports for the host."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import enum

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.execution import Execution
from upl_mlir.hw.core.layouts import (
    CONFIG_BITS,
    Dimensions,
    Failure,
    Kind,
    Memory,
    activation_layout,
    entry_layout,
    instruction_layout,
    node_layout,
    send_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.matching import Matching


class Event(enum.IntEnum):
    """What may happen in a cycle; bit n of the port `events` counts event n."""

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
    """A token came from the host."""
    HOST_OUT = 7
    """A token went to the host."""
    WAIT_ACTIVATION = 8
    """The matching unit waited with a firing, as the execution unit had no room."""
    WAIT_REDUCER = 9
    """A token waited, as too many additions were under way."""
    WAIT_QUEUE = 10
    """The send engine waited for the token queue or the host."""
    WAIT_HOST = 11
    """The host waited with a token."""
    WAIT_CONTEXT = 12
    """An activation waited for a free context."""
    SPILLED = 13
    """A record went from its set to the backing memory."""
    WAIT_BACKING = 14
    """A token waited for the backing memory."""


MOVES = sum(1 << e for e in Event if not e.name.startswith("WAIT"))
"""The events that show that a machine goes on."""

CHECKSUM_BITS = 32


class Machine(wiring.Component):
    """One core with its host.

    token_* with token_valid, token_ready: tokens in; output_* with output_valid, output_ready: tokens out, whose node is
    the number of the output. config_en, config_select (a `Memory`), config_address, config_data: loading; wide rows come
    in parts of 64 bits, the highest first, all but the last with select 0.
    idle: nothing is under way. failure, failing_*: why the machine has stopped. events, fired_node, taken_node: see
    `Event`. used: records in the store, spilled: those of them in backing memory. queued: tokens in the queue. checksum:
    a digest of all that went through the ports of the units, to compare simulators.
    look_*: at rest, looks at a record of the store, or of the backing memory, two cycles later.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "token_valid": In(1),
                "token_ready": Out(1),
                "token_kind": In(2),
                "token_node": In(d.node_bits),
                "token_input": In(d.input_bits),
                "token_tag": In(d.tag_bits),
                "token_multiplicity": In(d.multiplicity_bits),
                "token_value": In(32),
                "output_valid": Out(1),
                "output_ready": In(1),
                "output_node": Out(d.node_bits),
                "output_tag": Out(d.tag_bits),
                "output_value": Out(32),
                "config_en": In(1),
                "config_select": In(Memory),
                "config_address": In(16),
                "config_data": In(CONFIG_BITS),
                "idle": Out(1),
                "failure": Out(Failure),
                "failing_node": Out(d.node_bits),
                "failing_input": Out(d.input_bits),
                "failing_tag": Out(d.tag_bits),
                "events": Out(len(Event)),
                "fired_node": Out(d.node_bits),
                "taken_node": Out(d.node_bits),
                "used": Out(range(d.sets * d.ways + d.spill_words + 2)),
                "spilled": Out(range(d.spill_words + 2)),
                "queued": Out(range(d.queue_words + 1)),
                "checksum": Out(CHECKSUM_BITS),
                "look_set": In(d.set_bits),
                "look_way": In(d.way_bits),
                "look_spilled": In(range(d.spill_words + 1)),
                "look_valid": Out(1),
                "look_class": Out(d.class_bits),
                "look_node": Out(d.node_bits),
                "look_tag": Out(d.tag_bits),
                "look_left": Out(d.multiplicity_bits),
                "look_present": Out(d.max_inputs),
                "look_total": Out(d.multiplicity_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """matching → activations → execution → token queue → matching."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.matching = matching = Matching(d)
        m.submodules.execution = execution = Execution(d)
        m.submodules.activations = activations = SyncFIFOBuffered(width=activation_layout(d).size, depth=4)
        m.submodules.queue = queue = SyncFIFOBuffered(width=token.size, depth=d.queue_words)
        self._load(m, matching, execution)

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
        m.d.comb += [
            outward.eq(sent.kind == Kind.HOST),
            queue.w_data.eq(sent.as_value()),
            queue.w_en.eq(execution.token.valid & ~outward),
            execution.token.ready.eq(Mux(outward, self.output_ready, queue.w_rdy)),
            self.output_valid.eq(execution.token.valid & outward),
            self.output_node.eq(sent.node),
            self.output_tag.eq(sent.tag),
            self.output_value.eq(sent.value),
        ]
        # Tokens of the program go before those of the host: what is begun is finished before more is begun.
        given = Signal(token)
        m.d.comb += [
            given.kind.eq(self.token_kind),
            given.node.eq(self.token_node),
            given.input.eq(self.token_input),
            given.tag.eq(self.token_tag),
            given.multiplicity.eq(self.token_multiplicity),
            given.value.eq(self.token_value),
            matching.token.payload.eq(Mux(queue.r_rdy, queue.r_data, given.as_value())),
            matching.token.valid.eq(queue.r_rdy | self.token_valid),
            queue.r_en.eq(matching.token.ready),
            self.token_ready.eq(matching.token.ready & ~queue.r_rdy),
        ]
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
        with m.Elif(execution.token.valid & ~outward & ~queue.w_rdy):
            m.d.comb += [self.failure.eq(Failure.QUEUE), self.failing_node.eq(sent.node),
                         self.failing_input.eq(sent.input), self.failing_tag.eq(sent.tag)]  # fmt: skip
        m.d.comb += [
            self.idle.eq(
                matching.idle & execution.idle & ~queue.r_rdy & (queue.level == 0) & ~activations.r_rdy
                & (activations.level == 0) & ~self.token_valid
            ),
            self.used.eq(matching.used),
            self.spilled.eq(matching.spilled),
            self.queued.eq(queue.level),
            self.fired_node.eq(matching.activation.payload.node),
            self.taken_node.eq(matching.taken_node),
            matching.look.eq(self.look_set),
            matching.look_way.eq(self.look_way),
            matching.look_spilled.eq(self.look_spilled),
            self.look_valid.eq(matching.looked_key.valid),
            self.look_class.eq(matching.looked_key["class"]),
            self.look_node.eq(matching.looked_key.node),
            self.look_tag.eq(matching.looked_key.tag),
            self.look_left.eq(matching.looked_state.left),
            self.look_present.eq(matching.looked_state.present),
            self.look_total.eq(matching.looked_state.total),
        ]  # fmt: skip
        events: dict[Event, Value] = {
            Event.TAKEN: matching.taken,
            Event.FIRED: matching.activation.valid & matching.activation.ready,
            Event.PROBED: matching.probing,
            Event.WALKED: matching.walking,
            Event.ISSUED: execution.issuing,
            Event.SENT: execution.sending,
            Event.HOST_IN: self.token_valid & self.token_ready,
            Event.HOST_OUT: self.output_valid & self.output_ready,
            Event.WAIT_ACTIVATION: matching.waiting_activation,
            Event.WAIT_REDUCER: matching.waiting_reducer,
            Event.WAIT_QUEUE: execution.token.valid & ~execution.token.ready,
            Event.WAIT_HOST: self.token_valid & ~self.token_ready,
            Event.WAIT_CONTEXT: execution.full,
            Event.SPILLED: matching.spilling,
            Event.WAIT_BACKING: matching.waiting_backing,
        }
        m.d.comb += self.events.eq(Cat(*(events[e] for e in Event)))
        self._digest(m, matching, execution)
        return m

    def _load(self, m: Module, matching: Matching, execution: Execution) -> None:
        """The configuration bus: a staging register, from which a row goes into the memory that is selected."""
        d = self.d
        shapes = (node_layout(d), walk_layout(d), entry_layout(d), instruction_layout(), send_layout(d))
        parts = -(-max(shape.size for shape in shapes) // CONFIG_BITS)
        staged = Signal(parts * CONFIG_BITS)
        row = Signal(parts * CONFIG_BITS)
        m.d.comb += row.eq(Cat(self.config_data, staged))
        with m.If(self.config_en):
            m.d.sync += staged.eq(row)
        targets = {
            Memory.NODE: (matching.node_en, matching.node_address, matching.node_data),
            Memory.WALK: (matching.walk_en, matching.walk_address, matching.walk_data),
            Memory.ENTRY: (execution.entry_en, execution.entry_address, execution.entry_data),
            Memory.CODE: (execution.code_en, execution.code_address, execution.code_data),
            Memory.SEND: (execution.send_en, execution.send_address, execution.send_data),
            Memory.TABLE: (execution.table_en, execution.table_address, execution.table_data),
        }
        for select, (enable, address, written) in targets.items():
            m.d.comb += [
                enable.eq(self.config_en & (self.config_select == select)),
                address.eq(self.config_address),
                (written if select is Memory.TABLE else written.as_value()).eq(row),
            ]

    def _digest(self, m: Module, matching: Matching, execution: Execution) -> None:
        """Turn the checksum by one place and mix in what goes through the ports in this cycle."""
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
        m.d.sync += self.checksum.eq((self.checksum.rotate_left(1) ^ mixed) + 1)


