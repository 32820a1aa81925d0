# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Cycles in a relation between points of several spaces: first a ranking, then the transitive closure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import islpy as isl

from upl_mlir.poly.expr import Lookup, Var
from upl_mlir.poly.sets import DIM, PARAM, PolyContext, PSet, as_map

_MAX_STEPS = 12  # round a cycle that is looked for step by step
_MAX_PIECES = 100  # of a power of the relation on that way

Cycle = tuple[int, tuple[int, ...], dict[str, int]]
"""(space, point, parameter values)"""


@dataclass(frozen=True)
class Dependence:
    """Points of space `source` to points of space `target`; the set's first `n_source` dimensions are the source's."""

    source: int
    target: int
    relation: PSet
    n_source: int


def find_cycle(ctx: PolyContext, width: int, steps: Sequence[Dependence]) -> Cycle | str | None:
    """None if no point depends on itself; a point that does; or the reason why neither could be shown."""
    if _ranked(width, list(steps)):
        return None
    total = isl.Map.empty(isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, width + 1, width + 1))
    for s in steps:
        total = total.union(_padded(s, width))
    total = total.coalesce()
    closure, exact = total.transitive_closure()
    loops = closure.intersect(isl.Map.identity(closure.get_space())).domain()
    if loops.is_empty():
        return None
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


def _plain(s: Dependence) -> isl.Set:
    """The relation with facts, and without array entries: enough to prove an order, too much to refute one."""
    r = s.relation.known()
    return _without_entries(r)


def _exact(s: Dependence) -> isl.Set:
    """The relation with its array entries as numbers."""
    parts = [_without_entries(part) for part in s.relation.slices()]
    return reduce(lambda a, b: a.union(b), parts, isl.Set.empty(s.relation.isl.get_space()))


def _without_entries(r: PSet) -> isl.Set:
    out = r.isl
    for pid, atom in r.params.items():
        at = out.find_dim_by_name(PARAM, pid)
        if isinstance(atom, Lookup) and at >= 0:
            out = out.project_out(PARAM, at, 1)
    return out


def _padded(s: Dependence, width: int) -> isl.Map:
    """The relation on (space number, point padded with zeros)."""
    m = as_map(_exact(s), s.n_source)
    ends = ((isl.dim_type.in_, s.n_source, s.source), (isl.dim_type.out, len(s.relation.dims) - s.n_source, s.target))
    for kind, have, space in ends:
        m = m.insert_dims(kind, 0, 1).fix_val(kind, 0, isl.Val.int_from_si(isl.DEFAULT_CONTEXT, space))
        m = m.insert_dims(kind, have + 1, width - have)
        for k in range(have + 1, width + 1):
            m = m.fix_val(kind, k, isl.Val.zero(isl.DEFAULT_CONTEXT))
    return m


def _ranked(width: int, steps: list[Dependence]) -> bool:
    """Whether some coordinate never moves one way along any step, and so on for the steps that leave it unchanged.

    Sufficient for acyclicity, and quick: the coordinates of all spaces are compared by position.
    """
    if not steps:
        return True
    groups = _cyclic_groups(steps)
    if not groups:
        return True
    return all(_ranked_group(width, g) for g in groups)


def _cyclic_groups(steps: list[Dependence]) -> list[list[Dependence]]:
    """Steps that lie on cycles of spaces, by strongly connected component."""
    reach: dict[int, set[int]] = {}
    for s in steps:
        reach.setdefault(s.source, set()).add(s.target)
        reach.setdefault(s.target, set())
    changed = True
    while changed:
        changed = False
        for v, to in reach.items():
            new = set().union(*(reach[w] for w in to)) - to if to else set()
            if new:
                reach[v] = to | new
                changed = True
    out: dict[frozenset[int], list[Dependence]] = {}
    for s in steps:
        if s.source in reach[s.target]:
            group = frozenset({s.source} | {w for w in reach[s.source] if s.source in reach[w]})
            out.setdefault(group, []).append(s)
    return list(out.values())


def _ranked_group(width: int, steps: list[Dependence]) -> bool:
    for k in range(width):
        for sign in (1, -1):
            rest: list[Dependence] | None = []
            for s in steps:
                move = _move(s, k, sign)
                if move is None:
                    rest = None
                    break
                if move == 0:
                    rest.append(s)
            if rest is not None and len(rest) < len(steps) and _ranked(width, rest):
                return True
    return False


def _move(s: Dependence, k: int, sign: int) -> int | None:
    """1 if coordinate `k` always grows (times `sign`) along the step, 0 if it may stay, None if it may fall or is absent."""
    n_target = len(s.relation.dims) - s.n_source
    if k >= s.n_source or k >= n_target:
        return None
    plain = _plain(s)
    a, b = f"x{k}", f"x{s.n_source + k}"
    dims = ",".join(f"x{i}" for i in range(len(s.relation.dims)))
    later, same = (f"{a} < {b}", f"{a} <= {b}") if sign > 0 else (f"{a} > {b}", f"{a} >= {b}")
    if plain.is_subset(isl.Set.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{dims}] : {later} }}")):
        return 1
    return 0 if plain.is_subset(isl.Set.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{dims}] : {same} }}")) else None
