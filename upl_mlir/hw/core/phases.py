"""The states of the join pipe's probe stage, what its stages share, and what a state may do."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

from upl_mlir.hw.core.layouts import (
    WALK_LEVELS,
    Dimensions,
    Failure,
    key_layout,
    node_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.stores.presence import ROW_BITS
from upl_mlir.hw.core.stores.records import Records


class Phase(enum.IntEnum):
    """What the record that has just been read is for."""

    FIRE = 0
    """No record is needed: the token alone makes the firing."""
    COUNTED = 1
    """The record of a counted input."""
    SHARED = 2
    """The record that the plain inputs share."""
    COMMIT = 3
    """A record that a firing has used: a counted one to be counted down, or the shared one."""
    OWN = 4
    """Where a counted token stores itself."""


def used_once(multiplicity: Value, d: Dimensions) -> Value:
    """The multiplicity after one use; unbounded stays."""
    return Mux(multiplicity == d.unbounded, multiplicity, (multiplicity - 1)[: d.multiplicity_bits])


def first_probe(
    m: Module, d: Dimensions, of: Value, own_bit: Value, at: Value, names: str, input_number: Value, homes: list[Value]
) -> dict[str, Signal]:
    """The first probe for a token that is joined at an index. `homes`: that of each class of records at this index."""
    others = Signal(d.max_inputs, name=f"{names}_others")
    shared, first = Signal(name=f"{names}_shared"), Signal(name=f"{names}_first")
    m.d.comb += [
        others.eq(of.counted & ~own_bit), shared.eq((of.plain & ~own_bit) != 0),
        # Plain tokens of one instance meet before they look for counted ones.
        first.eq(shared & ((of.plain & own_bit) != 0)),
    ]  # fmt: skip
    out = {
        "phase": Signal(Phase, name=f"{names}_phase"),
        "class": Signal(d.class_bits, name=f"{names}_class"),
        "tag": Signal(d.tag_bits, name=f"{names}_tag"),
        "todo": Signal(d.max_inputs, name=f"{names}_todo"),
        "input": Signal(d.input_bits, name=f"{names}_input"),
        "home": Signal(len(homes[0]), name=f"{names}_home"),
    }
    m.d.comb += [out["phase"].eq(Mux(shared, Phase.SHARED, Phase.FIRE)), out["class"].eq(d.max_inputs),
                 out["tag"].eq(at), out["input"].eq(input_number), out["home"].eq(homes[d.max_inputs])]  # fmt: skip
    for i in reversed(range(d.max_inputs)):
        with m.If(others[i] & ~first):
            m.d.comb += [
                out["phase"].eq(Phase.COUNTED), out["class"].eq(i), out["input"].eq(i),
                out["tag"].eq(at & of.keys[i]), out["todo"].eq(others & ~(1 << i)), out["home"].eq(homes[i]),
            ]  # fmt: skip
    return out


def next_index(m: Module, d: Dimensions, walk: Value, place: Value) -> tuple[Signal, Signal]:
    """The index after `place` in the walk of a token with open fields, and whether `place` is the last one."""
    onward, last = Signal(d.tag_bits, name="onward"), Signal(name="last")
    first, second = (walk.levels[n] for n in range(WALK_LEVELS))
    ends = [(place & level.mask) == level.last for level in (first, second)]
    m.d.comb += last.eq(ends[0] & ends[1])
    with m.If(~ends[0]):
        m.d.comb += onward.eq(place + first.step)
    with m.Else():
        m.d.comb += onward.eq((place & ~first.mask) + Mux(ends[1], 0, second.step))
    return onward, last


class JoinStages:
    """What the stages of the join pipe share: the fetched token, the registers of the probe stage, what it decides."""

    def __init__(self, d: Dimensions, records: Records):
        token = token_layout(d)
        self.stopped = Signal()
        self.waiting = Signal(token)  # the token whose rows are there
        self.waiting_valid = Signal()
        self.begin = Signal()  # it moves on to the probes
        # the probe stage: registers
        self.working = Signal()
        self.current, self.row, self.walk = Signal(token), Signal(node_layout(d)), Signal(walk_layout(d))
        self.home_row = Signal(ROW_BITS)  # where the partners of the token are counted
        self.phase = Signal(Phase)
        self.key = Signal(key_layout(d))  # what the record just read is compared with
        self.home = Signal(records.shape.home_bits)  # its set and its chain
        self.todo = Signal(d.max_inputs)  # counted inputs yet to be probed
        self.input_now = Signal(d.input_bits)
        self.values = Signal(data.ArrayLayout(32, d.max_inputs))
        self.missed = Signal()
        self.joined = Signal()  # the token is in its shared record, which is whole
        self.place = Signal(d.tag_bits)  # the full index that is being tried
        # Records that a firing uses, besides the last one: those of counted inputs, and last the shared one.
        self.saved_valid = Signal(d.max_inputs + 1)
        # what the probe stage decides
        self.left_after = Signal(d.multiplicity_bits)  # of the current token after a firing in this cycle
        self.again = Signal()  # another probe for the same token
        self.next_phase = Signal(Phase)
        # The record that is next: of a counted input, the shared one, the token's own, the first one at the next index. That
        # is known late; what these are, and their homes, early.
        self.choice = Signal(d.max_inputs + 3)
        self.of_shared, self.of_own, self.of_onward = d.max_inputs, d.max_inputs + 1, d.max_inputs + 2
        self.next_place = Signal(d.tag_bits)
        self.next_todo = Signal(d.max_inputs)
        self.next_input = Signal(d.input_bits)
        self.hold = Signal()  # nothing can be done in this cycle
        self.finish = Signal()
        self.fire = Signal()
        self.fired_values = Signal(data.ArrayLayout(32, d.max_inputs))
        self.failing = Signal(Failure)
        self.own = Signal(d.max_inputs)  # the bit of the token's input
        self.counted_token = Signal()
        self.own_class = Signal(d.class_bits)
        self.hopeless = Signal()  # another input of the node has no token at all
        # what is written to the record, if it is known by now what there is
        self.write_key_en, self.write_state_en, self.write_value = Signal(), Signal(), Signal.like(records.write_value)


@dataclass
class Ahead:
    """The index after the one that is tried: `place`; the first probe there; `last`: there is none."""

    place: Value
    last: Value
    first: dict[str, Signal]


class Actions:
    """What a phase of the probe stage may do; every method adds to the case of the phase in which it is called."""

    def __init__(self, m: Module, d: Dimensions, s: JoinStages, records: Records, activation: Any, ahead: Ahead):
        self.m, self.d, self.s, self.records, self.activation, self.ahead = m, d, s, records, activation, ahead

    def walk_on(self) -> None:
        """After an index has been tried: the next one, or store what is left, or be done."""
        m, s = self.m, self.s
        with m.If(s.left_after != 0):
            with m.If(self.ahead.last | s.hopeless):
                m.d.comb += [s.again.eq(1), s.next_phase.eq(Phase.OWN), s.choice.eq(1 << s.of_own)]
            with m.Else():
                first = self.ahead.first
                m.d.comb += [s.again.eq(1), s.next_phase.eq(first["phase"]), s.choice.eq(1 << s.of_onward),
                             s.next_todo.eq(first["todo"]), s.next_place.eq(self.ahead.place)]  # fmt: skip

    def commit_next(self, pending: Value) -> None:
        """Write back the records that a firing has used, or go on if there are none."""
        m, s = self.m, self.s
        with m.If(pending != 0):
            m.d.comb += [s.again.eq(1), s.next_phase.eq(Phase.COMMIT), s.choice.eq(pending & (~pending + 1))]
        with m.Elif(s.counted_token):
            self.walk_on()

    def attempt_fire(self) -> Value:
        """Offer the activation; the value says whether it was taken."""
        m, s, activation = self.m, self.s, self.activation
        m.d.comb += [s.fire.eq(1), s.hold.eq(~activation.ready)]
        with m.If(activation.ready & s.counted_token):
            m.d.comb += s.left_after.eq(used_once(s.current.multiplicity, self.d))
        return activation.ready

    def probe_counted(self, these: Value) -> None:
        """The record of the first of some counted inputs is next."""
        m, s = self.m, self.s
        lowest = these & (~these + 1)
        m.d.comb += [
            s.again.eq(1), s.next_phase.eq(Phase.COUNTED), s.choice.eq(lowest), s.next_todo.eq(these & ~lowest),
        ]  # fmt: skip

    def free_record(self) -> None:
        """The record that has been read is used up."""
        m, s, records = self.m, self.s, self.records
        m.d.comb += [s.write_key_en.eq(1), records.write_key.valid.eq(0)]

    def note(self, *statements: object) -> None:
        """What is remembered of a probe, once it is known what there is."""
        m, records = self.m, self.records
        with m.If(records.ready):
            m.d.sync += statements

    def allocate(self) -> None:
        """Take a free way for the key; there must be no hit."""
        m, s, records = self.m, self.s, self.records
        with m.If(records.free):
            m.d.comb += [s.write_key_en.eq(1), s.write_state_en.eq(1), s.write_value.eq(~0)]
        with m.Else():
            m.d.comb += [s.hold.eq(1), records.evict.eq(1)]
            with m.If(records.full):
                m.d.comb += s.failing.eq(Failure.FULL)
