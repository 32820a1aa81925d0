# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""An index that data choose, as a comparison at each index that there could be: a node with an instance for each token and
each such index sends the token's value where they are equal, and what changes nothing elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1
from xdsl.ir import SSAValue

from upl_mlir.dialects.upl import Special, UplType, port_ref
from upl_mlir.dialects.upl.attributes import Iterator
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, points
from upl_mlir.passes.arrows import here
from upl_mlir.passes.build import condition, index_value, unused
from upl_mlir.passes.predicate.by_source import BeforeSends, body_names, neutral
from upl_mlir.passes.predicate.drafts import Draft, Make, Values, Way, all_of
from upl_mlir.passes.predicate.gates import Gates
from upl_mlir.passes.predicate.indices import data_names, no_bounds
from upl_mlir.poly.describe import describe, interval
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.sets import PSet


@dataclass(eq=False)
class Spreads:
    """Writes the nodes that compare.  `made` gets them; they are to be built.  `known` says of nodes what holds of their
    fields and inputs in every instance that does not go wrong."""

    sets: ProgramSets
    gates: Gates
    known: Mapping[str, Formula]
    made: list[Draft] = field(default_factory=list[Draft])

    @property
    def used(self) -> set[str]:
        """The names that are taken."""
        return self.gates.used

    def _index(self, a: Arrow) -> tuple[dict[int, str], tuple[IndexExpr | None, ...]]:
        """By place in the index, a field for each expression that has data; and the index with them."""
        names = set(data_names(self.sets, a))
        found = {
            n: unused(f, self.used) for n, (f, e) in enumerate(zip(a.target.fields, a.send.index.data, strict=True))
            if e is not None and e.names & names
        }  # fmt: skip
        return found, tuple(IndexExpr.of(found[n]) if n in found else e for n, e in enumerate(a.send.index.data))

    def _inside_at(self, a: Arrow, index: Sequence[IndexExpr | None]) -> Formula:
        """Whether the target has an instance at an index without `*`."""
        target = self.sets.domain(a.target.symbol).as_meant()
        names = {f: e for f, e in zip(a.target.fields, index, strict=True) if e is not None}
        chosen = [f for f, e in zip(a.target.fields, a.send.index.data, strict=True) if self.by_data(a, e)]
        rest = [f for f in a.target.fields if f not in chosen]
        sent = self.sets.image(a).project(rest)
        reached = self._reached_at(a, index)
        if sent <= target.project(rest):  # what data do not choose is right anyway
            return describe(target, sent.as_meant().extend(target.dims).reorder(target.dims)).substitute(names) & reached
        return describe(target).substitute(names) & reached

    def reached(self, a: Arrow) -> PSet | None:
        """What is known of the fields of the target that data choose, over the source's fields, the iterators and those
        fields (as `a.dst` has them).  None where nothing is."""
        names = set(data_names(self.sets, a))
        at = {d: e for d, e in zip(a.dst, a.send.index.data, strict=True) if e is not None and e.names & names}
        dims = (*a.src, *a.loops, *at)
        said = self.known.get(a.source.symbol, TRUE).conjuncts
        facts = [f for f in said if f.names & names and f.names <= {*dims, *names, *self.sets.ctx.params}]
        if not facts:
            return None
        equal = [Formula.compare(d, "==", e) for d, e in at.items()]
        sends = self.sets.tokens(a).as_meant()
        return sends.extend((*dims, *sorted(names))).constrain(Formula.all((*facts, *equal))).project(dims)

    def _reached_at(self, a: Arrow, index: Sequence[IndexExpr | None]) -> Formula:
        """What is known of an index."""
        r = self.reached(a)
        if r is None:
            return TRUE
        text = describe(r.as_meant(), self.sets.tokens(a).as_meant().extend(r.dims))
        return text.substitute({d: e for d, e in zip(a.dst, index, strict=True) if d in r.dims and e is not None})

    def by_data(self, a: Arrow, e: IndexExpr | None) -> bool:
        """Whether data decide an expression of an arrow's index."""
        return e is not None and bool(e.names & set(data_names(self.sets, a)))

    def spread(self, a: Arrow, make: Make, merge: Draft, port: str) -> None:
        """A node with an instance for each token and each index that it may have, which compares that with the token's."""
        send = a.send
        found, index = self._index(a)
        own = (*a.src, *a.loops)
        where = describe(self.sets.domain(a.source.symbol).as_meant()) & points(send) & self._inside_at(a, index)
        name = unused(f"{a.source.symbol}_to_{merge.name}", self.used)
        draft = Draft(name, (*own, *found.values()), where, send, set(self.used))
        to = next(p for p in merge.ports if p.name == port)
        value = draft.port("v", to.type)
        at = {n: draft.port(n, UplType.INT) for n in data_names(self.sets, a)}
        gate = self.gates.gate(a.source)
        way = Way((*here(own), *(None for _ in found)), send.when, send.loops, send.when_point, Special.UNBOUNDED)
        gate.send(make, port_ref(name, value), way)
        ranges = {n: self._range(a, n, unused(f, gate.taken)) for n, f in found.items()}
        there = [IndexExpr.of(ranges[n].name) if n in found else e for n, e in enumerate(index)]
        each = Way(
            (*here(own), *(IndexExpr.of(r.name) for r in ranges.values())), send.when, (*send.loops, *ranges.values()),
            send.when_point & self._inside_at(a, there),
        )  # fmt: skip
        for n, p in at.items():
            brought = self.gates.value(a.source, body_names(a.source)[n], UplType.INT)
            gate.send(lambda body, values, brought=brought: values[brought], port_ref(name, p), each)

        def compared(body: Body, values: Values) -> SSAValue:
            env = {**values, **{n: values[p] for n, p in at.items()}}
            same: list[SSAValue] = []
            for n, f in found.items():
                wanted = send_index[n]
                assert wanted is not None
                same.append(body.add(arith.CmpiOp(index_value(body, wanted, env), values[f], "eq")))
            assert to.gather is not None
            none = neutral(body, to.gather, to.type)
            return body.add(arith.SelectOp(all_of(body, same), values[value], none))

        send_index = send.index.data  # the arrow itself goes
        draft.send(compared, port_ref(merge.name, port), Way(index))
        self.made.append(draft)

    def _range(self, a: Arrow, at: int, name: str) -> Iterator:
        """The values that a field of the target has, by its place in the index."""
        got = interval(self.sets.domain(a.target.symbol), a.target.fields[at], ())
        if got is None:
            raise no_bounds(a, a.target.fields[at])
        return Iterator(name, got[0].lo, got[0].hi)

    def outside(self, a: Arrow) -> Make | None:
        """In the gate of an arrow's source: whether the index is none that the target has.  None where that does not follow
        from the source alone."""
        inside = self._inside_at(a, a.send.index.data)
        if inside.names & set(a.loops):
            return None
        body = BeforeSends(a.source)
        good = condition(body, inside, body_names(a.source))
        return self.gates.condition(a.source, body.add(arith.XOrIOp(good, body.constant(1, i1))))
