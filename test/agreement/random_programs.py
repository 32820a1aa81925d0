"""Random programs for engines that tell more than results: right ones, and ones with a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import upl_mlir as upl
from agreement import naive
from agreement.generator import generate
from agreement.mutants import mutants
from agreement.properties import host_arrays
from upl_mlir.host.arrays import bind_parameters, host_ports

Case = tuple[upl.Program, dict[str, Any], Mapping[str, Any]]
"""A program, arrays for its inputs, its parameters."""


def right(seed: int) -> Case:
    """A program without a mistake."""
    program = generate(seed)
    sizes = naive.small_params(program)
    params = sizes[seed % len(sizes)]
    p = upl.load(program.text()).expanded().infer_domains()
    return p, host_arrays(p, params, seed, noise=True), params


def mistaken(seeds: Iterable[int]) -> Iterator[tuple[int, Case]]:
    """Programs with a mistake that are not refused before they run."""
    for seed in seeds:
        for m in mutants(generate(seed), seed, 1):
            try:
                p = upl.load(m.program.text()).expanded().infer_domains()
                params = bind_parameters(p.op, {}, naive.small_params(m.program)[-1])
                host_ports(p.op, params)
            except upl.UplError:
                continue
            yield seed, (p, host_arrays(p, params, seed), params)


def figures(stats: Any) -> dict[str, Any]:
    """What a run counted, without what differs between engines and runs."""
    return {k: v for k, v in stats.to_dict().items() if k not in ("engine", "seconds")}
