# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# pyright: reportPrivateUsage=false
# (xDSL leaves the types of attributes and results open)
"""Arrows turned round: which source instance sends the token that a target instance gets.

The relation of an arrow (LANGUAGE 3.9) is solved for the source's fields and iterators.  For an ordinary input all of them
follow from the target's index; for a gather some stay free, and are what the sum runs over.

The question is about expressions: which element is read.  Elimination finds them in microseconds, and may err on the safe
side, as what is left open becomes a guard or a loop that runs in vain.  Only where it leaves a source open, exact sets are
asked (`express`).  An adjoint's arrows must be exact sets throughout: `passes/autodiff/reverse.py`.  Where the index is an
entry of a constant array, another array tells which one (`places.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import InputOp, NodeOp, Port, SendOp
from upl_mlir.dialects.upl.query import Endpoint, span_of
from upl_mlir.passes.analysis.relations import reached_by
from upl_mlir.poly.expr import Div, Formula, IndexExpr, Lookup, Var, divide
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import DivKind

MAX_NESTED = 6
"""How many divisions inside each other are taken apart."""


@dataclass(frozen=True, eq=False)
class PulledArrow:
    """An arrow with its ends; `at` is its place in text order, host inputs first."""

    at: int
    send: SendOp
    source: InputOp | NodeOp
    target: Endpoint
    port: Port

    @property
    def text(self) -> str:
        """The arrow's ends, for messages."""
        port = f".{self.port.name}" if isinstance(self.target, NodeOp) else ""
        return f"{self.source.symbol} -> {self.target.symbol}{port}"

    @property
    def unknowns(self) -> tuple[str, ...]:
        """The source's fields and the iterators, as names that clash with no field of the target."""
        return tuple(f"{f}'" for f in (*self.source.fields, *(it.name for it in self.send.loops)))


@dataclass(frozen=True, eq=False)
class Inverse:
    """An arrow solved for its source.

    `values` gives the source's fields and the iterators over the target's fields and the `free` unknowns (in the order of
    the fold: source index, iterators); `cases` say, over the same names, where there is a token: in one of them.
    """

    arrow: PulledArrow
    values: dict[str, IndexExpr]
    free: tuple[str, ...]
    cases: tuple[Cons, ...]


Places = Callable[[PulledArrow, Lookup, IndexExpr], IndexExpr | None]
"""At which index an array has a value, for an entry (over an arrow's unknowns) and that value (over the target's fields);
None if the arrow's tokens do not tell."""


