# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""From sets back to text: formulas without redundant parts, bounds of a dimension, counts of fibres and of sets.

AUTODIFF rule 2 asks for conditions "simplified against the domain": a constraint is dropped while the set, inside its
context, stays equal.  Rule 3 asks for counts as the primal program wrote them, else as products of interval lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import islpy as isl

from upl_mlir.poly.convert import FromIsl
from upl_mlir.poly.equality import same_value
from upl_mlir.poly.expr import (
    CmpOp,
    Connective,
    DivKind,
    Extremum,
    Formula,
    IndexExpr,
    Lookup,
    MinMax,
    Var,
    divide,
    extremum,
)
from upl_mlir.poly.sets import DIM, PSet


def _pieces(s: PSet) -> list[list[Formula]]:
    """Each convex piece of the set as a list of comparisons."""
    reader = FromIsl(s.dims, s.params)
    out: list[list[Formula]] = []
    for b in s.isl.compute_divs().get_basic_sets():
        b = b.remove_redundancies()
        out.append([reader.constraint(c) for c in b.get_constraints() if not c.is_div_constraint()])
    return out


def readable(s: PSet) -> PSet:
    """The same set without entries that their array does not have: where the index is outside, no value matters."""
    for atom in [a for a in s.params.values() if isinstance(a, Lookup) and a.array in s.ctx.arrays]:
        table, i = s.ctx.arrays[atom.array], atom.index
        last = table.lower + len(table.values) - 1
        outside = Formula.compare(i, "<", table.lower) | Formula.compare(last, "<", i)
        rest = s.constrain(outside).known()
        if not rest.isl.is_empty():
            s = s.constrain(outside.negate()) | rest.without(atom)
    return s


def describe(s: PSet, context: PSet | None = None, prefer: Sequence[Formula] = ()) -> Formula:
    """A formula that, inside `context`, holds exactly on `s`: no part of it can be dropped.

    `prefer` lists comparisons from the source program that replace an equivalent set of ours where they fit, so that
    the author's own words (``k<K``) are kept.
    """
    context = context if context is not None else s.ctx.set(s.dims)
    target = (s & context).coalesce()
    for f in (Formula.all(prefer), *[Formula.all(prefer[i : i + 1]) for i in range(len(prefer))]):
        if prefer and (context.constrain(f)).equals(target):
            return _minimal(list(f.conjuncts), target, context)
    if context <= target:
        return Formula.all(())
    if target.is_empty():
        return Formula.any(())
    pieces = _pieces(target)
    for other in (target.numeric(), target.known()) if len(pieces) > 1 else ():
        if len(simpler := _pieces(other.coalesce())) < len(pieces):
            pieces = simpler  # symbols kept cases apart that cannot both occur, or that meet
    if len(pieces) == 1:
        return Formula.all(_ordered(_minimal(pieces[0], target, context).conjuncts, s.dims))
    found = _cases(pieces, target, context)
    return found if len(found.args) < SHORT else _by_exceptions(found, target, context)


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
    shorter = Formula.all((*common, *parts))
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
    for i in order:
        if not before & after.pop() <= target:
            before = before.constrain(parts[i])
            kept.add(i)
    return Formula.all(parts[i] for i in sorted(kept))


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


def interval(s: PSet, dim: str, outer: Sequence[str]) -> tuple[Interval, Formula] | None:
    """Bounds of `dim` on a convex set in terms of the dimensions `outer`, and what else must hold of it.

    The second part (strides) is a condition over `outer` and `dim`.  None if `dim` is unbounded there.  Only bounds that
    hold wherever some point of the fibre exists are used: the projection must be non-empty at the outer point.
    """
    p = s.project((*outer, dim)).in_terms_of(outer)
    if p.isl.n_basic_set() > 1:  # entries of arrays that were projected out leave cases behind
        p = p.coalesce()
    piece = [*p.isl.compute_divs().get_basic_sets()]
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


