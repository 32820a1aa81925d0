"""Which indices the instances of a node have: what the ranks of `direct` are made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from upl_mlir.dialects.upl import NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.poly.dense import bounding_box, mask

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
    """The domains of the nodes of a program whose domains and sizes are known, by name."""
    ctx = poly_context(program)
    out: dict[str, Domain] = {}
    for op in program.body.block.ops:
        if not isinstance(op, NodeOp) or op.domain is None:
            continue
        box = bounding_box(ctx, op.fields, op.domain.data)
        if box.size == 0:
            out[op.symbol] = Domain(None)
            continue
        bounds = tuple((lo, lo + n - 1) for lo, n in zip(box.lower, box.shape, strict=True))
        inside = mask(ctx, op.fields, op.domain.data, box) if box.size <= MAX_BOX else None
        out[op.symbol] = Domain(bounds, inside)
    return out
