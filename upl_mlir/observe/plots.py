"""Plots of recorded runs, by matplotlib (the extra `plot`), in one style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

from upl_mlir.diagnostics import error, not_installed
from upl_mlir.observe.replay import Firing, Trace

STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9.0, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.alpha": 0.3, "figure.dpi": 144, "svg.hashsalt": "upl",
    "svg.fonttype": "none",
}  # fmt: skip
"""What all plots have in common; SVG files are the same wherever they are made."""
BLUE, PINK = "#1d5fa6", "#b0365f"
SUFFIXES = (".svg", ".png", ".pdf")


def waiting(trace: Trace) -> list[int]:
    """The number of tokens that are under way or wait at an input, after each event."""
    inputs, now, out = len(trace.targets) - len(trace.outputs), 0, list[int]()
    for e in trace.events:
        now += -len(e.ends) if isinstance(e, Firing) else int(e.target < inputs)
        out.append(now)
    return out


def matplotlib() -> Any:
    """The library.  It has an extra of its own, so the type checker must do without it."""
    try:
        import_module("matplotlib.figure")
        return import_module("matplotlib")
    except ImportError as e:
        raise not_installed("plots need", "matplotlib", "plot") from e


def over_cycles(trace: Trace, columns: int = 100) -> tuple[list[int], list[float], list[int]]:
    """Of a machine's run, in so many parts of its time: where each begins (cycle), firings per cycle in it, and the greatest
    number of records in its matching stores (`occupancy` in the statistics)."""
    last = max([cycle for _, cycle in trace.places] + [cycle for _, cycle, _ in trace.records], default=0) + 1
    columns = min(columns, last)
    starts = [-(-last * n // columns) for n in range(columns)]
    fired = [0] * columns
    for e, (_, cycle) in zip(trace.events, trace.places, strict=True):
        fired[cycle * columns // last] += isinstance(e, Firing)
    ends = [*starts[1:], last]
    rates = [n / (end - start) for n, start, end in zip(fired, starts, ends, strict=True)]
    change, now = [0] * last, dict[int, int]()
    for core, cycle, count in trace.records:
        change[cycle] += count - now.get(core, 0)
        now[core] = count
    counts = list(accumulate(change))
    return starts, rates, [max(counts[start:end]) for start, end in zip(starts, ends, strict=True)]


def _figure(mpl: Any, trace: Trace) -> Any:
    """The figure of a run: how many firings happen at once, and how many tokens wait; of a machine's run over its cycles.

    The interpreter has no time: there a step holds the firings whose longest chain of firings before them is that long.
    """
    figure = mpl.figure.Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    if trace.places:
        starts, fired, counts = over_cycles(trace)
        left.step(starts, fired, where="post", color=PINK, linewidth=1)
        left.fill_between(starts, fired, step="post", color=PINK, alpha=0.35, linewidth=0)
        left.set(title="Parallelism", xlabel="cycle", ylabel="firings per cycle", ylim=(0, None))
        right.fill_between(starts, counts, step="post", color=BLUE, alpha=0.35, linewidth=0)
        right.step(starts, counts, where="post", color=BLUE, linewidth=1)
        right.set(title="Matching store", xlabel="cycle", ylabel="records", ylim=(0, None))
        return figure
    left.bar(range(len(trace.levels)), trace.levels, width=0.9, color=PINK)
    left.set(title="Parallelism", xlabel="step (chain of firings)", ylabel="firings")
    counts = waiting(trace)
    right.fill_between(range(1, len(counts) + 1), counts, step="post", color=BLUE, alpha=0.35, linewidth=0)
    right.step(range(1, len(counts) + 1), counts, where="post", color=BLUE, linewidth=1)
    right.set(title="Waiting tokens", xlabel="event", ylabel="tokens", ylim=(0, None))
    return figure


def save_plot(trace: Trace, path: str | Path) -> None:
    """Write the plot of a run as .svg, .png or .pdf.  Raises UplError (UPL1804, UPL1805)."""
    _save(lambda mpl: _figure(mpl, trace), path)


def save_training(loss: Sequence[float], accuracy: Sequence[float], path: str | Path) -> None:
    """Write the curves of a training, epoch by epoch, as .svg, .png or .pdf.  Raises as `save_plot`."""

    def figure(mpl: Any) -> Any:
        out = mpl.figure.Figure(figsize=(8, 3.2), layout="constrained")
        epochs = range(1, len(loss) + 1)
        left, right = out.subplots(1, 2)
        left.plot(epochs, loss, color=PINK, marker="o", markersize=3, linewidth=1)
        left.set(title="Loss", xlabel="epoch", ylabel="loss", ylim=(0, None))
        right.plot(epochs, [100 * a for a in accuracy], color=BLUE, marker="o", markersize=3, linewidth=1)
        right.set(title="Accuracy", xlabel="epoch", ylabel="per cent", ylim=(0, 100))
        return out

    _save(figure, path)


def _save(figure: Callable[[Any], Any], path: str | Path) -> None:
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        forms = ", ".join(SUFFIXES)
        raise error("UPL1805", f"a plot has no form `{suffix}`", help=f"end the name of the file in one of {forms}")
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure(mpl).savefig(path, metadata={"Date": None} if suffix == ".svg" else None)
