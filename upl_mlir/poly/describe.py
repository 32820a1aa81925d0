# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""From sets back to text: formulas without redundant parts, convex pieces, bounds of a dimension.

AUTODIFF rule 2 asks for conditions "simplified against the domain": a constraint is dropped while the set, inside its
context, stays equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import islpy as isl

from upl_mlir.poly.convert import FromIsl, solve
from upl_mlir.poly.expr import Div, Formula, IndexExpr, Lookup, Var, divide, extremum
from upl_mlir.poly.operators import CmpOp, Connective, DivKind, Extremum
from upl_mlir.poly.sets import PSet


def _pieces(s: PSet) -> list[list[Formula]]:
    """Each convex piece of the set as a list of comparisons; bounds that parts which are not affine imply are among them."""
    reader = FromIsl(s.dims, s.params)
    open_ = s.opaque_parts()
    out: list[list[Formula]] = []
    for b in s.isl.compute_divs().get_basic_sets():
        b = b.remove_redundancies()
        piece = [reader.constraint(c) for c in b.get_constraints() if not c.is_div_constraint()]
        if open_:
            hull = _rough(s.with_isl(isl.Set.from_basic_set(b)).known())
            known = FromIsl(s.dims, hull.params)
            for c in _hull(hull).get_constraints():
                if not c.is_div_constraint() and (f := known.constraint(c)) not in piece:
                    piece.append(f)
        out.append(piece)
    return out


def _hull(s: PSet) -> isl.BasicSet:
    """One convex piece round the set, without constraints on quotients that isl gives no expression for."""
    known = isl.Set.from_basic_set(s.isl.compute_divs().simple_hull().remove_redundancies()).remove_unknown_divs()
    return known.get_basic_sets()[0] if known.n_basic_set() else s.isl.simple_hull()


def _rough(s: PSet) -> PSet:
    """The set without what its parts that are not affine imply, and without what is known of them."""
    return reduce(PSet.forget, s.opaque_parts(), s)


def readable(s: PSet) -> PSet:
    """The same set without entries that their array does not have: where the index is outside, no value matters."""
    for atom in [a for a in s.params.values() if isinstance(a, Lookup) and a.array in s.ctx.arrays]:
        exists = s.ctx.entry_exists(atom)
        rest = s.constrain(exists.negate()).known()
        if not rest.isl.is_empty():
            s = s.constrain(exists) | rest.without(atom)
    return s


def describe(s: PSet, context: PSet | None = None, prefer: Sequence[Formula] = ()) -> Formula:
    """A formula that, inside `context`, holds exactly on `s`: no part of it can be dropped.  Raises UplError for a hull.

    `prefer` lists comparisons from the source program that replace an equivalent set of ours where they fit, so that
    the author's own words (``k<K``) are kept.
    """
    s.exactly("a condition")
    context = (context if context is not None else s.ctx.set(s.dims)).exactly("a condition")
    target = (s & context).coalesce()
    for f in (Formula.all(prefer), *[Formula.all(prefer[i : i + 1]) for i in range(len(prefer))]):
        if prefer and (context.constrain(f)).equals(target):
            return _minimal(list(f.conjuncts), target, context)
    if context <= target:
        return Formula.all(())
    if target.is_empty():
        return Formula.any(())
    if (entry := read_outside(target)) is not None and read_outside(context) is None:
        inside = target.constrain(target.ctx.entry_exists(entry))
        rest = target - inside
        free = rest.without(entry)
        if target.isl.n_basic_set() > 1 or free <= rest:  # no value matters there
            return describe(inside, context) | describe(free, context)
    pieces = _pieces(target)
    for other in (target.numeric(), target.known()) if len(pieces) > 1 else ():
        if len(simpler := _pieces(other.coalesce())) < len(pieces):
            pieces = simpler  # symbols kept cases apart that cannot both occur, or that meet
    if len(pieces) == 1:
        return Formula.all(_ordered(_minimal(pieces[0], target, context).conjuncts, s.dims))
    found = _cases(pieces, target, context)
    return found if len(found.args) < SHORT else _by_exceptions(found, target, context)


def read_outside(s: PSet) -> Lookup | None:
    """An array entry on which a set depends, but that the array does not have at some points of the set: as after the union
    of ``m<0`` and ``i<N[m]``, or where the rest of a set is cut by what reads the entry.  No formula may read it there."""
    for a in s.params.values():
        if isinstance(a, Lookup) and a.array in s.ctx.arrays and a.index.names & set(s.dims) and s.involves(a):
            beyond = s.constrain(s.ctx.entry_exists(a).negate()).numeric()
            if not beyond.isl.is_empty() and not beyond.without(a).is_empty():
                return a
    return None


