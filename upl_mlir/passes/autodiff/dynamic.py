"""What reverse mode must know of arrows that data decide (AUTODIFF section 4, "dynamic arrows").

A program is differentiated as it ran without an error, so facts that hold in every such run may be used: a node *surely
fires* on its whole domain if some input of it is served there by arrows that always send (a partner that never came would
be a stranded token, an error).  On that ground each arrow that carries a derivative gets one of three treatments:

* STATIC: its tokens follow from the index alone; the reversed arrow is too.
* MASKED: both ends surely fire, and so do all others that may serve the input; the adjoint comes back everywhere, and the
  source's adjoint node selects by the condition.
* COUNTED: the source sends its adjoint node the number of tokens that it really sent; the target's adjoint node learns
  from an identifier which arrow, from which index, served it (`Trace`).  Where the target is a gather, what it answers
  *meets* the tokens at a node of their own (`passes/arrows.py`).

Where data decide how many derivatives come back, as along a `*` into instances that data choose, an open gather takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import product

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.dialects.upl import Gather, InputOp, LetOp, LookupOp, NodeOp, OutputOp, Port, RefOp, Special, UplType
from upl_mlir.dialects.upl.query import Endpoint
from upl_mlir.passes.analysis.cycles import circular
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.build import unused
from upl_mlir.poly.equality import same_value
from upl_mlir.poly.expr import Atom, Formula, IndexExpr, Lookup
from upl_mlir.poly.fibres import fibre_counts, sum_by_parts
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PSet

PARTLY_ROUNDS = 3  # of going on from instances that surely fire, where the whole node may not
MAX_LEAVES = 4  # data conditions of which all combinations are looked at


class Flow(Enum):
    """How the derivative goes back along an arrow."""

    STATIC = "static"
    MASKED = "masked"
    COUNTED = "counted"


@dataclass
class Trace:
    """How an adjoint node learns what served an input: `which` brings the arrow's number (its place in `arrows`), `dims`
    the port for each place of a source index that the target's index does not determine."""

    arrows: list[Arrow]
    which: Port | None
    dims: dict[int, dict[str, str]]  # by arrow: dimension of the source -> port
    ports: list[Port] = field(default_factory=list[Port])


