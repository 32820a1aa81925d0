"""Python functions that cannot be traced: errors that point at the line, say what was found, and what to write instead."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

X = np.random.default_rng(0).normal(size=(3, 4))
LEAKED: list[Any] = []


def branch(x: Any) -> Any:
    return x if x[0, 0] > 0 else -x  # here


def loop_to_a_value(x: Any) -> Any:
    for _ in range(x[0, 0]):  # here
        pass
    return x


def rounds_of_python(x: Any) -> Any:
    while x[0, 0] > 0:  # here
        x = x - 1
    return x


def to_int(x: Any) -> Any:
    return x * int(x[0, 0])  # here


def from_math(x: Any) -> Any:
    return math.exp(x[0, 0])  # here


def into_numpy(x: Any) -> Any:
    a = np.zeros(3)
    a[0] = x[0, 0]  # here
    return a


def array_of(x: Any) -> Any:
    return np.array([x[0], x[1]])  # here


def masked(x: Any) -> Any:
    return x[x > 0]  # here


def beside_another(x: Any) -> Any:
    return x[[0, 2], None]  # here


def beyond(x: Any) -> Any:
    return x[np.array([0, 7])]  # here


def halves(x: Any) -> Any:
    return x[[0, 0.5]]  # here


def chosen_place(x: Any) -> Any:
    x[np.array([0, 0])] = 1.0  # here
    return x


def out_of_bounds(x: Any) -> Any:
    y = x * 2
    return y[3]  # here


def too_many(x: Any) -> Any:
    return x[0, 0, 0]  # here


def inner_extents(x: Any) -> Any:
    y = x.T
    z = np.tanh(y) @ y  # here
    return np.sum(z)


def broadcasting(x: Any) -> Any:
    return (
        x
        + x[:2]  # here
    )


def wrong_einsum(x: Any) -> Any:
    return np.einsum("ij,jk", x, x)  # here


def wrong_reshape(x: Any) -> Any:
    return x.reshape(5, -1)  # here


def wrong_write(x: Any) -> Any:
    x[0] = x[:, 0]  # here
    return x


def read_only(x: Any) -> Any:
    y = np.broadcast_to(x, (2, 3, 4))
    y[0] = 1  # here
    return y


def unsupported_function(x: Any) -> Any:
    return np.linalg.eig(x)  # here


def unsupported_ufunc(x: Any) -> Any:
    return np.nextafter(x, 0)  # here


def of_unknown_length(x: Any) -> Any:
    return np.nonzero(x)  # here


def uneven_parts(x: Any) -> Any:
    return np.split(x, 3, 1)  # here


def padded_by_reflection(x: Any) -> Any:
    return np.pad(x, 1, mode="reflect")  # here


def unsupported_method(x: Any) -> Any:
    return x.nonzero()  # here


def unsupported_option(x: Any) -> Any:
    return np.sum(x, where=x > 0)  # here


def text(x: Any) -> Any:
    return x + "1"  # here


def leaking(x: Any) -> Any:
    LEAKED.append(x)
    return x + LEAKED[0]  # here


def rebinding(x: Any) -> Any:
    y = x[0]
    for _ in upl.range(3):
        y = y * 2  # here
    return y


def out_of_a_loop(x: Any) -> Any:
    total = np.zeros_like(x[0])
    for _ in upl.range(3):
        last = np.sin(total)
        total[:] = last + 1
    return last + total  # here


def loop_index_as_a_number(x: Any) -> Any:
    for k in upl.range(3):
        for _ in range(k):  # here
            x[0] = x[1]
    return x


def numpy_array_in_a_loop(x: Any) -> Any:
    for k in upl.range(3):
        x[k] = X[k]  # here
    return x


def loop_out_of_bounds(x: Any) -> Any:
    for k in upl.range(3):
        x[k + 1] = x[k]  # here
    return x


def growing_slice(x: Any) -> Any:
    for k in upl.range(1, 3):
        x[0, 0] = np.sum(x[0:k])  # here
    return x


def window_too_large(x: Any) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, (4, 2))  # here


def scan_of_nothing(x: Any) -> Any:
    return upl.scan(lambda c, _: (c + 1, None), x)  # here


def scan_of_two_lengths(x: Any) -> Any:
    return upl.scan(lambda c, _: (c + 1, None), 0.0, (x, x[0]))  # here


def scan_without_a_pair(x: Any) -> Any:
    return upl.scan(lambda c, x: c + x, x[0], x)  # here


def another_structure(x: Any) -> Any:
    return upl.fori_loop(0, 3, lambda k, c: (c, c), x)  # here


def while_grows(x: Any) -> Any:
    return upl.while_loop(lambda s: np.sum(s) < 5, lambda s: s[:, None] + s, x[0])  # here


def while_another_tree(x: Any) -> Any:
    return upl.while_loop(lambda s: s[0] < 5, lambda s: s[0] + 1, (x[0], x[1]))  # here


def while_no_truth(x: Any) -> Any:
    return upl.while_loop(lambda s: (s, s), lambda s: s + 1, x)  # here


def while_some_truths(x: Any) -> Any:
    return upl.while_loop(lambda s: s[0] < 5, lambda s: s + 1, x)  # here


def while_of_two_shapes(x: Any) -> Any:
    return upl.while_loop(lambda s: s[1] < 5, lambda s: s, (x, x[0, :3]))  # here


def while_of_nothing(x: Any) -> Any:
    return upl.while_loop(lambda s: x[0, 0] < 5, lambda s: s, ())  # here


def while_mixes(x: Any) -> Any:
    def body(s: Any) -> Any:
        return s + np.sum(s)  # here

    return upl.while_loop(lambda s: s < 5, body, x)


def while_writes(x: Any) -> Any:
    y = x.copy()

    def body(s: Any) -> Any:
        y[0] = s[0]  # here
        return s + 1

    return upl.while_loop(lambda s: s < 5, body, x)


def while_with_a_gradient(x: Any) -> Any:
    def body(s: Any) -> Any:
        return s - upl.grad(lambda s: np.sum(s**2))(s)  # here

    return upl.while_loop(lambda s: np.sum(s) > 1, body, x)


def out_of_the_condition(x: Any) -> Any:
    kept: list[Any] = []

    def cond(s: Any) -> Any:
        kept.append(s * 2)
        return np.sum(kept[-1]) < 9

    def body(s: Any) -> Any:
        return s + kept[-1]  # here

    return upl.while_loop(cond, body, x)


def gradient_of_an_array(x: Any) -> Any:
    return upl.grad(lambda y: y * 2)(x)  # here


def hessian_inside(x: Any) -> Any:
    return upl.hessian(np.sum)(x)  # here


@pytest.mark.parametrize(
    ("f", "code", "text"),
    [
        (branch, "UPL1933", "np.where"),
        (loop_to_a_value, "UPL1933", "static_argnums"),
        (rounds_of_python, "UPL1933", "upl.while_loop"),
        (to_int, "UPL1933", "np.floor"),
        (from_math, "UPL1933", "np.exp"),
        (into_numpy, "UPL1933", "np.zeros_like(x)"),
        (array_of, "UPL1933", "np.stack"),
        (masked, "UPL1932", "np.where"),
        (beside_another, "UPL1932", "x[k][:, None]"),
        (beyond, "UPL1931", "out of bounds for an axis of extent 3"),
        (halves, "UPL1932", "astype"),
        (chosen_place, "UPL1932", "segment_sum"),
        (out_of_bounds, "UPL1931", "index 3 is out of bounds for axis 0 of extent 3"),
        (too_many, "UPL1931", "3 indices for an array with 2 dimensions"),
        (inner_extents, "UPL1931", "(4, 3) and (4, 3)"),
        (broadcasting, "UPL1931", "(3, 4) and (2, 4)"),
        (wrong_einsum, "UPL1931", "(3, 4), (3, 4)"),
        (wrong_reshape, "UPL1931", "12 elements"),
        (wrong_write, "UPL1931", "(3,)"),
        (read_only, "UPL1932", "copy"),
        (unsupported_function, "UPL1932", "`eig`"),
        (unsupported_ufunc, "UPL1932", "nextafter"),
        (of_unknown_length, "UPL1932", "np.where(c, x, 0) keeps the shape"),
        (uneven_parts, "UPL1931", "np.array_split"),
        (padded_by_reflection, "UPL1932", "np.concatenate"),
        (unsupported_method, "UPL1932", "nonzero"),
        (unsupported_option, "UPL1932", "where"),
        (text, "UPL1932", "str"),
        (rebinding, "UPL1935", "x[:] = …"),
        (out_of_a_loop, "UPL1935", "write it into an array"),
        (loop_index_as_a_number, "UPL1933", "Python's range"),
        (numpy_array_in_a_loop, "UPL1933", "upl.scan"),
        (loop_out_of_bounds, "UPL1931", "an index from 1 to 3 is out of bounds"),
        (growing_slice, "UPL1932", "the length of this slice"),
        (window_too_large, "UPL1931", "a window of 4 does not fit into an extent of 3"),
        (scan_of_nothing, "UPL1931", "there are no rounds"),
        (scan_of_two_lengths, "UPL1931", "there are 3 and 4 rounds"),
        (scan_without_a_pair, "UPL1934", "returns no pair"),
        (another_structure, "UPL1931", "another structure"),
        (while_grows, "UPL1931", "an array of shape (4, 4) for a state of shape (4,)"),
        (while_another_tree, "UPL1931", "another structure"),
        (while_no_truth, "UPL1934", "the condition is tuple, no truth value"),
        (while_some_truths, "UPL1931", "the condition has shape (4,), the states have (3, 4)"),
        (while_of_two_shapes, "UPL1931", "the states have (3, 4) and (3,)"),
        (while_of_nothing, "UPL1931", "no array"),
        (while_mixes, "UPL1932", "np.any"),
        (while_writes, "UPL1932", "part of the state"),
        (while_with_a_gradient, "UPL1932", "upl.fori_loop"),
        (out_of_the_condition, "UPL1935", "a loop that is over"),
        (gradient_of_an_array, "UPL1934", "(3, 4)"),
        (hessian_inside, "UPL1932", "outside"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_cannot_be_traced(f: Callable[..., Any], code: str, text: str) -> None:
    lines, first = inspect.getsourcelines(f)
    marked = next(n for n, line in enumerate(lines) if "# here" in line)
    for run in (upl.function(f), upl.grad(lambda x: np.sum(f(x)))):
        with pytest.raises(upl.UplError) as found:
            run(X)
        (d,) = found.value.diagnostics
        assert d.code == code, str(found.value)
        assert d.help, "every error has a suggestion"
        assert text in str(found.value)
        assert d.span is not None and d.span.file == __file__
        last = max(d.span.line, d.span.end_line)
        assert d.span.line <= first + marked <= last, (d.span, first + marked, str(found.value))
        assert lines[d.span.line - first].rstrip()[:40] in str(found.value), "the line is shown"


def test_values_that_leak() -> None:
    upl.function(lambda x: LEAKED.append(x) or x)(X)
    uses: list[Callable[[], Any]] = [
        lambda: LEAKED[-1] + 1,
        lambda: upl.function(lambda x: x + LEAKED[-1])(X),
        lambda: upl.function(np.sum)(LEAKED[-1]),
    ]
    for use in uses:
        with pytest.raises(upl.UplError, match="UPL1935"):
            use()


def test_break_out_of_a_loop() -> None:
    def f(x: Any) -> Any:
        for k in upl.range(3):
            x[k] = 0
            break
        return x

    with pytest.raises(upl.UplError, match=r"UPL1932.*before its end"):
        upl.function(f)(X)


@pytest.mark.parametrize(
    ("run", "code", "text"),
    [
        (lambda: upl.function(np.sum)("text"), "UPL1934", "static_argnums"),
        (lambda: upl.function(lambda x: x)(np.array(["a"])), "UPL1934", "no array of numbers"),
        (lambda: upl.function(lambda x: x)(np.zeros((0, 2))), "UPL1934", "empty"),
        (lambda: upl.function(lambda x: "text")(X), "UPL1934", "str"),
        (lambda: upl.function(lambda x: None)(X), "UPL1934", "no array"),
        (lambda: upl.function(lambda x: x[:0])(X), "UPL1934", "empty"),
        (lambda: upl.function(lambda x: np.max(x[:0]))(X), "UPL1931", "no elements"),
        (lambda: upl.function(3), "UPL1934", "expected a function"),
        (lambda: upl.function(lambda x, n: x, static_argnums=1)(X, [1]), "UPL1934", "hashable"),
        (lambda: upl.grad("text"), "UPL1934", "expected a function or a program"),
        (lambda: upl.grad(lambda x: x)(X), "UPL1934", "array of shape (3, 4)"),
        (lambda: upl.grad(lambda x: (np.sum(x), x))(X), "UPL1934", "has_aux"),
        (lambda: upl.grad(np.sum, has_aux=True)(X), "UPL1934", "pair"),
        (lambda: upl.grad(np.sum, argnums=1)(X), "UPL1934", "no argument 1"),
        (lambda: upl.grad(lambda x: x * x)(3), "UPL1934", "int64"),
        (lambda: upl.jvp(np.sum, X, X), "UPL1934", "tuples"),
        (lambda: upl.jvp(np.sum, (X,), (X, X)), "UPL1934", "structure"),
        (lambda: upl.jvp(np.sum, (X,), (X[0],)), "UPL1934", "shape (4,)"),
        (lambda: upl.vjp(np.sum, X)[1]((1.0, 2.0)), "UPL1934", "structure"),
        (lambda: upl.vjp(np.sum, X)[1](X), "UPL1934", "shape (3, 4)"),
        (lambda: upl.hessian(lambda x: x)(X), "UPL1934", "not one number"),
        (lambda: upl.function(np.sum, engine="no such")(X), "UPL1802", "engine"),
    ],
)  # fmt: skip
def test_calls_that_make_no_sense(run: Callable[[], Any], code: str, text: str) -> None:
    with pytest.raises(upl.UplError) as found:
        run()
    assert found.value.diagnostics[0].code == code
    assert text in str(found.value)


def test_errors_of_later_stages_point_at_the_line_too() -> None:
    def f(x: Any) -> Any:
        y = np.prod(x)  # its second derivative is refused
        return y * y

    lines, first = inspect.getsourcelines(f)
    with pytest.raises(upl.UplError) as found:
        upl.hessian(f)(X[0])
    assert found.value.diagnostics[0].code == "UPL1404"
    assert f"{__file__}:{first + 1}:" in str(found.value)
    assert lines[1].strip() in str(found.value)
