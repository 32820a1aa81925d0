"""Random programs, right and wrong ones: interpreter and reference end in the same way, in every order of arrival."""

from __future__ import annotations

import pytest
from agreement import random_programs

import upl_mlir as upl
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.engines.reference import Evaluator


def ending(engine, p, arrays, params, **options):
    """What a run ends with: outputs as bytes, counts, waiting tokens; or the codes of its errors and where they are."""
    try:
        result = engine(p.op, params, **options).run(arrays)
    except upl.UplError as e:
        return sorted((d.code, str(d.span)) for d in e.diagnostics)
    outputs = {n: (v.dtype, v.tobytes()) for n, v in result.outputs.items()}
    return outputs, random_programs.figures(result.stats), sorted(map(str, result.waiting))


@pytest.mark.parametrize("seed", range(40))
def test_right_programs(seed):
    """The same bits and the same counts, whether sums are ordered or not, `real` is f64 or f32."""
    p, arrays, params = random_programs.right(seed)
    options = {"gather": ("relaxed", "ordered")[seed % 2], "real": ("f64", "f32")[seed // 2 % 2]}
    for order, start in (("fifo", 0), ("random", seed)):
        theirs, ours = (ending(e, p, arrays, params, order=order, seed=start, **options) for e in (Engine, Evaluator))
        assert isinstance(ours, tuple)
        assert ours == theirs


def test_mistakes():
    """Mistakes that mutate a program: the same errors at the same places."""
    codes = set()
    for _, (p, arrays, params) in random_programs.mistaken(range(100, 160)):
        theirs, ours = (ending(e, p, arrays, params, max_firings=3_000) for e in (Engine, Evaluator))
        assert ours == theirs, str(p)
        codes |= {code for code, _ in ours} if isinstance(ours, list) else set()
    assert {"UPL1601", "UPL1603"} <= codes