class Dynamics:
    """The analysis of one program.  For a program without data-dependent arrows it costs nothing and says STATIC."""

    def __init__(self, sets: ProgramSets):
        self.sets = sets
        self.any = any(not a.exact for a in sets.arrows)
        self._traced: dict[tuple[str, str], bool] = {}  # by node and input
        self._covered: dict[Arrow, bool] = {}
        self.sure: set[str] = self._sure() if self.any else set(sets.ends)

    def _sure(self) -> set[str]:
        """The ends that surely fire (or are served) on their whole domain: least fixpoint."""
        sure = {n for n, op in self.sets.ends.items() if not isinstance(op, NodeOp)}
        changed = True
        while changed:
            changed = False
            for name, op in self.sets.ends.items():
                if name not in sure and isinstance(op, NodeOp) and self._fires(op, sure):
                    sure.add(name)
                    changed = True
        return sure

    def _surely_sent(self, a: Arrow) -> bool:
        """Whether all instances that send along the arrow surely fire."""
        name = a.source.symbol
        return name in self.sure or self.sets.relation(a).project(a.src) <= self._partly[name]

    @cached_property
    def _partly(self) -> dict[str, PSet]:
        """Of nodes that may fire or not, the instances that surely do, such as the first round of a loop that data end.

        They are those that arrows reach which always send, from such instances, a few rounds long.
        """
        sets = self.sets
        found = {n: sets.ctx.empty(op.fields) for n, op in sets.ends.items() if n not in self.sure}
        for _ in range(PARTLY_ROUNDS):
            for a in sets.arrows:
                name, source = a.target.symbol, a.source.symbol
                if name not in found or not a.exact or a.virtual or a.send.multiplicity is Special.UNBOUNDED:
                    continue
                r = sets.relation(a)
                if source in found:
                    if found[source].is_empty():
                        continue
                    r = r & found[source].extend(r.dims).reorder(r.dims)
                landing = r.project(a.dst).rename(dict(zip(a.dst, a.target.fields, strict=True)))
                if a.port.gather is None and not landing.lost:
                    found[name] = (found[name] | landing).coalesce()
        return found

    def _fires(self, op: NodeOp, sure: set[str]) -> bool:
        sets = self.sets
        if op.declared is not None and any(p.open for p in op.ports):
            return True  # its open gathers end at every declared instance (LANGUAGE 3.3)
        for port in op.ports:
            got = sets.ctx.empty(op.fields)
            by_source: dict[str, list[Arrow]] = {}
            for a in sets.into(op.symbol, port.name):
                if a.source.symbol in sure and self._all_fire(a):
                    by_source.setdefault(a.source.symbol, []).append(a)
            for arrows in by_source.values():
                got = got | self._always(op, arrows)
            if sets.domain(op.symbol) <= got:
                return True
        return any(
            a.exact and isinstance(a.target, OutputOp) and len(sets.into(a.target.symbol)) == 1
            and sets.domain(op.symbol) <= (r := sets.relation(a)).project(a.src)
            and all(r.express(IndexExpr.of(d), a.dst) is not None for d in a.src)  # no other instance serves it
            for a in sets.out_of(op.symbol)
        )  # fmt: skip

    def _all_fire(self, a: Arrow) -> bool:
        """Whether all instances that a token of the arrow covers must fire, as it would be left over otherwise: `##` never
        is, and fewer activations than instances say that some of them do not."""
        m = a.send.multiplicity
        if not isinstance(m, IndexExpr) or not a.stars:
            return m is not Special.UNBOUNDED
        if a not in self._covered:
            points = (*a.src, *a.loops)
            r = self.sets.relation(a)
            terms = fibre_counts(r, a.dst, [m]) if m.names <= {*points, *r.ctx.params, *r.ctx.constants} else None
            parts = sum_by_parts(r.project(points), terms) if terms is not None else ()
            self._covered[a] = terms is not None and all(same_value(part, n, m) for part, n in parts)
        return self._covered[a]

    def _always(self, op: NodeOp, arrows: Sequence[Arrow]) -> PSet:
        """The instances that one source's arrows serve whatever the data: as by ``if c: ...`` and ``if !c: ...``."""
        sets = self.sets
        got = sets.ctx.empty(op.fields)
        doubtful: list[tuple[Arrow, Formula]] = []
        leaves: list[SSAValue] = []
        for a in arrows:
            if a.exact:
                got = got | sets.image(a)
            elif a.send.predicate is not None and not self.dynamic_index(a):
                doubtful.append((a, _formula(a.send.predicate, leaves)))
        if len(doubtful) < 2 or len(leaves) > MAX_LEAVES:
            return got
        always: PSet | None = None
        for choice in product((False, True), repeat=len(leaves)):
            now = got
            for a, f in doubtful:
                sent = sets.relation(a).constrain(_chosen(f, choice)).project(a.dst)
                if sent.lost:
                    return got
                now = now | sent.rename(dict(zip(a.dst, a.target.fields, strict=True)))
            always = now if always is None else always & now
        return got if always is None else always

    def dynamic_index(self, a: Arrow) -> bool:
        """Whether the target index is data."""
        known = {*a.src, *a.loops, *self.sets.ctx.params, *self.sets.ctx.constants}
        return any(e is not None and not e.names <= known for e in a.send.index.data)

    def flow(self, a: Arrow) -> Flow:
        """The treatment of an arrow."""
        if a.exact:
            return Flow.STATIC
        passes = a.port.gather in (None, Gather.SUM)  # other gathers compare what was sent with their result
        return Flow.MASKED if passes and self._maskable(a) and not self.told(a) else Flow.COUNTED

    def _maskable(self, a: Arrow) -> bool:
        """Whether the derivative could come back along the arrow in any case: both ends surely fire, and none waits for
        itself if all arrows answer."""
        ends = {a.source.symbol, a.target.symbol}
        return self._both_sure(a) and not any(ends <= ring for ring in self._circular)

    def _both_sure(self, a: Arrow) -> bool:
        both = a.source.symbol in self.sure and a.target.symbol in self.sure
        return both and not self.dynamic_index(a)

    @cached_property
    def _circular(self) -> list[frozenset[str]]:
        """Groups of nodes among which derivatives that come back in any case would wait for each other: values may go
        right or left, as data say."""
        return circular(self.sets, lambda a: not a.exact and self._both_sure(a))

    def told(self, a: Arrow) -> bool:
        """Whether the target of an arrow learns who served the input: then it answers that one alone."""
        key = a.target.symbol, a.port.name
        if key not in self._traced:
            op = a.target
            self._traced[key] = (
                isinstance(op, NodeOp) and a.port.gather is None
                and self.trace(op, a.port.name, self.sets.domain(op.symbol), set()) is not None
            )  # fmt: skip
        return self._traced[key]

    def whole(self, name: str) -> bool:
        """Whether derivatives of a node must be kept on its whole domain, because data decide which instances fire."""
        return self.any and (name not in self.sure or any(not a.exact for a in self.sets.into(name)))

    # -- who served an input -----------------------------------------------------------------------------------------
    def trace(self, op: NodeOp, port: str, domain: PSet, used: set[str]) -> Trace | None:
        """What the adjoint node must be told of an ordinary input; None where the index says all."""
        if not self.any:
            return None
        into = self.sets.into(op.symbol, port)
        if all(a.source.symbol in self.sure and (a.exact or self._maskable(a)) for a in into):
            return None
        images = [self.sets.image(a) & domain for a in into]
        overlap = any(not (s & t).is_empty() for n, s in enumerate(images) for t in images[:n])
        dims: dict[int, dict[str, str]] = {}
        names: dict[str, str] = {}
        for n, a in enumerate(into):
            r = self.sets.relation(a)
            for d in a.src:
                if r.express(IndexExpr.of(d), a.dst) is None or self.dynamic_index(a):
                    if d not in names:
                        names[d] = unused(f"{d}_{port}", used)
                    dims.setdefault(n, {})[d] = names[d]
        which = Port(unused(f"by_{port}", used), UplType.INT) if overlap else None
        ports = [*([which] if which else []), *(Port(p, UplType.INT) for p in names.values())]
        return Trace(into, which, dims, ports) if ports else None

    # -- what comes back ---------------------------------------------------------------------------------------------
    def opens(self, a: Arrow) -> bool:
        """Whether data decide how many derivatives come back along an arrow: then an open gather takes them."""
        if (a.stars or a.send.multiplicity is Special.UNBOUNDED) and a.target.symbol not in self.sure:
            return True
        return self.flow(a) is Flow.COUNTED and self.dynamic_index(a) and bool(a.stars or a.loops)

    def meets(self, a: Arrow) -> bool:
        """Whether what the target of an arrow into a gather answers must meet the arrow's tokens: the index does not tell
        which instances sent one, and a gather does not learn it."""
        flow = self.flow(a)
        if a.port.gather is None or flow is Flow.MASKED or (flow is Flow.STATIC and self._surely_sent(a)):
            return False
        alone = len(self.sets.into(a.target.symbol, a.port.name)) == 1
        r = self.sets.relation(a)
        one = all(r.express(IndexExpr.of(d), a.dst) is not None for d in (*a.src, *a.loops))
        return not (a.exact and alone and one and not a.port.open)

    # -- exactly one token -------------------------------------------------------------------------------------------
    def exactly_one(self, arrows: Sequence[Arrow], where: PSet) -> bool:
        """Whether, whatever the data, a value is sent along exactly one of the arrows, once, at every point of `where`:
        as by ``if c: ... `` and ``if !c: ...``."""
        if any(a.loops or a.stars for a in arrows):
            return False
        leaves: list[SSAValue] = []
        conditions = [_formula(a.send.predicate, leaves) if a.send.predicate else None for a in arrows]
        if len(leaves) > MAX_LEAVES:
            return False
        for choice in product((False, True), repeat=len(leaves)):
            rest = where
            for a, f in zip(arrows, conditions, strict=True):
                sent = where.constrain(a.send.when)
                if f is not None:
                    sent = sent.constrain(_chosen(f, choice))
                if not sent <= rest:
                    return False
                rest = rest - sent
            if not rest.is_empty():
                return False
        return True


