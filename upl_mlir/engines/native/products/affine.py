"""Affine index expressions of linalg as coefficients."""

from __future__ import annotations

from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineExpr

from upl_mlir.diagnostics import error


def linear(expr: AffineExpr, dims: int) -> tuple[list[int], int]:
    """An affine expression as one coefficient for each dimension, and a constant.  Raises UplError (UPL1820)."""
    match expr:
        case AffineDimExpr():
            return [int(i == expr.position) for i in range(dims)], 0
        case AffineConstantExpr():
            return [0] * dims, expr.value
        case AffineBinaryOpExpr(AffineBinaryOpKind.Add, a, b):
            (ca, na), (cb, nb) = linear(a, dims), linear(b, dims)
            return [x + y for x, y in zip(ca, cb, strict=True)], na + nb
        case AffineBinaryOpExpr(AffineBinaryOpKind.Mul, a, b):
            (ca, na), (cb, nb) = linear(a, dims), linear(b, dims)
            if any(ca) and any(cb):
                raise error("UPL1820", f"native code: `{expr}` is no affine index")
            factor, coefficients, number = (na, cb, nb) if not any(ca) else (nb, ca, na)
            return [factor * x for x in coefficients], factor * number
        case _:
            raise error("UPL1820", f"native code: `{expr}` is no affine index")
