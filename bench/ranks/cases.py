"""The programs that run on ranks here and in test/mpi, with their data: examples at other sizes, and three more.

heat3d: a stencil in space; nbody: all bodies need all others; regression: gradient descent, data parallel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import upl_mlir as upl

ROOT = Path(__file__).resolve().parents[2]


class Case(NamedTuple):
    """A program, its inputs, parameters that do not follow from these, and sizes that the division should be good for."""

    program: upl.Program
    inputs: dict[str, Any]
    params: dict[str, int]
    sizes: Mapping[str, int] = MappingProxyType({})


def heat3d(n: int, steps: int) -> Case:
    """`steps` steps of heat in a block of n by n+1 by n+2 points."""
    return Case(_own("heat3d"), {"A": _some(n, n + 1, n + 2)}, {"T": steps})


def nbody(n: int, steps: int) -> Case:
    """`steps` steps of n bodies."""
    return Case(_own("nbody"), {"X": _some(n, 3), "V": _some(n, 3, seed=1), "M": np.abs(_some(n, seed=2))}, {"T": steps})


def regression(examples: int, weights: int, steps: int) -> Case:
    """`steps` steps of gradient descent."""
    inputs = {"X": _some(examples, weights), "Y": _some(examples, seed=1), "W": _some(weights, seed=2)}
    return Case(_own("regression"), inputs, {"T": steps})


def jacobi2d(n: int, steps: int) -> Case:
    """`steps` of Jacobi's steps on n by n points."""
    return Case(_example("jacobi2d"), {"A": _some(n, n)}, {"T": steps})


def floyd_warshall(n: int) -> Case:
    """The shortest paths between n places."""
    return Case(_example("floyd_warshall"), {"W": np.abs(_some(n, n)) + 0.1}, {})


def mlp(examples: int, *widths: int) -> Case:
    """The loss of a classifier with layers of these widths."""
    p = _example("mlp", K=len(widths), N=list(widths))
    x, labels = _some(examples, widths[0]), np.arange(examples) % widths[-1]
    w, b = np.zeros((len(widths) - 1, max(widths[:-1]), max(widths[1:]))), np.zeros((len(widths) - 1, max(widths[1:])))
    for k, (m, n) in enumerate(itertools.pairwise(widths)):
        w[k, :m, :n], b[k, :n] = _some(m, n, seed=k) / np.sqrt(m), _some(n, seed=9 + k) / 10
    return Case(p, {"X": x, "W": w, "B": b, "Y": np.eye(widths[-1])[labels]}, {}, {"D": examples})


def gradient(case: Case, of: str, *wrt: str) -> Case:
    """The program of the derivatives, with a seed for them."""
    p = upl.vjp(case.program, of=of, wrt=list(wrt))
    shape = np.shape(upl.compile(case.program, engine="native")(**case.inputs, **case.params)[of])
    return Case(p, {**case.inputs, f"d_{of}": np.random.default_rng(5).normal(size=shape)}, case.params, case.sizes)


def _own(name: str) -> upl.Program:
    return upl.load(Path(__file__).with_name(f"{name}.upl"))


def _example(name: str, **constants: Any) -> upl.Program:
    return upl.load(ROOT / "examples" / f"{name}.upl", **constants)


def _some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


SMALL: dict[str, Callable[[], Case]] = {
    "heat3d": lambda: heat3d(7, 20), "nbody": lambda: nbody(9, 3), "regression": lambda: regression(10, 3, 4),
    "mlp-gradient": lambda: gradient(mlp(13, 6, 5, 4), "Loss", "W", "B"),
    "jacobi2d-gradient": lambda: gradient(jacobi2d(9, 40), "B", "A"),
    "heat3d-gradient": lambda: gradient(heat3d(6, 3), "B", "A"),
    "nbody-gradient": lambda: gradient(nbody(5, 2), "Y", "X", "V", "M"),
}  # fmt: skip
"""By name, at the sizes of tests."""
MEASURED: dict[str, Callable[[], Case]] = {
    "jacobi2d 512": lambda: jacobi2d(512, 100), "jacobi2d 512 gradient": lambda: gradient(jacobi2d(512, 100), "B", "A"),
    "jacobi2d 2048": lambda: jacobi2d(2048, 100), "jacobi2d 2048 gradient": lambda: gradient(jacobi2d(2048, 100), "B", "A"),
    "mlp gradient": lambda: gradient(mlp(4096, 784, 256, 10), "Loss", "W", "B"),
    "floyd_warshall 1000": lambda: floyd_warshall(1000), "n-body 2000": lambda: nbody(2000, 10),
}  # fmt: skip
"""By name, at the sizes of the table."""
