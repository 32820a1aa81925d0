"""Measure the native engine against its peers and write the results: `python -m bench.native [--only KEY]… [--quick]`."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import report
from bench.native import machine, table
from bench.native.cases import CASES

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = "python -m bench.native"


def child(module: str, *arguments: str, env: dict[str, str] | None = None) -> Any:
    """What a process of our own prints as JSON; a dead one gives its last line."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.native.{module}", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})},
    )  # fmt: skip
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return {"failed": {"the process": lines[-1][:300]}}


def first_gradients(key: str) -> dict[str, Any]:
    """Seconds to the first gradient: ours with an empty cache, again with what that left, at tiny sizes; and JAX's."""
    with tempfile.TemporaryDirectory() as cold, tempfile.TemporaryDirectory() as tiny:
        return {
            "native": child("first", key, "native", env={"UPL_CACHE_DIR": cold}),
            "cached": child("first", key, "native", env={"UPL_CACHE_DIR": cold}),
            "tiny": child("first", key, "native", "--tiny", env={"UPL_CACHE_DIR": tiny}),
            "jax": child("first", key, "jax"),
        }


def main() -> None:
    """Run the workers, print the tables, write them."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="KEY", help=", ".join(c.key for c in CASES))
    parser.add_argument(
        "--quick", action="store_true", help="three rounds and short ones: for a look, not for the record"
    )
    parser.add_argument("--verify", action="store_true", help="only compare the contenders' numbers; writes nothing")
    given = parser.parse_args()
    unknown = set(given.only) - {c.key for c in CASES}
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(c.key for c in CASES)}")
    cases = [c for c in CASES if not given.only or c.key in given.only]
    rounds, budget = (0, 0.0) if given.verify else (3, 3.0) if given.quick else (7, 20.0)
    options = ["--rounds", str(rounds), "--budget", str(budget)]

    compileall.compile_dir(ROOT / "upl_mlir", quiet=1)  # as an installed package is; peers' are, too
    results = {} if given.verify else dict(report.read().get("native", {}))
    # With each case, because `--only` replaces some cases and leaves the others as an earlier run made them.
    made = {"command": f"{COMMAND} {shlex.join(sys.argv[1:])}".strip(), "date": time.strftime("%Y-%m-%d")}
    made["machine"] = "; ".join(f"{n}: {v}" for n, v in machine.facts().items())
    found = results.setdefault("cases", {})
    for case in cases:
        print(f"{case.key}: {case.title}", file=sys.stderr, flush=True)
        record: dict[str, Any] = {"made": made, "one": child("worker", case.key, *options)}
        if not given.verify:
            if case.parallel:
                record["two"] = child("worker", case.key, *options, "--threads", "2", "--only", "native",
                                      "--only", "native, one thread", "--only", "jax", "--only", "torch")  # fmt: skip
            record["first"] = first_gradients(case.key)
            if case.trajectory_bytes:
                record["memory"] = {
                    n: child("worker", case.key, "--memory", n) for n in ("native", "jax", "torch", "C")
                }
        found[case.key] = record
        if not given.verify:
            report.update("native", results)  # each case at once: what breaks off later loses nothing
        print(table.short(case, record), file=sys.stderr, flush=True)
    if given.verify:
        bad = [c.key for c in cases if found[c.key]["one"].get("failed")]
        sys.exit(f"wrong or failed: {', '.join(bad)}" if bad else None)
    print(table.markdown(results))


if __name__ == "__main__":
    main()