_LEAF = "data condition "
_COMPARE = {0: CmpOp.EQ, 1: CmpOp.NE, 2: CmpOp.LT, 3: CmpOp.LE, 4: CmpOp.GT, 5: CmpOp.GE}


def _formula(v: SSAValue, leaves: list[SSAValue]) -> Formula:
    """A boolean of a body as a formula over index fields and numbered data conditions ``data condition i == 1``."""
    op = v.owner
    if isinstance(op, LetOp):
        return _formula(op.value, leaves)
    if isinstance(op, arith.AndIOp):
        return _formula(op.lhs, leaves) & _formula(op.rhs, leaves)
    if isinstance(op, arith.OrIOp):
        return Formula.any((_formula(op.lhs, leaves), _formula(op.rhs, leaves)))
    if isinstance(op, arith.XOrIOp) and _constant(op.rhs) == 1:
        return _formula(op.lhs, leaves).negate()
    if isinstance(op, arith.CmpiOp):
        a, b = _index(op.lhs), _index(op.rhs)
        compare = _COMPARE.get(op.predicate.value.data)
        if a is not None and b is not None and compare is not None:
            return Formula.compare(a, compare, b)
    at = next((i for i, w in enumerate(leaves) if _same(v, w)), None)
    if at is None:
        at = len(leaves)
        leaves.append(v)
    return Formula.compare(f"{_LEAF}{at}", CmpOp.EQ, 1)


