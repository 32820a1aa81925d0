"""Where the benchmarks' figures are kept: `results.json`, a key for each part, and `RESULTS.md`, made from it."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RUNS = 7
TITLES = {"tools": "Interpreter and tools", "compile": "Check and differentiate", "server": "Language server",
          "cost": "Cost of derivatives", "token": "Token engine", "picture": "Pictures",
          "simulation": "Simulation of machines"}  # fmt: skip

TEXTS = {"sparse": "Programs that data decide", "suite": "Programs that nobody tuned for", "ranks": "Many machines"}
"""Parts that are modules of their own (`python -m bench.sparse`), which say how they measure."""


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, in which unit, the aim (empty if there is none), the peer beside it."""

    what: str
    value: float
    unit: str
    aim: str
    peer: str
    peer_value: float

    @property
    def text(self) -> str:
        """The line in Markdown."""
        ratio = self.value / self.peer_value if self.peer_value else float("nan")
        return (
            f"| {self.what} | {self.value:.4g} {self.unit} | {self.aim} | {self.peer}: {self.peer_value:.4g} {self.unit} "
            f"| {ratio:.3g} |"
        )


def apart(command: Sequence[str], limit_s: float) -> dict[str, Any] | str:
    """The figures that a process of its own prints as JSON in its last line, or why there are none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"takes more than {limit_s} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:120]
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: Iterable[Row]) -> str:
    """Rows in Markdown."""
    head = "| what | measured | aim | beside it, same run | ratio |\n|---|---|---|---|---|"
    return "\n".join([head, *(r.text for r in rows)])


def interleaved(*actions: Callable[[], float], runs: int = RUNS) -> list[float]:
    """Medians of figures measured in turn, after one round to warm up."""
    for action in actions:
        action()
    figures: list[list[float]] = [[] for _ in actions]
    for _ in range(runs):
        for found, action in zip(figures, actions, strict=True):
            found.append(action())
    return [statistics.median(f) for f in figures]


def this_machine() -> str:
    """What the figures were measured on."""
    python = platform.python_version()
    runs = f"medians of {RUNS} interleaved runs if nothing else is said"
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {python}, {runs}"


def read() -> dict[str, Any]:
    """All figures."""
    try:
        return json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def update(key: str, value: Mapping[str, Any]) -> None:
    """Put the figures of one part in place of its old ones, and write both files."""
    results = {k: v for k, v in read().items() if k in (*TITLES, *TEXTS, "native")} | {key: value}
    text = json.dumps(results, indent=1, ensure_ascii=False)
    (HERE / "results.json").write_text(text + "\n", encoding="utf-8")
    (HERE / "RESULTS.md").write_text(markdown(results), encoding="utf-8")


def markdown(results: Mapping[str, Any]) -> str:
    """All figures in Markdown."""
    from bench.native.table import markdown as native

    parts = ["# Measured"]
    for key, title in TITLES.items():
        if key in results:
            found = results[key]
            rows = [Row(**row) for row in found["rows"]]
            parts += [f"## {title}", f"Written by `make bench BENCH_ARGS={key}`. {found['machine']}.", table(rows)]
            parts += [found["note"]] if found.get("note") else []
    if "native" in results:
        parts.append(native(results["native"]).rstrip())
    for key, title in TEXTS.items():
        if key in results:
            parts += [f"## {title}", results[key]["text"].rstrip()]
    return "\n\n".join(parts) + "\n"
