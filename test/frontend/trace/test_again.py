# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUntypedNamedTuple=false
"""Calls like an earlier one pass arrays only: they give what a first call gives, and what differs is not taken for alike."""

from __future__ import annotations

from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend.trace.again import Again

Pair = namedtuple("Pair", ["scale", "shift"])


def line(p: Any, x: Any, unused: Any) -> Any:
    x = np.stack(x) if isinstance(x, list) else x
    return {"z": np.sum(p.scale * x) + p.shift, "a": [x * 2.0, (x > 0.5)]}


def loss(p: Any, x: Any, unused: Any) -> Any:
    x = np.stack(x) if isinstance(x, list) else x
    return np.sum(p.scale * x * x) + p.shift, {"twice": 2.0 * x}


ARGUMENTS: list[tuple[Any, Any, Any]] = [
    (Pair(2.0, 1.0), np.array([0.25, 0.5, 1.0]), np.ones(2)),
    (Pair(np.float64(3.0), 1.0), np.array([0.25, 0.5, 1.0]), np.ones(2)),
    (Pair(np.array(2.0), np.array(4)), np.arange(3), np.ones(2)),
    (Pair(2.0, 1.0), np.arange(5.0)[::2], np.ones(2)),
    (Pair(2.0, 1.0), np.arange(4.0), np.ones(2)),
    (Pair(np.float32(2.0), np.float32(1.0)), np.arange(4, dtype=np.float32), np.ones(2, np.float32)),
    (Pair(2.0, np.float32(1.0)), [0.5, 1.0, 2.0], [np.ones(2)]),
]


def same(a: Any, b: Any) -> None:
    """Equal in structure, types and numbers."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = list(a.values()), list(b.values())
    if isinstance(a, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


def value(f: Any) -> Any:
    return f


def both(f: Any) -> Any:
    return upl.value_and_grad(f, (0, 2), True)


def gradient(f: Any) -> Any:
    return upl.grad(f, 0, True)


@pytest.mark.parametrize("transform", [value, both, gradient])
def test_calls_in_turns_are_like_first_calls(transform: Any) -> None:
    fun = line if transform is value else loss
    kept = transform(upl.function(fun))
    arguments = [a for a in ARGUMENTS if fun is line or np.asarray(a[0].shift).dtype.kind == "f"]
    for args in [*arguments, *reversed(arguments)]:
        same(kept(*args), transform(upl.function(fun))(*args))


def test_a_second_call_is_not_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = upl.function(lambda x: np.sum(x * x))
    calls: list[int] = []
    plain = Again.__init__

    def counted(self: Again, *args: Any) -> None:
        calls.append(1)
        plain(self, *args)

    monkeypatch.setattr(Again, "__init__", counted)
    assert [float(f(np.full(n, 2.0))) for n in (3, 3, 4, 3, 4)] == [12.0, 12.0, 16.0, 12.0, 16.0]
    assert len(calls) == 2


def test_results_belong_to_the_caller() -> None:
    """The derivative by an argument that is not needed is new each time; no result changes with a later call."""
    g = upl.grad(lambda x, y: np.sum(x * x), (0, 1))
    x, y = np.arange(3.0), np.ones(2)
    first, zeros = g(x, y)
    zeros += 5
    later = g(x + 1, y)
    np.testing.assert_array_equal(later[1], np.zeros(2))
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(later[0], 2 * x + 2)


def test_dictionaries_keep_their_order() -> None:
    g = upl.grad(lambda p: np.sum(p["b"] * p["a"]))
    for order in ("ab", "ba", "ab"):
        found = g({k: np.full(2, float(ord(k))) for k in order})
        assert list(found) == list(order)
        np.testing.assert_array_equal(found["a"], np.full(2, float(ord("b"))))


def tilted(p: Any, x: Any, k: Any, unused: Any) -> Any:
    return Pair(np.sum(p["w"][k] * x) * p["s"], [x * 2.0, None])


def test_like_calls_run_without_python_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees, numbers, arrays of integers (which are converted), arrays that are not needed; others go the long way."""
    f = upl.function(tilted, engine="native")
    args = ({"w": np.arange(4.0), "s": 2.0}, np.array([1.0, 2.0]), np.array([3, 1]), np.ones(2))
    wanted = Pair(np.float64(10.0), [np.array([2.0, 4.0]), None])
    for _ in range(2):
        same(f(*args), wanted)
    long: list[int] = []
    plain = Again.__call__

    def counted(self: Again, values: Any) -> Any:
        long.append(1)
        return plain(self, values)

    monkeypatch.setattr(Again, "__call__", counted)
    same(f(*args), wanted)
    other = ({"w": np.arange(4.0), "s": 2.0}, args[1] + 1, np.array([0, -1]), args[3])
    same(f(*other), Pair(np.float64(18.0), [args[1] * 2 + 2, None]))
    assert not long
    same(f({"s": 2.0, "w": np.arange(4.0)}, *args[1:]), wanted)
    same(f(args[0], args[1], args[2].astype(np.int32), args[3]), wanted)
    same(f(args[0], np.array([1.0, 9.0, 2.0])[::2], *args[2:]), wanted)
    same(f(args[0], args[1].astype(">f8"), *args[2:]), wanted)
    same(f({"w": np.arange(4.0), "s": np.float64(2.0)}, *args[1:]), wanted)
    assert long
    with pytest.raises(upl.UplError, match=r"UPL1605|never came"):
        for _ in range(3):
            f(args[0], args[1], np.array([3, 7]), args[3])


