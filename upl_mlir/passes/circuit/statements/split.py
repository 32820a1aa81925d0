"""Arrays of layers: where the size of a field depends on another one (`N[k]`), or what is read does, each value of that
other field gets an array, a port and an equation of its own.

The fields that are split are the least set such that no size, and no index along a field that is split, depends on any
other field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.passes.circuit.body import formula
from upl_mlir.passes.circuit.statements.specialise import Env, Specialiser, exists
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Part, Term, rewritten, walk
from upl_mlir.poly.counts.dense import bounding_box, mask
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Cons

MOST_PARTS = 256
"""Arrays into which one is split."""


@dataclass(eq=False)
class _Splitter:
    """`names`: of each equation, the fields and iterators that are split; `at`: of each array, the places of its fields."""

    p: LoopProgram
    names: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    at: dict[str, set[int]] = field(default_factory=dict[str, set[int]])

    def find(self) -> None:
        """Find what is split."""
        inputs = [h for h in self.p.hosts if not h.output]
        for h in inputs:
            self.at[h.name] = {h.fields.index(n) for c in h.cases for n in _inside(x.e for x in c) if n in h.fields}
        equations = self.p.system.equations.values()
        for eq in equations:
            self.names[eq.name] = set(_inside(_sizes(eq)))
            self.at[eq.name] = set()
        before = -1
        while before != (before := sum(map(len, (*self.names.values(), *self.at.values())))):
            for eq in equations:
                names = self.names[eq.name]
                for g in _gets(eq):
                    for n in self.at[g.array]:
                        names |= g.index[n].names
                self.at[eq.name] = {n for n, f in enumerate(eq.fields) if f in names}

    def done(self) -> LoopProgram:
        """The program with its arrays split."""
        system = self.p.system
        hosts = [piece for h in self.p.hosts for piece in self.host(h)]
        made = [piece for eq in system.equations.values() for piece in self.equation(eq)]
        kept = {h.name: (h.kind, h.fields, h.cases) for h in hosts if not h.output}
        places = {**self.p.places}
        for h in hosts:
            if h.whole is not None:
                places[h.name] = places.get(h.whole.name)
        for eq in system.equations.values():
            for at in self.values(eq.name, eq.fields, eq.domain):
                places[named(eq.name, at.values())] = self.p.places.get(eq.name)
        return replace(self.p, hosts=hosts, system=System(system.lin, {e.name: e for e in made}, kept), places=places)

    def values(self, array: str, fields: tuple[str, ...], domain: tuple[Cons, ...]) -> list[Env]:
        """The values of the fields of an array that are split, where it has elements."""
        split = [fields[n] for n in sorted(self.at[array])]
        if not split:
            return [{}]
        ctx = self.p.system.lin.ctx
        whole = Formula.any(map(formula, domain))
        box = bounding_box(ctx, fields, whole)
        inside = mask(ctx, fields, whole, box)
        others = tuple(n for n in range(len(fields)) if n not in self.at[array])
        found = np.argwhere(inside.any(axis=others))
        if len(found) > MOST_PARTS:
            message = f"`{array}` would become {len(found)} arrays, one for each value of {', '.join(split)}"
            raise error("UPL2005", message, self.p.places.get(array), help=f"at most {MOST_PARTS} are made")
        low = [box.lower[n] for n in sorted(self.at[array])]
        return [{f: int(x) + lo for f, x, lo in zip(split, row, low, strict=True)} for row in found]

    def host(self, h: Host) -> Iterator[Host]:
        """The ports in place of a port."""
        if not self.at[h.name]:
            yield h
            return
        keep = tuple(f for n, f in enumerate(h.fields) if n not in self.at[h.name])
        one = self.specialiser(frozenset())
        for at in self.values(h.name, h.fields, h.cases):
            cases = [c for c in (one.cons(c, at) for c in h.cases) if c is not None]
            declared = None if h.declared is None else _at(h.declared, at)
            yield Host(named(h.name, at.values()), h.kind, keep, declared, tuple(cases), h.output, h, at)

    def equation(self, eq: Equation) -> Iterator[Equation]:
        """The equations in place of an equation."""
        split = frozenset(self.names[eq.name])
        one = self.specialiser(split - set(eq.fields), eq)
        keep = tuple(f for f in eq.fields if f not in split)
        for at in self.values(eq.name, eq.fields, eq.domain):
            made = replace(eq, name=named(eq.name, at.values()), fields=keep, pieces=[])
            made.domain = tuple(c for c in (one.cons(c, at) for c in eq.domain) if c is not None)
            for where, term in eq.pieces:
                here = one.cons(where, at)
                if here is not None and exists(self.p.system.lin, here):
                    one.context = here
                    made.pieces.append((here, one.term(term, at)))
            if made.pieces:
                yield made

    def specialiser(self, fixed: frozenset[str], eq: Equation | None = None) -> Specialiser:
        """What rewrites the terms of an equation."""

        def array(name: str, index: tuple[IndexExpr, ...]) -> tuple[str, tuple[IndexExpr, ...]]:
            split = sorted(self.at[name])
            if not split:
                return name, index
            numbers = [index[n].constant for n in split]
            assert None not in numbers, f"{name}<{', '.join(map(str, index))}>"
            rest = tuple(e for n, e in enumerate(index) if n not in self.at[name])
            return named(name, [n for n in numbers if n is not None]), rest

        def values(p: Part, env: Env) -> Iterator[Env]:
            assert eq is not None
            split = [d for d in p.dims if d in fixed]
            if p.dims[: len(split)] != tuple(split):
                message = f"the gather of `{eq.name}` runs over `{p.dims[0]}` before `{split[0]}`, by which arrays are split"
                raise error("UPL2003", message, self.p.places.get(eq.name))
            ctx = self.p.system.lin.ctx
            cons = self.specialiser(frozenset()).cons(p.cons, env)
            if cons is None:
                return
            names = tuple(dict.fromkeys([*split, *(n for c in cons for n in sorted(c.e.names)), *p.dims]))
            box = bounding_box(ctx, names, formula(cons))
            for point in product(*(range(lo, lo + n) for lo, n in zip(box.lower, box.shape[: len(split)], strict=False))):
                yield dict(zip(split, point, strict=True))

        return Specialiser(self.p.system.lin, array, fixed, values)


def split(p: LoopProgram) -> LoopProgram:
    """The program with arrays of layers split.

    Raises UplError UPL2005 for too many arrays, UPL2003 for a gather that cannot be split.
    """
    found = _Splitter(p)
    found.find()
    return found.done()


def named(array: str, values: Iterable[int]) -> str:
    """What a piece of an array is called."""
    return ".".join([array, *(str(v).replace("-", "m") for v in values)])


def _at(f: Formula, at: Mapping[str, int]) -> Formula:
    return f.substitute({n: IndexExpr.of(v) for n, v in at.items()})


def _inside(found: Iterable[IndexExpr]) -> Iterator[str]:
    """The names in indices of arrays of constants (`N[k-1]`)."""
    for e in found:
        for entry in e.lookups():
            yield from entry.index.names


def _sizes(eq: Equation) -> Iterator[IndexExpr]:
    """What bounds the fields and iterators of an equation.  Conditions of pieces do not: they hold inside of the domain."""
    for cons in eq.domain:
        yield from (c.e for c in cons)
    for _, term in eq.pieces:
        for t, _ in walk(term):
            if isinstance(t, Fold):
                yield from (c.e for part in t.parts for c in part.cons)


def _gets(eq: Equation) -> Iterator[Get]:
    for _, term in eq.pieces:
        yield from (t for t, _ in walk(term) if isinstance(t, Get))


def forwarded(p: LoopProgram) -> LoopProgram:
    """The program without equations that only pass the elements of another array on: readers read of that one."""
    system = p.system
    source: dict[str, tuple[tuple[str, ...], Get]] = {}
    for eq in system.equations.values():
        if not eq.output and len(eq.pieces) == 1 and isinstance(eq.pieces[0][1], Get):
            source[eq.name] = eq.fields, eq.pieces[0][1]

    def get(g: Get) -> Get:
        while g.array in source:
            fields, of = source[g.array]
            values = dict(zip(fields, g.index, strict=True))
            g = replace(of, index=tuple(e.substitute(values) for e in of.index))
        return g

    memo: dict[Term, Term] = {}
    made: dict[str, Equation] = {}
    for eq in system.equations.values():
        if eq.name not in source:
            pieces = [(cons, rewritten(t, memo, get)) for cons, t in eq.pieces]
            made[eq.name] = replace(eq, pieces=pieces)
    return replace(p, system=System(system.lin, made, system.hosts)) if source else p
