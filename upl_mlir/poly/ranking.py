# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Orders that every dependence obeys: the quick proof that no point depends on itself.

A rank is a number for each point of each space that never falls (or never rises) along any step; steps along which it
always changes are then on no cycle, and the others are ranked on.  Ranks that are tried: a coordinate at the same place of
all spaces; a coordinate of each space (or none) plus a constant; a coordinate of each space cut into segments,
``(x + c) floordiv S``, with segments that occur in the steps themselves.  Where no rank is found, isl's scheduler is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import chain, islice
from typing import Any, TypeVar

import islpy as isl

from upl_mlir.poly.convert import Opaque
from upl_mlir.poly.expr import Lookup
from upl_mlir.poly.sets import PSet
from upl_mlir.poly.tools import DIM, PARAM, as_map

F = TypeVar("F")

_MAX_TRIES = 1500  # questions to isl in the search for one rank
_MAX_CHOICES = 100  # of coordinates that are followed up
NONE = -1  # in place of a coordinate: the number 0


@dataclass(frozen=True)
class Dependence:
    """Points of space `source` to points of space `target`; the set's first `n_source` dimensions are the source's."""

    source: int
    target: int
    relation: PSet
    n_source: int
    by_value: bool = False  # array entries are looked up, not left open

    @cached_property
    def plain(self) -> isl.Set:
        """The relation with facts, and without array entries: enough to prove an order, too much to refute one."""
        return self.exact if self.by_value else without_entries(self.relation.known())

    @cached_property
    def exact(self) -> isl.Set:
        """The relation with its array entries as numbers."""
        parts = [without_entries(part) for part in self.relation.slices()]
        return reduce(lambda a, b: a.union(b), parts, isl.Set.empty(self.relation.isl.get_space())).coalesce()

    @property
    def n_target(self) -> int:
        """The number of the target's dimensions."""
        return len(self.relation.dims) - self.n_source


@dataclass(frozen=True)
class Order:
    """A number for each point that never falls along the steps of a group; along all but the steps `left` it rises.

    `by_space`: the number as (sign, coordinate, constant), ``sign*x + constant``, with `NONE` for no coordinate; empty where
    the number is a segment."""

    left: list[Dependence]
    by_space: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])


def orders(width: int, steps: Sequence[Dependence]) -> Iterator[Order]:
    """Numbers that never fall along any of the steps, of one strongly connected group, and rise along some."""
    plain = [s for s in steps if not s.plain.is_empty()]
    for order in chain(_by_place(width, plain), _by_shift(plain)):
        if len(order.left) < len(plain):
            yield order


def without_entries(r: PSet) -> isl.Set:
    """The set with array entries, and parts that are not affine, projected out."""
    out = r.isl
    for pid, atom in r.params.items():
        at = out.find_dim_by_name(PARAM, pid)
        if isinstance(atom, Lookup | Opaque) and at >= 0:
            out = out.project_out(PARAM, at, 1)
    return out


def acyclic(width: int, steps: Sequence[Dependence]) -> bool:
    """Whether ranks prove that no point depends on itself; `width` is the greatest number of dimensions of a space."""
    if _ranked(width, steps) or _scheduled(steps):
        return True
    open_ = any(isinstance(a, Lookup | Opaque) for s in steps for a in s.relation.params.values())
    return open_ and _ranked(width, [replace(s, by_value=True) for s in steps])


def _scheduled(steps: Sequence[Dependence]) -> bool:
    """Whether isl's scheduler finds times, affine in the coordinates of each space, that every step moves forward.

    It sees sums of coordinates, such as ``2*q + r`` of a quotient and a remainder.  The schedule is not trusted, but
    compared with the steps.
    """
    total = isl.UnionMap.empty(isl.Space.params_alloc(isl.DEFAULT_CONTEXT, 0))
    for s in steps:
        m = as_map(s.plain, s.n_source)
        m = m.set_tuple_name(isl.dim_type.in_, f"S{s.source}").set_tuple_name(isl.dim_type.out, f"S{s.target}")
        total = total.union(isl.UnionMap.from_map(m))
    points = total.domain().union(total.range())
    try:
        times = isl.ScheduleConstraints.on_domain(points).set_validity(total).compute_schedule().get_map()
    except isl.Error as e:
        if "unable to carry" in str(e):
            return False  # no schedule, as where there is a cycle
        raise
    return bool(total.is_subset(times.lex_lt_union_map(times)))


def _ranked(width: int, steps: Sequence[Dependence]) -> bool:
    return all(_ranked_group(width, g) for g in _cyclic_groups([s for s in steps if not s.plain.is_empty()]))


def _cyclic_groups(steps: Sequence[Dependence]) -> list[list[Dependence]]:
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
    failed: set[tuple[int, ...]] = set()
    for order in chain(_by_place(width, steps), _by_shift(steps), _by_segment(steps)):
        left = order.left
        key = tuple(map(id, left))
        if len(left) < len(steps) and key not in failed:
            if _ranked(width, left):
                return True
            failed.add(key)
    return False


