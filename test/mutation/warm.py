"""Many changes, each tried in a copy of one process that has loaded the package and all tests: no start, no loading.

Used by `score`.  In the copy (fork) the code of the changed function takes the place of the function's own, and the chosen
tests run until one fails.  That is right where the function was not called before: by none of the modules of the package
or of the tests while they were loaded.  Where it was, or where the change is outside of functions, the tests run in a
process of their own on a package with the changed file (`overlay`).
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import inspect
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from mutation.operators import Place, changed_tree
from mutation.overlay import PACKAGE, ROOT, Outcome

MEMORY = 8 << 30  # bytes of address space for one change: what takes more is seen, as a loop without end is
PATIENCE = 15.0  # seconds of CPU time
Key = tuple[str, str, int]


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _patience(seconds: float) -> float:
    return 10 * seconds + PATIENCE


def functions(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The outermost functions that differ, as they were and as they are; None if code outside of functions differs."""
    if old == new:
        return []
    if old.co_flags & inspect.CO_OPTIMIZED:
        return [(old, new)]

    def plain(code: CodeType) -> Any:
        return code.co_code, code.co_names, [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]

    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
    if plain(old) != plain(new) or len(inner[0]) != len(inner[1]):
        return None
    out: list[tuple[CodeType, CodeType]] = []
    for a, b in zip(*inner, strict=True):
        found = functions(a, b)
        if found is None:
            return None
        out += found
    return out


class Warm:
    """A plugin of pytest, which collects the tests and gives the word to `work`."""

    def __init__(self, folder: Path, parts: Sequence[str], work: Callable[[Warm], None]):
        self.folder, self.work = folder, work
        self.items: dict[str, pytest.Item] = {}
        self.called: set[Key] = set()
        self.live: dict[Key, list[FunctionType]] = {}
        self.failed: Callable[[str], None] | None = None
        self.fine: dict[str, bool] = {}
        if any(m.startswith(f"{PACKAGE}.") for m in sys.modules):
            raise RuntimeError("the package is loaded: which functions were called meanwhile is not known")
        sys.setprofile(self._seen)
        for part in parts:
            for path in sorted((ROOT / PACKAGE / part).rglob("*.py")):
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))

    def _seen(self, frame: Any, event: str, arg: object) -> None:
        del arg
        if event == "call":
            self.called.add(_key(frame.f_code))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests."""
        sys.setprofile(None)
        self.items = {i.nodeid: i for i in session.items}
        inside = str(ROOT / PACKAGE)
        gc.unfreeze()  # test/conftest.py has frozen what was loaded, and the collector does not list frozen objects
        for f in gc.get_objects():
            if isinstance(f, FunctionType) and f.__code__.co_filename.startswith(inside):
                self.live.setdefault(_key(f.__code__), []).append(f)
        gc.freeze()  # the copies need not look at all this
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as by Ctrl-C: no copy is left behind
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In a copy: the first failure is the end."""
        if report.failed and self.failed is not None:
            self.failed(report.nodeid)

    def code_of(self, place: Place, source: str) -> list[tuple[FunctionType, CodeType]] | None:
        """What becomes of which functions; None if that must be seen while the file is loaded."""
        path = str(ROOT / PACKAGE / place.file)
        old, new = (compile(t, path, "exec", dont_inherit=True) for t in (ast.parse(source), changed_tree(place, source)))
        found = functions(old, new)
        if found is None:
            return None
        out: list[tuple[FunctionType, CodeType]] = []
        for a, b in found:
            here = self.live.get(_key(a), [])
            if _key(a) in self.called or not here:
                return None
            out += [(f, b) for f in here]
        return out

    def tried(self, new: Sequence[tuple[FunctionType, CodeType]], tests: Mapping[str, float]) -> Outcome:
        """Run tests in a copy of this process in which functions have other code; `tests` says how long each takes.

        Ten times as long (and `PATIENCE` more) is a loop without end: that is seen, and so it counts as caught.
        """
        note = self.folder / "note"
        note.write_text("", encoding="utf-8")
        child = os.fork()
        if not child:
            status = 3
            try:
                self._begin()
                for f, code in new:
                    f.__code__ = code
                self._run(tests, note)
                status = 0
            finally:
                os._exit(status)
        end = time.monotonic() + 10 * sum(map(_patience, tests.values()))
        done = (0, 0)
        try:
            while not done[0] and time.monotonic() < end:
                time.sleep(0.01)
                done = os.waitpid(child, os.WNOHANG)
        finally:  # whatever the tests have started ends too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        if not done[0]:
            os.waitpid(child, 0)
            return Outcome(None, "the tests did not end in time", "")
        status, last = os.waitstatus_to_exitcode(done[1]), note.read_text(encoding="utf-8").splitlines()
        if status == 0:
            return Outcome(False, "", "")
        if status == 1:
            return Outcome(True, last[-1], "")
        return Outcome(True if status < 0 else None, last[-1] if last else "?", f"the process ended with {status}")

    def _begin(self) -> None:
        """What a copy is given of its own: a group of processes, limits, output, a name for what it keeps on disk."""
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        out = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        cache: Any = importlib.import_module(f"{PACKAGE}.host.cache")
        old, key = cache.package_key, f"{cache.package_key()} changed {os.getpid()} {time.time_ns()}"
        for m in list(sys.modules.values()):
            if getattr(m, "package_key", None) is old:
                m.package_key = lambda: key  # type: ignore[attr-defined]

    def _run(self, tests: Mapping[str, float], note: Path) -> None:
        items = [self.items[t] for t in tests]
        with note.open("w", encoding="utf-8") as file:

            def failed(test: str) -> None:
                file.write(f"{test}\n")
                file.flush()
                os._exit(1)

            self.failed = failed
            for item, following in zip(items, [*items[1:], None], strict=True):
                file.write(f"{item.nodeid}\n")
                file.flush()
                used = time.process_time()
                resource.setrlimit(resource.RLIMIT_CPU, (int(used + _patience(tests[item.nodeid])), resource.RLIM_INFINITY))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def passes(self, test: str) -> bool:
        """Whether a test passes on the package as it is."""
        if test in self.items and test not in self.fine:
            self.fine[test] = self.tried([], {test: PATIENCE}).caught is False
        return self.fine.get(test, True)
