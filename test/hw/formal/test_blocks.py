"""Proofs about the blocks of a core; each is also seen to fail on a block with a defect."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Array, Assert, Cat, Const, Module, Mux, Signal
from amaranth.lib import data

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prove import OpenMemory, assume, drive, fails, fixed, free, holds, inside, with_defect

from upl_mlir.hw.core import reducer, send
from upl_mlir.hw.core.layouts import Dimensions, Failure, FieldKind, Guard, Mode, Times, key_layout, send_layout
from upl_mlir.hw.core.stores import presence, ram, spill, store
from upl_mlir.hw.fp.model import Format

SMALL = Dimensions(
    tag_bits=2, max_fields=1, max_inputs=2, node_bits=1, multiplicity_bits=2, sets=2, ways=2, spill_words=3,
    backing_cycles=1, add_cycles=2, mul_cycles=2, contexts=2, code_words=2, send_words=2, table_words=2,
)  # fmt: skip

Build = Callable[[Module], None]


@pytest.fixture(autouse=True)
def modules_as_they_were() -> Iterator[None]:
    """A proof makes modules small: memories that are open, rows and values of a few bits. Later tests need them whole."""
    modules = (presence, ram, reducer, send, spill, store)
    before = [dict(vars(module)) for module in modules]
    yield
    for module, names in zip(modules, before, strict=True):
        for name in vars(module).keys() - names.keys():
            delattr(module, name)
        vars(module).update(names)


def both(
    folder: Path, make: Callable[[ModuleType], Build], module: ModuleType, depth: int, *defects: tuple[str, str],
    induction: int = 0,
) -> None:  # fmt: skip
    """The proof of the module goes through, and fails within `depth` cycles with each of the defects: a text for another."""
    holds(folder / "good", make(module), induction or depth, "prove" if induction else "bmc")
    for n, (old, new) in enumerate(defects):
        fails(folder / f"defect{n}", make(with_defect(module, old, new)), depth)


# ------------------------------------------------------------------------------------------------------------- presence


def presence_counts(module: ModuleType) -> Build:
    """For any row and class: `absent` says whether the records that came are as many as those that went."""
    module.Memory, module.ROW_BITS = OpenMemory, 2

    def build(m: Module) -> None:
        d = SMALL
        unit = module.Presence(d)
        (rows,) = inside(m, unit)
        drive(m, unit.address, unit.changes, unit.kind, unit.comes)
        at = Signal(module.ROW_BITS)  # the row that was read
        m.d.sync += at.eq(unit.address)
        m.d.comb += unit.at.eq(at)
        row, of = fixed(m, module.ROW_BITS, "a_row"), fixed(m, d.class_bits, "a_class")
        count = Signal(8)
        hit = unit.changes & (at == row) & (unit.kind == of)
        with m.If(hit):
            m.d.sync += count.eq(Mux(unit.comes, count + 1, count - 1))
        assume(m, (of <= d.max_inputs) & (unit.kind <= d.max_inputs))
        assume(m, ~(hit & ~unit.comes & (count == 0)))
        assume(m, ~(hit & unit.comes & (count == d.sets * d.ways + d.spill_words)))
        m.d.comb += Assert(count <= d.sets * d.ways + d.spill_words)
        m.d.comb += Assert((at != row) | (unit.absent.bit_select(of, 1) == (count == 0)))
        m.d.comb += Assert(Array(Array(row)[of] for row in rows)[row] == count)

    return build


def test_presence(tmp_path: Path) -> None:
    defect = ("Mux(self.changes, 1 << self.kind, 0)", "Mux(self.changes, 1, 0)")
    both(tmp_path, presence_counts, presence, 5, defect, induction=2)


# ---------------------------------------------------------------------------------------------------------------- store


def store_finds(module: ModuleType) -> Build:
    """Any record that was written is found with what was written last, until it is freed; `used` counts the records."""
    module.Memory, module.VALUE_BITS = OpenMemory, 1

    def build(m: Module) -> None:
        d = SMALL
        unit = module.Store(d)
        memories = inside(m, unit)
        drive(m, unit.address, unit.key, unit.by_way, unit.chosen_way, unit.write_key_en, unit.write_key, unit.write_over,
              unit.write_state_en, unit.write_state, unit.write_value, unit.write_values, unit.write_way,
              unit.value_way)  # fmt: skip
        read = Signal(d.set_bits)  # the set that was read
        m.d.sync += read.eq(unit.address)
        m.d.comb += [unit.write_set.eq(read), unit.value_set.eq(read)]
        each = 2 + d.max_inputs  # memories of a way: keys, states, and one for each value
        keys = [[data.View(key_layout(d), word) for word in way] for way in memories[::each]]
        states = memories[1::each]
        values = [[Cat(*(memories[w * each + 2 + n][s] for n in range(d.max_inputs))) for s in range(d.sets)]
                  for w in range(d.ways)]  # fmt: skip
        here = [Array(way)[read] for way in keys]
        target, filled = Array(here)[unit.write_way], Array(here)[unit.value_way]
        goes = unit.write_key_en & ~unit.write_key.valid
        comes = unit.write_key_en & unit.write_key.valid
        rest = key_layout(d).size - 1
        body = lambda key: key.as_value()[1 : 1 + rest]  # noqa: E731
        # Who uses the store frees records, puts new ones where there is room, or in the place of another one.
        there = reduce(lambda a, b: a | b, [way.valid & (body(way) == body(unit.write_key)) for way in here])
        assume(m, ~goes | (target.valid & ~unit.write_over))
        whole = unit.write_state_en & unit.write_value.all() & (unit.value_way == unit.write_way)
        assume(m, ~comes | (~there & (target.valid == unit.write_over) & whole))
        assume(m, comes | target.valid | ~unit.write_state_en)
        assume(m, comes | filled.valid | ~unit.write_value.any())
        assume(m, unit.write_key_en | ~unit.write_over)
        m.d.comb += Assert(unit.used == reduce(add, [row.valid for way in keys for row in way]))

        # One record, any one, followed.
        key = fixed(m, data.StructLayout({"key": rest}), "a_key").key
        home = fixed(m, d.set_bits, "its_set")
        assume(m, ~comes | (body(unit.write_key) != key) | (read == home))
        live, state, value = Signal(), Signal.like(unit.write_state), Signal.like(unit.write_values)
        touched = (read == home) & target.valid & (body(target) == key)
        refilled = (read == home) & filled.valid & (body(filled) == key)
        with m.If(comes & (body(unit.write_key) == key)):
            m.d.sync += [live.eq(1), state.eq(unit.write_state), value.eq(unit.write_values)]
        with m.Elif(touched & unit.write_key_en):
            m.d.sync += live.eq(0)
        with m.Else():
            with m.If(touched & unit.write_state_en):
                m.d.sync += state.eq(unit.write_state)
            for n in range(d.max_inputs):
                with m.If(refilled & unit.write_value[n]):
                    m.d.sync += value[n].eq(unit.write_values[n])
        asked = (read == home) & (body(unit.key) == key) & ~unit.by_way
        holds_it = [[row.valid & (body(row) == key) for row in way] for way in keys]
        m.d.comb += [
            Assert(~asked | (unit.hit == live)),
            Assert(~(asked & live) | (unit.state.as_value() == state.as_value())),
            Assert(~(asked & live) | (unit.values.as_value() == value.as_value())),
            Assert(~(asked & live) | (body(unit.found_key) == key)),
            Assert(unit.free == ~reduce(lambda a, b: a & b, [way.valid for way in here])),
            Assert(~unit.free | ~Array(way.valid for way in here)[unit.free_way]),
            # What induction needs: the record is in one place at most, and that holds what was written.
            Assert(reduce(add, [hit for way in holds_it for hit in way]) == live),
            *(
                Assert(~holds_it[w][s] | ((home == s) & (states[w][s] == state.as_value())
                       & (values[w][s] == value.as_value())))
                for w in range(d.ways) for s in range(d.sets)
            ),
        ]  # fmt: skip

    return build


def test_store(tmp_path: Path) -> None:
    ram.Memory = OpenMemory
    wrong_count = ("self.write_key_en & ~self.write_over", "self.write_key_en")
    both(tmp_path, store_finds, store, 5, wrong_count, induction=2)
    slow = with_defect(ram, "memory.read_port(transparent_for=(write,))", "memory.read_port()")
    slow.Memory = OpenMemory
    store.ram = slow.ram
    fails(tmp_path / "slow", store_finds(store), 5)


# ------------------------------------------------------------------------------------------------------- backing memory


def spill_keeps(module: ModuleType) -> Build:
    """A record that went into its chain is found there with its contents until it is taken out; places are not lost.

    The harness works with one chain at a time, held long enough to be read, as the matching unit does; what it gives may be
    for the other one. Keys are of two classes, by their lowest bit, and in two chains, by their highest one.
    """
    module.SIGNATURE_BITS = 1
    module.set_of = lambda key, bits: Cat(Const(0, bits - 1), Cat(*key)[0])
    module.chain_of = lambda key, bits: Cat(*key)[-bits:]

    def build(m: Module) -> None:
        d = replace(SMALL, max_inputs=1, sets=1, spill_words=2)
        m.submodules.unit = unit = module.Spill(d)
        bits = unit.shape.chain_bits
        at, steady = Signal(bits), Signal()
        op = Signal(3)
        find, exchange, remove, insert, move = (op == n for n in range(1, 6))
        m.d.comb += [op.eq(free(3)), unit.address.eq(at), unit.at.eq(at)]
        drive(m, unit.key, unit.given)
        can = ~unit.busy & steady
        searching, kept = Signal(), Signal()
        found = Signal.like(unit.record)
        m.d.sync += steady.eq(~(move & ~unit.busy))
        with m.If(move & ~unit.busy):
            m.d.sync += [at.eq(free(bits)), kept.eq(0)]
        m.d.comb += [
            unit.find.eq(find & can & unit.any), unit.replace.eq(exchange & can & kept), unit.remove.eq(remove & can & kept),
            unit.insert.eq(insert & can & ~unit.full),
        ]  # fmt: skip
        with m.If(unit.find):
            m.d.sync += [searching.eq(1), kept.eq(0)]
        with m.If(unit.done):
            m.d.sync += [searching.eq(0), kept.eq(unit.found), found.eq(unit.record)]
        with m.If(unit.replace | unit.remove | unit.insert):
            m.d.sync += kept.eq(0)
        body = lambda key: key.as_value()[1:]  # noqa: E731
        chain = lambda key: module.chain_of((key["class"], key.node, key.tag), bits)  # noqa: E731
        asked = Signal.like(unit.key)
        with m.If(unit.find):
            m.d.sync += asked.eq(unit.key)
        assume(m, ~searching | (body(unit.key) == body(asked)))  # what is looked for is held
        assume(m, ~unit.find | (chain(unit.key) == at))

        key = fixed(m, key_layout(d).size - 1, "a_key")
        live, record = Signal(), Signal.like(unit.record)
        writes = unit.insert | unit.replace
        mine = writes & (body(unit.given.key) == key)
        assume(m, ~writes | unit.given.key.valid)
        assume(m, ~mine | ~live | (unit.replace & (body(found.key) == key)))
        with m.If((unit.replace | unit.remove) & (body(found.key) == key)):
            m.d.sync += live.eq(0)
        with m.If(mine):
            m.d.sync += [live.eq(1), record.eq(unit.given)]
        used, here = Signal(4), Array(Signal(4, name=f"in_chain{s}") for s in range(1 << bits))
        m.d.sync += used.eq(used + unit.insert - unit.remove)
        for n, count in enumerate(here):
            comes, goes = writes & (chain(unit.given.key) == n), (unit.remove | unit.replace) & (at == n)
            m.d.sync += count.eq(count + comes - goes)
        ended = unit.done & (body(unit.key) == key)
        m.d.comb += [
            Assert(~ended | (unit.found == live)),
            Assert(~(ended & live) | (unit.record.as_value() == record.as_value())),
            Assert(~(unit.done & unit.found) | (body(unit.record.key) == body(unit.key))),
            Assert(~kept | (unit.record.as_value() == found.as_value())),
            Assert(unit.busy | (unit.used == used)),
            Assert(unit.busy | (unit.full == (used == d.spill_words))),
            Assert(~(can & unit.any) | (here[at] != 0)),
            Assert(~(can & live & (chain(unit.key) == at) & (body(unit.key) == key)) | unit.any),
            Assert(~unit.done | searching),
        ]

    return build


def test_backing_memory(tmp_path: Path) -> None:
    store.VALUE_BITS = 1
    both(
        tmp_path, spill_keeps, spill, 15,
        ("head_write.data.first.eq(after)", "head_write.data.first.eq(0)"),  # removing the first one loses the rest
        ("before.eq(at), at.eq(link_read.data)", "before.eq(0), at.eq(link_read.data)"),  # removing takes more out
        ("0, signature) | entering", "0, signature)"),  # what has come is not searched for
        ("head_read.addr.eq(its_chain)", "head_read.addr.eq(self.address)"),  # it loses the rest of its chain
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- reducer


def reducer_answers(module: ModuleType) -> Build:
    """The n-th operation gives the n-th result, with its place, in time; integer products are right."""
    format_ = Format(3, 1)
    module.VALUE_BITS, module.BINARY32 = format_.bits, format_

    def build(m: Module) -> None:
        d = SMALL
        m.submodules.unit = unit = module.Reducer(d)
        drive(m, unit.begin, unit.left, unit.right, unit.mode, unit.place, unit.take)
        assume(m, (unit.active < d.pending) | ~unit.begin)
        number = fixed(m, 5, "number")
        begun, taken = Signal(6), Signal(6)
        place, mode = Signal.like(unit.place), Signal.like(unit.mode)
        left, right = Signal.like(unit.left), Signal.like(unit.right)
        takes = unit.take & unit.valid
        m.d.sync += [begun.eq(begun + unit.begin), taken.eq(taken + takes)]
        with m.If(unit.begin & (begun == number)):
            m.d.sync += [place.eq(unit.place), mode.eq(unit.mode), left.eq(unit.left), right.eq(unit.right)]
        now = unit.valid & (taken == number)
        product = left.as_signed() * right.as_signed()
        late = Signal(range(16))
        m.d.sync += late.eq(Mux(unit.begin | unit.valid | (unit.active == 0), 0, late + (late != 15)))
        m.d.comb += [
            Assert(unit.active == begun - taken),
            Assert(~now | (unit.result_place.as_value() == place.as_value())),
            Assert(~(now & (mode == Mode.MUL_I32)) | (unit.result == product[: len(left)])),
            Assert(~(now & (mode == Mode.MUL_I32)) | (unit.overflow == (product[: len(left)].as_signed() != product))),
            Assert(~unit.valid | (begun > taken)),
            Assert(late <= d.pass_cycles + 2),
        ]

    return build


def test_reducer(tmp_path: Path) -> None:
    both(
        tmp_path, reducer_answers, reducer, 9,
        ("depth=d.pending", "depth=2"),  # results that wait are lost
        ("self.begin - (self.take & self.valid)", "self.begin - self.take"),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- send engine


def sending_answers(module: ModuleType) -> Build:
    """Each descriptor of each request gives one token, in order, and the last one ends the request; a token that waits does
    not change. (Without guards, which only let tokens out.)"""

    def build(m: Module) -> None:
        d = SMALL
        m.submodules.unit = unit = module.SendEngine(d)
        request = unit.request.payload
        drive(m, unit.send_en, unit.send_address, unit.send_data, unit.request.valid, request, unit.token.ready)
        acts = Array(fixed(m, unit.activation.shape(), f"activation{n}") for n in range(d.contexts))
        m.d.comb += [unit.activation.eq(acts[unit.context]), unit.fetched_tag.eq(acts[unit.fetched_context].tag)]
        for port in unit.reads:  # a register that is not asked for keeps its output
            value = Signal(32)
            m.d.comb += port.value.eq(value)
            with m.If(port.en):
                m.d.sync += value.eq(free(32))
        loading, rows = Signal(2), Array(Signal(send_layout(d), name=f"row{n}") for n in range(d.send_words))
        m.d.sync += loading.eq(loading + (loading != 3))
        assume(m, Mux(loading == 3, ~unit.send_en, ~unit.request.valid))
        assume(m, (unit.send_data.guarded == Guard.ALWAYS) & (unit.send_data.times != Times.TABLE))
        with m.If(unit.send_en):
            m.d.sync += rows[unit.send_address].eq(unit.send_data)
        assume(m, unit.failure == Failure.NONE)
        assume(m, ~unit.request.valid | (request.count == 1) | ((request.count == 2) & (request.send == 0)))

        number = fixed(m, 4, "number")
        asked, sent = Signal(5), Signal(5)
        context, last, final = Signal.like(request.context), Signal(), Signal()
        at = Signal.like(request.send)
        takes, sends = unit.request.valid & unit.request.ready, unit.token.valid & unit.token.ready
        m.d.sync += sent.eq(sent + sends)
        with m.If(takes):
            m.d.sync += asked.eq(asked + request.count)
            with m.If((asked <= number) & (number < asked + request.count)):
                m.d.sync += [context.eq(request.context), last.eq(request.last), at.eq(request.send + number - asked),
                             final.eq(number - asked == request.count - 1)]  # fmt: skip
        row, token = rows[at], unit.token.payload
        now = sends & (sent == number)
        constant = row.fields[0].kind == FieldKind.CONSTANT
        place = (row.fields[0].constant << row.fields[0].offset)[: d.tag_bits]
        waited, held = Signal(), Signal.like(token)
        late = Signal(range(8))
        m.d.sync += [waited.eq(unit.token.valid & ~unit.token.ready), held.eq(token),
                     late.eq(Mux(unit.token.valid | (asked == sent), 0, late + (late != 7)))]  # fmt: skip
        m.d.comb += [
            Assert(~sends | (asked > sent)),
            Assert(sends | (unit.finished == 0)),
            Assert(~now | (unit.finished == Mux(final, 1 << context, 0))),
            Assert(~now | (unit.ended == Mux(final & last, 1 << context, 0))),
            Assert(~now | ((token.node == row.node) & (token.input == row.input) & (token.kind == row.kind))),
            Assert(~(now & (row.times == Times.CONSTANT)) | (token.multiplicity == row.multiplicity[: d.multiplicity_bits])),
            Assert(~(now & constant) | (token.tag == place)),
            Assert(~waited | (unit.token.valid & (token.as_value() == held.as_value()))),
            Assert(late <= 3),
        ]

    return build


def test_send_engine(tmp_path: Path) -> None:
    both(
        tmp_path, sending_answers, send, 9,
        ("m.d.sync += caught.eq(value)", "m.d.sync += caught.eq(0)"),  # a token that waits changes
        ("(~s.fetched | s.take_next) & ~s.more", "~s.fetched | s.take_next"),  # descriptors after the first one are lost
    )  # fmt: skip
