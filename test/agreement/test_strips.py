"""Strip mining: random programs stay right, and give the same values, whatever field of whatever node is divided."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl
from agreement.campaign import case_of
from agreement.generator import generate
from agreement.properties import host_arrays
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.passes.strip_mine import strip_mine

FEW = range(9_600_000, 9_600_004)
MORE = range(9_600_004, 9_600_150)


def divided(p: upl.Program, node: str, field: str, by: int) -> upl.Program:
    """A copy in strips, its domains found anew.  Raises UplError."""
    out = p.expanded().infer_domains().clone()
    strip_mine(out.op, node, field, by)
    return upl.load(str(out))


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MORE, marks=pytest.mark.slow)], ids=["few", "more"])
def test_random_programs(seeds: range) -> None:
    tried = refused = 0
    for seed in seeds:
        case = case_of(generate(seed, 3), seed)
        p = upl.load(case.text)
        arrays = host_arrays(p, case.params, seed)
        wanted = upl.compile(p, engine="reference", gather="ordered")(**arrays, **case.params)
        whole = p.check().ok
        for op in nodes(p.expanded().infer_domains().op):
            assert isinstance(op, NodeOp)
            for field in op.fields[:2]:
                try:
                    q = divided(p, op.symbol, field, 2 + seed % 2)
                except upl.UplError as e:
                    assert e.diagnostics[0].code == "UPL1421", str(e)
                    refused += 1
                    continue
                tried += 1
                assert q.check().ok == whole, (seed, op.symbol, field)
                found = upl.compile(q, engine="reference", gather="ordered")(**arrays, **case.params)
                for name, array in wanted.items():
                    np.testing.assert_array_equal(found[name], array, err_msg=f"{seed} {op.symbol} {field} {name}")
    assert tried > 2 * len(seeds) and refused < tried / 10, (tried, refused)
