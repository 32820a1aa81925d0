"""The energy proxy: events times weights, and leakage; and how far the ranking of machines depends on the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from upl_mlir.hw.machine import Energy

FACTORS = (0.5, 2.0)


def energy(stats: Mapping[str, Any], weights: Energy, luts: int | None) -> float | None:
    """Nanojoules of a run: its `activity` by the names of the weights, and leakage if the area is known (LUT sites of the
    whole machine).  None for a run without figures of its activity."""
    parts = energy_parts(stats, weights, luts)
    return None if parts is None else sum(parts.values())


def energy_parts(stats: Mapping[str, Any], weights: Energy, luts: int | None) -> dict[str, float] | None:
    """The same by weight."""
    activity = stats.get("activity")
    if not activity:
        return None
    out = {name: count * getattr(weights, name) / 1000 for name, count in activity.items()}
    if luts is not None:
        out["leakage"] = luts * stats["cycles"] * weights.leakage / 1000
    return out


def ranking_changes(runs: Sequence[tuple[Mapping[str, Any], Energy, int | None]]) -> dict[str, int]:
    """For each weight times ½ and times 2: how many pairs of runs change places in the order by energy, if any do."""
    base = [energy(*run) for run in runs]
    out: dict[str, int] = {}
    for name in Energy.__struct_fields__:
        for factor in FACTORS:
            changed = [
                energy(stats, msgspec.structs.replace(w, **{name: getattr(w, name) * factor}), luts)
                for stats, w, luts in runs
            ]
            count = _inversions(base, changed)
            if count:
                out[f"{name} x{factor:g}"] = count
    return out


def _inversions(a: Sequence[float | None], b: Sequence[float | None]) -> int:
    """Pairs that `a` and `b` order differently."""
    pairs = sorted((x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None)
    return _count([y for _, y in pairs])[1]


def _count(values: list[float]) -> tuple[list[float], int]:
    """The values sorted, and how many pairs were in the wrong order: by merging."""
    if len(values) < 2:
        return values, 0
    left, a = _count(values[: len(values) // 2])
    right, b = _count(values[len(values) // 2 :])
    merged: list[float] = []
    crossed = 0
    i = 0
    for y in right:
        while i < len(left) and left[i] <= y:
            merged.append(left[i])
            i += 1
        merged.append(y)
        crossed += len(left) - i
    return merged + left[i:], a + b + crossed
