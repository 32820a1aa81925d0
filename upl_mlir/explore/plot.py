"""The plot of a sweep: every point by two objectives, and the front of those that no other one beats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from upl_mlir.explore.sweep import MAXIMISED
from upl_mlir.explore.table import Row, pareto
from upl_mlir.observe.plots import BLUE, PINK, STYLE, matplotlib

NAMES = {
    "cycles": "cycles", "lut": "LUT sites", "ff": "flip-flops", "block_ram": "block RAMs", "energy": "energy proxy, nJ",
    "time_us": "time, µs", "fmax_mhz": "clock, MHz", "dsp": "multipliers", "interval": "clocks from run to run",
    "difference": "error, of the greatest element", "spills": "spills", "peak_waiting": "most tokens waiting",
}  # fmt: skip


def save_pareto(rows: Sequence[Row], objectives: Sequence[str], path: Path) -> None:
    """Write the plot, a panel for the first objective against each of the others.  Raises UplError (UPL1804) without the
    extra `plot`; there must be two objectives, and a row that has both."""
    mpl = matplotlib()
    others = objectives[1:]
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(4.2 * len(others), 3.4), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(others), squeeze=False)[0], others, strict=True):
            _panel(axes, rows, (objectives[0], name))
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(axes: Any, rows: Sequence[Row], names: tuple[str, str]) -> None:
    x, y = names
    there = [r for r in rows if r.get(x) is not None and r.get(y) is not None]
    axes.scatter([r[x] for r in there], [r[y] for r in there], s=9, color=BLUE, alpha=0.5, linewidths=0)
    best = sorted(((r[x], r[y]) for n, r in enumerate(there) if n in pareto(there, names)))
    where = "pre" if (x in MAXIMISED) != (y in MAXIMISED) else "post"
    axes.step([b[0] for b in best], [b[1] for b in best], where=where, color=PINK, linewidth=1)
    axes.scatter([b[0] for b in best], [b[1] for b in best], s=16, color=PINK, linewidths=0, zorder=3)
    axes.set(xlabel=NAMES[x], ylabel=NAMES[y])
    for set_scale, values in ((axes.set_xscale, [r[x] for r in there]), (axes.set_yscale, [r[y] for r in there])):
        if values and min(values) > 0 and max(values) > 20 * min(values):
            set_scale("log")