def test_whole_calls_from_several_threads() -> None:
    """Converted arrays have one place, which a second thread leaves alone while a first one uses it."""
    f = upl.function(lambda x, k: np.sum(np.exp(-x * x)) + np.sum(k * 1.0), engine="native")
    x, k = np.linspace(0, 1, 200_000), np.arange(5000)
    wanted = [float(f(x, k + n)) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(lambda n: float(f(x, k + n % 4)), range(64))):
            assert found == wanted[n % 4]


def test_a_like_call_inside_of_a_trace_is_traced() -> None:
    f = upl.function(lambda x: np.sum(x * x), engine="native")
    x = np.arange(3.0)
    for _ in range(2):
        f(x)
    program = upl.function(lambda y: f(x) * y).program(2.0)
    assert "out" in program.outputs
    assert float(upl.function(lambda y: f(x) * y, engine="native")(2.0)) == 10.0


def test_arguments_by_name_come_in_any_order() -> None:
    x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    f = upl.function(lambda *, a, b: a - 2 * b)
    for found in (f(a=x, b=y), f(b=y, a=x), f(a=x, b=y)):
        np.testing.assert_array_equal(found, x - 2 * y)
    g = upl.vmap(lambda *, a, b: a - 2 * b)
    for found in (g(a=x, b=y), g(b=y, a=x)):
        np.testing.assert_array_equal(found, x - 2 * y)


def test_a_function_may_go_by_the_order_of_a_dict() -> None:
    x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    f = upl.function(lambda d: next(iter(d.values())) - 2 * d["b"])
    np.testing.assert_array_equal(f({"a": x, "b": y}), x - 2 * y)
    np.testing.assert_array_equal(f({"b": y, "a": x}), y - 2 * y)


def test_named_tuples_of_one_name() -> None:
    other = namedtuple("Pair", ["shift", "scale"])
    f = upl.function(lambda p: p.scale - 2 * p.shift)
    assert [f(Pair(1.0, 10.0)), f(other(10.0, 1.0))] == [-19, -19]


def test_static_arguments_that_are_equal_but_differ() -> None:
    x = np.ones(2)
    f = upl.function(lambda x, n: x / n, static_argnums=1)
    np.testing.assert_array_equal(f(x, 2.0), x / 2)
    with np.errstate(divide="ignore"):
        for zero in (0.0, -0.0):
            np.testing.assert_array_equal(f(x, zero), x / zero)
    g = upl.function(lambda x, n: x * float(len(repr(n))), static_argnums=1)
    for n in (1, 1.0, True, (1,), (1.0,), (True,)):
        np.testing.assert_array_equal(g(x, n), x * len(repr(n)))


def test_a_derivative_is_that_where_the_function_was_called() -> None:
    x = np.array([1.0, 2.0])
    _, pull_back = upl.vjp(lambda x: x * x, x)
    x[:] = 0
    np.testing.assert_array_equal(pull_back(np.ones(2))[0], [2, 4])


def test_an_argument_that_one_differentiates_by_twice() -> None:
    x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    found = upl.grad(lambda x, y: np.sum(x * y), argnums=(0, 1, 0, -1))(x, y)
    for a, b in zip(found, (y, x, y, x), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(upl.jacobian(lambda x: np.sum(x * x), argnums=(0, 0))(x), [2 * x, 2 * x])
    found = upl.hessian(lambda x, y: np.sum(x * x * y), argnums=(0, 0))(x, y)
    np.testing.assert_array_equal(found, [[np.diag(2 * y)] * 2] * 2)
    inside = upl.function(upl.grad(lambda x, y: np.sum(x * y), argnums=(0, 0)))(x, y)
    np.testing.assert_array_equal(inside, [y, y])
