"""`relay`: a node through which all goes that an input of a node gets, at all instances or at one value of a field.

What passes a narrow place of a program so gets a name: ``of`` and ``wrt`` may then be the relay's input, and the Jacobian is
the product of the two on both sides (AUTODIFF section 4, "Mixed mode").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.dialects.upl import FormulaAttr, NodeOp, ProgramOp, SendOp, port_ref
from upl_mlir.dialects.upl.attributes import PortsAttr
from upl_mlir.dialects.upl.query import endpoints, program_of, span_of, symbols, target_port, value_names
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import COMMENT, here, restricted
from upl_mlir.passes.autodiff.activity import PortKey
from upl_mlir.passes.autodiff.request import port_key
from upl_mlir.passes.build import unused
from upl_mlir.passes.expand import expand
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class Slice:
    """The instances of a node's input at one value of a field, or, without a field, all of them."""

    key: PortKey
    field: str | None = None
    value: int = 0

    @property
    def formula(self) -> Formula:
        """What holds of the slice's instances, among those of the node."""
        return Formula.all(() if self.field is None else (Formula.compare(self.field, "==", self.value),))

    def instances(self, sets: ProgramSets) -> PSet:
        """The slice over the node's fields."""
        return sets.domain(self.key[0]).constrain(self.formula)

    def __str__(self) -> str:
        at = "" if self.field is None else f" at {self.field}={self.value}"
        return f"`{'.'.join(self.key)}`{at}"


@dataclass(frozen=True)
class RelayPass(ModulePass):
    """Put a node before the input `port` (``NODE.input``), at all instances or where `field` is `value`.

    Requires: all domains known; no `adjoint of` directives; no token for the input under a `*`, none that data decide.
    Establishes: a node ``CutNODE`` with the input ``x``, the only source of `port` at those instances.  A gather stands
    before it then, and no longer at the node.
    Source: the elimination of vertices, Griewank and Walther, Evaluating Derivatives, section 10.1: a set of vertices that
    all paths meet.

        node F<k,i> { in x; sin(x) -> F.x<k+1,i> }      ->      node F<k,i> { in x; if k!=2: sin(x) -> F.x<k+1,i>;
                                                                             if k==2: sin(x) -> CutF.x<k+1,i> }
                                                                node CutF<k,i> in k==3 { in x; x -> F.x<k,i> }
    """

    name = "relay"
    port: str
    field: str | None = None
    value: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        sets = ProgramSets(program)
        node = sets.ends.get(self.port.partition(".")[0])
        if node is not None and not isinstance(node, NodeOp):
            raise error("UPL1440", f"relay: `{self.port}` is a host port", span_of(node), help="name an input of a node")
        key = port_key(sets, self.port, "relay", None)
        assert node is not None
        if (self.field is None) != (self.value is None):
            raise error("UPL1440", "relay: `field` and `value` go together", help="write field=k,value=3")
        if self.field is not None and self.field not in node.fields:
            known = did_you_mean(self.field, node.fields)
            raise error("UPL1440", f"relay: `{node.symbol}` has no field `{self.field}`", span_of(node), help=known)
        place = Slice(key, self.field, self.value or 0)
        if place.instances(sets).is_empty():
            raise error("UPL1440", f"relay: {place} has no instance", span_of(node))
        if (why := refused(sets, place)) is not None:
            raise error("UPL1440", f"relay: {why}", span_of(node))
        relay(program, place)


def refused(sets: ProgramSets, place: Slice) -> str | None:
    """Why no node can be put before an input; None if one can."""
    op = sets.ends[place.key[0]]
    assert isinstance(op, NodeOp)
    port = op.port(place.key[1])
    assert port is not None
    name = ".".join(place.key)
    if isinstance(port.count, IndexExpr) and any(op.port(n) for n in port.count.names):
        return f"a token tells how many summands `{name}` gets"
    if not sets.domain(op.symbol).exact:
        return f"the instances of `{op.symbol}` are not known exactly"
    for a in sets.into(*place.key):
        if a.virtual or sets.dynamic(a):
            return f"data decide what `{a.text}` sends"
        if a.stars:
            return f"`{a.text}` sends one token to many instances; what sends it is the narrower place"
    return None


@bounded("the relay")
def relay(program: ProgramOp, place: Slice) -> str:
    """Put the node in front; returns its input as ``NODE.x``.  `refused` must have found nothing.

    A gather is first taken off its node as a whole, so that what comes to the slice and what comes to the rest is one sum.
    """
    node = endpoints(program)[place.key[0]]
    if place.field is not None and target_port(node, place.key[1]).gather is not None:
        _put(program, Slice(place.key), f"Gather{node.symbol}", f"the gather of {node.symbol}.{place.key[1]}")
    return _put(program, place, f"Cut{node.symbol}", f"all that passes {place}".replace("`", ""))


def _put(program: ProgramOp, place: Slice, wanted: str, comment: str) -> str:
    sets = ProgramSets(program)
    name, input_ = place.key
    op = sets.ends[name]
    assert isinstance(op, NodeOp)
    port = target_port(op, input_)
    inside = place.instances(sets)
    x = unused("x", {*op.fields, *value_names(program)})
    node = NodeOp(unused(wanted, symbols(program)), op.fields, [replace(port, name=x)], describe(inside))
    node.domain = node.declared
    node.location = op.location
    node.attributes[COMMENT] = StringAttr(comment)
    program.body.block.insert_op_before(node, op)
    for a in sets.into(name, input_):
        _redirect(sets, a, inside, port_ref(node.symbol, x))
    send = SendOp(node.arg(x), port_ref(name, input_), here(op.fields), rule="relay")
    send.location = op.location
    node.block.add_op(send)
    op.inputs = PortsAttr(tuple(replace(p, gather=None, count=None) if p.name == input_ else p for p in op.ports))
    return f"{node.symbol}.{x}"


def _redirect(sets: ProgramSets, a: Arrow, inside: PSet, x: SymbolRefAttr) -> None:
    """Let the relay take what an arrow sends to the slice."""
    r = sets.relation(a)
    there = inside.rename(dict(zip(a.target.fields, a.dst, strict=True))).extend(a.dims)
    part, rest = (r & there).in_terms_of(a.src).coalesce(), (r - there).in_terms_of(a.src).coalesce()
    if part.is_empty():
        return
    if not rest.is_empty():
        other = a.send.clone({v: v for v in a.send.operands})
        a.source.block.insert_op_after(other, a.send)
        for send, where in ((other, rest), (a.send, part)):
            new = restricted(a, where, sets.domain(a.source.symbol))
            send.condition = None if new.condition.is_true else FormulaAttr(new.condition)
            send.point_condition = None if new.point_condition.is_true else FormulaAttr(new.point_condition)
    a.send.target = x
