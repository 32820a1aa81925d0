"""What is known of the parts of expressions that are not quasi-affine: facts, and the same part in other words.

isl sees an unknown number for ``i mod q`` or ``i*j`` (`convert.Opaque`).  The facts here are affine in that number, so isl
can use them: the sign of a product, the range of a remainder, that equal operands give equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import cast

from upl_mlir.poly.convert import Opaque
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Var, divide
from upl_mlir.poly.operators import CmpOp, DivKind


def convex_facts(part: Opaque, positive: Callable[[IndexExpr], bool]) -> Iterator[Formula]:
    """What holds everywhere; `positive` proves that an expression of parameters is at least 1."""
    match part.index.terms:
        case (((Div(DivKind.MOD, _, den),), 1),) if positive(den):
            yield Formula.compare(0, CmpOp.LE, part.index)
            yield Formula.compare(part.index, CmpOp.LT, den)
        case ((m, 1),) if len(m) % 2 == 0 and all(m.count(a) % 2 == 0 for a in m):
            yield Formula.compare(0, CmpOp.LE, part.index)
            for a in (IndexExpr.of(m[0]), -IndexExpr.of(m[0])) if len({*m}) == 1 and isinstance(m[0], Var) else ():
                yield Formula.compare(part.index, CmpOp.GE, a)  # an even power of an integer is at least its absolute value
        case _:
            pass


def is_quotient(part: Opaque) -> bool:
    """Whether a part is a single division or remainder, ``i mod q``."""
    ((m, _),) = part.index.terms
    return len(m) == 1 and isinstance(m[0], Div)


def facts(part: Opaque, others: Sequence[Opaque]) -> Iterator[Formula]:
    """What holds of a part by cases, alone and beside others."""
    e = part.index
    ((m, _),) = e.terms
    if is_quotient(part):
        yield from _of_division(e, cast(Div, m[0]))
    elif len(m) == 2:
        yield from _of_product(e, IndexExpr.of(m[0]), IndexExpr.of(m[1]))
    for o in others:
        if (same := _same_operands(part, o)) is not None:
            yield Formula.any((*(f.negate() for f in same), Formula.compare(e, CmpOp.EQ, o.index)))


def _of_division(e: IndexExpr, d: Div) -> Iterator[Formula]:
    low, high = Formula.compare(0, CmpOp.LE, d.num), Formula.compare(d.num, CmpOp.LT, d.den)
    sound = Formula.compare(d.den, CmpOp.GE, 1)
    unsound = sound.negate()
    below = low.negate()
    match d.kind:
        case DivKind.MOD:
            yield unsound | (Formula.compare(0, CmpOp.LE, e) & Formula.compare(e, CmpOp.LT, d.den))
            yield unsound | below | high.negate() | Formula.compare(e, CmpOp.EQ, d.num)
            yield unsound | below | Formula.compare(e, CmpOp.LE, d.num)
        case DivKind.FLOORDIV:
            yield unsound | below | (Formula.compare(0, CmpOp.LE, e) & Formula.compare(e, CmpOp.LE, d.num))
            yield unsound | low | (Formula.compare(d.num, CmpOp.LE, e) & Formula.compare(e, CmpOp.LT, 0))
            yield unsound | below | high.negate() | Formula.compare(e, CmpOp.EQ, 0)
        case DivKind.CEILDIV:
            yield unsound | below | (Formula.compare(0, CmpOp.LE, e) & Formula.compare(e, CmpOp.LE, d.num))


def _of_product(e: IndexExpr, a: IndexExpr, b: IndexExpr) -> Iterator[Formula]:
    def at_least(x: IndexExpr, n: int) -> Formula:
        return Formula.compare(x, CmpOp.GE, n)

    if a == b:
        yield Formula.compare(e, CmpOp.GE, a) & Formula.compare(e, CmpOp.GE, -a)
        return
    for x, y in ((a, b), (b, a)):
        yield Formula.compare(x, CmpOp.NE, 0) | Formula.compare(e, CmpOp.EQ, 0)
        yield Formula.compare(x, CmpOp.NE, 1) | Formula.compare(e, CmpOp.EQ, y)
        yield at_least(x, 1).negate() | at_least(y, 0).negate() | Formula.compare(e, CmpOp.GE, y)
    yield at_least(a, 0).negate() | at_least(b, 0).negate() | at_least(e, 0)


def _same_operands(a: Opaque, b: Opaque) -> list[Formula] | None:
    """The equations under which two parts of one form are equal; None for different forms."""
    ((m, _),), ((n, _),) = a.index.terms, b.index.terms
    if len(m) != len(n):
        return None
    out: list[Formula] = []
    for x, y in zip(m, n, strict=True):
        if isinstance(x, Div) and isinstance(y, Div) and x.kind is y.kind:
            pairs = [(x.num, y.num), (x.den, y.den)]
        elif len(m) > 1:
            pairs = [(IndexExpr.of(x), IndexExpr.of(y))]
        else:
            return None
        out += [Formula.compare(p, CmpOp.EQ, q) for p, q in pairs if p != q]
    return out


def restated(
    e: IndexExpr, gone: Collection[str], express: Callable[[IndexExpr], IndexExpr | None]
) -> IndexExpr | None:
    """A part with its operands in terms of other names than `gone`; None where `express` does not know one of them."""
    ((m, _),) = e.terms
    out = IndexExpr.of(1)
    for atom in m:
        factor: IndexExpr | None = IndexExpr.of(atom)
        if factor.names & set(gone):
            if isinstance(atom, Div):
                num, den = express(atom.num), express(atom.den)
                factor = None if num is None or den is None else divide(atom.kind, num, den)
            else:
                factor = express(factor)
        if factor is None:
            return None
        out = out * factor
    return out


def with_value(e: IndexExpr, atom: Atom, value: int) -> IndexExpr:
    """The part where an atom inside has a known value."""
    return e.rewrite(lambda a: IndexExpr.of(value) if a == atom else None)


def parts_of(e: IndexExpr) -> list[Var]:
    """The names in a part of which one value makes it simpler: divisors first, then factors."""
    ((m, _),) = e.terms
    names: dict[str, None] = {}
    for a in m:
        if isinstance(a, Div):
            names |= dict.fromkeys(sorted(a.den.names))
    names |= dict.fromkeys(sorted(e.names))
    return [Var(n) for n in names]
