"""The price of matching: six programs on the three matching stores, and as circuits. A notebook for architects.

    pip install marimo matplotlib
    marimo edit docs/notebooks/price_of_matching.py      # or `marimo run …`; as a plain script it only computes

The figures of the machine, and what was synthesised and routed, are those of docs/circuit_table.md and
docs/machine_table.md. Cycles and areas of circuits are computed here, too, and compared with the tables. A test runs this
notebook; it takes a few seconds.
"""

import marimo

app = marimo.App(app_title="The price of matching")


@app.cell
def setup():
    from pathlib import Path

    import marimo as mo

    import upl_mlir as upl
    from upl_mlir.explore.estimate import estimate
    from upl_mlir.observe.plots import BLUE, PINK, STYLE, matplotlib
    from upl_mlir.passes.circuit.plan import cycles
    from upl_mlir.passes.lower_to_circuit import planned_circuit, wish

    root = Path(upl.__file__).resolve().parent.parent
    return BLUE, PINK, STYLE, cycles, estimate, matplotlib, mo, planned_circuit, root, upl, wish


@app.cell
def introduction(mo):
    mo.md(r"""
    # The price of matching

    A dataflow machine finds the partner of each token when it comes: by a search (`cam`), a hash table (`hashed`), or an
    address that follows from the index (`direct`). A circuit has no tokens: who meets whom, where and when, was decided when
    it was made. Both compute the same program. What does it cost to find partners at run time, in cycles, time and area?
    """)


@app.cell
def tables(root):
    def rows(page, first):
        """The table of a page whose header begins with this cell, as dictionaries; numbers are numbers."""
        lines = (root / "docs" / page).read_text(encoding="utf-8").splitlines()
        at = next(n for n, line in enumerate(lines) if line.startswith(f"| {first} |"))

        def cells(line):
            return [c.strip() for c in line.strip("|").split("|")]

        def number(text):
            try:
                return float(text.replace(",", "").removesuffix(" %"))
            except ValueError:
                return text

        head, found = cells(lines[at]), []
        for line in lines[at + 2 :]:
            if not line.startswith("|"):
                break
            found.append(dict(zip(head, map(number, cells(line)), strict=True)))
        return found

    circuits = rows("circuit_table.md", "program | lanes | LUT sites")
    machines = rows("circuit_table.md", "program | lanes | circuit, µs")
    cores = {r["part"].split(",")[1].strip(): r for r in rows("machine_table.md", "part") if r["part"].startswith("core")}
    return circuits, cores, machines


@app.cell
def table_of(mo):
    def shown(found):
        """Rows of equal keys as a Markdown table."""
        names = list(found[0])
        lines = [names, ["---"] * len(names), *([str(row[n]) for n in names] for row in found)]
        return mo.md("\n".join("| " + " | ".join(line) + " |" for line in lines))

    return (shown,)


@app.cell
def six_programs(circuits, machines, mo, shown):
    stores = ("cam", "hashed", "direct")
    counts = {
        c["program"]: {**{s: int(m[f"`{s}`: cycles"]) for s in stores}, "circuit": int(c["cycles"])}
        for c, m in zip(circuits, machines, strict=True)
        if c["lanes"] == 1
    }
    mo.vstack([
        mo.md("""
        ## Cycles

        One core of the machine, with a store that is large enough; a circuit with one lane. Both add and multiply once a
        cycle at best.
        """),
        shown([{"program": p, **{k: f"{n:,}" for k, n in c.items()},
                "least, times the circuit": f"{min(c[s] for s in stores) / c['circuit']:.1f}"} for p, c in counts.items()]),
    ])  # fmt: skip
    return counts, stores


@app.cell
def the_same_here(circuits, counts, cycles, estimate, planned_circuit, root, upl, wish):
    sizes = {
        "matmul": {"m": 16, "n": 16, "r": 16}, "fir": {"K": 8, "n": 64}, "scan": {"K": 5, "P": [1, 2, 4, 8, 16, 32]},
        "jacobi1d": {"T": 6, "n": 100}, "wave": {"T": 6, "n": 64}, "conv2d": {"H": 16, "W": 12},
    }  # fmt: skip

    def plan(name, lanes=1, real="f32"):
        """The circuit of a program; the convolution is without its `tanh`, as in the table."""
        text = (root / "examples" / f"{name}.upl").read_text(encoding="utf-8").replace("tanh(s)", "s")
        module = upl.load(text, **sizes[name]).expanded().infer_domains().module
        return planned_circuit(module, {}, wish(lanes, real=real))[1]

    off = {}
    for _row in circuits:
        if _row["lanes"] == 1:
            _name = _row["program"].split("`")[1]
            _made = plan(_name)
            assert cycles(_made) == counts[_row["program"]]["circuit"]  # the table is of today's circuits
            off[_name] = estimate(_made).luts / _row["LUT sites"] - 1
    return off, plan


@app.cell
def clocks(cores, mo, shown, stores):
    mo.vstack([
        mo.md("""
        ## Clock and area

        A core on an ECP5, by its store. The searching store has 16 entries here; 4,096 of them, which the table of cycles
        needs, would take more LUT sites than the device has. So what `cam` costs is a lower bound.
        """),
        shown([{"store": s, "LUT sites": f"{cores[s]['LUT sites']:,.0f}", "block RAMs": int(cores[s]["block RAMs"]),
                "multipliers": int(cores[s]["multipliers"]), "MHz": cores[s]["MHz"]} for s in stores]),
    ])  # fmt: skip


