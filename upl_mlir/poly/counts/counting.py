# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""How many points a set has, as a polynomial in the parameters.

Boxes by products of interval lengths; sets without parameters by isl's own enumeration; other convex sets by summing over
one dimension after the other (`summing.py`); what is left by barvinok where islpy has it.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import islpy as isl

from upl_mlir.poly.convert import Opaque, value_of
from upl_mlir.poly.counts.summing import point_counts
from upl_mlir.poly.describe import describe, disjoint_pieces
from upl_mlir.poly.equality import same_value
from upl_mlir.poly.expr import IndexExpr, Lookup, Select, Var, divide
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.operators import DivKind
from upl_mlir.poly.sets import PSet


def count(s: PSet) -> IndexExpr | None:
    """The number of points as a polynomial in the parameters; None where none is found.

    Exact for every admissible value of the parameters.
    """
    s = s.in_terms_of(())  # N[k-1] where k is K: one entry
    if s.lost:
        return None
    entries = [a for a in s.params.values() if isinstance(a, Lookup) and a.array in s.ctx.unknown]
    if any(s.involves(a) and a.index.names & set(s.dims) for a in entries):
        return None  # a sum over entries of a symbolic array is no polynomial
    if (n := _count_by_entries(s)) is not None:
        return n
    total = IndexExpr()
    for part in s.slices():
        if any(isinstance(a, Opaque) and part.involves(a) for a in part.params.values()):
            return None  # how often something that is not affine holds is no polynomial
        for piece in disjoint_pieces(part):
            n = _count_piece(piece)
            if n is None:
                return None
            total = total + n
    return total


def _count_by_entries(s: PSet) -> IndexExpr | None:
    """The count of a set with array entries ``N[k]``: the fibres over `k` as one expression, added up over all `k`.

    None where the fibres are no boxes, or the points `k` depend on parameters.
    """
    entries = [a for a in s.params.values() if isinstance(a, Lookup) and s.ctx.constant(a) is None and s.involves(a)]
    outer = [d for d in s.dims if any(d in a.index.names for a in entries)]
    if not outer or any(a.index.names - set(s.dims) for a in entries):
        return None
    n = fibre_count(s, [d for d in s.dims if d not in outer])
    if n is None:
        return None
    base = s.project(outer)
    base = base.gist()
    if any(isinstance(a, Var) and a.name in s.ctx.params and base.involves(a) for a in base.params.values()):
        return None
    total = IndexExpr()
    if any(a.index.names & set(base.ctx.params) for a in base.opaque_parts()):
        return None  # which points there are depends on the sizes
    for at in base.with_isl(base.isl.drop_unused_params()).points():
        here = n.substitute({d: IndexExpr.of(v) for d, v in zip(outer, at, strict=True)})
        total = total + here.rewrite(lambda a: None if (c := s.ctx.constant(a)) is None else IndexExpr.of(c))
    return total


def _count_piece(p: PSet) -> IndexExpr | None:
    ctx = p.ctx
    symbolic = [a for a in p.params.values() if isinstance(a, Var) and a.name in ctx.params]
    if not p.dims:
        return where_any(p, IndexExpr.of(1))
    n = fibre_count(p, p.dims)
    if n is not None:
        n = n.rewrite(lambda a: None if (c := ctx.constant(a)) is None else IndexExpr.of(c))
        return where_any(p.project(()), n)
    used = [a for a in symbolic if p.involves(a)]
    if not used:
        flat = p.numeric().isl.project_out_all_params()
        return IndexExpr.of(flat.count_val().to_python())
    terms = point_counts(p, p.dims)
    if terms is None:
        return _card(p) if HAS_BARVINOK else None
    total = IndexExpr()
    for sizes, n in terms:
        total = total + where_any(sizes, n.rewrite(lambda a: None if (c := ctx.constant(a)) is None else IndexExpr.of(c)))
    return total


def where_any(sizes: PSet, n: IndexExpr) -> IndexExpr:
    """A polynomial that counts the points for the sizes for which there are any: as it is if it is 0 for all others."""
    ever = sizes.ctx.set((), sizes.ctx.param_condition)
    if _is_zero(ever - sizes, n):
        return n
    return IndexExpr.of(Select(describe(sizes, ever), n, IndexExpr()))


def _is_zero(s: PSet, n: IndexExpr) -> bool:
    """Whether a polynomial in parameters is 0 on a set of them."""
    if s.is_empty():
        return True
    return same_value(s, n.substitute(s.fixed_symbols()), IndexExpr())


HAS_BARVINOK = hasattr(isl.Set, "card")
"""Whether islpy is the build with barvinok (the package `islpy-barvinok`, GPL-2), which counts more than boxes."""


def _card(p: PSet) -> IndexExpr | None:
    """barvinok's count, where it is one polynomial for all admissible parameters."""
    plain = p.numeric()
    pieces: list[isl.QPolynomial] = []
    counted: Any = plain.isl  # the stubs are of the build without barvinok

    def keep(_domain: isl.Set, q: isl.QPolynomial) -> None:
        pieces.append(q)

    counted.card().foreach_piece(keep)
    if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div):
        return None
    terms: list[isl.Term] = []
    pieces[0].foreach_term(terms.append)
    scale = 1
    for t in terms:
        scale = lcm(scale, t.get_coefficient_val().get_den_val().to_python())
    num = IndexExpr()
    for t in terms:
        part = IndexExpr.of(t.get_coefficient_val().mul(isl.Val.int_from_si(isl.DEFAULT_CONTEXT, scale)).to_python())
        for i in range(t.dim(isl.dim_type.param)):
            for _ in range(t.get_exp(isl.dim_type.param, i)):
                part = part * value_of(plain.params[plain.isl.get_dim_name(isl.dim_type.param, i) or ""])
        num = num + part
    n = divide(DivKind.FLOORDIV, num, IndexExpr.of(scale)) if scale > 1 else num
    ever = p.ctx.set((), p.ctx.param_condition)
    return n if ever <= p.project(()) else None