class Solver:
    """Solves the index equations of one arrow."""

    def __init__(self, lin: Linear, arrow: PulledArrow, places: Places, *, ordered: bool):
        self.lin = lin
        self.arrow = arrow
        self.places = places
        self.ordered = ordered
        self.unknowns = list(arrow.unknowns)
        self.solved: dict[str, IndexExpr] = {}
        self.extra: list[Con] = []
        self.fresh = 0

    def unequal(self, more: Sequence[IndexExpr]) -> list[IndexExpr]:
        """The equations ``e == 0`` between the arrow's index and the target's fields, and `more` such."""
        send, names = self.arrow.send, self._names()
        out: list[IndexExpr] = []
        for field, e in zip(self.arrow.target.fields, send.index.data, strict=True):
            if e is not None:
                out.append(self.lin.plain(e).substitute(names) - IndexExpr.of(field))
        out += more
        for _ in range(MAX_NESTED):  # a quotient of a quotient needs one round for each
            before, out = out, self._divisions(out)
            if out == before:
                break
        return out

    def _names(self) -> dict[str, IndexExpr]:
        own = (*self.arrow.source.fields, *(it.name for it in self.arrow.send.loops))
        return {f: IndexExpr.of(u) for f, u in zip(own, self.arrow.unknowns, strict=True)}

    def _divisions(self, equations: list[IndexExpr]) -> list[IndexExpr]:
        """Equations with a quotient or remainder of unknowns as linear ones, with a further unknown for the other part."""
        parts: dict[tuple[IndexExpr, int], dict[DivKind, IndexExpr]] = {}
        out: list[IndexExpr] = []
        for e in equations:
            found = self._division(e)
            if found is None:
                out.append(e)
                continue
            div, n, value = found
            kinds = parts.setdefault((div.num, n), {})
            if div.kind in kinds:
                out.append(kinds[div.kind] - value)
            else:
                kinds[div.kind] = value
        for (num, n), kinds in parts.items():
            quotient = kinds[DivKind.FLOORDIV] if DivKind.FLOORDIV in kinds else self._unknown()
            rest = kinds[DivKind.MOD] if DivKind.MOD in kinds else self._unknown()
            self.extra += [Con(rest), Con(-rest + (n - 1))]
            out.append(num - quotient * n - rest)
        return out

    def _unknown(self) -> IndexExpr:
        self.fresh += 1
        name = f"q{self.fresh}'"
        self.unknowns.append(name)
        return IndexExpr.of(name)

    def _division(self, e: IndexExpr) -> tuple[Div, int, IndexExpr] | None:
        """The equation ``±(num / n) + rest == 0`` as (division, n, what it equals) if unknowns stand in the division."""
        for m, c in e.terms:
            if len(m) == 1 and isinstance(m[0], Div) and abs(c) == 1:
                div = m[0]
                n = self.lin.plain(div.den).constant
                if n is None or n <= 0 or not (div.num.names & set(self.unknowns)):
                    continue
                if div.kind is DivKind.CEILDIV:
                    div = Div(DivKind.FLOORDIV, div.num + (n - 1), div.den)
                return div, n, (e - IndexExpr.of(m[0]) * c) * -c
        return None

    def conditions(self) -> list[Cons]:
        """Where the source sends: its domain, the arrow's conditions, the iterators' bounds; a list of cases."""
        source, send, lin = self.arrow.source, self.arrow.send, self.lin
        domain = source.domain or source.declared
        parts = [domain.data] if domain else []
        bounds = [Formula.compare(it.lo, "<=", it.name) & Formula.compare(it.name, "<=", it.hi) for it in send.loops]
        whole = Formula.all((*parts, send.when, *bounds, send.when_point))
        names = self._names()
        return [tuple(c.substitute(names) for c in case) for case in lin.cases(whole)]

    def divided(self, cases: Sequence[Cons]) -> list[IndexExpr]:
        """The equations ``e == 0`` of all cases that give a quotient or a remainder: the index may give the other part."""
        found = dict.fromkeys(c.e for case in cases for c in case if c.eq and all(c in other for other in cases))
        return [e for e in found if self._division(e) and sum(isinstance(a, Div) for a in e.atoms()) == 1]

    def solve(self, more: Sequence[IndexExpr] = ()) -> tuple[list[Con], list[str]]:
        """Solve for as many unknowns as there are equations, `more` (``e == 0``) among them.

        Returns what else must hold, and the unknowns left.
        """
        equations = self.unequal(more)
        left: list[Con] = list(self.extra)
        while equations:
            e = equations.pop(0)
            at = self._pick(e)
            if at is not None:
                name, value, rest = self._isolated(e, *at)
                left += rest
            elif any(self._pick(q) for q in equations):
                equations.append(e)  # what others solve may tell
                continue
            elif (entry := self._entry(e)) is not None:
                name, value = entry
                left.append(Con(e, True))  # it is one of the array
            else:
                if e.constant != 0:
                    left.append(Con(e, True))
                continue
            self._set(name, value)
            equations = [q.substitute({name: value}) for q in equations]
            left = [q.substitute({name: value}) for q in left]
        return left, [u for u in self.unknowns if u not in self.solved]

    @staticmethod
    def _isolated(e: IndexExpr, name: str, c: int) -> tuple[str, IndexExpr, list[Con]]:
        """The equation ``e == 0`` solved for a name with the coefficient `c`: its value, and what must hold beside it."""
        rest = e - IndexExpr.of(name) * c
        if abs(c) == 1:
            return name, rest * -c, []
        n = IndexExpr.of(abs(c))
        top = rest if c < 0 else -rest
        return name, divide(DivKind.FLOORDIV, top, n), [Con(divide(DivKind.MOD, top, n), True)]

    def _entry(self, e: IndexExpr) -> tuple[str, IndexExpr] | None:
        """The unknown u in an equation ``±array[±u + …] + … == 0``, and what it is, if the entries tell their places."""
        open_ = set(self.unknowns) - self.solved.keys()
        found = [(a, c) for m, c in e.terms for a in m if len(m) == 1 and isinstance(a, Lookup) and a.index.names & open_]
        if len(found) != 1 or abs(found[0][1]) != 1:
            return None
        entry, c = found[0]
        rest = e - IndexExpr.of(entry) * c
        names = ((m[0], k) for m, k in entry.index.terms if len(m) == 1)
        inner = [(v.name, k) for v, k in names if isinstance(v, Var) and v.name in open_]
        if len(inner) != 1 or abs(inner[0][1]) != 1:
            return None
        (name, k), value = inner[0], rest * -c
        around = entry.index - IndexExpr.of(name) * k
        if (rest.names | around.names) & open_ or (place := self.places(self.arrow, entry, value)) is None:
            return None
        return name, (place - around) * k

    def _set(self, name: str, value: IndexExpr) -> None:
        self.solved = {k: v.substitute({name: value}) for k, v in self.solved.items()} | {name: value}

    def _pick(self, e: IndexExpr) -> tuple[str, int] | None:
        """The unknown to solve an equation for: the last one, so that those left run in the order of the fold."""
        found: list[tuple[str, int]] = []
        hidden = {n for m, _ in e.terms if len(m) > 1 or not isinstance((*m, None)[0], Var) for a in m
                  for n in IndexExpr.of(a).names}  # fmt: skip
        for m, c in e.terms:
            if len(m) == 1 and isinstance(m[0], Var) and m[0].name in self.unknowns and m[0].name not in hidden:
                found.append((m[0].name, c))
        found.sort(key=lambda f: self.unknowns.index(f[0]))
        if not found:
            return None
        unit = [f for f in found if abs(f[1]) == 1]
        return unit[-1] if unit and (not self.ordered or unit[-1] == found[-1]) else found[-1]

    def determine(self, cases: list[Cons], free: list[str]) -> None:
        """Solve for unknowns that inequalities pin down: ``-a <= c*u <= b`` with less than `c` between."""
        for u in list(free):
            values = {self._pinned(case, u, free) for case in cases}
            value = values.pop() if len(values) == 1 else None
            if value is not None:
                self._set(u, value)
                free.remove(u)
                cases[:] = [tuple(c.substitute({u: value}) for c in case) for case in cases]

    def _pinned(self, case: Cons, u: str, free: Sequence[str]) -> IndexExpr | None:
        others = {f for f in free if f != u}
        lows: list[tuple[int, IndexExpr]] = []
        highs: list[tuple[int, IndexExpr]] = []
        for c in case:
            k = next((k for m, k in c.e.terms if m == (Var(u),)), 0)
            rest = c.e - IndexExpr.of(u) * k
            if not k or u in rest.names or rest.names & others:
                continue
            if c.eq or k > 0:
                lows.append((abs(k), rest if k > 0 else -rest))
            if c.eq or k < 0:
                highs.append((abs(k), rest if k < 0 else -rest))
        for k, a in lows:  # k*u + a >= 0
            for n, b in highs:  # k*u <= b
                gap = (a + b).constant
                if k == n and gap is not None and gap < k:
                    return divide(DivKind.FLOORDIV, b, IndexExpr.of(k))
        if any(u in entry.index.names for c in case for entry in c.e.lookups()):  # an entry at u may bound it as well
            for ends, sign in ((lows, -1), (highs, 1)):
                for k, a in ends:
                    if k == 1 and self.lin.implies(case, Con((a * sign - IndexExpr.of(u)) * -sign)):
                        return a * sign
        return None


