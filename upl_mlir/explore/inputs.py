"""The inputs of a sweep: arrays of files, values, or random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from upl_mlir.api.programs import load
from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.explore.job import RANDOM, Job, bind
from upl_mlir.explore.sweep import WHAT, Sweep
from upl_mlir.host.cache import digest

FILE = "file"
"""The key of `[inputs]` that names an .npz file with several arrays."""


def job_of(sweep: Sweep) -> Job:
    """What all points share.  Raises `UplError`: UPL1742 for inputs that are missing or cannot be read; those of a program
    that cannot be loaded, or not with these inputs."""
    source = sweep.program.read_text(encoding="utf-8")
    first = next(sweep.grid())
    program = load(sweep.program, **sweep.definitions(first)).expanded()
    wanted = list(program.inputs)
    inputs: dict[str, Any] = {}
    if FILE in sweep.inputs and FILE not in wanted:
        inputs |= {n: v for n, v in _arrays(sweep, FILE).items() if n in wanted}
    for name in sweep.inputs:
        if name == FILE and FILE not in wanted:
            continue
        place = sweep.places.of(f"inputs.{name}")
        if name not in wanted:
            helping = did_you_mean(name, wanted) or "inputs: " + ", ".join(wanted)
            raise error("UPL1741", f"{WHAT}: the program has no input `{name}`", place, help=helping)
        inputs[name] = _value(sweep, name)
    missing = [n for n in wanted if n not in inputs]
    if missing:
        message = f"{WHAT}: nothing is said of the input `{missing[0]}`"
        raise error("UPL1742", message, sweep.places.of("inputs"), help=f'{missing[0]} = "{RANDOM}", or a .npy file')
    parts = [source, str(sweep.search.seed)]
    for name in sorted(inputs):
        value = inputs[name]
        parts += [name, value if isinstance(value, str) else f"{value.dtype}{value.shape}" + value.tobytes().hex()]
    job = Job(digest(*parts), source, inputs, sweep.search.seed)
    bind(job, sweep.definitions(first))
    return job


def _value(sweep: Sweep, name: str) -> Any:
    value = sweep.inputs[name]
    if value == RANDOM:
        return RANDOM
    if isinstance(value, str):
        found = _arrays(sweep, name)
        if isinstance(found, np.ndarray):
            return cast(Any, found)
        if name in found:
            return found[name]
        place = sweep.places.of(f"inputs.{name}")
        raise error("UPL1742", f"{WHAT}: {value} holds no array `{name}`: it has {', '.join(found)}", place)
    try:
        return np.asarray(value)
    except ValueError:
        place = sweep.places.of(f"inputs.{name}")
        expected = f'expected "{RANDOM}", a .npy or .npz file, a number or a list of numbers'
        raise error("UPL1742", f"{WHAT}: {name} is {value!r}; {expected}", place) from None


def _arrays(sweep: Sweep, key: str) -> Any:
    """The array of a .npy file or the arrays of an .npz file by name."""
    value = sweep.inputs[key]
    place = sweep.places.of(f"inputs.{key}")
    path = sweep.file.parent / Path(str(value))
    if path.suffix not in (".npy", ".npz"):
        raise error("UPL1742", f'{WHAT}: {key} is {value!r}; expected "{RANDOM}", or a .npy or .npz file', place)
    try:
        data = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as cause:
        raise error("UPL1742", f"{WHAT}: {key}: cannot read {path}: {cause}", place) from None
    return cast(Any, data) if isinstance(data, np.ndarray) else {n: data[n] for n in data.files}
