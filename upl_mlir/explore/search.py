"""Searching a sweep too large for its grid: Optuna proposes the points."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from upl_mlir.diagnostics import error
from upl_mlir.explore.runner import Runner
from upl_mlir.explore.sweep import MAXIMISED, Point
from upl_mlir.explore.table import rows


def search(runner: Runner) -> None:
    """Run `trials` points.  Proposals follow from the seed and the results, so that a search that is started again finds
    its runs there and goes on.  Raises UplError (UPL1804) without the extra `explore`."""
    optuna = _optuna()
    sweep = runner.sweep
    objectives = sweep.search.objectives
    seed = sweep.search.seed
    sampler = optuna.samplers.TPESampler(seed=seed) if len(objectives) == 1 else optuna.samplers.NSGAIISampler(
        seed=seed, population_size=max(4, min(50, sweep.search.trials // 4)))  # fmt: skip
    directions = ["maximize" if name in MAXIMISED else "minimize" for name in objectives]
    study = optuna.create_study(directions=directions, sampler=sampler)
    runner.progress.phase("trials", sweep.search.trials)
    left = sweep.search.trials
    while left:
        trials = [study.ask() for _ in range(min(left, runner.workers))]
        points: list[Point] = [
            {axis: trial.suggest_categorical(axis, list(values)) for axis, values in sweep.axes.items()}
            for trial in trials
        ]
        for trial, row in zip(trials, rows(runner.ask(points), objectives), strict=True):
            values = [row.get(name) for name in objectives]
            if row["error"] is not None or any(v is None for v in values):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, values)
            runner.progress.step()
        left -= len(trials)


def _optuna() -> Any:
    try:
        optuna = cast(Any, import_module("optuna"))
    except ImportError as cause:
        message = 'sampler = "optuna" needs the Python package `optuna`, which is not installed'
        raise error("UPL1804", message, help="pip install 'upl-mlir[explore]', or sampler = \"grid\"") from cause
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
