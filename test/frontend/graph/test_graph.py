"""Static graphs: values and derivatives against numpy, exact for whole numbers; shapes known only at `run`; errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend import graph as ad
from upl_mlir.frontend.graph import Executor, Variable, gradients


def run(nodes: list[Any], **fed: Any) -> list[Any]:
    """Evaluate nodes; values are fed by the names of the placeholders."""
    e = Executor(nodes)
    by_name = {n.name: n for n in e.inputs}
    return e.run({by_name[n]: v for n, v in fed.items() if n in by_name})


def whole(*shape: int, seed: int = 0) -> Any:
    """Small whole numbers as floats, none of them 0."""
    return np.random.default_rng(seed).choice([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], shape)


def test_a_variable_is_its_own_derivative() -> None:
    x = Variable("x")
    (d,) = gradients(x, [x])
    value, dx = run([x, d], x=2 * np.ones(3))
    np.testing.assert_array_equal(value, 2 * np.ones(3))
    np.testing.assert_array_equal(dx, np.ones(3))


A, B = whole(3, seed=1), whole(3, seed=2)


@pytest.mark.parametrize(
    ("make", "want", "dx", "dy"),
    [
        (lambda x, y: x + y, A + B, 1, 1),
        (lambda x, y: x - y, A - B, 1, -1),
        (lambda x, y: x * y, A * B, B, A),
        (lambda x, y: x / y, A / B, 1 / B, -A / B**2),
        (lambda x, y: -x * 2, -2 * A, -2, 0),
        (lambda x, y: 5 + x + 1.5, A + 6.5, 1, 0),
        (lambda x, y: 5 - x, 5 - A, -1, 0),
        (lambda x, y: x - 5, A - 5, 1, 0),
        (lambda x, y: 3 * x * 2, 6 * A, 6, 0),
        (lambda x, y: x / 4, A / 4, 0.25, 0),
        (lambda x, y: 6 / y, 6 / B, 0, -6 / B**2),
        (lambda x, y: x + y * x * x, A + B * A * A, 1 + 2 * A * B, A * A),
        (lambda x, y: x * x + (y + 3) * (y + 3), A * A + (B + 3) ** 2, 2 * A, 2 * (B + 3)),
        (lambda x, y: ad.oneslike_op(x) * y, B, 0, 1),
        (lambda x, y: ad.zeroslike_op(y) * x, 0 * A, 0, 0),
        (lambda x, y: ad.relu_op(x) * y, np.maximum(A, 0) * B, (A > 0) * B, np.maximum(A, 0)),
        (lambda x, y: np.float64(2) * x + np.array(3) * y, 2 * A + 3 * B, 2, 3),
    ],
)
def test_elementwise(make: Any, want: Any, dx: Any, dy: Any) -> None:
    x, y = Variable("x"), Variable("y")
    z = make(x, y)
    value, got_x, got_y = run([z, *gradients(z, [x, y])], x=A, y=B)
    np.testing.assert_allclose(value, want, rtol=1e-15)
    np.testing.assert_allclose(got_x, np.broadcast_to(dx, 3), rtol=1e-14)
    np.testing.assert_allclose(got_y, np.broadcast_to(dy, 3), rtol=1e-14)


@pytest.mark.parametrize(
    ("op", "f", "df"),
    [
        (ad.exp_op, np.exp, np.exp),
        (ad.log_op, np.log, lambda x: 1 / x),
        (ad.sqrt_op, np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        (ad.tanh_op, np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        (ad.sigmoid_op, lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
    ],
    ids=["exp", "log", "sqrt", "tanh", "sigmoid"],
)
def test_functions(op: Any, f: Any, df: Any) -> None:
    x = Variable("x")
    a = np.array([[0.3, 1.0], [2.5, 4.0]])
    value, d = run([op(x), *gradients(op(x), [x])], x=a)
    np.testing.assert_allclose(value, f(a), rtol=1e-14)
    np.testing.assert_allclose(d, df(a), rtol=1e-13)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_matmul(trans_a: bool, trans_b: bool) -> None:
    a, b = whole(*((4, 2) if trans_a else (2, 4)), seed=3), whole(*((3, 4) if trans_b else (4, 3)), seed=4)
    x, y = Variable("x"), Variable("y")
    z = ad.matmul_op(x, y, trans_a, trans_b)
    value, dx, dy = run([z, *gradients(z, [x, y])], x=a, y=b)
    left, right, ones = a.T if trans_a else a, b.T if trans_b else b, np.ones((2, 3))
    np.testing.assert_array_equal(value, left @ right)
    np.testing.assert_array_equal(dx, (ones @ right.T).T if trans_a else ones @ right.T)
    np.testing.assert_array_equal(dy, (left.T @ ones).T if trans_b else left.T @ ones)


def test_matmul_of_vectors() -> None:
    a, b, v = whole(2, 3), whole(3, seed=1), whole(2, seed=2)
    x, y, w = Variable("x"), Variable("y"), Variable("w")
    one, two, dot = run([x @ y, ad.matmul_op(w, x), y @ y], x=a, y=b, w=v)
    np.testing.assert_array_equal(one, a @ b)
    np.testing.assert_array_equal(two, v @ a)
    assert dot.shape == () and dot == b @ b


def test_transpose_and_sums() -> None:
    a, w = whole(2, 3, 4, seed=5), whole(4, 3, 2, seed=6)
    x, y = Variable("x"), Variable("w")
    t = ad.transpose_op(x)
    p = ad.transpose_op(x, (1, 2, 0))
    total, along, kept = ad.sum_op(x), ad.sum_op(x, axis=1), ad.sum_op(x, axis=(0, -1), keepdims=True)
    (d,) = gradients(t * y, [x])
    got = run([t, p, total, along, kept, d], x=a, w=w)
    want = [a.T, a.transpose(1, 2, 0), a.sum(), a.sum(1), a.sum((0, 2), keepdims=True), w.T]
    for g, v in zip(got, want, strict=True):
        assert g.shape == np.shape(v)
        np.testing.assert_array_equal(g, v)


def test_broadcasting_sums_in_the_derivative() -> None:
    a, b, s = whole(3, 1, seed=1), whole(4, seed=2), np.float64(3)
    x, y, z = Variable("x"), Variable("y"), Variable("z")
    f = x * y * z + y
    value, dx, dy, dz = run([f, *gradients(f, [x, y, z])], x=a, y=b, z=s)
    np.testing.assert_array_equal(value, a * b * s + b)
    np.testing.assert_array_equal(dx, np.full((3, 1), b.sum() * s))
    np.testing.assert_array_equal(dy, a.sum() * s + 3 * np.ones(4))
    assert dz.shape == () and dz == (a * b).sum()


def test_derivative_of_derivatives() -> None:
    x, y = Variable("x"), Variable("y")
    f = x * x * x * y + x * y
    dx, dy = gradients(f, [x, y])
    dxx, dxy = gradients(dx, [x, y])
    (dxxx,) = gradients(dxx, [x])
    a, b = whole(3, seed=7), whole(3, seed=8)
    got = run([dx, dy, dxx, dxy, dxxx], x=a, y=b)
    for g, want in zip(got, [3 * a * a * b + b, a**3 + a, 6 * a * b, 3 * a * a + 1, 6 * b], strict=True):
        np.testing.assert_array_equal(g, want)


def test_hessian_of_a_chain_of_products() -> None:
    """f(x) = sum(v * (P (Q x)) * (P (Q x))) is quadratic: its Hessian is 2 (PQ)' diag(v) (PQ), whatever x is."""
    p, q, v, x0 = whole(3, 2, seed=1), whole(2, 4, seed=2), whole(3, seed=3), whole(4, seed=4)
    x, P, Q, V = Variable("x"), Variable("P"), Variable("Q"), Variable("V")
    z = ad.matmul_op(P, ad.matmul_op(Q, x))
    f = ad.sum_op(V * z * z)
    (g,) = gradients(f, [x])
    rows = [gradients(ad.sum_op(g * Variable(f"e{i}")), [x])[0] for i in range(4)]
    got = run([f, g, *rows], x=x0, P=p, Q=q, V=v, **{f"e{i}": np.eye(4)[i] for i in range(4)})
    m = p @ q
    np.testing.assert_array_equal(got[0], (v * (m @ x0) ** 2).sum())
    np.testing.assert_array_equal(got[1], 2 * m.T @ (v * (m @ x0)))
    np.testing.assert_array_equal(np.array(got[2:]), 2 * m.T @ np.diag(v) @ m)


