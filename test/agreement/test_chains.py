"""Sums as chains: random programs stay right, and in any order of arrival results have the bits of the ordered sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from agreement.campaign import case_of
from agreement.generator import generate
from agreement.properties import host_arrays
from upl_mlir.dialects.upl import UplType
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.passes.bind_parameters import bind_parameters
from upl_mlir.passes.chain_gathers import chain_gathers

FEW = range(9_700_000, 9_700_006)
MORE = range(9_700_006, 9_700_066)


def chained(p: upl.Program, params: dict[str, int]) -> upl.Program:
    """A copy of known sizes with chains, its domains found anew.  Raises UplError."""
    out = p.expanded().clone()
    bind_parameters(out.op, params)
    out = out.infer_domains().clone()
    chain_gathers(out.op)
    return upl.load(str(out))


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MORE, marks=pytest.mark.slow)], ids=["few", "more"])
def test_random_programs(seeds: range) -> None:
    made = refused = unproved = 0
    for seed in seeds:
        case = case_of(generate(seed, 3), seed)
        p = upl.load(case.text)
        sums = [
            q for op in nodes(p.expanded().infer_domains().op) for q in op.ports
            if q.gather in (Gather.SUM, Gather.PRODUCT) and q.type not in (UplType.INT, UplType.BOOL)
        ]  # fmt: skip
        if not sums:
            continue
        arrays = {n: np.asarray(a) * 1.1 if np.asarray(a).dtype.kind == "f" else a
                  for n, a in host_arrays(p, case.params, seed).items()}  # fmt: skip
        wanted = upl.compile(p, gather="ordered")(**arrays, **case.params)
        try:
            q = chained(p, case.params)
        except upl.UplError as e:
            assert e.diagnostics[0].code == "UPL1422", str(e)
            refused += 1
            continue
        made += 1
        try:
            assert q.check().ok == p.check().ok, seed
        except upl.UplError as e:  # one in two hundred
            assert e.diagnostics[0].code == "UPL1205", str(e)
            unproved += 1
        for arrival in (1, 2):
            found = upl.compile(q, gather="relaxed", order="random", seed=arrival)(**arrays)
            for name, array in wanted.items():
                np.testing.assert_array_equal(found[name], array, err_msg=f"{seed} {name}")
    assert made >= 4 * refused and unproved <= made / 100, (made, refused, unproved)


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "sizes"), [("cholesky", {"n": 5}), ("matmul", {"m": 3, "n": 4, "r": 5}), ("fir", {"K": 3, "n": 4})]
)
def test_on_the_machine(name: str, sizes: dict[str, int]) -> None:
    """The interpreter's bits; sums of nothing, of one and of several summands."""
    p = upl.load((EXAMPLES / f"{name}.upl").read_text())
    rng = np.random.default_rng(0)

    def values(port: Any) -> Any:
        a = rng.normal(size=port.shape(**sizes)).astype(np.float32)
        return a @ a.T + np.eye(len(a), dtype=np.float32) if name == "cholesky" else a

    given = {n: values(port) for n, port in p.inputs.items()}
    soft = upl.compile(p, real="f32", gather="ordered")(**given, **sizes)
    hard = upl.compile(p, "rtl", gather="ordered")(**given, **sizes)
    for n, wanted in soft.items():
        assert np.float32(hard[n]).tobytes() == np.float32(wanted).tobytes(), n

