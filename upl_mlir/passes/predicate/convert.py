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
from xdsl.dialects.builtin import SymbolRefAttr, UnitAttr, i1, i64
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import Gather, InputOp, NodeOp, OutputOp, Port, ProgramOp, SendOp, Special, UplType, port_ref
from upl_mlir.dialects.upl.attributes import PortsAttr
from upl_mlir.dialects.upl.query import Endpoint, arrows, nodes, span_of, target_port
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.at_sizes import refuse_open
from upl_mlir.passes.analysis.defined import of_values, require_values
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import PRIMAL, here, is_made, made
from upl_mlir.passes.autodiff.adjoint_plan import total
from upl_mlir.passes.build import condition, index_value, unused
from upl_mlir.passes.predicate.by_source import Rewritten, by_source
from upl_mlir.passes.predicate.carried import carried
from upl_mlir.passes.predicate.certain import comes_always, counted_by, determined, surely_fires
from upl_mlir.passes.predicate.drafts import COMPARED, Draft, Make, Values, Way, all_of, any_of, chosen, emit, negated
from upl_mlir.passes.predicate.faults import Faults, counted
from upl_mlir.passes.predicate.gates import Gates
from upl_mlir.passes.predicate.indices import OTHER_ENGINES, Picked, data_names, static_indices
from upl_mlir.passes.predicate.plan import said_by
from upl_mlir.passes.predicate.spreads import Spreads
from upl_mlir.passes.predicate.ways import Coming, Group
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.sets import PSet


def decided_by_data(program: ProgramOp) -> bool:
    """Whether data decide arrows of a program with known domains, or how many summands a gather waits for."""
    if any(p.open or counted_by(op, p) for op in nodes(program) for p in op.ports):
        return True
    return not all(a.exact for a in ProgramSets(program).arrows)


def if_convert(program: ProgramOp, integers: int = 64, *, compared: bool = False, ordered: bool = False) -> None:
    """Make all arrows, and all numbers of summands, of a program with known domains follow from indices, in place.
    `integers` are the bits of integers where the program is to run.

    With `compared`, for loops over arrays: instances go by their sources where they can (`by_source`; with `ordered`, not if
    that changes the order of summands that round), an index from data is only compared with each that there could be
    (`spreads`), and one output says whether anything went wrong.

    Raises UplError: UPL1821 where data decide more than bits can say, UPL1823 for an index that may have no value."""
    require_values(of_values(ProgramSets(program), is_made), "the conversion")
    sure = surely_fires(ProgramSets(program))
    for op in nodes(program):
        if op.symbol not in sure:  # who fires in any case has a gather that ends when all arrows have been asked
            refuse_open(op)
    known = {op.symbol for op in nodes(program)}
    done, picked = Rewritten(), list[Picked]()
    if compared:
        _, done = by_source(ProgramSets(program), ordered=ordered)
    before = {id(send): n for n, send in enumerate(arrows(program))}
    if not compared:
        picked = static_indices(ProgramSets(program))
        before |= {id(send): p.at for p in picked for send in p.picks.sends}
    _Conversion(ProgramSets(program), picked, integers, before, done, compared).convert()
    if compared:
        program.attributes[COMPARED] = UnitAttr()
        for op in nodes(program):
            if op.symbol not in known or op.symbol in done.changed:
                op.attributes[PRIMAL] = made(op.symbol)


