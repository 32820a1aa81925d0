# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Instances by their source: a node of which data choose some index fields, without those fields.

Where the other fields of an instance determine which instance sent it its token, the node needs no more: what data choose
is an input.  Inputs that other, static sources serve are then looked up: a node compares, and a gather takes what is equal.

    node Elem<i,p> { in v, col: int; v -> Mul.v<col,i,p> }      // X<j> ## -> Mul.x<j,*,*>
    node Mul<j,i,p> { in x, v; x*v -> Row.s<i> }
    ->
    node Elem<i,p> { in v, col: int; v -> Mul.v<i,p>; col -> Mul.j<i,p>; col ## -> X_to_Mul.at<*,i,p> }
    node X_to_Mul<j,i,p> { in v, at: int; at == j ? v : -1/0 -> Mul.x<i,p> }
    node Mul<i,p> { in j: int, @(max) x[n], v; x*v -> Row.s<i> }

Loops over arrays read `X` at `at` then: what a comparison leaves of a loop is one iteration (`loops/matches.py`).

Source: the relation of an arrow turned round (docs/architecture.md), with the fields that data choose as values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import (
    FormulaAttr,
    Gather,
    InputOp,
    LetOp,
    NodeOp,
    Port,
    SendOp,
    Special,
    UplType,
    port_ref,
)
from upl_mlir.dialects.upl.query import ports_and_fields, span_of
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.autodiff.adjoint_plan import total
from upl_mlir.passes.build import condition, index_value, unused
from upl_mlir.passes.predicate.certain import activates_all, surely_fires
from upl_mlir.passes.predicate.gates import Gates
from upl_mlir.passes.predicate.indices import OTHER_ENGINES, data_names
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_counts
from upl_mlir.poly.sets import PSet, union


@dataclass(frozen=True, eq=False)
class Doubt:
    """Where a run goes wrong: an instance of `node` that fires with `bad` 1."""

    node: NodeOp
    bad: SSAValue
    what: str


@dataclass(eq=False)
class Rewritten:
    """What `by_source` did: names of the nodes that fire always, of those that it made or changed, and what may go wrong."""

    always: set[str] = field(default_factory=set[str])
    changed: set[str] = field(default_factory=set[str])
    doubts: list[Doubt] = field(default_factory=list[Doubt])


def by_source(sets: ProgramSets, *, ordered: bool) -> tuple[ProgramSets, Rewritten]:
    """Take the fields that data choose from all nodes whose instances follow from their sources, in place.

    Nodes that do not are left as they are; where folds are `ordered`, those that send to one that rounds, too, as the order
    of summands goes by all fields.  Returns the sets of the new program."""
    done = Rewritten()
    tried: set[str] = set()
    while True:
        names = dict.fromkeys(a.target.symbol for a in sets.arrows if data_names(sets, a))
        todo = [n for n in names if n not in tried and isinstance(sets.ends[n], NodeOp)]
        if not todo:
            return sets, done
        tried.add(todo[0])
        plan = _plan(sets, todo[0], surely_fires(sets, done.always), ordered=ordered)
        if plan is not None:
            _Rewriter(sets, plan, done).rewrite()
            tried.clear()
            sets = ProgramSets(sets.program)


@dataclass(eq=False)
class _Plan:
    """A node that is to lose the fields `gone`: inputs that come from the sources of its instances, and the others."""

    node: NodeOp
    gone: list[str]
    kept: list[str]
    domain: PSet
    """The instances that there may be, over the kept fields."""
    carried: dict[str, list[Arrow]]
    looked_up: dict[str, list[Arrow]]
    tell: list[str]
    """Carried inputs whose tokens say the lost fields: one of those that come by the same arrows.  They all must say the
    same, as tokens with different indices would not meet."""

    @property
    def asks(self) -> dict[str, list[str]]:
        """By input that is looked up, the lost fields that say which token: at the others all have `*`."""
        return {n: [f for f in self.gone if any(_at(self.node, a.send, f) is not None for a in into)]
                for n, into in self.looked_up.items()}  # fmt: skip


def _at(node: NodeOp, s: SendOp, name: str) -> IndexExpr | None:
    """The index of an arrow to a node at one of its fields; None for `*`."""
    return s.index.data[node.fields.index(name)]


def _plan(sets: ProgramSets, name: str, sure: Collection[str], *, ordered: bool) -> _Plan | None:
    """How a node can do without the fields that data choose; None if it cannot."""
    node = sets.ends[name]
    assert isinstance(node, NodeOp)
    gone = [
        f for n, f in enumerate(node.fields)
        if any((e := a.send.index.data[n]) is not None and e.names & set(data_names(sets, a)) for a in sets.into(name))
    ]  # fmt: skip
    kept = [f for f in node.fields if f not in gone]
    if not gone or any(p.gather is not None for p in node.ports) or _in_the_way(node, gone):
        return None
    if ordered and any(a.port.gather is not None and a.port.gather.rounds for a in sets.out_of(name)):
        return None
    into = {p.name: sets.into(name, p.name) for p in node.ports}
    carried = {p: arrows for p, arrows in into.items() if arrows and all(_carries(sets, a, gone, kept) for a in arrows)}
    looked_up = {p: arrows for p, arrows in into.items() if p not in carried}
    if not carried or not all(looked_up.values()):
        return None
    domain = _domain(sets, kept, carried)
    if not all(_are_looked_up(sets, arrows, gone, sure, domain) for arrows in looked_up.values()):
        return None
    gates = Gates(sets)
    alike: dict[tuple[str, ...], str] = {}
    for p, into in carried.items():
        alike.setdefault(tuple(sorted(str(_way(gates, a)) for a in into)), p)
    return _Plan(node, gone, kept, domain, carried, looked_up, list(alike.values()))


def _in_the_way(node: NodeOp, gone: Sequence[str]) -> bool:
    """Whether something that has to follow from indices needs a field that is to go."""
    for s in node.sends:
        needed = {n for it in s.loops for e in (it.lo, it.hi) for n in e.names} | s.when_point.names
        if isinstance(s.multiplicity, IndexExpr):
            needed |= s.multiplicity.names
        if needed & set(gone):
            return True
    return False


def _carries(sets: ProgramSets, a: Arrow, gone: Sequence[str], kept: Sequence[str]) -> bool:
    """Whether the kept fields of an instance say who sent the token, and whether the token says the others."""
    if a.stars or a.send.multiplicity != IndexExpr.of(1):
        return False
    own = gone if a.source is a.target else ()  # what the node sends itself: of these it has one for each of the others
    return said_by(sets, a, kept, own)


def said_by(sets: ProgramSets, a: Arrow, fields: Sequence[str], own: Sequence[str] = ()) -> bool:
    """Whether some fields of an arrow's target say which instance of the source sent the token, its fields `own` aside."""
    dst = [f"{f}'" for f in fields]
    r = sets.relation(a, inside_target=False)
    return all(r.express(IndexExpr.of(d), dst) is not None for d in (*a.src, *a.loops) if d not in own)


def _are_looked_up(
    sets: ProgramSets, arrows: Sequence[Arrow], gone: Sequence[str], sure: Collection[str], domain: PSet
) -> bool:
    """Whether the instances alone say who sent the tokens of an input, one for each, which their sources always send.

    A token is for any number of instances, or for all of a `domain` without the fields that are to go, at which it has `*`:
    one that does not fire leaves it over."""
    for a in arrows:
        if not a.exact or a.source.symbol not in sure:
            return False
        if a.send.multiplicity is not Special.UNBOUNDED and not (_at_all(a, gone) and activates_all(sets, a, domain)):
            return False
        r = sets.relation(a, inside_target=False)
        if any(r.express(IndexExpr.of(d), a.dst) is None for d in (*a.src, *a.loops)):
            return False
    images = [sets.image(a) for a in arrows]
    if not all((p & q).is_empty() for n, p in enumerate(images) for q in images[:n]):
        return False
    whole = all(_at_all(a, gone) for a in arrows)  # else the node that compares says where there is none
    return not whole or domain.as_meant() <= union([i.project(domain.dims) for i in images])


def _at_all(a: Arrow, fields: Sequence[str]) -> bool:
    """Whether an arrow's index has `*` at all of some fields."""
    return {f"{f}'" for f in fields} <= set(a.stars)


def _domain(sets: ProgramSets, kept: Sequence[str], carried: Mapping[str, Sequence[Arrow]]) -> PSet:
    """The instances that there may be, over the kept fields."""
    out: PSet | None = None
    for into in carried.values():
        image = union([sets.image(a).project(kept) for a in into]).coalesce()
        out = image if out is None else out & image
    assert out is not None
    return out


def _way(gates: Gates, a: Arrow) -> object:
    """What arrows that send under the same conditions to the same index have in common."""
    s = a.send
    predicate = None if s.predicate is None else gates.key(s.predicate)
    return a.source.symbol, predicate, s.index, s.condition, s.iterators, s.point_condition


class _Rewriter:
    """Takes fields from one node."""

    def __init__(self, sets: ProgramSets, plan: _Plan, done: Rewritten):
        self.sets, self.plan, self.done = sets, plan, done
        self.old = plan.node
        self.sends: dict[SendOp, SendOp] = {}
        """The arrows of the new node by those of the old one."""
        self.used = ports_and_fields(sets.program) | {
            n for op in sets.ends.values() if isinstance(op, NodeOp)
            for n in (*op.fields, *(p.name for p in op.ports), *(it.name for s in op.sends for it in s.loops))
        }  # fmt: skip

    def rewrite(self) -> None:
        """The node without the fields, its arrows, and what is looked up."""
        plan, domain = self.plan, self.plan.domain
        inside: list[Formula] = []
        counts: dict[str, IndexExpr] = {}
        makers: dict[str, NodeOp] = {}
        for name, into in plan.looked_up.items():
            if plan.asks[name]:
                makers[name], counts[name], where = self._looked_up(name, into, domain)
                inside.append(where)
        new = self._node(domain, counts)
        for arrows in plan.looked_up.values():
            for a in arrows:
                to = makers.get(a.port.name, new)
                target = port_ref(to.symbol, a.port.name if to is new else to.ports[0].name)
                _moved(a.send, target, tuple(_at(self.old, a.send, f) for f in self._without_idle(a.port.name)))
        self._carry(new, makers)
        self._doubt(new, Formula.all(inside))
        self.done.always |= {m.symbol for m in makers.values()}
        self.done.changed |= {new.symbol, *(m.symbol for m in makers.values())}

    def _node(self, domain: PSet, counts: dict[str, IndexExpr]) -> NodeOp:
        """The node with what data choose as inputs, in the place of the old one."""
        old, gone = self.old, self.plan.gone
        self.said = {p: [unused(f, self.used) if n else f for f in gone] for n, p in enumerate(self.plan.tell)}
        ports = [Port(f, UplType.INT) for names in self.said.values() for f in names]
        for p in old.ports:
            if p.name in counts:
                gather = Gather.OR if p.type is UplType.BOOL else Gather.MAX
                ports.append(Port(p.name, p.type, gather=gather, count=counts[p.name]))
            else:
                ports.append(p)
        new = NodeOp(old.symbol, self.plan.kept, ports)
        new.domain = FormulaAttr(describe(domain.as_meant()))
        new.location = old.location
        values: dict[SSAValue, SSAValue] = {}
        for f, arg in zip(old.fields, old.block.args, strict=False):
            values[arg] = new.arg(f) if f in gone else new.block.args[self.plan.kept.index(f)]
        for p in old.ports:
            values[old.arg(p.name)] = new.arg(p.name)
        body = Body(new.block)
        for op in old.block.ops:
            if isinstance(op, SendOp):
                copy = self.sends[op] = self._send(op, new, body, values)
            else:
                copy = op.clone(values)
            copy.location = op.location
            new.block.add_op(copy)
            for a, b in zip(op.results, copy.results, strict=True):
                b.name_hint = a.name_hint
        block = self.sets.program.body.block
        block.insert_op_before(new, old)
        old.detach()
        old.erase()
        return new

    def _send(self, s: SendOp, new: NodeOp, body: Body, values: dict[SSAValue, SSAValue]) -> SendOp:
        """An arrow of the node: what its condition on indices says of the lost fields is a condition on data."""
        gone = set(self.plan.gone)
        kept = [f for f in s.when.conjuncts if not f.names & gone]
        data = [f for f in s.when.conjuncts if f.names & gone]
        predicate = None if s.predicate is None else values[s.predicate]
        if data:
            names = dict(zip((*new.fields, *(p.name for p in new.ports)), new.block.args, strict=True))
            bit = condition(body, Formula.all(data), names)
            predicate = bit if predicate is None else body.add(arith.AndIOp(bit, predicate))
        return SendOp(
            values[s.value], s.target, s.index.data, count=s.multiplicity, condition=Formula.all(kept), predicate=predicate,
            iterators=s.loops, point_condition=s.when_point, rule="by source",
        )  # fmt: skip

    def _looked_up(self, port: str, into: Sequence[Arrow], domain: PSet) -> tuple[NodeOp, IndexExpr, Formula]:
        """The node that compares, how many of its instances send to one of the node's, and where there is one."""
        sets, old, plan = self.sets, self.old, self.plan
        type_ = next(p.type for p in old.ports if p.name == port)
        asks, fields = plan.asks[port], self._without_idle(port)
        images = union([sets.image(a).project(fields) for a in into]).coalesce()
        every = domain.extend(fields).reorder(fields)
        where = (images & every).coalesce()
        value, *at = (unused(n, self.used) for n in ("v", *(f"at_{f}" for f in asks)))
        name = unused(f"{old.symbol}_{port}", self.used)
        maker = NodeOp(name, fields, [Port(value, type_), *(Port(n, UplType.INT) for n in at)])
        maker.domain = FormulaAttr(describe(where.as_meant()))
        maker.location = old.location
        self.sets.program.body.block.add_op(maker)
        body = Body(maker.block, old.location)
        equal: SSAValue | None = None
        for f, n in zip(asks, at, strict=True):
            same = body.add(arith.CmpiOp(maker.arg(n), maker.block.args[fields.index(f)], "eq"))
            equal = same if equal is None else body.add(arith.AndIOp(equal, same))
        assert equal is not None
        gather = Gather.OR if type_ is UplType.BOOL else Gather.MAX
        none = neutral(body, gather, type_)
        body.emit(SendOp(
            body.add(arith.SelectOp(equal, maker.arg(value), none)), port_ref(old.symbol, port),
            tuple(IndexExpr.of(f) for f in plan.kept), rule="by source",
        ))  # fmt: skip
        terms = fibre_counts(where.as_meant(), asks)
        if terms is None:
            raise refused(into[0], "how many tokens there may be cannot be counted")
        return maker, total(terms, domain), describe(images.as_meant(), every.as_meant())

    def _without_idle(self, port: str) -> tuple[str, ...]:
        """The fields without the lost ones that no arrow to an input names."""
        asks = self.plan.asks[port]
        return tuple(f for f in self.old.fields if f in self.plan.kept or f in asks)

    def _carry(self, new: NodeOp, makers: dict[str, NodeOp]) -> None:
        """The arrows of the sources, and what they say of the lost fields."""
        plan, fields = self.plan, self.old.fields
        first = plan.tell[0]
        for port, into in plan.carried.items():
            for a in into:
                s = self.sends.get(a.send, a.send)
                source = new if a.source is self.old else a.source
                index = tuple(e for f, e in zip(fields, s.index.data, strict=True) if f in plan.kept)
                if port in self.said:
                    for f, told in zip(plan.gone, self.said[port], strict=True):
                        wanted = s.index.data[fields.index(f)]
                        assert wanted is not None
                        self._tell(a, s, source, wanted, port_ref(new.symbol, told), index, None)
                        for name, m in makers.items():
                            if port != first or f not in plan.asks[name]:
                                continue
                            at = m.ports[1 + plan.asks[name].index(f)].name
                            of = zip(fields, s.index.data, strict=True)
                            stars = tuple(None if g in plan.gone else e for g, e in of if g in m.fields)
                            self._tell(a, s, source, wanted, port_ref(m.symbol, at), stars, Special.UNBOUNDED)
                _moved(s, s.target, index)

    def _tell(
        self, a: Arrow, s: SendOp, source: InputOp | NodeOp, e: IndexExpr, target: SymbolRefAttr,
        index: tuple[IndexExpr | None, ...], count: Special | None,
    ) -> None:  # fmt: skip
        """An arrow beside another one with the value of an index expression."""
        if e.names & set(a.loops):
            raise refused(a, "its index follows from data and from an iterator")
        scratch = Before(s)
        value = index_value(scratch, e, body_names(source))
        new = SendOp(
            value, target, index, count=count, condition=s.when, predicate=s.predicate, iterators=s.loops,
            point_condition=s.when_point, rule="by source",
        )  # fmt: skip
        scratch.emit(new)

    def _doubt(self, new: NodeOp, inside: Formula) -> None:
        """An index that data choose may have nothing to be looked up, and tokens that are to meet may have two."""
        if not new.sends:
            return
        body = BeforeSends(new)
        for port in self.plan.tell[1:]:
            for f, told in zip(self.plan.gone, self.said[port], strict=True):
                other = body.add(arith.CmpiOp(new.arg(f), new.arg(told), "ne"))
                self.done.doubts.append(Doubt(new, other, f"tokens do not meet in `{new.symbol}`"))
        if inside == TRUE:
            return
        names = dict(zip((*new.fields, *(p.name for p in new.ports)), new.block.args, strict=True))
        good = condition(body, inside, names)
        bad = body.add(arith.XOrIOp(good, body.constant(1, good.type)))
        what = f"an instance of `{new.symbol}` waits for a token that no instance sends"
        self.done.doubts.append(Doubt(new, bad, what))


class Before(Body):
    """Writes before an operation."""

    def __init__(self, at: Operation):
        block = at.parent
        assert block is not None
        super().__init__(block, at.location)
        self.at = at

    def add(self, op: Operation) -> SSAValue:
        """Insert an operation with one result."""
        self.emit(op)
        return op.results[0]

    def emit(self, op: Operation) -> None:
        """Insert an operation for its effect."""
        if self.location is not None:
            op.location = self.location
        self.block.insert_op_before(op, self.at)


class BeforeSends(Before):
    """Writes before the arrows of a node."""

    def __init__(self, node: InputOp | NodeOp):
        super().__init__(node.sends[0])


def _moved(s: SendOp, target: SymbolRefAttr, index: tuple[IndexExpr | None, ...]) -> SendOp:
    """The arrow to another place."""
    new = SendOp(
        s.value, target, index, count=s.multiplicity, condition=s.when, predicate=s.predicate, iterators=s.loops,
        point_condition=s.when_point, rule="by source",
    )  # fmt: skip
    Before(s).emit(new)
    s.detach()
    s.erase()
    return new


def body_names(source: InputOp | NodeOp) -> dict[str, SSAValue]:
    """What the names in an index stand for in a body."""
    ports = [p.name for p in source.ports] if isinstance(source, NodeOp) else [source.symbol]
    names: dict[str, SSAValue] = dict(zip((*source.fields, *ports), source.block.args, strict=True))
    return names | {o.var.data: o.result for o in source.block.ops if isinstance(o, LetOp)}


def neutral(body: Body, gather: Gather, type_: UplType) -> SSAValue:
    """What leaves every summand as it is."""
    value = gather.empty_integer() if type_ is UplType.INT else gather.neutral
    return body.constant(value, type_.mlir())


def refused(a: Arrow, why: str) -> UplError:
    """UPL1821 for an arrow that has no static form."""
    return error("UPL1821", f"data decide the index of {a.text}: {why}", span_of(a.send), help=OTHER_ENGINES)
