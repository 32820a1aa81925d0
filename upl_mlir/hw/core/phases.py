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
    """A record that a firing has used: a counted one to be counted down, or the shared one."""
    OWN = 4
    """Where a counted token stores itself."""


def used_once(multiplicity: Value, d: Dimensions) -> Value:
    """The multiplicity after one use; unbounded stays."""
    return Mux(multiplicity == d.unbounded, multiplicity, (multiplicity - 1)[: d.multiplicity_bits])


def first_probe(
    m: Module, d: Dimensions, of: Value, own_bit: Value, at: Value, names: str, input_number: Value, sets: list[Value]
) -> dict[str, Signal]:
    """The first probe for a token that is joined at an index. `sets`: that of each class of records at this index."""
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
        "set": Signal(len(sets[0]), name=f"{names}_set"),
    }
    m.d.comb += [out["phase"].eq(Mux(shared, Phase.SHARED, Phase.FIRE)), out["class"].eq(d.max_inputs),
                 out["tag"].eq(at), out["input"].eq(input_number), out["set"].eq(sets[d.max_inputs])]  # fmt: skip
    for i in reversed(range(d.max_inputs)):
        with m.If(others[i] & ~first):
            m.d.comb += [
                out["phase"].eq(Phase.COUNTED), out["class"].eq(i), out["input"].eq(i),
                out["tag"].eq(at & of.keys[i]), out["todo"].eq(others & ~(1 << i)), out["set"].eq(sets[i]),
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
