"""The type of every expression of a body, found before any code is made, and the errors about names and types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from upl_mlir.diagnostics import Span, error
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.fold import ARITY, check_arity
from upl_mlir.frontend.upl_text.ranks import Rank, arithmetic, converts, power, real_valued
from upl_mlir.frontend.upl_text.scope import VALUES, Poisoned, Role, Symbol, declared_at, unknown_name, visible_values

CASTS = {"real": Rank.REAL, "f64": Rank.REAL, "f32": Rank.F32, "int": Rank.INT}
"""Functions that convert to a type."""


@dataclass
class Typer:
    """Types of expressions over the names of one body.

    `later` says where a variable that does not exist yet is assigned; `iterators` are names that only an arrow's index
    and count may use.
    """

    scope: Mapping[str, Symbol]
    later: Mapping[str, Span] = field(default_factory=dict[str, Span])
    iterators: frozenset[str] = frozenset()
    _known: dict[int, tuple[ast.Expr, Rank]] = field(default_factory=dict[int, tuple[ast.Expr, Rank]])

    def rank(self, e: ast.Expr) -> Rank:
        """The type.  Raises UplError (UPL1103 for names, UPL1106 for types)."""
        if id(e) not in self._known:
            self._known[id(e)] = (e, self._rank(e))
        return self._known[id(e)][1]

    def convertible(self, e: ast.Expr, wanted: Rank, what: str) -> None:
        """Raise UplError (UPL1106) unless the expression's value converts to `wanted` by itself; `what` wants it."""
        check_conversion(self.rank(e), wanted, what, e.span)

    def symbol(self, name: str, span: Span) -> Symbol:
        """What a name means as a value."""
        symbol = self.scope.get(name)
        if name in self.iterators:
            message = f"iterator `{name}` has no value outside the arrow's index and count"
            help = f"one value is sent to all points; a condition on `{name}` stands last: `for … if …`"
            raise error("UPL1103", message, span, help=help)
        if symbol is None:
            if name in self.later:
                message = f"variable `{name}` is used before it is assigned (line {self.later[name].line})"
                raise error("UPL1103", message, span, help="move the assignment up")
            raise unknown_name(name, span, visible_values(self.scope))
        if symbol.role not in VALUES:
            message = f"`{name}` is {symbol.role.article}, not a value"
            help = "what arrives from it is an input: `in x`, and there an arrow into this node"
            raise error("UPL1103", message, span, notes=declared_at(symbol), help=help)
        if symbol.rank is None:
            raise Poisoned
        return symbol

    def _rank(self, e: ast.Expr) -> Rank:
        match e:
            case ast.Number(is_real=is_real):
                return Rank.REAL if is_real else Rank.INT
            case ast.BoolLit():
                return Rank.BOOL
            case ast.Name(name=name):
                symbol = self.symbol(name, e.span)
                if symbol.role is Role.ARRAY:
                    raise error("UPL1106", f"`{name}` is a constant array", e.span, help=f"write `{name}[…]`")
                assert symbol.rank is not None, name
                return symbol.rank
            case ast.Lookup(array=array, index=index):
                return self._lookup(array, index)
            case ast.Unary(op=ast.UnaryOp.NEG, operand=operand):
                return arithmetic(self.rank(operand))
            case ast.Unary(operand=operand):
                return self._truth(operand, "`!`")
            case ast.Binary():
                return self._binary(e)
            case ast.Compare(first=first, rest=rest):
                for part in (first, *[r for _, r in rest]):
                    self.rank(part)
                return Rank.BOOL
            case ast.Logical(op=op, left=left, right=right):
                self._truth(left, f"`{op.value}`")
                return self._truth(right, f"`{op.value}`")
            case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
                self._truth(condition, "`?:`")
                return max(self.rank(then), self.rank(otherwise))
            case ast.Call():
                return self._call(e)

    def _lookup(self, array: ast.Ident, index: ast.Expr) -> Rank:
        symbol = self.scope.get(array.name)
        if symbol is None:
            arrays = [s.name for s in self.scope.values() if s.role is Role.ARRAY]
            raise unknown_name(array.name, array.span, arrays, what="constant array")
        if symbol.role is not Role.ARRAY:
            message = f"`{array.name}` is {symbol.role.article}, not a constant array"
            help = "inputs are scalars: a token's place is its node's index" if symbol.role is Role.INPUT else None
            raise error("UPL1106", message, array.span, notes=declared_at(symbol), help=help)
        self.convertible(index, Rank.INT, "the index of an array")
        if symbol.rank is None:
            raise Poisoned
        return symbol.rank

    def _binary(self, e: ast.Binary) -> Rank:
        left, right = self.rank(e.left), self.rank(e.right)
        match e.op:
            case ast.BinaryOp.DIV:
                return real_valued(left, right)
            case ast.BinaryOp.POW:
                return power(left, right, literal=is_count(e.right))
            case ast.BinaryOp.FLOORDIV | ast.BinaryOp.CEILDIV | ast.BinaryOp.MOD:
                for side, rank in ((e.left, left), (e.right, right)):
                    if rank.is_float:
                        message = f"`{e.op.value}` takes integers, this is {rank.described}"
                        raise error("UPL1106", message, side.span, help="convert with `int(…)`, or write `floor(a/b)`")
                return Rank.INT
            case _:
                return arithmetic(left, right)

    def _call(self, e: ast.Call) -> Rank:
        name = e.function.name
        if name == "bool":
            raise error("UPL1106", "there is no conversion to bool", e.span, help="compare: `x != 0`")
        if name not in ARITY:
            raise unknown_name(name, e.function.span, ARITY, what="function")
        check_arity(name, len(e.arguments), e.span)
        ranks = [self.rank(a) for a in e.arguments]
        if name in CASTS:
            return CASTS[name]
        if name == "floor":
            return Rank.INT
        if name == "stop_gradient":
            return ranks[0]
        if name == "with_derivative":
            return real_valued(*ranks)
        if name in ("min", "max", "abs"):
            return arithmetic(*ranks)
        return real_valued(*ranks)

    def _truth(self, e: ast.Expr, what: str) -> Rank:
        rank = self.rank(e)
        if rank is not Rank.BOOL:
            message = f"{what} takes a truth value, this is {rank.described}"
            raise error("UPL1106", message, e.span, help="compare: `x != 0`")
        return rank


def check_conversion(given: Rank, wanted: Rank, what: str, span: Span) -> None:
    """Raise UplError (UPL1106) if a value of one type does not become another by itself."""
    if converts(given, wanted):
        return
    message = f"{what} is {wanted.described}, this value is {given.described}"
    help = "compare: `x != 0`" if wanted is Rank.BOOL else "convert with `int(…)` or `floor(…)`"
    raise error("UPL1106", message, span, help=help)


def is_count(e: ast.Expr) -> bool:
    """Whether the expression is a non-negative integer literal."""
    return isinstance(e, ast.Number) and not e.is_real
