"""The results of a sweep as a table: on the terminal, as CSV and Parquet; and which points no other one beats."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from upl_mlir.explore.energy import energy
from upl_mlir.explore.runner import Run
from upl_mlir.explore.sweep import MAXIMISED

Row = dict[str, Any]
FIGURES = ("cycles", "matches", "peak_waiting", "spills", "queue_peak", "energy", "luts", "lut4", "ff", "block_ram", "dsp",
           "fmax_mhz", "time_us", "difference", "seconds")  # fmt: skip


def rows(runs: Sequence[Run], objectives: Sequence[str]) -> list[Row]:
    """One row for each run, in the order of the grid: its point, its figures, `pareto`, and the error if it has one."""
    out: list[Row] = []
    for run in runs:
        row: Row = {**run.point, "run": run.key}
        stats, area = run.outcome.stats, run.area or {}
        for name in FIGURES:
            row[name] = (stats or {}).get(name, area.get(name))
        row["lut"] = row["luts"]
        if stats is not None:
            row["energy"] = energy(stats, run.task.machine.energy, row["luts"])
            row["bottleneck"] = max(stats["utilisation"], key=stats["utilisation"].get)
            if row["fmax_mhz"]:
                row["time_us"] = row["cycles"] / row["fmax_mhz"]
        row["error"] = run.outcome.error or run.area_error
        out.append(row)
    front = pareto(out, objectives)
    for n, row in enumerate(out):
        row["pareto"] = n in front
    return out


def pareto(found: Sequence[Mapping[str, Any]], objectives: Sequence[str]) -> set[int]:
    """The rows that no other row beats: better in one objective, and not worse in any.  Rows without figures are none."""
    signs = [-1.0 if name in MAXIMISED else 1.0 for name in objectives]
    points = {
        n: tuple(s * float(row[name]) for s, name in zip(signs, objectives, strict=True))
        for n, row in enumerate(found)
        if all(row.get(name) is not None for name in objectives)
    }
    # In this order whoever beats a row comes before it.
    front: dict[int, tuple[float, ...]] = {}
    for n, point in sorted(points.items(), key=lambda item: item[1]):
        if not any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in front.values()):
            front[n] = point
    return set(front)


def to_csv(found: Sequence[Row]) -> str:
    """The rows as CSV, with a header."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _columns(found), lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()


def has_parquet() -> bool:
    """Whether Parquet files can be written: the extra `explore` is installed."""
    return find_spec("pyarrow") is not None


def write_parquet(found: Sequence[Row], path: Path) -> None:
    """The rows as a Parquet file; what a column's values do not have in common becomes text."""
    arrow, parquet = cast(Any, import_module("pyarrow")), cast(Any, import_module("pyarrow.parquet"))
    columns: dict[str, list[Any]] = {}
    for name in _columns(found):
        values = [row.get(name) for row in found]
        kinds: set[type[Any]] = {type(v) for v in values if v is not None}
        if kinds == {int, float}:
            values = [None if v is None else float(v) for v in values]
        elif len(kinds) > 1:
            values = [None if v is None else str(v) for v in values]
        columns[name] = values
    parquet.write_table(arrow.table(columns), path)


def _columns(found: Sequence[Row]) -> list[str]:
    names: dict[str, None] = {}
    for row in found:
        names |= dict.fromkeys(row)
    return [n for n in names if n != "lut"]


def shown(found: Sequence[Row], axes: Sequence[str], objectives: Sequence[str], most: int) -> list[list[str]]:
    """What the terminal shows, header first: the best rows by the first objective, and those that no other one beats."""
    first = objectives[0]
    sign = -1.0 if first in MAXIMISED else 1.0
    good = [r for r in found if r.get(first) is not None]
    good.sort(key=lambda r: (not r["pareto"], sign * float(r[first])))
    names = [*axes, *dict.fromkeys((*objectives, "cycles", "bottleneck"))]
    out = [["", *names]]
    for row in good[:most]:
        out.append(["*" if row["pareto"] else "", *(_text(row.get(n)) for n in names)])
    return out


def _text(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
