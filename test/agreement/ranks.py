"""Random programs on 2 and on 3 ranks: bits equal to native code's, or refused with a code.

One MPI job of three ranks serves a campaign; it is asked program by program, as starting one takes a second.  Two of its
ranks have a communicator of their own for runs on two.

    mpiexec -n 3 python -m agreement.ranks        the job: a line of JSON in for each program, one out
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import upl_mlir as upl
from agreement import properties as P
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import endpoints
from upl_mlir.engines.mpi import engine
from upl_mlir.engines.mpi.world import launcher, wait_for_all, world
from upl_mlir.host.cache import Cache
from upl_mlir.passes.analysis.relations import forgotten

RANKS = (2, 3)
ROOT = Path(__file__).resolve().parents[2]
REFUSED = ("UPL18", "UPL21", "UPL1205")
"""What the codes begin with of a program that is not distributed."""


def ranks(case: P.Case) -> Counter[str]:
    """What became of a case on 2 and on 3 ranks, `ordered`; of one in four `relaxed`, too, where no order rounds.

    Raises Broken for other bits than those of native code, and where the job dies; UplError for a wrong program.
    """
    upl.load(case.text).infer_domains()  # a fault here must not end the job
    job = _job()
    asked = {"text": case.text, "params": dict(case.params), "seed": case.seed, "noise": case.noise}
    asked["relaxed"] = case.any_order and not case.smooth and case.seed % 4 == 0
    assert job.stdin is not None and job.stdout is not None
    job.stdin.write(json.dumps(asked) + "\n")
    job.stdin.flush()
    line = job.stdout.readline()
    if not line.startswith("{"):
        job.kill()
        job.wait()
        _job.cache_clear()
        raise P.Broken(f"the MPI job ended: {line.strip() or 'no answer'}")
    found: dict[str, str] = json.loads(line)
    wrong = [f"{way}: {what}" for way, what in found.items() if what != "equal" and not what.startswith(REFUSED)]
    if wrong:
        raise P.Broken("; ".join(wrong))
    return Counter(f"{way}: {'refused ' if what != 'equal' else ''}{what}" for way, what in found.items())


@cache
def _job() -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "test"), str(ROOT)])
    command = [launcher(), "-n", str(max(RANKS)), sys.executable, "-m", "mpi4py", "-m", "agreement.ranks"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )


# -- the job ----------------------------------------------------------------------------------------------------------
def _tasks(everyone: Any) -> Iterator[dict[str, Any]]:
    """What rank 0 reads, on all ranks; the others sleep until then."""
    while True:
        line = sys.stdin.readline() if everyone.Get_rank() == 0 else ""
        wait_for_all(everyone)
        line = everyone.bcast(line, root=0)
        if not line:
            return
        yield json.loads(line)


class _Source:
    """A program as the engine takes it, kept nowhere."""

    key = None

    def __init__(self, p: upl.Program):
        self._made = p.expanded().infer_domains()
        self.facts = self._made.facts

    def read(self) -> ProgramOp:
        """The program."""
        return self._made.read()

    def keep(self) -> None:
        """Nothing is."""


def _wanted(p: upl.Program, arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any] | str:
    """The outputs of a program by native code, or the code of a fault; by the interpreter where native code refuses it."""
    for how in ("native", "interp"):
        try:
            return upl.compile(p, engine=how, gather="ordered")(**arrays, **params)  # type: ignore[arg-type]
        except UplError as e:
            code = e.diagnostics[0].code
            if not code.startswith(REFUSED):
                return code
    raise AssertionError("the interpreter refuses nothing")


def _outcome(comm: Any, task: dict[str, Any], gather: str) -> str:
    """"equal", the code of a refusal, or the outputs that differ from native code's on some rank.

    A fault such as an overflow is equal to the same one of native code.
    """
    p = upl.load(task["text"])
    params: dict[str, int] = task["params"]
    arrays = P.host_arrays(p, params, task["seed"], noise=task["noise"])
    found: dict[str, Any] | str
    try:
        found = engine.MpiEngine(_Source(p), gather=gather, comm=comm)(arrays, params)
    except UplError as e:
        found = e.diagnostics[0].code
        if found.startswith(REFUSED):
            return found
    wanted = _wanted(p, arrays, params) if comm.Get_rank() == 0 else ""
    wait_for_all(comm)
    wanted = comm.bcast(wanted, root=0)
    if isinstance(found, str) or isinstance(wanted, str):
        return "equal" if found == wanted else f"{found if isinstance(found, str) else 'results'} in place of {wanted}"
    free = gather == "relaxed"  # then the sign of a zero may be either
    wrong = [n for n in wanted if _bits(wanted[n], free) != _bits(found[n], free)]
    everywhere = sorted({n for names in comm.allgather(wrong) for n in names})
    return f"other bits of {', '.join(everywhere)}" if everywhere else "equal"


def _bits(a: Any, signs_of_zeros_are_free: bool) -> bytes:
    return (a + 0.0 if signs_of_zeros_are_free and a.dtype.kind == "f" else a).tobytes()


def _once(made: Any) -> Any:
    """A function of a program and options that remembers what it made last: one plan is for all numbers of ranks."""
    known: dict[str, Any] = {}

    def make(program: ProgramOp, machine: Any, **options: Any) -> Any:
        key = f"{program} {options}"
        if key not in known:
            known.clear()
            known[key] = made(program, machine, **options)
        return known[key]

    return make


@contextlib.contextmanager
def _proofs(task: dict[str, Any]) -> Iterator[None]:
    """In seven of eight cases the proof of the program itself is left out, as in the campaign "native"; that of its division
    is made always."""
    hulls = any(map(forgotten, endpoints(upl.load(task["text"]).infer_domains().read()).values()))
    with contextlib.ExitStack() as stack:
        if task["seed"] % 8 and not hulls:
            for place in ("upl_mlir.passes.analysis.proved", "upl_mlir.engines.mpi.engine"):
                stack.enter_context(mock.patch(f"{place}.require_proved", lambda _: ()))
            stack.enter_context(mock.patch("upl_mlir.engines.native.whole.open_cache", lambda: Cache(None)))
        yield


def serve() -> None:
    """Answer until the input ends."""
    from agreement.soak import keep_no_programs

    keep_no_programs()
    engine.open_cache = lambda: Cache(None)  # a plan whose program was not proved must not be found by others
    engine.make_plan = _once(engine.make_plan)
    everyone = world()
    rank = everyone.Get_rank()
    comms = {n: everyone.Split(int(rank < n), rank) for n in RANKS}
    for task in _tasks(everyone):
        found: dict[str, str] = {}
        with _proofs(task):
            for gather in ("ordered", "relaxed") if task["relaxed"] else ("ordered",):
                for n, comm in comms.items():
                    if rank < n:
                        found[f"{n} ranks, {gather}"] = _outcome(comm, task, gather)
                    wait_for_all(everyone)
        if rank == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    serve()
