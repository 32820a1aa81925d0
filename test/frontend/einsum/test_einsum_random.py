"""Random kernels: value and gradient on the interpreter against loops in Python that know nothing of polyhedra."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from operator import mul
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend import einsum

Point = Mapping[str, int]


@dataclass(frozen=True)
class Index:
    """An index expression: its text, its indices, its value."""

    text: str
    names: tuple[str, ...]
    value: Callable[[Point], int]


@dataclass(frozen=True)
class Access:
    """A tensor with its index."""

    name: str
    index: tuple[Index, ...]
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        """As a kernel writes it."""
        index = f"[{', '.join(i.text for i in self.index)}]" if self.index else ""
        return f"{self.name}<{', '.join(map(str, self.shape)) or 1}>{index}"

    def at(self, values: Mapping[str, Any], p: Point) -> Any:
        """Its element at a point."""
        return values[self.name][tuple(i.value(p) for i in self.index)]


@dataclass
class RandomKernel:
    """One statement: a sum of products of accesses with random affine indices that stay in bounds."""

    rng: random.Random
    free: list[str] = field(default_factory=list[str])
    summed: list[str] = field(default_factory=list[str])
    extents: dict[str, int] = field(default_factory=dict[str, int])
    terms: list[list[Access]] = field(default_factory=list[list[Access]])
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def __post_init__(self) -> None:
        self.free = ["i", "j"][: self.rng.randint(0, 2)]
        self.summed = ["k", "l"][: self.rng.randint(0, 2)]
        self.extents = {n: self.rng.randint(1, 4) for n in (*self.free, *self.summed)}
        for _ in range(self.rng.randint(1, 3)):
            names = self.free + [n for n in self.summed if self.rng.random() < 0.8]
            factors = [self._access(names) for _ in range(self.rng.randint(1, 3))]
            self.terms.append([*factors, *(factors[:1] if self.rng.random() < 0.3 else [])])
        self.left = tuple(self._left(n) for n in self.rng.sample(self.free, len(self.free)))
        # all indices alone once, so that their ranges are the ones meant here
        named = {n for t in self.terms for a in t for i in a.index for n in i.names} | set(self.free)
        used = [n for n in self.extents if n in named]
        self.terms.append([self._tensor(tuple(Index(n, (n,), _name(n)) for n in used))])

    def points(self, names: list[str]) -> Iterator[dict[str, int]]:
        """All points of the ranges of some indices."""
        return (dict(zip(names, p, strict=True)) for p in product(*(range(self.extents[n]) for n in names)))

    def _extent(self, i: Index) -> int:
        return 1 + max(i.value(p) for p in self.points(list(dict.fromkeys(i.names))))

    def _tensor(self, index: tuple[Index, ...]) -> Access:
        name = f"T{len(self.tensors)}"
        self.tensors[name] = tuple(self._extent(i) for i in index)
        return Access(name, index, self.tensors[name])

    def _access(self, names: list[str]) -> Access:
        return self._tensor(tuple(self._index(names) for _ in range(self.rng.randint(0, 3) if names else 0)))

    def _index(self, names: list[str]) -> Index:
        a, b, c, m = self.rng.choice(names), self.rng.choice(names), self.rng.randint(0, 2), self.rng.randint(2, 3)
        last = self.extents[a] - 1
        return self.rng.choice(
            [
                *[Index(a, (a,), _name(a))] * 5,
                Index(f"{a} + {c}", (a,), lambda p: p[a] + c),
                Index(f"{last} - {a}", (a,), lambda p: last - p[a]),
                Index(f"{a} + {b}", (a, b), lambda p: p[a] + p[b]),
                Index(f"{m}*{a} + {b}", (a, b), lambda p: m * p[a] + p[b]),
                Index(f"{a}//{m}", (a,), lambda p: p[a] // m),
                Index(f"({a} + {b})%{m}", (a, b), lambda p: (p[a] + p[b]) % m),
                Index(str(c), (), lambda p: c),
            ]
        )

    def _left(self, n: str) -> Index:
        last = self.extents[n] - 1
        return self.rng.choice(
            [
                *[Index(n, (n,), _name(n))] * 3,
                Index(f"{last} - {n}", (n,), lambda p: last - p[n]),
                Index(f"2*{n} + 1", (n,), lambda p: 2 * p[n] + 1),
            ]
        )

    @property
    def text(self) -> str:
        """The kernel."""
        out = Access("O", self.left, tuple(self._extent(i) for i in self.left))
        return f"{out.text} = {' - '.join(' * '.join(a.text for a in t) for t in self.terms)};"

    def run(self, values: Mapping[str, Any]) -> Any:
        """Its value, by loops: one accumulator for an element, to which each term adds what it has, one by one."""
        out = np.zeros(tuple(self._extent(i) for i in self.left), np.result_type(*values.values()))
        named = [n for t in self.terms for a in t for i in a.index for n in i.names]
        order = [n for n in dict.fromkeys(named) if n in self.summed]
        for p in self.points(self.free):
            total = out.dtype.type(0)
            for at, term in enumerate(self.terms):
                names = [n for n in order if any(n in i.names for a in term for i in a.index)]
                for q in self.points(names):
                    summand = reduce(mul, (a.at(values, p | q) for a in term))
                    total = total - summand if at else total + summand
            out[tuple(i.value(p) for i in self.left)] = total
        return out


def _name(n: str) -> Callable[[Point], int]:
    return lambda p: p[n]


@dataclass(frozen=True)
class Sample:
    """A random kernel as a case, with values, seeds and what must come out."""

    kernel: RandomKernel
    name: str
    wrt: list[str]
    values: dict[str, Any]
    seeds: Any
    want: Any

    def json(self) -> str:
        """The case."""
        k = self.kernel
        case = {"name": self.name, "ins": list(k.tensors), "outs": ["O"], "data_type": "float", "kernel": k.text}
        return json.dumps(case | {"grad_to": self.wrt})

    def derivative(self, name: str) -> Any:
        """By complex steps."""
        d = np.zeros(self.kernel.tensors[name])
        for at in np.ndindex(*d.shape):
            z = {m: np.array(v, dtype=complex) for m, v in self.values.items()}
            z[name][at] += 1e-30j
            d[at] = (self.seeds * self.kernel.run(z)).sum().imag / 1e-30
        return d


def sample(seed: int) -> Sample:
    """The random kernel of a number."""
    k = RandomKernel(random.Random(seed))
    rng = np.random.default_rng(seed)
    wrt = k.rng.sample(list(k.tensors), min(2, len(k.tensors)))
    values = {n: rng.integers(-3, 4, s).astype(float) for n, s in k.tensors.items()}
    want = k.run(values).real
    return Sample(k, f"f{seed}", wrt, values, rng.integers(-3, 4, want.shape).astype(float), want)


@pytest.mark.parametrize("seed", range(20))
def test_random_kernel(seed: int) -> None:
    s = sample(seed)
    p = einsum.load(s.json())
    assert p.check().ok, s.kernel.text
    np.testing.assert_array_equal(upl.compile(p)(**s.values)["O"], s.want, err_msg=s.kernel.text)
    g = einsum.gradient(s.json())
    assert g.check().ok, s.kernel.text
    out = upl.compile(g)(**s.values, d_O=s.seeds)
    for n in s.wrt:
        np.testing.assert_allclose(out[f"d_{n}"], s.derivative(n), rtol=1e-6, err_msg=f"{s.kernel.text} by {n}")


def test_random_kernels_in_cpp(compile_many: Callable[[list[str]], list[Any]]) -> None:
    """What is not given is NaN: a read of it would show.  Values are those of the loops to the last bit."""
    samples, rng = [sample(seed) for seed in range(100, 116)], np.random.default_rng(0)
    loaded = [einsum.read(s.json()) for s in samples]
    functions = compile_many([*map(einsum.cpp_of, loaded), *(einsum.cpp_of(c, grad=True) for c in loaded)])
    for s, f, g in zip(samples, functions[: len(samples)], functions[len(samples) :], strict=True):
        np.testing.assert_array_equal(f(**s.values)["O"], s.want, err_msg=s.kernel.text)
        x = {n: rng.normal(size=v.shape).astype(np.float32) for n, v in s.values.items()}
        np.testing.assert_array_equal(f(**x)["O"], s.kernel.run(x), err_msg=s.kernel.text)
        out = g(**{n: v for n, v in s.values.items() if n in g.parameters}, dO=s.seeds)
        for n in s.wrt:
            np.testing.assert_allclose(out[f"d{n}"], s.derivative(n), rtol=1e-6, err_msg=f"{s.kernel.text} by {n}")
