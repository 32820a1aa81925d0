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
from upl_mlir.hw.core.queue import TokenQueue
from upl_mlir.hw.core.stores.ram import Ram, ram
from upl_mlir.hw.direct.fetch import Fetch, pipe_ports
from upl_mlir.hw.direct.lanes import LANE, lanes_of
from upl_mlir.hw.direct.late import MANY, put_off
from upl_mlir.hw.direct.layouts import GENERATION_BITS, entry_layout, join_rank_layout, join_row_layout
from upl_mlir.hw.direct.rank import local, outside, rank


class _Stages:
    """What the two stages share: `here` and what follows is of the stage of addresses, `now` of the one of decisions."""

    def __init__(self, d: Dimensions, stop: Value):
        token = token_layout(d)
        self.load = Signal()  # the address stage takes the token whose ranks are there
        # addresses: one index of the token after the other
        self.here, self.row, self.ranks = Signal(token), Signal(join_row_layout(d)), Signal(join_rank_layout(d))
        self.here_valid, self.here_first, self.here_there = Signal(), Signal(), Signal(name="here_there")
        self.place = Signal(d.tag_bits)
        # decisions: what is there
        self.now, self.now_place, self.left = Signal(token), Signal(d.tag_bits), Signal(d.multiplicity_bits, name="left")
        self.now_valid, self.now_last, self.now_first, self.now_wrong = Signal(), Signal(), Signal(), Signal()
        self.merged, self.waits, self.moves_on, self.age = Signal(), Signal(), Signal(), Signal(GENERATION_BITS)
        self.now_inputs, self.left_after = Signal(d.max_inputs), Signal(d.multiplicity_bits, name="left_after")
        self.at = [Signal(d.set_bits, name=f"at{i}") for i in range(d.max_inputs)]
        self.hold, self.done = Signal(), Signal(name="done")
        self.step = ~self.hold & ~stop
        self.at_rest = ~self.now_valid & ~self.here_valid
        # what happens at this index; the two inputs of a merged node have bank 0 in common
        self.own, self.home, self.others, self.present, self.timely = (
            Signal(d.max_inputs, name=n) for n in ("own", "home", "others", "present", "timely")
        )
        self.second, self.twice, self.whole = Signal(), Signal(), Signal(name="whole")
        self.hopeless, self.comes, self.leaves = Signal(), Signal(d.max_inputs), Signal(d.max_inputs)
        self.failing, self.fire, self.taken, self.stores = Signal(Failure), Signal(), Signal(), Signal()
        self.early = Signal()  # the place is not free of an earlier generation yet


