"""Random programs on several machines of one make: the same bits on all of them, and the interpreter's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

import upl_mlir as upl
from agreement.campaign import case_of
from agreement.engines import NOT_ON_THE_MACHINE
from agreement.generator import generate
from agreement.properties import host_arrays
from upl_mlir.engines.rtl.engine import RtlEngine, RtlResult
from upl_mlir.hw.machine import Machine


def same(results: Sequence[RtlResult]) -> bool:
    """Whether all gave the same bits, with the same firings."""
    first = results[0]
    return all(
        r.stats.firings == first.stats.firings
        and all(np.array_equal(r.outputs[n], a, equal_nan=a.dtype.kind == "f") for n, a in first.outputs.items())
        for r in results
    )


def agreeing(seeds: Iterable[int], machines: Sequence[Machine]) -> Iterator[list[RtlResult]]:
    """What each program that is in the machines' class, and exact in binary32, gives on each of them, compared."""
    for seed in seeds:
        case = case_of(generate(seed, 3), seed)
        if not case.exact_single:
            continue
        program = upl.load(case.text)
        arrays = host_arrays(program, case.params, seed)
        wanted = upl.compile(program, engine="reference", real="f32", gather="ordered")(**arrays, **case.params)
        try:
            bound = program.expanded().infer_domains()
            engine = RtlEngine(bound.module, dict(case.params), machine=machines[0])
            tokens = tuple(engine.inject({n: np.asarray(a, engine.ports[n].zeros().dtype) for n, a in arrays.items()}))
            results = [engine.on(machine).run_tokens(tokens) for machine in machines]
        except upl.UplError as e:
            assert e.diagnostics[0].code in NOT_ON_THE_MACHINE, str(e)
            continue
        assert same(results), seed
        # functions have last bits of their own
        assert case.smooth or all(np.array_equal(wanted[n], a) for n, a in results[0].outputs.items()), seed
        yield results
