"""Layouts of what the direct unit keeps: rows of nodes and of ranks, entries of the banks and of the gather store."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from amaranth.lib import data
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import CORE_BITS, MODE_BITS, VALUE_BITS, WALK_LEVELS, Dimensions
from upl_mlir.hw.core.stores.store import gather_shape
from upl_mlir.hw.direct.lanes import LANE, lanes_of


def row_bits(d: Dimensions) -> int:
    """Width of the number of a row of ranks."""
    return max(1, bits_for(d.rank_rows - 1))


def lane_bits(d: Dimensions) -> int:
    """Width of the number of a lane; that of `lanes_of` stands for none."""
    return bits_for(lanes_of(d.tag_bits))


GENERATION_BITS = LANE
"""Width of the number of a window: how often places were used before."""


def window_layout(d: Dimensions) -> data.StructLayout:
    """The lane that counts modulo 2**bits in ranks, if `any` does."""
    return data.StructLayout({"any": 1, "lane": lane_bits(d), "bits": bits_for(LANE)})


SPLIT_BITS = bits_for(CORE_BITS)


def fields_of_places(d: Dimensions) -> dict[str, data.StructLayout]:
    """How the place of a token of a node is found: its row (`find`), and what of its tag counts (`window`; `split`, in a
    machine of several cores: the lane whose lowest `bits` are left out)."""
    split = {"split": data.StructLayout({"lane": lane_bits(d), "bits": SPLIT_BITS})} if d.network else {}
    return {"find": find_layout(d), "window": window_layout(d), **split}


def find_layout(d: Dimensions) -> data.StructLayout:
    """How the row of ranks of a token is found: `first` plus the value in `lane`, which is `limit` at most. `joined`: for
    each lane, whether it goes on in the next one."""
    lanes = lanes_of(d.tag_bits)
    return data.StructLayout({"first": row_bits(d), "lane": lane_bits(d), "limit": LANE, "joined": lanes})


def join_row_layout(d: Dimensions) -> data.StructLayout:
    """What the joins know of a node: its `inputs`, a bit each; whether a token may have to wait; whether its two inputs
    share bank 0 (`merged`); the lanes that a token of each input counts through, the fastest first."""
    level = data.StructLayout({"any": 1, "lane": lane_bits(d), "wide": 1})
    return data.StructLayout(
        {
            **fields_of_places(d),
            "inputs": d.max_inputs,
            "waits": 1,
            "merged": 1,
            "walks": data.ArrayLayout(data.ArrayLayout(level, WALK_LEVELS), d.max_inputs),
        }
    )


def sum_row_layout(d: Dimensions) -> data.StructLayout:
    """What the gathers know of a node: the mode of each input."""
    modes = data.ArrayLayout(MODE_BITS, d.max_inputs)
    return data.StructLayout({**fields_of_places(d), "modes": modes})


def direct_node_layout(d: Dimensions) -> data.StructLayout:
    """A row of the node table: for the joins and for the gathers."""
    return data.StructLayout({"join": join_row_layout(d), "sum": sum_row_layout(d)})


def space_layout(d: Dimensions) -> data.StructLayout:
    """A rank: `base` plus each lane times its weight."""
    return data.StructLayout({"base": d.set_bits, "weights": data.ArrayLayout(d.set_bits, lanes_of(d.tag_bits))})


def join_rank_layout(d: Dimensions) -> data.StructLayout:
    """A row of ranks for the joins: one for each bank, and the least and greatest value of the digits, in their lanes."""
    return data.StructLayout(
        {"banks": data.ArrayLayout(space_layout(d), d.max_inputs), "least": d.tag_bits, "greatest": d.tag_bits}
    )


def sum_rank_layout(d: Dimensions) -> data.StructLayout:
    """A row of ranks for the gathers: all gathers of a node have the same weights."""
    return data.StructLayout(
        {
            "bases": data.ArrayLayout(d.set_bits, d.max_inputs),
            "weights": data.ArrayLayout(d.set_bits, lanes_of(d.tag_bits)),
            "least": d.tag_bits,
            "greatest": d.tag_bits,
        }
    )


def rank_layout(d: Dimensions) -> data.StructLayout:
    """A row of ranks."""
    return data.StructLayout({"join": join_rank_layout(d), "sum": sum_rank_layout(d)})


def sum_state_layout(d: Dimensions) -> data.StructLayout:
    """A gather under way: as in the hashed store (`gather_shape`), and the `generation` of the gather that the place is for
    now, or next."""
    return data.StructLayout({"valid": 1, "generation": GENERATION_BITS, **gather_shape(d).state.members})


def entry_layout(d: Dimensions) -> data.StructLayout:
    """A waiting token of a bank: `left`, how often it will be used, 0 if there is none; whether it is one of input 1;
    `generation`: of the token that the place is for now, or next."""
    return data.StructLayout({"left": d.multiplicity_bits, "second": 1, "generation": GENERATION_BITS})


def store_bits(d: Dimensions, places: list[int]) -> int:
    """Bits of RAM for so many places in each bank, and last in the gather store."""
    bank, gather = entry_layout(d).size + VALUE_BITS, sum_state_layout(d).size + VALUE_BITS
    return sum(places[:-1]) * bank + places[-1] * gather
