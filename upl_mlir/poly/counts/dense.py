# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Domains as dense arrays: bounding boxes, masks, points in lexicographic order, and parameters from shapes.

A comparison that reads outside a constant array is false, negated or not: `guarded` writes that into the formula, so
that isl, numpy and generated code agree on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from upl_mlir.poly.convert import NotAffine, param_id
from upl_mlir.poly.expr import FALSE, TRUE, Atom, Div, Formula, IndexExpr, Lookup, MinMax, Select, Var
from upl_mlir.poly.operators import CmpOp, Connective, Extremum
from upl_mlir.poly.sets import PolyContext
from upl_mlir.poly.tools import DIM, PARAM

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_COMPARE = {
    CmpOp.LE: np.less_equal, CmpOp.LT: np.less, CmpOp.EQ: np.equal, CmpOp.NE: np.not_equal, CmpOp.GE: np.greater_equal,
    CmpOp.GT: np.greater,
}  # fmt: skip


@dataclass
class Unbounded(Exception):
    """A domain has no least or no greatest value of `field`."""

    field: str


@dataclass(frozen=True)
class Box:
    """The bounding box of a domain: the least value of each field, and how many values each has (0 if empty)."""

    lower: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return reduce(lambda a, b: a * b, self.shape, 1)

    def contains(self, index: Sequence[int]) -> bool:
        """Whether a point lies in the box."""
        return all(lo <= i < lo + n for i, lo, n in zip(index, self.lower, self.shape, strict=True))

    def place(self, index: Sequence[int]) -> tuple[int, ...]:
        """The position of a point in the dense array."""
        return tuple(i - lo for i, lo in zip(index, self.lower, strict=True))


def guarded(f: Formula, ctx: PolyContext) -> Formula:
    """The formula with bounds added, so that a comparison that reads outside a constant array is false.

    Negations are pushed inwards and choices (`? :`) resolved on the way.
    """
    return _guard(f, ctx, positive=True)


def _guard(f: Formula, ctx: PolyContext, *, positive: bool) -> Formula:
    match f.kind:
        case Connective.NOT:
            return _guard(f.args[0], ctx, positive=not positive)
        case Connective.AND | Connective.OR:
            parts = [_guard(a, ctx, positive=positive) for a in f.args]
            return Formula.all(parts) if (f.kind is Connective.AND) == positive else Formula.any(parts)
        case Connective.CMP:
            return _guard_comparison(f if positive else f.negate(), ctx)


def _guard_comparison(f: Formula, ctx: PolyContext) -> Formula:
    select = next((a for a in f.atoms() if isinstance(a, Select)), None)
    if select is not None:
        then = f.rewrite(lambda a: select.then if a == select else None)
        other = f.rewrite(lambda a: select.other if a == select else None)
        cases = ((select.cond, then), (select.cond.negate(), other))
        return Formula.any(
            Formula.all((_guard(cond, ctx, positive=True), _guard_comparison(g, ctx))) for cond, g in cases
        )
    bounds: list[Formula] = []
    for entry in f.lookups():
        table = ctx.arrays[entry.array]
        at = entry.index
        if at.constant is not None:
            if table.get(at.constant) is None:
                return FALSE
            continue
        bounds.append(ctx.entry_exists(entry))
    return Formula.all([*bounds, f])


def bounding_box(ctx: PolyContext, fields: Sequence[str], domain: Formula) -> Box:
    """The bounding box of a domain in which every symbol has a value.

    Raises Unbounded where a field has no bound.
    """
    whole = _resolved(ctx, fields, domain, ())
    if whole.is_empty():
        return Box((0,) * len(fields), (0,) * len(fields))
    lower: list[int] = []
    shape: list[int] = []
    for i, field in enumerate(fields):
        lo, hi = whole.dim_min_val(i), whole.dim_max_val(i)
        if not (lo.is_int() and hi.is_int()):
            raise Unbounded(field)
        lower.append(lo.to_python())
        shape.append(hi.to_python() - lo.to_python() + 1)
    box = Box(tuple(lower), tuple(shape))
    if ctx.not_affine(fields, domain) is None:
        return box
    there = np.argwhere(mask(ctx, fields, domain, box))  # isl knows a hull
    if not len(there):
        return Box((0,) * len(fields), (0,) * len(fields))
    first, last = there.min(axis=0), there.max(axis=0)
    return Box(tuple((first + lower).tolist()), tuple((last - first + 1).tolist()))


