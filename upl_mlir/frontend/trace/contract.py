"""Products under sums: einsum, and matmul, dot and tensordot as cases of it."""

from __future__ import annotations

import operator
from functools import reduce
from string import ascii_letters
from typing import Any

import numpy as np

from upl_mlir.frontend.tensor import Apply, Expr
from upl_mlir.frontend.trace.array import Array, as_array, made, numbers
from upl_mlir.frontend.trace.node import Operand, Shape, current
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import reshape
from upl_mlir.poly.expr import IndexExpr


def einsum(subscripts: Any, *operands: Any, **options: Any) -> Array:
    """As numpy.einsum, with subscripts as text; products of more than two are taken in pairs.

    Raises UplError: UPL1931 (extents), UPL1932 (forms that are not text).
    """
    if not isinstance(subscripts, str):
        raise fail("UPL1932", "einsum: the subscripts are expected as text", help='write einsum("ij,jk->ik", a, b)')
    arrays = [numbers(as_array(a)) for a in operands]
    try:
        dummies = [np.broadcast_to(0.0, a.shape) for a in arrays]
        path, _ = np.einsum_path(subscripts, *dummies, optimize="greedy")
    except ValueError as e:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise fail("UPL1931", f"einsum: {e}", help=f"the shapes are {shapes}") from None
    inputs, output = _terms(subscripts, arrays)
    for step in path[1:]:
        chosen = sorted(step, reverse=True)
        parts = [(inputs.pop(n), arrays.pop(n)) for n in chosen][::-1]
        needed = set(output).union(*inputs)
        used = "".join(dict.fromkeys("".join(t for t, _ in parts)))
        new = output if not inputs else "".join(c for c in used if c in needed)
        arrays.append(_contracted([a for _, a in parts], [t for t, _ in parts], new))
        inputs.append(new)
    return arrays[0]


def _terms(subscripts: str, arrays: list[Array]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, without ellipses."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    free = [c for c in reversed(ascii_letters) if c not in text]
    widths = [a.ndim - len(t.replace("...", "")) if "..." in t else 0 for t, a in zip(terms, arrays, strict=True)]
    dots = "".join(free[: max(widths, default=0)])
    terms = [t.replace("...", dots[len(dots) - w :]) for t, w in zip(terms, widths, strict=True)]
    if arrow:
        return terms, right.replace("...", dots)
    letters = "".join(terms)
    return terms, dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots))


def _contracted(arrays: list[Array], terms: list[str], output: str) -> Array:
    """One product under one sum."""
    extents: dict[str, int] = {}
    for a, t in zip(arrays, terms, strict=True):
        for c, n in zip(t, a.shape, strict=True):
            extents[c] = n if extents.get(c, 1) == 1 else extents[c]
    over = [c for c in dict.fromkeys("".join(terms)) if c not in output]
    names = {c: f"i{n}" for n, c in enumerate(output)} | {c: f"r{n}" for n, c in enumerate(over)}
    reads: list[Operand] = []
    for a, t in zip(arrays, terms, strict=True):
        own = {
            f"i{n}": IndexExpr.of(0 if a.shape[n] == 1 < extents[c] else names[c]) for n, c in enumerate(t)
        }  # fmt: skip
        read = a.operand()
        reads.append(Operand(read.node, tuple(e.substitute(own) for e in read.index)))
    shape: Shape = tuple(extents[c] for c in output)
    sizes = tuple(extents[c] for c in over)
    return made(current().compute(shape, _product, reads, over=sizes, word="einsum"))


def _product(*factors: Expr) -> Expr:
    return reduce(lambda a, b: Apply("*", (a, b)), factors)


def matmul(a: Any, b: Any) -> Array:
    """As numpy.matmul."""
    x, y = as_array(a), as_array(b)
    if not x.ndim or not y.ndim:
        raise fail("UPL1931", f"matmul: the operands have shapes {x.shape} and {y.shape}", help="use * for numbers")
    left = "k" if x.ndim == 1 else "...ik"
    right = "k" if y.ndim == 1 else "...kj"
    inner = x.shape[-1], y.shape[0 if y.ndim == 1 else -2]
    if inner[0] != inner[1]:
        raise fail(
            "UPL1931", f"matmul: the shapes {x.shape} and {y.shape} do not fit: inner extents {inner[0]} and {inner[1]}",
            help="the last extent of the left operand is summed with the last but one of the right operand",
        )  # fmt: skip
    out = ("..." if x.ndim > 1 or y.ndim > 1 else "") + "i" * (x.ndim > 1) + "j" * (y.ndim > 1)
    return einsum(f"{left},{right}->{out}", x, y)


def dot(a: Any, b: Any, out: Any = None) -> Array:
    """As numpy.dot."""
    x, y = as_array(a), as_array(b)
    if out is not None:
        raise fail("UPL1932", "dot: the option `out` cannot be traced", help="leave it out")
    if not x.ndim or not y.ndim:
        return x * y
    return matmul(x, y) if y.ndim <= 2 else tensordot(x, y, (-1, -2))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """As numpy.tensordot."""
    x, y = as_array(a), as_array(b)
    if isinstance(axes, int):
        axes = (list(range(x.ndim - axes, x.ndim)), list(range(axes)))
    left, right = ([int(n) % m for n in np.atleast_1d(part)] for part, m in zip(axes, (x.ndim, y.ndim), strict=True))
    letters = list(ascii_letters[: x.ndim + y.ndim])
    one, two = letters[: x.ndim], letters[x.ndim :]
    for m, n in zip(left, right, strict=True):
        two[n] = one[m]
    out = [c for n, c in enumerate(one) if n not in left] + [c for n, c in enumerate(two) if n not in right]
    return einsum(f"{''.join(one)},{''.join(two)}->{''.join(out)}", x, y)


def outer(a: Any, b: Any, out: Any = None) -> Array:
    """As numpy.outer."""
    if out is not None:
        raise fail("UPL1932", "outer: the option `out` cannot be traced", help="leave it out")
    return operator.mul(reshape(a, -1)[:, None], reshape(b, -1)[None, :])
