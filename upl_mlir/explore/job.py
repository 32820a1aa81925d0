"""One point of a sweep: a program on a machine, run and compared with the interpreter.

Functions here are called in other processes, on this machine or on another one.  What does not depend on the machine
(the program lowered, its tokens, the interpreter's outputs) is kept between the points of a process.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.programs import Program, load
from upl_mlir.diagnostics import UplError, error
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports
from upl_mlir.hw.machine import Machine
from upl_mlir.hw.results import HostToken

Array = NDArray[Any]

TOLERANCE = 1e-3
"""The greatest difference from the interpreter, relative to the greatest element of an output.  Both compute in binary32,
but sum in orders of their own."""
RANDOM = "random"


class Job(msgspec.Struct, frozen=True):
    """What all points of a sweep share: the program's text, and its inputs as arrays or the word "random"."""

    key: str
    source: str
    inputs: dict[str, Any]
    seed: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """What became of a point: `stats` as ``stats.json`` has them, or the error that the machine ended with."""

    stats: dict[str, Any] | None = None
    error: str | None = None


class Task(msgspec.Struct, frozen=True):
    """A point as a worker gets it; `audit`: its outputs are also compared, bit for bit, with the additions that the machine
    made, made again (`engines/rtl/trees.py`)."""

    define: dict[str, Any]
    machine: Machine
    audit: bool = False


def run_tasks(job: Job, tasks: Sequence[Task]) -> list[Outcome]:
    """Run points one after the other."""
    return [run_task(job, task) for task in tasks]


def run_task(job: Job, task: Task) -> Outcome:
    """Run one point; errors that are the program's or the machine's are an outcome."""
    try:
        prepared = prepare(job, task.define, task.machine)
        result = prepared.engine.run_tokens(prepared.tokens, audit=task.audit)
        stats = result.stats.to_dict()
        stats["difference"] = difference(result.outputs, prepared.expected)
    except UplError as e:
        return Outcome(error=str(e))
    return Outcome(stats=stats)


def difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The greatest difference of any output.  `UplError` UPL1709 if it cannot come of the order of additions."""
    worst = 0.0
    for name, wanted in expected.items():
        if not wanted.size:
            continue
        a, b = found[name].astype(np.float64), wanted.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        scale = max(float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)), 1e-30)
        off = float(np.max(np.where(same, 0.0, np.abs(a - b)), initial=0.0)) / scale
        if not off <= TOLERANCE:
            message = f"the output `{name}` differs from the interpreter's by {off:.3g} of its greatest element"
            raise error("UPL1709", message, notes=["this is a fault of the machine, not of the program"])
        worst = max(worst, off)
    return worst


# -------------------------------------------------------------------------------------------- what points have in common


@dataclass(frozen=True)
class Prepared:
    """A program with its sizes: lowered, its tokens, and what the interpreter makes of them."""

    program: Program
    bound: dict[str, int]
    dense: dict[str, Array]
    engine: RtlEngine
    tokens: tuple[HostToken, ...]
    expected: dict[str, Array]


_KEPT = 4
"""Jobs that a worker has prepared and remembers. Chosen, not measured."""
_prepared: OrderedDict[str, Prepared] = OrderedDict()


def prepare(job: Job, define: Mapping[str, Any], machine: Machine) -> Prepared:
    """Load, bind, lower for this machine and interpret, unless this process has done so.  Raises UplError."""
    name = json.dumps([job.key, define, msgspec.to_builtins(machine.token)], sort_keys=True)
    found = _prepared.get(name)
    if found is None:
        found = _prepare(job, define, machine)
        _prepared[name] = found
        if len(_prepared) > _KEPT:
            _prepared.popitem(last=False)
    _prepared.move_to_end(name)
    return replace(found, engine=found.engine.on(machine))


def _prepare(job: Job, define: Mapping[str, Any], machine: Machine) -> Prepared:
    program, bound, dense = bind(job, define)
    with program.errors():
        engine = RtlEngine(program.module, bound, machine=machine)
        expected = Engine(program.op, bound, real="f32").run(dense).outputs
    return Prepared(program, bound, dense, engine, tuple(engine.inject(dense)), expected)


def bind(job: Job, define: Mapping[str, Any]) -> tuple[Program, dict[str, int], dict[str, Array]]:
    """The program, its parameters, and its inputs as dense arrays.  Raises UplError."""
    program = load(job.source, **define).expanded().infer_domains()
    with program.errors():
        given = {n: v for n, v in job.inputs.items() if not (isinstance(v, str) and v == RANDOM)}
        bound = bind_parameters(program.op, given, {})
        ports = host_ports(program.op, bound, np.dtype(np.float32))
        for name in job.inputs:
            if name not in given and name in ports:
                given[name] = _random(ports[name].shape, ports[name].dtype, f"{job.seed} {name}")
        return program, bound, bind_arrays(program.op, ports, given)


def _random(shape: tuple[int, ...], dtype: np.dtype[Any], seed: str) -> Array:
    """Numbers that follow from the seed alone: reals normally distributed, integers 0 to 3, booleans."""
    random = np.random.default_rng(int.from_bytes(sha256(seed.encode()).digest()[:8], "little"))
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2 if dtype.kind == "b" else 4, shape).astype(dtype)
