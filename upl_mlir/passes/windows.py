"""Which index fields of a node may be kept modulo a power of two, proved from the dependences alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.passes.relations import Arrow, ProgramSets
from upl_mlir.poly.windows import Step, Windows, explicit, step

WIDEST = 2
"""Windows of up to 2**WIDEST values are tried."""
MANY = 24
"""Nodes of a program above which no windows are looked for: the chains of dependences grow with them."""


@dataclass(frozen=True)
class Window:
    """Values of field `field` (its number) 2**bits apart are never waited for at the same time at one place."""

    field: int
    bits: int


def windows(program: ProgramOp) -> dict[str, list[Window]]:
    """For each node the fields that have a window, with the least one of each.

    Requires: all domains known, all parameters bound. The proof holds in whatever order tokens are taken: the tokens of an
    instance are sent by others that depend, directly or by chains, on the instances a window before it.
    """
    sets = ProgramSets(program)
    names = [n for n, op in sets.ends.items() if isinstance(op, InputOp | NodeOp)]
    if sets.ctx.params or sum(isinstance(sets.ends[n], NodeOp) for n in names) > MANY:
        return {}
    number = {name: n for n, name in enumerate(names)}
    steps: dict[int, Step] = {}
    for arrow in sets.arrows:
        if isinstance(arrow.target, NodeOp):
            relation = sets.relation(arrow).project((*arrow.src, *arrow.dst))
            sure = arrow.exact and not arrow.virtual and not sets.dynamic(arrow)
            steps[id(arrow)] = step(
                number[arrow.source.symbol], number[arrow.target.symbol], relation, len(arrow.src), sure=sure
            )
    chains = Windows([explicit(sets.domain(n)) for n in names], list(steps.values()))
    out: dict[str, list[Window]] = {}
    for name in names:
        op = sets.ends[name]
        if isinstance(op, NodeOp):
            out[name] = list(_of(op, number[name], sets, steps, chains))
    return out


def _of(
    op: NodeOp, space: int, sets: ProgramSets, steps: Mapping[int, Step], chains: Windows
) -> list[Window]:
    found: list[Window] = []
    domain = sets.domain(op.symbol)
    for along, field in enumerate(op.fields):
        low, high = domain.extent(field)
        if low is None or high is None or high - low < 2:
            continue
        classes: list[tuple[list[Step], list[int]]] = []
        for port in op.ports:
            arrows = sets.into(op.symbol, port.name)
            kinds = {_fields(a) for a in arrows}
            if any(along not in kind for kind in kinds) or len(kinds) > 1:
                break  # a token that covers several values of the field has no place of one value
            classes.append(([steps[id(a)] for a in arrows], sorted(kinds.pop()) if kinds else []))
        else:
            for bits in range(WIDEST + 1):
                if high - low >= 1 << bits and chains.apart(space, classes, along, 1 << bits):
                    found.append(Window(along, bits))
                    break
    return found


def _fields(arrow: Arrow) -> frozenset[int]:
    """The fields that a token of an arrow has."""
    return frozenset(n for n, d in enumerate(arrow.dst) if d not in arrow.stars)