# -- a coordinate at the same place of all spaces --------------------------------------------------------------------------


def _by_place(width: int, steps: list[Dependence]) -> Iterator[Order]:
    spaces = {v for s in steps for v in (s.source, s.target)}
    for k in range(width):
        for sign in (1, -1):
            moves = [_move(s, k, sign) for s in steps]
            if None not in moves:
                left = [s for s, m in zip(steps, moves, strict=True) if m == 0]
                yield Order(left, dict.fromkeys(spaces, (sign, k, 0)))


def _move(s: Dependence, k: int, sign: int) -> int | None:
    """1 if coordinate `k` always grows (times `sign`) along the step, 0 if it may stay, None if it may fall or is absent."""
    if k >= s.n_source or k >= s.n_target:
        return None
    a, b = f"x{k}", f"x{s.n_source + k}"
    later, same = (f"{a} < {b}", f"{a} <= {b}") if sign > 0 else (f"{a} > {b}", f"{a} >= {b}")
    if _always(s, later):
        return 1
    return 0 if _always(s, same) else None


def _always(s: Dependence, condition: str, params: Iterable[str] = ()) -> bool:
    dims = ",".join(f"x{i}" for i in range(len(s.relation.dims)))
    text = f"[{','.join(params)}] -> {{ [{dims}] : {condition} }}"
    return bool(s.plain.is_subset(isl.Set.read_from_str(isl.DEFAULT_CONTEXT, text)))


# -- a choice for each space -----------------------------------------------------------------------------------------------


def _choices(
    steps: Sequence[Dependence], options: Callable[[int], Sequence[F]], fits: Callable[[Dependence, F, F], bool],
    whole: Callable[[dict[int, F]], bool] = lambda _: True,
) -> Iterator[dict[int, F]]:  # fmt: skip
    """Assignments of an option to each space such that every step fits, found by going along steps; `whole` looks at what
    is chosen so far."""
    spaces = sorted({v for s in steps for v in (s.source, s.target)})
    order, seen = [spaces[0]], {spaces[0]}
    while len(order) < len(spaces):  # a strongly connected component: each next space touches one before
        v = next(v for s in steps for v in (s.source, s.target) if v not in seen and {s.source, s.target} & seen)
        order.append(v)
        seen.add(v)

    def extend(at: int, chosen: dict[int, F]) -> Iterator[dict[int, F]]:
        if at == len(order):
            yield dict(chosen)
            return
        v = order[at]
        near = [s for s in steps if v in (s.source, s.target) and {s.source, s.target} <= {*chosen, v}]
        for f in options(v):
            chosen[v] = f
            if all(fits(s, chosen[s.source], chosen[s.target]) for s in near) and whole(chosen):
                yield from extend(at + 1, chosen)
        chosen.pop(v, None)

    yield from extend(0, {})


def _places(steps: Sequence[Dependence], v: int) -> list[int]:
    """The coordinates of a space, and none of them."""
    return [*range(_width_of(steps, v)), NONE]


def _width_of(steps: Sequence[Dependence], v: int) -> int:
    return next(s.n_source if s.source == v else s.n_target for s in steps if v in (s.source, s.target))


# -- a coordinate of each space, shifted -----------------------------------------------------------------------------------


def _by_shift(steps: list[Dependence]) -> Iterator[Order]:
    """Coordinates x + c with a constant c for each space: the constants are potentials of a graph of least differences."""
    least: dict[tuple[int, int, int, int], int | None] = {}

    def difference(s: Dependence, i: int, j: int, sign: int) -> int | None:
        key = (id(s), i, j, sign)
        if key not in least:
            least[key] = _least_difference(s, i, j, sign) if len(least) < _MAX_TRIES else None
        return least[key]

    for sign in (1, -1):

        def fits(s: Dependence, i: int, j: int, sign: int = sign) -> bool:
            return difference(s, i, j, sign) is not None

        def rank(
            chosen: dict[int, int], sign: int = sign
        ) -> tuple[list[tuple[Dependence, int]], dict[int, int] | None]:
            inner = [s for s in steps if s.source in chosen and s.target in chosen]
            weighed = [(s, difference(s, chosen[s.source], chosen[s.target], sign) or 0) for s in inner]
            return weighed, _potentials(weighed)

        def whole(chosen: dict[int, int], rank: Callable[..., Any] = rank) -> bool:
            return rank(chosen)[1] is not None

        places = _choices(steps, lambda v: _places(steps, v), fits, whole)
        for chosen in islice(places, _MAX_CHOICES):
            weighed, c = rank(chosen)
            if c is not None:
                left = [s for s, w in weighed if c[s.target] - c[s.source] + w == 0]
                yield Order(left, {v: (sign, at, c[v]) for v, at in chosen.items()})


