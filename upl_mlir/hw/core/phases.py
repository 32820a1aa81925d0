"""The states of the probe stage, and what its parts share."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import enum

from amaranth.hdl import Module, Mux, Signal, Value

from upl_mlir.hw.core.layouts import WALK_LEVELS, Dimensions


class Phase(enum.IntEnum):
    """What the record that has just been read is for."""

    FIRE = 0
    """No record is needed: the token alone makes the firing."""
    COUNTED = 1
    """The record of a counted input."""
    SHARED = 2
    """The record that the plain inputs share."""
    COMMIT = 3
    """A counted record that a firing has used, to be counted down."""
    OWN = 4
    """Where a counted token stores itself."""
    GATHER = 5
    """The record of the gather that a summand belongs to."""
    RESULT = 6
    """The record that a result of the reducer belongs to."""


class Detour(enum.IntEnum):
    """What keeps the probe stage from going on with its token."""

    NONE = 0
    FIND = 1
    """The chain of the set is searched."""
    PLACE = 2
    """What was found there comes into the set."""
    SWAP = 3
    """It changes places with a record of the set."""
    EVICT = 4
    """A record of the set goes to the chain, to make room."""
    WAIT = 5
    """The chain is being changed."""
    RESULT = 6
    """Operations are under way for all records of the set: one of their results is taken first."""
    INTERLUDE = 7
    """It is being taken."""


def used_once(multiplicity: Value, d: Dimensions) -> Value:
    """The multiplicity after one use; unbounded stays."""
    return Mux(multiplicity == d.unbounded, multiplicity, (multiplicity - 1)[: d.multiplicity_bits])


def first_probe(
    m: Module, d: Dimensions, of: Value, own_bit: Value, at: Value, names: str, input_number: Value
) -> dict[str, Signal]:
    """The first probe for a token that is joined at an index."""
    others = Signal(d.max_inputs, name=f"{names}_others")
    shared = Signal(name=f"{names}_shared")
    m.d.comb += others.eq(of.counted & ~own_bit)
    m.d.comb += shared.eq((of.plain & ~own_bit) != 0)
    out = {
        "phase": Signal(Phase, name=f"{names}_phase"),
        "class": Signal(d.class_bits, name=f"{names}_class"),
        "tag": Signal(d.tag_bits, name=f"{names}_tag"),
        "todo": Signal(d.max_inputs, name=f"{names}_todo"),
        "input": Signal(d.input_bits, name=f"{names}_input"),
    }
    m.d.comb += [out["phase"].eq(Mux(shared, Phase.SHARED, Phase.FIRE)), out["class"].eq(d.max_inputs),
                 out["tag"].eq(at), out["input"].eq(input_number)]  # fmt: skip
    for i in reversed(range(d.max_inputs)):
        with m.If(others[i]):
            m.d.comb += [
                out["phase"].eq(Phase.COUNTED), out["class"].eq(i), out["input"].eq(i),
                out["tag"].eq(at & of.keys[i]), out["todo"].eq(others & ~(1 << i)),
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