def _same(v: SSAValue, w: SSAValue) -> bool:
    """Whether two values of a body are computed in the same way."""
    if v is w:
        return True
    a, b = v.owner, w.owner
    if not isinstance(a, Operation) or not isinstance(b, Operation) or a.name != b.name:
        return False
    return a.properties == b.properties and all(_same(x, y) for x, y in zip(a.operands, b.operands, strict=True))


def _chosen(f: Formula, choice: Sequence[bool]) -> Formula:
    """The formula with the data conditions as chosen."""

    def value(a: Atom) -> IndexExpr | None:
        name = str(a)
        return IndexExpr.of(int(choice[int(name.removeprefix(_LEAF))])) if name.startswith(_LEAF) else None

    return f.rewrite(value)


def _constant(v: SSAValue) -> int | None:
    op = v.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return abs(op.value.value.data) if op.value.type.width.data == 1 else op.value.value.data  # pyright: ignore
    return None


def _index(v: SSAValue) -> IndexExpr | None:
    """An integer of a body as an index expression of fields, parameters and constants; None if it is data."""
    op = v.owner
    if not isinstance(op, Operation):
        parent = op.parent_op()
        assert isinstance(parent, InputOp | NodeOp)
        at = list(op.args).index(v)  # pyright: ignore[reportArgumentType]
        return IndexExpr.of(parent.fields[at]) if at < len(parent.fields) else None
    if (c := _constant(v)) is not None:
        return IndexExpr.of(c)
    parts = [_index(o) for o in op.operands]
    match op, parts:
        case RefOp(), _:
            return IndexExpr.of(op.symbol.root_reference.data)
        case LookupOp(), [IndexExpr() as i]:
            return IndexExpr.of(Lookup(op.symbol.root_reference.data, i))
        case arith.AddiOp(), [IndexExpr() as a, IndexExpr() as b]:
            return a + b
        case arith.SubiOp(), [IndexExpr() as a, IndexExpr() as b]:
            return a - b
        case arith.MuliOp(), [IndexExpr() as a, IndexExpr() as b]:
            return a * b
        case _:
            return None


def reads_by_name(op: Endpoint) -> Iterator[str]:
    """Inputs that a node reads by name, not as a value of its body: counts of gathers and parts of indices."""
    if not isinstance(op, NodeOp):
        return
    for p in op.ports:
        if isinstance(p.count, IndexExpr):
            yield from p.count.names
    for s in op.sends:
        for e in s.index.data:
            if e is not None:
                yield from e.names
