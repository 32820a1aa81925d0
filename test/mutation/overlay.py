"""The package with one file changed, for a test process: a folder of links to its files, one of them replaced."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "upl_mlir"


@dataclass(frozen=True)
class Outcome:
    """How the tests ended: `caught` if one failed; `by` is the first that did."""

    caught: bool
    by: str
    output: str


def changed(folder: Path, file: str, text: str) -> None:
    """Make `folder` the package with `file` (relative to the package) replaced by `text`."""
    source = ROOT / PACKAGE
    shutil.rmtree(folder / PACKAGE, ignore_errors=True)
    for path in source.rglob("*"):
        place = folder / PACKAGE / path.relative_to(source)
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if path != source / file:
            place.symlink_to(path)
    target = folder / PACKAGE / file
    target.unlink(missing_ok=True)
    target.write_text(text, encoding="utf-8")


def run_tests(folder: Path, tests: Sequence[str], timeout: float) -> Outcome:
    """Run tests on the package in `folder` until one fails.  Time that runs out counts as caught: a loop without end is seen."""
    env = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "UPL_CACHE_DIR": str(folder / "cache"),
    }
    (folder / "cache").mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-P", "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    child = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.communicate()
        return Outcome(True, "no end", "")
    failed = re.findall(r"(?m)^(?:FAILED|ERROR) (\S+(?:\[.*?\](?= - |$))?)", output)
    if child.returncode == 0:
        return Outcome(False, "", output[-2000:])
    if child.returncode != 1 and not failed:
        failed = [f"exit status {child.returncode}"]
    return Outcome(True, failed[0] if failed else "?", output[-2000:])
