"""Random programs and inputs for as long as one likes: `make soak MINUTES=5`.

Each campaign looks at seed after seed.  What was reached is added to ``ledger.json``, and a later run goes on from there;
`make reliability` writes RELIABILITY.md from it.  Seeds are looked at in processes of their own, so that one that crashes or
hangs is a failure like others: it is noted, and the next seed has its turn.  Failures are made smaller and saved beside
the tests, where they replay for ever.

    PYTHONPATH=test python -m agreement.soak --replay engines 1000123        one seed again
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agreement import campaign
from agreement.campaign import Failure, Tally, examine, examine_mutants
from agreement.ledger import PLACE, ROOT, Ledger, commit
from agreement.properties import Broken, Case
from agreement.wide import features

WORKER = [sys.executable, "-m", "agreement.soak", "--worker"]
SLICE_SECONDS = 150.0
HANG_SECONDS = 180.0
WHOLE = ("proof", "results", "printing", "inferred", "derivatives", "directive", "passes")


@dataclass(frozen=True)
class Campaign:
    """What is done with a seed, and the share of the time that it gets."""

    share: float
    step: Callable[[int, Tally], None]


def _size(seed: int) -> int:
    """Most programs are small, so that there are many."""
    return (2, 3, 2, 5)[seed % 4]


def _few(seed: int) -> int:
    """Fewer still, for the campaign "native"; up to seed 2000330 they came in another order."""
    return ((3, 2, 2, 3, 2, 4, 2, 2) if seed > 2_000_330 else (2, 3, 2, 2, 4, 2, 3, 2))[seed % 8]


def _mistakes(seed: int, tally: Tally) -> None:
    tally.reached["programs"] += 1
    examine_mutants(seed, 4, tally)


def _malformed(seed: int, tally: Tally) -> None:
    from malformed.inputs import examine as examine_input

    examine_input(seed, tally)


def _fuzzed(seed: int, tally: Tally) -> None:
    from malformed.fuzz import campaign as fuzz

    fuzz(seed, tally)


def _conditions(seed: int, tally: Tally) -> None:
    from agreement.conditions import sweep

    sweep(seed, tally)


def _names(seed: int, tally: Tally) -> None:
    from agreement.names import sweep

    sweep(seed, tally)


def _counted(name: str, look: Callable[[int], Counter[str]], seed: int, tally: Tally) -> None:
    """One seed of a campaign that draws its programs itself: `look` counts what happened, or raises Broken."""
    tally.reached["programs"] += 1
    try:
        tally.reached.update(look(seed))
    except Broken as e:
        tally.reached["FAILED"] += 1
        tally.failures.append(Failure(name, seed, str(e), Case("", True, {}, seed)))


def _decided(seed: int, tally: Tally) -> None:
    from agreement.decided import decided

    _counted("decided", decided, seed, tally)


def _chosen(seed: int, tally: Tally) -> None:
    from agreement.circuits import chosen

    _counted("chosen", chosen, seed, tally)


def _steps(seed: int, tally: Tally) -> None:
    from agreement.steps import steps

    _counted("steps", steps, seed, tally)


def _wide(seed: int, tally: Tally) -> None:
    """Programs of the wider class: all natively, some in the ways that take longer; what native code did is counted
    by feature too."""
    found = Tally()
    ways = ["native", *(way for way, each in WIDE_WAYS.items() if seed % each == 0)]
    examine(seed, ways, found, size=_few(seed))
    for feature in features(tuple(found.features)):
        found.reached[f"with {feature}"] += 1
        for what in [w for w in found.reached if w.startswith("native: ") and w.count(": ") == 2]:
            how = what.removeprefix("native: native: ")
            if how not in (what, "runs"):
                found.reached[f"with {feature}: native: {how}"] += 1
    tally.add(found)


WIDE_WAYS = {"gradients": 4, "results": 8, "machine": 20, "inside": 40}
"""One seed in so many of the campaign "wide"."""
CAMPAIGNS = {
    "ranks": Campaign(0.05, lambda s, t: examine(s, ["ranks"], t, size=_size(s))),
    "native": Campaign(0.13, lambda s, t: examine(s, ["native"], t, size=_few(s))),
    "machine": Campaign(0.08, lambda s, t: examine(s, ["machine"], t, size=(2, 2, 3, 2)[s % 4])),
    "circuit": Campaign(0.08, lambda s, t: examine(s, ["circuit"], t, size=(2, 3, 2, 2)[s % 4])),
    "chosen": Campaign(0.03, _chosen),
    "rare": Campaign(0.03, lambda s, t: examine(s, ["rare"], t, size=(2, 2, 3, 2)[s % 4])),
    "engines": Campaign(0.04, lambda s, t: examine(s, ["engines"], t, size=_size(s))),
    "decided": Campaign(0.05, _decided),
    "steps": Campaign(0.04, _steps),
    "conditions": Campaign(0.10, _conditions),
    "wide": Campaign(0.06, _wide),
    "names": Campaign(0.01, _names),
    "gradients": Campaign(0.18, lambda s, t: examine(s, ["gradients"], t, size=_size(s))),
    "programs": Campaign(0.04, lambda s, t: examine(s, WHOLE, t)),
    "mistakes": Campaign(0.04, _mistakes),
    "malformed": Campaign(0.03, _malformed),
    "atheris": Campaign(0.01, _fuzzed),
}


# -- the process that looks at seeds ----------------------------------------------------------------------------------
def keep_no_programs() -> None:
    """Random programs are compiled once: kept on disk, they would push out what is worth keeping."""
    from upl_mlir.engines.circuit import simulation
    from upl_mlir.engines.native import backend, shapes, whole
    from upl_mlir.host.cache import Cache

    for module in (backend, shapes, whole, simulation):
        module.open_cache = lambda: Cache(None)


def work(name: str, seed: int, seconds: float, most: int = sys.maxsize) -> None:
    """Look at seeds from `seed` on; a line of JSON for each says what was reached."""
    keep_no_programs()
    end, last = time.monotonic() + seconds, seed + most
    while time.monotonic() < end and seed < last:
        tally = Tally()
        start = time.monotonic()
        CAMPAIGNS[name].step(seed, tally)
        line: dict[str, Any] = {"seed": seed, "seconds": time.monotonic() - start, "reached": tally.reached}
        line["failures"] = [{"what": str(f), "file": f.file} for f in tally.failures]
        print(json.dumps(line), flush=True)
        seed += 1


@dataclass
class Turn:
    """What a worker did: seeds before `end`; `broken` says how it ended if it did not end well."""

    end: int
    reached: Counter[str]
    failures: list[tuple[int, str, str | None]]
    broken: str | None = None


Worker = subprocess.Popen[str]


def _end(worker: Worker) -> None:
    """End a worker, and all that it started."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)


