"""Operations that a kernel has and UPL spells out: quotients and remainders, made by `resolve` and read back here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from upl_mlir.diagnostics import Span
from upl_mlir.frontend.tensor import Apply, Chain, Expr, Number, Sum


@dataclass(frozen=True)
class Quotient:
    """``a op b`` with op ``/`` (on integers, cut off towards 0) or ``//`` (rounded down)."""

    a: Expr
    b: Expr
    op: str


@dataclass(frozen=True)
class ModOf:
    """``a % b``: what ``//`` leaves."""

    a: Expr
    b: Expr


def truncated(a: Expr, b: Expr, span: Span | None = None) -> Expr:
    """The quotient of two integers, cut off towards 0 as in C."""
    zero = Number(0, span)
    quotient = Apply("floordiv", (Apply("abs", (a,), span), Apply("abs", (b,), span)), span)
    signs = (Apply("<", (a, zero), span), Apply("<", (b, zero), span))
    return Apply("?:", (Apply("!=", signs, span), Apply("neg", (quotient,), span), quotient), span)


def rounded_down(a: Expr, b: Expr, span: Span | None = None) -> Expr:
    """The greatest whole number not above the quotient of two reals; its derivative is 0, which UPL wants to be told."""
    return Apply("floor", (Apply("stop_gradient", (Apply("/", (a, b), span),), span),), span)


def remainder(a: Expr, b: Expr, span: Span | None = None) -> Expr:
    """What `rounded_down` leaves; it has the sign of `b`."""
    return Apply("-", (a, Apply("*", (b, rounded_down(a, b, span)), span)), span)


def differentiable(e: Expr) -> Expr:
    """The expression without `stop_gradient`: its value is the same."""
    match e:
        case Apply(op="stop_gradient", args=(a,)):
            return differentiable(a)
        case Apply(args=args):
            return replace(e, args=tuple(map(differentiable, args)))
        case Sum(body=body):
            return replace(e, body=differentiable(body))
        case Chain(parts=parts):
            return replace(e, parts=tuple(replace(p, body=differentiable(p.body)) for p in parts))
        case _:
            return e


def pattern(e: Expr) -> Quotient | ModOf | None:
    """Which of the above an expression is, if any."""
    match e:
        case Apply(op="floordiv", args=(a, b)):
            return Quotient(a, b, "//")
        case Apply(op="mod", args=(a, b)):
            return ModOf(a, b)
        case Apply(op="?:", args=(_, _, Apply(op="floordiv", args=(Apply(args=(a,)), Apply(args=(b,)))))):
            return Quotient(a, b, "/") if e == truncated(a, b) else None
        case Apply(op="floor", args=(quotient,)):
            match differentiable(quotient):
                case Apply(op="/", args=(a, b)):
                    return Quotient(a, b, "//")
                case _:
                    return None
        case Apply(op="-", args=(a, Apply(op="*", args=(b, Apply(op="floor"))))):
            return ModOf(a, b) if differentiable(e) == differentiable(remainder(a, b)) else None
        case _:
            return None
