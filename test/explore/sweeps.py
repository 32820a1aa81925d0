"""What tests of sweeps do with a sweep file: run it, and read its table."""

from __future__ import annotations

import csv
from pathlib import Path

from upl_mlir.tools.upl import main


def explore(path: Path, *arguments: str) -> int:
    """Run a sweep in one process, into the folder `out` beside its file; the status of the command."""
    return main(["explore", str(path), "-o", str(path.parent / "out"), "--jobs", "1", *arguments])


def table(folder: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with (folder / "table.csv").open(encoding="utf-8") as f:
        return list(csv.DictReader(f))
