"""Plots of recorded runs, by matplotlib (the extra `plot`), in one style."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from upl_mlir.diagnostics import error
from upl_mlir.replay import Firing, Trace

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
        raise error(
            "UPL1804", "plots need the Python package `matplotlib`, which is not installed",
            help="pip install 'upl-mlir[plot]'",
        ) from e  # fmt: skip


def _figure(mpl: Any, trace: Trace) -> Any:
    """The figure of a run: how many firings could happen at once, step by step, and how many tokens wait.

    A step holds the firings whose longest chain of firings before them is that long.
    """
    figure = mpl.figure.Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.bar(range(len(trace.levels)), trace.levels, width=0.9, color=PINK)
    left.set(title="Parallelism", xlabel="step (chain of firings)", ylabel="firings")
    counts = waiting(trace)
    right.fill_between(range(1, len(counts) + 1), counts, step="post", color=BLUE, alpha=0.35, linewidth=0)
    right.step(range(1, len(counts) + 1), counts, where="post", color=BLUE, linewidth=1)
    right.set(title="Waiting tokens", xlabel="event", ylabel="tokens", ylim=(0, None))
    return figure


def save_plot(trace: Trace, path: str | Path) -> None:
    """Write the plot of a run as .svg, .png or .pdf.  Raises UplError (UPL1804, UPL1805)."""
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        forms = ", ".join(SUFFIXES)
        raise error("UPL1805", f"a plot has no form `{suffix}`", help=f"end the name of the file in one of {forms}")
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        _figure(mpl, trace).savefig(path, metadata={"Date": None} if suffix == ".svg" else None)
