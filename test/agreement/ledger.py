"""The ledger of all soaks: `ledger.json`, from which `make reliability` writes RELIABILITY.md.

Counts are kept by campaign and commit, with the seeds they come from; a failure stays open until its replay passes.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PLACE = Path(__file__).resolve().with_name("ledger.json")
ROOT = Path(__file__).resolve().parents[2]
FIRST = 1_000_000  # the tests' seeds lie below
STARTS = {"native": 2_000_000, "machine": 4_000_000, "conditions": 8_000_000, "wide": 9_001_000, "names": 10_000_000,
          "circuit": 12_000_000, "rare": 14_000_000, "decided": 16_000_000, "ranks": 18_000_000,
          "steps": 20_000_000, "chosen": 22_000_000}
"""Of campaigns whose programs are to be others than those of "engines"."""


@dataclass
class Ledger:
    """What was reached, by campaign."""

    path: Path = PLACE
    campaigns: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @staticmethod
    def load(path: Path = PLACE) -> Ledger:
        """The ledger of a file; an empty one if there is none."""
        if not path.exists():
            return Ledger(path)
        data = json.loads(path.read_text(encoding="utf-8"))
        return Ledger(path, data["campaigns"], data["failures"])

    def store(self) -> None:
        """Write it, whole or not at all."""
        text = json.dumps({"campaigns": self.campaigns, "failures": self.failures}, indent=1, sort_keys=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(self.path)

    def next(self, campaign: str) -> int:
        """The first seed that this campaign has not looked at."""
        return self.campaigns.get(campaign, {}).get("next", STARTS.get(campaign, FIRST))

    def add(self, campaign: str, commit: str, end: int, seconds: float, reached: Mapping[str, int]) -> None:
        """Note that the seeds from `next` to before `end` were looked at."""
        first = self.next(campaign)
        if end <= first:
            return
        kept = self.campaigns.setdefault(campaign, {"next": first, "runs": []})
        kept["next"] = end
        day = datetime.now(UTC).date().isoformat()
        runs: list[dict[str, Any]] = kept["runs"]
        if not runs or (runs[-1]["commit"], runs[-1]["day"]) != (commit, day):
            runs.append({"commit": commit, "day": day, "seeds": [first, first], "seconds": 0, "reached": {}})
        run = runs[-1]
        run["seeds"][1] = end
        run["seconds"] = round(run["seconds"] + seconds)
        run["reached"] = dict(Counter(run["reached"]) + Counter(reached))

    def fail(self, campaign: str, commit: str, seed: int, what: str, file: str | None) -> None:
        """Note a failure, open for now."""
        entry = {"campaign": campaign, "commit": commit, "seed": seed, "what": what[:400], "file": file, "closed": None}
        if all((f["campaign"], f["seed"], f["what"]) != (campaign, seed, entry["what"]) for f in self.failures):
            self.failures.append(entry)

    def open(self) -> list[dict[str, Any]]:
        """The failures that are not closed."""
        return [f for f in self.failures if f["closed"] is None]

    def reached(self, campaign: str) -> Counter[str]:
        """The counts of a campaign over all commits."""
        out = Counter[str]()
        for run in self.campaigns.get(campaign, {}).get("runs", ()):
            out.update(run["reached"])
        return out

    def commits(self, campaign: str) -> list[str]:
        """The commits that a campaign ran at, in order."""
        return list(dict.fromkeys(run["commit"] for run in self.campaigns.get(campaign, {}).get("runs", ())))

    def seconds(self, campaign: str) -> int:
        """How long a campaign ran in all."""
        return sum(run["seconds"] for run in self.campaigns.get(campaign, {}).get("runs", ()))


def commit() -> str:
    """The commit of the working tree, with a + where the package differs from it; "unknown" without git."""
    try:
        head = _git("rev-parse", "--short=8", "HEAD").strip()
        return head + ("+" if _git("status", "--porcelain", "--", "upl_mlir") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
