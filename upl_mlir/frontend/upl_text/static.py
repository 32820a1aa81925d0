"""Index, count, iterator and domain expressions and static conditions: from the tree to `poly.expr`'s normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from upl_mlir.diagnostics import Diagnostic, Span, UplError, did_you_mean, error
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.ranks import Rank
from upl_mlir.frontend.upl_text.scope import DATA, Poisoned, Role, Symbol, declared_at
from upl_mlir.poly.expr import FALSE, TRUE, Formula, IndexExpr, Lookup, Select, divide, extremum
from upl_mlir.poly.operators import DivKind, Extremum

MAX_POWER = 16
"""The greatest exponent of a power of names in an index: its terms are written out. Chosen, not measured."""
MAX_TERMS = 1000
"""Terms of an index expression that is written out. Chosen, not measured."""

_DIVISIONS = {ast.BinaryOp.FLOORDIV, ast.BinaryOp.CEILDIV, ast.BinaryOp.MOD}


class NotStatic(UplError):
    """The expression is fine as a value but has no static form; where values are allowed, it is one."""


def _not_static(message: str, span: Span, help: str | None = None) -> NotStatic:
    return NotStatic(Diagnostic("UPL1108", message, span, (), help))


def _operand(e: IndexExpr) -> str:
    """An operand of `**`, in parentheses where it needs them."""
    return str(e) if e.name or e.constant is not None else f"({e})"


@dataclass(frozen=True)
class StaticReader:
    """Converts expressions that stand at one kind of place.

    `what` names the place in messages ("an index"); `roles` are the names it may use; `data` admits `int` inputs and
    variables, which stay names; `number` gives the value of a constant expression.
    """

    what: str
    symbols: Mapping[str, Symbol]
    number: Callable[[IndexExpr], int | None]
    roles: frozenset[Role]
    data: bool = False
    help: str | None = None

    def index(self, e: ast.Expr) -> IndexExpr:
        """An integer expression.  Raises UplError (UPL1108), `NotStatic` where a value expression would do."""
        out = self._index(e)
        if len(out.terms) > MAX_TERMS:
            raise error("UPL1108", f"{self.what} with {len(out.terms)} terms is too long", e.span)
        return out

    def formula(self, e: ast.Expr) -> Formula:
        """A condition.  Raises as `index`."""
        match e:
            case ast.BoolLit(value=value):
                return TRUE if value else FALSE
            case ast.Unary(op=ast.UnaryOp.NOT, operand=operand):
                return self.formula(operand).negate()
            case ast.Logical(op=op, left=left, right=right):
                combine = Formula.all if op is ast.LogicalOp.AND else Formula.any
                return combine((self.formula(left), self.formula(right)))
            case ast.Compare(first=first, rest=rest):
                parts: list[Formula] = []
                lhs = self.index(first)
                for op, right in rest:
                    rhs = self.index(right)
                    parts.append(Formula.compare(lhs, op.value, rhs))
                    lhs = rhs
                return Formula.all(parts)
            case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
                cond = self.formula(condition)
                return (cond & self.formula(then)) | (cond.negate() & self.formula(otherwise))
            case _:
                self._index(e)  # an unknown name is the better message
                message = f"expected a condition, such as `k<K`, in {self.what}"
                raise error("UPL1106", message, e.span, help="compare the integer with something")

    def _index(self, e: ast.Expr) -> IndexExpr:
        match e:
            case ast.Number(value=value, is_real=is_real):
                if is_real:
                    raise _not_static(f"{self.what} is an integer expression: no real numbers", e.span)
                return IndexExpr.of(int(value))
            case ast.Name(name=name):
                return self._name(name, e.span)
            case ast.Lookup(array=array, index=index):
                return IndexExpr.of(Lookup(self._array(array), self._index(index)))
            case ast.Unary(op=ast.UnaryOp.NEG, operand=operand):
                return -self._index(operand)
            case ast.Binary():
                return self._binary(e)
            case ast.Call():
                return self._call(e)
            case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
                return IndexExpr.of(Select(self.formula(condition), self._index(then), self._index(otherwise)))
            case ast.Compare() | ast.Logical() | ast.BoolLit() | ast.Unary():
                raise _not_static(f"{self.what} is an integer expression, this is a condition", e.span)

    def _binary(self, e: ast.Binary) -> IndexExpr:
        if e.op is ast.BinaryOp.DIV:
            help = "`/` gives a real number; write `floordiv` or `ceildiv`"
            raise _not_static(f"`/` in {self.what}", e.span, help)
        if e.op is ast.BinaryOp.POW:
            return self._power(e)
        left, right = self._index(e.left), self._index(e.right)
        if e.op in _DIVISIONS:
            divisor = self.number(right)
            if divisor is not None and divisor <= 0:
                raise error("UPL1108", f"the divisor of `{e.op.value}` is {divisor}; it must be positive", e.right.span)
            return divide(DivKind(e.op.value), left, right)
        if e.op is ast.BinaryOp.MUL:
            if len(left.terms) * len(right.terms) > MAX_TERMS:
                raise error("UPL1108", f"this product in {self.what} has too many terms", e.span)
            return left * right
        return left + right if e.op is ast.BinaryOp.ADD else left - right

    def _power(self, e: ast.Binary) -> IndexExpr:
        base = self._index(e.left)
        exponent = self._index(e.right).constant
        if exponent is None or not 0 <= exponent <= MAX_POWER or len(base.terms) ** exponent > MAX_TERMS:
            shown = f"`{_operand(base)}**{_operand(self._index(e.right))}`"
            message = f"the exponent of {shown} in {self.what} must be a small literal, 0..{MAX_POWER}"
            raise _not_static(message, e.right.span)
        out = IndexExpr.of(1)
        for _ in range(exponent):
            out = out * base
        return out

    def _call(self, e: ast.Call) -> IndexExpr:
        name, args = e.function.name, e.arguments
        if name in ("min", "max") and len(args) >= 2:
            return extremum(Extremum(name), [self._index(a) for a in args])
        if name == "abs" and len(args) == 1:
            arg = self._index(args[0])
            if arg.constant is not None:
                return IndexExpr.of(abs(arg.constant))
            return extremum(Extremum.MAX, [arg, -arg])
        if name in ("int", "floor") and len(args) == 1:
            return self._index(args[0])
        raise _not_static(f"`{name}` with {len(args)} argument(s) in {self.what}", e.span, "use `min`, `max` or `abs`")

    def _name(self, name: str, span: Span) -> IndexExpr:
        symbol = self.symbols.get(name)
        if symbol is None:
            candidates = [s.name for s in self.symbols.values() if s.role in self.roles]
            help = did_you_mean(name, candidates) or self.help
            raise _not_static(f"unknown name `{name}` in {self.what}", span, help)
        if symbol.role in self.roles or (self.data and symbol.role in DATA):
            if symbol.rank is None:
                raise Poisoned
            if symbol.rank is Rank.INT:
                return IndexExpr.of(name)
            message = (
                f"{self.what} is an integer expression, but {symbol.role.value} `{name}` is {symbol.rank.described}"
            )
            help = "declare it `: int`" if symbol.role in DATA else None
            raise NotStatic(Diagnostic("UPL1108", message, span, declared_at(symbol), help))
        message = f"{self.what} cannot use {symbol.role.value} `{name}`"
        raise NotStatic(Diagnostic("UPL1108", message, span, declared_at(symbol), self.help))

    def _array(self, array: ast.Ident) -> str:
        symbol = self.symbols.get(array.name)
        if symbol is None:
            arrays = [s.name for s in self.symbols.values() if s.role is Role.ARRAY]
            message = f"unknown constant array `{array.name}` in {self.what}"
            raise _not_static(message, array.span, did_you_mean(array.name, arrays))
        if symbol.role is not Role.ARRAY:
            message = f"`{array.name}` is {symbol.role.article}, not a constant array"
            raise error("UPL1106", message, array.span, notes=declared_at(symbol))
        if symbol.rank is None:
            raise Poisoned
        if symbol.rank is not Rank.INT:
            message = f"{self.what} is an integer expression, but the entries of `{array.name}` are real"
            raise NotStatic(Diagnostic("UPL1108", message, array.span, declared_at(symbol)))
        return array.name
