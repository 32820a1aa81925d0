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

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

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
    dump_layout,
    sum_layout,
    token_layout,
)
from upl_mlir.hw.matching_unit.state import State

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
        """The memories, the registers and the state machine; one state, and at least one cycle, per step of the module's
        docstring.

        A token: IDLE, LOOKUP, then for each partner SEARCH (once a level), PICK, READ, and with one on every input FIRE, in
        which it stays until the activation is taken; UNWIND for each level left, then PICK again; STORE.
        A summand: IDLE, LOOKUP, GATHER_SEARCH, GATHER_PICK, GATHER_READ; a sum from the adder: IDLE, GATHER_READ. When the
        gather is complete: LOOKUP as a token.
        """
        m = Module()
        s = State(self.dim, self.fault, m)
        self._compare(m, s)
        self._write(m, s)
        self._report(m, s)
        m.d.comb += s.mode.eq(s.row.modes[s.cur.input])
        m.d.comb += s.working.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                self._idle(m, s)
            with m.State("LOOKUP"):
                self._lookup(m, s)
            with m.State("SEARCH"):
                self._search(m, s)
            with m.State("PICK"):
                self._pick(m, s)
            with m.State("READ"):
                self._read(m, s)
            with m.State("FIRE"):
                self._fire(m, s)
            with m.State("UNWIND"):
                self._unwind(m, s)
            with m.State("STORE"):
                self._store(m, s)
            with m.State("GATHER_SEARCH"):
                self._gather_search(m, s)
            with m.State("GATHER_PICK"):
                self._gather_pick(m, s)
            with m.State("GATHER_READ"):
                self._gather_read(m, s)
            with m.State("HALT"):
                pass
        return m

    def _compare(self, m: Module, s: State) -> None:
        """The table of nodes, the inputs of the levels, and the key that entries are compared with."""
        cam = s.cam
        m.d.comb += [
            self.config.ready.eq(1),
            s.node_write.en.eq(self.config.valid),
            s.node_write.addr.eq(self.config.payload.node),
            s.node_write.data.eq(self.config.payload.row),
        ]
        m.d.comb += [s.other[i].eq(Mux(s.cur.input <= i, i + 1, i)) for i in range(s.levels)]
        m.d.comb += s.last_level.eq(s.row.inputs - 2)

        m.d.comb += cam.key_wild.eq(_covered(s.row, s.key_wild))
        m.d.comb += [
            cam.key_exact.eq(Cat(s.key_gather, s.key_node, s.key_input)),
            cam.key_tag.eq(s.key_tag),
            cam.level.eq(s.level),
            cam.search.eq(self.searching),
            cam.last_entry.eq(self.last_entry),
        ]

    def _write(self, m: Module, s: State) -> None:
        """The ports of the memories: the key registers hold what is written to the match part,
        and the memories get the same."""
        cam = s.cam
        m.d.comb += [
            s.address.eq(Mux(s.store, cam.vacancy, Mux(s.key_gather, s.place[0], s.place[s.level]))),
            cam.write.eq(s.store),
            cam.entry.eq(s.address),
            s.entry_write.en.eq(s.store),
            s.entry_write.addr.eq(s.address),
            s.entry_write.data.gather.eq(s.key_gather),
            s.entry_write.data.node.eq(s.key_node),
            s.entry_write.data.input.eq(s.key_input),
            s.entry_write.data.tag.eq(s.key_tag),
            s.entry_write.data.wild.eq(s.key_wild),
            s.entry_write.data.count.eq(s.cur.multiplicity),
            s.content_write.en.eq(s.store | s.rewrite),
            s.content_write.addr.eq(s.address),
            s.content_write.data.eq(s.written),
        ]
        m.d.comb += [
            s.entry_read.en.eq(s.read),
            s.entry_read.addr.eq(s.read_entry),
            s.content_read.en.eq(s.read),
            s.content_read.addr.eq(s.read_entry),
            s.node_read.en.eq(0),
        ]

    def _report(self, m: Module, s: State) -> None:
        """The status, and what the host sees of the entries."""
        dim, cam = self.dim, s.cam
        m.d.comb += self.failing.eq(s.cur)
        m.d.comb += self.idle.eq(~s.working & (s.under_way == 0))
        m.d.comb += [
            self.change.any.eq(s.store | cam.free), self.change.comes.eq(s.store), self.change.node.eq(s.key_node),
            self.change.input.eq(s.key_input), self.change.tag.eq(s.key_tag),
        ]  # fmt: skip
        with m.If(s.store & ~cam.free):
            m.d.sync += self.occupied.eq(self.occupied + 1)
        with m.Elif(cam.free & ~s.store):
            m.d.sync += self.occupied.eq(self.occupied - 1)
        dumped = Signal(dim.entry_bits)
        m.d.sync += dumped.eq(self.dump_entry)
        m.d.comb += [
            cam.look.eq(dumped),
            self.dump.occupied.eq(cam.looked),
            self.dump.entry.eq(s.entry),
            self.dump.content.eq(s.content),
        ]

    def _fail(self, m: Module, why: MatchingError) -> None:
        """Stop until reset."""
        m.d.sync += self.error.eq(why)
        m.next = "HALT"

    def _look_for(self, m: Module, s: State, first: Value, narrowed: Value, still_open: Value) -> None:
        """Set the key for the search of a level, by its input, tag and open fields."""
        m.d.sync += [s.key_input.eq(first), s.key_tag.eq(narrowed), s.key_wild.eq(still_open)]

    def _idle(self, m: Module, s: State) -> None:
        """Take a sum or a token. A sum goes first: its addition's place is needed for the next one."""
        dim = self.dim
        credit = Signal()
        m.d.comb += [s.working.eq(0), credit.eq(s.under_way != dim.adder_depth)]
        m.d.comb += [s.read.eq(1), s.read_entry.eq(self.dump_entry)]
        with m.If(self.sum.valid):
            m.d.comb += [self.sum.ready.eq(1), s.read_entry.eq(self.sum.payload.entry)]
            m.d.sync += [
                s.from_adder.eq(1),
                s.under_way.eq(s.under_way - 1),
                s.place[0].eq(self.sum.payload.entry),
                s.cur.value.eq(self.sum.payload.value),
                s.key_gather.eq(1),
            ]
            m.next = "GATHER_READ"
        with m.Elif(self.token.valid & credit):
            m.d.comb += [
                self.token.ready.eq(1),
                s.node_read.en.eq(1),
                s.node_read.addr.eq(self.token.payload.node),
            ]
            m.d.sync += [s.cur.eq(self.token.payload), s.from_adder.eq(0)]
            m.next = "LOOKUP"
        with m.Elif(self.token.valid):
            m.d.sync += self.stalls_credit.eq(self.stalls_credit + 1)

    def _lookup(self, m: Module, s: State) -> None:
        """The node's row is here: where does the token go?"""
        dim = self.dim
        clean = Signal(dim.tag_bits)
        m.d.comb += clean.eq(s.cur.tag & ~_covered(s.row, s.cur.wild))
        summand = (s.mode != InputMode.ORDINARY) & ~s.cur.complete
        m.d.sync += [
            s.cur.tag.eq(clean),
            s.level.eq(0),
            s.tag[0].eq(clean),
            s.wild[0].eq(s.cur.wild),
            s.key_gather.eq(summand),
            s.key_node.eq(s.cur.node),
        ]
        m.d.sync += [s.values[i].eq(Mux(s.cur.input == i, s.cur.value, 0)) for i in range(dim.max_inputs)]
        with m.If((s.cur.input >= s.row.inputs) | (s.cur.multiplicity == 0)):
            self._fail(m, MatchingError.BAD_TOKEN)
        with m.Elif(summand):
            self._look_for(m, s, s.cur.input, clean, s.cur.wild)
            m.next = "GATHER_SEARCH"
            with m.If((s.cur.wild != 0) | (s.cur.multiplicity == dim.unbounded)):
                self._fail(m, MatchingError.BAD_TOKEN)
        with m.Else():
            m.d.comb += self.joining.eq(1)
            self._look_for(m, s, s.other[0], clean, s.cur.wild)
            m.next = "SEARCH"
            with m.If(s.row.inputs == 1):
                m.next = "FIRE"

    def _search(self, m: Module, s: State) -> None:
        """All entries are compared with the level's key."""
        m.d.comb += self.searching.eq(1)
        m.next = "PICK"

    def _pick(self, m: Module, s: State) -> None:
        """The next partner of the level, if one is left."""
        m.d.comb += s.cam.pick.eq(1)
        with m.If(s.found):
            m.d.comb += [s.read.eq(1), s.read_entry.eq(s.cam.partner), s.cam.drop.eq(1)]
            m.d.sync += s.place[s.level].eq(s.cam.partner)
            m.next = "READ"
        with m.Elif(s.level == 0):
            self._look_for(m, s, s.cur.input, s.tag[0], s.wild[0])
            m.next = "STORE"
        with m.Else():
            m.d.sync += s.level.eq(s.level - 1)
            m.next = "UNWIND"

    def _read(self, m: Module, s: State) -> None:
        """The partner is here: it narrows the index for the next level."""
        dim = self.dim
        # Tags are 0 in their open fields, so unification is an OR.
        narrowed, still_open = Signal(dim.tag_bits), Signal(dim.max_fields)
        m.d.comb += [narrowed.eq(s.tag[s.level] | s.entry.tag), still_open.eq(s.wild[s.level] & s.entry.wild)]
        m.d.sync += [
            s.left_at[s.level].eq(s.content.left),
            s.values[s.other[s.level]].eq(s.content.value),
            s.tag[s.level + 1].eq(narrowed),
            s.wild[s.level + 1].eq(still_open),
        ]
        with m.If(s.level == s.last_level):
            m.next = "FIRE"
        with m.Else():
            m.d.sync += s.level.eq(s.level + 1)
            self._look_for(m, s, s.other[s.level + 1], narrowed, still_open)
            m.next = "SEARCH"

    def _fire(self, m: Module, s: State) -> None:
        """There is a partner on every input."""
        dim = self.dim
        depth = Signal(range(s.levels + 1))
        m.d.comb += [
            depth.eq(Mux(s.row.inputs == 1, 0, s.level + 1)),
            self.activation.payload.node.eq(s.cur.node),
            self.activation.payload.tag.eq(s.tag[depth]),
            self.activation.valid.eq(s.wild[depth] == 0),
        ]
        m.d.comb += [self.activation.payload.values[i].eq(s.values[i]) for i in range(dim.max_inputs)]
        with m.If(s.wild[depth] != 0):
            self._fail(m, MatchingError.UNDETERMINED)
        with m.Elif(self.activation.ready):
            # One commit: every token used loses one.
            m.d.sync += self.matches.eq(self.matches + 1)
            m.d.sync += s.cur.multiplicity.eq(_used_once(s.cur.multiplicity, dim))
            m.d.sync += [s.left[i].eq(_used_once(s.left[i], dim)) for i in range(s.levels)]
            with m.If(s.row.inputs == 1):
                self._look_for(m, s, s.cur.input, s.tag[0], s.wild[0])
                m.next = "STORE"
                with m.If(s.cur.multiplicity == 1):
                    m.next = "IDLE"
            with m.Else():
                m.next = "UNWIND"
        with m.Else():
            m.d.sync += self.stalls_activation.eq(self.stalls_activation + 1)

    def _unwind(self, m: Module, s: State) -> None:
        """Leave this level's partner; go on here unless something above is used up."""
        gone = Signal()
        m.d.comb += gone.eq(s.cur.multiplicity == 0)
        for i in range(s.levels - 1):
            with m.If((s.left[i] == 0) & (s.level > i)):
                m.d.comb += gone.eq(1)
        m.d.comb += [
            s.rewrite.eq(1),
            s.cam.free.eq(s.left_at[s.level] == 0),
            s.written.left.eq(s.left_at[s.level]),
            s.written.value.eq(s.values[s.other[s.level]]),
            s.written.has_value.eq(1),
            # Its own tag is lost, but what it did not leave open is in the narrowed one.
            self.change.input.eq(s.other[s.level]),
            self.change.tag.eq(s.tag[s.level + 1]),
        ]
        with m.If(~gone):
            m.next = "PICK"
        with m.Elif(s.level == 0):
            m.next = "IDLE"
        with m.Else():
            m.d.sync += s.level.eq(s.level - 1)

    def _store(self, m: Module, s: State) -> None:
        """What is left of the token waits for partners to come."""
        m.d.comb += [s.written.left.eq(s.cur.multiplicity), s.written.value.eq(s.cur.value), s.written.has_value.eq(1)]
        m.d.comb += s.cam.seek.eq(1)
        with m.If(s.cam.vacant):
            m.d.comb += s.store.eq(1)
            m.next = "IDLE"
        with m.Else():
            self._fail(m, MatchingError.FULL)

    def _gather_search(self, m: Module, s: State) -> None:
        """All entries are compared with the name of the gather."""
        m.d.comb += self.searching.eq(1)
        m.next = "GATHER_PICK"

    def _gather_pick(self, m: Module, s: State) -> None:
        """The gather's record; without one the summand begins it, or is all of it."""
        m.d.comb += [s.cam.pick.eq(1), s.cam.seek.eq(1)]
        with m.If(s.found):
            m.d.comb += [s.read.eq(1), s.read_entry.eq(s.cam.partner)]
            m.d.sync += s.place[0].eq(s.cam.partner)
            m.next = "GATHER_READ"
        with m.Elif(s.cur.multiplicity == 1):
            self._complete(m, s, s.cur.node)
        with m.Elif(s.cam.vacant):
            m.d.comb += [
                s.store.eq(1),
                s.written.left.eq(s.cur.multiplicity - 1),
                s.written.value.eq(s.cur.value),
                s.written.has_value.eq(1),
            ]
            m.next = "IDLE"
        with m.Else():
            self._fail(m, MatchingError.FULL)

    def _gather_read(self, m: Module, s: State) -> None:
        """The record is here. A value that meets a value goes to the adder with it, else it is kept."""
        dim = self.dim
        integer = ~s.from_adder & (s.mode == InputMode.GATHER_ADD_I32)
        added, overflow = Signal(VALUE_BITS), Signal()
        m.d.comb += added.eq(s.content.value + s.cur.value)
        m.d.comb += overflow.eq((s.content.value[-1] == s.cur.value[-1]) & (added[-1] != s.cur.value[-1]))
        to_adder = Signal()
        m.d.comb += to_adder.eq(s.content.has_value & ~integer)
        rest, pending = Signal(dim.multiplicity_bits), Signal(dim.pending_bits)
        m.d.comb += [
            rest.eq(s.content.left - ~s.from_adder),
            pending.eq(s.content.pending - s.from_adder + to_adder),
            s.written.left.eq(rest),
            s.written.value.eq(Mux(integer, added, s.cur.value)),
            s.written.has_value.eq(~to_adder),
            s.written.pending.eq(pending),
            self.addition.payload.entry.eq(s.place[0]),
            self.addition.payload.left.eq(s.content.value),
            self.addition.payload.right.eq(s.cur.value),
        ]
        with m.If(~s.from_adder & (s.entry.count != s.cur.multiplicity)):
            self._fail(m, MatchingError.COUNT)
        with m.Elif(integer & overflow):
            self._fail(m, MatchingError.OVERFLOW)
        with m.Elif(~s.from_adder & (s.content.left == 0)):
            self._fail(m, MatchingError.COUNT)
        with m.Else():
            m.d.comb += self.addition.valid.eq(to_adder)
            with m.If(to_adder & ~self.addition.ready):
                m.d.sync += self.stalls_addition.eq(self.stalls_addition + 1)
            with m.Elif((rest == 0) & (pending == 0)):
                m.d.comb += [
                    s.cam.free.eq(1), self.change.node.eq(s.entry.node), self.change.input.eq(s.entry.input),
                    self.change.tag.eq(s.entry.tag),
                ]  # fmt: skip
                m.d.sync += [s.cur.value.eq(s.written.value), s.cur.input.eq(s.entry.input)]
                m.d.sync += [s.cur.tag.eq(s.entry.tag), s.cur.node.eq(s.entry.node)]
                self._complete(m, s, s.entry.node)
            with m.Else():
                m.d.comb += s.rewrite.eq(1)
                with m.If(to_adder):
                    m.d.sync += s.under_way.eq(s.under_way + 1)
                m.next = "IDLE"

    def _complete(self, m: Module, s: State, node: Value) -> None:
        """Send the finished gather, whose value, place and index `cur` gets, to matching as one token."""
        m.d.sync += [s.cur.complete.eq(1), s.cur.multiplicity.eq(1), s.cur.wild.eq(0)]
        m.d.comb += [s.node_read.en.eq(1), s.node_read.addr.eq(node)]
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
