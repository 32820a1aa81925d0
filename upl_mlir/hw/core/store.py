"""The set-associative store of a core: block RAM, read and compared in one cycle, written in the next.

The write port is transparent for the read port, so that a read sees the write of the same cycle: whoever reads, decides
and writes one set after the other never works on an old record.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import VALUE_BITS, Dimensions, key_layout, state_layout


class Store(wiring.Component):
    """Records in sets of ways.

    address (in): the set to read; in the next cycle the rest of the read's ports speak of it.
    key (in): what is looked for then; hit, way (out): whether and where it is; free, free_way (out): room in the set.
    by_way, chosen_way (in): take that way instead of comparing.
    state, values (out): the record that was found or chosen.
    write_*: at the end of the cycle, into `write_way` of the set `write_set`: the key, the state, and those values that
    `write_value` selects, each if its enable is 1.
    used (out): records in the store.
    movable, movable_way (out): a record of the set that may be moved: no operation is under way for it.
    write_over (in, 1): the key that is written takes the place of another one.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        values = data.ArrayLayout(VALUE_BITS, d.max_inputs)
        super().__init__(
            {
                "address": In(d.set_bits),
                "key": In(key_layout(d)),
                "hit": Out(1),
                "way": Out(d.way_bits),
                "free": Out(1),
                "free_way": Out(d.way_bits),
                "movable": Out(1),
                "movable_way": Out(d.way_bits),
                "by_way": In(1),
                "chosen_way": In(d.way_bits),
                "found_key": Out(key_layout(d)),
                "state": Out(state_layout(d)),
                "values": Out(values),
                "write_set": In(d.set_bits),
                "write_way": In(d.way_bits),
                "write_over": In(1),
                "write_key_en": In(1),
                "write_key": In(key_layout(d)),
                "write_state_en": In(1),
                "write_state": In(state_layout(d)),
                "write_value": In(d.max_inputs),
                "write_values": In(values),
                "used": Out(range(d.sets * d.ways + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Three memories a way: keys, states, values."""
        d = self.d
        m = Module()
        values = data.ArrayLayout(VALUE_BITS, d.max_inputs)
        hits, free, keys, states, contents = [], [], [], [], []
        for w in range(d.ways):
            here = self.write_way == w
            parts = (
                ("keys", key_layout(d), self.write_key, self.write_key_en & here, keys),
                ("states", state_layout(d), self.write_state, self.write_state_en & here, states),
                ("values", values, self.write_values, Mux(here, self.write_value, 0), contents),
            )
            for name, shape, written, enable, out in parts:
                memory = Memory(shape=shape, depth=d.sets, init=[])
                m.submodules[f"{name}{w}"] = memory
                write = memory.write_port(granularity=1) if name == "values" else memory.write_port()
                read = memory.read_port(transparent_for=(write,))
                m.d.comb += [
                    write.addr.eq(self.write_set),
                    write.data.eq(written),
                    write.en.eq(enable),
                    read.addr.eq(self.address),
                    read.en.eq(1),
                ]
                out.append(read.data)
            hit = Signal(name=f"hit{w}")
            m.d.comb += hit.eq(keys[w].valid & (keys[w].as_value()[1:] == self.key.as_value()[1:]))
            hits.append(hit)
            free.append(~keys[w].valid)
        chosen = Signal(d.ways)
        m.d.comb += [
            self.hit.eq(Cat(*hits) != 0),
            self.free.eq(Cat(*free) != 0),
            chosen.eq(Mux(self.by_way, 1 << self.chosen_way, Cat(*hits))),
        ]
        for w in reversed(range(d.ways)):
            with m.If(free[w]):
                m.d.comb += self.free_way.eq(w)
            with m.If(hits[w]):
                m.d.comb += self.way.eq(w)
            with m.If(keys[w].valid & (states[w].pending == 0)):
                m.d.comb += [self.movable.eq(1), self.movable_way.eq(w)]
        for out, found in ((self.found_key, keys), (self.state, states), (self.values, contents)):
            picked = 0
            for w in range(d.ways):
                picked = picked | Mux(chosen[w], found[w].as_value(), 0)
            m.d.comb += out.as_value().eq(picked)
        # Records are written where they were found, or into a free way: so the count follows from the keys written.
        with m.If(self.write_key_en & ~self.write_over):
            m.d.sync += self.used.eq(self.used + Mux(self.write_key.valid, 1, -1))
        return m
