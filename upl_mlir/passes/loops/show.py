"""Schedules as text, for people: loops, statements and what the arrays between them keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from upl_mlir.passes.loops.order import Guard, Leaf, Loop, Tree
from upl_mlir.passes.loops.terms import (
    Apply,
    Choice,
    Convert,
    Entry,
    Fold,
    Get,
    IndexValue,
    Number,
    Part,
    Term,
)
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import CmpOp, Formula, IndexExpr
from upl_mlir.poly.linear import Con, Cons

_INFIX = {
    "addf": "+", "subf": "-", "mulf": "*", "divf": "/", "addi": "+", "subi": "-", "muli": "*", "andi": "&&", "ori": "||",
}  # fmt: skip


def schedule_text(tree: Sequence[Tree], arrays: Mapping[str, Array]) -> str:
    """The loops of a schedule, and what is kept of each array."""
    return "\n".join([*_kept(arrays), *_lines(tree, 0)])


def _kept(arrays: Mapping[str, Array]) -> Iterator[str]:
    for a in arrays.values():
        axes = ", ".join(str(x.extent) if x.modulus is None else f"last {x.modulus}" for x in a.axes)
        where = f" in {a.loop.var}" if a.loop is not None else ""
        yield f"array {a.name}[{axes}]: {a.kind.value}{where}"


def _lines(tree: Iterable[Tree], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for t in tree:
        match t:
            case Loop():
                lo, hi = _extremum("max", t.lows), _extremum("min", t.highs)
                yield f"{pad}{'parallel ' if t.parallel else ''}for {t.var} in {lo}..{hi}"
                yield from _lines(t.body, depth + 1)
            case Guard():
                yield f"{pad}if {_where(t.cons)}"
                yield from _lines(t.body, depth + 1)
            case Leaf():
                index = ",".join(str(t.env[f]) for f in t.stmt.fields)
                yield f"{pad}{t.stmt.array}<{index}> = {term_text(t.stmt.term, t.env)}"


def _extremum(name: str, parts: Sequence[IndexExpr]) -> str:
    return str(parts[0]) if len(parts) == 1 else f"{name}({', '.join(map(str, parts))})"


def _formula(c: Con) -> Formula:
    plus = IndexExpr(tuple((m, k) for m, k in c.e.terms if k > 0))
    return Formula.compare(plus, CmpOp.EQ if c.eq else CmpOp.GE, plus - c.e)


def _where(cons: Cons) -> str:
    return str(Formula.all(map(_formula, cons)))


def term_text(t: Term, env: Mapping[str, IndexExpr]) -> str:
    """A term in UPL's notation, its names replaced by `env`."""

    def index(e: IndexExpr) -> str:
        return str(e.substitute(dict(env)))

    match t:
        case Number(_, value):
            return f"{value:g}"
        case IndexValue(e):
            return index(e)
        case Get(_, array, at):
            return f"{array}<{','.join(map(index, at))}>"
        case Entry(_, table, at):
            return f"{table}[{term_text(at, env)}]"
        case Convert(kind, arg):
            return f"{kind.value}({term_text(arg, env)})"
        case Apply(_, op, args):
            name = op.name.rpartition(".")[2]
            parts = [term_text(a, env) for a in args]
            return f"({parts[0]} {_INFIX[name]} {parts[1]})" if name in _INFIX else f"{name}({', '.join(parts)})"
        case Fold(_, gather, parts, _):
            return f"{gather.value}[{'; '.join(_part(p, env) for p in parts)}]"
        case Choice(_, cases):
            return "{" + "; ".join(f"{_where(_at(c, env))}: {term_text(v, env)}" for c, v in cases) + "}"


def _at(cons: Cons, env: Mapping[str, IndexExpr]) -> Cons:
    return tuple(c.substitute(dict(env)) for c in cons)


def _part(p: Part, env: Mapping[str, IndexExpr]) -> str:
    head = term_text(p.body, env)
    loops = f" for {','.join(p.dims)} with {_where(_at(p.cons, env))}" if p.dims else ""
    guard = " if " + " || ".join(_where(_at(g, env)) for g in p.guards) if p.guards else ""
    return head + loops + guard
