"""`adjoint of` directives: the derivatives that a program asks for itself, and the order in which they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import AdjointOp, AlongOp, InputOp, LetOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import directives, span_of
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.autodiff.activity import Dependence, PortKey, closure, key_of
from upl_mlir.passes.autodiff.adjoint_ends import Request
from upl_mlir.passes.autodiff.differentiate import differentiate

Edges = list[tuple[PortKey, PortKey]]
"""From an input to one that depends on it differentiably."""


@bounded("differentiation")
def expand_directives(program: ProgramOp) -> None:
    """Replace every `adjoint of` directive by the derivatives that it asks for; the domains must be known.

    A directive whose objective reads the result of another one is expanded after it, so that it differentiates that too.
    Raises UplError (UPL1409) where they wait for each other.
    """
    while pending := directives(program):
        op = _next(ProgramSets(program, directives=True), pending)
        request = Request(
            of=_text(op.of),
            wrt=tuple(_text(w) for w in op.wrt),
            seed=_text(op.seed) if op.seed else None,
            into=tuple(op.into) if op.into else (),
            total=op.total is not None,
        )
        op.detach()
        differentiate(program, request, op)


def _text(ref: SymbolRefAttr) -> str:
    return ".".join([ref.root_reference.data, *[n.data for n in ref.nested_references.data]])


# -- which is expanded first -----------------------------------------------------------------------------------------------


def _next(sets: ProgramSets, pending: Sequence[AdjointOp]) -> AdjointOp:
    """The first directive in the text whose derivative does not go through the result of one that is pending."""
    edges = _edges(sets, pending)
    through = {op: [other for other in pending if _goes_through(edges, op, other)] for op in pending}
    for op, others in through.items():
        if not others:
            return op
    op, others = next(iter(through.items()))
    what = "its own result" if op in others else f"that of `adjoint of {_text(others[0].of)}`, and that one through its own"
    raise error(
        "UPL1409", f"the derivative of `{_text(op.of)}` by {', '.join(f'`{_text(w)}`' for w in op.wrt)} goes through {what}",
        span_of(op), help="write stop_gradient(...) where a result shall count as a constant",
    )  # fmt: skip


def _goes_through(edges: Edges, op: AdjointOp, other: AdjointOp) -> bool:
    """Whether a path from a `wrt` of one directive to its `of` enters an input that the other one serves."""
    wrt = {_key(w) for w in op.wrt}
    inside = edges if op.total is not None else [(u, v) for u, v in edges if v not in wrt]
    between = closure(inside, wrt, forward=True) & closure(inside, [_key(op.of)], forward=False)
    entered = {v for u, v in inside if u in between and v in between}
    return any(_key(into) in entered for into in other.into or ())


def _edges(sets: ProgramSets, pending: Sequence[AdjointOp]) -> Edges:
    """Dependences between inputs, along arrows and through directives: the result of one depends on all that its objective
    and its seed depend on.
    """
    plain = {op.symbol: Dependence(op) for op in sets.ends.values() if isinstance(op, InputOp | NodeOp)}
    edges = _along(sets, plain)
    read = {n: _Read(d.source) for n, d in plain.items()}
    results = [(u, _key(into)) for op in pending for u in _starts(read, op) for into in op.into or ()]
    behind = [*_along(sets, read), *results]
    for op in pending:
        served = [_key(into) for into in op.into or ()]
        edges += [(u, v) for u in closure(behind, _starts(read, op), forward=False) for v in served]
    return edges


def _along(sets: ProgramSets, dependence: Mapping[str, Dependence]) -> Edges:
    return [
        ((a.source.symbol, p), key_of(a))
        for a in sets.arrows
        if not a.virtual
        for p in dependence[a.source.symbol].of(a.send.value)
    ]


def _starts(read: Mapping[str, Dependence], op: AdjointOp) -> Iterable[PortKey]:
    """The inputs that a directive's result depends on at first hand: `of`, and what the seed is computed from."""
    yield _key(op.of)
    if op.seed is not None:
        name, variable = op.seed.root_reference.data, op.seed.nested_references.data[0].data
        body = read[name].source.block.ops
        for value in (o.result for o in body if isinstance(o, LetOp) and o.var.data == variable):
            yield from ((name, p) for p in read[name].of(value))


def _key(ref: SymbolRefAttr) -> PortKey:
    nested = ref.nested_references.data
    return ref.root_reference.data, (nested[0] if nested else ref.root_reference).data


class _Read(Dependence):
    """What the derivatives of a value depend on: they read the slopes of `with_derivative`, which the value does not."""

    def _of(self, v: SSAValue) -> frozenset[str]:
        op = v.owner
        if isinstance(op, AlongOp):
            return self.of(op.slope) | self.of(op.at) | self.of(op.value)
        return super()._of(v)