def _least_difference(s: Dependence, i: int, j: int, sign: int) -> int | None:
    """The least value of target coordinate j minus source coordinate i, times `sign`; None if there is none."""
    n = len(s.relation.dims)
    dims = ",".join(f"x{k}" for k in range(n))
    a = f"x{i}" if i != NONE else "0"
    b = f"x{s.n_source + j}" if j != NONE else "0"
    value = f"{b} - {a}" if sign > 0 else f"{a} - {b}"
    m = isl.Map.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{dims}] -> [{value}] }}")
    low = s.plain.apply(m).project_out_all_params().dim_min_val(0)
    return low.to_python() if low.is_int() else None


def _potentials(weighed: Sequence[tuple[Dependence, int]]) -> dict[int, int] | None:
    """Numbers c with ``c[target] - c[source] + weight >= 0`` for every step (Bellman and Ford); None if there are none."""
    rank = dict.fromkeys({v for s, _ in weighed for v in (s.source, s.target)}, 0)
    for _ in range(len(rank) + 1):
        changed = False
        for s, w in weighed:
            if rank[s.target] < rank[s.source] - w:
                rank[s.target] = rank[s.source] - w
                changed = True
        if not changed:
            return rank
    return None


# -- a coordinate of each space, cut into segments -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Segment:
    """``(coordinate + shift) floordiv size``; `shift` is a sum of an integer and parameters, as (coefficient, name)."""

    size: int
    shift: tuple[tuple[int, str], ...]
    place: int = 0

    def text(self, first: int) -> str:
        """The expression; the space's coordinates begin at `first`."""
        if self.place == NONE:
            return str(self.shift[0][0])
        dim = first + self.place
        parts = "".join(f" + {c}*{n}" if n else f" + {c}" for c, n in self.shift)
        return f"floor((x{dim}{parts})/{self.size})"


def _by_segment(steps: list[Dependence]) -> Iterator[Order]:
    found = {f for s in steps for f in _segments(s.plain)}
    memo: dict[tuple[int, _Segment, _Segment, bool, int], bool] = {}

    def falls(s: Dependence, f: _Segment, g: _Segment, strictly: bool, sign: int) -> bool:
        key = (id(s), f, g, strictly, sign)
        if key not in memo:
            a, b = f.text(0), g.text(s.n_source)
            op = (">" if sign > 0 else "<") + ("" if strictly else "=")
            params = dict.fromkeys(n for _, n in (*f.shift, *g.shift) if n)
            memo[key] = len(memo) < _MAX_TRIES and _always(s, f"{a} {op} {b}", params)
        return memo[key]

    for size in sorted({f.size for f in found}):
        shifts = _near({f.shift for f in found if f.size == size})
        for sign in (1, -1):

            def options(
                v: int, size: int = size, shifts: Sequence[tuple[tuple[int, str], ...]] = shifts
            ) -> list[_Segment]:
                cut = [_Segment(size, c, k) for k in range(_width_of(steps, v)) for c in shifts]
                return [*cut, *(_Segment(size, ((c, ""),), NONE) for c in (0, -1, 1))]

            def fits(s: Dependence, f: _Segment, g: _Segment, sign: int = sign) -> bool:
                return falls(s, f, g, False, sign)

            for chosen in islice(_choices(steps, options, fits), _MAX_CHOICES):
                yield Order([s for s in steps if not falls(s, chosen[s.source], chosen[s.target], True, sign)])


def _segments(r: isl.Set) -> Iterator[_Segment]:
    """The integer divisions of one coordinate, plus something, that occur in a relation."""
    for b in r.compute_divs().get_basic_sets():
        for k in range(b.dim(isl.dim_type.div)):
            a = b.get_div(k)
            size = a.get_denominator_val().to_python()
            scaled = a.scale_val(a.get_denominator_val())
            dims = [scaled.get_coefficient_val(isl.dim_type.in_, i).to_python() for i in range(b.dim(DIM))]
            inner = [
                scaled.get_coefficient_val(isl.dim_type.div, i).to_python() for i in range(a.dim(isl.dim_type.div))
            ]
            sign = sum(dims)
            if size < 2 or sum(map(abs, dims)) != 1 or any(inner):
                continue
            constant = scaled.get_constant_val().to_python()
            if sign < 0:  # floor((c-x)/S) = -floor((x-c+S-1)/S)
                constant = size - 1 - constant
            params = [
                (sign * scaled.get_coefficient_val(PARAM, i).to_python(), b.get_dim_name(PARAM, i) or "")
                for i in range(b.dim(PARAM))
            ]
            yield _Segment(size, ((constant, ""), *((c, n) for c, n in params if c)))


def _near(shifts: Iterable[tuple[tuple[int, str], ...]]) -> list[tuple[tuple[int, str], ...]]:
    """The shifts and those one step beside them: nodes of one loop stand a step apart."""
    out = dict.fromkeys(shifts)
    for (c, _), *rest in list(out):
        for moved in (c - 1, c + 1):
            out[(moved, ""), *rest] = None
    return list(out)