def _resolved(ctx: PolyContext, fields: Sequence[str], domain: Formula, keep: Sequence[str]) -> isl.Set:
    """The domain as an isl set whose only parameters are ``keep``, in that order; constants have their values."""
    ids = {param_id(Var(name)): f"c_{i}" for i, name in enumerate(keep)}
    space = f"[{','.join(ids.values())}] -> {{ [{','.join(f'x{i}' for i in range(len(fields)))}] : 1 = 0 }}"
    empty = isl.Set.read_from_str(isl.DEFAULT_CONTEXT, space)
    out = empty
    for part in ctx.set(fields, guarded(domain, ctx)).slices():
        s = part.isl
        for at in reversed(range(s.dim(PARAM))):
            new = ids.get(s.get_dim_name(PARAM, at) or "")
            s = s.project_out(PARAM, at, 1) if new is None else s.set_dim_name(PARAM, at, new)
        out = out.union(s)
    return out.align_params(empty.get_space())  # a union keeps no order of parameters


# -- masks ---------------------------------------------------------------------------------------------------------
def mask(ctx: PolyContext, fields: Sequence[str], domain: Formula, box: Box) -> Bools:
    """Which elements of the box belong to the domain, shape ``box.shape``.  Every symbol must have a value."""
    env: dict[str, Any] = {}
    for axis, (field, lo, n) in enumerate(zip(fields, box.lower, box.shape, strict=True)):
        along = [1] * len(fields)
        along[axis] = n
        env[field] = np.arange(lo, lo + n, dtype=np.int64).reshape(along)
    found = Evaluator.of(ctx).given(env).formula(guarded(domain, ctx))
    return np.array(np.broadcast_to(found, box.shape))


@dataclass(frozen=True)
class Evaluator:
    """Evaluates guarded formulas with numpy broadcasting; entries outside a table read as its nearest end.

    Sums that may not fit 64 bits are computed with Python's integers.
    """

    ctx: PolyContext
    env: Mapping[str, Any]
    tables: Mapping[str, Ints]
    magnitudes: dict[str, int] = dataclasses.field(default_factory=dict[str, int])

    @staticmethod
    def of(ctx: PolyContext) -> Evaluator:
        """One that knows the constants and arrays of a program."""
        return Evaluator(ctx, ctx.constants, {name: np.array(t.values, dtype=np.int64) for name, t in ctx.arrays.items()})

    def given(self, env: Mapping[str, Any]) -> Evaluator:
        """One that knows further names, as integers or arrays."""
        return Evaluator(self.ctx, {**self.env, **env}, self.tables)

    def formula(self, f: Formula) -> Any:
        match f.kind:
            case Connective.CMP:
                return _COMPARE[f.op](self.expr(f.lhs), self.expr(f.rhs))
            case Connective.AND:
                return reduce(np.logical_and, map(self.formula, f.args), np.True_)
            case Connective.OR:
                return reduce(np.logical_or, map(self.formula, f.args), np.False_)
            case Connective.NOT:
                return np.logical_not(self.formula(f.args[0]))

    def expr(self, e: IndexExpr) -> Any:
        total: Any = 0
        small = self._most(e) < 2**63
        for monomial, coefficient in e.terms:
            term: Any = coefficient
            for atom in monomial:
                value = self.atom(atom)
                term = term * (value if small else np.asarray(value).astype(object))
            total = total + term
        return total

    def _most(self, e: IndexExpr) -> int:
        """What the magnitude of an expression is at most."""
        total = 0
        for monomial, coefficient in e.terms:
            total += reduce(lambda x, a: x * self._most_atom(a), monomial, abs(coefficient))
        return total

    def _most_atom(self, a: Atom) -> int:
        match a:
            case Var(name):
                if name not in self.magnitudes:
                    x = self.env[name]
                    self.magnitudes[name] = abs(x) if isinstance(x, int) else max(map(abs, _ends(x)), default=0)
                return self.magnitudes[name]
            case Lookup(array):
                return max(map(abs, _ends(self.tables[array])), default=0)
            case Div(_, num, den):
                return max(self._most(num), self._most(den))
            case MinMax(_, args):
                return max(map(self._most, args))
            case Select(_, then, other):
                return max(self._most(then), self._most(other))

    def atom(self, a: Atom) -> Any:
        match a:
            case Var(name):
                return self.env[name]
            case Lookup(array, index):
                table = self.tables[array]
                if not len(table):
                    return 0
                at = np.clip(self.expr(index) - self.ctx.arrays[array].lower, 0, len(table) - 1)
                return table[np.asarray(at).astype(np.int64)]
            case Div(kind, num, den):
                n, d = self.expr(num), self.expr(den)
                if any(np.asarray(x).dtype == object for x in (n, d)):
                    d: Any = np.where(d == 0, 1, d)
                with np.errstate(divide="ignore"):  # by 0: at points that the rest of a condition leaves out
                    return kind.apply(n, d)
            case MinMax(kind, args):
                return reduce(np.minimum if kind is Extremum.MIN else np.maximum, map(self.expr, args))
            case Select(cond, then, other):
                return np.where(self.formula(cond), self.expr(then), self.expr(other))


