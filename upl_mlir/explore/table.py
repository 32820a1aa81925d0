"""The results of a sweep as a table: on the terminal, as CSV and Parquet; and which points no other one beats."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from upl_mlir.engines.rtl.observe.attribution import BUSY
from upl_mlir.explore.energy import energy
from upl_mlir.explore.runner import Run
from upl_mlir.explore.sweep import MAXIMISED
from upl_mlir.hw.machine import Machine

Row = dict[str, Any]
FIGURES = ("cycles", "matches", "peak_waiting", "spills", "queue_peak", "energy", "luts", "lut4", "ff", "block_ram", "dsp",
           "fmax_mhz", "time_us", "difference", "seconds")  # fmt: skip
CIRCUIT_FIGURES = ("cycles", "interval", "lanes", "busy", "luts", "ff", "block_ram", "dsp", "fmax_mhz", "time_us",
                   "difference")  # fmt: skip
"""`lanes`: those that are used; `busy`: the part of a run's slots in which the busiest unit begins an operation."""


def rows(runs: Sequence[Run], objectives: Sequence[str]) -> list[Row]:
    """One row for each run, in the order of the grid: its point, its figures, `pareto`, and the error if it has one."""
    out: list[Row] = []
    for run in runs:
        row: Row = {**run.point, "run": run.key}
        stats, area = run.outcome.stats, run.area or {}
        for name in FIGURES if isinstance(run.task.on, Machine) else CIRCUIT_FIGURES:
            row[name] = area.get(name, (stats or {}).get(name))  # what was synthesised goes before what was estimated
        row["lut"] = row["luts"]
        if stats is not None:
            if isinstance(run.task.on, Machine):
                row["energy"] = energy(stats, run.task.on.energy, row["luts"])
                row["bottleneck"], row["bottleneck_share"] = bottleneck(stats["attribution"])
            if row["fmax_mhz"]:
                row["time_us"] = row["cycles"] / row["fmax_mhz"]
        row["error"] = run.outcome.error or run.area_error
        out.append(row)
    front = pareto(out, objectives)
    for n, row in enumerate(out):
        row["pareto"] = n in front
    return out


def bottleneck(attribution: Mapping[str, Mapping[str, int]]) -> tuple[str, float]:
    """Where most cycles went, and their share: `match` or `execute` where that unit works, else the cause that stops it.

    Tokens come first: what the matching unit does says what the machine does.  Where it only waits for activations, the
    execution unit says why these take their time.
    """
    name, share = _most(attribution["match"])
    if name in ("activation", "execute"):
        inner, inner_share = _most({n: c for n, c in attribution["execute"].items() if n not in ("match", "outside")})
        return ("execute" if inner == BUSY else inner), inner_share
    return ("match" if name == BUSY else name), share


def _most(causes: Mapping[str, int]) -> tuple[str, float]:
    """The cause with most cycles, and its share of all."""
    name = max(causes, key=lambda n: causes[n])
    return name, causes[name] / max(1, sum(causes.values()))


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
    names = [*axes, *dict.fromkeys((*objectives, "cycles"))]
    runs = any("bottleneck" in row for row in good)
    out = [["", *names, *(["bottleneck"] if runs else [])]]
    for row in good[:most]:
        lost = [f"{row['bottleneck']} {100 * row['bottleneck_share']:.0f} %"] if runs else []
        out.append(["*" if row["pareto"] else "", *(_text(row.get(n)) for n in names), *lost])
    return out


def printed(cells: Sequence[Sequence[str]], width: int | None) -> str:
    """A table as lines, header first, with nothing cut.  In `width` columns, names in the header are broken at `.` and `_`,
    and what still does not fit beside the rest stands in a part of its own below, behind the first column.
    """
    narrow = width is not None and sum(max(map(len, column)) + 2 for column in zip(*cells, strict=True)) - 2 > width
    heads = [re.findall(r"[^._]+[._]?", name) if narrow else [name] for name in cells[0]]
    columns = [[*head, *(row[n] for row in cells[1:])] for n, head in enumerate(heads)]
    widths = [max(map(len, column), default=0) for column in columns]
    parts: list[list[int]] = [[0]]
    for n in range(1, len(widths)):
        if narrow and parts[-1] != [0] and sum(widths[m] + 2 for m in (*parts[-1], n)) - 2 > cast("int", width):
            parts.append([0])
        parts[-1].append(n)
    blocks: list[str] = []
    for part in parts:
        high = max(len(heads[n]) for n in part)
        lines = [[([""] * (high - len(heads[n])) + heads[n])[line] for n in part] for line in range(high)]
        lines += [[row[n] for n in part] for row in cells[1:]]
        text = ("  ".join(c.rjust(widths[n]) for c, n in zip(line, part, strict=True)) for line in lines)
        blocks.append("\n".join(line.rstrip() for line in text))
    return "\n\n".join(blocks)


def _text(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
