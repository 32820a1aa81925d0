"""Whose tokens wait at the places of the direct store: its records do not say it themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from upl_mlir.engines.rtl.observe.stranded import Leftover
from upl_mlir.hw.core.layouts import Dimensions, Mode
from upl_mlir.hw.direct.ranks import Ranks, Role, index_at
from upl_mlir.hw.image import ProgramImage
from upl_mlir.hw.sim.interface import Record


def direct_leftovers(
    image: ProgramImage,
    roles: Sequence[Sequence[Role]],
    ranks: Ranks,
    records: Iterable[tuple[int, int, int, Record]],
    d: Dimensions,
) -> list[Leftover]:
    """The tokens and gathers at places (core, place, bank, record) that are taken."""
    out: list[Leftover] = []
    for core, place, bank, record in records:
        summand = bank == d.max_inputs
        for number, (node, of) in enumerate(zip(image.nodes, ranks.nodes, strict=True)):
            for port, role in enumerate(roles[number]) if of is not None else ():
                if summand != (role.gathers and summand) or (not summand and port != record.kind):
                    continue
                assert of is not None
                if not summand and of.bank_of(port) != bank:
                    continue
                index = index_at(
                    node, of, port, place, role.wild, summand=summand, generation=record.tag, core=core
                )
                if index is None:
                    continue
                if summand:
                    out.append(Leftover(number, port, index, record.left, record.total))
                else:
                    unbounded = role.mode is Mode.COUNTED and record.left == d.unbounded
                    out.append(Leftover(number, port, index, None if unbounded else record.left))
    return out