@app.cell
def price(circuits, cores, counts, mo, shown, stores):
    # By program and by what it runs on: microseconds, LUT sites.
    found = {}
    for _row in circuits:
        if _row["lanes"] == 1:
            _at = {s: (counts[_row["program"]][s] / cores[s]["MHz"], cores[s]["LUT sites"]) for s in stores}
            found[_row["program"]] = {**_at, "circuit": (_row["cycles"] / _row["MHz"], _row["LUT sites"])}
    prices = {
        p: {s: (at[s][0] / at["circuit"][0], at[s][1] / at["circuit"][1]) for s in stores} for p, at in found.items()
    }
    mo.vstack([
        mo.md("""
        ## Time, area, and their product

        How many times the circuit's time a store takes, how many times its area, and the product of both: the price.
        """),
        shown([
            {"program": p, **{f"{s}: time × area": f"{t:.0f} × {a:.0f} = {t * a:,.0f}" for s, (t, a) in of.items()}}
            for p, of in prices.items()
        ]),
    ])  # fmt: skip
    return found, prices


@app.cell
def parts(cores, counts, mo, prices, shown, stores):
    # The price is a product: of cycles, of clocks, of areas.
    split = [
        {"program": p, "cycles": f"{c['direct'] / c['circuit']:.1f}",
         "clock": f"{prices[p]['direct'][0] / (c['direct'] / c['circuit']):.1f}", "area": f"{prices[p]['direct'][1]:.1f}"}
        for p, c in counts.items()
    ]  # fmt: skip
    spread = max(cores[s]["MHz"] for s in stores) / min(cores[s]["MHz"] for s in stores)
    slower = [row["clock"] for row in split]
    mo.vstack([
        mo.md(f"""
        ## What the price is made of

        Of `direct`, whose cycles are the fewest in four programs: three quotients, whose product is the price. Sums and
        products of matrices keep even the machine's adder busy, so cycles cost little there. In stencils and scans a token
        has one partner, and each pair takes many cycles. The clock costs a factor of {min(slower)} to {max(slower)}: the
        store's decisions lie on one path through the core (the stores differ by {spread:.1f}). The area is that of a core
        which runs any program; the circuit runs one, at one size.
        """),
        shown(split),
    ])
    return (split,)


@app.cell
def picture(BLUE, PINK, STYLE, found, matplotlib):
    def drawn():
        """Time and area of the six programs, on each store and as a circuit; a line joins the circuit with `direct`."""
        mpl = matplotlib()
        marks = {"cam": ("s", "#888888"), "hashed": ("o", BLUE), "direct": ("^", "#2e8b57"), "circuit": ("D", PINK)}
        with mpl.rc_context(STYLE):
            figure = mpl.figure.Figure(figsize=(6.4, 3.8), layout="constrained")
            axes = figure.add_subplot(xscale="log", yscale="log", xlabel="time of a run, µs", ylabel="LUT sites")
            for on, (mark, colour) in marks.items():
                spots = [at[on] for at in found.values()]
                axes.scatter(*zip(*spots, strict=True), marker=mark, color=colour, s=26, label=on, linewidths=0, zorder=3)
            for program, at in found.items():
                axes.plot(*zip(at["circuit"], at["direct"], strict=True), color="#cccccc", linewidth=0.6)
                axes.annotate(program.split("`")[1], at["circuit"], fontsize=7, xytext=(5, 3), textcoords="offset points")
            axes.set_ylim(1000, 80_000)
            axes.legend(frameon=False, loc="center right")
        return figure

    drawing = drawn()
    drawing  # noqa: B018 -- what the cell shows
    return drawing, drawn


@app.cell
def lanes(cycles, estimate, mo, plan, shown):
    def row(lanes, real):
        made = plan("matmul", lanes, real)
        cost = estimate(made)
        area = {"LUT sites": cost.luts, "multipliers": cost.dsp, "block RAMs": cost.block_ram}
        time = {"cycles": cycles(made), "MHz": cost.fmax_mhz, "µs": round(cycles(made) / cost.fmax_mhz, 2)}
        return {"lanes": lanes, "numbers": real, **area, **time}

    wider = [row(n, real) for real in ("f32", "q6.12") for n in (1, 4, 16)]
    mo.vstack([
        mo.md("""
        ## What the area of a core buys

        A product of 16×16 matrices with more lanes, and in 18 bits of fixed point. Areas and clocks are estimated from the
        plans (docs/circuit_model.md). Sixteen lanes of f32 take less area than a core.
        """),
        shown(wider),
    ])
    return (wider,)


@app.cell
def conclusion(mo, prices):
    products = [t * a for of in prices.values() for t, a in of.values()]
    cheapest, dearest = min(products), max(products)
    mo.md(f"""
    ## So

    Time times area of the machine is {cheapest:,.0f} to {dearest:,.0f} times that of a circuit. What is bought for it:
    programs whose arrows data decide, any size without a new circuit, and a change of the program in a second. A circuit is
    for an inner loop that stays.
    """)
    return cheapest, dearest


if __name__ == "__main__":
    app.run()