def turn(
    name: str, seed: int, seconds: float, most: int = sys.maxsize, started: Callable[[Worker], None] = lambda _: None
) -> Turn:
    """Let a worker look at seeds; `started` is told of it.  It has a group of processes of its own: no Ctrl-C is for it."""
    command = [*WORKER, name, str(seed), str(seconds), str(most)]
    path = os.pathsep.join([str(ROOT / "test"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    out = Turn(seed, Counter(), [])
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "UPL_VERIFY": "1"}, start_new_session=True,
    ) as child:  # fmt: skip
        started(child)
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        errors: list[str] = []

        def read() -> None:
            for line in child.stdout or ():
                lines.put(line)
            lines.put(None)

        for reader in (read, lambda: errors.extend(child.stderr or ())):
            threading.Thread(target=reader, daemon=True).start()
        try:
            while (text := lines.get(timeout=HANG_SECONDS)) is not None:
                if not text.startswith('{"seed"'):
                    continue
                line = json.loads(text)
                out.end = line["seed"] + 1
                out.reached.update(line["reached"])
                out.failures += [(line["seed"], f["what"], f["file"]) for f in line["failures"]]
            child.wait(10)
            if child.returncode:
                words = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", "".join(errors[-3:]).strip())  # paths of one machine
                out.broken = f"the process ended with {child.returncode}: {words}"
        except (queue.Empty, subprocess.TimeoutExpired):
            out.broken = f"no answer within {HANG_SECONDS:.0f} s"
        finally:
            _end(child)
    return out


# -- the whole --------------------------------------------------------------------------------------------------------
class Soak:
    """Campaigns taking turns, by several workers at a time, each on a campaign of its own."""

    def __init__(self, ledger: Ledger, names: Sequence[str], minutes: float, most: int = sys.maxsize):
        self.ledger, self.names, self.most = ledger, list(names), most
        self.end = time.monotonic() + 60 * minutes
        self.spent = Counter[str]()
        self.busy: set[str] = set()
        self.workers: dict[str, Worker] = {}
        self.stopped = False
        self.lock = threading.Lock()
        self.commit = commit()
        self.failed = 0

    def run(self, jobs: int) -> None:
        """Until the time is over, or Ctrl-C: then the workers end at once, and what they have reached counts."""
        with ThreadPoolExecutor(jobs) as pool:  # waits for them at its end
            loops = [pool.submit(self._loop) for _ in range(jobs)]
            try:
                while wait(loops, 0.5).not_done:
                    pass
            except KeyboardInterrupt:
                with self.lock:
                    self.stopped = True
                    for worker in self.workers.values():
                        _end(worker)
                raise
        for loop in loops:
            loop.result()

    def _started(self, name: str, worker: Worker) -> None:
        with self.lock:
            self.workers[name] = worker
            if self.stopped:
                _end(worker)

    def _loop(self) -> None:
        while True:
            with self.lock:
                free = [n for n in self.names if n not in self.busy]
                left = self.end - time.monotonic()
                if self.stopped or not free or (left <= 0 and sum(self.spent.values())):
                    return
                name = min(free, key=lambda n: self.spent[n] / CAMPAIGNS[n].share)
                self.busy.add(name)
                first = self.ledger.next(name)
            start = time.monotonic()
            seconds = max(0.0001, min(SLICE_SECONDS, left))
            done = turn(name, first, seconds, self.most, lambda worker, name=name: self._started(name, worker))
            with self.lock:
                self.busy.discard(name)
                if self.stopped:
                    done.broken = None  # it was ended
                self._note(name, done, time.monotonic() - start, left)

    def _note(self, name: str, done: Turn, seconds: float, left: float) -> None:
        self.spent[name] += seconds  # type: ignore[assignment]
        if done.broken is not None:
            done.failures.append((done.end, done.broken, None))
            done.reached["crashes"] += 1
            done.end += 1
        for seed, what, file in done.failures:
            self.failed += 1
            self.ledger.fail(name, self.commit, seed, what, file)
            print(f"FAILED {name}, seed {seed}: {what}\n", flush=True)
        n = done.end - self.ledger.next(name)
        self.ledger.add(name, self.commit, done.end, seconds, done.reached)
        self.ledger.store()
        print(f"{name}: {n} seeds, {self.failed} failures so far, {max(0.0, left / 60):.1f} minutes left", flush=True)


def replay(name: str, seed: int) -> list[str]:
    """What fails when a seed is looked at again."""
    done = turn(name, seed, HANG_SECONDS, 1)
    return [what for _, what, _ in done.failures] + ([done.broken] if done.broken else [])


def main(argv: list[str]) -> int:
    """Run; the exit status is 1 if something failed."""
    options = argparse.ArgumentParser(prog="soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--minutes", type=float, default=5.0)
    options.add_argument("--jobs", type=int, default=1, help="workers at a time (default 1)")
    options.add_argument("--ledger", type=Path, default=PLACE)
    options.add_argument("--only", default=",".join(CAMPAIGNS), help="campaigns: " + ",".join(CAMPAIGNS))
    options.add_argument("--most", type=int, default=sys.maxsize, help="seeds in one turn")
    options.add_argument("--replay", nargs=2, metavar=("CAMPAIGN", "SEED"), help="look at one seed again")
    options.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    given = options.parse_args(argv)
    if given.worker:
        name, seed, seconds, most = given.worker
        work(name, int(seed), float(seconds), int(most))
        return 0
    if given.replay:
        found = replay(given.replay[0], int(given.replay[1]))
        print("\n\n".join(found) or "fine")
        return bool(found)
    soak = Soak(Ledger.load(given.ledger), given.only.split(","), given.minutes, given.most)
    try:
        soak.run(given.jobs)
    except KeyboardInterrupt:
        print("interrupted: what was reached is in the ledger")
    for name in soak.names:
        print(f"\n{name}: seeds {soak.ledger.next(name)} are next, {soak.ledger.seconds(name)} s in all")
        print("\n".join(f"{n:8} {what}" for what, n in sorted(soak.ledger.reached(name).items())))
    print(f"\n{soak.failed} failures now, {len(soak.ledger.open())} open in all; saved ones are in {campaign.SAVED}")
    return 1 if soak.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