class Joins(wiring.Component):
    """token (in stream), activation (out stream).

    node_*, rank_*, failure, failing, stop, idle: `pipe_ports`. used (out): tokens that wait. trying (out): an index is
    tried; walking (out): it is not the token's first; waiting (out): a firing waits for `activation`; late (out): a token
    is put off, as its place is for an earlier generation; crowded (out): many are. look, look_bank (in): at rest, a place
    of a bank; looked (out): how often its token will be used, 0 if there is none, two cycles later, and with it
    looked_second and looked_generation.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(d))),
                "activation": Out(stream.Signature(activation_layout(d))),
                **pipe_ports(d, join_row_layout(d), join_rank_layout(d)),
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
        """The rows of the token, then a stage of addresses and one of decisions.

        Cycle n: the rows and the ranks of the token are there (`load`); the stage of addresses takes it.
        Cycle n + 1: its first index gives an address for each bank (`here`); every index after it takes a cycle more.
        Cycle n + 2: what is at these addresses is there (`now`): fire, count down, go on to the next index, or store.
        Both stages stand still (`hold`) while an activation is not taken. The first is an index ahead: if the second is
        done with its token before the last index, that index is void.
        """
        d = self.d
        m = Module()
        fetch, late = self._fetch(m)
        s = _Stages(d, self.stop)
        m.d.comb += fetch.found.ready.eq(s.load)
        addresses = self._advance(m, s, fetch)
        entry_banks, value_banks = self._banks(m, s, addresses)
        self._compare(m, s, [bank.found for bank in entry_banks])
        self._decide(m, s, fetch, late)
        self._check(m, s, late, entry_banks, value_banks)
        self._settle(m, s, entry_banks, value_banks)
        return m

    def _fetch(self, m: Module) -> tuple[Fetch, TokenQueue]:
        """The rows of the tokens that come, and the queue of those that are put off."""
        d = self.d
        m.submodules.fetch = fetch = Fetch(d, join_row_layout(d), join_rank_layout(d))
        m.d.comb += [
            fetch.node_en.eq(self.node_en), fetch.node_address.eq(self.node_address), fetch.node_data.eq(self.node_data),
            fetch.rank_en.eq(self.rank_en), fetch.rank_address.eq(self.rank_address), fetch.rank_data.eq(self.rank_data),
        ]  # fmt: skip
        late = put_off(m, d, self.token, fetch.token)
        m.d.comb += [self.late.eq(late.w_valid), self.crowded.eq(late.level > MANY)]
        return fetch, late

    def _advance(self, m: Module, s: _Stages, fetch: Fetch) -> list[Signal]:
        """The stage of addresses: an address for each bank, and the step to the stage of decisions."""
        d, inputs = self.d, range(self.d.max_inputs)
        onward, last = _next(m, d, s.row.walks[s.here.input], s.place, s.ranks)
        wrong = outside(m, d, s.place, s.ranks.least, s.ranks.greatest, s.row.find.joined, "outside")
        kept, generation = local(m, d, s.row, s.place, "here")
        addresses = [rank(m, d, kept, s.ranks.banks[i].base, s.ranks.banks[i].weights, f"address{i}") for i in inputs]
        void = s.now_valid & s.done & ~s.now_last  # the address stage is ahead with a token that is done
        m.d.comb += s.load.eq(s.step & (~s.here_valid | last | void))
        with m.If(s.step & s.now_valid):
            m.d.sync += s.left.eq(s.left_after)
        coming = fetch.found.payload
        with m.If(s.step):
            m.d.sync += [
                s.now_valid.eq(s.here_valid & ~void), s.now_place.eq(s.place), s.now_last.eq(last),
                s.now_first.eq(s.here_first), s.now_wrong.eq(wrong | ~s.here_there), s.now_inputs.eq(s.row.inputs),
                s.merged.eq(s.row.merged), s.waits.eq(s.row.waits), s.here_first.eq(s.load),
                s.moves_on.eq(s.row.window.any), s.age.eq(generation),
                *(a.eq(b) for a, b in zip(s.at, addresses, strict=True)),
            ]  # fmt: skip
            with m.If(s.here_valid & s.here_first & ~void):
                m.d.sync += [s.now.eq(s.here), s.left.eq(s.here.multiplicity)]
            with m.If(s.load):
                start = Signal(d.tag_bits)
                walks = coming.row.walks[coming.token.input]
                open_ = [_level(m, d, walks[n], f"new{n}")[0] for n in range(WALK_LEVELS)]
                m.d.comb += start.eq(coming.token.tag | (coming.ranks.least & reduce(or_, open_)))
                m.d.sync += [s.here_valid.eq(fetch.found.valid), s.here.eq(coming.token), s.row.eq(coming.row),
                             s.ranks.eq(coming.ranks), s.here_there.eq(coming.there), s.place.eq(start)]  # fmt: skip
            with m.Else():
                m.d.sync += s.place.eq(onward)
        return addresses

    def _banks(self, m: Module, s: _Stages, addresses: list[Signal]) -> tuple[list[Ram], list[Ram]]:
        """Entries and values at these addresses, a cycle later; at rest, those that are looked at."""
        d, inputs = self.d, range(self.d.max_inputs)
        entry_banks = [ram(m, d, f"entries{i}", entry_layout(d), d.sets) for i in inputs]
        value_banks = [ram(m, d, f"values{i}", VALUE_BITS, d.sets) for i in inputs]
        for bank, i in zip([*entry_banks, *value_banks], [*inputs, *inputs], strict=True):
            m.d.comb += [bank.address.eq(Mux(s.at_rest, self.look, addresses[i])), bank.reads.eq(s.step | s.at_rest),
                         bank.place.eq(s.at[i])]  # fmt: skip
        entries = [bank.found for bank in entry_banks]
        with m.Switch(self.look_bank):
            for i in inputs:
                with m.Case(i):
                    m.d.comb += [self.looked.eq(entries[i].left), self.looked_second.eq(entries[i].second),
                                 self.looked_generation.eq(entries[i].generation)]  # fmt: skip
        return entry_banks, value_banks

    def _compare(self, m: Module, s: _Stages, entries: list[Value]) -> None:
        """Who is there at this index; the two inputs of a merged node have bank 0 in common."""
        inputs = range(self.d.max_inputs)
        m.d.comb += [
            s.own.eq(1 << s.now.input), s.second.eq(s.now.input == 1),
            s.home.eq(Mux(s.merged, 1, Mux(s.waits, s.own, 0))), s.others.eq(Mux(s.merged, 1, s.now_inputs & ~s.own)),
            *(s.timely[i].eq(~s.moves_on | (entries[i].generation == s.age)) for i in inputs),
            *(s.present[i].eq((entries[i].left != 0) & s.timely[i]) for i in inputs),
            s.whole.eq(((s.others & ~s.present) == 0) & ~(s.merged & (entries[0].second == s.second))),
            s.twice.eq(((s.home & s.present) != 0) & ~(s.merged & (entries[0].second != s.second))),
        ]  # fmt: skip
        self._count(m, s.now.node, s.others, s.hopeless, s.comes, s.leaves)

    def _decide(self, m: Module, s: _Stages, fetch: Fetch, late: TokenQueue) -> None:
        """Fire if all are there, store what is left after the last index, put off what comes too early."""
        d = self.d
        goes = s.now_valid & s.step & (s.failing == Failure.NONE) & ~s.early
        m.d.comb += [
            s.early.eq(s.now_first & ((s.home & ~s.timely) != 0)),
            late.w_valid.eq(s.now_valid & s.step & (s.failing == Failure.NONE) & s.early), late.w_data.eq(s.now.as_value()),
            s.fire.eq(s.now_valid & s.whole & ~s.early & (s.failing == Failure.NONE) & ~self.stop),
            s.taken.eq(s.fire & self.activation.ready),
            s.hold.eq(s.fire & ~self.activation.ready),
            s.left_after.eq(Mux(s.whole, used_once(s.left, d), s.left)),
            s.done.eq(s.now_last | (s.left_after == 0) | s.hopeless | s.early),
            s.stores.eq(goes & s.done & (s.left_after != 0)),
            self.activation.valid.eq(s.fire),
            self.activation.payload.node.eq(s.now.node),
            self.activation.payload.tag.eq(s.now_place),
            self.trying.eq(goes),
            self.walking.eq(goes & ~s.now_first),
            self.waiting.eq(s.hold),
            self.idle.eq(s.at_rest & fetch.idle & (late.level == 0)),
        ]

    def _check(self, m: Module, s: _Stages, late: TokenQueue, entry_banks: list[Ram], value_banks: list[Ram]) -> None:
        """The first failure is kept."""
        corrupt = Cat(e.corrupt | v.corrupt for e, v in zip(entry_banks, value_banks, strict=True))
        with m.If(s.now_valid & s.now_wrong):
            m.d.comb += s.failing.eq(Failure.INDEX)
        with m.Elif(s.now_valid & ((corrupt & (s.home | s.others)) != 0)):
            m.d.comb += s.failing.eq(Failure.PARITY)
        with m.Elif(s.now_valid & (((s.now_inputs & s.own) == 0) | (s.left == 0))):
            m.d.comb += s.failing.eq(Failure.BAD_TOKEN)
        with m.Elif(s.now_valid & s.now_first & s.twice):
            m.d.comb += s.failing.eq(Failure.DUPLICATE)
        with m.Elif(s.now_valid & s.early & ~late.w_ready):
            m.d.comb += s.failing.eq(Failure.FULL)
        with m.If((s.failing != Failure.NONE) & ~self.stop):
            m.d.sync += [self.failure.eq(s.failing), self.failing.eq(s.now)]

    def _settle(self, m: Module, s: _Stages, entry_banks: list[Ram], value_banks: list[Ram]) -> None:
        """Count down those that were used, write the token where it waits, hand the values on."""
        d, inputs = self.d, range(self.d.max_inputs)
        entries, values = [bank.found for bank in entry_banks], [bank.found for bank in value_banks]
        for i in inputs:
            after = Signal(d.multiplicity_bits, name=f"after{i}")
            settles = s.stores & s.home[i]
            ends = s.taken & s.moves_on & s.home[i] & (s.left_after == 0)  # without ever having waited there
            m.d.comb += [
                after.eq(used_once(entries[i].left, d)),
                entry_banks[i].writes.eq((s.taken & s.others[i]) | settles | ends),
                entry_banks[i].written.left.eq(Mux(settles | ends, s.left_after, after)),
                entry_banks[i].written.second.eq(Mux(settles, s.second, entries[i].second)),
                entry_banks[i].written.generation.eq(entries[i].generation + (s.moves_on & (s.leaves[i] | ends))),
                value_banks[i].writes.eq(settles),
                value_banks[i].written.eq(s.now.value),
                s.comes[i].eq(settles),
                s.leaves[i].eq(s.taken & s.others[i] & (after == 0)),
            ]
            given = Mux(s.merged, values[0], values[1]) if i == 1 else values[i]
            m.d.comb += self.activation.payload["values"][i].eq(Mux(s.own[i], s.now.value, given))
        gone = reduce(add, [s.leaves[i] for i in inputs])
        m.d.sync += self.used.eq(self.used + reduce(add, [s.comes[i] for i in inputs]) - gone)

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