def test_hessian_by_the_middle_of_a_matrix_chain() -> None:
    """sum(A X B X): the derivative is A'1 (BX)'... and the second one, in a direction, follows from polarity."""
    a, b, x0, e = whole(2, 2, seed=1), whole(2, 2, seed=2), whole(2, 2, seed=3), whole(2, 2, seed=4)
    A_, B_, X, E = Variable("A"), Variable("B"), Variable("X"), Variable("E")
    f = ad.sum_op(A_ @ X @ B_ @ X)
    (g,) = gradients(f, [X])
    (h,) = gradients(ad.sum_op(g * E), [X])
    got_g, got_h = run([g, h], A=a, B=b, X=x0, E=e)

    def first(m: Any) -> Any:
        ones = np.ones((2, 2))
        return a.T @ ones @ (b @ m).T + (a @ m @ b).T @ ones

    np.testing.assert_array_equal(got_g, first(x0))
    np.testing.assert_array_equal(got_h, first(x0 + e) - first(x0))  # the derivative is linear in X


def test_by_a_node_inside_the_graph() -> None:
    """What reaches y through the inner node counts for the variable as well."""
    x = Variable("x")
    u = x * x
    y = u * u * x
    dx, du = gradients(y, [x, u])
    a = whole(3, seed=9)
    got = run([dx, du, *gradients(y, [u, u])], x=a)
    np.testing.assert_array_equal(got[0], 5 * a**4)
    for g in got[1:]:
        np.testing.assert_array_equal(g, 2 * a**3)


