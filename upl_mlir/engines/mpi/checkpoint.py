"""Runs that are saved from time to time and taken up again, on any number of ranks.

A folder has `latest.json` and, for the state that this names, a folder with one .npz file for each rank:

    latest.json            what was run (program, sizes, inputs), the loop and its iteration, and the number of ranks
    1-320/rank-0.npz       the blocks of rank 0 in iteration 320 of loop 1; of rank 0 also what every rank has

Each file is written under another name and renamed; `latest.json` last.  So the folder has a whole state at any time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import UplError, error
from upl_mlir.engines.mpi.boxes import Blocks, Memory
from upl_mlir.engines.mpi.plan import Kept, State
from upl_mlir.engines.native.outside import memory
from upl_mlir.passes.distribute.restart import RESTART

Array = NDArray[Any]
LATEST = "latest.json"
NEVER = -(2**40)
"""The iteration at which a loop begins that is run from its beginning."""


@dataclass(frozen=True)
class Identity:
    """What is run: a state is taken up by the same only."""

    program: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    options: str
    states: str

    @classmethod
    def of(
        cls, program: str, sizes: Mapping[str, int], inputs: Mapping[str, Array], options: str, states: str
    ) -> Identity:
        """Of a program's text, the sizes and inputs of a run, how sums and reals are computed, and what is saved."""
        sums = {n: hashlib.blake2b(np.ascontiguousarray(a).data).hexdigest() for n, a in sorted(inputs.items())}
        text = hashlib.blake2b(program.encode()).hexdigest()
        return cls(text, {n: int(v) for n, v in sorted(sizes.items())}, sums, options, states)

    def to_dict(self) -> dict[str, Any]:
        """For `latest.json`."""
        return {
            "program": self.program, "sizes": self.sizes, "inputs": self.inputs, "options": self.options,
            "states": self.states,
        }  # fmt: skip

    def difference(self, other: Any) -> str | None:
        """What another run differs in, in words; None if in nothing."""
        mine = self.to_dict()
        if not isinstance(other, dict) or not other.keys() >= mine.keys():
            return "the file is not one of a checkpoint"
        if other["program"] != self.program:
            return "it is of another program"
        for n, v in self.sizes.items():
            if other["sizes"].get(n) != v:
                return f"it has {n}={other['sizes'].get(n)}, this run has {n}={v}"
        if other["options"] != self.options:
            return f"it is of a run with {other['options']}, this one has {self.options}"
        if other["states"] != self.states:
            return "it has other arrays, as another version or other parameters of `compile` make other loops"
        names = [n for n, v in self.inputs.items() if other["inputs"].get(n) != v]
        return f"the input `{names[0]}` has other values" if names else None


