# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Between the text normal form and isl: formulas become isl sets, isl constraints and affine functions come back.

Inside isl, set dimensions are positional; a symbolic parameter or constant becomes a parameter `c_…`, and an array
entry ``N[k-1]`` becomes a parameter `l_…` that stands for its value (an uninterpreted function of the dimensions:
`sets.py` knows what is true of it).  A part that is not quasi-affine, such as ``i mod q``, becomes a parameter `o_…` in
the same way, so that a condition of any form is held as it is written.  isl never stores anything for us; it only computes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import islpy as isl

from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Monomial, Select, Var, divide
from upl_mlir.poly.operators import CmpOp, Connective, DivKind


@dataclass
class NotAffine(Exception):
    """An expression is not quasi-affine in the fields; `what` is the offending part as text."""

    what: str


@dataclass(frozen=True)
class Opaque:
    """A product or division that is not quasi-affine (``i*j``, ``i mod q``), as a symbol of its own.

    isl sees an unknown number in its place.  The number is a function of the names in `index`, as an array entry is of its
    index, and the same facts hold of both: equal operands give equal values.
    """

    index: IndexExpr

    def __str__(self) -> str:
        return str(self.index)


Symbol = Var | Lookup | Opaque
"""What an isl parameter stands for."""


def value_of(symbol: Symbol) -> IndexExpr:
    """The symbol as an expression."""
    return symbol.index if isinstance(symbol, Opaque) else IndexExpr.of(symbol)


@lru_cache(maxsize=4096)
def param_id(atom: Symbol) -> str:
    """The isl parameter that stands for a symbol, an array entry or a part that is not affine."""
    prefix = "c_" if isinstance(atom, Var) else "l_" if isinstance(atom, Lookup) else "o_"
    return prefix + re.sub(r"[^A-Za-z0-9]", lambda m: f"_{ord(m.group()):x}_", str(atom))


class ToIsl:
    """Writes formulas over the named dimensions as isl text, collecting the parameters that they need.

    What is not quasi-affine becomes a symbol of its own; with `affine` it raises NotAffine.
    """

    def __init__(self, dims: Sequence[str], constant: Callable[[Atom], int | None], *, affine: bool = False):
        self.affine = affine
        self.dims = {d: f"x{i}" for i, d in enumerate(dims)}
        self.constant = constant  # the known value of a symbolic constant or of an entry at a literal index
        self.params: dict[str, Symbol] = {}

    def _symbol(self, what: Symbol) -> str:
        pid = param_id(what)
        self.params[pid] = what
        return pid

    def _opaque(self, e: IndexExpr) -> str:
        if self.affine:
            raise NotAffine(str(e))
        return self._symbol(Opaque(e))

    def formula(self, f: Formula) -> str:
        """isl text of a formula.  Raises NotAffine."""
        select = next((a for a in f.atoms() if isinstance(a, Select)), None)
        if select is not None:
            then = f.rewrite(lambda a: select.then if a == select else None)
            other = f.rewrite(lambda a: select.other if a == select else None)
            return self.formula((select.cond & then) | (select.cond.negate() & other))
        match f.kind:
            case Connective.CMP:
                op = {"==": "=", "!=": "!="}.get(f.op.value, f.op.value)
                return f"({self.expr(f.lhs)}) {op} ({self.expr(f.rhs)})"
            case Connective.AND:
                return "(" + " and ".join(map(self.formula, f.args)) + ")" if f.args else "(1 = 1)"
            case Connective.OR:
                return "(" + " or ".join(map(self.formula, f.args)) + ")" if f.args else "(1 = 0)"
            case Connective.NOT:
                return f"(not {self.formula(f.args[0])})"

    def expr(self, e: IndexExpr) -> str:
        """isl text of an expression.  Raises NotAffine."""
        parts: list[str] = []
        for m, c in e.terms:
            rest: list[Atom] = list(m)
            while len(rest) > 1:  # constants become numbers only where the product would not be affine without
                at = next((a for a in rest if self.constant(a) is not None), None)
                if at is None:
                    break
                rest.remove(at)
                c *= self.constant(at) or 0
            if len(rest) > 1:
                parts.append(f"{c}*{self._opaque(IndexExpr(((tuple(rest), 1),)))}")
            else:
                parts.append(f"{c}*{self.atom(rest[0])}" if rest else str(c))
        return " + ".join(parts) or "0"

    def atom(self, a: Atom) -> str:
        match a:
            case Var(name) if name in self.dims:
                return self.dims[name]
            case Var() | Lookup():
                if isinstance(a, Lookup) and self.affine:
                    self.expr(a.index)  # must be affine itself
                return self._symbol(a)
            case Div(kind, num, den):
                d = self.number(den)
                if d is None or d <= 0:
                    return self._opaque(IndexExpr.of(a))
                inner = self.expr(num)
                match kind:
                    case DivKind.FLOORDIV:
                        return f"floor(({inner})/{d})"
                    case DivKind.CEILDIV:
                        return f"floor(({inner} + {d - 1})/{d})"
                    case DivKind.MOD:
                        return f"(({inner}) mod {d})"
            case MinMax(kind, args):
                out = self.expr(args[0])
                for arg in args[1:]:
                    out = f"{kind.value}({out}, {self.expr(arg)})"
                return out
            case Select():
                raise NotAffine(str(a))

    def number(self, e: IndexExpr) -> int | None:
        """The value of an expression of known constants, else None."""
        value = e.rewrite(lambda a: None if (c := self.constant(a)) is None else IndexExpr.of(c))
        return value.constant

    def set(self, f: Formula) -> isl.Set:
        """The set of points that satisfy the formula, by position."""
        body = self.formula(f)
        dims = ",".join(self.dims.values())
        return _read(f"[{','.join(self.params)}] -> {{ [{dims}] : {body} }}")


