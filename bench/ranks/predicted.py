"""How many bytes a distributed program sends at given sizes: by polynomials that count sets, not by the engine's boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upl_mlir import Program
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.engines.mpi.boxes import Blocks
from upl_mlir.engines.mpi.plan import blocks_of
from upl_mlir.host.arrays import bind_parameters
from upl_mlir.passes.distribute.counts import elements
from upl_mlir.passes.distribute.schedule import distribute
from upl_mlir.passes.schedule import prepared


def bytes_received(
    p: Program, inputs: Mapping[str, Any], params: Mapping[str, int], ranks: int, gather: str,
    sizes: Mapping[str, int] | None = None,
) -> int:
    """The bytes that all ranks receive together."""
    program = prepared(p.module.clone(), "f64", gather)
    d = distribute(program, gather=gather, proved=False, sizes=sizes)
    context = poly_context(program)
    given = {**context.constants, **bind_parameters(program, inputs, params)}
    blocks = Blocks(blocks_of(d.program.cuts), given, ranks, context.read)
    total = 0
    for placed in d.exchanges:
        if placed.exchange.array in d.program.partial and ranks == 1:
            continue  # there is nothing to combine
        n = elements(d.program, placed)
        assert n is not None, f"no formula for the exchange of {placed.exchange.array}"
        size = d.program.system.equations[placed.exchange.array].kind.bytes
        total += size * sum(n.evaluate(own, context.read) for own in blocks.of)
    return total
