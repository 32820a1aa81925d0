"""Reverse-mode differentiation as a drawing: a notebook for a lecture of an hour.

    pip install marimo
    marimo edit docs/notebooks/differentiation.py      # or `marimo run …`; as a plain script it only computes

What it claims is asserted in it, and a test runs it.
"""

import marimo

app = marimo.App(app_title="Differentiation, arrow by arrow")


@app.cell
def setup():
    import marimo as mo
    import numpy as np

    import upl_mlir as upl

    def picture(program):
        """The program as a drawing in the paper's notation."""
        return mo.Html(upl.draw(program).svg())

    return mo, np, picture, upl


@app.cell
def introduction(mo):
    mo.md(r"""
    # Differentiation, arrow by arrow

    A UPL program is a drawing: boxes are *nodes*, and a number that goes along an arrow is a *token*. A box fires
    when a token lies in each of its inputs. There is no order of statements, and so there is no tape to play
    backwards. What, then, is reverse mode? **Turn every arrow round.** What the boxes must do to make that right is
    the content of this notebook.
    """)


@app.cell
def a_scalar(mo, picture, upl):
    scalars = upl.load("""
    program scalars
    input a { -> F.a }
    input b { -> F.b }
    output Y
    node F { in a, b; p = a*b; p + sin(a) -> Y }
    """)
    mo.vstack([mo.md("## One box\n\nTwo numbers come, $y = a b + \\sin a$ goes."), picture(scalars)])
    return (scalars,)


@app.cell
def its_gradient(mo, picture, scalars, upl):
    scalar_gradient = upl.grad(scalars, of="Y", wrt=["a", "b"])
    mo.vstack([
        mo.md(r"""
        The adjoint box `DF` stands beside `F`. `F` sends it the values that the partial derivatives need, $\partial
        y/\partial a = b + \cos a$ and $\partial y/\partial b = a$, and two arrows go back to where `a` and `b` came
        from.
        """),
        picture(scalar_gradient),
        mo.md(f"```\n{scalar_gradient}```"),
    ])  # fmt: skip
    return (scalar_gradient,)


@app.cell
def try_it(mo):
    slider_a = mo.ui.slider(-3.0, 3.0, 0.1, value=1.0, label="a", show_value=True)
    slider_b = mo.ui.slider(-3.0, 3.0, 0.1, value=2.0, label="b", show_value=True)
    mo.hstack([slider_a, slider_b])
    return slider_a, slider_b


@app.cell
def numbers(mo, np, scalar_gradient, slider_a, slider_b, upl):
    a, b = slider_a.value, slider_b.value
    found = upl.compile(scalar_gradient)(a=a, b=b)
    # An independent value: the complex step, exact to rounding as nothing is subtracted.
    step = 1e-30
    by_complex_step = float(np.imag((a + 1j * step) * b + np.sin(a + 1j * step)) / step)
    assert np.isclose(found["d_a"], by_complex_step, rtol=1e-14)
    mo.md(
        f"y = {float(found['Y']):.6f}, by a: {float(found['d_a']):.6f} (complex step: {by_complex_step:.6f}), "
        f"by b: {float(found['d_b']):.6f}"
    )
    return (by_complex_step, found)


@app.cell
def duality(mo, picture, upl):
    line = upl.load("""
    program line
    param n >= 1
    input X<i> in 1<=i<=n { -> Point.x<i> }
    input a { a #n -> Point.a<*> }
    output L
    node Point<i> in 1<=i<=n { in x, a; a*x #n -> Sum.s }
    node Sum { in @(+) s[#]; s*s -> L }
    """)
    line_gradient = upl.grad(line, of="L", wrt="a")
    mo.vstack([
        mo.md(r"""
        ## Multicast and gather are each other's adjoints

        `a` is one token for n instances of `Point`: a *multicast*, written `*` with `#n`. `Sum` takes n tokens into
        one: a *gather*, written `@(+)`. In the lower band every arrow is reversed, so the gather has become a
        multicast (`DPoint.d_s<*>`), and the multicast a gather. That is the chain rule: what is used n times has a
        derivative of n summands.
        """),
        picture(line_gradient),
    ])  # fmt: skip
    return line, line_gradient


