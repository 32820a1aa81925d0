"""Python functions as UPL programs: what numpy's arrays do, traced ones do too; calls, caching, positions, programs."""

from __future__ import annotations

import inspect
import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import FileLineColLoc

import upl_mlir as upl
from upl_mlir.dialects.upl import NodeOp


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [v for key in sorted(tree) for v in leaves(tree[key])]
    return [v for part in tree for v in leaves(part)] if isinstance(tree, tuple | list) else [tree]


def as_numpy(f: Callable[..., Any], *args: Any) -> None:
    """That a function gives as a UPL program what it gives as it is; it may write into its arguments."""
    got = upl.function(f)(*(np.array(a) for a in args))
    want = f(*(np.array(a) for a in args))
    assert len(leaves(got)) == len(leaves(want))
    for g, w in zip(leaves(got), leaves(want), strict=True):
        assert np.shape(g) == np.shape(w)
        assert g.dtype.kind == np.asarray(w).dtype.kind.replace("i", "f"), "numbers are floats"
        np.testing.assert_allclose(g, w, rtol=1e-14, atol=1e-14)


# -- writing and views -------------------------------------------------------------------------------------------------


def in_place_jacobi(u: Any) -> Any:
    for _ in range(3):
        u[1:-1] = (u[:-2] + u[2:]) / 2
    return u


def gauss_seidel(u: Any) -> Any:
    for i in range(1, 5):
        u[i] = (u[i - 1] + u[i + 1]) / 2
    return u


def old_values_live_on(u: Any) -> Any:
    before = u * 1
    old = u[1:3] + 0
    u[1:3] = 7
    after = u.copy()
    u[2] = before[0]
    return before, old, after, u, u[1:3] + old


def views_see_writes(u: Any) -> Any:
    tail, rows = u[2:], u.reshape(2, 3)
    u[3] = 5
    rows[0, 1:] = tail[:2] * 10
    tail[::2] += 1
    turned = rows.T
    turned[2, 0] = -1
    return u, tail, rows, turned * 1


def numbers_do_not(u: Any) -> Any:
    first = u[0]
    u[0] = 9
    first += 1
    total = 0.0
    for x in u:
        total += x
    return first, total, u


def aliases(u: Any) -> Any:
    v = u
    v *= 2
    w = u.copy()
    w -= 1
    return u, v, w


def swapped(u: Any) -> Any:
    u[:2], u[4:] = u[4:] * 1, u[:2] * 1
    u[1:5] = u[4:0:-1]
    return u


def overlapping(u: Any) -> Any:
    u[1:] = u[:-1] + u[1:]
    u[::2] = u[::-2]
    return u


def rows_and_columns(u: Any) -> Any:
    a = u.reshape(2, 3).copy()
    a[:, 0] = a[:, 1] ** 2
    a[1] = [1, a[0, 0], 3]
    a[-1, -1] += a.sum()
    b = np.zeros_like(a)
    b[:, ::2] = a[:, 1:]
    c = np.zeros((3, 2), like=a)
    c[...] = 2
    c[1:, None, 0] = u[:2, None]
    return a, b, c, np.ones_like(a[0]) * a


def carried(u: Any) -> Any:
    for k in upl.range(2, 5):
        u[k] = u[k - 2] * u[k + 1] + k
        u[k - 1 : k + 1] *= 0.5
    return u


def counted_down(u: Any) -> Any:
    total = np.zeros_like(u[:2])
    for k in upl.range(4, -1, -2):
        total[:] = total * k + u[k : k + 2]
        total[0] = np.where(k > 1, total[0], 3 * total[1]) + 2.0**k / (k + 1)
    return total, u


def loop_in_a_loop(u: Any) -> Any:
    a = np.outer(u, u)
    for i in upl.range(1, 5):
        for j in upl.range(1, 5):
            a[i, j] = (a[i - 1, j] + a[i, j - 1]) / 2
    return a


def fibonacci(u: Any) -> Any:
    return upl.fori_loop(0, 5, lambda k, s: (s[1], s[0] + s[1] * u[k]), (u[0], u[1]))


def empty_slices(u: Any) -> Any:
    a = np.outer(u, u) / 9 + np.eye(6)
    low = np.zeros_like(a)
    for i in range(6):  # Cholesky: the first rows have nothing to the left
        for j in range(i):
            low[i, j] = (a[i, j] - low[i, :j] @ low[j, :j]) / low[j, j]
        low[i, i] = np.sqrt(a[i, i] - np.sum(low[i, :i] ** 2))
    u[3:3] = 5
    return low, np.concatenate([u[:0], u]), np.prod(u[6:]), a[:, :0] @ a[:0], np.sum(a[:0], axis=0)


