"""Strips: a field as blocks of so many values, which a loop passes block by block.

    Y<i> = f(S<i>)    ->    Y<i_block, i_lane> = f(S<16*i_block + i_lane>)        for strips of 16

A process of one lane in strips takes the results of an array of lanes in the order in which they take turns.
Source: strip mining (Loveman 1977).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from upl_mlir.passes.build import unused
from upl_mlir.passes.circuit.statements.specialise import Specialiser
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Term, rewritten, walk
from upl_mlir.poly.expr import IndexExpr, divide
from upl_mlir.poly.linear import Con, Cons
from upl_mlir.poly.operators import DivKind


def strips(p: LoopProgram, wanted: Mapping[str, Sequence[tuple[str, int, int]]]) -> LoopProgram:
    """The program with fields of some arrays in strips: by array each field, its least value, and the values of a strip.

    Arrays of host ports stay as they are: what computes them gets an array of its own."""
    system = p.system
    found: dict[str, Equation] = {}
    outputs = {h.name for h in p.hosts if h.output}
    renamed: dict[str, str] = {}
    for eq in system.equations.values():
        if not wanted.get(eq.name):
            found[eq.name] = eq
            continue
        own = eq
        if eq.name in outputs:
            name = unused(f"{eq.name}.strips", {*system.equations, *found})
            own = replace(eq, name=name, output=False)
            whole = [(c, Get(eq.kind, name, tuple(map(IndexExpr.of, eq.fields)))) for c in eq.domain]
            found[eq.name] = replace(eq, pieces=whole)
            renamed[eq.name] = name
        for strip in wanted[eq.name]:
            own = _stripped(p, own, *strip)
        found[own.name] = own
    at = {
        renamed.get(n, n): {system.equations[n].fields.index(f): (low, size) for f, low, size in of}
        for n, of in wanted.items()
    }

    def get(g: Get) -> Get:
        if g.array not in at:
            return g
        index: list[IndexExpr] = []
        for n, e in enumerate(g.index):
            if n in at[g.array]:
                low, size = at[g.array][n]
                index += [divide(kind, e - low, IndexExpr.of(size)) for kind in (DivKind.FLOORDIV, DivKind.MOD)]
            else:
                index.append(e)
        return replace(g, index=tuple(index))

    memo: dict[Term, Term] = {}
    made = {n: replace(eq, pieces=[(c, rewritten(t, memo, get)) for c, t in eq.pieces]) for n, eq in found.items()}
    places = {**p.places, **{new: p.places.get(old) for old, new in renamed.items()}}
    return replace(p, system=System(system.lin, made, system.hosts), places=places)


def _stripped(p: LoopProgram, eq: Equation, field: str, low: int, size: int) -> Equation:
    """An equation with a field in strips."""
    lin = p.system.lin
    taken = {n for g in (eq.fields, *(t.dims for _, whole in eq.pieces for f, _ in walk(whole) if isinstance(f, Fold)
                                      for t in f.parts)) for n in g}  # fmt: skip
    taken |= {*lin.ctx.params, *lin.ctx.constants, *lin.ctx.arrays}
    block, lane = unused(f"{field}_block", taken), unused(f"{field}_lane", taken)
    whole = IndexExpr.of(block) * size + lane + low
    one = Specialiser(lin, also={field: whole})
    inside = (Con(IndexExpr.of(lane)), Con(IndexExpr.of(size - 1) - lane))

    def cons(c: Cons) -> Cons:
        made = one.cons(c, {})
        assert made is not None
        return (*made, *inside)

    at = eq.fields.index(field)
    fields = (*eq.fields[:at], block, lane, *eq.fields[at + 1 :])
    pieces = [(cons(c), one.term(t, {})) for c, t in eq.pieces]
    return replace(eq, fields=fields, domain=tuple(map(cons, eq.domain)), pieces=pieces)
