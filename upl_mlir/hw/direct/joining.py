"""Joins: a token meets its partners, all of them in one cycle, an index a cycle.

Each input has a bank of its own, read and written at an address of its own. A token is taken through the indices that it
covers; at each of them it fires if every other input has a token there, and all of them are counted down at once. What is
left of it is stored with the last index. The stage that computes addresses is one index ahead of the one that decides.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from functools import reduce
from operator import add, or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import VALUE_BITS, WALK_LEVELS, Dimensions, Failure, activation_layout, token_layout
from upl_mlir.hw.core.phases import used_once
from upl_mlir.hw.core.ram import ram
from upl_mlir.hw.direct.fetch import Fetch
from upl_mlir.hw.direct.lanes import LANE, lanes_of
from upl_mlir.hw.direct.late import MANY, put_off
from upl_mlir.hw.direct.layouts import GENERATION_BITS, entry_layout, join_rank_layout, join_row_layout, row_bits
from upl_mlir.hw.direct.rank import local, outside, rank


class Joins(wiring.Component):
    """token (in stream), activation (out stream).

    node_*, rank_*: writes to the two tables. failure, failing (out): why it has stopped, and with which token; stop (in): it
    must not go on. idle (out). used (out): tokens that wait. trying (out): an index is tried; walking (out): it is not the
    token's first; waiting (out): a firing waits for `activation`; late (out): a token is put off, as its place is for an
    earlier generation; crowded (out): many are. look, look_bank (in): at rest, a place of a bank; looked (out): how often
    its token will be used, 0 if there is none, two cycles later, and with it looked_second and looked_generation.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(d))),
                "activation": Out(stream.Signature(activation_layout(d))),
                "node_en": In(1),
                "node_address": In(d.node_bits),
                "node_data": In(join_row_layout(d)),
                "rank_en": In(1),
                "rank_address": In(row_bits(d)),
                "rank_data": In(join_rank_layout(d)),
                "failure": Out(Failure),
                "failing": Out(token_layout(d)),
                "stop": In(1),
                "idle": Out(1),
                "used": Out(range(d.sets * d.max_inputs + 1)),
                "trying": Out(1),
                "walking": Out(1),
                "waiting": Out(1),
                "late": Out(1),
                "crowded": Out(1),
                "look": In(d.set_bits),
                "look_bank": In(range(d.max_inputs + 1)),
                "looked": Out(d.multiplicity_bits),
                "looked_second": Out(1),
                "looked_generation": Out(GENERATION_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The rows of the token, then a stage of addresses and one of decisions."""
        d = self.d
        m = Module()
        token, inputs = token_layout(d), range(d.max_inputs)
        m.submodules.fetch = fetch = Fetch(d, join_row_layout(d), join_rank_layout(d))
        m.d.comb += [
            fetch.node_en.eq(self.node_en), fetch.node_address.eq(self.node_address), fetch.node_data.eq(self.node_data),
            fetch.rank_en.eq(self.rank_en), fetch.rank_address.eq(self.rank_address), fetch.rank_data.eq(self.rank_data),
        ]  # fmt: skip
        late = put_off(m, d, self.token, fetch.token)
        m.d.comb += [self.late.eq(late.w_valid), self.crowded.eq(late.level > MANY)]
        coming = fetch.found.payload
        load = Signal()  # the address stage takes the token whose ranks are there
        m.d.comb += fetch.found.ready.eq(load)

        # ---- addresses: one index of the token after the other
        here, row, ranks = Signal(token), Signal(join_row_layout(d)), Signal(join_rank_layout(d))
        here_valid, here_first, here_there = Signal(), Signal(), Signal()
        place = Signal(d.tag_bits)
        onward, last = _next(m, d, row.walks[here.input], place, ranks)
        wrong = outside(m, d, place, ranks.least, ranks.greatest, row.find.joined, "outside")
        kept, generation = local(m, d, row, place, "here")
        addresses = [rank(m, d, kept, ranks.banks[i].base, ranks.banks[i].weights, f"address{i}") for i in inputs]

        # ---- decisions: what is there
        now, now_place, left = Signal(token), Signal(d.tag_bits), Signal(d.multiplicity_bits)
        now_valid, now_last, now_first, now_wrong = Signal(), Signal(), Signal(), Signal()
        merged, waits, moves_on, age = Signal(), Signal(), Signal(), Signal(GENERATION_BITS)
        now_inputs, left_after = Signal(d.max_inputs), Signal(d.multiplicity_bits)
        at = [Signal(d.set_bits, name=f"at{i}") for i in inputs]
        hold, done = Signal(), Signal()
        step = ~hold & ~self.stop
        void = now_valid & done & ~now_last  # the address stage is ahead with a token that is done
        m.d.comb += load.eq(step & (~here_valid | last | void))
        with m.If(step & now_valid):
            m.d.sync += left.eq(left_after)
        with m.If(step):
            m.d.sync += [
                now_valid.eq(here_valid & ~void), now_place.eq(place), now_last.eq(last), now_first.eq(here_first),
                now_wrong.eq(wrong | ~here_there), now_inputs.eq(row.inputs), merged.eq(row.merged), waits.eq(row.waits),
                here_first.eq(load), moves_on.eq(row.window.any), age.eq(generation),
                *(a.eq(b) for a, b in zip(at, addresses, strict=True)),
            ]  # fmt: skip
            with m.If(here_valid & here_first & ~void):
                m.d.sync += [now.eq(here), left.eq(here.multiplicity)]
            with m.If(load):
                start = Signal(d.tag_bits)
                walks = coming.row.walks[coming.token.input]
                open_ = [_level(m, d, walks[n], f"new{n}")[0] for n in range(WALK_LEVELS)]
                m.d.comb += start.eq(coming.token.tag | (coming.ranks.least & reduce(or_, open_)))
                m.d.sync += [here_valid.eq(fetch.found.valid), here.eq(coming.token), row.eq(coming.row),
                             ranks.eq(coming.ranks), here_there.eq(coming.there), place.eq(start)]  # fmt: skip
            with m.Else():
                m.d.sync += place.eq(onward)

        # ---- banks
        at_rest = ~now_valid & ~here_valid
        entry_banks = [ram(m, d, f"entries{i}", entry_layout(d), d.sets) for i in inputs]
        value_banks = [ram(m, d, f"values{i}", VALUE_BITS, d.sets) for i in inputs]
        for bank, i in zip([*entry_banks, *value_banks], [*inputs, *inputs], strict=True):
            m.d.comb += [bank.address.eq(Mux(at_rest, self.look, addresses[i])), bank.reads.eq(step | at_rest),
                         bank.place.eq(at[i])]  # fmt: skip
        entries, values = [bank.found for bank in entry_banks], [bank.found for bank in value_banks]
        corrupt = Cat(e.corrupt | v.corrupt for e, v in zip(entry_banks, value_banks, strict=True))
        with m.Switch(self.look_bank):
            for i in inputs:
                with m.Case(i):
                    m.d.comb += [self.looked.eq(entries[i].left), self.looked_second.eq(entries[i].second),
                                 self.looked_generation.eq(entries[i].generation)]  # fmt: skip

        # ---- what happens at this index; the two inputs of a merged node have bank 0 in common
        own, home, others, present, timely = (
            Signal(d.max_inputs, name=n) for n in ("own", "home", "others", "present", "timely")
        )
        second, twice, whole = Signal(), Signal(), Signal()
        m.d.comb += [
            own.eq(1 << now.input), second.eq(now.input == 1),
            home.eq(Mux(merged, 1, Mux(waits, own, 0))), others.eq(Mux(merged, 1, now_inputs & ~own)),
            *(timely[i].eq(~moves_on | (entries[i].generation == age)) for i in inputs),
            *(present[i].eq((entries[i].left != 0) & timely[i]) for i in inputs),
            whole.eq(((others & ~present) == 0) & ~(merged & (entries[0].second == second))),
            twice.eq(((home & present) != 0) & ~(merged & (entries[0].second != second))),
        ]  # fmt: skip
        hopeless, comes, leaves = Signal(), Signal(d.max_inputs), Signal(d.max_inputs)
        self._count(m, now.node, others, hopeless, comes, leaves)
        failing, fire, taken, stores = Signal(Failure), Signal(), Signal(), Signal()
        early = Signal()  # the place is not free of an earlier generation yet
        goes = now_valid & step & (failing == Failure.NONE) & ~early
        m.d.comb += [
            early.eq(now_first & ((home & ~timely) != 0)),
            late.w_valid.eq(now_valid & step & (failing == Failure.NONE) & early), late.w_data.eq(now.as_value()),
            fire.eq(now_valid & whole & ~early & (failing == Failure.NONE) & ~self.stop),
            taken.eq(fire & self.activation.ready),
            hold.eq(fire & ~self.activation.ready),
            left_after.eq(Mux(whole, used_once(left, d), left)),
            done.eq(now_last | (left_after == 0) | hopeless | early),
            stores.eq(goes & done & (left_after != 0)),
            self.activation.valid.eq(fire),
            self.activation.payload.node.eq(now.node),
            self.activation.payload.tag.eq(now_place),
            self.trying.eq(goes),
            self.walking.eq(goes & ~now_first),
            self.waiting.eq(hold),
            self.idle.eq(at_rest & fetch.idle & (late.level == 0)),
        ]
        with m.If(now_valid & now_wrong):
            m.d.comb += failing.eq(Failure.INDEX)
        with m.Elif(now_valid & ((corrupt & (home | others)) != 0)):
            m.d.comb += failing.eq(Failure.PARITY)
        with m.Elif(now_valid & (((now_inputs & own) == 0) | (left == 0))):
            m.d.comb += failing.eq(Failure.BAD_TOKEN)
        with m.Elif(now_valid & now_first & twice):
            m.d.comb += failing.eq(Failure.DUPLICATE)
        with m.Elif(now_valid & early & ~late.w_ready):
            m.d.comb += failing.eq(Failure.FULL)
        with m.If((failing != Failure.NONE) & ~self.stop):
            m.d.sync += [self.failure.eq(failing), self.failing.eq(now)]
        for i in inputs:
            after = Signal(d.multiplicity_bits, name=f"after{i}")
            settles = stores & home[i]
            ends = taken & moves_on & home[i] & (left_after == 0)  # without ever having waited there
            m.d.comb += [
                after.eq(used_once(entries[i].left, d)),
                entry_banks[i].writes.eq((taken & others[i]) | settles | ends),
                entry_banks[i].written.left.eq(Mux(settles | ends, left_after, after)),
                entry_banks[i].written.second.eq(Mux(settles, second, entries[i].second)),
                entry_banks[i].written.generation.eq(entries[i].generation + (moves_on & (leaves[i] | ends))),
                value_banks[i].writes.eq(settles),
                value_banks[i].written.eq(now.value),
                comes[i].eq(settles),
                leaves[i].eq(taken & others[i] & (after == 0)),
            ]
            given = Mux(merged, values[0], values[1]) if i == 1 else values[i]
            m.d.comb += self.activation.payload["values"][i].eq(Mux(own[i], now.value, given))
        gone = reduce(add, [leaves[i] for i in inputs])
        m.d.sync += self.used.eq(self.used + reduce(add, [comes[i] for i in inputs]) - gone)
        return m

    def _count(self, m: Module, node: Value, others: Value, hopeless: Value, comes: Value, leaves: Value) -> None:
        """Counters of the tokens that wait, by node and bank: a walk that can find nothing is not made."""
        d = self.d
        width = bits_for(d.sets)
        m.submodules.counts = counts = Memory(shape=data.ArrayLayout(width, d.max_inputs), depth=1 << d.node_bits, init=[])
        write, read = counts.write_port(granularity=1), counts.read_port(domain="comb")
        absent = Signal(d.max_inputs)
        m.d.comb += [read.addr.eq(node), write.addr.eq(node), hopeless.eq((others & absent) != 0)]
        m.d.comb += write.en.eq(comes | leaves)
        for i in range(d.max_inputs):
            count = read.data[i]
            m.d.comb += [absent[i].eq(count == 0), write.data[i].eq(Mux(comes[i], count + 1, count - 1))]


def _level(m: Module, d: Dimensions, level: Value, name: str) -> tuple[Signal, Signal]:
    """The bits of the lanes that are counted through, and the lowest one; all 0 if there is no such level."""
    mask, step = Signal(d.tag_bits, name=f"{name}_mask"), Signal(d.tag_bits, name=f"{name}_step")
    with m.If(level.any):  # noqa: SIM117 -- one `with` would not nest them as Amaranth must see them
        with m.Switch(level.lane):
            for n in range(lanes_of(d.tag_bits)):
                with m.Case(n):
                    wide = Mux(level.wide, (1 << 2 * LANE) - 1, (1 << LANE) - 1)
                    m.d.comb += [mask.eq(wide << n * LANE), step.eq(1 << n * LANE)]
    return mask, step


def _next(m: Module, d: Dimensions, walk: Value, place: Value, ranks: Value) -> tuple[Signal, Signal]:
    """The index after `place`, and whether `place` is the last one."""
    onward, last = Signal(d.tag_bits, name="onward"), Signal(name="last")
    (fast, one), (slow, other) = (_level(m, d, walk[n], f"walk{n}") for n in range(WALK_LEVELS))
    ends = [((place ^ ranks.greatest) & mask) == 0 for mask in (fast, slow)]
    m.d.comb += last.eq(ends[0] & ends[1])
    m.d.comb += onward.eq(Mux(ends[0], (place & ~fast) | (ranks.least & fast), place) + Mux(ends[0], other, one))
    return onward, last
