"""The package with one file changed, for a test process: a folder of links to its files, one of them replaced."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "upl_mlir"


@dataclass(frozen=True)
class Outcome:
    """How the tests ended: `caught` if one failed, None if the machine was too slow to tell; `by` is the first that did."""

    caught: bool | None
    by: str
    output: str


def changed(folder: Path, file: str, text: str) -> None:
    """Make `folder` the package with `file` (relative to the package) replaced by `text`."""
    source = ROOT / PACKAGE
    shutil.rmtree(folder / PACKAGE, ignore_errors=True)
    for path in source.rglob("*"):
        place = folder / PACKAGE / path.relative_to(source)
        if path.is_dir() or (path.parent.name == "__pycache__" and path.name.startswith(f"{Path(file).stem}.")):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if path != source / file:
            place.symlink_to(path)
    target = folder / PACKAGE / file
    target.unlink(missing_ok=True)
    target.write_text(text, encoding="utf-8")


def run_tests(folder: Path, tests: Sequence[str], seconds: int) -> Outcome:
    """Run tests on the package in `folder` until one fails.

    More than `seconds` of CPU time in one process is a loop without end: that is seen, and so it counts as caught.
    """
    env = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "UPL_CACHE_DIR": str(folder / "cache"),
    }
    (folder / "cache").mkdir(mode=0o700, exist_ok=True)
    listed = folder / "tests"  # a command line has no room for thousands
    listed.write_text("".join(f"{t}\n" for t in tests), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", "-m", "", f"@{listed}"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    child = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        preexec_fn=limit,  # noqa: PLW1509 - no threads here
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=10 * seconds)
    except subprocess.TimeoutExpired:
        return Outcome(None, "the tests did not end in time", "")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    failed = re.findall(r"(?m)^(?:FAILED|ERROR) ([^\s[]+(?:\[.*?\])?)(?= - |$)", output)
    if child.returncode == 0:
        return Outcome(False, "", output[-2000:])
    if child.returncode < 0:
        endless = child.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        at = re.search(r'File ".*?/(test/[\w/]+\.py)", line \d+ in (test_\w+)', output)  # as Python's faulthandler says
        return Outcome(True, f"{at[1]}::{at[2]}" if at else "no end" if endless else "a crash", output[-2000:])
    if child.returncode != 1 and not failed:  # no such test, or pytest itself failed
        return Outcome(None, f"pytest ended with {child.returncode}", output[-2000:])
    return Outcome(True, failed[0] if failed else "?", output[-2000:])
