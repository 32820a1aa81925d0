# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""If-conversion of arrows whose condition data decide.

Every node of which data decide what instances fire gets a *gate* beside it: a node of the same fields that knows by bits
whether the instance is there, and under which of its conditions it sends.  Values go along the old arrows, always; bits go
along arrows of the gates.  Where several tokens may come to one input, of which at most one is there, and in gathers, the
gate sends what changes nothing (-0.0 to a sum) in place of a token that is not there; a *merge* node gathers them and
counts those that are there.

Source: J. R. Allen, K. Kennedy, C. Porterfield, J. Warren, "Conversion of control dependence to data dependence", POPL 1983.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import SymbolRefAttr, i1, i64
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import (
    FormulaAttr,
    Gather,
    InputOp,
    NodeOp,
    OutputOp,
    Port,
    ProgramOp,
    SendOp,
    Special,
    UplType,
    port_ref,
)
from upl_mlir.dialects.upl.attributes import PortsAttr
from upl_mlir.dialects.upl.query import Endpoint, arrows, nodes, span_of, target_port
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.at_sizes import refuse_open
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import here
from upl_mlir.passes.autodiff.adjoint_plan import total
from upl_mlir.passes.build import index_value, unused
from upl_mlir.passes.predicate.checks import mark
from upl_mlir.passes.predicate.drafts import Draft, Make, Values, Way, all_of, any_of, emit, negated
from upl_mlir.passes.predicate.gates import Gates
from upl_mlir.passes.predicate.indices import OTHER_ENGINES, Picked, static_indices
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import TRUE, IndexExpr
from upl_mlir.poly.fibres import fibre_counts
from upl_mlir.poly.sets import PSet


def decided_by_data(program: ProgramOp) -> bool:
    """Whether data decide arrows of a program with known domains, or how many summands a gather waits for."""
    if any(p.open or _counted(op, p) for op in nodes(program) for p in op.ports):
        return True
    return not all(a.exact for a in ProgramSets(program).arrows)


def if_convert(program: ProgramOp, integers: int = 64) -> None:
    """Make all arrows, and all numbers of summands, of a program with known domains follow from indices, in place.
    `integers` are the bits of integers where the program is to run.

    Raises UplError UPL1821 where data decide more than bits can say."""
    for op in nodes(program):
        refuse_open(op)
    before = {id(send): n for n, send in enumerate(arrows(program))}
    picked = static_indices(ProgramSets(program))
    before |= {id(send): p.at for p in picked for send in p.picks.sends}
    _Conversion(ProgramSets(program), picked, integers, before).convert()


@dataclass(eq=False)
class _Way:
    """An arrow into an input, with what it depends on besides indices."""

    arrow: Arrow
    go: tuple[bool, int | None]
    """Whether the source surely fires, and the number of the condition; None for none."""

    @property
    def certain(self) -> bool:
        """Whether its token always comes."""
        return self.go == (True, None)


@dataclass(eq=False)
class _Group:
    """Inputs of one node, or outputs, that get their tokens by arrows of the same conditions and indices."""

    ports: list[tuple[Endpoint, Port, list[_Way]]]

    @property
    def ways(self) -> list[_Way]:
        """Those of the first one: the others' are alike."""
        return self.ports[0][2]

    @property
    def gather(self) -> bool:
        """Whether it is a gather."""
        return self.ports[0][1].gather is not None

    @property
    def certain(self) -> bool:
        """Whether its tokens always come."""
        op, port, ways = self.ports[0]
        return all(w.certain for w in ways) and not _counted(op, port)

    @property
    def loose(self) -> bool:
        """Whether its tokens may be left over (`##`)."""
        return any(w.arrow.send.multiplicity is Special.UNBOUNDED for w in self.ways)


