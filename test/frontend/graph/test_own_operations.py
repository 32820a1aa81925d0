"""Operations of the user's: in Python, or as text of UPL; with their own gradients, on every engine, several times over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend import graph as ad

X = np.array([[0.3, -1.2, 0.7], [1.1, 0.4, -0.5]])


class Cube(ad.Op):
    """As the article writes its operations: nodes by `Op.__call__`, a `compute`, a `gradient`."""

    calls = 0

    def __call__(self, node_A: ad.Node) -> ad.Node:
        """A node."""
        new_node = ad.Op.__call__(self)
        new_node.inputs = [node_A]
        new_node.name = f"Cube({node_A.name})"
        return new_node

    def compute(self, node: ad.Node, input_vals: Any) -> Any:
        """Cubes."""
        assert len(input_vals) == 1 and isinstance(input_vals[0], np.ndarray)
        type(self).calls += 1
        return input_vals[0] ** 3

    def gradient(self, node: ad.Node, output_grad: ad.Node) -> list[ad.Node | None]:
        """3x²."""
        return [3 * node.inputs[0] * node.inputs[0] * output_grad]


class Softplus(ad.Op):
    """In UPL, with UPL's derivative."""

    operands = ("x",)
    upl = "log1p(exp(x))"


class Clip(ad.Op):
    """In UPL, with a gradient of its own: straight through."""

    operands = ("x", "low", "high")
    upl = "x < low ? low : x > high ? high : x"

    def gradient(self, node: ad.Node, output_grad: ad.Node) -> list[ad.Node | None]:
        """As if nothing were clipped."""
        return [output_grad, None, None]


class MatVec(ad.Op):
    """Two operands of different shapes, in Python."""

    def compute(self, node: ad.Node, input_vals: Any) -> Any:
        """A product."""
        return input_vals[0] @ input_vals[1]

    def gradient(self, node: ad.Node, output_grad: ad.Node) -> list[ad.Node | None]:
        """By the matrix an outer product, by the vector a product."""
        a, b = node.inputs
        ones = ad.oneslike_op(b)
        return [ad.transpose_op(Outer()(ones * b, output_grad)), ad.matmul_op(a, output_grad, trans_A=True)]


class Outer(ad.Op):
    """Without a gradient."""

    def compute(self, node: ad.Node, input_vals: Any) -> Any:
        """All products."""
        return np.outer(*input_vals)


def slope(f: Any, x: Any, step: float = 1e-5) -> Any:
    """The gradient of a function of an array to a number, by central differences."""
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        there = [x.copy(), x.copy()]
        there[0][at] += step
        there[1][at] -= step
        out[at] = (f(there[0]) - f(there[1])) / (2 * step)
    return out


@pytest.mark.parametrize("engine", [None, "native", "interp"])
def test_a_python_operation(engine: str | None) -> None:
    """Before and behind it are programs; it is called once in a run."""
    x = ad.Variable("x")
    y = ad.sum_op(ad.tanh_op(Cube()(ad.sin_op(x))) * x)
    (d,) = ad.gradients(y, [x])
    e = ad.Executor([y, d], engine=engine)
    Cube.calls = 0
    value, got = e.run({"x": X})

    def f(v: Any) -> float:
        return float(np.sum(np.tanh(np.sin(v) ** 3) * v))

    assert value == pytest.approx(f(X))
    assert Cube.calls == 1
    np.testing.assert_allclose(got, slope(f, X), rtol=1e-8, atol=1e-9)


