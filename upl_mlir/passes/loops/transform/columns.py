# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Folds down the columns of arrays as running folds, so that arrays are read along their rows, in vectors.

    B<s> = max over r in 0..n-1 of  A<r> + M<r,s>
    ->
    B:down1<r,s> = -inf                                where r == -1
                 = max(B:down1<r-1,s>, A<r> + M<r,s>)  where 0 <= r < n
    B<s>         = B:down1<n-1,s>

The loop over `r` is then outside of the one over `s`, whose neighbours are neighbours in memory, and the running folds take
a row.  Where a loop along `r` makes arrays that the summands read, as that over time does, it is outside of all others, and
the running folds take a step of it: each step reads what is at hand.  Summands come in their order, so that the bits of
`ordered` code stay; in `relaxed` code they come as that loop makes what they read, downwards in an adjoint.  Sums of
products that become contractions are left alone: those choose their loops themselves.

Source: loop interchange by the cost of strides (Allen and Kennedy 1984).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.matches import taken
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Part, Term, inner_first, made_of, remade
from upl_mlir.passes.loops.transform.products import is_sum_of_products
from upl_mlir.passes.loops.transform.running import Rings, Run, run_along
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Cons

DOWN = ":down"
"""What the names of running folds have behind that of the array."""
OVER = ":over"
"""The same for those whose steps are the outermost loop's."""
SHORT = 16
"""Columns that are known to have no more elements are folded as they are. Chosen, not measured."""
NARROW = 4
"""Rows that are known to have no more elements are no reason to go along them. Chosen, not measured."""


class Columns:
    """Replaces folds in a system."""

    def __init__(self, system: System, short: int = SHORT, *, ordered: bool = False):
        self.system, self.lin, self.short, self.ordered = system, system.lin, short, ordered
        self._rings = Rings(system)

    def replace(self) -> bool:
        """Change the system; whether there was such a fold."""
        before = len(self.system.equations)
        for eq in list(self.system.equations.values()):
            self._eq, self._count = eq, 0
            eq.pieces = [(cons, self._new(term, cons)) for cons, term in eq.pieces]
        return len(self.system.equations) > before

    def _new(self, whole: Term, cons: Cons) -> Term:
        """A term with the folds outside of others replaced."""
        memo: dict[Term, Term] = {}
        for t in inner_first(whole, lambda t: () if isinstance(t, Fold) else made_of(t)):
            memo[t] = self._down(t, cons) if isinstance(t, Fold) else remade(t, memo, lambda g: g)
        return memo[whole]

    def _down(self, t: Fold, cons: Cons) -> Fold:
        """A fold that runs down columns, if that is worth it; else as it is."""
        if len(t.parts) != 1 or is_sum_of_products(t) or t.kind.format is not None:
            return t
        (p,) = t.parts
        if t.kind is Kind.INT and t.gather.rounds:  # an overflow is noted where it is
            return t
        if len(p.dims) != 1 or p.guards or taken(t, p, (*p.dims, *self._eq.fields))[1]:
            return t
        (d,) = p.dims
        if any(isinstance(x, Fold) for x in inner_first(p.body, made_of)) or self._few((*cons, *p.cons), d, self.short):
            return t
        for f in self._eq.fields:
            if self._gain(p, d, f) > 0 and not self._few(cons, f, NARROW):
                self._count += 1
                found = run_along(self.system, self._run(p, d, f), t, p, self._eq.fields, cons)
                return t if found is None else replace(t, parts=(found,))
        return t

    def _run(self, p: Part, d: str, f: str) -> Run:
        """How a fold runs along an iterator and takes rows along a field."""
        others = tuple(x for x in self._eq.fields if x != f)
        signs = {self._made(g, d, others) for g in _reads(p.body)} - {0}
        if not signs:
            return Run(f"{self._eq.name}{DOWN}{self._count}", (*others, d, f))
        sign = -1 if -1 in signs and not self.ordered else 1
        return Run(f"{self._eq.name}{OVER}{self._count}", (d, *others, f), sign=sign)

    def _made(self, g: Get, d: str, others: Collection[str]) -> int:
        """Whether a loop upwards (1) or downwards (-1) along the iterator makes an array of which each step is read for all
        others."""
        if g.array not in self.system.equations or any(e.names & set(others) for e in g.index):
            return 0
        at = next((i for i, e in enumerate(g.index) if _steps(e, d)), None)
        return 0 if at is None else self._rings.sign(g.array, at)

    def _gain(self, p: Part, d: str, f: str) -> int:
        """How many more arrays are read in neighbouring places along a field than along the iterator."""
        along = 0
        for g in _reads(p.body):
            last, names = g.index[-1], {n for e in g.index[:-1] for n in e.names}
            if d in names and _steps(last, f) and d not in last.names:
                along += 1
            elif f in names:
                along -= 1
        return along

    def _few(self, cons: Cons, name: str, most: int) -> bool:
        lo, hi = self.lin.bounds(cons, IndexExpr.of(name))
        return lo is not None and hi is not None and hi - lo < most


def _reads(body: Term) -> Iterator[Get]:
    """The elements that a summand reads of arrays of more than one field."""
    return (g for g in inner_first(body, made_of) if isinstance(g, Get) and len(g.index) > 1)


def _steps(e: IndexExpr, name: str) -> bool:
    """Whether an index goes up or down by one as a name goes up by one."""
    k = dict(e.terms).get((Var(name),), 0)
    return k in (1, -1) and name not in (e - IndexExpr.of(name) * k).names


def kept_whole(p: LoopProgram) -> bool:
    """Whether some running fold keeps more than two of its steps in memory: its loops are not nested as they should be."""
    columns: list[tuple[Equation, int]] = [
        (eq, 0 if OVER in n else len(eq.fields) - 2)
        for n, eq in p.system.equations.items()
        if (DOWN in n or OVER in n) and not n.endswith(".all")
    ]
    return any(x.at == at and x.modulus is None for eq, at in columns for x in p.kept[eq.name].axes)