def fibre_count(s: PSet, over: Sequence[str], prefer: Sequence[IndexExpr] = ()) -> IndexExpr | None:
    """How many values of the dimensions `over` there are, as an expression over the other dimensions of the set.

    Right wherever the fibre is not empty.  One of `prefer` is returned if it is equal everywhere.  None if the set is
    not a box in those dimensions.
    """
    if not over:
        return IndexExpr.of(1)
    n = _fibre_count(s, over, prefer)
    if n is None and len((plain := s.numeric()).params) < len(s.params):
        n = _fibre_count(plain, over, prefer)
    return n


def fibre_counts(s: PSet, over: Sequence[str], prefer: Sequence[IndexExpr] = ()) -> list[tuple[PSet, IndexExpr]] | None:
    """As `fibre_count` where that needs cases: terms (where, how many) over the other dimensions, to be added up.

    A fibre may fall into several pieces: their counts add.  None if a piece cannot be counted.
    """
    outer = [d for d in s.dims if d not in over]
    n = fibre_count(s, over, prefer)
    if n is not None:
        return [(s.project(outer), n)]
    out: list[tuple[PSet, IndexExpr]] = []
    for piece in disjoint_pieces(s):
        n = fibre_count(piece, over)
        if n is not None:
            out.append((piece.project(outer), n))
        elif (parts := _one_by_one(piece, over)) is not None:
            for part in parts:
                terms = fibre_counts(part, over)
                if terms is None:
                    return None
                out += terms
        else:
            return None
    return out


FEW_VALUES = 9


def _one_by_one(p: PSet, over: Sequence[str]) -> list[PSet] | None:
    """The set cut by the values of one dimension that has few, whatever the parameters, or by its distance from one that
    is not of `over` (a diamond, column by column); None if there is none."""
    outer = [IndexExpr.of(e) for e in p.dims if e not in over]
    for away in (IndexExpr(), *outer):
        for d in over:
            value = IndexExpr.of(d) - away
            lo, hi = p.extend(("value",)).constrain(Formula.compare("value", CmpOp.EQ, value)).extent("value")
            if lo is not None and hi is not None and 0 < hi - lo < FEW_VALUES:
                parts = [p.constrain(Formula.compare(value, CmpOp.EQ, v)) for v in range(lo, hi + 1)]
                return [q for q in parts if not q.is_empty()]
    return None


def _fibre_count(s: PSet, over: Sequence[str], prefer: Sequence[IndexExpr]) -> IndexExpr | None:
    outer = [d for d in s.dims if d not in over]
    free: list[str] = []  # the others follow from them: projecting those out keeps the count
    for d in over:
        if s.express(IndexExpr.of(d), (*outer, *free)) is None:
            free.append(d)
    s = s.in_terms_of((*outer, *free)).project((*outer, *free)).in_terms_of(outer)
    product = _box_count(s, outer, free)
    if product is None:
        product = _nested_count(s, free)
    if product is None:
        return None
    base = s.project(outer)
    for p in prefer:
        if same_value(base, p, product):
            return p
    return product


def _box_count(s: PSet, outer: Sequence[str], over: Sequence[str]) -> IndexExpr | None:
    """The product of the extents, if the fibre is a box."""
    pieces = disjoint_pieces(s)
    if len(pieces) != 1:
        return None
    lengths: list[IndexExpr] = []
    exact = pieces[0].project(outer).extend(tuple(over))
    for d in over:
        got = interval(pieces[0], d, outer)
        if got is None or not got[1].is_true:
            return None
        exact = exact.constrain(Formula.compare(got[0].lo, "<=", d) & Formula.compare(d, "<=", got[0].hi))
        lengths.append(got[0].length)
    if not exact.reorder(s.dims) <= s:
        return None  # not a box
    product = IndexExpr.of(1)
    cases = [len(n.terms) > 1 and any(isinstance(a, MinMax) for a in n.atoms()) for n in lengths]
    for n, split in zip(lengths, cases, strict=True):
        # Where there is a point each length is at least 1: so written, the product stays one.
        product = product * (extremum(Extremum.MAX, (IndexExpr.of(1), n)) if split and sum(cases) > 1 else n)
    return product


