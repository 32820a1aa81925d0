"""Programs as circuits, for the tests: sizes, data, and what every read must see, by plain evaluation of the equations.

The evaluation walks the terms of the equations with numpy's float32 scalars, summand after summand; it knows nothing
of bodies, stages or schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import elements
from upl_mlir.passes.circuit.stages import Site
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.terms import Apply, Choice, Fold, Get, Number, Term
from upl_mlir.passes.lower_to_circuit import planned_circuit
from upl_mlir.poly.linear import Cons

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES: dict[str, list[dict[str, int]]] = {
    "matmul": [{"m": 16, "n": 16, "r": 16}, {"m": 5, "n": 7, "r": 3}, {"m": 1, "n": 1, "r": 1}],
    "fir": [{"K": 8, "n": 64}, {"K": 3, "n": 5}, {"K": 1, "n": 1}],
    "scan": [{"K": 5}, {"K": 3}, {"K": 1}],
    "jacobi1d": [{"T": 6, "n": 100}, {"T": 2, "n": 5}, {"T": 1, "n": 3}],
    "wave": [{"T": 6, "n": 64}, {"T": 3, "n": 7}, {"T": 2, "n": 3}],
    "conv2d": [{"H": 16, "W": 12}, {"H": 5, "W": 7}, {"H": 3, "W": 3}],
}
"""Three sizes of each program; the convolution is without its tanh, which has no unit yet."""


@dataclass(frozen=True)
class Case:
    """A program with its sizes."""

    name: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def program(self) -> upl.Program:
        """The program; a scan's distances double."""
        if self.name == "scan":
            k = dict(self.sizes)["K"]
            return upl.load(EXAMPLES / "scan.upl", K=k, P=[1 << n for n in range(k + 1)])
        text = (EXAMPLES / f"{self.name}.upl").read_text(encoding="utf-8")
        return upl.load(text.replace("tanh(s)", "s"))

    @property
    def params(self) -> dict[str, int]:
        """What a call binds."""
        return {} if self.name == "scan" else dict(self.sizes)

    def planned(self, lanes: int) -> tuple[LoopProgram, Plan]:
        """Equations and plan."""
        return planned_circuit(self.program.infer_domains().module.clone(), self.params, Wish(lanes))

    def __str__(self) -> str:
        return "-".join([self.name, *(str(n) for _, n in self.sizes)])


CASES = [Case(name, tuple(sizes.items())) for name, all_sizes in SIZES.items() for sizes in all_sizes]


def data(plan: Plan, seed: int) -> dict[str, np.ndarray]:
    """Arrays with numbers of all magnitudes, zeros of both signs and subnormals among them."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for i in plan.inputs:
        shape = [d.extent for d in elements(plan.process, i.host)]
        values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape)
        values = np.where(rng.random(shape) < 0.1, rng.choice([0.0, -0.0, 1e-40, -3e-42, 1.0], shape), values)
        out[i.host.name] = values.astype(np.float32)
    return out


@dataclass
class Plain:
    """The elements of all arrays of a program, one by one."""

    loops: LoopProgram
    arrays: Mapping[str, np.ndarray]
    origin: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, range]
    """The values of the iterators of a running sum."""
    known: dict[tuple[str, tuple[int, ...]], np.float32] = field(default_factory=dict)
    partial: dict[tuple[str, tuple[int, ...]], np.float32] = field(default_factory=dict)
    """Of the running sum of an element, the sum before each summand, by index and iterators."""

    def element(self, array: str, index: tuple[int, ...]) -> np.float32:
        """An element of an input or of an equation's array."""
        if array in self.arrays:
            return self.arrays[array][tuple(i - o for i, o in zip(index, self.origin[array], strict=True))]
        if (array, index) not in self.known:
            eq = self.loops.system.equations[array]
            env = dict(zip(eq.fields, index, strict=True))
            (term,) = [t for cons, t in eq.pieces if self.holds(cons, env)]
            self.known[array, index] = self.value(term, env, (array, index))
        return self.known[array, index]

    def holds(self, cons: Cons, env: Mapping[str, int]) -> bool:
        return all(self.number(c.e, env) == 0 if c.eq else self.number(c.e, env) >= 0 for c in cons)

    def number(self, e: Any, env: Mapping[str, int]) -> int:
        ctx = self.loops.system.lin.ctx
        return e.evaluate({**ctx.constants, **env}, lambda a, i: ctx.arrays[a].values[i - ctx.arrays[a].lower])

    def value(self, t: Term, env: Mapping[str, int], of: tuple[str, tuple[int, ...]]) -> np.float32:
        match t:
            case Number(_, value):
                return np.float32(value)
            case Get(_, array, index):
                return self.element(array, tuple(self.number(e, env) for e in index))
            case Choice(_, cases):
                return next(self.value(v, env, of) for when, v in cases if self.holds(when, env))
            case Apply(_, op, args):
                values = [self.value(a, env, of) for a in args]
                return OPERATIONS[op.name](*values)
            case Fold():
                return self.fold(t, env, of)
            case _:
                raise AssertionError(t)

    def fold(self, t: Fold, env: Mapping[str, int], of: tuple[str, tuple[int, ...]]) -> np.float32:
        total: np.float32 | None = None
        for part in t.parts:
            for point in product(*(self.ranges[d] for d in part.dims)):
                here = {**env, **dict(zip(part.dims, point, strict=True))}
                if part.dims:
                    self.partial[of[0], (*of[1], *point)] = np.float32(-0.0) if total is None else total
                if not self.holds(part.cons, here) or (part.guards and not any(self.holds(g, here) for g in part.guards)):
                    continue
                value = self.value(part.body, here, of)
                total = value if total is None else total + value
        assert total is not None
        return total


OPERATIONS = {
    "arith.addf": lambda a, b: a + b, "arith.subf": lambda a, b: a - b, "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: a / b, "arith.negf": lambda a: -a,
}  # fmt: skip


def plain(loops: LoopProgram, plan: Plan, arrays: Mapping[str, np.ndarray]) -> Plain:
    """The elements of a program for these inputs."""
    origin = {i.host.name: tuple(d.low for d in elements(plan.process, i.host)) for i in plan.inputs}
    return Plain(loops, arrays, origin, {d.name: range(d.low, d.low + d.extent) for d in plan.process.dims})


def seen(plan: Plan, values: Plain, s: Site, lane: int) -> list[int]:
    """The bits that a site of a lane reads, in the order of its schedule."""
    nest = plan.nest
    mask = nest.mask(s.when, plan.process.sizes)[..., lane]
    out: list[int] = []
    for at in np.argwhere(mask):
        index = (*at.tolist(), lane)
        env = {n: int(np.broadcast_to(g, nest.shape)[index]) for n, g in nest.grid.items()}
        if s.index:
            found = values.element(s.array, tuple(values.number(e, env) for e in s.index))
        else:
            values.element(s.array, tuple(env[f] for f in plan.process.fields))
            found = values.partial[s.array, tuple(env[d.name] for d in plan.process.dims)]
        out.append(int(np.float32(found).view(np.uint32)))
    return out
