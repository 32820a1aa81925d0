"""Iterators of folds: those that follow from others, bounds of several cases, and folds of few summands.

    S<i> = + over a in max(1,i-1)..min(n-2,i+1) of X<a>
    ->
    S<i> = X<i-1> + X<i> + X<i+1>  where 2 <= i <= n-3;  S<i> = X<1> + X<2>  where i == 1;  …

Between two of its bounds such a fold has few values, whatever the element.  It is written out.  What else bounds it are
conditions on the element then, by which the domain is cut.  So the loop round it, over neighbouring elements, may become one
of vectors.

Source: index set splitting (Griebl, Feautrier, Lengauer 2000).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from upl_mlir.poly.expr import Div, IndexExpr, Var, divide, extremum
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import DivKind, Extremum

MOST = 5
"""An iterator of more values keeps its loop. Chosen, not measured: such stencils reach two elements far."""
SUMMANDS = 27
"""Folds of more summands keep their loops. Chosen, not measured: a cube of three by three by three."""


def here(lin: Linear, cons: Cons, values: Mapping[str, IndexExpr]) -> Cons:
    """Constraints with names replaced, without those that are true of numbers."""
    new = dict(values)
    return lin.tidy(c.substitute(new) for c in cons)


def determined(lin: Linear, dims: tuple[str, ...], case: Cons) -> tuple[tuple[str, ...], Cons, dict[str, IndexExpr]]:
    """Iterators that an equality gives by earlier ones are none: the others, the constraints, and their values."""
    fixed: dict[str, IndexExpr] = {}
    case = settled_quotients(lin, case)
    for c in case:
        e = lin.plain(c.e.substitute(fixed))
        found = [(m[0].name, k) for m, k in e.terms if len(m) == 1 and isinstance(m[0], Var) and m[0].name in dims]
        if not c.eq or not found:
            continue
        name, k = max(found, key=lambda f: dims.index(f[0]))
        value = (e - IndexExpr.of(name) * k) * -k
        if abs(k) == 1 and name not in value.names:
            fixed = {f: v.substitute({name: value}) for f, v in fixed.items()} | {name: value}
    if not fixed:
        return dims, case, fixed
    return tuple(d for d in dims if d not in fixed), here(lin, case, fixed), fixed


def settled_quotients(lin: Linear, case: Cons) -> Cons:
    """Constraints with quotients and remainders by numbers replaced by what the others say they are.

        25*c <= r <= 25*c + 24,  r == 5*i + j + 25*(r floordiv 25)    ->    25*c <= r <= 25*c + 24,  r == 5*i + j + 25*c
    """
    for a in dict.fromkeys(a for c in case for a in c.e.atoms()):
        d = a.den.constant if isinstance(a, Div) and a.kind in (DivKind.FLOORDIV, DivKind.MOD) else None
        if not isinstance(a, Div) or d is None or d < 2:
            continue
        free = tuple(c for c in case if a not in c.e.atoms())  # these stay, so they may settle it
        for c in free:
            low = a.num - c.e  # at most the number that is divided
            if a in low.atoms() or any(k % d for _, k in low.terms) or not lin.implies(free, Con(low + (d - 1) - a.num)):
                continue
            q = divide(DivKind.FLOORDIV, low, IndexExpr.of(d))
            case = _replaced(lin, case, a, q if a.kind is DivKind.FLOORDIV else a.num - q * d)
            break
    return case


def _replaced(lin: Linear, case: Cons, a: Div, value: IndexExpr) -> Cons:
    """Constraints with another value for a quotient or a remainder."""
    return lin.tidy(Con(lin.plain(c.e.rewrite(lambda x: value if x == a else None)), c.eq) for c in case)


def without(lin: Linear, cons: Cons, names: Collection[str]) -> Cons:
    """What constraints say where some names are left out: those that do not ask for them, and that they have values."""
    kept, mine = [c for c in cons if not c.e.names & {*names}], tuple(c for c in cons if c.e.names & {*names})
    kept += [c for c in (lin.project(mine, names) if mine else ()) if not lin.implies(kept, c)]
    return tuple(kept)


def common(lin: Linear, cases: Sequence[Cons], at: Cons) -> Cons:
    """The constraints of some cases that all of them satisfy."""
    every = dict.fromkeys(c for case in cases for c in case)
    return tuple(c for c in every if all(lin.implies((*at, *case), c) for case in cases))


def hull(lin: Linear, cases: Sequence[Cons], dims: Sequence[str], at: Cons, fields: Collection[str]) -> Cons:
    """Constraints that all cases satisfy, with bounds for the iterators by `fields`, where all cases have some."""
    out = list(common(lin, cases, at))
    for d in dims:
        found = [lin.limits(lin.project((*at, *case), [o for o in dims if o != d]), d, fields) for case in cases]
        x = IndexExpr.of(d)
        if all(low for low, _ in found):
            out.append(Con(x - extremum(Extremum.MIN, (extremum(Extremum.MAX, low) for low, _ in found))))
        if all(high for _, high in found):
            out.append(Con(extremum(Extremum.MAX, (extremum(Extremum.MIN, high) for _, high in found)) - x))
    return lin.minimal(out, at)


def few(lin: Linear, dims: Sequence[str], case: Cons) -> list[IndexExpr] | None:
    """Values of the first of some iterators under the constraints `case`, all others impossible; None for a fold that may
    have many summands, and for one whose iterators are between numbers (products choose their loops themselves)."""
    values: list[IndexExpr] | None = None
    summands = 1
    for n, d in enumerate(dims):
        cons = lin.project(case, dims[n + 1 :]) if dims[n + 1 :] else case
        lows, highs = lin.limits(cons, d, {m for c in cons for m in c.e.names} - {d})
        apart = [(lin.plain(high - low).constant, low) for low in lows for high in highs if low.names]
        sizes = [(size + 1, low) for size, low in apart if size is not None and 0 <= size < MOST]
        if not sizes:
            return None
        size, low = min(sizes, key=lambda s: s[0])
        summands *= size
        if summands > SUMMANDS:
            return None
        if values is None:
            values = [low + k for k in range(size)]
    return values


def thin_piece(lin: Linear, at: Cons, fields: Sequence[str]) -> bool:
    """Whether a piece of a domain has but one or two values of the last field, along which loops become vectors, or holds at
    one value of a parameter."""
    if not fields:
        return True
    if any(None not in (ends := lin.bounds(at, IndexExpr.of(p))) and ends[0] == ends[1] for p in lin.ctx.params):
        return True
    cons = lin.project(at, fields[:-1])
    lows, highs = lin.limits(cons, fields[-1], ())
    return any((n := lin.plain(high - low).constant) is not None and n < 2 for low in lows for high in highs)
