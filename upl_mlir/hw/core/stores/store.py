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

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import VALUE_BITS, Dimensions, key_layout
from upl_mlir.hw.core.stores.ram import ram


@dataclass(frozen=True)
class Shape:
    """What a store holds: the number of its sets, the part of a record that is counted, the number of its values; in how
    many chains its backing memory keeps records, 0 without one."""

    sets: int
    state: data.StructLayout
    values: int
    chains: int = 0

    @property
    def set_bits(self) -> int:
        """Width of the number of a set."""
        return max(1, bits_for(self.sets - 1))

    @property
    def chain_bits(self) -> int:
        """Width of the number of a chain."""
        return bits_for(self.chains - 1) if self.chains else 0

    @property
    def home_bits(self) -> int:
        """Width of what says where a record may be: its set and, above it, its chain."""
        return self.set_bits + self.chain_bits

    @property
    def contents(self) -> data.ArrayLayout:
        """The values of a record."""
        return data.ArrayLayout(VALUE_BITS, self.values)

    def record(self, d: Dimensions) -> data.StructLayout:
        """A whole record."""
        return data.StructLayout({"key": key_layout(d), "state": self.state, "values": self.contents})


def join_shape(d: Dimensions) -> Shape:
    """Records of waiting tokens: `left`, the multiplicity; for a shared record the inputs that are `present`."""
    state = data.StructLayout({"left": d.multiplicity_bits, "present": d.max_inputs})
    return Shape(d.sets, state, d.max_inputs, d.chains)


def gather_shape(d: Dimensions) -> Shape:
    """Records of open gathers: the summands yet to come (`left`), and their number if it is known (`total`, else 0)."""
    state = {"left": d.multiplicity_bits, "total": d.multiplicity_bits}
    return Shape(d.gather_sets or d.sets, data.StructLayout(state), 1, d.chains)


class Store(wiring.Component):
    """Records in sets of ways.

    address (in): the set to read; in the next cycle the rest of the read's ports speak of it.
    key (in): what is looked for then; hit, way (out): whether and where it is; free, free_way (out): room in the set.
    by_way, chosen_way (in): take that way instead of comparing.
    found_key, state, values (out): the record that was found or chosen.
    write_*: at the end of the cycle, into `write_way` of the set `write_set`: the key and the state, each if its enable is
    1; and into `value_way` of the set `value_set` those values that `write_value` selects.
    used (out): records in the store.
    corrupt (out): a key of the set, or the record that was found or chosen, has the wrong parity.
    last_way (in): of the ways that are used.
    write_over (in, 1): the key that is written takes the place of another one.
    """

    def __init__(self, d: Dimensions, shape: Shape | None = None):
        self.d = d
        self.shape = shape = shape or join_shape(d)
        super().__init__(
            {
                "address": In(shape.set_bits),
                "key": In(key_layout(d)),
                "hit": Out(1),
                "way": Out(d.way_bits),
                "free": Out(1),
                "free_way": Out(d.way_bits),
                "by_way": In(1),
                "chosen_way": In(d.way_bits),
                "found_key": Out(key_layout(d)),
                "state": Out(shape.state),
                "values": Out(shape.contents),
                "write_set": In(shape.set_bits),
                "write_way": In(d.way_bits),
                "write_over": In(1),
                "write_key_en": In(1),
                "write_key": In(key_layout(d)),
                "write_state_en": In(1),
                "write_state": In(shape.state),
                "value_set": In(shape.set_bits),
                "value_way": In(d.way_bits),
                "write_value": In(shape.values),
                "write_values": In(shape.contents),
                "used": Out(range(shape.sets * d.ways + 1)),
                "corrupt": Out(1),
                "last_way": In(d.way_bits, init=d.ways - 1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A memory a way for keys, for states and for each value: narrow ones, which need no enables of their parts."""
        d = self.d
        m = Module()
        n = self.shape.values
        hits, free, keys, states, contents, broken = [], [], [], [], [], []
        for w in range(d.ways):
            here = self.write_way == w
            parts = [
                ("keys", key_layout(d), self.write_set, self.write_key, self.write_key_en & here),
                ("states", self.shape.state, self.write_set, self.write_state, self.write_state_en & here),
            ]
            parts += [
                (f"values{k}_", VALUE_BITS, self.value_set, self.write_values[k],
                 self.write_value[k] & (self.value_way == w)) for k in range(n)
            ]  # fmt: skip
            out, odd = [], []
            for name, shape, where, written, enable in parts:
                part = ram(m, d, f"{name}{w}", shape, self.shape.sets)
                m.d.comb += [
                    part.place.eq(where), part.writes.eq(enable), part.written.eq(written), part.address.eq(self.address)
                ]
                out.append(part.found)
                odd.append(part.corrupt)
            broken.append(odd)
            keys.append(out[0])
            states.append(out[1])
            contents.append(out[2:])
            hit = Signal(name=f"hit{w}")
            m.d.comb += hit.eq(keys[w].valid & (keys[w].as_value()[1:] == self.key.as_value()[1:]))
            hits.append(hit)
            free.append(~keys[w].valid & (self.last_way >= w))
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

        def pick(found: list[object]) -> object:
            picked = 0
            for w in range(d.ways):
                picked = picked | Mux(chosen[w], found[w], 0)
            return picked

        m.d.comb += [
            self.found_key.as_value().eq(pick([k.as_value() for k in keys])),
            self.state.as_value().eq(pick([s.as_value() for s in states])),
            *(self.values[k].eq(pick([c[k] for c in contents])) for k in range(n)),
        ]
        chosen_broken = [chosen[w] & Cat(*odd[1:]).any() for w, odd in enumerate(broken)]
        m.d.comb += self.corrupt.eq(Cat(*(odd[0] for odd in broken), *chosen_broken).any())
        # Records are written where they were found, or into a free way: so the count follows from the keys written.
        with m.If(self.write_key_en & ~self.write_over):
            m.d.sync += self.used.eq(self.used + Mux(self.write_key.valid, 1, -1))
        return m
