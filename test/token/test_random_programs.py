"""Random programs, right and wrong ones: token engine and interpreter end in the same way, in every order of arrival."""

from __future__ import annotations

import re

import pytest
from agreement import naive
from agreement.generator import generate
from agreement.mutants import mutants
from agreement.properties import host_arrays

import upl_mlir as upl
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.engines.token.engine import TokenEngine
from upl_mlir.host.arrays import bind_parameters, host_ports

pytestmark = pytest.mark.usefixtures("quick_compiler")


def ending(engine, p, arrays, params, **options):
    """What a run ends with: outputs as bytes, counts and waiting tokens; or the errors, tokens in any order."""
    try:
        result = engine(p.op, params, **options).run(arrays)
    except upl.UplError as e:
        return [(d.code, str(d.span), sorted(re.split(r"[:,] | and ", d.message))) for d in e.diagnostics]
    stats = result.stats.to_dict()
    del stats["engine"], stats["seconds"]
    return {n: v.tobytes() for n, v in result.outputs.items()}, stats, sorted(map(repr, result.waiting))


def both(p, arrays, params, **options):
    theirs, ours = (ending(e, p, arrays, params, **options) for e in (Engine, TokenEngine))
    assert ours == theirs, str(p)
    return ours


@pytest.mark.parametrize("seed", range(24))
def test_right_programs(seed):
    program = generate(seed)
    sizes = naive.small_params(program)
    params = sizes[seed % len(sizes)]
    p = upl.load(program.text()).expanded().infer_domains()
    arrays = host_arrays(p, params, seed, noise=True)
    gather = ("relaxed", "ordered")[seed % 2]
    for order, start in (("fifo", 0), ("random", seed), ("random", seed + 1)):
        assert isinstance(both(p, arrays, params, gather=gather, order=order, seed=start), tuple)


def test_mistakes():
    """Mistakes that mutate a program: at least some of every kind of error, at the same place, on both engines."""
    codes = set()
    for seed in range(100, 130):
        for m in mutants(generate(seed), seed, 1):
            try:
                p = upl.load(m.program.text()).expanded().infer_domains()
                params = bind_parameters(p.op, {}, naive.small_params(m.program)[-1])
                host_ports(p.op, params)
            except upl.UplError:
                continue  # refused before it runs
            arrays = host_arrays(p, params, seed)
            for order in ("fifo", "random"):
                found = both(p, arrays, params, order=order, seed=seed, max_firings=20_000)
                codes |= {code for code, *_ in found} if isinstance(found, list) else set()
    assert {"UPL1601", "UPL1603"} <= codes
