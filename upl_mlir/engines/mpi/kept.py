"""Plans on disk: a later process takes up what an earlier one has divided, proved and compiled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from upl_mlir.dialects.loops.attributes import Axis, Range
from upl_mlir.dialects.upl import Gather
from upl_mlir.engines.mpi.plan import Kept, Moved, Plan, State
from upl_mlir.engines.native.whole import Made, data_of, expressions, made_of
from upl_mlir.passes.distribute.restart import Saved
from upl_mlir.passes.loops.program import Block
from upl_mlir.poly.parse import parse_index

Open = tuple[tuple[str, str], ...]
"""The inputs, (node, input), of which tokens are to be counted for given sizes: no proof covers all."""


def text_of(plan: Plan, open_: Open) -> bytes:
    """A plan as JSON; blocks by their numbers, index expressions as their texts."""

    def numbered(found: tuple[int, Block] | None) -> list[int] | None:
        return None if found is None else [found[0], plan.blocks.index(found[1])]

    data: dict[str, Any] = {
        "made": data_of(Made(plan.emitted, dict(plan.layouts), plan.scratch, open_, plan.reach)),
        "params": plan.params,
        "blocks": [[b.first, b.last, str(b.low), str(b.high)] for b in plan.blocks],
        "moved": [
            {
                "array": m.array, "dtype": m.dtype, "axes": _of_axes(m.axes), "at": m.at,
                "block": None if m.block is None else plan.blocks.index(m.block),
                "ranges": [[r.var, [*map(str, r.lows)], [*map(str, r.highs)]] for r in m.ranges],
                "variables": m.variables, "combined": None if m.combined is None else m.combined.name,
            }
            for m in plan.moved
        ],
        "cut": {n: numbered(c) for n, c in plan.cut.items()},
        "states": [
            [asdict(s.loop), [[a.name, a.dtype, _of_axes(a.axes), numbered(a.cut)] for a in s.arrays]] for s in plan.states
        ],
        "inputs": {n: numbered(c) for n, c in plan.inputs.items()},
    }  # fmt: skip
    return json.dumps(data).encode()


def states_digest(plan: Plan) -> str:
    """What tells plans apart of which one cannot take up what the other has saved.

    Blocks may differ: each rank finds the elements of its own in the files of all."""

    def axes(a: Kept) -> list[Any]:
        return [[x.at, x.modulus, x.modulus and str(x.lower)] for x in a.axes]

    what = [[asdict(s.loop), [[a.name, a.dtype, axes(a)] for a in s.arrays]] for s in plan.states]
    return hashlib.blake2b(json.dumps(what).encode()).hexdigest()


def plan_of_text(data: bytes) -> tuple[Plan, Open]:
    """What `text_of` wrote."""
    d: dict[str, Any] = json.loads(data)
    made = made_of(d["made"])
    blocks = tuple(Block(first, last, *expressions(ends)) for first, last, *ends in d["blocks"])

    def block(number: int | None) -> Block | None:
        return None if number is None else blocks[number]

    def cut(found: Sequence[int] | None) -> tuple[int, Block] | None:
        return None if found is None else (found[0], blocks[found[1]])

    def cuts(found: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, Block]]:
        return {n: (at, blocks[b]) for n, (at, b) in found.items()}

    moved = tuple(
        Moved(
            m["array"], m["dtype"], _axes(m["axes"]), m["at"], block(m["block"]),
            tuple(Range(var, expressions(lows), expressions(highs)) for var, lows, highs in m["ranges"]),
            tuple(m["variables"]), None if m["combined"] is None else Gather[m["combined"]],
        )
        for m in d["moved"]
    )  # fmt: skip
    states = tuple(
        State(
            Saved(s["var"], s["begin"], s["steps"], tuple(s["arrays"]), s["first"]),
            tuple(Kept(n, t, _axes(axes), cut(c)) for n, t, axes, c in kept),
        )
        for s, kept in d["states"]
    )
    plan = Plan(
        made.emitted, made.layouts, made.scratch, tuple(d["params"]), blocks, moved, cuts(d["cut"]), states,
        cuts(d["inputs"]), made.reach,
    )  # fmt: skip
    return plan, made.open


def _of_axes(axes: Sequence[Axis]) -> list[list[Any]]:
    return [[a.at, str(a.lower), str(a.extent), a.modulus, a.lead, a.line, a.every] for a in axes]


def _axes(data: Sequence[Sequence[Any]]) -> tuple[Axis, ...]:
    return tuple(Axis(at, parse_index(lower), parse_index(extent), *rest) for at, lower, extent, *rest in data)
