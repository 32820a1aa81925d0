"""Operations on numbers of a small type (docs/numbers.md), which are carried as f64, in generated source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.numbers.formats import FloatFormat, Format
from upl_mlir.numbers.rounding import arithmetic

ROUND = "R"
"""The name of the rounding to the type."""
_OWN: Mapping[type[Operation], str] = {
    arith.MulfOp: "product({0}, {1})", arith.DivfOp: "quotient({0}, {1})", math.SqrtOp: "root({0})",
    math.PowFOp: "small_power({0}, {1})", math.FPowIOp: "small_power({0}, {1})", arith.SIToFPOp: "of_integer({0})",
}  # fmt: skip
"""Operations with functions of their own; the others round what f64 has."""


def small_text(op: type[Operation], text: str, exact: bool, kind: Kind) -> str:
    """The source of an operation whose result is of the small type `kind`; `text` is that of f64, which is `exact` where
    no digit is added.

    Fixed point has no -0.0 and no symmetric range, so its negative, for one, may have to be rounded.
    """
    if kind.watch is not None and op is arith.SelectOp:
        return f"{ROUND}(chosen({{0}}, {{1}}, {{2}}))"
    if op in _OWN:
        return _OWN[op]
    return text if exact and isinstance(kind.format, FloatFormat) else f"{ROUND}({text})"


def _chosen(condition: bool, yes: Any, no: Any) -> Any:
    return yes if condition else no


def small_names(kind: Kind) -> dict[str, Any]:
    """What the source of `small_text` calls, by name; nothing for a type of the processor's."""
    a = kind.watch
    if a is None and kind.format is None:
        return {}
    names: Mapping[str, Any] = {"chosen": _chosen, **({} if a is None else a.names)}
    a = a or arithmetic(cast("Format", kind.format))
    return {
        **names, ROUND: a.round, "product": a.product, "quotient": a.quotient, "root": a.root, "small_power": a.power,
        "of_integer": a.of_integer,
    }  # fmt: skip
