"""Training with a program that updates its own weights: calls in a row, each fed with the last one's result.

The program holds the forward pass, `adjoint of` and the update (LANGUAGE section 2); this file only slices the data into
calls, carries the weights over, and measures loss and accuracy from the program's predictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.programs import Program, compile
from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.host.arrays import bind_parameters

Array = NDArray[Any]


@dataclass(frozen=True)
class Epoch:
    """One pass over the data: mean squared error (halved, per example) and the share of right answers, both as predicted
    before each call's update.  The share is NaN where a prediction is one number and not one for each class."""

    number: int
    loss: float
    accuracy: float


class Training:
    """A training run on an engine; `options` are those of `compile`.  `state` holds the carried arrays by input name, `call`
    the compiled program, whose `stats` are those of the last call.
    """

    def __init__(
        self,
        program: Program,
        data: Mapping[str, Array],
        carry: Mapping[str, str],
        *,
        engine: str = "interp",
        batch: int = 0,
        seed: int = 0,
        outputs: str = "R",
        targets: str = "Y",
        **options: Any,
    ):
        self.carry = dict(carry)
        self.outputs, self.targets = outputs, targets
        self.random = np.random.default_rng(seed)
        self.call = compile(program, cast(Any, engine), **options)
        self._check_names(program, data)
        rows = len(data[targets]) if np.ndim(data[targets]) else 0
        if not rows:
            raise error("UPL1503", f"the data hold no examples: `{targets}` has shape {np.shape(data[targets])}")
        if batch < 0 or batch > rows:
            raise error("UPL1505", f"a batch of {batch} examples: there are {rows}")
        self.batch = batch or rows
        self.rows = rows
        given = {n: np.asarray(v) for n, v in data.items() if n in program.inputs}
        self.examples = {n: v for n, v in given.items() if n not in carry.values()}
        for n, v in self.examples.items():
            if not v.ndim or len(v) != rows:
                raise error("UPL1503", f"`{n}` has shape {v.shape}: expected {rows} rows, as `{targets}` has")
        self.state = {n: given[n] for n in carry.values() if n in given}
        missing = [n for n in carry.values() if n not in given]
        if missing:
            op = self.call.program.read()
            shown = {n: v[: self.batch] for n, v in self.examples.items()}
            bound = bind_parameters(op, shown | self.state, self.call.given, any_port=True)
            self.state |= {n: self._initial(n, bound) for n in missing}

    def _check_names(self, program: Program, data: Mapping[str, Array]) -> None:
        for out, into in self.carry.items():
            for name, ports, what in ((out, program.outputs, "output"), (into, program.inputs, "input")):
                if name not in ports:
                    message = f"--carry {out}={into}: there is no {what} `{name}`"
                    raise error("UPL1502", message, help=nearest_or_all(name, ports))
        if self.outputs not in program.outputs:
            raise error("UPL1502", f"there is no output `{self.outputs}`", help="say which holds the predictions: --outputs")
        if self.targets not in data:
            raise error("UPL1501", f"the data hold no `{self.targets}`", help="say which input holds the targets: --targets")
        if self.targets not in program.inputs or self.targets in self.carry.values():
            message = f"`{self.targets}` is not an input of the program that gets its values from the data"
            raise error("UPL1502", message, help="say which input holds the targets: --targets")
        missing = [n for n in program.inputs if n not in data and n not in self.carry.values()]
        if missing:
            has = f"they have {', '.join(data)}"
            raise error("UPL1501", f"the data hold nothing for the input `{missing[0]}`", help=has)

    def _initial(self, name: str, params: Mapping[str, int]) -> Array:
        """Small random weights for a carried input that the data do not give."""
        shape = self.call.program.inputs[name].shape(**params)
        return self.random.normal(0.0, 1.0 / np.sqrt(max(1, shape[-1] if shape else 1)), shape)

    def epochs(self, count: int, *, progress: bool = False) -> Iterator[Epoch]:
        """Train for `count` epochs, the examples in a new random order each time."""
        for number in range(1, count + 1):
            order = self.random.permutation(self.rows)
            starts = range(0, self.rows - self.batch + 1, self.batch)
            loss, right, seen = 0.0, 0.0, 0
            for start in self._tracked(starts, number, progress):
                rows = order[start : start + self.batch]
                out = self.call(**{n: v[rows] for n, v in self.examples.items()}, **self.state)
                for name, into in self.carry.items():
                    self.state[into] = out[name]
                wanted, got = self.examples[self.targets][rows], out[self.outputs]
                if got.shape != wanted.shape:
                    message = f"`{self.outputs}` has shape {got.shape}, but `{self.targets}` {wanted.shape}"
                    raise error("UPL1503", message, help="say which belong together: --outputs and --targets")
                loss += 0.5 * float(np.sum((got - wanted) ** 2))
                answers = np.argmax(got, axis=-1) == np.argmax(wanted, axis=-1) if got.ndim > 1 else np.nan
                right += float(np.sum(answers))
                seen += len(rows)
            yield Epoch(number, loss / seen, right / seen)

    @staticmethod
    def _tracked(starts: range, number: int, progress: bool) -> Iterator[int]:
        if not progress or len(starts) < 2:
            yield from starts
            return
        from rich.console import Console
        from rich.progress import track

        yield from track(starts, f"epoch {number}", console=Console(stderr=True), transient=True)
