"""Ctrl-C: exit status 130 and one word; no half-written output, no temporary file, no process that lives on.

The signal goes to the tool alone, as `kill -INT` sends it: what it started it has to end itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

CHAIN = """program chain
param n >= 1
input X { -> A.x<0> }
output R
node A<i> in 0<=i<n { in x; if i<n-1: x -> A.x<i+1>; if i==n-1: x -> R<> }
"""
SLOW_COMPILER = """#!/bin/sh
echo $$ > "$(dirname "$0")/started"
sleep 300
"""


def start(tool: str, args: Sequence[object], **environment: str) -> subprocess.Popen[str]:
    """A tool in a session of its own, with the terminal's behaviour on Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job of a shell ignores it, and hands that down
    try:
        return subprocess.Popen(
            [Path(sys.executable).with_name(tool), *map(str, args)], text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment},
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(child: subprocess.Popen[str], by: signal.Signals = signal.SIGINT) -> None:
    """Send the signal; the answer is one word, and nobody is left in the tool's session."""
    child.send_signal(by)
    try:
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (child.returncode, out, err) == (128 + by, "", "interrupted\n")
    assert not session(child.pid)


def session(leader: int) -> list[str]:
    """The processes of a session that have not ended."""
    found: list[str] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = status.read_text().rsplit(")", 1)
        except OSError:
            continue
        if int(rest.split()[3]) == leader and rest.split()[0] != "Z":
            found.append(name)
    return found


def waits(pid: int) -> bool:
    """Whether a tool has loaded its modules and waits for more of its input: it sleeps, and has worked for long enough."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    worked = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return fields[0] == "S" and worked > 0.2


def soon(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A chain of as many firings as one likes."""
    path = tmp_path / "chain.upl"
    path.write_text(CHAIN, encoding="utf-8")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder for outputs."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


ANNOUNCE = """import os, sys, threading, time
def announce():
    while "upl_mlir.host.arrays" not in sys.modules:
        time.sleep(0.02)
    open(os.environ["READY"], "w").close()
threading.Thread(target=announce, daemon=True).start()
"""


def running(program: Path, out: Path, *args: object, **environment: str) -> subprocess.Popen[str]:
    """`upl run` with its output into `out`, when it has read the program and binds the inputs: it tells us so itself."""
    site, ready = program.with_name("site"), program.with_name("ready")
    site.mkdir()
    (site / "sitecustomize.py").write_text(ANNOUNCE, encoding="utf-8")
    given = {"PYTHONPATH": str(site), "READY": str(ready), **environment}
    child = start("upl", ["run", program, "--input", "X=1.0", "--output", out / "r.npz", *args], **given)
    soon(lambda: ready.exists() or child.poll() is not None)
    return child


def test_a_run(program: Path, out: Path) -> None:
    child = running(program, out, "-D", f"n={10**9}", "--stats", out / "s.json", "--trace", out / "t.json")
    time.sleep(1)
    interrupted(child)
    assert not list(out.iterdir())


def slow_compiler(folder: Path) -> Path:
    """A compiler that starts another program, as they do, and never ends."""
    path = folder / "slow-c++"
    path.write_text(SLOW_COMPILER, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_compiler_that_a_run_started(program: Path, out: Path, tmp_path: Path, by: signal.Signals) -> None:
    """The token engine is compiled by a C++ compiler."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    compiler = str(slow_compiler(tmp_path))
    child = running(program, out, "-D", "n=3", "--engine", "token", CXX=compiler, UPL_CACHE_DIR=str(cache))
    soon((tmp_path / "started").exists)
    interrupted(child, by)
    assert not alive(int((tmp_path / "started").read_text()))
    assert not list(out.iterdir())
    assert not list(cache.iterdir())


def test_what_builds_a_machine_ends_with_us(tmp_path: Path) -> None:
    """The compiler is started by `host.processes.run`, with what they start themselves."""
    from upl_mlir.host.processes import run
    from upl_mlir.hw.sim import build

    assert build.run is run
    code = f"from upl_mlir.host.processes import run; run([{str(slow_compiler(tmp_path))!r}])"
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    signal.signal(signal.SIGINT, before)
    soon((tmp_path / "started").exists)
    leader = int((tmp_path / "started").read_text())
    soon(lambda: len(session(leader)) == 2)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) != 0
    soon(lambda: not session(leader))


def alive(leader: int) -> bool:
    """Whether a process of a session is there, a little later."""
    soon(lambda: not session(leader))
    return bool(session(leader))


def test_the_compiler_driver(examples: Path, out: Path) -> None:
    sizes = ["-D", "K=40", "-D", f"N={[3] * 40}"]
    child = start("upl-opt", ["-f", "upl", "-", "--autodiff=of=R,wrt=W", *sizes, "-o", out / "p.mlir"])
    assert child.stdin is not None
    child.stdin.write((examples / "perceptron.upl").read_text(encoding="utf-8"))
    child.stdin.flush()
    soon(lambda: waits(child.pid))
    interrupted(child)
    assert not list(out.iterdir())


def test_an_output_that_is_there_stays_as_it_was(program: Path, out: Path) -> None:
    (out / "r.npz").write_bytes(b"before")
    child = running(program, out, "-D", f"n={10**9}")
    time.sleep(1)
    interrupted(child)
    assert [(p.name, p.read_bytes()) for p in out.iterdir()] == [("r.npz", b"before")]
