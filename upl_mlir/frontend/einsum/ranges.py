"""The ranges of the indices of one statement, found from all its accesses.

An index takes every value that each of its uses allows, in three steps.

1. An access dimension in which it is the only index allows an interval: ``B<10>[i+1]`` allows -1..8.
2. An index that only occurs beside others takes the values that stay in bounds for all values of the others:
   in ``B<7>[p+r]`` with p in 0..4, r takes 0..2.
3. Every access must then be in bounds at every point: what is not is an error with a witness, and so is an index without
   bounds and one without any value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from upl_mlir.diagnostics import Span, error
from upl_mlir.frontend.einsum.kernel import Access
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PolyContext, PSet

Ranges = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class _Use:
    """One dimension of an access: ``0 <= index < extent``."""

    access: Access
    at: int
    index: IndexExpr
    extent: int

    @property
    def span(self) -> Span:
        return self.access.index_spans[self.at]

    @property
    def inside(self) -> Formula:
        return Formula.compare(0, "<=", self.index) & Formula.compare(self.index, "<", self.extent)


def find_ranges(accesses: Sequence[Access], names: Sequence[str]) -> Ranges:
    """Least and greatest value of each of the indices `names`.  Raises UplError (UPL1906, UPL1907)."""
    uses = [_Use(a, i, e, n) for a in accesses for i, (e, n) in enumerate(zip(a.index or (), a.shape, strict=False))]
    ctx = PolyContext()
    ranges: Ranges = {}
    for name in names:
        alone = [u for u in uses if u.index.names == frozenset((name,))]
        _narrow(ranges, name, [_interval(ctx.set((name,), u.inside), name) for u in alone])
    while open_ := [n for n in names if n not in ranges]:
        found: Ranges = {}
        for name in open_:
            ready = [u for u in uses if name in u.index.names and u.index.names - {name} <= ranges.keys()]
            _narrow(found, name, [_interval(_allowed(ctx, u, name, ranges), name) for u in ready])
        if not found:
            _without_bounds(open_[0], uses, accesses)
        ranges |= found
    for name, (lo, hi) in ranges.items():
        if lo > hi:
            _empty(name, uses)
    for u in uses:
        _in_bounds(ctx, u, ranges)
    return ranges


Bounds = tuple[int | None, int | None]


def _narrow(ranges: Ranges, name: str, bounds: Sequence[Bounds]) -> None:
    """Record the intersection of what the uses allow, if it is bounded on both sides."""
    lows = [lo for lo, _ in bounds if lo is not None]
    highs = [hi for _, hi in bounds if hi is not None]
    if lows and highs:
        ranges[name] = (max(lows), min(highs))


def _interval(s: PSet, name: str) -> Bounds:
    """The bounds of a set of values; none where it is not an interval (``i % 16``): step 3 then decides."""
    if s.is_empty():
        return (1, 0)
    lo, hi = s.extent(name)
    parts = [Formula.compare(lo, "<=", name)] if lo is not None else []
    parts += [Formula.compare(name, "<=", hi)] if hi is not None else []
    whole = s.ctx.set((name,), Formula.all(parts))
    return (lo, hi) if whole <= s else (None, None)


def _allowed(ctx: PolyContext, u: _Use, name: str, ranges: Mapping[str, tuple[int, int]]) -> PSet:
    """The values of an index for which a use stays in bounds whatever the others are."""
    others = sorted(u.index.names - {name})
    dims = (name, *others)
    box = ctx.set(dims, _box({o: ranges[o] for o in others}))
    bad = box - ctx.set(dims, u.inside)
    return ctx.set((name,)) - bad.project((name,))


def _box(ranges: Mapping[str, tuple[int, int]]) -> Formula:
    parts = (Formula.compare(lo, "<=", n) & Formula.compare(n, "<=", hi) for n, (lo, hi) in ranges.items())
    return Formula.all(parts)


def _without_bounds(name: str, uses: Sequence[_Use], accesses: Sequence[Access]) -> None:
    use = next((u for u in uses if name in u.index.names), None)
    if use is None:
        where = next(a.span for a in accesses if name in a.names)
        raise error("UPL1906", f"the index `{name}` cancels out: it has no range", where)
    beside = ", ".join(f"`{o}`" for o in sorted(use.index.names - {name}))
    message = f"the range of the index `{name}` does not follow from its uses"
    help = f"it stands only beside {beside}: use it alone in some access" if beside else "use it in an access that bounds it"
    raise error("UPL1906", message, use.span, help=help)


def _empty(name: str, uses: Sequence[_Use]) -> None:
    mine = [u for u in uses if name in u.index.names]
    what = ", ".join(f"`{u.access.name}` with `{u.index}` below {u.extent}" for u in mine)
    raise error("UPL1906", f"no value of the index `{name}` suits all its uses: {what}", mine[-1].span)


def _in_bounds(ctx: PolyContext, u: _Use, ranges: Ranges) -> None:
    dims = tuple(sorted(u.index.names))
    box = ctx.set(dims, _box({d: ranges[d] for d in dims}))
    outside = Formula.compare(u.index, CmpOp.LT, 0) | Formula.compare(u.index, CmpOp.GE, u.extent)
    point = box.constrain(outside).sample()
    if point is None:
        return
    value = u.index.evaluate(point, ctx.read)
    at = " at " + ", ".join(f"{d}={point[d]}" for d in dims) if dims else ""
    raise error(
        "UPL1907", f"`{u.access.name}` is read out of bounds: index {u.at + 1}, `{u.index}`, is {value}{at}, and the "
        f"extent is {u.extent}", u.span,
        help="the shapes of the statement's tensors must fit all values of its indices",
    )  # fmt: skip
