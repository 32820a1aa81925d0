"""What a program must satisfy to have derivatives (AUTODIFF section 5): instances fire once, and nothing is rounded.

A rounded value on the way from what is differentiated by to the objective would make the derivative silently 0.
Comparisons have the derivative 0 by convention: a program branches on them.  `floor(x)` and `int(x)` keep the value, so
where the objective reads it (not only compares it, counts with it or uses it as an index) the author is asked to say
what is meant: `stop_gradient`, or `with_derivative`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import AlongOp, InputOp, NodeOp, StopGradientOp
from upl_mlir.dialects.upl.query import span_of, target_port
from upl_mlir.passes.analysis.backward import preimage
from upl_mlir.passes.analysis.obligations import Status, instance, unique
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.autodiff.activity import Dependence, PortKey, fixpoint, key_of, reach
from upl_mlir.poly.sets import PSet

ROUNDING: dict[type[Operation], str] = {math.FloorOp: "floor", arith.FPToSIOp: "int"}
"""Operations that lose a derivative, as the text calls them."""


@dataclass
class _Values(Dependence):
    """Which inputs of a body each of its values depends on, differentiably or not; and what was rounded on the way."""

    lost: dict[SSAValue, dict[str, Operation]] = field(default_factory=dict[SSAValue, dict[str, Operation]])

    def _of(self, v: SSAValue) -> frozenset[str]:
        self.lost[v] = {}
        op = v.owner
        if not isinstance(op, Operation):
            return super()._of(v)
        out: frozenset[str] = frozenset()
        for operand in self._read(v):
            out |= self.memo[operand]
            self.lost[v] |= self.lost[operand]
        if type(op) in ROUNDING:
            self.lost[v] = dict.fromkeys(out, op) | self.lost[v]
        return out

    def _read(self, v: SSAValue) -> Sequence[SSAValue]:
        """The operands that give a value."""
        op = v.owner
        if not isinstance(op, Operation) or isinstance(op, StopGradientOp | arith.CmpfOp | arith.CmpiOp):
            return ()
        return tuple(op.operands[1:] if isinstance(op, arith.SelectOp | AlongOp) else op.operands)


def refuse_firing_twice(sets: ProgramSets) -> None:
    """Raise UplError (UPL1407), with an instance, where an ordinary input gets two tokens; what data decide is left open."""
    for op in sets.ends.values():
        if isinstance(op, InputOp):
            continue
        for port in op.ports if isinstance(op, NodeOp) else (target_port(op, None),):
            into = sets.into(op.symbol, port.name)
            if port.gather is not None or any(sets.dynamic(a) for a in into):
                continue
            for o in unique(sets, op, op.symbol, into):
                if o.status is Status.REFUTED:
                    raise error(
                        "UPL1407", f"not differentiable, since an instance would fire twice: {o.message}", o.span,
                        help="add the values up in an input `@(+)`, or give each its own index",
                    )  # fmt: skip


def refuse_rounding(sets: ProgramSets, of: PortKey, wrt: tuple[PortKey, ...], cut: frozenset[PortKey]) -> None:
    """Raise UplError (UPL1402), with an instance, where `of` depends on one of `wrt` through a rounded value."""
    if not any(type(op) in ROUNDING for op in sets.program.walk()):
        return
    values: dict[str, Dependence] = {
        op.symbol: _Values(op) for op in sets.ends.values() if isinstance(op, InputOp | NodeOp)
    }
    ports = reach(sets, values, of, wrt, cut)
    wanted: dict[PortKey, PSet] | None = None
    for a in sets.arrows:
        body = values[a.source.symbol]
        assert isinstance(body, _Values)
        if a.virtual or key_of(a) not in ports or key_of(a) in cut:
            continue
        for port in sorted(body.of(a.send.value)):
            op = body.lost[a.send.value].get(port)
            if op is None or (a.source.symbol, port) not in ports:
                continue
            wanted = fixpoint(sets, values, of, cut, ports) if wanted is None else wanted
            if key_of(a) in wanted and (at := preimage(sets.relation(a), a, wanted[key_of(a)]).sample()) is not None:
                word = ROUNDING[type(op)]
                raise error(
                    "UPL1402", f"`{word}` has no derivative, and `{'.'.join(dict.fromkeys(of))}` depends on "
                    f"`{'.'.join(dict.fromkeys(_first(sets, values, wrt, (a.source.symbol, port))))}` through its value, at "
                    f"{instance(a.source, at)}", span_of(op),
                    help=f"write {word}(stop_gradient(...)) if no derivative shall pass; with_derivative(...) gives one",
                )  # fmt: skip


def _first(sets: ProgramSets, values: dict[str, Dependence], wrt: tuple[PortKey, ...], to: PortKey) -> PortKey:
    """The first of `wrt` on which a port depends."""
    return next(w for w in wrt if to == w or to in reach(sets, values, to, (w,), frozenset((w,))))
