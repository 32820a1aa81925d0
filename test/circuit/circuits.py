"""Programs as circuits, for the tests: sizes, data, and what every read must see, by plain evaluation of the equations.

The evaluation walks the terms of the equations with numpy's float32 scalars, summand after summand; it knows nothing
of bodies, stages or schedules.  Functions are those of `hw/fp/functions.py` on arrays, which are tested on their own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.engines.circuit.ports import Ports
from upl_mlir.hw.fp import angles, functions
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Part, Plan
from upl_mlir.passes.circuit.stages import Site
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.terms import Apply, Choice, Fold, Get, IndexValue, Number, Term
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
"""Three sizes of each program; the convolution is without its tanh, which is not the interpreter's to the last bit."""


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

    def planned(self, lanes: int, real: str = "f32") -> tuple[LoopProgram, Plan]:
        """Equations and plan."""
        wish = Wish(lanes, real=real)
        return planned_circuit(self.program.expanded().infer_domains().module.clone(), self.params, wish)

    def __str__(self) -> str:
        return "-".join([self.name, *(str(n) for _, n in self.sizes)])


CASES = [Case(name, tuple(sizes.items())) for name, all_sizes in SIZES.items() for sizes in all_sizes]


@dataclass(frozen=True)
class Text(Case):
    """A program that the test writes."""

    text: str

    @property
    def program(self) -> upl.Program:
        return upl.load(self.text)

    def __str__(self) -> str:
        return self.name


SPECIAL = (0.0, -0.0, 1e-40, -3e-42, 1.0)
NOT_FINITE = (*SPECIAL, np.inf, -np.inf, np.nan, -1.0, 2.0)