def settled(s: PSet) -> PSet:
    """The set, without conditions on entries where the array has none (`read_outside`)."""
    for _ in list(s.params):  # once for each entry: a union may be one convex set again
        if (entry := read_outside(s)) is None:
            break
        inside = s.constrain(s.ctx.entry_exists(entry))
        s = (inside | (s - inside).without(entry)).coalesce()
    return s


def tidy(e: IndexExpr) -> IndexExpr:
    """An expression with one quotient as it is written: ``(a + 4*b) floordiv 6`` for ``b + (a - 2*b) floordiv 6``, and
    ``a mod 6`` for ``a - 6*(a floordiv 6)``; an identity of integers."""
    quotients = [(m[0], c) for m, c in e.terms if len(m) == 1 and isinstance(m[0], Div)]
    if len(quotients) != 1:
        return e
    (q, c), *_ = quotients
    n = q.den.constant
    if q.kind is not DivKind.FLOORDIV or n is None or n <= 0:
        return e
    rest = e - IndexExpr.of(q) * c
    if c == 1:  # whole numbers may go into the quotient
        whole = divide(DivKind.FLOORDIV, q.num + rest * n, IndexExpr.of(n))
        return min(e, whole, key=lambda x: len(str(x)))
    if c == -n and all(k % n == 0 for _, k in (rest - q.num).terms):  # num + n*f - n*(num floordiv n)
        low = IndexExpr(tuple((m, k % n) for m, k in q.num.terms if k % n))
        return divide(DivKind.MOD, low, IndexExpr.of(n)) + rest - q.num
    return e


SHORT = 2  # parts of a formula that no other way to say it makes shorter
FEW = 4  # exceptions that are told apart


def _by_exceptions(found: Formula, target: PSet, context: PSet) -> Formula:
    """The formula, or a shorter one that says where the set is not: ``i!=k && j!=k`` for four cases."""
    common = [f for f in found.conjuncts if f.kind is Connective.CMP] if found.kind is Connective.AND else []
    inside = context.constrain(Formula.all(common))
    missing = (inside - target).coalesce()
    if missing.isl.n_basic_set() > FEW or missing.is_empty():
        return found
    but = _cases(_pieces(missing), missing, inside)
    cases = but.args if but.kind is Connective.OR else (but,)
    parts: list[Formula] = []
    for case in cases:
        if any(f.kind is not Connective.CMP for f in case.conjuncts):
            return found
        parts.append(Formula.any(f.negate() for f in case.conjuncts))
    place = {d: n for n, d in enumerate(target.dims)}
    parts.sort(key=lambda f: [place[d] for d in target.dims if d in f.names])
    plain = all(f.kind is Connective.CMP for f in parts)
    shorter = Formula.all(_ordered([*common, *parts], target.dims) if plain else (*common, *parts))
    return shorter if _length_of(shorter) < _length_of(found) else found


def _length_of(f: Formula) -> int:
    """The number of comparisons."""
    return 1 if f.kind is Connective.CMP else sum(map(_length_of, f.args))


def _cases(pieces: Sequence[list[Formula]], target: PSet, context: PSet) -> Formula:
    """A formula for a set in several convex pieces, each made as large as the set allows, none without need."""
    parts: list[Formula] = []
    for piece in pieces:
        part = Formula.all(_ordered(_minimal(piece, target, context).conjuncts, target.dims))
        if part not in parts:
            parts.append(part)
    for i in reversed(range(len(parts))):  # a piece that the others cover
        others = Formula.any(parts[:i] + parts[i + 1 :])
        if len(parts) > 1 and target <= context.constrain(others):
            del parts[i]
    common = [f for f in parts[0].conjuncts if all(f in p.conjuncts for p in parts)]
    if common and len(parts) > 1:
        if context.constrain(Formula.all(common)) <= target:
            return Formula.all(common)  # the context's own cases were all that kept the pieces apart
        rest = Formula.any(Formula.all(f for f in p.conjuncts if f not in common) for p in parts)
        return Formula.all((*common, rest))
    return Formula.any(parts)


def stable_bounds(before: PSet, after: PSet) -> Formula:
    """The bounds of the convex hull of `before` that `after` keeps: what an iteration has settled on."""
    hull = before.with_isl(isl.Set.from_basic_set(before.isl.simple_hull()))
    parts = [f for piece in _pieces(hull) for f in piece]
    space = after.ctx.set(after.dims)
    return Formula.all(f for part in parts for f in _halves(part) if after <= space.constrain(f))


def _halves(f: Formula) -> list[Formula]:
    """An equality as two inequalities, of which one may stay."""
    if f.op is not CmpOp.EQ:
        return [f]
    return [Formula.compare(f.lhs, CmpOp.LE, f.rhs), Formula.compare(f.lhs, CmpOp.GE, f.rhs)]