def test_no_way_from_one_to_the_other_is_zero() -> None:
    x, y = Variable("x"), Variable("y")
    d, e = gradients(x * 2, [y, x])
    (f,) = gradients(ad.oneslike_op(x) * 3, [x])
    got = run([d, e, f], x=np.ones(3), y=np.ones((2, 2)))
    np.testing.assert_array_equal(got[0], np.zeros((2, 2)))
    np.testing.assert_array_equal(got[1], 2 * np.ones(3))
    np.testing.assert_array_equal(got[2], np.zeros(3))


def test_operations_on_elements_join_the_statement_that_reads_them() -> None:
    """So long chains stay small programs; what broadcasts, is read twice or differentiated by keeps a node of its own."""
    a, b, s = whole(2, 3), whole(3, seed=1), whole(2, 1, seed=2)
    x, y, z = Variable("x"), Variable("y"), Variable("z")
    twice, wide, inner = ad.exp_op(y), y * z, x - 1
    f = ad.sum_op((x * 2 + twice * twice) / wide * 3, axis=1) - ad.sum_op(ad.transpose_op(inner * inner), 0)
    value, d = run([f, *gradients(f, [inner])], x=a, y=b, z=s)
    np.testing.assert_allclose(value, ((2 * a + np.exp(b) ** 2) / (b * s) * 3).sum(1) - ((a - 1) ** 2).sum(1))
    np.testing.assert_allclose(d, -2 * (a - 1))
    for _ in range(150):
        x = x * 0.99 + y
    e = Executor([x, *gradients(x, [y])], engine="interp")
    fed = {n: np.ones(3) for n in e.inputs}
    assert len(list(e.program(fed).op.body.block.ops)) < 60
    np.testing.assert_allclose(e.run(fed)[1], (1 - 0.99**150) / 0.01)


def test_a_graph_serves_every_shape() -> None:
    x, y = Variable("x"), Variable("y")
    f = ad.sum_op(x * y)
    e = Executor([f, *gradients(f, [x])])
    for shape in [(), (2,), (3, 2), (2,)]:
        a, b = whole(*shape, seed=1), whole(*shape, seed=2)
        value, d = e.run(feed_dict={x: a, y: b})
        assert value == (a * b).sum()
        np.testing.assert_array_equal(d, b)
    assert len(e._stages[0].built) == 3  # made once for each


def test_engines_by_name() -> None:
    x = Variable("x")
    (value,) = Executor([x * x], engine="interp").run({x: [1.0, 2.0]})
    np.testing.assert_array_equal(value, [1, 4])
    with pytest.raises(upl.UplError, match="there is no engine `abacus`"):
        Executor([x * x], engine="abacus").run({x: [1.0, 2.0]})


def test_the_program_is_upl() -> None:
    x, y = Variable("x"), Variable("y")
    f = ad.matmul_op(x, y)
    e = Executor([f, *gradients(f, [x])])
    p = e.program({x: np.ones((2, 3)), y: np.ones((3, 2))})
    assert p.check().ok
    again = upl.load(str(p))
    assert set(again.inputs) == {"x", "y"}


