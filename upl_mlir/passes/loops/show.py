"""Schedules as text, for people: loops, statements and what the arrays between them keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.arith import CMPF_COMPARISON_OPERATIONS, CMPI_COMPARISON_OPERATIONS
from xdsl.ir import Operation

from upl_mlir.dialects.loops.attributes import Axis, Range
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops import terms
from upl_mlir.passes.loops.terms import Term
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Con, Cons
from upl_mlir.poly.operators import CmpOp

_TESTS = {
    "eq": "==", "oeq": "==", "ne": "!=", "une": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_INFIX = {
    "addf": "+", "subf": "-", "mulf": "*", "divf": "/", "addi": "+", "subi": "-", "muli": "*", "andi": "&&", "ori": "||",
}  # fmt: skip
_NAMES = {"absf": "abs", "absi": "abs", "negf": "-", "powf": "pow", "fptosi": "int", "minimumf": "min", "maximumf": "max"}


def schedule_lines(tree: Sequence[Tree], arrays: Mapping[str, Array]) -> list[str]:
    """The lines of a schedule: what is kept of each array, and the loops."""
    return [*_kept(arrays), *_lines(tree, 0)]


def _kept(arrays: Mapping[str, Array]) -> Iterator[str]:
    for a in arrays.values():
        axes = ", ".join(map(_axis, a.axes))
        where = f" in {a.private}" if a.private is not None else ""
        yield f"array {a.name}[{axes}]: {a.kind.value}{where}"


def _axis(a: Axis) -> str:
    """How many values are kept, and which if that is not all."""
    if a.modulus is not None:
        return f"last {a.modulus}"
    return str(a.extent) if a.every is None else f"{a.extent} of every {abs(a.every)}"


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
                if t.other:
                    yield f"{pad}else"
                    yield from _lines(t.other, depth + 1)
            case Box():
                leaf, found = t.leaf, t.contraction
                box = box_text([*found.around, *found.fields])
                index = ",".join(str(leaf.env.get(f, f)) for f in leaf.stmt.fields)
                what = "contraction" if found.terms else "added to"
                yield f"{pad}{what} {leaf.stmt.array}<{index}> for {box}: {term_text(leaf.stmt.term, leaf.env)}"
            case Exchange(array, ranges, _):  # of a partial array, it combines
                yield f"{pad}exchange {array} for {box_text(ranges)}"
            case Leaf():
                index = ",".join(str(t.env[f]) for f in t.stmt.fields)
                yield f"{pad}{t.stmt.array}<{index}> = {term_text(t.stmt.term, t.env)}"


def box_text(ranges: Iterable[Range]) -> str:
    """Ranges for people: ``i in max(0, m)..n-1, j in 0..n-1``."""
    return ", ".join(f"{r.var} in {_extremum('max', r.lows)}..{_extremum('min', r.highs)}" for r in ranges)


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
        case terms.Number(_, value):
            return f"{value:g}"
        case terms.IndexValue(e):
            return index(e)
        case terms.Get(_, array, at):
            return f"{array}<{','.join(map(index, at))}>"
        case terms.Entry(_, table, at):
            return f"{table}[{term_text(at, env)}]"
        case terms.Convert(kind, arg):
            return f"{kind.value}({term_text(arg, env)})"
        case terms.Apply(_, op, args):
            return _operation(t.kind, op, [term_text(a, env) for a in args])
        case terms.Fold(_, gather, parts, _):
            return f"{gather.value}[{'; '.join(_part(p, env) for p in parts)}]"
        case terms.Choice(_, cases):
            return "{" + "; ".join(f"{_where(_at(c, env))}: {term_text(v, env)}" for c, v in cases) + "}"


def _operation(kind: Kind, op: Operation, x: Sequence[str]) -> str:
    """An operation on texts, as UPL writes it."""
    match op:
        case arith.CmpfOp() | arith.CmpiOp():
            names = CMPF_COMPARISON_OPERATIONS if isinstance(op, arith.CmpfOp) else CMPI_COMPARISON_OPERATIONS
            test = names[op.predicate.value.data]
            sign = _TESTS.get(test) or _TESTS.get(test[1:])
            return f"({x[0]} {sign} {x[1]})" if sign else f"{test}({x[0]}, {x[1]})"
        case arith.SelectOp():
            return f"({x[0]} ? {x[1]} : {x[2]})"
        case arith.SIToFPOp() | arith.UIToFPOp():
            return f"{kind.value}({x[0]})"
        case _:
            name = op.name.rpartition(".")[2]
            if name in _INFIX:
                return f"({x[0]} {_INFIX[name]} {x[1]})"
            return f"{_NAMES.get(name, name)}({', '.join(x)})"


def _at(cons: Cons, env: Mapping[str, IndexExpr]) -> Cons:
    return tuple(c.substitute(dict(env)) for c in cons)


def _part(p: terms.Part, env: Mapping[str, IndexExpr]) -> str:
    ranges, rest = list[str](), list(_at(p.cons, env))
    for at, dim in enumerate(p.dims):
        lows, highs, others = list[IndexExpr](), list[IndexExpr](), list[Con]()
        x, inner = IndexExpr.of(dim), set(p.dims[at + 1 :])
        for c in rest:
            for side, e in ((lows, x - c.e), (highs, x + c.e)):  # c.e >= 0 with a coefficient 1 or -1 of the iterator
                if dim in c.e.names and not {dim, *inner} & e.names:
                    if c.eq:
                        lows.append(e)
                        highs.append(e)
                    else:
                        side.append(e)
                    break
            else:
                others.append(c)
        if not (lows and highs):
            ranges, rest = [f"{', '.join(p.dims)} with {_where(_at(p.cons, env))}"], []
            break
        ranges.append(f"{dim} in {_extremum('max', lows)}..{_extremum('min', highs)}")
        rest = others
    loops = f" for {', '.join(ranges)}" if ranges else ""
    guards = [_where(tuple(rest))] if rest else []
    guards += [" || ".join(_where(_at(g, env)) for g in p.guards)] if p.guards else []
    return term_text(p.body, env) + loops + (f" if {' && '.join(guards)}" if guards else "")
