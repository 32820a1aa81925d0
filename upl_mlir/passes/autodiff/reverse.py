"""Turning one arrow round: its token relation read from target to source (AUTODIFF rules 2, 3 and 8).

The inverse of an arrow is sent from the target's adjoint node, whose instance is the arrow's target y, to the source's
adjoint node.  For each y it is one point, or one token with `*`, or a `for` nest over the fibre.

The question is about sets: the new arrow is text that people read and `check` proves, so its conditions must be exact, at
open sizes too, and said as a person would.  Nothing is solved here: `poly` does it (`express`, `nest`, `describe`).  Native
code asks for an expression only, and may guard what it is not sure of: `passes/loops/pull.py` finds that by elimination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.dialects.upl import Index, Iterator
from upl_mlir.passes.analysis.relations import Arrow
from upl_mlir.passes.build import unused
from upl_mlir.poly.describe import describe, disjoint_pieces, tidy
from upl_mlir.poly.expr import TRUE, Div, Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.nest import nest
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class Inverse:
    """One arrow of the inverse, over the fields of the target's adjoint node.

    `condition` guards it; `index` has one expression for each field of the source (None: `*`, covering `multiplicity`
    instances); `iterators` and `point_condition` enumerate the fibre.  `names` maps dimensions of the relation (source
    fields and iterators) to what they are in the new arrow's context; empty with a `*`, which goes to an ordinary input.
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
    fresh: dict[str, str] = {}
    ctx = relation.ctx
    known = {*ctx.params, *ctx.constants, *ctx.arrays, *ctx.unknown}
    for d in (*arrow.src, *arrow.loops):
        fresh[d] = unused(d, {*known, *fields, *fresh.values(), *({*arrow.src, *arrow.loops} - {d})})
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
    same = _same_iterators(arrow, r, fields, context, fresh)
    for piece in disjoint_pieces(r):
        nest = _loop_nest(arrow, piece, src, loops, fields, context, fresh)
        if nest is None:
            return None if same is None else [same]
        out.append(nest)
    return out if same is None or sum(map(_length, out)) <= 2 * _length(same) else [same]


def _length(inverse: Inverse) -> int:
    """How much there is to read."""
    bounds = "".join(f"{it.lo}{it.hi}" for it in inverse.iterators)
    return len("".join(map(str, inverse.index)) + bounds + str(inverse.condition) + str(inverse.point_condition))


def _same_iterators(
    arrow: Arrow, r: PSet, fields: tuple[str, ...], context: PSet, fresh: dict[str, str]
) -> Inverse | None:
    """Rule 8 (c), as the author went: an offset that a stencil adds on the way there is subtracted on the way back."""
    loops = tuple(fresh[d] for d in arrow.loops)
    new = {d: IndexExpr.of(fresh[d]) for d in arrow.loops}
    iterators = tuple(
        Iterator(fresh[it.name], it.lo.substitute(new), it.hi.substitute(new)) for it in arrow.send.loops
    )
    if not loops or any((it.lo.names | it.hi.names) & {*arrow.src} for it in arrow.send.loops):
        return None
    names = dict(new)
    for d in arrow.src:
        e = r.express(IndexExpr.of(fresh[d]), (*fields, *loops))
        if e is None or any(isinstance(a, Div) for a in e.atoms()):
            return None
        names[d] = e
    base = r.project(fields).as_meant()  # the iterators' own condition says where there is anything
    inside = [Formula.compare(it.lo, "<=", it.name) & Formula.compare(it.name, "<=", it.hi) for it in iterators]
    walked = base.extend((*fields, *loops)).constrain(Formula.all(inside))
    own = [f.substitute(new) for f in arrow.send.when_point.conjuncts if f.names <= {*arrow.loops, *base.ctx.params}]
    point = describe(r.project((*fields, *loops)), walked, own)
    index = tuple(names[d] for d in arrow.src)
    return Inverse(describe(base, context), index, IndexExpr.of(1), iterators, point, names)


def _known(r: PSet, dim: str, fields: Sequence[str]) -> IndexExpr:
    e = r.express(IndexExpr.of(dim), fields)
    assert e is not None
    return tidy(e)


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
    if count is None or r.project(fields).lost:
        return None
    when = describe(r.project(fields), context)
    return Inverse(when, tuple(index), count, (), TRUE, {})


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