@dataclass(eq=False)
class _Conversion:
    """`integers`: the bits of the engine's integers; `at`: the place of each arrow in the text."""

    sets: ProgramSets
    picked: list[Picked]
    integers: int
    at: Mapping[int, int]
    rewritten: Rewritten
    compared: bool
    merges: list[Draft] = field(default_factory=list[Draft])
    there: dict[str, list[Make]] = field(default_factory=dict[str, list[Make]])
    """By node, the bits that together say whether an instance is there."""
    always: list[SendOp] = field(default_factory=list[SendOp])
    """Arrows whose condition goes."""

    def __post_init__(self) -> None:
        self.program = self.sets.program
        self.gates = Gates(self.sets)
        self.used = self.gates.used
        self.faults = Faults(self.program, self.used, self.compared)
        self.spreads = Spreads(self.sets, self.gates, self.rewritten.known)
        self.sure = surely_fires(self.sets, self.rewritten.always)

    def groups(self, ends: Sequence[tuple[Endpoint, Port]]) -> list[Group]:
        """Inputs that get their tokens alike, together."""
        found: dict[object, Group] = {}
        for op, port in ends:
            ways: list[Coming] = []
            for a in self.sets.into(op.symbol, port.name):
                p = a.send.predicate
                go = a.source.symbol in self.sure, None if p is None else self.gates.key(p)
                ways.append(Coming(a, go, bool(data_names(self.sets, a))))
            alike = tuple(sorted(map(str, map(self._kind, ways))))
            at = op.symbol if isinstance(op, NodeOp) else (op.fields, str(op.domain))
            k = (alike, at, port.name if port.gather else "")
            found.setdefault(k, Group([])).ports.append((op, port, ways))
        return list(found.values())

    def _kind(self, w: Coming) -> object:
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
                (self._come_once if self.compared else self._output)(g)
        for f in self.picked:
            self._fault(f.seen, self.gates.condition(f.seen, f.bad), f.what, f.origin)
        for doubt in self.rewritten.doubts:
            self._fault(doubt.node, self.gates.condition(doubt.node, doubt.bad), doubt.what, doubt.node)
        if self.compared:
            self.faults.finish()
        for n in sorted(self.gates.made, key=self.order):
            self.gates.made[n].build(self.program)
        for d in self.gates.deciders.values():
            d.build(self.program)
        for m in (*self.spreads.made, *self.merges, *self.faults.made):
            m.build(self.program, declared=True)
        for send in self.always:
            _without_condition(send)

    def order(self, name: str) -> tuple[bool, int, int]:
        """By which gates follow each other: that of a node which picks a token is behind that of the node it stands for."""
        of = next((p for p in self.picked if p.picks.symbol == name), None)
        source = name if of is None else of.source
        return not isinstance(self.sets.ends[source], InputOp), [*self.sets.ends].index(source), -1 if of is None else of.at

    def _node(self, op: NodeOp) -> None:
        groups = self.groups([(op, p) for p in op.ports if not self._looked_up(op, p)])
        found = [g for g in groups if not g.certain]
        if not found:
            return
        if op.symbol in self.rewritten.always:  # what comes there is used where it is there
            for g in found:
                if self._alone(g):
                    self._unconditional(g)
                else:
                    self._merge(g)
            return
        bits: list[Make] = []
        holds: list[Make] = []
        for g in found:
            if g.open:
                self._merge(g)
                continue
            mine = {p.name for _, p, _ in g.ports}
            there, held = self._served(op, g, known=determined(self.sets, op, mine, self.rewritten.always))
            bits.append(there)
            if not self._loose(g):
                holds.append(held)
        self.there[op.symbol] = bits if op.symbol not in self.sure else []
        if not bits:
            return
        always = any(g.certain and not g.loose for g in groups)
        single = len(found) == 1 and not found[0].gather and self._alone(found[0])
        if always or not single:

            def left(body: Body, values: Values) -> SSAValue:
                absent = negated(body, all_of(body, [b(body, values) for b in bits]))
                return absent if always else all_of(body, [any_of(body, [h(body, values) for h in holds]), absent])

            self._fault(op, left, f"tokens are left over in `{op.symbol}`, or too many came", op, present=False)

    def _looked_up(self, op: NodeOp, port: Port) -> bool:
        """Whether an input has a value for every instance, there or not."""
        return comes_always(self.sets, op, port, self.rewritten.always)

    def _loose(self, g: Group) -> bool:
        if g.loose and not all(w.arrow.send.multiplicity is Special.UNBOUNDED for w in g.ways):
            what = f"to `{g.ports[0][0].symbol}.{g.ports[0][1].name}` some tokens go with `##`, and some without"
            raise error("UPL1821", what, span_of(g.ways[0].arrow.send), help=OTHER_ENGINES)
        return g.loose

    def _served(self, op: NodeOp, g: Group, *, known: bool) -> tuple[Make, Make]:
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

        def right(body: Body, values: Values) -> SSAValue:
            return body.add(arith.CmpiOp(values[port], wanted(body, values), "eq"))

        if not g.gather or known or (isinstance(n := g.ports[0][1].count, IndexExpr) and (n.constant or 0) > 0):
            return right, some
        return lambda body, values: all_of(body, [right(body, values), some(body, values)]), some

    def _wanted(self, op: NodeOp, g: Group) -> Make:
        """The number of tokens that a group waits for."""
        port = g.ports[0][1]
        if port.gather is None:
            return lambda body, values: body.constant(1, i64)
        count = port.count
        if isinstance(count, IndexExpr) and (data := op.port(count.name or "")) is not None:
            n = self.gates.value(op, op.arg(data.name), UplType.INT)
            return lambda body, values: body.add(arith.MaxSIOp(values[n], body.constant(0, i64)))  # below 0 is 0
        if count is Special.CARRIED:
            cases, count = carried(self.sets, op, [w.arrow for w in g.ways], self._refused)
        else:
            cases = []
        assert isinstance(count, IndexExpr)
        last = count

        def number(body: Body, values: Values) -> SSAValue:
            out = at_least_0(body, last, values)
            for where, n in cases:
                out = body.add(arith.SelectOp(condition(body, where, values), at_least_0(body, n, values), out))
            return out

        def at_least_0(body: Body, e: IndexExpr, values: Values) -> SSAValue:
            n = index_value(body, e, values)
            return n if (e.constant or 0) > 0 else body.add(arith.MaxSIOp(n, body.constant(0, i64)))

        return number

    def _output(self, g: Group) -> None:
        """A group of outputs: another output says how many tokens came to each element."""
        first = g.ports[0][0]
        names = ", ".join(f"`{op.symbol}`" for op, _, _ in g.ports)
        alone = self._alone(g)
        check = self.faults.check(f"{first.symbol}_tokens", UplType.BOOL if alone else UplType.INT, "tokens", names, first)
        if alone:
            for w in g.ways:
                self._bit(w, port_ref(check.symbol))
            self._unconditional(g)
        else:
            merge, count = self._merge(g)
            merge.send(lambda body, values: values[count], port_ref(check.symbol), Way(here(first.fields)))

    def _come_once(self, g: Group) -> None:
        """A group of outputs: a fault where another number of tokens than one comes to an element."""
        first = g.ports[0][0]
        names = ", ".join(f"`{op.symbol}`" for op, _, _ in g.ports)
        domain = describe(self.sets.domain(first.symbol).as_meant())
        looks = Draft(unused(f"{first.symbol}_once", self.used), first.fields, domain, first, set(self.used))
        if self._alone(g):
            there = looks.port("there", UplType.BOOL)
            for w in g.ways:
                self._bit(w, port_ref(looks.name, there))
            self._unconditional(g)
        else:
            merge, count = self._merge(g)
            there = looks.port("came", UplType.INT)
            merge.send(lambda body, values: values[count], port_ref(looks.name, there), Way(here(first.fields)))

        def bad(body: Body, values: Values) -> SSAValue:
            v = values[there]
            return negated(body, v) if v.type == i1 else body.add(arith.CmpiOp(v, body.constant(1, i64), "ne"))

        self.spreads.made.append(looks)
        self.faults.note(looks, self.sets.domain(first.symbol), bad, f"one token comes to each element of {names}", first)

    def _fault(self, op: InputOp | NodeOp, make: Make, what: str, origin: Operation, present: bool = True) -> None:
        """An output that says whether a bit is 1 in some instance of a node; with `present`, in one that fires."""
        def bit(body: Body, values: Values) -> SSAValue:
            found = make(body, values)
            return all_of(body, [found, *(b(body, values) for b in self.there.get(op.symbol, ()))]) if present else found

        self.faults.note(self.gates.gate(op), self.sets.domain(op.symbol), bit, what, origin, op.symbol)

    def go(self, w: Coming) -> Make:
        """In the gate of an arrow's source: whether it sends."""
        op = w.arrow.source
        sends = [] if w.go[1] is None else [self.gates.condition(op, self.gates.bits[w.go[1]])]

        def bit(body: Body, values: Values) -> SSAValue:
            return all_of(body, [b(body, values) for b in (*self.there.get(op.symbol, ()), *sends)])

        return bit

    def _bit(self, w: Coming, target: SymbolRefAttr) -> None:
        """Whether an arrow's token is there, along the same way."""
        way, send = Way.of(w.arrow.send), w.arrow.send
        if w.certain:
            emit(w.arrow.source, lambda body, values: body.constant(1, i1), target, way, send)
        else:
            self.gates.gate(w.arrow.source).send(self.go(w), target, way)

    def _unconditional(self, g: Group) -> None:
        """The group's tokens always come."""
        for _, _, ways in g.ports:
            for w in ways:
                if w.arrow.send.predicate is not None:
                    self.always.append(w.arrow.send)

    # -- merges ---------------------------------------------------------------------------------------------------------
    def _alone(self, g: Group) -> bool:
        """Whether each instance gets a token by one arrow at most, whatever data say."""
        if any(w.chosen for w in g.ways):
            return False
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

    def _sparse(self, w: Coming, ways: Sequence[Coming]) -> None:
        """Raise UplError UPL1821 where a few of the target's instances are there, one at most for each of the source's, and
        no others by `ways` that data do not choose."""
        a = w.arrow
        kept = [f for f, e in zip(a.target.fields, a.send.index.data, strict=True) if not self.spreads.by_data(a, e)]
        if a.target.symbol not in self.sure and all(v.chosen for v in ways) and kept and said_by(self.sets, a, kept):
            raise self._refused(a, f"of all indices that data could choose, `{a.target.symbol}` has one instance at most")

    def _refused(self, a: Arrow, why: str) -> UplError:
        what = f"the arrow {a.text} cannot be sent always, with a bit that says whether its token is there: {why}"
        return error("UPL1821", what, span_of(a.send), help=OTHER_ENGINES)

    def _merge(self, g: Group) -> tuple[Draft, str]:
        """The node that gathers a group's tokens, and its input with the number of those that are there."""
        first, port, ways = g.ports[0]
        terms: list[tuple[PSet, IndexExpr]] = []
        for w in ways:
            a = w.arrow
            if w.chosen:
                self._sparse(w, ways)
            else:
                self._inside(a)
            if a.stars:
                raise self._refused(a, "a token with `*` is one of several that may come")
            m = a.send.multiplicity
            if port.count is not Special.CARRIED and m != IndexExpr.of(1) and m is not Special.UNBOUNDED:
                raise self._refused(a, f"its multiplicity is {m}, and it takes part in one activation")
            r = self.sets.relation(a)
            if w.chosen and (known := self.spreads.reached(a)) is not None:
                r = r & known.extend(r.dims).reorder(r.dims)
            r = r.in_terms_of(a.dst)
            names = dict(zip(a.dst, first.fields, strict=True))
            r = r.rename({d: f'{d}"' for d in (*a.src, *a.loops)}).rename(names)
            terms += counted(r, [d for d in r.dims if d not in first.fields], a.send)
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
            go = self.go(w)
            self._to(
                w, lambda body, values, go=go: chosen(body, go(body, values), body.constant(1, i64), body.constant(0, i64)),
                merge, count,
            )  # fmt: skip
            if w.chosen:
                self._lost(w, go)
        for op, p, own in g.ports:
            self._value(merge, count, op, p, own, n)
        return merge, count

    # -- an index from data -----------------------------------------------------------------------------------------------
    def _to(self, w: Coming, make: Make, merge: Draft, port: str) -> None:
        """A summand of a merge from the gate of an arrow's source, along the arrow."""
        a = w.arrow
        if w.chosen:
            self.spreads.spread(a, make, merge, port)
        else:
            self.gates.gate(a.source).send(make, port_ref(merge.name, port), replace(Way.of(a.send), count=None))

    def _lost(self, w: Coming, go: Make) -> None:
        """A fault where a token goes to an index that the target does not have."""
        a = w.arrow
        bad = self.spreads.outside(a)
        if bad is None:
            raise self._refused(a, "whether its index is one follows from data and from an iterator")

        def left(body: Body, values: Values) -> SSAValue:
            return all_of(body, [go(body, values), bad(body, values)])

        what = f"a token of {a.text} goes to an index that `{a.target.symbol}` does not have"
        self._fault(a.source, left, what, a.send, present=False)

    def literal(self, body: Body, gather: Gather, type_: UplType, value: float) -> SSAValue:
        """What changes nothing in a gather, or its value for no summands."""
        return body.constant(self.no_integers(gather), i64) if type_ is UplType.INT else body.constant(value, type_.mlir())

    def no_integers(self, gather: Gather) -> int:
        """What changes nothing in a gather of the engine's integers."""
        return gather.empty_integer(-1 << self.integers - 1, (1 << self.integers - 1) - 1)

    def _may_be_none(self, op: Endpoint, p: Port) -> bool:
        """Whether a gather may wait for no summand."""
        if not isinstance(p.count, IndexExpr) or counted_by(op, p):
            return isinstance(p.count, IndexExpr)
        return not self.sets.domain(op.symbol).constrain(Formula.compare(p.count, "<=", 0)).is_empty()

    def _value(self, merge: Draft, count: str, op: Endpoint, p: Port, ways: Sequence[Coming], n: IndexExpr) -> None:
        """The value of an input by way of a merge node."""
        gather = p.gather or (Gather.OR if p.type is UplType.BOOL else Gather.MAX)
        port = merge.port("v", p.type, gather=gather, count=n)
        for w in ways:
            source = w.arrow.source
            brings = self.gates.value(source, w.arrow.send.value, p.type)
            go = self.go(w)

            def masked(body: Body, values: Values, go: Make = go, brings: str = brings) -> SSAValue:
                return chosen(body, go(body, values), values[brings], self.literal(body, gather, p.type, gather.neutral))

            self._to(w, masked, merge, port)
        may_be_none = p.open or self._may_be_none(op, p)
        if may_be_none and p.type is UplType.INT and self.no_integers(gather) != gather.empty_integer():
            what = f"a gather `{gather.value}` of integers that may have no summands has no circuit yet (in `{op.symbol}`)"
            raise error("UPL2002", what, span_of(ways[0].arrow.send), help=OTHER_ENGINES)
        for w in ways:
            w.arrow.send.detach()
            w.arrow.send.erase()

        def whole(body: Body, values: Values) -> SSAValue:
            if not may_be_none:
                return values[port]
            none = body.add(arith.CmpiOp(values[count], body.constant(0, i64), "eq"))
            return chosen(body, none, self.literal(body, gather, p.type, gather.empty), values[port])

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