def invert(
    lin: Linear, arrow: PulledArrow, *, ordered: bool, express: Callable[[PulledArrow, str], IndexExpr | None],
    context: Sequence[Cons], places: Places,
) -> list[Inverse]:
    """The arrow solved for its source: once, or an ordinary input's for each case of the source's conditions that is
    solved by what holds there.  `context` are the cases of the target's domain.

    Raises UplError (UPL1822) if an ordinary input's source does not follow from its index.
    """
    ordered = ordered and arrow.port.gather is not None  # one token has no order
    solver = Solver(lin, arrow, places, ordered=ordered)
    left, free = solver.solve()
    conditions = solver.conditions()
    if free and (more := solver.divided(conditions)):
        again = Solver(lin, arrow, places, ordered=ordered)
        found, fewer = again.solve(more)
        if len(fewer) < len(free):
            solver, left, free = again, found, fewer
    cases = [tuple(q.substitute(solver.solved) for q in (*left, *case)) for case in conditions]
    solver.determine(cases, free)
    if arrow.port.gather is not None or not free:
        return [_inverse(lin, arrow, solver, free, _possible(lin, cases, context))]
    for u in list(free):
        if u in arrow.unknowns and (value := express(arrow, u)) is not None:
            solver._set(u, lin.plain(value))
            free.remove(u)
            cases = [tuple(c.substitute({u: solver.solved[u]}) for c in case) for case in cases]
    if not free:
        return [_inverse(lin, arrow, solver, free, _possible(lin, cases, context))]
    each = _by_case(lin, arrow, context, places)
    if each is None:
        unknown = free[0].removesuffix("'")
        told = [f"`{e}`" for e in arrow.send.index.data if e is not None and unknown in e.names]
        raise error(
            "UPL1822",
            f"the arrow {arrow.text} cannot be turned round: `{unknown}` does not follow from "
            + (f"{', '.join(told)} of its index" if told else "the index of its target" + reached_by(arrow.source)),
            span_of(arrow.send),
            help='use engine="interp" or "token", which move tokens',
        )
    return each


