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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import SymbolRefAttr, i1
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
from upl_mlir.dialects.upl.attributes import Iterator
from upl_mlir.dialects.upl.query import ports_and_fields, span_of
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.autodiff.adjoint_plan import total
from upl_mlir.passes.build import condition, index_value, unused
from upl_mlir.passes.predicate.certain import covered, surely_fires
from upl_mlir.passes.predicate.drafts import Way
from upl_mlir.passes.predicate.indices import OTHER_ENGINES, data_names
from upl_mlir.passes.predicate.plan import Plan, index_at, plan_of, said_to
from upl_mlir.poly.describe import describe, interval
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_counts
from upl_mlir.poly.sets import PSet, union


@dataclass(frozen=True, eq=False)
class Doubt:
    """Where a run goes wrong: an instance of `node` that fires with `bad` 1."""

    node: InputOp | NodeOp
    bad: SSAValue
    what: str


@dataclass(eq=False)
class Rewritten:
    """What `by_source` did: names of the nodes that fire always, of those that it made or changed, and what may go wrong."""

    always: set[str] = field(default_factory=set[str])
    changed: set[str] = field(default_factory=set[str])
    doubts: list[Doubt] = field(default_factory=list[Doubt])
    known: dict[str, Formula] = field(default_factory=dict[str, Formula])
    """By node that lost fields, its domain: what it says of the inputs that have the names of those fields."""


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
        plan = plan_of(sets, todo[0], surely_fires(sets, done.always), ordered=ordered)
        if plan is not None:
            _Rewriter(sets, plan, done).rewrite()
            tried.clear()
            sets = ProgramSets(sets.program)


class _Rewriter:
    """Takes fields from one node."""

    def __init__(self, sets: ProgramSets, plan: Plan, done: Rewritten):
        self.sets, self.plan, self.done = sets, plan, done
        self.old = plan.node
        self.sends: dict[SendOp, SendOp] = {}
        """The arrows of the new node by those of the old one."""
        self.compares: dict[str, PSet] = {}
        """By input that is looked up, the instances of the node that compares."""
        self.narrowed: set[str] = set()
        """Those of them that have not all instances that the arrows cover, as the node's domain has not."""
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
                index = tuple(index_at(self.old, a.send, f) for f in self._without_idle(a.port.name))
                _moved(a.send, target, index, a.send.when & self._meets(a, self.compares.get(a.port.name, domain)))
        was = describe(self.sets.domain(new.symbol).as_meant())
        self.done.known[new.symbol] = was & self.done.known.get(new.symbol, TRUE)
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
        self.done.doubts = [replace(d, node=new, bad=values[d.bad]) if d.node is old else d for d in self.done.doubts]
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
        own = sets.domain(old.symbol).as_meant().project(fields)  # a token that comes to another instance goes wrong
        every = domain.extend(fields).reorder(fields)
        where = (images & every & own).coalesce()
        self.compares[port] = where
        if not images & every <= own:
            self.narrowed.add(port)
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
        return maker, total(terms, domain), describe(where.as_meant(), every.as_meant())

    def _meets(self, a: Arrow, where: PSet) -> Formula:
        """Which of an arrow's tokens meet some instance: where all did, some may not, of fewer instances."""
        if a.loops:
            return TRUE
        return describe(covered(self.sets, a, where).project(a.src), self.sets.tokens(a).as_meant())

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
                inside = said_to(s, self.old, plan.inside)
                when = s.when & inside
                if port in self.said:
                    if not inside.is_true:
                        self._outside(s, source, inside)
                    for f, told in zip(plan.gone, self.said[port], strict=True):
                        wanted = s.index.data[fields.index(f)]
                        assert wanted is not None
                        self._tell(a, s, source, wanted, port_ref(new.symbol, told), index, None, when, Way(()))
                        for name, m in makers.items():
                            if port != first or f not in plan.asks[name]:
                                continue
                            at = m.ports[1 + plan.asks[name].index(f)].name
                            each = self._each(name, m, s)
                            some = describe(self.compares[name].project(plan.kept), plan.domain.as_meant())
                            some = said_to(s, self.old, some)
                            if some.names & {*plan.gone, *data_names(self.sets, a)}:
                                raise refused(a, "its index follows from data, and not everywhere is there a token to meet")
                            to = port_ref(m.symbol, at)
                            self._tell(a, s, source, wanted, to, each.index, each.count, when & some, each)
                _moved(s, s.target, index, when)

    def _each(self, port: str, maker: NodeOp, s: SendOp) -> Way:
        """How a node that compares is told the index of a token: by `*`; by a `for` where it has not all instances that this
        covers, so that its domain follows from its arrows."""
        plan, where = self.plan, self.compares[port]
        index = {f: e for f, e in zip(self.old.fields, s.index.data, strict=True) if f in maker.fields}
        stars = Way(tuple(None if f in plan.gone else e for f, e in index.items()), count=Special.UNBOUNDED)
        if port not in self.narrowed:
            return stars
        loops: list[Iterator] = []
        for f in plan.asks[port]:
            got = interval(where, f, ())
            if got is None:
                return stars
            loops.append(Iterator(unused(f, self.used), got[0].lo, got[0].hi))
            index[f] = IndexExpr.of(loops[-1].name)
        inside = describe(where.as_meant()).substitute({f: e for f, e in index.items() if e is not None})
        return Way(tuple(index.values()), loops=tuple(loops), when_point=inside)

    def _outside(self, s: SendOp, source: InputOp | NodeOp, inside: Formula) -> None:
        """A token that goes to what is no instance goes wrong."""
        scratch = Before(s)
        names = body_names(source)
        one = scratch.constant(1, i1)
        bad = scratch.add(arith.XOrIOp(condition(scratch, inside, names), one))
        if not s.when.is_true:
            bad = scratch.add(arith.AndIOp(bad, condition(scratch, s.when, names)))
        if s.predicate is not None:
            bad = scratch.add(arith.AndIOp(bad, s.predicate))
        self.done.doubts.append(Doubt(source, bad, f"a token goes to an index that `{self.old.symbol}` does not have"))

    def _tell(
        self, a: Arrow, s: SendOp, source: InputOp | NodeOp, e: IndexExpr, target: SymbolRefAttr,
        index: tuple[IndexExpr | None, ...], count: IndexExpr | Special | None, when: Formula, more: Way,
    ) -> None:  # fmt: skip
        """An arrow beside another one with the value of an index expression; with the iterators of a way, too."""
        if e.names & set(a.loops):
            raise refused(a, "its index follows from data and from an iterator")
        scratch = Before(s)
        value = index_value(scratch, e, body_names(source))
        new = SendOp(
            value, target, index, count=count, condition=when, predicate=s.predicate, iterators=(*s.loops, *more.loops),
            point_condition=s.when_point & more.when_point, rule="by source",
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


def _moved(
    s: SendOp, target: SymbolRefAttr, index: tuple[IndexExpr | None, ...], when: Formula | None = None
) -> SendOp:
    """The arrow to another place, under its own condition or another one."""
    new = SendOp(
        s.value, target, index, count=s.multiplicity, condition=s.when if when is None else when, predicate=s.predicate,
        iterators=s.loops, point_condition=s.when_point, rule="by source",
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
