"""The questions of a lecture on automatic differentiation, each asked of UPL: a notebook of an hour.

    pip install marimo matplotlib
    marimo edit docs/notebooks/lecture.py              # or `marimo run …`; as a plain script it only computes

What it claims is asserted in it, and a test runs it.  The example of the tables is that of A. G. Baydin et al., "Automatic
differentiation in machine learning: a survey", JMLR 18 (2018).
"""

import marimo

app = marimo.App(app_title="Automatic differentiation, question by question")


@app.cell
def setup():
    import marimo as mo
    import numpy as np

    import upl_mlir as upl
    from upl_mlir.observe.plots import matplotlib

    def curves(lines, across, up):
        """A picture of named (x, y) lines on logarithmic axes."""
        import io

        figure = matplotlib().figure.Figure(figsize=(6, 3.2), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log", xlabel=across, ylabel=up)
        for name, (x, y) in lines.items():
            axes.plot(x, np.maximum(y, 1e-17), label=name)
        axes.legend()
        out = io.StringIO()
        figure.savefig(out, format="svg")
        return mo.Html(out.getvalue())

    return curves, mo, np, upl


@app.cell
def tables(mo, np, upl):
    survey = upl.load("""
    program survey
    input x1 { x1 -> V1.x; x1 -> V2.x }
    input x2 { x2 -> V2.z; x2 -> V3.z }
    output y
    node V1 { in x; log(x) -> V4.v1 }
    node V2 { in x, z; x*z -> V4.v2 }
    node V3 { in z; sin(z) -> V5.v3 }
    node V4 { in v1, v2; v1 + v2 -> V5.v4 }
    node V5 { in v3, v4; v4 - v3 -> y }
    """)
    ports = ["V4.v1", "V4.v2", "V5.v3", "V5.v4", "x1", "x2"]
    backward = upl.compile(upl.grad(survey, of="y", wrt=ports, total=True))(x1=2.0, x2=5.0)
    table = {w: float(backward["d_" + w.replace(".", "_")]) for w in ports}
    forward = upl.compile(upl.jvp(survey, of="y", wrt=["x1", "x2"]))(x1=2.0, x2=5.0, t_x1=1.0, t_x2=0.0)
    assert abs(float(backward["y"]) - 11.652) < 1e-3  # the survey's numbers
    assert table["x1"] == float(forward["t_y"]) == 5.5
    assert np.isclose(table["x2"], 2 - np.cos(5), rtol=1e-15)
    assert [table[w] for w in ports[:4]] == [1, 1, -1, 1]
    rows = "\n".join(f"| `{w}` | {v:.4f} |" for w, v in table.items())
    mo.md(rf"""
    ## The backward table

    $y = \ln x_1 + x_1 x_2 - \sin x_2$ at $(2, 5)$. One program gives the derivative by every value on the way, as asked
    with `total=True`; without it, a port that is asked for is held fixed in the derivatives by the others.

    | by | $\bar v$ |
    |---|---|
    {rows}
    """)
    return (table,)


@app.cell
def differences(curves, mo, np, upl):
    def wave(x):
        return np.sum(np.exp(np.sin(3 * x)) * x)

    at = np.linspace(0.1, 1.0, 8)
    exact = 3 * np.cos(3 * at) * np.exp(np.sin(3 * at)) * at + np.exp(np.sin(3 * at))
    steps = 10.0 ** np.arange(-15, 0, 0.5)

    def error(found):
        return np.linalg.norm(found - exact) / np.linalg.norm(exact)

    def by(h, one):
        return np.array([one(at, h * e) / h for e in np.eye(8)])

    two_point = [error(by(h, lambda x, d: wave(x + d) - wave(x))) for h in steps]
    central = [error(by(h, lambda x, d: (wave(x + d) - wave(x - d)) / 2)) for h in steps]
    complex_step = [error(by(h, lambda x, d: np.imag(wave(x + 1j * d)))) for h in steps]
    reverse_error = error(upl.grad(wave)(at))
    assert reverse_error < 1e-15
    assert 1e-9 < min(two_point) < 1e-6 and 1e-9 < steps[np.argmin(two_point)] < 1e-6  # about the root of 2**-52
    assert min(central) < 1e-9 and 1e-7 < steps[np.argmin(central)] < 1e-3  # about the cube root
    upl.check_grads(wave, (at,), order=2)
    pictures = {"two points": (steps, two_point), "central": (steps, central), "complex step": (steps, complex_step)}
    mo.vstack([
        mo.md(f"""
        ## Why not by differences?

        A difference quotient of two points is at best right to {min(two_point):.0e}, a central one to {min(central):.0e}: a
        smaller step loses digits, a larger one cuts off. The complex step subtracts nothing, but wants functions of complex
        numbers, once for each input. Reverse mode is right to {reverse_error:.0e}, for all eight inputs at once.
        """),
        curves(pictures | {"reverse mode": (steps, np.full(len(steps), reverse_error))}, "step", "relative error"),
    ])  # fmt: skip
    return (reverse_error, two_point)


@app.cell
def zero_order(curves, mo, np, upl):
    rng = np.random.default_rng(0)
    size = 20
    scales, start = np.linspace(1.0, 5.0, size), rng.normal(size=size)

    def bowl(x):
        return 0.5 * np.sum(scales * x * x)

    slope = upl.grad(bowl)
    many = rng.normal(size=(20000, size))
    estimate = np.mean([(bowl(start + 1e-4 * u) - bowl(start)) / 1e-4 * u for u in many], axis=0)
    cosine = estimate @ slope(start) / np.linalg.norm(estimate) / np.linalg.norm(slope(start))
    assert cosine > 0.98  # the mean of the estimates is the gradient
    descent, guess = [start], [start]
    for _ in range(600):
        descent.append(descent[-1] - slope(descent[-1]) / 5)
        u = rng.normal(size=size)
        x = guess[-1]
        guess.append(x - (bowl(x + 1e-4 * u) - bowl(x)) / 1e-4 * u / (5 * (size + 4)))
    losses = {"gradient": [bowl(x) for x in descent], "two points at random": [bowl(x) for x in guess]}
    reached = {n: next(k for k, v in enumerate(line) if v < 0.01 * line[0]) for n, line in losses.items()}
    assert reached["two points at random"] > size / 2 * reached["gradient"]
    calls = np.arange(1, 602)
    mo.vstack([
        mo.md(f"""
        ## And without derivatives?

        `(f(x + h*u) - f(x))/h * u` with a random `u` is the gradient in the mean (cosine {cosine:.3f} over 20000 of them),
        but in {size} dimensions one of them tells one direction. To a hundredth of the loss it takes
        {reached["two points at random"]} steps, and by gradients {reached["gradient"]}, of which each costs a small multiple
        of a value, whatever the dimension.
        """),
        curves({n: (calls, line) for n, line in losses.items()}, "step", "loss"),
    ])  # fmt: skip
    return (reached,)


@app.cell
def fighters(curves, mo, np, upl):
    def net(n, m):
        """A layer between n inputs and m outputs."""
        return upl.load(f"""
        program net
        input X<i> in 0<=i<{n} {{ #{m} -> Link.x<i,*> }}
        input W<i,j> in 0<=i<{n}, 0<=j<{m} {{ -> Link.w<i,j> }}
        output Y<j>
        node Link<i,j> {{ in x, w; x*w #{n} -> Sum.s<j> }}
        node Sum<j> in 0<=j<{m} {{ in @(+) s[#]; tanh(s) -> Y<j> }}
        """)

    shapes = [(32, 1), (16, 2), (8, 4), (4, 8), (2, 16), (1, 32)]
    chosen = {nm: upl.jacobian(net(*nm), of="Y", wrt="X").notes[-1] for nm in shapes}
    passes = {"reverse": [], "forward": []}
    for nm in shapes:
        layer = net(*nm)
        layer_data = {name: np.ones(port.shape()) for name, port in layer.inputs.items()}
        for pass_mode, ran_in in passes.items():
            jacobian = upl.compile(upl.jacobian(layer, of="Y", wrt="X", mode=pass_mode))
            jacobian(**layer_data)
            ran_in.append(sum(jacobian.stats["firings"].values()))
    for nm, back, ahead in zip(shapes, passes["reverse"], passes["forward"], strict=True):
        assert chosen[nm].startswith("reverse" if back < ahead else "forward")
    lines = "\n".join(f"* {n} inputs, {m} outputs: {note}" for (n, m), note in chosen.items())
    outputs_over_inputs = [m / n for n, m in shapes]
    mo.vstack([
        mo.md(f"""
        ## Forward or reverse?

        A Jacobian needs a pass for each output in reverse mode, for each input in forward mode. `upl.jacobian` counts the
        instances that either would fire, as polynomials where sizes are open, and says what it took:

        {lines}
        """),
        curves({mode: (outputs_over_inputs, n) for mode, n in passes.items()}, "outputs / inputs", "firings"),
    ])  # fmt: skip
    return chosen, passes


@app.cell
def mixed(curves, mo, np, upl):
    def hourglass(widths):
        """Layers of these widths, inputs first."""
        return upl.load(f"""
        program hourglass
        const K = {len(widths)}
        const N[0:K-1] = {list(widths)}
        input X<i> in 1<=i<=N[0] {{ -> Res.r<1,i> }}
        input W<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] {{ -> Link.w<k,i,j> }}
        output Y<i>
        node Res<k,i> in 1<=k<=K, 1<=i<=N[k-1] {{ in r; if k<K: #N[k] -> Link.r<k,i,*>; if k==K: -> Y<i> }}
        node Link<k,i,j> {{ in r, w; r*w #N[k-1] -> Sum.s<k,j> }}
        node Sum<k,j> {{ in @(+) s[#]; tanh(s) -> Res.r<k+1,j> }}
        """)

    dice = np.random.default_rng(3)
    waists, fired, kinds = [1, 3, 8], {"reverse": [], "forward": [], "mixed": []}, []
    for waist in waists:
        glass = hourglass([8, waist, 8])
        glass_data = {name: dice.normal(size=port.shape()) for name, port in glass.inputs.items()}
        by_mode = {}
        for way, tally in fired.items():
            square = upl.jacobian(glass, of="Y", wrt="X", mode=way)
            ran = upl.compile(square)
            by_mode[way] = ran(**glass_data)["J_Y_X"]
            tally.append(sum(ran.stats["firings"].values()))
        assert np.allclose(by_mode["mixed"], by_mode["reverse"], rtol=1e-12)
        assert np.allclose(by_mode["forward"], by_mode["reverse"], rtol=1e-12)
        kinds.append(square.notes[-1])
    assert all(fired["mixed"][k] < min(fired["reverse"][k], fired["forward"][k]) for k in (0, 1))
    assert kinds[0].startswith("mixed mode, cut at") and not kinds[2].startswith("mixed")
    assert fired["mixed"][2] in (fired["reverse"][2], fired["forward"][2])  # no waist, nothing lost
    waist_lines = "\n".join(f"* a waist of {w}: {note}" for w, note in zip(waists, kinds, strict=True))
    mo.vstack([
        mo.md(f"""
        ## Or both?

        8 inputs, 8 outputs, and a waist between them. All derivatives pass the waist, so it needs few seeds on both sides:
        `mode="mixed"` cuts there, if that needs fewer instances than either mode.

        {waist_lines}
        """),
        curves({mode: (waists, tally) for mode, tally in fired.items()}, "width of the waist", "firings"),
    ])  # fmt: skip
    return (fired,)


@app.cell
def hessians(mo, np, upl):
    gen = np.random.default_rng(1)
    points, labels = gen.normal(size=(30, 5)), np.sign(gen.normal(size=30))

    def logistic(w):
        return np.mean(np.log1p(np.exp(-labels * (points @ w))))

    weights = gen.normal(size=5)
    whole = upl.hessian(logistic)(weights)
    spectrum = np.linalg.eigvalsh(whole)

    def product(v):
        return upl.jvp(upl.grad(logistic), (weights,), (v,))[1]

    signs = gen.choice([-1.0, 1.0], size=(400, 5))
    hutchinson = np.mean([v @ product(v) for v in signs])
    p = 1 / (1 + np.exp(-(points @ weights)))
    by_hand = points.T @ (points * (p * (1 - p))[:, None]) / 30
    assert np.allclose(whole, by_hand, rtol=1e-12)
    assert spectrum[0] > 0  # the loss is convex
    assert np.isclose(hutchinson, spectrum.sum(), rtol=0.1)
    vector = np.ones(5)
    for _ in range(200):
        vector = product(vector)
        vector /= np.linalg.norm(vector)
    assert np.isclose(vector @ product(vector), spectrum[-1], rtol=1e-6)
    mo.md(f"""
    ## The second derivative, and only products with it

    Eigenvalues of the Hessian of a logistic loss: {", ".join(f"{x:.4f}" for x in spectrum)}. Forward over reverse gives its
    product with a vector at the cost of a few gradients, without the matrix: by such products alone the power method finds
    the greatest eigenvalue, and Hutchinson's mean of `v·Hv` over random signs the trace: {hutchinson:.4f} from 400 vectors,
    {spectrum.sum():.4f} exactly.
    """)
    return (hutchinson, spectrum)


@app.cell
def checkpoints(curves, mo, np, upl):
    reaction = upl.load("""
    program reaction
    const T = 12
    input U0<i> in 0<=i<6 { -> U.u<0,i> }
    output Y<i>
    node U<t,i> in 0<=t<=T, 0<=i<6 {
      in u
      if t<T: u -> Step.here<t+1,i>
      if t<T: u -> Step.there<t+1,(i+1) mod 6>
      if t==T: -> Y<i>
    }
    node Step<t,i> in 1<=t<=T, 0<=i<6 { in here, there; here + 0.1*here*(there - here) -> U.u<t,i> }
    """)
    tape = upl.vjp(reaction, of="Y", wrt="U0")
    first = np.linspace(0.1, 0.9, 6)
    without = upl.compile(tape, gather="ordered")
    reference = without(U0=first, d_Y=np.ones(6))["d_U0"]
    states, peaks, firings = [1, 2, 3, 6], [], []
    for snapshots in states:
        less = upl.compile(upl.checkpoint(tape, along="t", snapshots=snapshots), gather="ordered")
        assert np.array_equal(less(U0=first, d_Y=np.ones(6))["d_U0"], reference)
        peaks.append(less.stats["peak_waiting"])
        firings.append(sum(less.stats["firings"].values()))
    assert firings == sorted(firings, reverse=True) and peaks == sorted(peaks)
    assert peaks[0] < 0.5 * without.stats["peak_waiting"]
    mo.vstack([
        mo.md(f"""
        ## The tape, and how to shorten it

        {without.stats["peak_waiting"]} tokens wait at most when every step is kept. With one state kept at a time {peaks[0]}
        do, for {firings[0]} firings in place of {sum(without.stats["firings"].values())}; between the two lies the curve of
        the schedule of fewest firings. The results are the same bits.
        """),
        curves({"firings": (peaks, firings)}, "tokens waiting", "firings"),
    ])  # fmt: skip
    return (peaks, firings)


@app.cell
def solves(mo, np, upl):
    def fit(a, b):
        return np.sum(np.sin(np.linalg.lstsq(a, b)[0]))

    def spread(a):
        return np.sum(np.exp(np.linalg.eigvalsh(a.T @ a)))

    def cubes(a):
        return np.sum(np.linalg.svd(a, compute_uv=False) ** 3)

    draw = np.random.default_rng(2)
    tall, right = draw.normal(size=(5, 3)), draw.normal(size=5)
    # By hand: what the results satisfy is differentiated, not how they are found.
    fitted = np.linalg.lstsq(tall, right)[0]
    pulled = np.linalg.solve(tall.T @ tall, np.cos(fitted))
    eigenvalues, vectors = np.linalg.eigh(tall.T @ tall)
    left, sigma, across = np.linalg.svd(tall, full_matrices=False)
    rules = {
        "least squares": (fit, (tall, right), np.outer(right - tall @ fitted, pulled) - np.outer(tall @ pulled, fitted)),
        "eigenvalues": (spread, (tall,), 2 * tall @ (vectors * np.exp(eigenvalues)) @ vectors.T),
        "singular values": (cubes, (tall,), (left * 3 * sigma**2) @ across),
    }
    off = {}
    for what, (of, at_point, wanted) in rules.items():
        upl.check_grads(of, at_point)
        off[what] = float(np.abs(upl.grad(of)(*at_point) - wanted).max() / np.abs(wanted).max())
    assert max(off.values()) < 1e-13
    lines_of = "\n".join(f"* {what}: off from the rule by {error:.0e}" for what, error in off.items())
    mo.md(rf"""
    ## Through a solve

    The rules are known: with $x = A^+ b$ and $A^T A z = \bar x$, $\bar A = (b - A x) z^T - A z x^T$; the derivative of an
    eigenvalue is $v v^T$, that of a singular value $u v^T$. The program has none of them. It differentiates a factorisation
    and Jacobi's rotations as they stand, and comes to the same numbers:

    {lines_of}
    """)
    return (off,)


if __name__ == "__main__":
    app.run()