def _nested_count(s: PSet, over: Sequence[str]) -> IndexExpr | None:
    """The count where it is a product, but the fibre is no box: dimension by dimension.

    A dimension is counted when the number of its values, for all others fixed, depends on `outer` alone: parallelograms,
    strides.  Where none is, several of them are replaced by one sum of multiples of them that tells their points apart:
    quotient and remainder by the number divided.
    """
    if not over:
        return IndexExpr.of(1)
    pieces = disjoint_pieces(s)
    if len(pieces) != 1:
        return None
    (p,) = pieces
    for d in over:
        rest = [e for e in over if e != d]
        n = _length(p, d)
        if n is not None and not n.names & set(over):
            m = _nested_count(p.project([e for e in p.dims if e != d]), rest)
            if m is not None:
                return n * m
    for together in _sums(p, over):
        names = together.names
        others = [e for e in p.dims if e not in names]
        new = f"sum {len(p.dims)}"  # their number falls from one such step to the next
        joint = p.extend((new,)).constrain(Formula.compare(new, CmpOp.EQ, together))
        if all(joint.express(IndexExpr.of(e), (*others, new)) is not None for e in names):
            return _nested_count(joint.project((*others, new)), [*(e for e in over if e not in names), new])
    return _count_of_numbers(p, over)


def _count_of_numbers(p: PSet, over: Sequence[str]) -> IndexExpr | None:
    """The count where neither the other dimensions nor any symbol matters: isl's own enumeration."""
    fibre = p.project(over).numeric()
    if any(fibre.involves(a) for a in fibre.params.values()) or not fibre.isl.is_bounded():
        return None
    outer = [d for d in p.dims if d not in over]
    if not (fibre.extend(p.dims).reorder(p.dims) & p.project(outer).extend(p.dims).reorder(p.dims)) <= p:
        return None
    return IndexExpr.of(fibre.isl.project_out_all_params().count_val().to_python())


def _length(p: PSet, d: str) -> IndexExpr | None:
    """The number of values of `d` for each value of the other dimensions of a convex set, strides taken out."""
    info = p.isl.get_stride_info(p.dims.index(d))
    stride = info.get_stride().to_python()
    if stride > 1:
        others = [e for e in p.dims if e != d]
        offset = FromIsl(p.dims, p.params).aff(info.get_offset())
        step = Formula.compare(d, CmpOp.EQ, IndexExpr.of("step") * stride + offset)
        p, d = p.extend(("step",)).constrain(step).project((*others, "step")), "step"
    got = interval(p, d, [e for e in p.dims if e != d])
    return got[0].length if got is not None and got[1].is_true else None


def _sums(p: PSet, over: Sequence[str]) -> list[IndexExpr]:
    """Sums of multiples of at least two dimensions of `over` that the constraints of a convex set bound."""
    found: dict[IndexExpr, None] = {}
    (piece,) = p.isl.compute_divs().get_basic_sets()
    for c in piece.get_constraints():
        e = IndexExpr()
        for d in over:
            at = p.dims.index(d)
            e = e + IndexExpr.of(d) * c.get_coefficient_val(DIM, at).to_python()
        if len(e.names) > 1 and e * -1 not in found:
            found[e] = None
    return list(found)


def sum_by_parts(domain: PSet, terms: Sequence[tuple[PSet, IndexExpr]]) -> list[tuple[PSet, IndexExpr]]:
    """The domain cut into parts on each of which the sum of the terms is one expression."""
    parts: list[tuple[PSet, IndexExpr]] = [(domain, IndexExpr())]
    for s, n in terms:
        new: list[tuple[PSet, IndexExpr]] = []
        for part, total in parts:
            inside = part & s
            if inside.is_empty():
                new.append((part, total))
            elif part <= s:
                new.append((part, total + n))
            else:
                new += [(inside.coalesce(), total + n), ((part - s).coalesce(), total)]
        parts = new
    return [(p, t) for p, t in parts if not p.is_empty()]
