"""The body of an adjoint node: the chain rule over the primal's straight-line code (AUTODIFF rules 6 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from upl_mlir.dialects.upl import InputOp, LetOp, NodeOp, upl_type
from upl_mlir.ops import Body
from upl_mlir.passes.autodiff.activity import Dependence, input_ports, operands_of
from upl_mlir.passes.autodiff.cut import cheapest_cut
from upl_mlir.passes.autodiff.derivative_table import apply, entry, needs
from upl_mlir.passes.build import condition
from upl_mlir.passes.loops.terms import inner_first
from upl_mlir.poly.expr import Formula

_KINDS = {
    "addf": "sum", "subf": "difference", "mulf": "product", "divf": "quotient", "negf": "negative", "select": "choice",
    "minimumf": "min", "maximumf": "max", "cmpf": "comparison", "powf": "power",
}  # fmt: skip


def _kind(op: Operation | Block) -> str:
    """A word for an operation."""
    name = op.name.rpartition(".")[2] if isinstance(op, Operation) else "input"
    return _KINDS.get(name, name)


@dataclass(frozen=True)
class Arrival:
    """A derivative that comes in: of a value of the primal's body, as an argument of the adjoint node.

    It exists where `guard` holds, or where it does not, if `otherwise`; `mask` is the value of the primal's body under
    which it counts, `tally` the argument that says how many summands it has.
    """

    value: SSAValue
    derivative: SSAValue
    guard: Formula
    mask: SSAValue | None
    tally: SSAValue | None
    otherwise: bool


class AdjointBody:
    """Plans and writes the body.

    `values` are the primal's values whose derivatives arrive, `also` forward values that are read besides those of the
    chain rule (masks); `active` the inputs whose derivatives are wanted.  `stash` lists the forward values
    that must be sent to the adjoint node.
    """

    def __init__(
        self,
        op: InputOp | NodeOp,
        dependence: Dependence,
        values: Sequence[SSAValue],
        active: Sequence[str],
        also: Sequence[SSAValue] = (),
    ):
        self.op = op
        self.dependence = dependence
        self.active = frozenset(active)
        self.steps = self._steps(values)
        needed = [*also, *(v for step, i in self.steps for v in needs(step, i))]
        place = {v: n for n, v in enumerate(self._definitions())}
        self.stash = sorted(cheapest_cut(needed, self._is_input, lambda v: upl_type(v.type).bits), key=place.__getitem__)

    def why(self, value: SSAValue) -> str:
        """Why a forward value is sent: the partial derivatives that read it, or what is computed from it."""
        reasons: list[str] = []
        for step, i in self.steps:
            for read in needs(step, i):
                while isinstance(read.owner, arith.UIToFPOp | arith.ExtFOp):
                    read = read.owner.operands[0]
                if value is read or value in self._recomputed(read):
                    through = "" if value is read else " recomputed from it"
                    reasons.append(f"∂({_kind(step)})/∂{self._name(step.operands[i])} reads {self._name(read)}{through}")
        reasons += [f"tells whether {self._name(v)} was sent" for v in (value,) if not reasons]
        bits = upl_type(value.type).bits
        return "; ".join(dict.fromkeys(reasons)) + f" ({bits} bit{'s' if bits > 1 else ''} a token)"

    def _recomputed(self, v: SSAValue) -> set[SSAValue]:
        """The stashed values from which a forward value is recomputed."""
        read = inner_first(v, lambda x: () if x in self.stash else operands_of(x))
        return {x for x in read if x in self.stash or not isinstance(x.owner, Operation)}

    def _name(self, v: SSAValue) -> str:
        """How the text calls a value, or what it is."""
        if isinstance(v.owner, LetOp):
            return v.owner.var.data
        if isinstance(v, BlockArgument):
            at = v.index - len(self.op.fields)
            return input_ports(self.op)[at] if at >= 0 else self.op.fields[v.index]
        named = next((u.operation.var.data for u in v.uses if isinstance(u.operation, LetOp)), None)
        return named or f"the {_kind(v.owner)}"

    def _definitions(self) -> list[SSAValue]:
        """All values of the primal's body in the order in which they are defined."""
        return [*self.op.block.args, *(r for op in self.op.block.ops for r in op.results)]

    def _is_input(self, v: SSAValue) -> bool:
        return isinstance(v, BlockArgument) and v.index >= len(self.op.fields)

    def _wanted(self, v: SSAValue) -> bool:
        return bool(self.dependence.of(v) & self.active)

    def _steps(self, values: Sequence[SSAValue]) -> list[tuple[Operation, int]]:
        """The (operation, operand) pairs that a derivative passes through, last operation first."""
        live = set(values)
        out: list[tuple[Operation, int]] = []
        for op in reversed(list(self.op.block.ops)):
            if not op.results or op.results[0] not in live:
                continue
            for i, operand in enumerate(op.operands):
                if self._wanted(operand) and entry(op, i) is not None:
                    out.append((op, i))
                    live.add(operand)
        return out

    def write(
        self,
        node: NodeOp,
        arrivals: Sequence[Arrival],
        stash: Mapping[SSAValue, SSAValue],
        extra: Mapping[str, SSAValue],
    ) -> dict[str, SSAValue]:
        """Fill the adjoint node's block; returns the derivative by each active input.

        `stash` gives the argument of each stashed value, `extra` an additional derivative of an input (the seed of
        `of NODE.input`).
        """
        body = Body(node.block, self.op.location)
        n = len(self.op.fields)
        fields = dict(zip(self.op.fields, node.block.args[:n], strict=True))
        known: dict[SSAValue, SSAValue] = dict(zip(self.op.block.args[:n], node.block.args[:n], strict=True))
        known.update(stash)
        taken = {*self.op.fields, *(p.name for p in node.ports)}

        def primal(v: SSAValue) -> SSAValue:
            """A forward value inside the adjoint node, recomputed where it was not sent."""
            for x in inner_first(v, lambda x: () if x in known else operands_of(x)):
                if x in known:
                    continue
                assert isinstance(x.owner, Operation), "the cut separates inputs from needed values"
                if isinstance(x.owner, LetOp) and x.owner.var.data in taken:  # `v = x`, where x is kept as `v`
                    known[x] = known[x.owner.value]
                    continue
                copy = x.owner.clone({o: known[o] for o in x.owner.operands})
                body.emit(copy)
                copy.results[0].name_hint = x.name_hint
                known[x] = copy.results[0]
            return known[v]

        adjoint: dict[SSAValue, SSAValue] = {}
        guard: dict[SSAValue, SSAValue | None] = {}

        def contribute(v: SSAValue, d: SSAValue, g: SSAValue | None) -> None:
            if v in adjoint:
                adjoint[v] = body.add(arith.AddfOp(adjoint[v], d))
                mine = guard[v]
                guard[v] = None if mine is None or g is None else body.add(arith.OrIOp(mine, g))
            else:
                adjoint[v], guard[v] = d, g

        for a in arrivals:
            d, g = a.derivative, None
            scaled = self._scaled(a.value)
            if scaled and not a.guard.is_true:
                g = condition(body, a.guard, fields)
                g = body.add(arith.XOrIOp(g, body.constant(1, g.type))) if a.otherwise else g
            if a.mask is not None:
                sent = primal(a.mask)
                d = body.add(arith.SelectOp(sent, d, body.constant(0.0, d.type)))
                g = sent if g is None else body.add(arith.AndIOp(g, sent))
            if a.tally is not None and scaled:
                some = body.add(arith.CmpiOp(a.tally, body.constant(0, a.tally.type), "sgt"))
                g = some if g is None else body.add(arith.AndIOp(g, some))
            contribute(a.value, d, g if scaled else None)
        for port, d in extra.items():
            contribute(self._argument(port), d, None)
        for op, i in self.steps:
            result = op.results[0]
            if result not in adjoint:
                continue
            used = needs(op, i)
            values = {v: primal(v) for v in used}
            d = body.like(apply(entry(op, i), body, op, adjoint[result], values), op.operands[i].type)
            g = guard[result]
            if g is not None and used:
                d = body.add(arith.SelectOp(g, d, body.constant(0.0, d.type)))
            if isinstance(op, arith.SelectOp):
                d, g = self._branch(body, op, i, d, g, primal(op.cond))
            contribute(op.operands[i], d, g)
        out: dict[str, SSAValue] = {}
        for port in self.active:
            v = self._argument(port)
            out[port] = adjoint[v] if v in adjoint else body.constant(0.0, v.type)
        return out

    @staticmethod
    def _branch(
        body: Body, op: arith.SelectOp, i: int, d: SSAValue, g: SSAValue | None, cond: SSAValue
    ) -> tuple[SSAValue, SSAValue]:
        """The derivative by one arm of ``?:`` and the guard that it carries on: the arm was taken."""
        zero = body.constant(0.0, d.type)
        taken = cond
        if i == 1:
            d = body.add(arith.SelectOp(cond, d, zero))
        else:
            d = body.add(arith.SelectOp(cond, zero, d))
            taken = body.add(arith.XOrIOp(cond, body.constant(1, cond.type)))
        return d, taken if g is None else body.add(arith.AndIOp(g, taken))

    def _scaled(self, v: SSAValue) -> bool:
        """Whether a derivative that arrives at the value is multiplied by anything on its way to an input."""
        below = {v}
        for op, i in self.steps:
            if op.results[0] in below:
                if needs(op, i):
                    return True
                below.add(op.operands[i])
        return False

    def _argument(self, port: str) -> SSAValue:
        return self.op.block.args[len(self.op.fields) + input_ports(self.op).index(port)]
