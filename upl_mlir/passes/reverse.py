"""Turning one arrow round: its token relation read from target to source (AUTODIFF rules 2, 3 and 8).

The inverse of an arrow is sent from the target's adjoint node, whose instance is the arrow's target y, to the source's
adjoint node.  For each y it is one point, or one token with `*`, or a `for` nest over the fibre.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.dialects.upl import Index, Iterator
from upl_mlir.passes.relations import Arrow
from upl_mlir.poly.describe import describe, disjoint_pieces, fibre_count
from upl_mlir.poly.expr import TRUE, CmpOp, Formula, IndexExpr
from upl_mlir.poly.nest import nest
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class Inverse:
    """One arrow of the inverse, over the fields of the target's adjoint node.

    `condition` guards it; `index` has one expression for each field of the source (None: `*`, covering `multiplicity`
    instances); `iterators` and `point_condition` enumerate the fibre.  `names` maps dimensions of the relation (source
    fields and iterators) to what they are in the new arrow's context.
    """

    condition: Formula
    index: Index
    multiplicity: IndexExpr
    iterators: tuple[Iterator, ...]
    point_condition: Formula
    names: dict[str, IndexExpr]


def invert(arrow: Arrow, relation: PSet, context: PSet, *, star_inside: PSet | None) -> list[Inverse] | None:
    """The inverse of `relation` (over `arrow.dims`); None if it is not quasi-affine.

    `context` is the domain of the adjoint node that sends, over the target's fields.  `star_inside` is the domain of the
    one that receives if a `*` may be sent there (its input is ordinary and another input brings the full index).
    """
    fields = arrow.target.fields
    fresh = {d: _fresh(d, fields) for d in (*arrow.src, *arrow.loops)}
    r = relation.rename({**fresh, **dict(zip(arrow.dst, fields, strict=True))})
    src = tuple(fresh[d] for d in arrow.src)
    loops = tuple(fresh[d] for d in arrow.loops)
    if all(r.express(IndexExpr.of(d), fields) is not None for d in (*src, *loops)):
        names = {d: _known(r, fresh[d], fields) for d in (*arrow.src, *arrow.loops)}
        when = describe(r.project(fields), context)
        return [Inverse(when, tuple(names[d] for d in arrow.src), IndexExpr.of(1), (), TRUE, names)]
    if star_inside is not None and not loops:
        star = _with_star(arrow, r, src, fields, context, star_inside)
        if star is not None:
            return [star]
    out: list[Inverse] = []
    for piece in disjoint_pieces(r):
        nest = _loop_nest(arrow, piece, src, loops, fields, context, fresh)
        if nest is None:
            return None
        out.append(nest)
    return out


def _known(r: PSet, dim: str, fields: Sequence[str]) -> IndexExpr:
    e = r.express(IndexExpr.of(dim), fields)
    assert e is not None
    return e


def _fresh(name: str, taken: Sequence[str]) -> str:
    """A name for an iterator that no field of the sender has."""
    out, n = name, 2
    while out in taken:
        out, n = f"{name}_{n}", n + 1
    return out


def _with_star(
    arrow: Arrow, r: PSet, src: tuple[str, ...], fields: tuple[str, ...], context: PSet, receiver: PSet
) -> Inverse | None:
    """Rule 8 (b): one token with `*`, if the pattern covers exactly the fibre."""
    index = [r.express(IndexExpr.of(d), fields) for d in src]
    known = [Formula.compare(d, CmpOp.EQ, e) for d, e in zip(src, index, strict=True) if e is not None]
    covered = receiver.rename(dict(zip(arrow.src, src, strict=True))).extend(r.dims).reorder(r.dims)
    covered = covered.constrain(Formula.all(known)) & r.project(fields).extend(r.dims).reorder(r.dims)
    if not covered <= r:
        return None
    count = fibre_count(r, src)
    if count is None:
        return None
    when = describe(r.project(fields), context)
    names = {d: e if e is not None else IndexExpr.of(s) for d, s, e in zip(arrow.src, src, index, strict=True)}
    return Inverse(when, tuple(index), count, (), TRUE, names)


def _loop_nest(
    arrow: Arrow,
    r: PSet,
    src: tuple[str, ...],
    loops: tuple[str, ...],
    fields: tuple[str, ...],
    context: PSet,
    fresh: dict[str, str],
) -> Inverse | None:
    """Rule 8 (c): a `for` nest over the fibre of one convex piece."""
    found = nest(r, (*src, *loops), fields, context)
    if found is None:
        return None
    names = {d: found.names[fresh[d]] for d in fresh}
    iterators = tuple(Iterator(dim, bounds.lo, bounds.hi) for dim, bounds in found.loops)
    index = tuple(names[d] for d in arrow.src)
    return Inverse(found.condition, index, IndexExpr.of(1), iterators, found.point, names)
