"""The ways of a record between its set of the store and the set's chain in backing memory."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Value

from upl_mlir.hw.core.phases import Detour
from upl_mlir.hw.core.spill import Spill
from upl_mlir.hw.core.store import Store


def detours(
    m: Module, store: Store, spill: Spill, detour: Value, victim: Value, searched: Value, hold: Value
) -> None:
    """The ways of a record between its set and the set's chain."""
    found = spill.record
    bring = [
        store.write_key_en.eq(1), store.write_state_en.eq(1), store.write_value.eq(~0), store.write_key.eq(found.key),
        store.write_state.eq(found.state), store.write_values.eq(found["values"]),
    ]  # fmt: skip
    with m.Switch(detour):
        with m.Case(Detour.FIND):
            m.d.comb += hold.eq(1)
            with m.If(spill.done):
                m.d.sync += [searched.eq(~spill.found), detour.eq(Mux(spill.found, Detour.PLACE, Detour.NONE))]
        with m.Case(Detour.PLACE):
            m.d.comb += hold.eq(1)
            with m.If(store.free):
                m.d.comb += [*bring, store.write_way.eq(store.free_way), spill.remove.eq(1)]
                m.d.sync += detour.eq(Detour.WAIT)
            with m.Elif(store.movable):
                m.d.sync += [victim.eq(store.movable_way), detour.eq(Detour.SWAP)]
            with m.Else():
                m.d.sync += detour.eq(Detour.RESULT)
        with m.Case(Detour.SWAP):
            m.d.comb += [hold.eq(1), *bring, store.write_way.eq(victim), store.write_over.eq(1), spill.replace.eq(1)]
            m.d.sync += detour.eq(Detour.NONE)
        with m.Case(Detour.EVICT):
            m.d.comb += [
                hold.eq(1), spill.insert.eq(1), store.write_way.eq(victim), store.write_key_en.eq(1),
                store.write_key.valid.eq(0),
            ]  # fmt: skip
            m.d.sync += detour.eq(Detour.WAIT)
        with m.Case(Detour.WAIT):
            m.d.comb += hold.eq(1)
            with m.If(~spill.busy):
                m.d.sync += detour.eq(Detour.NONE)
