"""Programs that data decide on the machine: cycles on 1 to 16 cores, and where they go.

.venv/bin/python -m bench.machine_sparse     # prints the tables of docs/machine_measured.md, "Irregular programs, measured"
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from bench.machine_table import causes, markdown
from upl_mlir.hw.machine import Host, Machine, Matching, Network, Organisation, Topology

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CORES = (1, 2, 4, 8, 16)
ATTRIBUTED = (1, 16)
RECORDS = 4096
"""Of each core's store, so that no record spills: places of a direct store are as many."""
BESIDE = 1024
"""Records of the store beside a direct one."""


@dataclass(frozen=True)
class Case:
    """A program, its derivative or not, its sizes and inputs, and how many products of data it makes: each is a firing."""

    title: str
    program: Callable[[], upl.Program]
    params: dict[str, int]
    inputs: dict[str, Any]
    products: int


def spmv(m: int = 128, n: int = 128, w: int = 8) -> dict[str, Any]:
    """Rows of w values each, at columns drawn without repetition."""
    r = np.random.default_rng(0)
    columns = np.stack([r.permutation(n)[:w] for _ in range(m)])
    return {"V": r.random((m, w)), "Col": columns, "Count": np.full(m, w), "X": r.random(n)}


def pagerank(n: int = 64, m: int = 512) -> dict[str, Any]:
    """Links drawn at random."""
    r = np.random.default_rng(0)
    return {"From": r.integers(0, n, m), "To": r.integers(0, n, m), "W": r.random(m), "R0": r.random(n)}


def cases() -> list[Case]:
    """SpMV, its derivative by X, PageRank."""
    matrix, links = spmv(), pagerank()
    load = upl.load

    def adjoint() -> upl.Program:
        return upl.vjp(load(EXAMPLES / "spmv.upl"), of="Y", wrt="X")

    return [
        Case("SpMV, 128 rows of 8", lambda: load(EXAMPLES / "spmv.upl"), {"n": 128}, matrix, 1024),
        Case("its derivative by X", adjoint, {"n": 128}, {**matrix, "d_Y": np.ones(128)}, 2048),
        Case("PageRank, 64 pages, 512 links, 4 steps", lambda: load(EXAMPLES / "sparse" / "pagerank.upl"),
             {"n": 64, "m": 512, "T": 4}, links, 2048),
    ]  # fmt: skip


def machine(organisation: Organisation, cores: int) -> Machine:
    """A crossbar and a port of the host for each core; everything else is the default."""
    matching = Matching(organisation=organisation, capacity=RECORDS, beside=BESIDE)
    network = Network(topology=Topology.CROSSBAR)
    return Machine(cores=cores, matching=matching, network=network, host=Host(ports=cores))


def main() -> None:
    """Run all; print tables."""
    rows = [["program", "organisation", *(f"{n} cores" if n > 1 else "1 core" for n in CORES), "a product, 1 core"]]
    why = [["program", "organisation", "cores", "unit", "busy", "lost to"]]
    for case in cases():
        program = case.program()
        want = upl.compile(program, engine="interp", real="f32", **case.params)(**case.inputs)
        for organisation in (Organisation.HASHED, Organisation.DIRECT):
            name = "hashed" if organisation is Organisation.HASHED else "direct, hashed beside"
            cycles: list[int] = []
            for cores in CORES:
                print(f"{case.title}: {name}, cores: {cores}", file=sys.stderr, flush=True)
                f = upl.compile(program, engine="rtl", machine=machine(organisation, cores), **case.params)
                got = f(**case.inputs)
                for output, a in want.items():
                    np.testing.assert_allclose(got[output], a, rtol=1e-4, atol=1e-5)
                cycles.append(f.stats["cycles"])
                if cores in ATTRIBUTED:
                    why += [[case.title, name, str(cores), *line] for line in causes(f.stats)]
            rows.append([case.title, name, *(f"{c:,}" for c in cycles), f"{cycles[0] / case.products:.1f}"])
    print("\n".join([*markdown(rows), "", *markdown(why)]))


if __name__ == "__main__":
    main()