@app.cell
def duality_counts(line_gradient, np, upl):
    report = line_gradient.check()
    assert report.ok
    line_at_5 = upl.compile(line_gradient)(X=np.arange(1.0, 6.0), a=2.0)
    assert line_at_5["d_a"] == 2 * (2 * 15) * 15  # L = (a Σx)², so dL/da = 2 a (Σx)²
    return (line_at_5,)


@app.cell
def dead(mo, picture, upl):
    chain = upl.load("""
    program chain
    param n >= 2
    input X<i> in 1<=i<=n { -> F.x<i> }
    input s0 { -> F.s<1> }
    output Y
    node F<i> in 1<=i<=n { in s, x; t = s*x; if i<n: t -> F.s<i+1>; if i==n: t -> Y }
    """)
    by_start = upl.grad(chain, of="Y", wrt="s0")
    by_inputs = upl.grad(chain, of="Y", wrt="X")
    mo.vstack([
        mo.md(r"""
        ## Only what is needed

        A product $y = s_0 x_1 x_2 \cdots x_n$, factor by factor. Asked for the derivative by the factors, the adjoint
        chain need not reach beyond the first of them: its last step back, to `s0`, is *dead*. It is removed instance
        by instance, since domains are sets that the compiler can compute with; look at the condition at the arrow.
        """),
        mo.hstack([picture(by_start), picture(by_inputs)], widths="equal"),
        mo.md(f"Firings: {by_start.check().firings} and {by_inputs.check().firings}."),
    ])  # fmt: skip
    return by_inputs, by_start, chain


@app.cell
def dead_numbers(by_inputs, by_start, np, upl):
    factors = np.array([2.0, 3.0, 5.0])
    given = {"X": factors, "s0": 7.0}
    assert upl.compile(by_start)(**given)["d_s0"] == 30
    assert list(upl.compile(by_inputs)(**given)["d_X"]) == [105, 70, 42]


@app.cell
def twice(mo, np, picture, scalars, upl):
    hessian_vector = upl.hvp(scalars, of="Y", wrt=["a", "b"])
    at = {"a": 1.0, "b": 2.0}
    column = upl.compile(hessian_vector)(**at, t_a=1.0, t_b=0.0)
    assert np.isclose(column["t_d_a"], -np.sin(1.0)) and column["t_d_b"] == 1
    mo.vstack([
        mo.md(r"""
        ## Twice

        The derivative is a program, so it has derivatives. Here is forward mode over reverse mode: the product of the
        Hessian $\begin{pmatrix}-\sin a & 1\\ 1 & 0\end{pmatrix}$ with a vector.
        """),
        picture(hessian_vector),
    ])  # fmt: skip
    return (column,)


@app.cell
def watch(mo):
    mo.md(r"""
    ## Watch the tokens

    ```
    upl grad FILE.upl --of L --wrt a -o gradient.upl
    upl run gradient.upl --input X=[1,2,3] --input a=2 --trace t.json
    upl view gradient.upl --trace t.json -o page.html
    ```

    The page shows the tokens move, step by step, and marks the arrow that each reversed one comes from. `upl explain`
    prints the same as a table: the rule, the condition and the count of every arrow.

    **Exercises.** (1) Replace `@(+)` by `@(max)` and predict the adjoint before you draw it. (2) In `chain`, what
    must be kept from the forward part, and how many values wait at a time? Ask `check`, then try
    `upl.checkpoint(by_start, along="i", every=4)`. (3) Which arrow of `examples/perceptron.upl` carries the condition
    `k>1` in its derivative by W, and why there?
    """)


if __name__ == "__main__":
    app.run()