def _minimal(parts: list[Formula], target: PSet, context: PSet) -> Formula:
    """The conjunction with every droppable part dropped; parts with literals and without dimensions go first."""

    def rank(i: int) -> tuple[bool, int, int]:
        return (bool(parts[i].names & set(target.dims)), -len(list(parts[i].atoms())), i)

    order, kept = sorted(range(len(parts)), key=rank), set[int]()
    after = [context]  # for each part, the last one first: the context with those that come after it
    for i in reversed(order[1:]):
        after.append(after[-1].constrain(parts[i]))
    before = context.ctx.set(context.dims)  # those before it that are kept
    open_ = target.doubts() is not None
    for i in order:
        rest = before & after.pop()
        # Bounds are kept where only parts that are not affine imply them: loops run between them.
        affine = open_ and context.ctx.not_affine(context.dims, parts[i]) is None
        if not rest <= target or (affine and not _rough(rest).plainly_in(context.ctx.set(context.dims, parts[i]))):
            before = before.constrain(parts[i])
            kept.add(i)
    result = [parts[i] for i in sorted(kept)]
    return Formula.all([*result, *_bounds_of_entries(result, target, context)])


def _bounds_of_entries(parts: Sequence[Formula], target: PSet, context: PSet) -> list[Formula]:
    """The bounds without which a conjunction reads entries that an array does not have, such as ``1<=k`` in
    ``i==N[k-1] && N[k-1]<=k``: positive entries imply it, but only where they exist."""
    found: list[Formula] = []
    region = context.constrain(Formula.all(f for f in parts if not f.lookups()))
    for entry in dict.fromkeys(x for f in parts for x in f.lookups()):
        if entry.array not in target.ctx.arrays or not entry.index.names & set(target.dims):
            continue
        for f in target.ctx.entry_exists(entry).conjuncts:
            if not region.constrain(f.negate()).is_empty() and target <= target.constrain(f):
                found.append(solve(f.rhs - f.lhs, equality=False, dims=target.dims))
                region = region.constrain(f)
    return found


def _ordered(parts: Sequence[Formula], dims: Sequence[str]) -> list[Formula]:
    """Parts sorted by dimension; a lower and an upper bound of one dimension become a chain."""

    def key(f: Formula) -> int:
        at = f.lhs.name
        return dims.index(at) if at in dims else len(dims)

    out: list[Formula] = []
    todo = sorted(parts, key=key)
    for chain in _chains(todo, dims):
        first = min(todo.index(f) for f in chain)
        todo = [f for f in todo if f not in chain]
        rising = [f if f.op in (CmpOp.LE, CmpOp.LT) else Formula.compare(f.rhs, f.op.flipped, f.lhs) for f in chain]
        out += _ordered(todo[:first], dims) + rising
        todo = todo[first:]
    while todo:
        f = todo.pop(0)
        if f.op in (CmpOp.GE, CmpOp.GT):
            upper = next((g for g in todo if g.lhs == f.lhs and g.op in (CmpOp.LE, CmpOp.LT)), None)
            if upper is not None:
                todo.remove(upper)
                low, op = (f.rhs, CmpOp.LE) if f.op is CmpOp.GE else (f.rhs, CmpOp.LT)
                literal = low.constant
                if op is CmpOp.LT and (literal is not None or any(not m for m, _ in low.terms)):
                    low, op = low + 1, CmpOp.LE
                out += [Formula.compare(low, op, f.lhs), upper]
                continue
        elif f.op in (CmpOp.LE, CmpOp.LT):
            lower = next((g for g in todo if g.lhs == f.lhs and g.op in (CmpOp.GE, CmpOp.GT)), None)
            if lower is not None:
                todo.insert(todo.index(lower) + 1, f)
                continue
        out.append(f)
    return out


def _chains(parts: Sequence[Formula], dims: Sequence[str]) -> list[list[Formula]]:
    """Inequalities that lead through at least two dimensions, each with one lower and one upper bound: ``0<=i<j<n``."""
    below: dict[IndexExpr, list[Formula]] = {}
    above: dict[IndexExpr, list[Formula]] = {}
    rising = (CmpOp.LE, CmpOp.LT)
    for f in parts:
        if f.kind is Connective.CMP and f.op in (*rising, CmpOp.GE, CmpOp.GT):
            low, high = (f.lhs, f.rhs) if f.op in rising else (f.rhs, f.lhs)
            below.setdefault(high, []).append(f)
            above.setdefault(low, []).append(f)
    joints = [e for d in dims if len(below.get(e := IndexExpr.of(d), ())) == 1 == len(above.get(e, ()))]
    out: list[list[Formula]] = []
    for e in joints:
        if below[e][0] in (g for c in out for g in c) or any(
            f.lhs in joints and f.rhs in joints for f in below[e]
        ):  # no beginning of a chain
            continue
        chain, at = [below[e][0]], e
        while at in joints:
            (f,) = above[at]
            chain.append(f)
            at = f.rhs if f.op in rising else f.lhs
        if len(chain) > 2:
            out.append(chain)
    return out


