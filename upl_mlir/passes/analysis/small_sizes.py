"""A program at a few small sizes: where a question cannot be answered for all of them, a mistake may show at one.

Only symbolic arrays (``param N[0:K-1]``) leave such questions open: sets are cut along an array's index where its values
are known, and cannot be where they are not (UPL1206).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i64

from upl_mlir.dialects.upl import ArrayOp, ProgramOp
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.passes.bind_parameters import bind_parameters
from upl_mlir.poly.expr import Formula
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PolyContext

STEPS = (0, 1, 2)  # what is added to the least value of each parameter
UNEVEN = ((0,), (0, 1), (1, 0, 2))  # what is added to the least entries of arrays, in turn
FAR = 16  # least values are looked for up to here


def small_programs(program: ProgramOp) -> Iterator[tuple[ProgramOp, dict[str, int], str]]:
    """Copies with all parameters bound to small values that their conditions allow; the values, entries as ``N[1]``; the
    values as text.  Least first; none where the conditions allow no small ones."""
    open_ = poly_context(program)
    for more, uneven in zip(STEPS, UNEVEN, strict=True):
        values = _parameters(open_, more)
        if values is None:
            continue
        arrays: dict[str, tuple[int, list[int]]] = {}
        for name in open_.unknown:
            found = small_entries(open_, name, values, uneven)
            if found is not None:
                arrays[name] = found
        if len(arrays) < len(open_.unknown):
            continue
        text = [f"{n}={v}" for n, v in values.items()] + [f"{n}={vs}" for n, (_, vs) in arrays.items()]
        witness = values | {f"{n}[{lo + i}]": v for n, (lo, vs) in arrays.items() for i, v in enumerate(vs)}
        yield _bound(program, values, arrays), witness, ", ".join(text)


def _parameters(ctx: PolyContext, more: int) -> dict[str, int] | None:
    """The least values, one parameter after the other, and a step beyond."""
    out: dict[str, int] = {}
    for name in ctx.params:
        known = ctx.param_condition.substitute(out)
        allowed = [
            v for v in range(-FAR, FAR) if not ctx.set((), known & Formula.compare(name, CmpOp.EQ, v)).is_empty()
        ]  # fmt: skip
        if not allowed:
            return None
        out[name] = allowed[min(more, len(allowed) - 1)]
    return out


def small_entries(
    ctx: PolyContext, name: str, values: dict[str, int], uneven: tuple[int, ...]
) -> tuple[int, list[int]] | None:
    """The first index of a symbolic array and the least entries that its condition allows, `uneven` added in turn."""
    array = ctx.unknown[name]
    env = {**ctx.constants, **values}
    lo, hi = array.lower.evaluate(env, ctx.read), array.upper.evaluate(env, ctx.read)
    allowed = [v for v in range(FAR) if array.each.evaluate({**env, name: v}, ctx.read)]
    if not allowed:
        return None
    return lo, [allowed[min(uneven[i % len(uneven)], len(allowed) - 1)] for i in range(hi - lo + 1)]


def _bound(program: ProgramOp, values: dict[str, int], arrays: dict[str, tuple[int, list[int]]]) -> ProgramOp:
    out = program.clone()
    bind_parameters(out, values)
    for op in list(out.body.block.ops):
        if isinstance(op, ArrayOp) and op.symbolic:
            lo, entries = arrays[op.symbol]
            op.base = IntegerAttr(lo, i64)
            op.values = cast("DenseArrayBase", DenseArrayBase.from_list(i64, entries))
    return out
