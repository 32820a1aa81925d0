"""A store and its backing memory as one: a record is found wherever it is; a set without room sends one to a chain."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import enum
from typing import Any, Protocol

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import LATENCY_BITS, Dimensions, key_layout
from upl_mlir.hw.core.stores.spill import Spill
from upl_mlir.hw.core.stores.store import Shape, Store


class Detour(enum.IntEnum):
    """What keeps a record from being there at once."""

    NONE = 0
    FIND = 1
    """The chain is searched."""
    PLACE = 2
    """What was found there comes into the set."""
    SWAP = 3
    """It changes places with a record of the set."""
    EVICT = 4
    """A record of the set goes to its chain, to make room."""
    WAIT = 5
    """A chain is being changed."""


def service_ports(d: Dimensions, shape: Shape) -> dict[str, Any]:
    """The ports of `Records` that the pipe round it hands on as they are: for looking, counting and settings."""
    return {
        "look_way": In(d.way_bits),
        "look_spilled": In(range(d.spill_words + 1)),
        "looked_key": Out(key_layout(d)),
        "looked_state": Out(shape.state),
        "used": Out(range(shape.sets * d.ways + d.spill_words + 2)),
        "spilled": Out(range(d.spill_words + 2)),
        "spilling": Out(1),
        "detouring": Out(1),
        "words": In(range(d.spill_words + 1), init=d.spill_words),
        "chain_mask": In(shape.chain_bits, init=-1),
        "cycles": In(LATENCY_BITS, init=d.backing_cycles),
        "last_way": In(d.way_bits, init=d.ways - 1),
    }


def record_ports(shape: Shape, key: data.StructLayout, way_bits: int) -> dict[str, Any]:
    """The ports by which a pipe finds and changes its records, see `Records`."""
    return {
        "address": In(shape.home_bits),
        "at": In(shape.home_bits),
        "key": In(key),
        "wanted": In(1),
        "fresh": In(1),
        "ready": Out(1),
        "evict": In(1),
        "full": Out(1),
        "still": In(1, init=1),
        "early": Out(1),
        "over": In(1),
        "hit": Out(1),
        "way": Out(way_bits),
        "free": Out(1),
        "free_way": Out(way_bits),
        "state": Out(shape.state),
        "values": Out(shape.contents),
        "write_way": In(way_bits),
        "write_key_en": In(1),
        "write_key": In(key),
        "write_state_en": In(1),
        "write_state": In(shape.state),
        "value_set": In(shape.set_bits),
        "value_way": In(way_bits),
        "write_value": In(shape.values),
        "write_values": In(shape.contents),
        "bringing": Out(1),
        "corrupt": Out(1),
    }


class RecordStore(Protocol):
    """What a pipe must know of its store: what it keeps, what its keys are, and the ports that it hands on as they are
    (`service`); besides, it has those of `record_ports`."""

    shape: Shape
    key_shape: data.StructLayout

    @property
    def service(self) -> dict[str, Any]:
        """Ports for looking, counting and settings, by name."""
        ...

    def elaborate(self, platform: object) -> Module:
        """The hardware."""
        ...

    def __getattr__(self, name: str) -> Any: ...


def handed_on(outer: Any, records: RecordStore) -> list[Any]:
    """The statements that connect `service` of a pipe with that of its records."""
    out: list[Any] = []
    for name, port in records.service.items():
        here, there = getattr(outer, name), getattr(records, name)
        out.append(here.eq(there) if port.flow is Out else there.eq(here))
    return out


class Records(wiring.Component):
    """Records by key.

    address (in): the home, set and chain, that is looked at in the next cycle; as long as ready (out) is 0 it must be `at`
    (in), the home that is looked at in this one. wanted (in): the record of `key` (in) is looked for; fresh (in): from the
    next cycle on it is another one. ready (out): it is known whether there is one (hit, way, state, values: out; else 0),
    and whether there is room in the set (free, free_way: out). evict (in): make room; ready is 0 until there is some; full
    (out): none can be made.
    still (in): records may be moved now. early (out), over (in): of stores where keys take turns at a place.
    write_* (in): as in `Store`, into the set `at`, values into `value_set`; only when ready.
    look_way, look_spilled (in): when nothing is wanted, the way, or the record of the backing memory if it is not 0, to look
    at; looked_key, looked_state (out), two cycles later.
    used, spilled (out): records in all, and in backing memory. spilling, detouring (out): a record goes there; one is waited
    for. bringing (out): the values' port is in use. corrupt (out): what is looked at has the wrong parity.
    words, cycles, chain_mask (in): see `Spill`;
    last_way (in): of the ways that are used.
    """

    def __init__(self, d: Dimensions, shape: Shape):
        self.d = d
        self.shape = shape
        self.key_shape = key_layout(d)
        super().__init__({**record_ports(shape, self.key_shape, d.way_bits), **self.service})

    @property
    def service(self) -> dict[str, Any]:
        """The ports that the pipe round it hands on as they are."""
        return service_ports(self.d, self.shape)

    def elaborate(self, platform: object) -> Module:
        """The store answers at once, unless it has not the record and the chain may have it."""
        d = self.d
        m = Module()
        m.submodules.store = store = Store(d, self.shape)
        m.submodules.spill = spill = Spill(d, self.shape)
        detour = Signal(Detour)
        victim, turn = Signal(d.way_bits), Signal(d.way_bits)
        searched = Signal()  # the chain does not have the record
        resting = Signal()
        found = spill.record
        bits = self.shape.set_bits
        (set_, chain), (at_set, at_chain) = ((home[:bits], home[bits:]) for home in (self.address, self.at))
        m.d.comb += [
            resting.eq(detour == Detour.NONE),
            store.address.eq(set_), store.key.eq(self.key), store.write_set.eq(at_set),
            store.by_way.eq(~self.wanted | (detour == Detour.SWAP) | (detour == Detour.EVICT)),
            store.chosen_way.eq(Mux(self.wanted, victim, self.look_way)),
            self.hit.eq(store.hit), self.way.eq(store.way), self.free.eq(store.free), self.free_way.eq(store.free_way),
            self.state.eq(store.state), self.values.eq(store.values),
            store.write_way.eq(self.write_way), store.write_key_en.eq(self.write_key_en),
            store.write_key.eq(self.write_key), store.write_state_en.eq(self.write_state_en),
            store.write_state.eq(self.write_state), store.write_value.eq(self.write_value),
            store.write_values.eq(self.write_values), store.value_set.eq(self.value_set),
            store.value_way.eq(self.value_way),
            spill.address.eq(chain), spill.at.eq(at_chain), spill.key.eq(self.key),
            spill.look.eq(self.look_spilled),
            spill.given.key.eq(store.found_key), spill.given.state.eq(store.state), spill.given["values"].eq(store.values),
            store.last_way.eq(self.last_way), spill.words.eq(self.words), spill.cycles.eq(self.cycles),
            spill.chain_mask.eq(self.chain_mask),
            self.looked_key.eq(Mux(self.look_spilled != 0, spill.looked.key.as_value(), store.found_key.as_value())),
            self.looked_state.eq(Mux(self.look_spilled != 0, spill.looked.state.as_value(), store.state.as_value())),
            self.used.eq(store.used + spill.used), self.spilled.eq(spill.used), self.full.eq(spill.full),
            self.spilling.eq(spill.insert), self.detouring.eq(~resting), self.corrupt.eq(store.corrupt & self.wanted),
            self.ready.eq(resting & (~self.wanted | store.hit | ~spill.any | searched)),
        ]  # fmt: skip
        choose = [victim.eq(turn), turn.eq(Mux(turn == self.last_way, 0, turn + 1))]
        bring = [
            self.bringing.eq(1), store.write_key_en.eq(1), store.write_state_en.eq(1), store.write_value.eq(~0),
            store.write_key.eq(found.key), store.write_state.eq(found.state), store.write_values.eq(found["values"]),
            store.value_set.eq(at_set),
        ]  # fmt: skip
        with m.If(self.fresh):
            m.d.sync += searched.eq(0)
        with m.Switch(detour):
            with m.Case(Detour.NONE):
                with m.If(~self.ready):
                    m.d.comb += spill.find.eq(1)
                    m.d.sync += detour.eq(Detour.FIND)
                with m.Elif(self.evict & self.still & ~spill.full):
                    m.d.sync += [*choose, detour.eq(Detour.EVICT)]
            with m.Case(Detour.FIND), m.If(spill.done):
                m.d.sync += [searched.eq(~spill.found), detour.eq(Mux(spill.found, Detour.PLACE, Detour.NONE))]
            with m.Case(Detour.PLACE):
                with m.If(store.free):
                    m.d.comb += [
                        *bring, store.write_way.eq(store.free_way), store.value_way.eq(store.free_way), spill.remove.eq(1)
                    ]
                    m.d.sync += detour.eq(Detour.WAIT)
                with m.Elif(self.still):
                    m.d.sync += [*choose, detour.eq(Detour.SWAP)]
            with m.Case(Detour.SWAP):
                m.d.comb += [
                    *bring, store.write_way.eq(victim), store.value_way.eq(victim), store.write_over.eq(1),
                    spill.replace.eq(1),
                ]  # fmt: skip
                m.d.sync += detour.eq(Detour.WAIT)
            with m.Case(Detour.EVICT):
                m.d.comb += [
                    spill.insert.eq(1), store.write_way.eq(victim), store.write_key_en.eq(1),
                    store.write_key.valid.eq(0),
                ]  # fmt: skip
                m.d.sync += detour.eq(Detour.WAIT)
            with m.Case(Detour.WAIT), m.If(~spill.busy):
                m.d.sync += detour.eq(Detour.NONE)
        return m