@dataclass(frozen=True)
class Interval:
    """All integers from `lo` to `hi`, both included; the interval may be empty (hi = lo - 1 at least is promised)."""

    lo: IndexExpr
    hi: IndexExpr

    @property
    def length(self) -> IndexExpr:
        """The number of its elements."""
        return self.hi - self.lo + 1


def disjoint_pieces(s: PSet) -> list[PSet]:
    """Disjoint convex pieces of a set, together the set; empty ones left out."""
    whole = readable(s).coalesce()
    convex = whole.isl if whole.isl.n_basic_set() <= 1 else whole.isl.make_disjoint()
    out = [whole.with_isl(isl.Set.from_basic_set(b)) for b in convex.compute_divs().get_basic_sets()]
    return [p for p in out if not p.is_empty()]


def convex(s: PSet) -> PSet | None:
    """The set as one convex piece; None if it is none."""
    known = s.known().coalesce()
    hull = known.with_isl(isl.Set.from_basic_set(known.isl.simple_hull()))
    return hull if hull <= s else None


def interval(s: PSet, dim: str, outer: Sequence[str], *, rough: bool = False) -> tuple[Interval, Formula] | None:
    """Bounds of `dim` on a convex set in terms of the dimensions `outer`, and what else must hold of it.

    With `rough` the bounds may be those of a hull, for who tests each point.

    The second part (strides) is a condition over `outer` and `dim`.  None if `dim` is unbounded there.  Only bounds that
    hold wherever some point of the fibre exists are used: the projection must be non-empty at the outer point.
    """
    p = s.project((*outer, dim)).in_terms_of(outer)
    if p.lost and not rough:
        return None
    if p.isl.n_basic_set() > 1:  # entries of arrays that were projected out leave cases behind
        p = p.coalesce()
    piece = [*p.isl.compute_divs().get_basic_sets()]
    if len(piece) > 1 and rough:
        p = p.known()
        piece = [_hull(p)]
    if len(piece) != 1:
        return None
    reader = FromIsl(p.dims, p.params)
    lows: list[IndexExpr] = []
    highs: list[IndexExpr] = []
    rest: list[Formula] = []
    for f in map(reader.constraint, piece[0].remove_redundancies().get_constraints()):
        e = f.lhs - f.rhs
        inside = next((c for m, c in e.terms if m == (Var(dim),)), 0)
        hidden = any(dim in IndexExpr.of(a).names for m, _ in e.terms if m != (Var(dim),) for a in m)
        if hidden:
            rest.append(f)
            continue
        if not inside:
            continue
        other = e - IndexExpr.of(dim) * inside
        if inside < 0:
            other, inside = -other, -inside
            op = f.op.flipped
        else:
            op = f.op
        # now: inside*dim + other  op  0
        if op is CmpOp.EQ:
            lows.append(divide(DivKind.CEILDIV, -other, IndexExpr.of(inside)))
            highs.append(divide(DivKind.FLOORDIV, -other, IndexExpr.of(inside)))
        elif op in (CmpOp.GE, CmpOp.GT):
            bound = -other + (1 if op is CmpOp.GT else 0)
            lows.append(divide(DivKind.CEILDIV, bound, IndexExpr.of(inside)))
        elif op in (CmpOp.LE, CmpOp.LT):
            bound = -other - (1 if op is CmpOp.LT else 0)
            highs.append(divide(DivKind.FLOORDIV, bound, IndexExpr.of(inside)))
    if not lows or not highs:
        return None
    lo = _one_bound(p, dim, lows, Extremum.MAX)
    hi = _one_bound(p, dim, highs, Extremum.MIN)
    return Interval(lo, hi), Formula.all(rest)


def _one_bound(p: PSet, dim: str, bounds: list[IndexExpr], kind: Extremum) -> IndexExpr:
    """The bounds that cannot be dropped, under `max` (lower) or `min` (upper)."""
    op = CmpOp.GE if kind is Extremum.MAX else CmpOp.LE
    kept = list(dict.fromkeys(bounds))
    outside = CmpOp.LT if kind is Extremum.MAX else CmpOp.GT
    outer = [d for d in p.dims if d != dim]
    base = p.project(outer).extend((dim,))
    for b in sorted(kept, key=lambda b: (len(b.terms), str(b)), reverse=True):
        others = [x for x in kept if x != b]
        if others:
            meet = Formula.all(Formula.compare(dim, op, x) for x in others)
            if base.constrain(meet & Formula.compare(dim, outside, b)).is_empty():
                kept.remove(b)
    return extremum(kind, kept)