class Checkpoints:
    """The states of one run on one rank."""

    def __init__(
        self, comm: Any, folder: Path, every: int, states: tuple[State, ...], identity: Identity | None, blocks: Blocks
    ):
        """`identity` is needed on the first rank."""
        self.comm, self.folder, self.every, self.states, self.identity = comm, folder, every, states, identity
        self.blocks = blocks
        self.rank: int = comm.Get_rank()
        self.taken_up: int | None = None
        """The iteration at which the run was taken up."""
        self._found: dict[str, Any] | None = None
        self._addresses: list[int] = []
        self._at: tuple[int, int] | None = None

    def begin(self) -> dict[str, int]:
        """The parameters with which the run begins.  Raises UplError (UPL2106, UPL2107) on all ranks."""
        found: Any = None
        if self.rank == 0:
            try:
                found = self._latest()
            except UplError as e:
                found = e
        found = self.comm.bcast(found, root=0)
        if isinstance(found, UplError):
            raise found
        self._found = found
        out = {RESTART: 0, **{s.loop.begin: NEVER for s in self.states}}
        if found is not None:
            out[RESTART] = found["loop"]
            out[self.states[found["loop"] - 1].loop.begin] = found["iteration"]
            self.taken_up = found["iteration"]
        return out

    def _latest(self) -> dict[str, Any] | None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / LATEST
            found: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except (OSError, ValueError) as e:
            raise _unusable(self.folder, e) from None
        if found is None:
            return None
        assert self.identity is not None
        why = self.identity.difference(cast("dict[str, Any]", found).get("of") if isinstance(found, dict) else None)
        if why is not None:
            help_ = "give another folder, or delete this one"
            raise error("UPL2106", f"the checkpoint in {self.folder} is not of this run: {why}", help=help_)
        return cast("dict[str, Any]", found)

    def call(self, number: int, address: int, iteration: int) -> None:
        """The address of one array at the beginning of an iteration; with the last one, the state is saved or loaded."""
        at = next(n for n, s in enumerate(self.states) if 0 <= number - s.loop.first < len(s.arrays))
        state = self.states[at]
        if number == state.loop.first:
            self._addresses = []
        self._addresses.append(address)
        if len(self._addresses) < len(state.arrays):
            return
        if self._found is not None:
            self._load(state, self._found)
            self._found, self._at = None, (at, iteration)
        elif self._at is None or self._at[0] != at:
            self._at = (at, iteration)
        elif (iteration - self._at[1]) * state.loop.steps >= self.every:
            self._save(at, iteration)
            self._at = (at, iteration)

    def end(self) -> None:
        """The run is done: what was saved is not needed any more."""
        if self.rank == 0:
            (self.folder / LATEST).unlink(missing_ok=True)
            self._remove(None)

    # -- files --------------------------------------------------------------------------------------------------------
    def _memory(self, kept: Kept, address: int) -> tuple[Memory, Array]:
        place = Memory(kept.axes, self.blocks.of[self.rank], self.blocks.read)
        return place, memory(address, place.shape, np.dtype(kept.dtype))

    def _save(self, at: int, iteration: int) -> None:
        state = self.states[at]
        name = f"{at + 1}-{iteration}"
        why: str | None = None
        try:
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            arrays: dict[str, Any] = {}
            for n, (kept, address) in enumerate(zip(state.arrays, self._addresses, strict=True)):
                place, whole = self._memory(kept, address)
                origins = list(place.origins)
                if kept.cut is not None:
                    axis, block = kept.cut
                    first, last = self.blocks.owned(self.rank, block)
                    low = max(first - origins[axis], 0)
                    whole = whole[(slice(None),) * axis + (slice(low, max(low, last - origins[axis] + 1)),)]
                    origins[axis] += low
                elif self.rank:
                    continue
                arrays[f"a{n}"], arrays[f"o{n}"] = whole, np.array(origins, np.int64)
            content = io.BytesIO()
            np.savez(content, **arrays)
            _write(folder / f"rank-{self.rank}.npz", content.getbuffer())
        except OSError as e:
            why = f"{e}"
        failed = [w for w in self.comm.allgather(why) if w is not None]  # and all files are there
        if not failed and self.rank == 0:
            assert self.identity is not None
            text = json.dumps(
                {"of": self.identity.to_dict(), "loop": at + 1, "iteration": iteration, "ranks": self.comm.Get_size()}
            )  # fmt: skip
            try:
                _write(self.folder / LATEST, text.encode("utf-8"))
                self._remove(name)
            except OSError as e:
                failed = [f"{e}"]
        failed = self.comm.bcast(failed, root=0)
        if failed:
            raise _unusable(self.folder, failed[0])

    def _remove(self, name: str | None) -> None:
        """Delete all states but one."""
        for old in self.folder.glob("*-*"):
            if old.is_dir() and old.name != name:
                shutil.rmtree(old, ignore_errors=True)

    def _load(self, state: State, found: Mapping[str, Any]) -> None:
        folder = self.folder / f"{found['loop']}-{found['iteration']}"
        for rank in range(found["ranks"]):
            try:
                with np.load(folder / f"rank-{rank}.npz", allow_pickle=False) as data:
                    for n, (kept, address) in enumerate(zip(state.arrays, self._addresses, strict=True)):
                        if f"a{n}" in data.files:
                            place, whole = self._memory(kept, address)
                            _copy(data[f"a{n}"], [int(o) for o in data[f"o{n}"]], whole, place)
            except (OSError, ValueError, KeyError) as e:
                raise _unusable(folder, e) from None


def _copy(source: Array, origins: list[int], into: Array, place: Memory) -> None:
    """Copy the elements that two arrays have in common, each with its own origins."""
    mine: list[slice] = []
    theirs: list[slice] = []
    for k, a in enumerate(place.axes):
        if a.modulus is not None:
            mine.append(slice(None))
            theirs.append(slice(None))
            continue
        low = max(origins[k], place.origins[k])
        high = max(low, min(origins[k] + source.shape[k], place.origins[k] + place.shape[k]))
        mine.append(slice(low - place.origins[k], high - place.origins[k]))
        theirs.append(slice(low - origins[k], high - origins[k]))
    into[tuple(mine)] = source[tuple(theirs)]


def _write(path: Path, content: bytes | memoryview) -> None:
    """Write a file that is whole or not there."""
    other = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with other.open("wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        other.replace(path)
    except BaseException:
        other.unlink(missing_ok=True)
        raise


def _unusable(folder: Path, why: object) -> UplError:
    return error("UPL2107", f"the checkpoint in {folder} cannot be written or read: {why}", help="give another folder")
