"""One point of a sweep: a program on a machine, run and compared with the interpreter; and what points of circuits have in
common with it.

Functions here are called in other processes, on this machine or on another one.  What does not depend on the machine
(the program lowered, its tokens, the interpreter's outputs) is kept between the points of a process.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.programs import Program, load
from upl_mlir.diagnostics import UplError, error
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.explore.design import Design
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
    """A point as a worker gets it: on a machine, or as a circuit; `audit`: the outputs of a machine are also compared, bit
    for bit, with the additions that it made, made again (`engines/rtl/trees.py`)."""

    define: dict[str, Any]
    on: Machine | Design
    audit: bool = False


def run_task(job: Job, task: Task) -> Outcome:
    """Run one point on a machine; errors that are the program's or the machine's are an outcome."""
    assert isinstance(task.on, Machine)
    try:
        prepared = prepare(job, task.define, task.on)
        result = prepared.engine.run_tokens(prepared.tokens, audit=task.audit)
        stats = result.stats.to_dict()
        stats["difference"] = difference(result.outputs, prepared.expected)
    except UplError as e:
        return Outcome(error=str(e))
    return Outcome(stats=stats)


def difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The greatest difference of any output.  `UplError` UPL1709 if it cannot come of the order of additions."""
    for name in expected:
        off = distance({name: found[name]}, {name: expected[name]})
        if not off <= TOLERANCE:
            message = f"the output `{name}` differs from the interpreter's by {off:.3g} of its greatest element"
            raise error("UPL1709", message, notes=["this is a fault of the machine, not of the program"])
    return distance(found, expected)


def distance(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The greatest difference of any output, relative to its greatest element; not a number if an element is none in one of
    them."""
    worst = 0.0
    for name, wanted in expected.items():
        a, b = found[name].astype(np.float64), wanted.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        scale = max(float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)), 1e-30)
        off = np.where(same, 0.0, np.abs(a - b))
        worst = float(np.maximum(worst, np.max(off, initial=0.0) / scale))  # unlike max(), it keeps what is not a number
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
T = TypeVar("T")


class Kept(Generic[T]):
    """What a worker has prepared last."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, T] = OrderedDict()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """What is kept by a key (anything that JSON can hold), else what `make` makes."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._found:
            self._found[name] = make()
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
        self._found.move_to_end(name)
        return self._found[name]


_prepared: Kept[Prepared] = Kept()


def prepare(job: Job, define: Mapping[str, Any], machine: Machine) -> Prepared:
    """Load, bind, lower for this machine and interpret, unless this process has done so.  Raises UplError."""
    key = [job.key, define, msgspec.to_builtins(machine.token)]
    found = _prepared.get(key, lambda: _prepare(job, define, machine))
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
