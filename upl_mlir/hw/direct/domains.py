"""Which indices the instances of a node have: what the ranks of `direct` are made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import error
from upl_mlir.dialects.ttm import NodeOp, ProgramOp
from upl_mlir.dialects.ttm.query import domain_of as formula_of
from upl_mlir.dialects.ttm.query import nodes, poly_context
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.host.arrays import boxed
from upl_mlir.poly.counts.dense import bounding_box, mask
from upl_mlir.poly.sets import PolyContext

Bools = NDArray[np.bool_]
Bounds = tuple[tuple[int, int], ...]
"""Least and greatest value of each field."""

MAX_BOX = 1 << 24
"""Points of a bounding box up to which a domain is looked at point by point; a larger one counts as its box."""


@dataclass(frozen=True, eq=False)
class Domain:
    """The instances of one node: least and greatest value of each field, and which points between them there are (None:
    all, or too many to tell). An empty domain has no bounds."""

    bounds: Bounds | None
    inside: Bools | None = None

    def sections(self, field: int) -> list[Bounds | None]:
        """The bounds of all fields where one field has its least value, the next one, and so on; None where there is
        no point."""
        if self.bounds is None:
            return []
        low, high = self.bounds[field]
        if self.inside is None:
            return [(*self.bounds[:field], (v, v), *self.bounds[field + 1 :]) for v in range(low, high + 1)]
        return [self._bounds_at(field, v - low) for v in range(low, high + 1)]

    def _bounds_at(self, field: int, at: int) -> Bounds | None:
        assert self.inside is not None
        assert self.bounds is not None
        there = np.take(self.inside, [at], axis=field)
        out: list[tuple[int, int]] = []
        for axis, (low, _) in enumerate(self.bounds):
            other = tuple(a for a in range(there.ndim) if a != axis)
            where = np.flatnonzero(there.any(axis=other))
            if not len(where):
                return None
            begin = low + (at if axis == field else 0)
            out.append((begin + int(where[0]), begin + int(where[-1])))
        return tuple(out)


def domains_of(program: ProgramOp) -> dict[str, Domain]:
    """The domains of the nodes of a machine program, by name.

    Raises UplError: UPL1507 a domain without a bounding box, UPL1712 one with values that their fields cannot hold.
    """
    ctx = poly_context(program)
    return {op.symbol: _domain(ctx, op) for op in nodes(program) if op.domain is not None}


def _domain(ctx: PolyContext, op: NodeOp) -> Domain:
    fields, formula = tuple(f.name for f in op.fields), formula_of(op)
    with boxed(op.symbol, span_of(op)):
        box = bounding_box(ctx, fields, formula)
    if box.size == 0:
        return Domain(None)
    bounds = tuple((lo, lo + n - 1) for lo, n in zip(box.lower, box.shape, strict=True))
    for f, (low, high) in zip(op.fields, bounds, strict=True):
        if low < f.bias or high > f.last:
            message = f"the domain of `{op.symbol}` has {f.name} from {low} to {high}, its field holds {f.bias}..{f.last}"
            raise error("UPL1712", message, span_of(op))
    return Domain(bounds, mask(ctx, fields, formula, box) if box.size <= MAX_BOX else None)