@lru_cache(maxsize=2048)
def _read(text: str) -> isl.Set:
    """The set of a text.  Nine in ten texts come again while a program is differentiated and proved; sets never change."""
    return isl.Set.read_from_str(isl.DEFAULT_CONTEXT, text)


class FromIsl:
    """Reads isl constraints and affine functions over named dimensions back."""

    def __init__(self, dims: Sequence[str], params: Mapping[str, Symbol]):
        self.dims = dims
        self.params = params

    def _linear(self, obj: Any, dim_type: isl.dim_type, constant: isl.Val, scale: int) -> IndexExpr:
        terms: dict[Monomial, int] = {(): _int(constant, scale)}
        opaque = IndexExpr()
        for i in range(obj.dim(isl.dim_type.param)):
            c = _int(obj.get_coefficient_val(isl.dim_type.param, i), scale)
            symbol = self.params[obj.get_dim_name(isl.dim_type.param, i)] if c else None
            if isinstance(symbol, Opaque):
                opaque = opaque + symbol.index * c
            elif symbol is not None:
                terms[(symbol,)] = c
        for i in range(obj.dim(dim_type)):
            c = _int(obj.get_coefficient_val(dim_type, i), scale)
            if c:
                terms[(Var(self.dims[i]),)] = c
        out = IndexExpr.sum_of(terms) + opaque
        for i in range(obj.dim(isl.dim_type.div)):
            c = _int(obj.get_coefficient_val(isl.dim_type.div, i), scale)
            if c:
                out = out + self.aff(obj.get_div(i)) * c
        return out

    def aff(self, a: isl.Aff) -> IndexExpr:
        """An affine function as an expression; one with a denominator is its floor."""
        den = a.get_denominator_val().to_python()
        num = self._linear(a, isl.dim_type.in_, a.get_constant_val(), den)
        return divide(DivKind.FLOORDIV, num, IndexExpr.of(den)) if den != 1 else num

    def solved(self, c: isl.Constraint) -> IndexExpr:
        """The last dimension, which has coefficient ±1 in an equality."""
        last = self.dims[-1]
        e = self._linear(c, isl.dim_type.set, c.get_constant_val(), 1)
        at = next(k for m, k in e.terms if m == (Var(last),))
        return IndexExpr.of(last) - e * at

    def constraint(self, c: isl.Constraint) -> Formula:
        """A constraint as a comparison solved for its last dimension, as a person would write it."""
        e = self._linear(c, isl.dim_type.set, c.get_constant_val(), 1)
        return solve(e, c.is_equality(), self.dims)


def _int(v: isl.Val, scale: int) -> int:
    """The integer ``v * scale``."""
    return (v if scale == 1 else v.mul(isl.Val.int_from_si(isl.DEFAULT_CONTEXT, scale))).to_python()


def solve(e: IndexExpr, equality: bool, dims: Sequence[str]) -> Formula:
    """``e == 0`` or ``e >= 0`` written with the last dimension of coefficient ±1 alone on the left."""
    if equality and (mod := _as_mod(e)) is not None:
        return mod
    for d in (*reversed(dims), None):
        if d is None:  # no dimension alone: prefer a single symbol
            names = [(m, c) for m, c in e.terms if m and abs(c) == 1]
            names.sort(key=lambda t: len(t[0]))
            if not names:
                return Formula.compare(e, CmpOp.EQ if equality else CmpOp.GE, 0)
            (mono, coeff) = names[0]
            alone = IndexExpr(((mono, 1),))
        else:
            coeff = next((c for m, c in e.terms if m == (Var(d),)), 0)
            if abs(coeff) != 1 or any(d in IndexExpr.of(a).names for m, _ in e.terms if m != (Var(d),) for a in m):
                continue
            alone = IndexExpr.of(d)
        rest = e - alone * coeff
        if equality:
            return Formula.compare(alone, CmpOp.EQ, rest * -coeff)
        if coeff > 0:
            return _strict(alone, CmpOp.GE, -rest)
        return _strict(alone, CmpOp.LE, rest)
    raise AssertionError("unreachable: the loop ends with None")


def _as_mod(e: IndexExpr) -> Formula | None:
    """``a == b*(a floordiv b)`` as ``a mod b == 0`` (with the constant of `a` on the other side where that is exact)."""
    for m, c in e.terms:
        if len(m) == 1 and isinstance(m[0], Div) and m[0].kind is DivKind.FLOORDIV:
            den = m[0].den.constant
            if den is None or abs(c) != den:
                continue
            rest = e - IndexExpr.of(m[0]) * c
            for sign in (1, -1):
                if (rest * sign) == m[0].num and sign * c < 0:
                    return Formula.compare(divide(DivKind.MOD, m[0].num, m[0].den), CmpOp.EQ, 0)
    return None


def _strict(left: IndexExpr, op: CmpOp, right: IndexExpr) -> Formula:
    """Prefer ``k<K`` to ``k<=K-1`` and ``k>1`` to ``k>=2``."""
    literal = right.constant
    shift = next((c for m, c in right.terms if not m), 0)
    if op is CmpOp.LE and literal is None and shift == -1:
        return Formula.compare(left, CmpOp.LT, right + 1)
    if op is CmpOp.GE and ((literal is not None and literal >= 1) or (literal is None and shift == 1)):
        return Formula.compare(left, CmpOp.GT, right - 1)
    return Formula.compare(left, op, right)
