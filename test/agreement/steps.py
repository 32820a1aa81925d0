# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Random recurrences as traced functions: arrays that go through steps, shifted, turned round, cut and joined.

The function itself is the reference: on numpy's arrays it computes at once, step by step.  Its gradient natively is that of
the interpreter.  Every fourth schedule is proved, too: that it computes what its statements say, each element at a place
that is still its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import upl_mlir as upl
from agreement.properties import Broken
from upl_mlir.passes.loops.legal import faults
from upl_mlir.passes.schedule import schedule

REFUSED = ("UPL1205", "UPL1824")
"""Too complex, or no order of loops."""
Function = Callable[..., Any]


class _Draw:
    """Draws a function of arrays of one shape."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.rows = int(self.rng.integers(4, 20))
        self.shape = (self.rows, int(self.rng.integers(2, 9))) if self.rng.random() < 0.7 else (self.rows,)
        self.steps = int(self.rng.integers(1, 6))
        self.arrays = int(self.rng.integers(1, 4))
        self.rules = [self._rule(int(self.rng.integers(1, 4))) for _ in range(int(self.rng.integers(1, 4)))]
        self.targets = [int(self.rng.integers(self.arrays)) for _ in self.rules]
        self.inner = [bool(self.rng.random() < 0.3) for _ in self.rules]
        self.old = [bool(self.rng.random() < 0.4) for _ in self.rules]
        self.factor = [float(self.rng.choice([1.0, 0.7])) for _ in self.rules]

    def _rule(self, depth: int) -> Callable[[Sequence[Any]], Any]:
        """An array made of arrays."""
        kind, n = (int(self.rng.integers(12)) - 1 if depth else -1), self.rows
        a, b = (self._rule(depth - 1), self._rule(depth - 1)) if kind >= 0 else (None, None)
        at, c, k = int(self.rng.integers(self.arrays)), round(float(self.rng.normal()), 2), int(self.rng.integers(1, 4))
        index = np.arange(n) if len(self.shape) == 1 else np.arange(n)[:, None]
        if a is None or b is None:
            return [lambda v: v[at], lambda v: v[at] * c, lambda v: v[at] * 0.5 + c][int(self.rng.integers(3))]
        below, modulus = int(self.rng.integers(1, n)), int(self.rng.integers(2, 4))

        def joined(v: Sequence[Any]) -> Any:
            x = a(v)
            return np.concatenate([x[k:], x[:k] * 0.5], 0)

        def smoothed(v: Sequence[Any]) -> Any:
            x = a(v)
            return np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]], 0)

        return [
            lambda v: a(v) + b(v), lambda v: a(v) - b(v), lambda v: np.roll(a(v), k - 2, 0), joined, joined, smoothed,
            lambda v: np.where(index % modulus == 1, a(v), b(v)), lambda v: np.where(index < below, a(v), b(v)),
            lambda v: np.maximum(a(v), b(v)), lambda v: np.tanh(a(v)), lambda v: a(v)[::-1] * c,
        ][kind]  # fmt: skip

    def function(self, *arrays: Any) -> Any:
        """The last arrays, and one of them at each step."""

        def step(state: Sequence[Any], _: Any) -> tuple[list[Any], Any]:
            new = list(state)
            for rule, at, inner, old, c in zip(self.rules, self.targets, self.inner, self.old, self.factor, strict=True):
                value = rule(state if old else new)
                value = value if c == 1 else value * c
                new[at] = np.concatenate([new[at][:1], value[1:-1], new[at][-1:]], 0) if inner else value
            return new, new[0]

        last, rows = upl.scan(step, list(arrays), None, length=self.steps)
        return [*last, rows]


def steps(seed: int) -> Counter[str]:
    """What happened, counted.  Raises Broken."""
    draw = _Draw(seed)
    f = draw.function
    args = [draw.rng.normal(size=draw.shape) for _ in range(draw.arrays)]

    def one(*arrays: Any) -> Any:
        return sum(np.sum(np.sin(x)) for x in f(*arrays))

    try:
        native = upl.function(f, engine="native")
        _equal("a value", native(*args), f(*args), 1e-10)
        every = tuple(range(len(args)))
        gradient = upl.grad(upl.function(one, engine="native"), every)(*args)
        _equal("a gradient", gradient, upl.grad(upl.function(one, engine="interp"), every)(*args), 1e-8)
        if seed % 4 == 0:
            _proved(upl.grad(upl.function(one), every).program(*args))
    except upl.UplError as error:
        code = error.diagnostics[0].code
        if code not in REFUSED:
            raise Broken(f"steps: {error}") from None
        return Counter({f"steps: refused {code}": 1})
    return Counter({"steps: equal": 1, "steps: proved": int(seed % 4 == 0)})


def _equal(what: str, found: Sequence[Any], wanted: Sequence[Any], most: float) -> None:
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if not np.allclose(a, b, rtol=most, atol=most):
            raise Broken(f"steps: {what}, array {n}: off by {np.abs(np.asarray(a) - np.asarray(b)).max():g}")


def _proved(program: upl.Program) -> None:
    for fault in faults(schedule(program.infer_domains().op)):
        raise Broken(f"steps: the schedule is not proved: {fault}")