def _ends(x: Any) -> list[int]:
    """The least and the greatest element of an array."""
    values = np.asarray(x)
    return [int(values.min()), int(values.max())] if values.size else []


def points(box: Box, inside: Bools) -> Iterator[tuple[int, ...]]:
    """The points of a mask over a box, in lexicographic order."""
    where = np.argwhere(inside) + np.array(box.lower, dtype=np.int64)
    return map(tuple, where.tolist())


# -- parameters from shapes ----------------------------------------------------------------------------------------
def points_where(ctx: PolyContext, fields: Sequence[str], domain: Formula, condition: Formula) -> Iterator[tuple[int, ...]]:
    """The points of a domain at which a condition holds, in order; every symbol must have a value.  Where the condition is
    not affine (a product of extents) it is looked up point by point.

    Raises Unbounded for the domain.
    """
    both = Formula.all((domain, condition))
    box = bounding_box(ctx, fields, both)
    return points(box, mask(ctx, fields, both, box))


@dataclass(frozen=True)
class Extents:
    """What is known of the bounding box of one domain: some of its extents, by field.

    Several alternatives are possible (a list may lie along any field): one of them holds.
    """

    fields: tuple[str, ...]
    domain: Formula
    alternatives: tuple[Mapping[str, int], ...]


@dataclass
class Contradiction(Exception):
    """The extents number `at`, together with those before it, fit no value of the parameters."""

    at: int


def solve_parameters(ctx: PolyContext, known: Sequence[Extents]) -> dict[str, int | None]:
    """The values of the open parameters that all extents leave possible; None where more than one is.

    Raises Contradiction, NotAffine.
    """
    names = ctx.params
    at_all = _resolved(ctx, (), ctx.param_condition, names).params()
    possible = at_all
    for i, extents in enumerate(known):
        if (what := ctx.not_affine(extents.fields, extents.domain)) is not None:
            raise NotAffine(what)
        allowed = isl.Set.empty(possible.get_space())
        domain = _resolved(ctx, extents.fields, extents.domain, names)
        for alternative in extents.alternatives:
            allowed = allowed.union(_with_extents(domain, extents.fields, alternative))
        possible = possible.intersect(allowed)
        if possible.is_empty():
            raise Contradiction(i)
    flat = possible.move_dims(DIM, 0, PARAM, 0, len(names)) if names else possible
    out: dict[str, int | None] = {}
    for i, name in enumerate(names):
        lo, hi = flat.dim_min_val(i), flat.dim_max_val(i)
        out[name] = lo.to_python() if lo.is_int() and hi.is_int() and lo.eq(hi) else None
    return out


def _with_extents(domain: isl.Set, fields: Sequence[str], extents: Mapping[str, int]) -> isl.Set:
    """The parameters for which the box of the domain has the given extents."""
    inhabited = domain.params()
    if 0 in extents.values():  # an empty domain has extent 0 everywhere
        return isl.Set.universe(inhabited.get_space()).subtract(inhabited)
    out = inhabited
    for axis, field in enumerate(fields):
        if field not in extents:
            continue
        along = domain.project_out(DIM, axis + 1, len(fields) - axis - 1).project_out(DIM, 0, axis)
        size = along.dim_max(0).sub(along.dim_min(0)).add_constant_val(isl.Val.one(isl.DEFAULT_CONTEXT))
        wanted = isl.PwAff.val_on_domain(size.domain(), isl.Val.int_from_si(isl.DEFAULT_CONTEXT, extents[field]))
        out = out.intersect(size.eq_set(wanted).params())
    return out


def holds(ctx: PolyContext, condition: Formula) -> bool:
    """Whether a condition on symbols holds, each of which must have a value."""
    return condition == TRUE or guarded(condition, ctx).evaluate(ctx.constants, ctx.read)
