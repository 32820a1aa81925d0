"""`upl explore`: looks at a program on many machines or as many circuits, and says which are the best."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upl_mlir.diagnostics import error
from upl_mlir.tools.boundary import UsageError, whole_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from upl_mlir.explore.runner import Run, Runner

_ESTIMATED = "{} estimated: docs/explore.md says how well"
SHOWN = 20
"""Rows of the table that is printed; all are in the files."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command."""
    p.add_argument("file", metavar="SWEEP.toml", help="what to vary: see docs/explore.md")
    p.add_argument("-o", dest="output", metavar="DIR", help="where results go and are looked for; default: SWEEP.results")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: the cores)")
    p.add_argument("--dask", metavar="ADDRESS", help="run on the Dask cluster of the scheduler there")
    p.add_argument("-q", "--quiet", action="store_true", help="do not say how far it is")
    p.add_argument("--list", action="store_true", help="say how many points there are, and run none")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(args: argparse.Namespace) -> int:
    """Run what is left of the sweep and write its tables; returns the exit status."""
    from rich.console import Console

    from upl_mlir.explore.inputs import job_of
    from upl_mlir.explore.records import Records
    from upl_mlir.explore.runner import Runner
    from upl_mlir.explore.sweep import load_sweep
    from upl_mlir.explore.workers import dask, local

    if args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs}: expected 1 or more")
    sweep = load_sweep(args.file)
    if args.list:
        job_of(sweep)
        many = f"{sweep.size} points" if sweep.search.sampler == "grid" else f"{sweep.search.trials} of {sweep.size} points"
        print(f"{many} over {', '.join(sweep.axes) or 'nothing'}")
        return 0
    if sweep.search.synthesis:
        _require_tools(sweep.search.place_and_route)
    folder = Path(args.output or Path(args.file).with_suffix(".results").name)
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    shown = _Shown(console, args.quiet)
    workers = dask(args.dask) if args.dask else local(args.jobs)
    runner: Runner | None = None
    try:
        with shown, workers as pool:
            runner = Runner(sweep, Records(folder), pool, args.jobs, shown)
            if sweep.search.sampler == "grid":
                runner.grid()
            else:
                from upl_mlir.explore.search import search

                search(runner)
    except KeyboardInterrupt:
        print(f"the same command goes on from here; finished runs are in {folder}", file=sys.stderr)
        raise
    return _results(runner, folder)


def _require_tools(clock: bool) -> None:
    """An error before anything has run, if synthesis could not."""
    from upl_mlir.hw.synth.tools import NEXTPNR, YOSYS

    YOSYS.version()
    if clock:
        NEXTPNR.version()


def _results(runner: Runner, folder: Path) -> int:
    """Write the tables and the plot, and print the best points."""
    from upl_mlir.explore import table

    search = runner.sweep.search
    runs = sorted(runner.runs, key=lambda r: [_place(runner, r, axis) for axis in runner.sweep.axes])
    rows = table.rows(runs, search.objectives)
    with whole_file(folder / "table.csv") as stream:
        stream.write(table.to_csv(rows).encode())
    written = ["table.csv"]
    if table.has_parquet():
        table.write_parquet(rows, folder / "table.parquet")
        written.append("table.parquet")
    good = [r for r in rows if r["error"] is None]
    if len(search.objectives) > 1 and good and _plots():
        from upl_mlir.explore.plot import save_pareto

        save_pareto(good, search.objectives, folder / "pareto.svg")
        written.append("pareto.svg")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(table.printed(table.shown(rows, list(runner.sweep.axes), search.objectives, SHOWN), width))
    failed = [r for r in rows if r["error"] is not None]
    kept = f", {runner.kept} of them from before" if runner.kept else ""
    print(f"{len(rows)} points{kept}; * no other point is better in {' and '.join(search.objectives)}")
    if runner.sweep.circuit is not None and not search.place_and_route:
        print(_ESTIMATED.format("clocks are" if search.synthesis else "LUT sites, flip-flops and clocks are"))
    if "energy" in search.objectives:
        print(_ranking(runs))
    for row in failed[:3]:
        print(f"no result: {_point(row, runner.sweep.axes)}: {str(row['error']).splitlines()[0]}")
    if len(failed) > 3:
        print(f"and {len(failed) - 3} more without a result: see the column `error`")
    if not table.has_parquet():
        print("no table.parquet: pip install 'upl-mlir[explore]'")
    print(f"{folder}: {', '.join(written)}")
    if not good:
        first = [str(r["error"]).splitlines()[0] for r in failed[:1]]
        raise error("UPL1743", "no point of the sweep has a result", notes=first)
    return 0


def _ranking(runs: list[Run]) -> str:
    """How far the order by energy depends on the weights."""
    from upl_mlir.explore.energy import ranking_changes
    from upl_mlir.hw.machine import Machine

    done = [(r, r.task.on) for r in runs if r.outcome.stats is not None and isinstance(r.task.on, Machine)]
    found = ranking_changes([(r.outcome.stats or {}, m.energy, (r.area or {}).get("luts")) for r, m in done])
    pairs = len(done) * (len(done) - 1) // 2
    if not found:
        return "the order by energy stays the same with any weight halved or doubled"
    worst = max(found, key=lambda name: found[name])
    share = 100 * found[worst] / max(1, pairs)
    return f"the order by energy: one weight halved or doubled changes at most {share:.1f} % of the pairs ({worst})"


def _place(runner: Runner, run: Run, axis: str) -> int:
    values = runner.sweep.axes[axis]
    return values.index(run.point[axis])


def _point(row: dict[str, Any], axes: Any) -> str:
    return ", ".join(f"{axis} = {row[axis]}" for axis in axes)


def _plots() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


class _Shown(AbstractContextManager["_Shown"]):
    """Progress on the standard error: bars on a terminal, a line for each phase elsewhere."""

    def __init__(self, console: Console, quiet: bool):
        self.console, self.quiet = console, quiet
        self.bars: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> _Shown:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        if self.console.is_terminal and not self.quiet:
            times = (TimeElapsedColumn(), TimeRemainingColumn())
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *times)
            self.bars = Progress(*columns, console=self.console, transient=True)
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def phase(self, what: str, total: int) -> None:
        """As `Progress` says."""
        if not total:
            return
        if self.bars is not None:
            self.task = self.bars.add_task(what, total=total)
        elif not self.quiet:
            print(f"{total} {what}", file=sys.stderr, flush=True)

    def step(self, done: int = 1) -> None:
        """As `Progress` says."""
        if self.bars is not None and self.task is not None:
            self.bars.advance(self.task, done)


