"""Index polynomials as products, for readers: `(m-2)*(n-2)` in the place of `m*n-2*m-2*n+4`.

A polynomial is divided among sets of atoms that do not mix.  P is the product of a polynomial with x and one with y just if
P * P_xy == P_x * P_y, where P_x is the derivative by x.  The product is multiplied out again before it is shown, so a text
that is shown always means the same polynomial.
"""

from __future__ import annotations

from math import gcd, prod

from upl_mlir.poly.expr import Atom, IndexExpr, Monomial

MOST_TERMS, MOST_ATOMS = 64, 10
"""Longer polynomials are left as they are."""


def factored(e: IndexExpr) -> str:
    """The text of a polynomial, as a product where that is not longer."""
    plain = str(e)
    atoms = list(dict.fromkeys(a for m, _ in e.terms for a in m))
    if not 2 <= len(e.terms) <= MOST_TERMS or len(atoms) > MOST_ATOMS:
        return plain
    factors = _factors(e, atoms)
    if len(factors) < 2 or prod(factors, start=IndexExpr.of(1)) != e:
        return plain
    text = "*".join(f.text(1) for f in factors)
    return text if len(text) <= len(plain) else plain


def _factors(e: IndexExpr, atoms: list[Atom]) -> list[IndexExpr]:
    """Polynomials of which the product should be this one."""
    content = gcd(*(c for _, c in e.terms))
    common = tuple(a for a in atoms for _ in range(min(m.count(a) for m, _ in e.terms)))
    rest = IndexExpr.sum_of({_without(m, common): c // content for m, c in e.terms})
    own = IndexExpr.sum_of({common: content})
    parts = _parts(rest, atoms)
    first, _ = rest.terms[0]
    factors: list[IndexExpr] = []
    for part in parts:
        outside = tuple(a for a in first if a not in part)
        terms = {
            tuple(a for a in m if a in part): c for m, c in rest.terms if tuple(a for a in m if a not in part) == outside
        }
        by = gcd(*terms.values())
        factors.append(_upright(IndexExpr.sum_of({m: c // by for m, c in terms.items()})))
    if prod(factors, start=IndexExpr.of(1)) == -rest:
        factors[-1] = -factors[-1]
    return [*([own] if own.constant != 1 else []), *factors]


def _upright(e: IndexExpr) -> IndexExpr:
    """A polynomial or its negative: the one with fewer minus signs, or that begins without one."""
    negative = sum(c < 0 for _, c in e.terms)
    return -e if 2 * negative > len(e.terms) or (2 * negative == len(e.terms) and e.terms[0][1] < 0) else e


def _parts(e: IndexExpr, atoms: list[Atom]) -> list[set[Atom]]:
    """The atoms, those together that are in one factor."""
    parts: list[set[Atom]] = []
    for x in (a for a in atoms if any(a in m for m, _ in e.terms)):
        by_x = _derivative(e, x)
        mixed = [p for p in parts if any(e * _derivative(by_x, y) != by_x * _derivative(e, y) for y in p)]
        parts = [*(p for p in parts if p not in mixed), {x}.union(*mixed)]
    return sorted(parts, key=lambda part: min(map(atoms.index, part)))


def _derivative(e: IndexExpr, by: Atom) -> IndexExpr:
    out: dict[Monomial, int] = {}
    for m, c in e.terms:
        if by in m:
            rest = _without(m, (by,))
            out[rest] = out.get(rest, 0) + c * m.count(by)
    return IndexExpr.sum_of(out)


def _without(m: Monomial, taken: Monomial) -> Monomial:
    left = list(m)
    for a in taken:
        left.remove(a)
    return tuple(left)