def test_it_is_differentiated_again() -> None:
    """Second and third derivatives go through its gradient."""
    x = ad.Variable("x")
    y = ad.sum_op(Cube()(ad.sin_op(x)) * x)
    (d1,) = ad.gradients(y, [x])
    (d2,) = ad.gradients(d1, [x])
    (d3,) = ad.gradients(d2, [x])
    v = np.array([0.3, -1.2, 0.7])
    s, c = np.sin(v), np.cos(v)
    want1 = s**3 + 3 * v * s**2 * c
    want2 = 6 * s**2 * c + v * (6 * s * c**2 - 3 * s**3)
    want3 = 18 * s * c**2 - 9 * s**3 + v * (6 * c**3 - 21 * s**2 * c)
    for got, want in zip(ad.Executor([d1, d2, d3]).run({x: v}), (want1, want2, want3), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_several_in_a_row_and_side_by_side() -> None:
    """Derivatives by nodes between them are whole: along all paths."""
    x = ad.Variable("x")
    a = Cube()(x)
    b = ad.exp_op(a) + x
    c = Cube()(b)
    y = ad.sum_op(c * a)
    e = ad.Executor([y, *ad.gradients(y, [x, a, b, c])])
    v = np.array([0.3, -0.4])
    a_, b_ = v**3, np.exp(v**3) + v
    by_b = 3 * b_**2 * a_
    by_a = b_**3 + by_b * np.exp(a_)
    got = e.run({"x": v})
    for found, want in zip(got[1:], (by_a * 3 * v**2 + by_b, by_a, by_b, a_), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-13)
    assert len(e._stages) == 3


def test_by_its_own_value() -> None:
    """The operation itself is what is differentiated, and by which."""
    x = ad.Variable("x")
    y = Cube()(x)
    by_y, by_x = ad.gradients(y, [y, x])
    got = ad.Executor([by_y, by_x, y]).run({x: X})
    for found, want in zip(got, (np.ones_like(X), 3 * X**2, X**3), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-14)


def test_operations_as_text() -> None:
    """Compiled into the program: one stage; derivatives of UPL, or those that the operation gives."""
    x, low = ad.Variable("x"), ad.Variable("low")
    y = ad.sum_op(Softplus()(x) * x)
    z = ad.sum_op(Clip()(x * 2, low, ad.oneslike_op(low)) * x)
    e = ad.Executor([y, z, *ad.gradients(y, [x]), *ad.gradients(z, [x, low])])
    assert len(e._stages) == 1
    got = e.run({"x": X, "low": -1.0})
    clipped = np.clip(2 * X, -1, 1)
    softplus = np.logaddexp(0, X)
    want = [np.sum(softplus * X), np.sum(clipped * X), softplus + X / (1 + np.exp(-X)), clipped + 2 * X, 0]
    for found, value in zip(got, want, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-13, atol=1e-15)
    assert "log1p(exp(" in str(e.program({x: X, low: -1.0}))


def test_operands_of_different_shapes() -> None:
    """Seeds have the shapes of the operands; a gradient may use other operations of the user's."""
    a, b = ad.Variable("a"), ad.Variable("b")
    y = ad.sum_op(ad.sin_op(MatVec()(a, ad.exp_op(b))))
    _, da, db = ad.Executor([y, *ad.gradients(y, [a, b])]).run({"a": X, "b": X[0]})
    np.testing.assert_allclose(da, slope(lambda v: np.sum(np.sin(v @ np.exp(X[0]))), X), rtol=1e-8)
    np.testing.assert_allclose(db, slope(lambda v: np.sum(np.sin(X @ np.exp(v))), X[0]), rtol=1e-8)


def test_topological_order() -> None:
    """Operands first, each node once."""
    x, y = ad.Variable("x"), ad.Variable("y")
    s = x + y
    z = s * x
    assert ad.find_topo_sort([z]) == [x, y, s, z]
    assert ad.find_topo_sort([z, s]) == [x, y, s, z]


def test_printed_values(capsys: Any) -> None:
    """Each once in a run, in order; the value goes on unchanged, and so do derivatives."""
    x = ad.Variable("x")
    h = ad.print_op(x * 2, "twice")
    y = ad.sum_op(Cube()(ad.print_op(h + 1)) * h)
    (d,) = ad.gradients(y, [x])
    e = ad.Executor([d])
    v = np.array([1.0, -2.0])
    (got,) = e.run({"x": v})
    assert capsys.readouterr().out == "twice = [ 2. -4.]\n(Print((x*2))+1) = [ 3. -3.]\n"
    np.testing.assert_allclose(got, 2 * (3 * (2 * v + 1) ** 2 * 2 * v + (2 * v + 1) ** 3))
    e.program({"x": v})
    assert not capsys.readouterr().out


class Nothing(ad.Op):
    """Says nothing."""


class Many(Cube):
    """A gradient too many."""

    def gradient(self, node: ad.Node, output_grad: ad.Node) -> Any:
        """Two of one."""
        return [output_grad, output_grad]


class Wide(Cube):
    """A gradient of another shape."""

    def gradient(self, node: ad.Node, output_grad: ad.Node) -> Any:
        """A number."""
        return [ad.sum_op(output_grad)]


class Words(Cube):
    """No numbers."""

    def compute(self, node: ad.Node, input_vals: Any) -> Any:
        """Text."""
        return "three"


class Typo(ad.Op):
    """Another name than that of the operand."""

    operands = ("value",)
    upl = "exp(2*valeu)"


class Unknown(ad.Op):
    """A function that there is not."""

    operands = ("x",)
    upl = "1 + expp(x)"


def test_what_does_not_fit_is_said() -> None:
    """Errors name the operation, and the place in its text."""
    x = ad.Variable("x")

    def message(node: ad.Node, **fed: Any) -> str:
        with pytest.raises(upl.UplError) as e:
            ad.Executor([node]).run({"x": X})
        return str(e.value)

    assert "UPL1924" in message(Nothing()(x)) and "`Nothing` does not say what it computes" in message(Nothing()(x))
    with pytest.raises(upl.UplError, match=r"UPL1924.*`Outer` has no gradient(.|\n)*stop_gradient_op"):
        ad.gradients(Outer()(x, x), [x])
    with pytest.raises(upl.UplError, match=r"UPL1924.*`gradient` of the operation `Many`(.|\n)*a list of 1 nodes"):
        ad.gradients(Many()(x), [x])
    assert "returned a derivative of shape () for `x`, whose shape is (2, 3)" in message(ad.gradients(Wide()(x), [x])[0])
    assert "what `compute` of `Cube(x)` returned is no array of numbers" in message(Words()(x))
    typo = message(Typo()(x))
    assert "Typo.upl:1:7: error[UPL1924]: `valeu` is none of the operands" in typo
    assert "exp(2*valeu)\n" in typo and "did you mean `value`?" in typo
    unknown = message(Unknown()(x))
    assert "Unknown.upl:1:5" in unknown and "1 + expp(x)" in unknown and "exp" in unknown
    assert "`Softplus(x,x)` has 2 operands, the operation 1" in message(Softplus()(x, x))
    with pytest.raises(TypeError, match="unexpected argument 'axis'"):
        Softplus()(x, axis=1)


def test_no_derivative_passes_where_none_shall() -> None:
    """`stop_gradient_op`, also before an operation without a gradient."""
    a, b = ad.Variable("a"), ad.Variable("b")
    y = ad.sum_op(Outer()(ad.stop_gradient_op(a), ad.stop_gradient_op(b))) * ad.sum_op(a)
    _, d = ad.Executor([y, *ad.gradients(y, [a])]).run({"a": X[0], "b": X[1]})
    np.testing.assert_allclose(d, np.full(3, np.sum(np.outer(X[0], X[1]))), rtol=1e-13)