def data(plan: Plan, seed: int, special: tuple[float, ...] = SPECIAL) -> dict[str, np.ndarray]:
    """Arrays with numbers of all magnitudes, and special ones among them."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for i in plan.inputs:
        shape = [d.extent for d in i.dims]
        values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape)
        values = np.where(rng.random(shape) < 0.02 * len(special), rng.choice(special, shape), values)
        out[i.name] = values.astype(np.float32)
    return out


@dataclass
class Plain:
    """The elements of all arrays of a program, one by one."""

    loops: LoopProgram
    arrays: Mapping[str, np.ndarray]
    origin: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, Mapping[str, range]]
    """By array, the values of the iterators of its running sum."""
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

    def outputs(self, plan: Plan) -> dict[str, np.ndarray]:
        """All outputs."""
        out: dict[str, np.ndarray] = {}
        for o in plan.outputs:
            found = [self.shown(o.name, at) for at in product(*(range(d.low, d.low + d.extent) for d in o.dims))]
            out[o.name] = np.array(found, type(found[0])).reshape([d.extent for d in o.dims])
        return out

    def shown(self, name: str, index: tuple[int, ...]) -> np.float32:
        """An element of an output; 0 if there is none."""
        eq = self.loops.system.equations[name]
        env = dict(zip(eq.fields, index, strict=True))
        return self.element(name, index) if any(self.holds(c, env) for c in eq.domain) else np.float32(0)

    def holds(self, cons: Cons, env: Mapping[str, int]) -> bool:
        return all(self.number(c.e, env) == 0 if c.eq else self.number(c.e, env) >= 0 for c in cons)

    def number(self, e: Any, env: Mapping[str, int]) -> int:
        ctx = self.loops.system.lin.ctx
        return e.evaluate({**ctx.constants, **env}, lambda a, i: ctx.arrays[a].values[i - ctx.arrays[a].lower])

    def value(self, t: Term, env: Mapping[str, int], of: tuple[str, tuple[int, ...]]) -> Any:
        match t:
            case Number(kind, value):
                return self.literal(value) if kind.is_float else int(value)
            case IndexValue(e):
                return self.number(e, env)
            case Get(_, array, index):
                return self.element(array, tuple(self.number(e, env) for e in index))
            case Choice(_, cases):
                return next(self.value(v, env, of) for when, v in cases if self.holds(when, env))
            case Apply(_, _, args):
                return self.computed(t, [self.value(a, env, of) for a in args])
            case Fold():
                return self.fold(t, env, of)
            case _:
                raise AssertionError(t)

    def literal(self, value: float) -> Any:
        """A real constant."""
        return np.float32(value)

    def computed(self, t: Apply, values: list[Any]) -> Any:
        """What an operation gives."""
        name = t.op.name if t.op.name not in TESTS else f"{t.op.name} {t.op.predicate.value.data}"
        with np.errstate(all="ignore"):
            return OPERATIONS[name](*values)

    def joined(self, t: Fold, total: Any, value: Any) -> Any:
        """One more summand."""
        with np.errstate(all="ignore"):
            return GATHERS[t.gather.value](total, value)

    def fold(self, t: Fold, env: Mapping[str, int], of: tuple[str, tuple[int, ...]]) -> Any:
        total: Any = None
        for part in t.parts:
            for point in product(*(self.ranges[of[0]][d] for d in part.dims)):
                here = {**env, **dict(zip(part.dims, point, strict=True))}
                if part.dims:
                    self.partial[of[0], (*of[1], *point)] = self.literal(t.gather.neutral) if total is None else total
                if not self.holds(part.cons, here) or (part.guards and not any(self.holds(g, here) for g in part.guards)):
                    continue
                value = self.value(part.body, here, of)
                total = value if total is None else self.joined(t, total, value)
        return np.float32(t.gather.empty) if total is None else total


def least(a: Any, b: Any) -> Any:
    """IEEE 754-2019 `minimum`."""
    return a + b if np.isnan(a) or np.isnan(b) else a if a < b or (a == b and np.signbit(a)) else b


def greatest(a: Any, b: Any) -> Any:
    """IEEE 754-2019 `maximum`."""
    return -least(-a, -b)


def alone(f: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], Any]:
    """A function on arrays, of one number."""
    return lambda x: f(np.array([x], np.float32))[0]


TESTS = ("arith.cmpf", "arith.cmpi")
ORDERED = {1: operator.eq, 2: operator.gt, 3: operator.ge, 4: operator.lt, 5: operator.le, 13: operator.ne}
INTEGER = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
OPERATIONS: dict[str, Callable[..., Any]] = {
    "arith.addf": operator.add, "arith.subf": operator.sub, "arith.mulf": operator.mul, "arith.divf": operator.truediv,
    "arith.negf": operator.neg, "math.absf": abs, "arith.minimumf": least, "arith.maximumf": greatest,
    "arith.andi": operator.and_, "arith.ori": operator.or_, "arith.xori": operator.xor, "arith.extui": int,
    "arith.uitofp": np.float32, "arith.sitofp": np.float32, "arith.select": lambda c, a, b: a if c else b,
    "math.exp": alone(functions.exp), "math.log": alone(functions.log), "math.tanh": alone(functions.tanh),
    "upl.sigmoid": alone(functions.sigmoid), "math.sin": alone(angles.sin), "math.cos": alone(angles.cos),
    "math.sqrt": np.sqrt,
    "math.powf": lambda a, b: np.float32(np.float64(a) ** np.float64(b)),
    **{f"arith.cmpf {n}": lambda a, b, test=test: int(test(a, b)) for n, test in ORDERED.items()},
    **{f"arith.cmpi {n}": lambda a, b, test=test: int(test(a, b)) for n, test in enumerate(INTEGER)},
}  # fmt: skip
GATHERS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "*": operator.mul, "min": least, "max": greatest, "&&": operator.and_, "||": operator.or_,
    "!=": operator.xor,
}  # fmt: skip


def wholes(plan: Plan, arrays: Mapping[str, np.ndarray], of: str = "inputs") -> dict[str, np.ndarray]:
    """The arrays of the program's ports, of those of the circuit's; 0 where there is no element."""
    return (Ports.inputs if of == "inputs" else Ports.outputs)(plan.network).whole(arrays)


def plain(
    loops: LoopProgram, plan: Plan, arrays: Mapping[str, np.ndarray], of: Callable[..., Plain] = Plain
) -> Plain:
    """The elements of a program for these inputs."""
    origin = {i.name: tuple(d.low for d in i.dims) for i in plan.inputs}
    ranges = {p.process.name: {d.name: range(d.low, d.low + d.extent) for d in p.process.dims} for p in plan.parts}
    return of(loops, arrays, origin, ranges)


def seen(part: Part, values: Plain, s: Site, lane: int) -> list[int]:
    """The bits that a site of a lane reads, in the order of its schedule."""
    return [int(np.float32(found).view(np.uint32)) for found in read(part, values, s, lane)]


def read(part: Part, values: Plain, s: Site, lane: int) -> list[Any]:
    """The numbers that a site of a lane reads, in the order of its schedule."""
    nest = part.nest
    mask = part.mask(s.when)[..., lane]
    out: list[Any] = []
    for at in np.argwhere(mask):
        index = (*at.tolist(), lane)
        env = {n: int(np.broadcast_to(g, nest.shape)[index]) for n, g in nest.grid.items()}
        if not s.running:
            found = values.element(s.array, tuple(values.number(e, env) for e in s.index))
        else:
            values.element(s.array, tuple(env[f] for f in part.process.fields))
            found = values.partial[s.array, tuple(env[d.name] for d in part.process.dims)]
        out.append(found)
    return out
