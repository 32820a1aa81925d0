# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Cycles in a relation between points of several spaces: first a ranking, then a schedule, then the transitive closure."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from upl_mlir.poly.convert import Opaque
from upl_mlir.poly.expr import Var
from upl_mlir.poly.ranking import Dependence, acyclic
from upl_mlir.poly.sets import PolyContext
from upl_mlir.poly.tools import DIM, PARAM, as_map

_MAX_STEPS = 12  # round a cycle that is looked for step by step
_MAX_PIECES = 100  # of a power of the relation on that way

Cycle = tuple[int, tuple[int, ...], dict[str, int]]
"""(space, point, parameter values)"""


def find_cycle(ctx: PolyContext, width: int, steps: Sequence[Dependence]) -> Cycle | str | None:
    """None if no point depends on itself; a point that does; or the reason why neither could be shown."""
    if acyclic(width, steps):
        return None
    total = isl.Map.empty(isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, width + 1, width + 1))
    for s in steps:
        total = total.union(_padded(s, width))
    total = total.coalesce()
    closure, exact = total.transitive_closure()
    loops = closure.intersect(isl.Map.identity(closure.get_space())).domain()
    if loops.is_empty():
        return None
    open_ = [a for s in steps for a in s.relation.params.values() if isinstance(a, Opaque) and s.relation.involves(a)]
    if open_:
        return f"the dependences depend on `{open_[0]}`, which is not affine"
    if any(s.relation.lost for s in steps):
        return "the dependences are known only roughly"
    if not exact:
        short = _short_loops(total)
        if short is None:
            return "the transitive closure of the dependences is not exact"
        loops = short
        if loops.is_empty():
            return None
    point = loops.sample_point()
    n = point.get_coordinate_val(DIM, 0).to_python()
    at = tuple(point.get_coordinate_val(DIM, k + 1).to_python() for k in range(width))
    params: dict[str, int] = {}
    known = {pid: a for s in steps for pid, a in s.relation.params.items()}
    for i in range(loops.dim(PARAM)):
        atom = known.get(loops.get_dim_name(PARAM, i) or "")
        if isinstance(atom, Var) and atom.name in ctx.params:
            params[atom.name] = point.get_coordinate_val(PARAM, i).to_python()
    return n, at, params


def _short_loops(total: isl.Map) -> isl.Set | None:
    """Points that come back to themselves in a few steps; empty if no path is longer than that, None if undecided."""
    same = isl.Map.identity(total.get_space())
    power = total
    for _ in range(_MAX_STEPS):
        loops = power.intersect(same).domain()
        if power.is_empty() or not loops.is_empty():
            return loops
        power = power.apply_range(total).coalesce()
        if power.n_basic_map() > _MAX_PIECES:
            break
    return None


def _padded(s: Dependence, width: int) -> isl.Map:
    """The relation on (space number, point padded with zeros)."""
    m = as_map(s.exact, s.n_source)
    ends = ((isl.dim_type.in_, s.n_source, s.source), (isl.dim_type.out, len(s.relation.dims) - s.n_source, s.target))
    for kind, have, space in ends:
        m = m.insert_dims(kind, 0, 1).fix_val(kind, 0, isl.Val.int_from_si(isl.DEFAULT_CONTEXT, space))
        m = m.insert_dims(kind, have + 1, width - have)
        for k in range(have + 1, width + 1):
            m = m.fix_val(kind, k, isl.Val.zero(isl.DEFAULT_CONTEXT))
    return m