@dataclass(eq=False)
class _Conversion:
    """`integers`: the bits of the engine's integers; `at`: the place of each arrow in the text."""

    sets: ProgramSets
    picked: list[Picked]
    integers: int
    at: Mapping[int, int]
    merges: list[Draft] = field(default_factory=list[Draft])
    there: dict[str, list[Make]] = field(default_factory=dict[str, list[Make]])
    """By node, the bits that together say whether an instance is there."""
    always: list[SendOp] = field(default_factory=list[SendOp])
    """Arrows whose condition goes."""

    def __post_init__(self) -> None:
        self.program = self.sets.program
        self.gates = Gates(self.sets)
        self.used = self.gates.used
        self.sure = self._sure()

    # -- what is certain ------------------------------------------------------------------------------------------------
    def _sure(self) -> set[str]:
        """What surely fires on its whole domain, in each run without an error: some input of it always gets its token, which
        would be left over if the instance did not fire."""
        sure = {n for n, op in self.sets.ends.items() if not isinstance(op, NodeOp)}
        before = -1
        while before != (before := len(sure)):
            for name, op in self.sets.ends.items():
                if name in sure or not isinstance(op, NodeOp):
                    continue
                for p in op.ports:
                    ways = [_Way(a, (a.source.symbol in sure, None if a.exact else 0)) for a in self.sets.into(name, p.name)]
                    group = _Group([(op, p, ways)])
                    if group.certain and ways and not group.loose:
                        sure.add(name)
                        break
        return sure

    def groups(self, ends: Sequence[tuple[Endpoint, Port]]) -> list[_Group]:
        """Inputs that get their tokens alike, together."""
        found: dict[object, _Group] = {}
        for op, port in ends:
            ways: list[_Way] = []
            for a in self.sets.into(op.symbol, port.name):
                p = a.send.predicate
                ways.append(_Way(a, (a.source.symbol in self.sure, None if p is None else self.gates.key(p))))
            alike = tuple(sorted(map(str, map(self._kind, ways))))
            at = op.symbol if isinstance(op, NodeOp) else (op.fields, str(op.domain))
            k = (alike, at, port.name if port.gather else "")
            found.setdefault(k, _Group([])).ports.append((op, port, ways))
        return list(found.values())

    def _kind(self, w: _Way) -> object:
        """What arrows with the same tokens there, at the same instances, have in common."""
        send = w.arrow.send
        loose = send.multiplicity is Special.UNBOUNDED
        if w.certain and w.arrow.port.gather is None:
            return str(describe(self.sets.image(w.arrow).as_meant())), loose
        more = (send.index, send.condition, send.iterators, send.point_condition, send.count)
        return w.arrow.source.symbol, w.go, more, loose

    # -- the conversion -------------------------------------------------------------------------------------------------
    def convert(self) -> None:
        """Convert the program."""
        outputs: list[tuple[Endpoint, Port]] = []
        for op in self.sets.ends.values():
            if isinstance(op, NodeOp):
                self._node(op)
            elif isinstance(op, OutputOp):
                outputs.append((op, target_port(op, None)))
        for g in self.groups(outputs):
            if not g.certain:
                self._output(g)
        for f in self.picked:
            self._fault(f.seen, self.gates.condition(f.seen, f.bad), f.what, f.origin)
        for n in sorted(self.gates.made, key=self.order):
            self.gates.made[n].build(self.program)
        for d in self.gates.deciders.values():
            d.build(self.program)
        for m in self.merges:
            m.build(self.program, declared=True)
        for send in self.always:
            _without_condition(send)

    def order(self, name: str) -> tuple[bool, int, int]:
        """By which gates follow each other: that of a node which picks a token is behind that of the node it stands for."""
        of = next((p for p in self.picked if p.picks.symbol == name), None)
        source = name if of is None else of.source
        return not isinstance(self.sets.ends[source], InputOp), [*self.sets.ends].index(source), -1 if of is None else of.at

    def _node(self, op: NodeOp) -> None:
        groups = self.groups([(op, p) for p in op.ports])
        found = [g for g in groups if not g.certain]
        if not found:
            return
        bits: list[Make] = []
        holds: list[Make] = []
        for g in found:
            there, held = self._served(op, g)
            bits.append(there)
            if not self._loose(g):
                holds.append(held)
        self.there[op.symbol] = bits if op.symbol not in self.sure else []
        always = any(g.certain and not g.loose for g in groups)
        single = len(found) == 1 and not found[0].gather and self._alone(found[0])
        if always or not single:

            def left(body: Body, values: Values) -> SSAValue:
                absent = negated(body, all_of(body, [b(body, values) for b in bits]))
                return absent if always else all_of(body, [any_of(body, [h(body, values) for h in holds]), absent])

            self._fault(op, left, f"tokens are left over in `{op.symbol}`, or too many came", op, present=False)

    def _loose(self, g: _Group) -> bool:
        if g.loose and not all(w.arrow.send.multiplicity is Special.UNBOUNDED for w in g.ways):
            what = f"to `{g.ports[0][0].symbol}.{g.ports[0][1].name}` some tokens go with `##`, and some without"
            raise error("UPL1821", what, span_of(g.ways[0].arrow.send), help=OTHER_ENGINES)
        return g.loose

    def _served(self, op: NodeOp, g: _Group) -> tuple[Make, Make]:
        """In the gate of a node: whether a group has what it waits for, and whether it has anything."""
        gate = self.gates.gate(op)
        if not g.gather and self._alone(g):
            port = gate.port("there", UplType.BOOL)
            for w in g.ways:
                self._bit(w, port_ref(gate.name, port))
            self._unconditional(g)

            def bit(body: Body, values: Values) -> SSAValue:
                return values[port]

            return bit, bit
        merge, count = self._merge(g)
        port = gate.port("came", UplType.INT)
        merge.send(lambda body, values: values[count], port_ref(gate.name, port), Way(here(op.fields)))

        def some(body: Body, values: Values) -> SSAValue:
            return body.add(arith.CmpiOp(values[port], body.constant(0, i64), "ne"))

        wanted = self._wanted(op, g)
        return lambda body, values: body.add(arith.CmpiOp(values[port], wanted(body, values), "eq")), some

    def _wanted(self, op: NodeOp, g: _Group) -> Make:
        """The number of tokens that a group waits for."""
        port = g.ports[0][1]
        if port.gather is None:
            return lambda body, values: body.constant(1, i64)
        count = port.count
        if isinstance(count, IndexExpr) and (data := op.port(count.name or "")) is not None:
            n = self.gates.value(op, op.arg(data.name), UplType.INT)
            return lambda body, values: values[n]
        if count is Special.CARRIED:
            count = self._carried(op, g)
        assert isinstance(count, IndexExpr)
        least = count

        def number(body: Body, values: Values) -> SSAValue:
            n = index_value(body, least, values)
            return n if (least.constant or 0) > 0 else body.add(arith.MaxSIOp(n, body.constant(0, i64)))

        return number

    def _carried(self, op: NodeOp, g: _Group) -> IndexExpr:
        """The number that all summands carry, over the fields of the target."""
        found: set[IndexExpr] = set()
        for w in g.ways:
            a, m = w.arrow, w.arrow.send.multiplicity
            e = self.sets.relation(a).express(m, a.dst) if isinstance(m, IndexExpr) else None
            if e is None:
                why = f"the number of summands that it carries does not follow from the index of `{op.symbol}`"
                raise self._refused(a, why)
            found.add(e.substitute(dict(zip(a.dst, op.fields, strict=True))))
        if len(found) > 1:
            numbers = ", ".join(sorted(map(str, found)))
            raise self._refused(g.ways[0].arrow, f"summands carry different numbers: {numbers}")
        return found.pop()

    def _output(self, g: _Group) -> None:
        """A group of outputs: another output says how many tokens came to each element."""
        first = g.ports[0][0]
        names = ", ".join(f"`{op.symbol}`" for op, _, _ in g.ports)
        alone = self._alone(g)
        check = self._check(f"{first.symbol}_tokens", UplType.BOOL if alone else UplType.INT, "tokens", names, first)
        if alone:
            for w in g.ways:
                self._bit(w, port_ref(check.symbol))
            self._unconditional(g)
        else:
            merge, count = self._merge(g)
            merge.send(lambda body, values: values[count], port_ref(check.symbol), Way(here(first.fields)))

    def _check(self, name: str, type_: UplType, kind: str, about: str, like: Operation) -> OutputOp:
        """A new output that a run is judged by: with the elements of another one, or with one element."""
        name = unused(name, self.used)
        if isinstance(like, OutputOp):
            op = OutputOp(name, like.fields, type_, like.declared.data if like.declared else None)
            op.domain = like.domain
        else:
            op = OutputOp(name, (), type_, None)
            op.domain = FormulaAttr(TRUE)
        mark(op, kind, about)
        op.location = like.location
        self.program.body.block.add_op(op)
        return op

    def _fault(self, op: NodeOp, make: Make, what: str, origin: Operation, present: bool = True) -> None:
        """An output that says whether a bit is 1 in some instance of a node; with `present`, in one that fires."""
        gate = self.gates.gate(op)
        domain = self.sets.domain(op.symbol)
        n = total(_count(domain.extend(()), domain.dims, op), domain.project(()))
        check = self._check(f"{op.symbol}_fault", UplType.BOOL, "fault", what, origin)
        merge = Draft(unused(f"{op.symbol}_faults", self.used), (), TRUE, origin, set(self.used))
        port = merge.port("some", UplType.BOOL, gather=Gather.OR, count=n)
        merge.send(lambda body, values: values[port], port_ref(check.symbol), Way(()))
        self.merges.append(merge)

        def bit(body: Body, values: Values) -> SSAValue:
            found = make(body, values)
            return all_of(body, [found, *(b(body, values) for b in self.there.get(op.symbol, ()))]) if present else found

        gate.send(bit, port_ref(merge.name, port), Way(()))

    def go(self, w: _Way) -> Make:
        """In the gate of an arrow's source: whether it sends."""
        op = w.arrow.source
        sends = [] if w.go[1] is None else [self.gates.condition(op, self.gates.bits[w.go[1]])]

        def bit(body: Body, values: Values) -> SSAValue:
            return all_of(body, [b(body, values) for b in (*self.there.get(op.symbol, ()), *sends)])

        return bit

    def _bit(self, w: _Way, target: SymbolRefAttr) -> None:
        """Whether an arrow's token is there, along the same way."""
        way, send = Way.of(w.arrow.send), w.arrow.send
        if w.certain:
            emit(w.arrow.source, lambda body, values: body.constant(1, i1), target, way, send)
        else:
            self.gates.gate(w.arrow.source).send(self.go(w), target, way)

    def _unconditional(self, g: _Group) -> None:
        """The group's tokens always come."""
        for _, _, ways in g.ports:
            for w in ways:
                if w.arrow.send.predicate is not None:
                    self.always.append(w.arrow.send)

    # -- merges ---------------------------------------------------------------------------------------------------------
    def _alone(self, g: _Group) -> bool:
        """Whether each instance gets a token by one arrow at most, whatever data say."""
        images: list[PSet] = []
        for w in g.ways:
            a = w.arrow
            self._inside(a)
            r = self.sets.relation(a)
            if any(r.express(IndexExpr.of(d), a.dst) is None for d in (*a.src, *a.loops)):
                if a.stars:
                    raise self._refused(a, "several of its tokens may reach one input by `*`")
                return False
            images.append(self.sets.image(a))
        return all((p & q).is_empty() for n, p in enumerate(images) for q in images[:n])

    def _inside(self, a: Arrow) -> None:
        """Raise UplError UPL1821 if an arrow may send to what is no instance."""
        keep = [f for f, d in zip(a.target.fields, a.dst, strict=True) if d not in a.stars]
        if not self.sets.image(a).project(keep) <= self.sets.domain(a.target.symbol).project(keep):
            raise self._refused(a, f"it may send to what is no instance of `{a.target.symbol}`")

    def _refused(self, a: Arrow, why: str) -> UplError:
        what = f"the arrow {a.text} cannot be sent always, with a bit that says whether its token is there: {why}"
        return error("UPL1821", what, span_of(a.send), help=OTHER_ENGINES)

    def _merge(self, g: _Group) -> tuple[Draft, str]:
        """The node that gathers a group's tokens, and its input with the number of those that are there."""
        first, port, ways = g.ports[0]
        terms: list[tuple[PSet, IndexExpr]] = []
        for w in ways:
            a = w.arrow
            self._inside(a)
            if a.stars:
                raise self._refused(a, "a token with `*` is one of several that may come")
            m = a.send.multiplicity
            if port.count is not Special.CARRIED and m != IndexExpr.of(1) and m is not Special.UNBOUNDED:
                raise self._refused(a, f"its multiplicity is {m}, and it takes part in one activation")
            r = self.sets.relation(a).in_terms_of(a.dst)
            names = dict(zip(a.dst, first.fields, strict=True))
            r = r.rename({d: f'{d}"' for d in (*a.src, *a.loops)}).rename(names)
            terms += _count(r, [d for d in r.dims if d not in first.fields], a.send)
        came = sorted(ways, key=lambda w: self.at[id(w.arrow.send)])
        if [self.order(w.arrow.source.symbol) for w in came] != sorted(self.order(w.arrow.source.symbol) for w in ways):
            why = "of the arrows into one gather those with an index from data do not come last in their node"
            raise self._refused(came[0].arrow, why)
        domain = self.sets.domain(first.symbol)
        n = total(terms, domain)
        name = f"{first.symbol}_{port.name}" if isinstance(first, NodeOp) else f"{first.symbol}_merge"
        merge = Draft(unused(name, self.used), first.fields, describe(domain.as_meant()), first, set(self.used))
        self.merges.append(merge)
        count = merge.port("came", UplType.INT, gather=Gather.SUM, count=n)
        for w in ways:
            way = replace(Way.of(w.arrow.send), count=None)
            go = self.go(w)
            self.gates.gate(w.arrow.source).send(
                lambda body, values, go=go: _chosen(body, go(body, values), body.constant(1, i64), body.constant(0, i64)),
                port_ref(merge.name, count), way,
            )  # fmt: skip
        for op, p, own in g.ports:
            self._value(merge, count, op, p, own, n)
        return merge, count

    def literal(self, body: Body, gather: Gather, type_: UplType, value: float) -> SSAValue:
        """What changes nothing in a gather, or its value for no summands."""
        if type_ is UplType.INT:
            most = (1 << self.integers - 1) - 1
            return body.constant(gather.empty_integer(-most - 1, most), i64)
        return body.constant(value, type_.mlir())

    def _value(self, merge: Draft, count: str, op: Endpoint, p: Port, ways: Sequence[_Way], n: IndexExpr) -> None:
        """The value of an input by way of a merge node."""
        gather = p.gather or (Gather.OR if p.type is UplType.BOOL else Gather.MAX)
        port = merge.port("v", p.type, gather=gather, count=n)
        for w in ways:
            source = w.arrow.source
            brings = self.gates.value(source, w.arrow.send.value, p.type)
            go = self.go(w)

            def masked(body: Body, values: Values, go: Make = go, brings: str = brings) -> SSAValue:
                return _chosen(body, go(body, values), values[brings], self.literal(body, gather, p.type, gather.neutral))

            self.gates.gate(source).send(masked, port_ref(merge.name, port), replace(Way.of(w.arrow.send), count=None))
            w.arrow.send.detach()
            w.arrow.send.erase()
        may_be_none = isinstance(p.count, IndexExpr) and not (p.count.constant or 0) > 0

        def whole(body: Body, values: Values) -> SSAValue:
            if not may_be_none:
                return values[port]
            none = body.add(arith.CmpiOp(values[count], body.constant(0, i64), "eq"))
            return _chosen(body, none, self.literal(body, gather, p.type, gather.empty), values[port])

        target = port_ref(op.symbol, p.name) if isinstance(op, NodeOp) else port_ref(op.symbol)
        merge.send(whole, target, Way(here(op.fields)))
        if isinstance(op, NodeOp):
            op.inputs = PortsAttr(tuple(Port(q.name, q.type) if q.name == p.name else q for q in op.ports))


def _without_condition(old: SendOp) -> None:
    """The arrow without its condition, in its place."""
    new = SendOp(
        old.value, old.target, old.index.data, count=old.count.data if old.count else None, condition=old.when,
        iterators=old.loops, point_condition=old.when_point, rule=old.rule.data if old.rule else None,
    )  # fmt: skip
    new.location = old.location
    block = old.parent
    assert block is not None
    block.insert_op_before(new, old)
    old.detach()
    old.erase()


def _counted(op: Endpoint, port: Port) -> bool:
    """Whether another input says how many summands a gather waits for."""
    return isinstance(op, NodeOp) and isinstance(port.count, IndexExpr) and op.port(port.count.name or "") is not None


def _count(r: PSet, over: Sequence[str], at: Operation) -> list[tuple[PSet, IndexExpr]]:
    """How many points a set has over some of its dimensions."""
    found = fibre_counts(r, over)
    if found is None:
        raise error("UPL1821", "how many tokens there may be cannot be counted", span_of(at), help=OTHER_ENGINES)
    return list(found)


def _chosen(body: Body, bit: SSAValue, yes: SSAValue, no: SSAValue) -> SSAValue:
    return body.add(arith.SelectOp(bit, yes, no))
