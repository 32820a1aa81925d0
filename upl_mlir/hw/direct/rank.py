"""The rank unit: the place of a token from its index, with no comparison of tags."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportReturnType=false, reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# Amaranth's values are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.direct.lanes import LANE, lanes_of
from upl_mlir.hw.direct.layouts import GENERATION_BITS, row_bits


def lane(tag: Value, n: int) -> Value:
    """A lane of a tag."""
    return tag[n * LANE : (n + 1) * LANE]


def rank(m: Module, d: Dimensions, tag: Value, base: Value, weights: Value, name: str) -> Signal:
    """base + sum of lane * weight, in the width of a place: a small multiplier a lane."""
    terms: list[Value] = [base]
    for n in range(lanes_of(d.tag_bits)):
        product = Signal(d.set_bits, name=f"{name}_product{n}")
        m.d.comb += product.eq(lane(tag, n) * weights[n])
        terms.append(product)
    while len(terms) > 1:
        pairs = [(a + b)[: d.set_bits] for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + ([terms[-1]] if len(terms) % 2 else [])
    out = Signal(d.set_bits, name=name)
    m.d.comb += out.eq(terms[0])
    return out


def find_row(m: Module, d: Dimensions, find: Value, tag: Value, name: str) -> tuple[Signal, Signal]:
    """The number of the row of ranks of a token, and whether there is such a row."""
    chosen = Signal(LANE, name=f"{name}_chosen")
    with m.Switch(find.lane):
        for n in range(lanes_of(d.tag_bits)):
            with m.Case(n):
                m.d.comb += chosen.eq(lane(tag, n))
    number, known = Signal(row_bits(d), name=f"{name}_row"), Signal(name=f"{name}_known")
    m.d.comb += [number.eq(find.first + chosen), known.eq(chosen <= find.limit)]
    return number, known


def local(m: Module, d: Dimensions, row: Value, tag: Value, name: str) -> tuple[Value, Signal]:
    """The tag as the ranks of a core see it; and the generation: how many windows have passed before. Of the lane that is
    divided among the cores the lowest bits are left out: they, with the other lanes, have chosen the core. Then the lane
    that streams is taken modulo its window."""
    own, kept = Signal(d.tag_bits, name=f"{name}_own"), Signal(d.tag_bits, name=f"{name}_kept")
    generation = Signal(GENERATION_BITS, name=f"{name}_generation")
    m.d.comb += [own.eq(tag), kept.eq(own)]
    if d.network:
        with m.Switch(row.split.lane):
            for n in range(lanes_of(d.tag_bits)):
                with m.Case(n):
                    m.d.comb += lane(own, n).eq(lane(tag, n) >> row.split.bits)
    window = row.window
    with m.If(window.any):  # noqa: SIM117 -- one `with` would not nest them as Amaranth must see them
        with m.Switch(window.lane):
            for n in range(lanes_of(d.tag_bits)):
                with m.Case(n):
                    mask = Signal(LANE, name=f"{name}_mask{n}")
                    m.d.comb += [
                        mask.eq((1 << window.bits) - 1),
                        lane(kept, n).eq(lane(own, n) & mask),
                        generation.eq(lane(own, n) >> window.bits),
                    ]
    return kept, generation


def outside(m: Module, d: Dimensions, tag: Value, least: Value, greatest: Value, joined: Value, name: str) -> Signal:
    """Whether a digit of an index is not between its bounds: two digits that are may have a place in common with nothing
    else, others could fall on a place of another token."""
    wrong: list[Value] = []
    below: Value = Const(0, 1)
    above: Value = Const(0, 1)
    for n in range(lanes_of(d.tag_bits)):
        # Borrows of the two differences; they go on to the next lane where a digit does.
        borrow = Signal(2, name=f"{name}_borrow{n}")
        m.d.comb += [
            borrow[0].eq(Cat(lane(tag, n), Const(0, 1)) < (lane(least, n) + below)),
            borrow[1].eq(Cat(lane(greatest, n), Const(0, 1)) < (lane(tag, n) + above)),
        ]
        wrong.append((borrow != 0) & ~joined[n])
        below, above = Mux(joined[n], borrow[0], 0), Mux(joined[n], borrow[1], 0)
    out = Signal(name=name)
    m.d.comb += out.eq(Cat(*wrong) != 0)
    return out
