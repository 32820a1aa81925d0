"""Asking the machine: how many cores, which store, which network? A notebook for architects.

    pip install marimo
    marimo edit docs/notebooks/machines.py      # or `marimo run …`; as a plain script it only computes

Every figure is counted by RTL that is simulated cycle by cycle; outputs are compared with the interpreter's in every
run. The first run of a machine compiles it, which takes half a minute; later runs take it from the cache. A test runs this
notebook.
"""

import marimo

app = marimo.App(app_title="Asking the machine")


@app.cell
def setup():
    import tempfile
    from pathlib import Path

    import marimo as mo
    import numpy as np

    import upl_mlir as upl

    return Path, mo, np, tempfile, upl


@app.cell
def introduction(mo):
    mo.md(r"""
    # Asking the machine

    The machine pairs tokens in an associative store, runs the bodies of nodes, and sends tokens on. A TOML file says how
    much of it there is. Here a small perceptron (16-12-8, four examples at a time) runs on several of them.
    """)


@app.cell
def program(np, upl):
    perceptron = upl.load("""
    program perceptron
    param D >= 1
    const K = 3
    const N[0:K-1] = [16, 12, 8]
    input  X<d,i>   in 1<=d<=D, 1<=i<=N[0]                { -> Res.r<d,1,i> }
    input  W<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k]   { #D -> Link.w<*,k,i,j> }
    output R<d,i>
    node Res<d,k,i> in 1<=d<=D, 1<=k<=K, 1<=i<=N[k-1] {
      in r
      if k<K:  #N[k] -> Link.r<d,k,i,*>
      if k==K: -> R<d,i>
    }
    node Link<d,k,i,j> { in r, w; r*w #N[k-1] -> Sum.s<d,k,j> }
    node Sum<d,k,i>    { in @(+) s[#]; -> AF<d,k,i> }
    node AF<d,k,i>     { in s; b: bool = s > 0; b*s -> Res.r<d,k+1,i> }
    """)
    # Small whole numbers: float32 is exact, so that results must agree to the bit.
    source = np.random.default_rng(0)
    inputs = {name: source.integers(-2, 3, port.shape(D=4)).astype(float) for name, port in perceptron.inputs.items()}
    expected = upl.compile(perceptron)(**inputs)["R"]
    return expected, inputs, perceptron


@app.cell
def running(Path, expected, inputs, np, perceptron, tempfile, upl):
    folder = Path(tempfile.mkdtemp(prefix="machines-"))

    def run(**keys):
        """Statistics of a run on a machine, whose keys are given as `matching__capacity=64`."""
        sections = {}
        for key, value in keys.items():
            *section, name = key.split("__")
            sections.setdefault(".".join(section), []).append(f"{name} = {value!r}".replace("'", '"'))
        path = folder / "machine.toml"
        path.write_text(
            "\n".join([*sections.pop("", []), *(f"[{s}]\n" + "\n".join(lines) for s, lines in sections.items())]) + "\n"
        )
        f = upl.compile(perceptron, engine="rtl", machine=path)
        assert np.array_equal(f(**inputs)["R"], expected)
        return f.stats

    def table(rows):
        """Rows of equal keys as a Markdown table."""
        names = list(rows[0])
        lines = [names, ["---"] * len(names), *([str(row[n]) for n in names] for row in rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    return run, table


@app.cell
def one_core(mo, run, table):
    one = run(matching__organisation="hashed")
    ports = [{"port": name, "busy": f"{share:.0%}"} for name, share in one["utilisation"].items() if share]
    mo.md(f"""
    ## One core

    {one["cycles"]} cycles for {sum(one["firings"].values())} firings. No single number tells why; the share of cycles in
    which each port was busy says more. The port near 100 % is the bottleneck.

    {table(ports)}
    """)
    return (one,)


@app.cell
def where_cycles_go(mo, one, table):
    causes = [
        {"unit": unit, "cause": cause, "cycles": cycles, "share": f"{cycles / one['cycles']:.0%}"}
        for unit, counts in one["attribution"].items()
        for cause, cycles in counts.items()
        if cycles
    ]
    for counts in one["attribution"].values():
        assert sum(counts.values()) == one["cycles"]  # every cycle has exactly one cause
    mo.md(f"""
    ## Where the cycles go

    In every cycle a unit is busy, or lost for exactly one reason.

    {table(causes)}
    """)


@app.cell
def capacity(mo, one, run, table):
    sizes = (1024, 256, 64, 16)
    found = {n: run(matching__organisation="hashed", matching__capacity=n) for n in sizes}
    stores = [{"records": n, "cycles": s["cycles"], "spills": s["spills"]} for n, s in found.items()]
    assert stores[0]["cycles"] == one["cycles"]
    mo.md(f"""
    ## A smaller store

    What finds no room in its set goes to backing memory and still meets its partner. The result is the same, it takes
    longer.

    {table(stores)}
    """)
    return (stores,)


@app.cell
def cores(mo, one, run, table):
    machines = [
        {"cores": n, "cycles": (c := one["cycles"] if n == 1 else run(cores=n, matching__organisation="hashed")["cycles"]),
         "speed-up": f"{one['cycles'] / c:.2f}"}
        for n in (1, 2)
    ]  # fmt: skip
    mo.md(f"""
    ## More cores

    {table(machines)}

    This program is small: some of the time is the host's, which injects a token a cycle. `upl explore` sweeps over cores,
    networks, stores and latencies on larger ones, keeps every run, and draws Pareto fronts; see the page on exploration.
    """)
    return (machines,)


if __name__ == "__main__":
    app.run()
