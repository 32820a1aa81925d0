"""The table of derivatives: one row for each operation, for reverse and forward mode alike (AUTODIFF rule 6).  Rows of
elementary functions come from the registry (`ops/functions.py`).

A row has one entry for each operand: ``d`` times the partial derivative by that operand, where `a` and `b` are the
operands and `o` the result.  Reverse mode reads it as "the adjoint `d` of the result contributes this to the operand's
adjoint"; forward mode as "the operand's tangent `d` contributes this to the result's tangent"; both are linear in `d`, so
one row serves both.  An entry None passes no derivative (integers, conditions, `floor`).

Conventions at kinks, as JAX has them: abs'(0) = 0; ties of min and max share `d` equally; a**b by b is 0 at a = 0.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.dialects.upl import AlongOp, LetOp, LookupOp, RefOp, StopGradientOp
from upl_mlir.ops import FUNCTIONS, Body, Val

Entry = Callable[[Val, Val, Val, Val], Val] | None
"""(d, a, b, o) -> contribution; `b` is `a` for unary operations."""


def _tie(d: Val, mine: Val, other: Val, wins: str) -> Val:
    """All of `d` where `mine` wins, half of it on a tie, else 0."""
    won = d.where(mine.compare(wins, other), 0.0)
    return (d * 0.5).where(mine.compare("oeq", other), won)


def _abs(d: Val, a: Val) -> Val:
    return d.where(a.compare("ogt", 0.0), (-d).where(a.compare("olt", 0.0), 0.0))


def _pow_base(d: Val, a: Val, b: Val) -> Val:
    return (d * b * a ** (b - 1.0)).where(b.compare("une", 0.0), 0.0)


def _pow_exponent(d: Val, a: Val, o: Val) -> Val:
    return (d * o * a.call(math.LogOp)).where(a.compare("une", 0.0), 0.0)


def _same(d: Val, a: Val, b: Val, o: Val) -> Val:
    return d


def _extend(d: Val, a: Val, b: Val, o: Val) -> Val:
    """Between f32 and f64: the contribution has the other side's type; the caller converts."""
    return d


# fmt: off
TABLE: dict[type[Operation], tuple[Entry, ...]] = {
    # operation          d * partial by a                                 d * partial by b
    arith.AddfOp:     (_same,                                             _same),
    arith.SubfOp:     (_same,                                             lambda d, a, b, o: -d),
    arith.MulfOp:     (lambda d, a, b, o: d * b,                          lambda d, a, b, o: d * a),
    arith.DivfOp:     (lambda d, a, b, o: d / b,                          lambda d, a, b, o: -(d / b * o)),
    arith.NegfOp:     (lambda d, a, b, o: -d,),
    arith.MinimumfOp: (lambda d, a, b, o: _tie(d, a, b, "olt"),           lambda d, a, b, o: _tie(d, b, a, "olt")),
    arith.MaximumfOp: (lambda d, a, b, o: _tie(d, a, b, "ogt"),           lambda d, a, b, o: _tie(d, b, a, "ogt")),
    arith.ExtFOp:     (_extend,),
    arith.TruncFOp:   (_extend,),
    math.AbsFOp:      (lambda d, a, b, o: _abs(d, a),),
    math.PowFOp:      (lambda d, a, b, o: _pow_base(d, a, b),             lambda d, a, b, o: _pow_exponent(d, a, o)),
    **{f.op: f.partials for f in FUNCTIONS if f.partials},
    LetOp:            (_same,),
    StopGradientOp:   (None,),
    # slope, what it is along, value: the derivative that the user gives
    AlongOp:          (None,  lambda d, a, b, o: d * a,  _same),
    # the condition passes nothing; the arms are guarded by it (differentiate.py)
    arith.SelectOp:   (None, _same, _same),
    # no derivative passes
    arith.ConstantOp: (), RefOp: (), LookupOp: (None,),
    arith.CmpfOp:     (None, None),   arith.CmpiOp:   (None, None),
    arith.UIToFPOp:   (None,),        arith.SIToFPOp: (None,),          arith.FPToSIOp: (None,),
    math.FloorOp:     (None,),
}
# fmt: on
"""Operations on integers and booleans that are not listed pass no derivative either."""


def entry(op: Operation, operand: int) -> Entry:
    """The row's entry for an operand.  None if no derivative passes, by the row or because an end is not real.

    Raises KeyError for an operation on reals that has no row: the caller turns it into a diagnostic.
    """
    real = all(isinstance(v.type, AnyFloat) for v in (op.operands[operand], op.results[0]))
    if type(op) not in TABLE and not real:
        return None
    row = TABLE[type(op)][operand]
    return row if real else None


def needs(op: Operation, operand: int) -> tuple[SSAValue, ...]:
    """Which of the operation's operands and its result the entry reads (found by running it on a scratch block)."""
    rule = entry(op, operand)
    if rule is None:
        return ()
    used = [*op.operands, op.results[0]]
    scratch = Block(arg_types=[op.results[0].type, *[v.type for v in used]])
    apply(rule, Body(scratch), op, scratch.args[0], dict(zip(used, scratch.args[1:], strict=False)))
    out = [v for v, arg in zip(used, scratch.args[1:], strict=True) if arg.uses]
    if isinstance(op, arith.SelectOp):
        out.append(op.cond)
    return tuple(dict.fromkeys(out))


def apply(rule: Entry, body: Body, op: Operation, d: SSAValue, values: dict[SSAValue, SSAValue]) -> SSAValue:
    """Write an entry into a body; `values` maps the primal's operands and result to what stands for them there."""
    assert rule is not None
    reals = [v for v in op.operands if isinstance(v.type, AnyFloat)]
    missing = body.val(d)  # stands for values that the entry does not read
    got = [body.val(values[v]) if v in values else missing for v in (*reals, op.results[0])]
    a, b, o = got[0], got[1] if len(reals) > 1 else got[0], got[-1]
    return rule(body.val(d), a, b, o).ssa
