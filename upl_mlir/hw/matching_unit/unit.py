"""The matching unit of organisation `cam`: takes one token at a time, joins it, stores it if something of it is left.

One token is worked on at a time, from its acceptance to its storing.  So the order of acceptance is an order in which
the firings are those of the language's rule, by construction: an arriving token meets the stored ones, a walk over
several partners is never interrupted by another token, and two stored tokens are never compared.

The join is a search with return.  Level 0 looks for a token on the first other input; what it finds narrows the index
that level 1 looks for, and so on; with a partner on every input the unit fires.  Each level keeps the partners that it
has not tried yet as one bit per entry.  A level that is left writes its partner's multiplicity back, or frees it.

A summand of a gather goes to the gather's record instead: the first one makes the record, the last one frees it and
the sum then is joined as a token.  A record holds one value or none, and counts its additions under way, so that
nothing waits for the adder.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportUnknownLambdaType=false
# pyright: reportIndexIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.matching_unit.cam import Cam
from upl_mlir.hw.matching_unit.interface import (
    VALUE_BITS,
    Dimensions,
    Fault,
    InputMode,
    MatchingError,
    activation_layout,
    addition_layout,
    change_layout,
    config_layout,
    content_layout,
    dump_layout,
    entry_layout,
    node_row_layout,
    sum_layout,
    token_layout,
)

COUNTER_BITS = 32
"""Width of the counters in the status."""

ERROR_BITS = 3
"""Width of the status `error`; the codes are those of `MatchingError`."""


class MatchingUnit(wiring.Component):
    """One core's matching unit; ports (direction as seen by the unit), all synchronous to `sync`:

    token (in, stream of `token_layout`): arriving tokens; taken when valid and ready.
    activation (out, stream of `activation_layout`): firings; held until taken.
    addition (out, stream of `addition_layout`), sum (in, stream of `sum_layout`): a binary32 adder of any latency.
    config (in, stream of `config_layout`): writes a row of the node table; always ready; before the node's first token.
    last_entry (in, entry_bits): entries behind it are not used; it must not change while tokens wait.
    dump_entry (in, entry_bits), dump (out, `dump_layout`): the entry's contents, one cycle later; while `idle`.

    Status, valid in every cycle:
    idle (out, 1): no token is being worked on and no addition is under way.
    occupied (out, 0..capacity): entries in use.
    error (out, 3): a `MatchingError`; once it is not NONE the unit stands still until reset, and `failing` tells
    the token it failed on.
    failing (out, `token_layout`): the token being worked on.
    change (out, `change_layout`): an entry is occupied in this cycle, or emptied.
    searching (out, 1): the key is compared with all entries in this cycle, and the result is used.
    joining (out, 1): strobe: `failing` starts to be matched now (a gather when its sum is complete): the order of
    these strobes is the order of acceptance.
    matches, stalls_activation, stalls_addition, stalls_credit (out, 32, modulo 2**32): firings; cycles in which a
    firing waited for `activation.ready`, an addition for `addition.ready`, a token for an addition to come back.
    """

    def __init__(self, dim: Dimensions, fault: Fault | None = None):
        self.dim = dim
        self.fault = fault
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(dim))),
                "activation": Out(stream.Signature(activation_layout(dim))),
                "addition": Out(stream.Signature(addition_layout(dim))),
                "sum": In(stream.Signature(sum_layout(dim))),
                "config": In(stream.Signature(config_layout(dim))),
                "last_entry": In(dim.entry_bits, init=dim.capacity - 1),
                "dump_entry": In(dim.entry_bits),
                "dump": Out(dump_layout(dim)),
                "idle": Out(1),
                "occupied": Out(range(dim.capacity + 1)),
                "error": Out(ERROR_BITS),
                "failing": Out(token_layout(dim)),
                "joining": Out(1),
                "searching": Out(1),
                "change": Out(change_layout(dim)),
                "matches": Out(COUNTER_BITS),
                "stalls_activation": Out(COUNTER_BITS),
                "stalls_addition": Out(COUNTER_BITS),
                "stalls_credit": Out(COUNTER_BITS),
            },
        )

    def elaborate(self, platform: object) -> Module:
        """The memories, the registers and the state machine; one state per step of the module's docstring."""
        m = Module()
        dim = self.dim
        levels = max(1, dim.max_inputs - 1)

        m.submodules.cam = cam = Cam(dim)
        found = Const(0) if self.fault is Fault.MATCH_STUCK_AT_0 else cam.found

        # Block memories with registered outputs, one port for each direction.
        m.submodules.entries = entries = Memory(shape=entry_layout(dim), depth=dim.capacity, init=[])
        m.submodules.contents = contents = Memory(shape=content_layout(dim), depth=dim.capacity, init=[])
        m.submodules.nodes = nodes = Memory(shape=node_row_layout(dim), depth=1 << dim.node_bits, init=[])
        entry_write, entry_read = entries.write_port(), entries.read_port()
        content_write, content_read = contents.write_port(), contents.read_port()
        node_write, node_read = nodes.write_port(), nodes.read_port()
        entry, content, row = entry_read.data, content_read.data, node_read.data
        m.d.comb += [
            self.config.ready.eq(1),
            node_write.en.eq(self.config.valid),
            node_write.addr.eq(self.config.payload.node),
            node_write.data.eq(self.config.payload.row),
        ]

        # The token being worked on, and the search with return.
        cur = Signal(token_layout(dim))
        level = Signal(range(levels + 1))
        place = Array(Signal(dim.entry_bits, name=f"place{i}") for i in range(levels))
        left = [Signal(dim.multiplicity_bits, name=f"left{i}") for i in range(levels)]
        left_at = Array(left)
        # The index as narrowed by the levels above: entry i is what level i looks for.
        tag = Array(Signal(dim.tag_bits, name=f"tag{i}") for i in range(levels + 1))
        wild = Array(Signal(dim.max_fields, name=f"wild{i}") for i in range(levels + 1))
        values = Array(Signal(VALUE_BITS, name=f"value{i}") for i in range(dim.max_inputs))
        other = Array(Signal(dim.input_bits, name=f"other{i}") for i in range(levels))
        m.d.comb += [other[i].eq(Mux(cur.input <= i, i + 1, i)) for i in range(levels)]
        from_adder = Signal()
        under_way = Signal(range(dim.adder_depth + 1))
        last_level = Signal(range(dim.max_inputs + 1))  # the node's inputs - 2, where it has two or more
        m.d.comb += last_level.eq(row.inputs - 2)

        # The key, in registers, and which bits of the tag its open fields cover.
        key_wild = Signal(dim.max_fields)
        m.d.comb += cam.key_wild.eq(_covered(row, key_wild))
        key_gather, key_node = Signal(), Signal(dim.node_bits)
        key_input, key_tag = Signal(dim.input_bits), Signal(dim.tag_bits)
        m.d.comb += [
            cam.key_exact.eq(Cat(key_gather, key_node, key_input)),
            cam.key_tag.eq(key_tag),
            cam.level.eq(level),
            cam.search.eq(self.searching),
            cam.last_entry.eq(self.last_entry),
        ]

        # Storing: the key registers hold what is written to the match part; the memories get the same.
        store = Signal()
        rewrite = Signal()
        written = Signal(content_layout(dim))
        address = Signal(dim.entry_bits)
        m.d.comb += [
            address.eq(Mux(store, cam.vacancy, Mux(key_gather, place[0], place[level]))),
            cam.write.eq(store),
            cam.entry.eq(address),
            entry_write.en.eq(store),
            entry_write.addr.eq(address),
            entry_write.data.gather.eq(key_gather),
            entry_write.data.node.eq(key_node),
            entry_write.data.input.eq(key_input),
            entry_write.data.tag.eq(key_tag),
            entry_write.data.wild.eq(key_wild),
            entry_write.data.count.eq(cur.multiplicity),
            content_write.en.eq(store | rewrite),
            content_write.addr.eq(address),
            content_write.data.eq(written),
        ]
        read_entry = Signal(dim.entry_bits)
        read = Signal()
        m.d.comb += [
            entry_read.en.eq(read),
            entry_read.addr.eq(read_entry),
            content_read.en.eq(read),
            content_read.addr.eq(read_entry),
            node_read.en.eq(0),
        ]

        m.d.comb += self.failing.eq(cur)
        working = Signal()
        m.d.comb += self.idle.eq(~working & (under_way == 0))
        m.d.comb += [
            self.change.any.eq(store | cam.free), self.change.comes.eq(store), self.change.node.eq(key_node),
            self.change.input.eq(key_input), self.change.tag.eq(key_tag),
        ]  # fmt: skip
        with m.If(store & ~cam.free):
            m.d.sync += self.occupied.eq(self.occupied + 1)
        with m.Elif(cam.free & ~store):
            m.d.sync += self.occupied.eq(self.occupied - 1)
        dumped = Signal(dim.entry_bits)
        m.d.sync += dumped.eq(self.dump_entry)
        m.d.comb += [
            cam.look.eq(dumped),
            self.dump.occupied.eq(cam.looked),
            self.dump.entry.eq(entry),
            self.dump.content.eq(content),
        ]

        def fail(why: MatchingError) -> None:
            m.d.sync += self.error.eq(why)
            m.next = "HALT"

        def look_for(first: Value, narrowed: Value, still_open: Value) -> None:
            """Set the key for the search of a level, by its input, tag and open fields."""
            m.d.sync += [key_input.eq(first), key_tag.eq(narrowed), key_wild.eq(still_open)]

        mode = Signal(2)
        m.d.comb += mode.eq(row.modes[cur.input])
        m.d.comb += working.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                # A sum goes first: its addition's place is needed for the next one.
                credit = Signal()
                m.d.comb += [working.eq(0), credit.eq(under_way != dim.adder_depth)]
                m.d.comb += [read.eq(1), read_entry.eq(self.dump_entry)]
                with m.If(self.sum.valid):
                    m.d.comb += [self.sum.ready.eq(1), read_entry.eq(self.sum.payload.entry)]
                    m.d.sync += [
                        from_adder.eq(1),
                        under_way.eq(under_way - 1),
                        place[0].eq(self.sum.payload.entry),
                        cur.value.eq(self.sum.payload.value),
                        key_gather.eq(1),
                    ]
                    m.next = "GATHER_READ"
                with m.Elif(self.token.valid & credit):
                    m.d.comb += [
                        self.token.ready.eq(1),
                        node_read.en.eq(1),
                        node_read.addr.eq(self.token.payload.node),
                    ]
                    m.d.sync += [cur.eq(self.token.payload), from_adder.eq(0)]
                    m.next = "LOOKUP"
                with m.Elif(self.token.valid):
                    m.d.sync += self.stalls_credit.eq(self.stalls_credit + 1)

            with m.State("LOOKUP"):
                # The node's row is here: where does the token go?
                clean = Signal(dim.tag_bits)
                m.d.comb += clean.eq(cur.tag & ~_covered(row, cur.wild))
                summand = (mode != InputMode.ORDINARY) & ~cur.complete
                m.d.sync += [
                    cur.tag.eq(clean),
                    level.eq(0),
                    tag[0].eq(clean),
                    wild[0].eq(cur.wild),
                    key_gather.eq(summand),
                    key_node.eq(cur.node),
                ]
                m.d.sync += [values[i].eq(Mux(cur.input == i, cur.value, 0)) for i in range(dim.max_inputs)]
                with m.If((cur.input >= row.inputs) | (cur.multiplicity == 0)):
                    fail(MatchingError.BAD_TOKEN)
                with m.Elif(summand):
                    look_for(cur.input, clean, cur.wild)
                    m.next = "GATHER_SEARCH"
                    with m.If((cur.wild != 0) | (cur.multiplicity == dim.unbounded)):
                        fail(MatchingError.BAD_TOKEN)
                with m.Else():
                    m.d.comb += self.joining.eq(1)
                    look_for(other[0], clean, cur.wild)
                    m.next = "SEARCH"
                    with m.If(row.inputs == 1):
                        m.next = "FIRE"

            with m.State("SEARCH"):
                m.d.comb += self.searching.eq(1)
                m.next = "PICK"

            with m.State("PICK"):
                m.d.comb += cam.pick.eq(1)
                with m.If(found):
                    m.d.comb += [read.eq(1), read_entry.eq(cam.partner), cam.drop.eq(1)]
                    m.d.sync += place[level].eq(cam.partner)
                    m.next = "READ"
                with m.Elif(level == 0):
                    look_for(cur.input, tag[0], wild[0])
                    m.next = "STORE"
                with m.Else():
                    m.d.sync += level.eq(level - 1)
                    m.next = "UNWIND"

            with m.State("READ"):
                # Tags are 0 in their open fields, so unification is an OR.
                narrowed, still_open = Signal(dim.tag_bits), Signal(dim.max_fields)
                m.d.comb += [narrowed.eq(tag[level] | entry.tag), still_open.eq(wild[level] & entry.wild)]
                m.d.sync += [
                    left_at[level].eq(content.left),
                    values[other[level]].eq(content.value),
                    tag[level + 1].eq(narrowed),
                    wild[level + 1].eq(still_open),
                ]
                with m.If(level == last_level):
                    m.next = "FIRE"
                with m.Else():
                    m.d.sync += level.eq(level + 1)
                    look_for(other[level + 1], narrowed, still_open)
                    m.next = "SEARCH"

            with m.State("FIRE"):
                depth = Signal(range(levels + 1))
                m.d.comb += [
                    depth.eq(Mux(row.inputs == 1, 0, level + 1)),
                    self.activation.payload.node.eq(cur.node),
                    self.activation.payload.tag.eq(tag[depth]),
                    self.activation.valid.eq(wild[depth] == 0),
                ]
                m.d.comb += [self.activation.payload.values[i].eq(values[i]) for i in range(dim.max_inputs)]
                with m.If(wild[depth] != 0):
                    fail(MatchingError.UNDETERMINED)
                with m.Elif(self.activation.ready):
                    # One commit: every token used loses one.
                    m.d.sync += self.matches.eq(self.matches + 1)
                    m.d.sync += cur.multiplicity.eq(_used_once(cur.multiplicity, dim))
                    m.d.sync += [left[i].eq(_used_once(left[i], dim)) for i in range(levels)]
                    with m.If(row.inputs == 1):
                        look_for(cur.input, tag[0], wild[0])
                        m.next = "STORE"
                        with m.If(cur.multiplicity == 1):
                            m.next = "IDLE"
                    with m.Else():
                        m.next = "UNWIND"
                with m.Else():
                    m.d.sync += self.stalls_activation.eq(self.stalls_activation + 1)

            with m.State("UNWIND"):
                # Leave this level's partner; go on here unless something above is used up.
                gone = Signal()
                m.d.comb += gone.eq(cur.multiplicity == 0)
                for i in range(levels - 1):
                    with m.If((left[i] == 0) & (level > i)):
                        m.d.comb += gone.eq(1)
                m.d.comb += [
                    rewrite.eq(1),
                    cam.free.eq(left_at[level] == 0),
                    written.left.eq(left_at[level]),
                    written.value.eq(values[other[level]]),
                    written.has_value.eq(1),
                    # Its own tag is lost, but what it did not leave open is in the narrowed one.
                    self.change.input.eq(other[level]),
                    self.change.tag.eq(tag[level + 1]),
                ]
                with m.If(~gone):
                    m.next = "PICK"
                with m.Elif(level == 0):
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += level.eq(level - 1)

            with m.State("STORE"):
                m.d.comb += [written.left.eq(cur.multiplicity), written.value.eq(cur.value), written.has_value.eq(1)]
                m.d.comb += cam.seek.eq(1)
                with m.If(cam.vacant):
                    m.d.comb += store.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    fail(MatchingError.FULL)

            with m.State("GATHER_SEARCH"):
                m.d.comb += self.searching.eq(1)
                m.next = "GATHER_PICK"

            with m.State("GATHER_PICK"):
                m.d.comb += [cam.pick.eq(1), cam.seek.eq(1)]
                with m.If(found):
                    m.d.comb += [read.eq(1), read_entry.eq(cam.partner)]
                    m.d.sync += place[0].eq(cam.partner)
                    m.next = "GATHER_READ"
                with m.Elif(cur.multiplicity == 1):
                    self._complete(m, cur, node_read, cur.node)
                with m.Elif(cam.vacant):
                    m.d.comb += [
                        store.eq(1),
                        written.left.eq(cur.multiplicity - 1),
                        written.value.eq(cur.value),
                        written.has_value.eq(1),
                    ]
                    m.next = "IDLE"
                with m.Else():
                    fail(MatchingError.FULL)

            with m.State("GATHER_READ"):
                # The record is here. A value that meets a value goes to the adder with it, else it is kept.
                integer = ~from_adder & (mode == InputMode.GATHER_ADD_I32)
                added, overflow = Signal(VALUE_BITS), Signal()
                m.d.comb += added.eq(content.value + cur.value)
                m.d.comb += overflow.eq((content.value[-1] == cur.value[-1]) & (added[-1] != cur.value[-1]))
                to_adder = Signal()
                m.d.comb += to_adder.eq(content.has_value & ~integer)
                rest, pending = Signal(dim.multiplicity_bits), Signal(dim.pending_bits)
                m.d.comb += [
                    rest.eq(content.left - ~from_adder),
                    pending.eq(content.pending - from_adder + to_adder),
                    written.left.eq(rest),
                    written.value.eq(Mux(integer, added, cur.value)),
                    written.has_value.eq(~to_adder),
                    written.pending.eq(pending),
                    self.addition.payload.entry.eq(place[0]),
                    self.addition.payload.left.eq(content.value),
                    self.addition.payload.right.eq(cur.value),
                ]
                with m.If(~from_adder & (entry.count != cur.multiplicity)):
                    fail(MatchingError.COUNT)
                with m.Elif(integer & overflow):
                    fail(MatchingError.OVERFLOW)
                with m.Elif(~from_adder & (content.left == 0)):
                    fail(MatchingError.COUNT)
                with m.Else():
                    m.d.comb += self.addition.valid.eq(to_adder)
                    with m.If(to_adder & ~self.addition.ready):
                        m.d.sync += self.stalls_addition.eq(self.stalls_addition + 1)
                    with m.Elif((rest == 0) & (pending == 0)):
                        m.d.comb += [
                            cam.free.eq(1), self.change.node.eq(entry.node), self.change.input.eq(entry.input),
                            self.change.tag.eq(entry.tag),
                        ]  # fmt: skip
                        m.d.sync += [cur.value.eq(written.value), cur.input.eq(entry.input)]
                        m.d.sync += [cur.tag.eq(entry.tag), cur.node.eq(entry.node)]
                        self._complete(m, cur, node_read, entry.node)
                    with m.Else():
                        m.d.comb += rewrite.eq(1)
                        with m.If(to_adder):
                            m.d.sync += under_way.eq(under_way + 1)
                        m.next = "IDLE"

            with m.State("HALT"):
                pass
        return m

    def _complete(self, m: Module, cur: Value, node_read: Value, node: Value) -> None:
        """Send the finished gather, whose value, place and index `cur` gets, to matching as one token."""
        m.d.sync += [cur.complete.eq(1), cur.multiplicity.eq(1), cur.wild.eq(0)]
        m.d.comb += [node_read.en.eq(1), node_read.addr.eq(node)]
        m.next = "LOOKUP"


def _covered(row: Value, wild: Value) -> Value:
    """The bits of the tag that the given fields occupy in the node of that row."""
    bits = Const(0, 1)
    for f in range(len(wild)):
        bits = bits | Mux(wild[f], row.field_bits[f], 0)
    return bits


def _used_once(multiplicity: Value, dim: Dimensions) -> Value:
    """The multiplicity after one use; unbounded stays."""
    return Mux(multiplicity == dim.unbounded, dim.unbounded, multiplicity - 1)
