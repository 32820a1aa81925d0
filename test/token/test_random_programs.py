"""Random programs, right and wrong ones: token engine and interpreter end in the same way, in every order of arrival."""

from __future__ import annotations

import re

import pytest
from agreement import random_programs

import upl_mlir as upl
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.engines.token.engine import TokenEngine

pytestmark = pytest.mark.usefixtures("quick_compiler")


def ending(engine, p, arrays, params, **options):
    """What a run ends with: outputs as bytes, counts and waiting tokens; or the errors, tokens in any order."""
    try:
        result = engine(p.op, params, **options).run(arrays)
    except upl.UplError as e:
        return [(d.code, str(d.span), sorted(re.split(r"[:,] | and ", d.message))) for d in e.diagnostics]
    outputs = {n: v.tobytes() for n, v in result.outputs.items()}
    return outputs, random_programs.figures(result.stats), sorted(map(repr, result.waiting))


def both(p, arrays, params, **options):
    theirs, ours = (ending(e, p, arrays, params, **options) for e in (Engine, TokenEngine))
    assert ours == theirs, str(p)
    return ours


@pytest.mark.parametrize("seed", range(24))
def test_right_programs(seed):
    p, arrays, params = random_programs.right(seed)
    gather = ("relaxed", "ordered")[seed % 2]
    for order, start in (("fifo", 0), ("random", seed), ("random", seed + 1)):
        assert isinstance(both(p, arrays, params, gather=gather, order=order, seed=start), tuple)


def test_mistakes():
    """Mistakes that mutate a program: at least some of every kind of error, at the same place, on both engines."""
    codes = set()
    for seed, (p, arrays, params) in random_programs.mistaken(range(100, 130)):
        for order in ("fifo", "random"):
            found = both(p, arrays, params, order=order, seed=seed, max_firings=20_000)
            codes |= {code for code, *_ in found} if isinstance(found, list) else set()
    assert {"UPL1601", "UPL1603"} <= codes