def test_logistic_regression_learns() -> None:
    """The usual exercise: descend, by derivatives from the graph, on data that a line separates."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(12, 2))
    labels = (data @ [2.0, -1.0] > 0).astype(float)
    X, Y, W = Variable("X"), Variable("Y"), Variable("W")
    p = ad.sigmoid_op(ad.matmul_op(X, W))
    loss = -ad.sum_op(Y * ad.log_op(p) + (1 - Y) * ad.log_op(1 - p))
    e = Executor([loss, *gradients(loss, [W])])
    w, losses = np.zeros(2), list[float]()
    for _ in range(10):
        value, dw = e.run({X: data, Y: labels, W: w})
        want = data.T @ (1 / (1 + np.exp(-data @ w)) - labels)
        np.testing.assert_allclose(dw, want, rtol=1e-12, atol=1e-13)
        losses.append(float(value))
        w = w - 0.3 * dw
    assert losses[-1] < 0.4 * losses[0]


# -- errors --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "shapes", "message"),
    [
        (lambda x, y: x + y, [(3,), (4,)], r"`\(x\+y\)`: the shapes do not broadcast; the operands are x \(3,\), y \(4,\)"),
        (lambda x, y: 1 - y * 2 / (x * 2), [(3,), (4,)], r"the operands are \(y\*2\) \(4,\), \(x\*2\) \(3,\)"),
        (lambda x, y: x @ y, [(2, 3), (2, 3)], r"matmul `MatMul\(x,y\)`: the inner extents 3 and 2 differ"),
        (lambda x, y: x @ (y * 2), [(2, 3), (3, 2, 1)], r"must be matrices or vectors; the operands are x \(2, 3\), \("),
        (lambda x, y: ad.sum_op(x, axis=2) + y, [(2, 3), (2,)], r"sum `Sum\(x,axis=2\)`: there is no axis \(2,\)"),
        (lambda x, y: ad.transpose_op(x, (0, 0)) + y, [(2, 3), (2,)], r"transpose .*\(0, 0\) is no order of the axes"),
    ],
)
def test_shapes_that_do_not_fit(make: Any, shapes: Any, message: str) -> None:
    x, y = Variable("x"), Variable("y")
    with pytest.raises(upl.UplError, match=message) as e:
        run([make(x, y)], x=np.ones(shapes[0]), y=np.ones(shapes[1]))
    assert e.value.diagnostics[0].code == "UPL1921"


def _named(name: str) -> Any:
    """A node that is no placeholder and is called like one."""
    node = ad.neg_op(Variable("u"))
    node.name = name
    return node


def test_what_is_fed() -> None:
    x, y = Variable("x"), Variable("y")
    e = Executor([x + y])
    with pytest.raises(upl.UplError, match="nothing is fed for `y`"):
        e.run({x: 1.0})
    with pytest.raises(upl.UplError, match=r"`\(x\+y\)` is no placeholder"):
        e.run({x: 1.0, y: 2.0, x + y: 3.0})
    (by_name,) = e.run({"x": 1.0, y: 2.0})
    assert by_name == 3.0
    with pytest.raises(upl.UplError, match=r"there is no placeholder `z`\n  help: they are `x`, `y`"):
        e.run({"x": 1.0, "z": 2.0})
    with pytest.raises(upl.UplError, match="`x` is fed twice, by node and by name"):
        e.run({"x": 1.0, x: 1.0, y: 2.0})
    twins = Executor([Variable("a") + Variable("a")])
    with pytest.raises(upl.UplError, match="2 placeholders are called `a`\n  help: feed them by node"):
        twins.run({"a": 1.0})
    with pytest.raises(upl.UplError, match="`x` is no placeholder") as found:
        e.run({_named("x"): 1.0})
    assert "did you mean" not in str(found.value)
    with pytest.raises(upl.UplError, match="what is fed for `x` is no array of numbers"):
        e.run({x: [[1.0], [2.0, 3.0]], y: 1.0})
    with pytest.raises(upl.UplError, match="what is fed for `x` is no array of numbers"):
        e.run({x: "one", y: 1.0})
    with pytest.raises(upl.UplError, match=r"what is fed for `x` is empty: its shape is \(0,\)"):
        e.run({x: [], y: 1.0})


@pytest.mark.parametrize("bad", ["one", None, [1, 2], np.ones(3), True, float("nan"), 1j])
def test_constants_are_numbers(bad: Any) -> None:
    x = Variable("x")
    for f in (lambda: x + bad, lambda: bad * x):
        with pytest.raises(upl.UplError, match="`x` cannot be combined with") as e:
            f()
        assert e.value.diagnostics[0].code == "UPL1923"


def test_functions_take_nodes() -> None:
    x = Variable("x")
    calls = [lambda: ad.exp_op(3.0), lambda: ad.matmul_op(x, 3), lambda: gradients(x, [3]), lambda: ad.add_op(x, 1)]
    for call in calls:
        with pytest.raises(upl.UplError, match="expected a node"):
            call()  # pyright: ignore
    with pytest.raises(upl.UplError, match="expected nodes"):
        Executor([x, 3])  # pyright: ignore


def test_long_names_stay_short() -> None:
    x = Variable("x")
    y = x
    for _ in range(40):
        y = y * y
    assert len(y.name) < 80
    (value,) = run([y * 0 + 1], x=np.ones(2))
    np.testing.assert_array_equal(value, np.ones(2))
