"""What the probe stage does with summands and with results of the reducer."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value

from upl_mlir.hw.core.inplace import InPlace
from upl_mlir.hw.core.layouts import LAST_PIPELINED, Dimensions, Failure
from upl_mlir.hw.core.phases import Phase
from upl_mlir.hw.core.reducer import Reducer
from upl_mlir.hw.core.store import Store


def gather(
    m: Module, d: Dimensions, store: Store, reducer: Reducer, inplace: InPlace, current: Value, phase: Value, row: Value,
    at_set: Value, at_way: Value, result_value: Value, result_overflow: Value, ride: Value, failing: Value,
    allocate: object, complete: object,
) -> None:  # fmt: skip
    """A summand, a result of the reducer, or both at once, meet the record of their gather.

    One value is kept; of two both go to the reducer; of three one is kept.
    """
    assert callable(allocate)
    assert callable(complete)
    state = store.state
    returning = phase == Phase.RESULT
    mode = Signal(4)
    m.d.comb += mode.eq(Mux(returning, state.mode, row.modes[current.input]))
    pipelined = mode <= LAST_PIPELINED
    held = store.values[0]
    rides = Signal()
    m.d.comb += rides.eq(
        ~returning & store.hit & reducer.valid & (reducer.result_place.set == at_set)
        & (reducer.result_place.way == store.way)
    )  # fmt: skip
    incoming = Mux(returning, result_value, current.value)
    m.d.comb += [reducer.mode.eq(mode), reducer.place.set.eq(at_set),
                 reducer.place.way.eq(Mux(returning, at_way, store.way)),
                 inplace.mode.eq(mode), inplace.left.eq(held), inplace.right.eq(current.value)]  # fmt: skip
    has = state.present[0]
    begin = Signal()
    value, keeps = Signal(32), Signal()
    m.d.comb += [reducer.left.eq(held), reducer.right.eq(incoming), value.eq(incoming), keeps.eq(1)]
    with m.If(pipelined):
        with m.If(rides):
            m.d.comb += [begin.eq(1), reducer.left.eq(reducer.result), value.eq(held), keeps.eq(has)]
        with m.Elif(has):
            m.d.comb += [begin.eq(1), keeps.eq(0)]
    with m.Else():
        m.d.comb += value.eq(inplace.result)
    left, pending = Signal(d.multiplicity_bits), Signal(d.pending_bits)
    # A summand that does not know the number of summands counts down from 0, modulo; the one that does adds what is missing.
    unknown = current.multiplicity == d.unbounded
    tells = ~returning & ~unknown & (state.total == 0)
    total = Signal(d.multiplicity_bits)
    m.d.comb += [
        total.eq(Mux(tells, current.multiplicity, state.total)),
        left.eq(state.left - ~returning + Mux(tells, current.multiplicity, 0)),
        pending.eq(state.pending + begin - (rides | returning)),
    ]
    wrong = ~unknown & (state.total != 0) & ((state.total != current.multiplicity) | (state.left == 0))

    with m.If(~returning & ((row.plain >> current.input) & 1 == 0)):
        m.d.comb += failing.eq(Failure.BAD_TOKEN)
    with m.Elif(~returning & (current.multiplicity == 0)):
        m.d.comb += failing.eq(Failure.BAD_TOKEN)
    with m.Elif(~returning & ~store.hit):
        with m.If(current.multiplicity == 1):
            complete(current.node, current.input, current.tag, current.value)
        with m.Else():
            m.d.comb += [
                store.write_state.left.eq(Mux(unknown, 0, current.multiplicity) - 1),
                store.write_state.total.eq(Mux(unknown, 0, current.multiplicity)),
                store.write_state.mode.eq(mode), store.write_state.present.eq(1), store.write_state.pending.eq(0),
                store.write_values[0].eq(current.value),
            ]  # fmt: skip
            allocate()
    with m.Elif(~returning & wrong):
        m.d.comb += failing.eq(Failure.COUNT)
    with m.Elif((~pipelined & inplace.overflow) | (rides & reducer.overflow) | (returning & result_overflow)):
        m.d.comb += failing.eq(Failure.OVERFLOW)
    with m.Else():
        m.d.comb += [reducer.begin.eq(begin), ride.eq(rides)]
        m.d.comb += store.write_way.eq(Mux(returning, at_way, store.way))
        with m.If((left == 0) & (pending == 0) & (total != 0)):
            m.d.comb += [store.write_key_en.eq(1), store.write_key.valid.eq(0)]
            found = store.found_key
            complete(found.node, found["class"][: d.input_bits], found.tag, value)
        with m.Else():
            m.d.comb += [
                store.write_state_en.eq(1), store.write_state.left.eq(left), store.write_state.total.eq(total),
                store.write_state.pending.eq(pending), store.write_state.present.eq(keeps),
                store.write_values[0].eq(value), store.write_value.eq(1),
            ]  # fmt: skip
