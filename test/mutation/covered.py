"""Which tests execute the place of a change: recorded once, file of tests by file, in ``build/covered``.

    PYTHONPATH=test python -m mutation.covered        the tests of `SUITE`; goes on where it stopped (needs coverage.py)

A change is shown to these tests alone, the quickest first; another test does not come to see it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.operators import Place
from mutation.overlay import PACKAGE, ROOT

PLACE = ROOT / "build" / "covered"
SUITE = (
    "poly", "passes", "hw/test_matching_unit.py", "hw/test_cam.py", "native/test_schedules.py",
    "native/test_running_sums.py", "agreement/test_agreement.py", "autodiff", "native/test_gradients.py",
    "native/test_convolutions.py", "hw/test_image.py", "hw/test_execute.py", "native/test_long_programs.py",
    "agreement/test_found.py", "native/test_c_programs.py",
)  # fmt: skip
"""Files and folders of tests in which a change in `passes`, `poly` and `hw/matching_unit` may show."""

FEWER = {"UPL_AGREEMENT": "0.3"}
"""The tests on random programs look at fewer: here, and when a change is tried."""


def files(suite: Iterable[str] = SUITE) -> list[Path]:
    """The files of tests."""
    found: list[Path] = []
    for name in suite:
        path = ROOT / "test" / name
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path] if path.exists() else []
    return found


def record(path: Path, folder: Path = PLACE) -> bool:
    """Record one file of tests, if that was not done yet; whether it could be."""
    name = path.relative_to(ROOT / "test").as_posix()
    place = folder / (name.replace("/", ".") + ".json")
    if place.exists():
        return True
    folder.mkdir(parents=True, exist_ok=True)
    search = os.pathsep.join([str(ROOT), str(ROOT / "test"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-p", "mutation.recorder",
               "-m", "", str(path.relative_to(ROOT))]  # fmt: skip
    env = {**os.environ, **FEWER, "PYTHONPATH": search, "UPL_RECORD": str(place)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    print(f"{name}: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]}", flush=True)
    return place.exists()


@dataclass(frozen=True)
class Recorded:
    """What was recorded: seconds by test, and tests by file (relative to the package) and line."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, set[str]]]

    def tests_at(self, place: Place, source: str) -> list[str]:
        """The tests that execute a place, the quickest first; where a line has no code of its own, or is executed while the
        file is loaded, those that execute its function, or anything in the file."""
        found = self.lines.get(place.file, {})
        for first, last in ((place.line, place.line), _function(source, place.line), (1, sys.maxsize)):
            tests = {t for line, who in found.items() if first <= line <= last for t in who}
            if tests:
                return sorted(tests, key=lambda t: (self.seconds[t], t))
        return []


def _function(source: str, line: int) -> tuple[int, int]:
    """The first and the last line of the innermost function round a line; of the line alone if there is none."""
    functions = [
        (node.lineno, node.end_lineno or 0)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(functions, default=(line, line))  # the innermost one begins last


def load(folder: Path = PLACE) -> Recorded:
    """All that is recorded."""
    out = Recorded({}, {})
    for path in sorted(folder.glob("*.json")):
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        names = list(data["seconds"])
        out.seconds.update(data["seconds"])
        for file, lines in data["lines"].items():
            inside = file.rpartition(f"/{PACKAGE}/")[2]
            kept = out.lines.setdefault(inside, {})
            for line, tests in lines.items():
                kept.setdefault(int(line), set()).update(names[n] for n in tests)
    return out


def main() -> int:
    """Record what is not recorded; the exit status is 1 if something could not be."""
    missing = sum(not record(path) for path in files())
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
