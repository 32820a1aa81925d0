"""What comes before and behind the two pipes of a matching unit: which tokens go where, and in which order they are joined.

Summands go to the gather pipe; what is a firing by itself passes by; all others wait for the join pipe in two queues, one
for tokens that may fire many times. Finished gathers are joined first.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import (
    FIRST_GATHER,
    MODE_BITS,
    Dimensions,
    Mode,
    TokenKind,
    activation_layout,
    token_layout,
)

COMPLETED_DEPTH = 16
"""Completed gathers that can wait to be joined."""
ENOUGH_WALKERS = 16
"""Tokens that may fire many times, and wait, from which on none of the host is wanted. Chosen, not measured."""
ENOUGH_JOINING = 256
"""With so many tokens that may fire many times, or that wait for others mostly, none of the host is wanted."""
SOLO_DEPTH = 64
"""Firings of a single token that can wait for the execution unit."""


def summand_layout(d: Dimensions) -> data.StructLayout:
    """A summand, and the mode of its input."""
    return data.StructLayout({"token": token_layout(d), "mode": MODE_BITS})


def modes_layout(d: Dimensions) -> data.ArrayLayout:
    """The mode of each input of a node."""
    return data.ArrayLayout(MODE_BITS, d.max_inputs)


class Front(wiring.Component):
    """token (in stream): all tokens of the unit. summand (out stream) and complete (in stream): to and from the gather pipe;
    joined (out stream) and fired (in stream): to and from the join pipe. activation (out stream): all firings.

    node_*: writes of what is known of nodes: `modes` of the inputs, `inputs` (a bit each). roomy (in): the execution unit
    has room for firings of walks; crowded (out): no token of the host is wanted. stopped (in): it must not go on. idle,
    taken, taken_node (out): as of `Matching`.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        token, activation = stream.Signature(token_layout(d)), stream.Signature(activation_layout(d))
        super().__init__(
            {
                "token": In(token),
                "summand": Out(stream.Signature(summand_layout(d))),
                "complete": In(token),
                "joined": Out(token),
                "fired": In(activation),
                "activation": Out(activation),
                "node_en": In(1),
                "node_address": In(d.node_bits),
                "modes": In(modes_layout(d)),
                "inputs": In(d.max_inputs),
                "roomy": In(1, init=1),
                "crowded": Out(1),
                "stopped": In(1),
                "idle": Out(1),
                "taken": Out(1),
                "taken_node": Out(d.node_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A stage that looks up what a token's input is, then one of the queues."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.joining = joining = SyncFIFOBuffered(width=token.size, depth=d.joining)
        m.submodules.walkers = walkers = SyncFIFOBuffered(width=token.size, depth=d.walkers)
        m.submodules.completed = completed = SyncFIFO(width=token.size, depth=COMPLETED_DEPTH)
        m.submodules.modes_of = memory = Memory(shape=modes_layout(d), depth=1 << d.node_bits, init=[])
        mode_write, mode_read = memory.write_port(), memory.read_port()
        # A plain token, or a completed gather, of a node that has no other input is a firing by itself.
        m.submodules.alone = lonely = Memory(shape=1, depth=1 << d.node_bits, init=[])
        lonely_write, lonely_token, lonely_gather = lonely.write_port(), *(lonely.read_port(domain="comb") for _ in range(2))
        m.submodules.alone_tokens = solo = SyncFIFOBuffered(width=token.size, depth=SOLO_DEPTH)
        stopped = self.stopped
        m.d.comb += [
            lonely_write.en.eq(self.node_en), lonely_write.addr.eq(self.node_address),
            lonely_write.data.eq((self.inputs & (self.inputs - 1)[: d.max_inputs]) == 0),
            mode_write.en.eq(self.node_en), mode_write.addr.eq(self.node_address), mode_write.data.eq(self.modes),
        ]  # fmt: skip

        # ---- the token, and a cycle later the mode of its input
        waiting, waiting_valid = Signal(token), Signal()
        moves, solo_takes_token = Signal(), Signal()
        mode = Signal(MODE_BITS)
        m.d.comb += mode.eq(mode_read.data[waiting.input])
        summand = (mode >= FIRST_GATHER) & (waiting.kind != TokenKind.COMPLETE)
        walker = mode == Mode.COUNTED
        alone = Signal()  # with another multiplicity than 1 it is left to the join pipe
        m.d.comb += [lonely_token.addr.eq(waiting.node), alone.eq(lonely_token.data & ~walker & (waiting.multiplicity == 1))]
        room = Mux(alone, solo_takes_token, Mux(walker, walkers.w_rdy, joining.w_rdy))
        m.d.comb += [
            self.token.ready.eq((~waiting_valid | moves) & ~stopped),
            mode_read.en.eq(self.token.ready), mode_read.addr.eq(self.token.payload.node),
            self.taken.eq(self.token.valid & self.token.ready), self.taken_node.eq(self.token.payload.node),
            moves.eq(waiting_valid & Mux(summand, self.summand.ready, room)),
            self.summand.valid.eq(waiting_valid & summand), self.summand.payload.token.eq(waiting),
            self.summand.payload.mode.eq(mode),
            joining.w_en.eq(waiting_valid & ~summand & ~walker & ~alone), joining.w_data.eq(waiting),
            walkers.w_en.eq(waiting_valid & walker), walkers.w_data.eq(waiting),
        ]  # fmt: skip
        if d.closes:  # what says that open gathers exist, or ends them, is no token of the program
            with m.If((self.token.payload.kind == TokenKind.PRESENT) | (self.token.payload.kind == TokenKind.CLOSE)):
                m.d.comb += self.taken.eq(0)
        with m.If(self.token.ready):
            m.d.sync += [waiting.eq(self.token.payload), waiting_valid.eq(self.token.valid)]

        # ---- finished gathers are joined first; then tokens that may fire many times, as long as firings are wanted, and
        # while the execution unit has enough to do those that mostly wait for others
        walks, gathered = Signal(), Signal()
        m.d.comb += [
            self.crowded.eq((walkers.level >= ENOUGH_WALKERS) | (joining.level >= ENOUGH_JOINING)),
            walks.eq(walkers.r_rdy & (self.roomy | ~joining.r_rdy)), gathered.eq(completed.r_rdy & ~lonely_gather.data),
            completed.w_en.eq(self.complete.valid), completed.w_data.eq(self.complete.payload.as_value()),
            self.complete.ready.eq(completed.w_rdy),
            lonely_gather.addr.eq(data.View(token, completed.r_data).node),
            self.joined.valid.eq(gathered | walkers.r_rdy | joining.r_rdy),
            self.joined.payload.eq(Mux(gathered, completed.r_data, Mux(walks, walkers.r_data, joining.r_data))),
            completed.r_en.eq(Mux(lonely_gather.data, solo.w_rdy, self.joined.ready)),
            walkers.r_en.eq(self.joined.ready & ~gathered & walks), joining.r_en.eq(self.joined.ready & ~gathered & ~walks),
        ]  # fmt: skip

        # ---- firings, those of the join pipe first
        single = data.View(token, solo.r_data)
        m.d.comb += [
            solo_takes_token.eq(solo.w_rdy & ~(completed.r_rdy & lonely_gather.data)),
            solo.w_en.eq((completed.r_rdy & lonely_gather.data) | (waiting_valid & ~summand & alone)),
            solo.w_data.eq(Mux(completed.r_rdy & lonely_gather.data, completed.r_data, waiting)),
            self.activation.valid.eq(self.fired.valid | (solo.r_rdy & ~stopped)),
            self.fired.ready.eq(self.activation.ready), solo.r_en.eq(self.activation.ready & ~self.fired.valid),
            self.activation.payload.eq(self.fired.payload),
            self.idle.eq(~waiting_valid & (joining.level == 0) & (walkers.level == 0) & (completed.level == 0)
                         & (solo.level == 0)),
        ]  # fmt: skip
        with m.If(~self.fired.valid):
            m.d.comb += [self.activation.payload.node.eq(single.node), self.activation.payload.tag.eq(single.tag)]
            for i in range(d.max_inputs):
                m.d.comb += self.activation.payload["values"][i].eq(Mux(single.input == i, single.value, 0))
        return m