def no_rounds(u: Any) -> Any:
    for _ in upl.range(0):
        u[0] = 1
    for _ in upl.range(1):
        u[1] = 2
    return u


@pytest.mark.parametrize(
    "f",
    [
        in_place_jacobi, gauss_seidel, old_values_live_on, views_see_writes, numbers_do_not, aliases, swapped, overlapping,
        rows_and_columns, carried, counted_down, loop_in_a_loop, fibonacci, empty_slices, no_rounds,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_writes(f: Callable[..., Any]) -> None:
    as_numpy(f, normal(6))


def truth_values(x: Any) -> Any:
    """Stay what they are when they are written, also in a loop; they are added as `or`."""
    b = x > 0
    view = b[1:]
    b[0], view[1], b[-1] = x[1], 5, False
    before = b + b
    for k in upl.range(1, 5):
        b[k] = b[k - 1] + (x[k] < 0)
    b ^= x > 1
    return before, b, view, ~b, np.sum(b + (x < 3)), (x > 0) * (x > 1) + True, np.maximum(x > 0, x > 1) + (x < 0)


def of_nothing(x: Any) -> Any:
    none = x[:0] > 0
    return none.any(), none.all(), np.any(none.reshape(0, 2), axis=0)


@pytest.mark.parametrize("f", [truth_values, of_nothing], ids=lambda f: f.__name__)
def test_truth_values(f: Callable[..., Any]) -> None:
    as_numpy(f, normal(6))


# -- numpy's functions ---------------------------------------------------------------------------------------------------

X, Y, Z = normal(3, 4), normal(4, 2, seed=1), normal(2, 3, 4, seed=2)
FUNCTIONS: list[Callable[..., Any]] = [
    lambda x, y, z: (x.sum(0), z.mean((0, 2)), np.sum(z, axis=-1, keepdims=True), x.max(), z.min(1), np.prod(y, 0)),
    lambda x, y, z: (x @ y, z @ y, x[0] @ y, x @ y[:, 0], x[0] @ x[1], np.dot(z, y), np.dot(x, 2.0), np.inner(x, x)),
    lambda x, y, z: (z[0].T @ z[1], np.matmul(z.swapaxes(1, 2), x), np.vdot(x, x), np.tensordot(z, x, ([1, 2], [0, 1]))),
    lambda x, y, z: (np.einsum("ij->ji", x), np.einsum("ijk->k", z), np.einsum("ij,jk", x, y), np.einsum("ii", x[:, :3])),
    lambda x, y, z: (np.einsum("...j,jk->...k", z, y), np.einsum("ij,jk,lij->lk", x, y, z), np.einsum("ii->i", x[:3, 1:])),
    lambda x, y, z: (x[1], x[-1, ::2], x[..., None, 1:3], z[0, :, ::-2], z[:, 1, None], x[np.int64(2), -3:-1]),
    lambda x, y, z: (x.reshape(2, 6), x.reshape(-1), z.reshape(4, -1), z.reshape(3, 2, 2, 2), x.T.reshape(2, 3, 2)),
    lambda x, y, z: (z.transpose(2, 0, 1), z.transpose((1, 0, 2)), np.moveaxis(z, 0, -1), z.ravel(), x.flatten()[::3]),
    lambda x, y, z: (np.stack([x, 2 * x], 1), np.concatenate([x, z[0]], 0), np.vstack([x, x[0]]), np.hstack([x, y[1:]])),
    lambda x, y, z: (np.flip(x, 1), np.roll(x, 1, 0), np.roll(x, -2), np.tile(x, (2, 3)), np.repeat(x, 2, 1), np.diff(x)),
    lambda x, y, z: (np.tril(x), np.triu(x, 1), np.diag(x), np.diag(x[0], 1), np.trace(x), np.cumsum(x, 0), np.cumsum(y)),
    lambda x, y, z: (np.clip(x, -0.5, 0.5), x.clip(0), np.var(x, 1), x.std(), np.average(x, 0), np.linalg.norm(x), abs(x)),
    lambda x, y, z: (np.floor(3 * x), np.ceil(3 * x), x % 0.7, x // 0.3, np.sign(x), np.hypot(x, 1), np.exp2(x), np.cbrt(x)),
    lambda x, y, z: (x > 0, (x > 0) & (x < 1) | ~(x < 2), (x > 0).any(1), (x > -9).all(), (x > 0) * x + (x < 0), x == x[0]),
    lambda x, y, z: (np.where(x > 0, x, -1), np.where(x[0], 1.0, 2.0), np.logical_xor(x > 0, x < 1), (x > 0).sum(0), +(-x)),
    lambda x, y, z: (2 - x, 1 / x, 2.0**x, np.ones(4) + x, np.arange(4.0) * x, np.float64(2) * x, [1, 2, 3, 4] - x[0]),
    lambda x, y, z: ({"a": x, "b": [y, (z, 1.5)]}, np.eye(3), x.shape[0] + len(y) + x.ndim + np.size(z)),
    lambda x, y, z: (np.broadcast_to(x[0], (2, 4)) * 1, np.expand_dims(x, (0, 2)), np.squeeze(x[:1]), np.full_like(x, 3.5)),
    lambda x, y, z: (np.array([[-np.inf, 1.0], [2.0, np.nan]]) + y[:2], x + -0.0, np.log10(x * x), np.log2(x**4), x**-3),
    lambda x, y, z: (np.split(x, 2, 1), np.array_split(x, 2), np.split(x, [1, 3], -1), np.pad(x, 1), np.pad(y, (0, 2))),
    lambda x, y, z: (np.pad(x, ((1, 0), (2, 1)), constant_values=3), np.arcsin(x / 9), np.arccos(x / 9), np.arcsinh(x**3)),
    lambda x, y, z: (np.add.reduce(x, axis=0), np.multiply.outer(x[0], y[:, 0]), np.maximum.reduce(x), np.outer(x, y[0])),
]  # fmt: skip


@pytest.mark.parametrize("f", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_functions_of_numpy(f: Callable[..., Any]) -> None:
    as_numpy(f, X, Y, Z)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype: Any) -> None:
    """Also where a quotient rounds up to a whole number, has more bits than a number, or is by an infinite one."""
    a = np.array([6, 1, -6, 5, -1, -5.3, 1e17, 7, -7, 0, np.nextafter(3, 0), 0.3], dtype)
    b = np.array([0.1, 0.1, 0.1, np.inf, np.inf, 2, 3, -0.7, -0.7, 2, 1.5, -np.inf], dtype)
    for f in (np.fmod, np.remainder, np.floor_divide, np.divmod):
        for got, want in zip(leaves(upl.function(f)(a, b)), leaves(f(a, b)), strict=True):
            np.testing.assert_array_equal(got, want)
    change = upl.grad(upl.function(lambda a, b: np.sum(np.fmod(a, b))), (0, 1))
    by_a, by_b = change(np.array([7.3, -7.3, 1]), np.array([0.7, 0.7, 5]))
    np.testing.assert_array_equal(by_a, 1)
    np.testing.assert_array_equal(by_b, [-10, 10, 0])


def test_lengths_whose_squares_do_not_fit() -> None:
    near_0 = upl.hessian(upl.function(lambda x: np.sum(np.hypot(x, 2.0))))(np.zeros(1))
    np.testing.assert_allclose(near_0, [[0.5]])
    as_numpy(np.hypot, [3, 1e200, 1e-200, np.inf, 0, 0], [4, 1e200, 0, np.nan, 0, -2])


def test_long_chains_and_many_statements() -> None:
    def f(x: Any) -> Any:
        for k in range(300):
            x = x * 0.99 + 1 / (k + 1)
        return x

    as_numpy(f, 1.5)


# -- calls -------------------------------------------------------------------------------------------------------------


def test_arguments_by_name_structure_and_static_ones() -> None:
    Pair = namedtuple("Pair", ["first", "second"])
    runs: list[int] = []

    @upl.function(static_argnums=(1,))
    def f(p: Any, times: int, *, scale: Any = 1.0) -> Any:
        runs.append(times)
        out = p["pair"].first
        for _ in range(times):
            out = out * p["pair"].second[0]
        return Pair(out * scale, None)

    p = {"pair": Pair(2.0, [3.0])}
    assert f(p, 2) == Pair(18.0, None)
    assert f(p, 2, scale=0.5) == Pair(9.0, None)
    assert f({"pair": Pair(1.0, [5.0])}, 2) == Pair(25.0, None)
    assert f(p, 1) == Pair(6.0, None)
    assert runs == [2, 2, 1], "traced once for each structure and static value"
    assert f({"pair": Pair(np.ones(2), [5.0])}, 2).first.shape == (2,)
    assert len(runs) == 4, "and for each shape"


def test_arguments_of_the_caller_do_not_change() -> None:
    u = normal(6)
    before = u.copy()
    upl.function(in_place_jacobi)(u)
    np.testing.assert_array_equal(u, before)


def test_constants_are_those_of_the_time_of_tracing() -> None:
    table = normal(3)

    def f(x: Any) -> Any:
        y = x * table
        table[0] += 1  # a later read sees it
        return y + table

    before = table.copy()
    x = normal(3, seed=1)
    np.testing.assert_allclose(upl.function(f)(x), x * before + before + [1, 0, 0])


def test_functions_call_functions() -> None:
    inner = upl.function(lambda x: np.sin(x) * 2)
    got = upl.function(lambda x: inner(x) + inner(inner(x)))(X)
    np.testing.assert_allclose(got, 2 * np.sin(X) + 2 * np.sin(2 * np.sin(X)))


def test_a_derivative_of_a_function_is_made_once() -> None:
    runs: list[int] = []

    def f(x: Any) -> Any:
        runs.append(1)
        return np.sum(x**2)

    for g in (upl.grad(upl.function(f)), upl.grad(f)):
        runs.clear()
        for scale in (1, 2):
            np.testing.assert_allclose(g(scale * X), 2 * scale * X)
        assert len(runs) == 1


def test_engines() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.tanh(x @ Y))

    want = upl.grad(upl.function(f, engine="interp"))(X)
    np.testing.assert_allclose(upl.grad(upl.function(f, engine="native"))(X), want, rtol=1e-14)


def test_programs_are_ordinary_ones_and_the_names_do_for_programs_what_they_did() -> None:
    def f(x: Any, w: Any) -> Any:
        h = np.tanh(x @ w)
        return np.sum(h * h)

    p = upl.function(f).program(X, Y)
    assert p.check().ok
    assert list(p.inputs) == ["x", "w"] and list(p.outputs) == ["out"]
    assert "h_1" in str(p), "nodes are called after the variables"
    again = upl.load(str(p))
    d = upl.compile(upl.grad(again, of="out", wrt=["w"]))(x=X, w=Y)["d_w"]
    np.testing.assert_allclose(d, upl.grad(f, argnums=1)(X, Y), rtol=1e-14)
    assert upl.grad(f, argnums=1).program(X, Y).check().ok
    assert list(upl.vjp(again, "out", "x").outputs) == ["out", "d_x"]
    assert list(upl.jvp(again, of="out", wrt="x").inputs) == ["x", "w", "t_x"]
    assert "H_x_x" in upl.hessian(again, of="out", wrt="x").outputs
    assert "J_out_x" in upl.jacobian(again, of="out", wrt="x").outputs


def test_every_node_has_the_position_of_its_line() -> None:
    def f(x: Any) -> Any:
        u = x * 2
        u[1:] = np.exp(u[:-1])
        v = np.sum(
            u * u,
            axis=0,
        )
        return v  # noqa: RET504 - the name is what is tested

    lines, first = inspect.getsourcelines(f)
    p = upl.function(f).program(X)
    found: dict[str, int] = {}
    for op in p.op.body.block.ops:
        if isinstance(op, NodeOp):
            assert isinstance(op.location, FileLineColLoc)
            assert op.location.filename.data == __file__
            found[op.symbol] = op.location.line.data - first
    shown = {name: lines[at].split("=")[0].strip() for name, at in found.items()}
    assert set(shown.values()) == {"u", "u[1:]", "v"}, shown
    assert all(shown[name].startswith("u") for name in found if name.startswith("u_"))


def test_an_array_in_parts_is_one_node_for_many_readers() -> None:
    """Each of the 4 by 4 neighbours comes by one arrow of that node, each of 2 by 2 by arrows of the parts."""

    def of(count: int) -> Any:
        def f(x: Any) -> Any:
            p = np.pad(x, 2)
            return sum(p[i : i + 5, j : j + 5] for i in range(count) for j in range(count))

        return f

    x = np.random.default_rng(2).normal(size=(5, 5))
    for count, whole in ((4, True), (2, False)):
        program = upl.function(of(count)).program(x)
        assert ("_whole<" in str(program)) == whole
        read = re.findall(r"-> (out_\w*\.\w+)<", str(program))
        assert (len({*read}) == len(read)) == whole and len({*read}) == count**2
        (out,) = program.outputs
        p = np.pad(x, 2)
        expected = sum(p[i : i + 5, j : j + 5] for i in range(count) for j in range(count))
        np.testing.assert_allclose(upl.compile(program)(x=x)[out], expected, rtol=1e-13, atol=1e-15)