def _by_case(lin: Linear, arrow: PulledArrow, context: Sequence[Cons], places: Places) -> list[Inverse] | None:
    """An ordinary input's arrow solved for its source in each case by itself, with the equations that hold there; None if
    one is left open."""
    out: list[Inverse] = []
    for case in Solver(lin, arrow, places, ordered=False).conditions():
        solver = Solver(lin, arrow, places, ordered=False)
        left, free = solver.solve([c.e for c in case if c.eq])
        cases = [tuple(q.substitute(solver.solved) for q in (*left, *case))]
        solver.determine(cases, free)
        kept = _possible(lin, cases, context)
        if kept and free:
            return None
        if kept:
            out.append(_inverse(lin, arrow, solver, free, kept))
    return out


def _possible(lin: Linear, cases: Sequence[Cons], context: Sequence[Cons]) -> list[Cons]:
    """The cases that the context leaves possible, without what it says already."""
    kept: list[Cons] = []
    for case in cases:
        case = lin.tidy(case)
        possible = [c for c in context if lin.feasible((*c, *case))]
        if possible:
            kept.append(lin.minimal(case, possible[0]) if len(possible) == 1 and len(context) == 1 else case)
    return kept


def _inverse(lin: Linear, arrow: PulledArrow, solver: Solver, free: Sequence[str], cases: Sequence[Cons]) -> Inverse:
    names = (*arrow.source.fields, *(it.name for it in arrow.send.loops))
    values = {f: solver.solved.get(u, IndexExpr.of(u)) for f, u in zip(names, arrow.unknowns, strict=True)}
    return Inverse(arrow, values, tuple(free), tuple(disjoint(lin, cases)))


def disjoint(lin: Linear, cases: Sequence[Cons]) -> list[Cons]:
    """The same union as disjoint cases."""
    out: list[Cons] = []
    for case in cases:
        parts = [case]
        for before in out[:]:
            parts = [q for p in parts for q in subtract(lin, p, before)]
        out += parts
    return out


def union(lin: Linear, a: Cons, b: Cons, exists: Callable[[Cons], bool] | None = None) -> Cons | None:
    """Two cases as one; None if together they are none.  `exists` proves by sets that constraints have no point: where
    remainders come in, as in two cases of even and odd numbers, these questions alone do not."""
    plain = [[Con(k) for c in x for k in ((c.e, -c.e) if c.eq else (c.e,))] for x in (a, b)]
    both = [c for mine, other in ((plain[0], b), (plain[1], a)) for c in mine if lin.implies(other, c)]
    for rest in subtract(lin, tuple(dict.fromkeys(both)), a):
        for outside in ((*rest, n) for c in b if not lin.implies(rest, c) for n in c.negated()):
            if lin.feasible(outside) and (exists is None or exists(outside)):
                return None
    return lin.minimal(both)


def subtract(lin: Linear, a: Cons, b: Cons) -> list[Cons]:
    """What is in `a` and not in `b`, as disjoint cases."""
    if not lin.feasible((*a, *b)):
        return [a]
    out: list[Cons] = []
    held = a
    for c in b:
        if c in a:
            continue
        out += [(*held, n) for n in c.negated() if lin.feasible((*held, n))]
        held = (*held, c)
    return out
