"""Firing forward nodes of a loop again, run by run: the copies, what they are fed with, and what holds them back.

A *step* is the index along the loop, less a node's phase: nodes of one step may belong to different values of the field,
so that as few tokens as possible go from one step to the next.  A run is a range of steps (`runs.py` says which).  Copies
take their tokens

* from copies of the same run;
* from outside the loop, and where a run begins from whoever came there first: these come long before they are wanted, so
  they are held by nodes ``Keep...`` until the adjoint has come back to the step after the run.

Where the runs are segments, each step belongs to one run, and it is enough to hold one token of each instance that has no
token from its own run; where runs overlap, their number is an index field of the copies, and all such tokens are held and
handed on from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr, i1
from xdsl.ir import Block, SSAValue

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import FormulaAttr, InputOp, NodeOp, Port, ProgramOp, SendOp, UplType, port_ref
from upl_mlir.dialects.upl.attributes import CountAttr
from upl_mlir.dialects.upl.query import span_of, symbols
from upl_mlir.frontend.upl_text.printing.printer import condition_text, target_text
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, because, primed
from upl_mlir.passes.arrows import (
    COMMENT,
    PRIMAL,
    answer,
    connect,
    copy_along,
    covered,
    free_names,
    here,
    made,
    restricted,
)
from upl_mlir.passes.autodiff.eliminate_dead_derivatives import erase_unused
from upl_mlir.passes.build import unused
from upl_mlir.passes.checkpoint.runs import Runs
from upl_mlir.passes.checkpoint.time_loop import Loop
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.levels import earliest
from upl_mlir.poly.sets import PSet


@dataclass
class Entering:
    """An arrow into a copy from outside its run, over the dimensions of `Refire.widened`; `held` are the points (run,
    source index and iterators) whose tokens a ``Keep`` node holds, `shared` whether one token goes to all runs, `within`
    whether it is a state, which a run before may send."""

    arrow: Arrow
    relation: PSet
    held: PSet | None = None
    shared: bool = False
    within: bool = False


@dataclass
class Refire:
    """One program being given copies of the nodes of a loop that must fire again."""

    program: ProgramOp
    loop: Loop
    runs: Runs
    copies: dict[str, NodeOp] = field(default_factory=dict[str, NodeOp])
    domains: dict[str, PSet] = field(default_factory=dict[str, PSet])  # of the copies
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    kept: list[PSet] = field(default_factory=list[PSet])  # tokens that wait for a run, as points
    keeps: list[PSet] = field(default_factory=list[PSet])  # domains of the nodes that hold them
    far: list[PSet] = field(default_factory=list[PSet])  # tokens that go more than one step on
    shared: bool = False  # some token serves several runs

    @property
    def sets(self) -> ProgramSets:
        """The program's sets."""
        return self.loop.sets

    @property
    def along(self) -> str:
        """The loop's field."""
        return self.loop.along

    def run(self) -> None:
        """Make the copies and their arrows."""
        again = self.loop.again
        front, taken = self.runs.fields, symbols(self.program)
        for op in again:
            whole = self.sets.domain(op.symbol).extend((*op.fields, *front)).reorder((*front, *op.fields))
            self.domains[op.symbol] = whole.constrain(self.runs.again(self.step(op.symbol))).coalesce()
        live = [op for op in again if not self.domains[op.symbol].is_empty()]
        names = {op.symbol for op in live}
        entering = {op.symbol: self._entering(op, names) for op in live}
        for op in live:
            self._copy(op, unused(f"R{op.symbol}", taken))
        for op in live:
            within, outside = entering[op.symbol]
            for a, r in within:
                source, lifted = self._lifted(a, self.copies[a.source.symbol])
                copy_along(lifted, r.reorder(lifted.dims), source, lambda a=a: self.values[a.send.value], lifted.send.target,
                           rule="fired again")  # fmt: skip
            for e in outside:
                self._enter(op, e, taken)
        for op in live:
            self._answer_adjoints(op)
            erase_unused(self.copies[op.symbol].block.ops)

    def step(self, name: str, mark: str = "") -> IndexExpr:
        """The step of an instance of a node, over its fields with `mark` behind them."""
        return IndexExpr.of(self.along + mark) - self.loop.phases.get(name, 0)

    # -- copies --------------------------------------------------------------------------------------------------------
    def _copy(self, op: NodeOp, name: str) -> None:
        """A node that computes what `op` does, without arrows."""
        front = self.runs.fields
        formula = self.runs.numbers & describe(self.domains[op.symbol])
        copy = NodeOp(name, (*front, *op.fields), op.ports, formula)
        copy.domain = FormulaAttr(formula)
        copy.location = op.location
        copy.attributes |= {**op.attributes, PRIMAL: made(op.symbol)}
        copy.attributes[COMMENT] = StringAttr(f"{op.symbol} again, {self.runs.text}")
        self.values.update(zip(op.block.args, copy.block.args[len(front) :], strict=True))
        for inner in op.block.ops:
            if not isinstance(inner, SendOp):
                new = inner.clone({o: self.values[o] for o in inner.operands})
                copy.block.add_op(new)
                self.values.update(zip(inner.results, new.results, strict=True))
        self.program.body.block.add_op(copy)
        self.copies[op.symbol] = copy

    def widened(self, a: Arrow, r: PSet, domain: PSet) -> PSet:
        """A part of the relation of an arrow into a node, for its copies: with the run in front of the source's fields and
        of the target's, restricted to the copies' `domain`."""
        dims = (*self.runs.fields, *a.src, *a.loops, *primed(self.runs.fields), *a.dst)
        inside = domain.rename(dict(zip(domain.dims, primed(domain.dims), strict=True)))
        wide = r.extend((*r.dims, *self.runs.fields, *primed(self.runs.fields))).reorder(dims)
        both = wide & inside.extend(dims).reorder(dims)
        same = [Formula.compare(f, "==", g) for f, g in zip(self.runs.fields, primed(self.runs.fields), strict=True)]
        return both.constrain(Formula.all(same))

    def _points(self, a: Arrow) -> tuple[str, ...]:
        return (*self.runs.fields, *a.src, *a.loops)

    def _dst(self, a: Arrow) -> tuple[str, ...]:
        return (*primed(self.runs.fields), *a.dst)

    def _lifted(
        self, a: Arrow, source: NodeOp | InputOp, run: Sequence[IndexExpr | None] | None = None
    ) -> tuple[PSet, Arrow]:
        """An arrow into a node as one into its copy, from a copy (same run) or from outside (`run` is the index in front);
        with the source's domain."""
        target = self.copies[a.target.symbol]
        index = (*(here(self.runs.fields) if run is None else run), *a.send.index.data)
        send = SendOp(
            Block(arg_types=[a.send.value.type]).args[0], port_ref(target.symbol, a.port.name), index,
            count=a.send.count.data if a.send.count else None, condition=a.send.when, iterators=a.send.loops,
            point_condition=a.send.when_point,
        )  # fmt: skip
        send.location = a.send.location
        domain = self.domains[a.source.symbol] if run is None else self.sets.domain(a.source.symbol)
        return domain, Arrow(send, source, target, a.port, a.where, a.exact)

    def _entering(self, op: NodeOp, live: set[str]) -> tuple[list[tuple[Arrow, PSet]], list[Entering]]:
        """The arrows into a copy: those from copies of the same run, and the others, of which some are held."""
        mine = self.domains[op.symbol]
        within: list[tuple[Arrow, PSet]] = []
        outside: list[Entering] = []
        for a in self.sets.into(op.symbol):
            r = self.widened(a, self.sets.relation(a), mine)
            if r.is_empty():
                continue
            if not a.exact:
                raise _by_data(a)
            if a.source.symbol not in live or f"{self.along}'" in a.stars:
                outside.append(Entering(a, r))
                continue
            there, here_ = self.step(a.source.symbol), self.step(op.symbol, "'")
            if not r.constrain(Formula.compare(here_, "<", there)).is_empty():
                raise error("UPL1431", f"{a.text} goes back along `{self.along}`: no chain of states", span_of(a.send))
            if self.runs.fields and not r.constrain(Formula.compare(here_, ">", there + 1)).is_empty():
                # more than one step on: the loop itself sends it once, for all runs
                outside.append(Entering(a, r))
                self.far.append(self.sets.relation(a).project((*a.src, *a.loops)))
                continue
            same = self.runs.same(there, here_)
            if not (part := r.constrain(same)).is_empty():
                within.append((a, part.coalesce()))
            if not (part := r.constrain(same.negate())).is_empty():
                outside.append(Entering(a, part.coalesce(), within=True))
        start = mine
        for a, r in within:
            start = start - self._landing(a, r)
        self._hold(op, outside, start.coalesce())
        return within, outside

    def _inside(self, a: Arrow, domain: PSet, dims: Sequence[str]) -> PSet:
        """Instances of a copy as a condition on the target in `dims`."""
        return domain.rename(dict(zip(domain.dims, self._dst(a), strict=True))).extend(dims).reorder(dims)

    def _landing(self, a: Arrow, r: PSet) -> PSet:
        """The instances of the target's copy in a part of an arrow."""
        dims = (*self.runs.fields, *a.target.fields)
        return r.project(self._dst(a)).rename(dict(zip(self._dst(a), dims, strict=True)))

    def _hold(self, op: NodeOp, outside: Sequence[Entering], start: PSet) -> None:
        """Choose tokens such that one is held for every instance of `start`, which no token of its run reaches."""
        single = [e for e in outside if f"{self.along}'" not in e.arrow.stars]
        if self.runs.fields:  # runs overlap: what several of them use is handed on
            for e in single:
                if e.relation <= e.relation.constrain(self.runs.begins(self.step(op.symbol, "'"))):
                    e.held = e.relation.project(self._points(e.arrow)).coalesce()
                elif e.within:
                    raise error("UPL1431", f"{e.arrow.text} goes more than one step on", span_of(e.arrow.send))
            for e in single:
                start = start - self._landing(e.arrow, e.relation) if e.held is not None else start
            if start.is_empty():
                return
            # what comes from outside the loop at each step is one token for all runs of that step, held for each run
            single = [e for e in single if e.held is None and not e.within]
        best: list[tuple[Entering, PSet]] | None = [] if start.is_empty() else None
        for p in op.ports if best is None else ():
            chosen: list[tuple[Entering, PSet]] = []
            left = start
            for e in single:
                part = e.relation & self._inside(e.arrow, left, e.relation.dims)
                if e.arrow.port is p and not part.is_empty():
                    chosen.append((e, part.project(self._points(e.arrow)).coalesce()))
                    left = left - self._landing(e.arrow, part)
            if left.is_empty() and (best is None or _cost(chosen) < _cost(best)):
                best = chosen
        if best is None:
            raise error(
                "UPL1431", f"nothing could hold back `{op.symbol}` when it fires again: no input of it gets, where a "
                f"run starts, a token of its own for each `{self.along}`{because(*(e.relation for e in single), start)}",
                span_of(op),
            )  # fmt: skip
        for e, held in best:
            e.held, e.shared = held, bool(self.runs.fields)
            if e.shared and not e.relation.project(self._points(e.arrow)) <= held:
                raise self._not_shared(e.arrow)

    # -- tokens from outside -------------------------------------------------------------------------------------------
    def _enter(self, op: NodeOp, e: Entering, taken: set[str]) -> None:
        """Send what comes from outside its run to a copy, some of it by way of a node that holds it."""
        a, direct = e.arrow, e.relation
        if e.held is not None:
            held = e.held.extend(e.relation.dims).reorder(e.relation.dims)
            direct = e.relation - held
            self._keep(op, e, e.relation & held, e.held, unused(f"Keep_{a.source.symbol}", taken))
        if direct.is_empty():
            return
        if not self.runs.fields:
            context, lifted = self._lifted(a, a.source, ())
            copy_along(lifted, direct.coalesce(), context, lambda: a.send.value, lifted.send.target, rule="fed again")
            if f"{self.along}'" not in a.stars:
                self.kept.append(direct.project(self._points(a)))
            return
        self._feed_all(op, a, direct)

    def _feed_all(self, op: NodeOp, a: Arrow, r: PSet) -> None:
        """One token for all runs that use it."""
        self.shared = True
        mark = f"{self.along}'"
        points = (*a.src, *a.loops)
        runs = primed(self.runs.fields)
        if mark in a.stars:
            pairs = r.project((*runs, mark))
            others = [d for d in a.dst if d in a.stars and d != mark]
            number, rest = count(pairs), fibre_count(r.project((*points, *a.dst)), others)
        else:
            step = r.express(self.step(op.symbol, "'"), points)
            number = self.runs.users(step) if step is not None else None
            rest = fibre_count(r.project((*points, *a.dst)), a.dst)
        if a.port.gather is not None or number is None or rest is None:
            raise self._not_shared(a)
        context, lifted = self._lifted(a, a.source, [None] * len(runs))
        send = lifted.send
        self._send_to_all(a, r.project((*points, *a.dst)), context, send.target, send.index.data, number * rest)

    def _share(self, op: NodeOp, a: Arrow, r: PSet, into: SymbolRefAttr) -> None:
        """One token for all nodes, one for each run, that hold it."""
        self.shared = True
        points = (*a.src, *a.loops)
        step = r.express(self.step(op.symbol, "'"), points)
        number = self.runs.users(step) if step is not None else None
        if number is None:
            raise self._not_shared(a)
        index = (*[None] * len(self.runs.fields), *here(points))
        self._send_to_all(a, r.project((*points, *a.dst)), self.sets.domain(a.source.symbol), into, index, number)

    @staticmethod
    def _send_to_all(
        a: Arrow, r: PSet, context: PSet, into: SymbolRefAttr, index: Sequence[IndexExpr | None], number: IndexExpr
    ) -> None:
        """Send a value from outside the loop, one token with a multiplicity for each point of a part of an arrow."""
        new = restricted(a, r, context)
        send = SendOp(
            a.send.value, into, tuple(index), count=number, condition=new.condition, iterators=a.send.loops,
            point_condition=new.point_condition, rule="fed again",
        )  # fmt: skip
        send.location = a.send.location
        a.source.block.add_op(send)

    @staticmethod
    def _not_shared(a: Arrow) -> UplError:
        return error(
            "UPL1431", f"{a.text} brings a token at each step, which all runs of that step would have to share",
            span_of(a.send),
        )  # fmt: skip

    def _keep(self, op: NodeOp, e: Entering, r: PSet, points: PSet, name: str) -> None:
        """A node that holds the tokens of an arrow, one for each of its points, until the adjoint lets them go."""
        a = e.arrow
        v, go = free_names(self.sets, points.dims, "v", "go")
        formula = self.runs.numbers & describe(points)
        keep = NodeOp(name, points.dims, [Port(v, a.port.type), Port(go, UplType.BOOL)], formula)
        keep.domain = FormulaAttr(formula)
        keep.location = a.send.location
        keep.attributes[PRIMAL] = made(a.source.symbol)
        keep.attributes[COMMENT] = StringAttr(f"kept for {self.copies[op.symbol].symbol} until the adjoint is back")
        self.program.body.block.add_op(keep)
        if e.shared:
            self._share(op, a, r, port_ref(keep.symbol, v))
        else:
            self._fill(op, a, r, points, keep, v)
        _, lifted = self._lifted(a, a.source, here(self.runs.fields))
        number = a.send.count.data if a.send.count else None
        if isinstance(number, IndexExpr) and a.port.gather is None:
            number = covered(r, self._dst(a), number)
        connect(self.program, keep, keep.arg(v), lifted.send.target, lifted.send.index.data, rule="let go", origin=a.send,
                count=number)  # fmt: skip
        self._let_go(op, a, r, points, keep, go, e.shared)
        self.keeps.append(points)
        if not e.shared:  # what all runs share is an input that waits once
            self.kept.append(points)

    def _fill(self, op: NodeOp, a: Arrow, r: PSet, points: PSet, keep: NodeOp, v: str) -> None:
        """Send a held token to its node: from the arrow's source, or from the run that comes there first; then on to the
        next run that needs it."""
        into = port_ref(keep.symbol, v)
        own = (*a.src, *a.loops)
        context = self.sets.domain(a.source.symbol)
        if not self.runs.fields:
            copy_along(a, r.project((*own, *a.dst)), context, lambda: a.send.value, into, rule="kept", index=here(own),
                       count=False)  # fmt: skip
            return
        there = self.step(op.symbol, "'")
        r = self.sets.relation(a).constrain(self.runs.replaced(there))
        if a.source.symbol in self.copies:
            r = r.constrain(self.runs.inner(there))
        step = r.express(there, own)
        if step is None:
            raise error("UPL1431", f"{a.text} enters the loop at several steps at once", span_of(a.send))
        index = (*self.runs.first_user(step), *here(own))
        self._send_if(self.runs.stored_by_main(step), a, r, context, a.send.value, into, index)
        if a.source.symbol in self.copies:
            wide = replace(a, source=self.copies[a.source.symbol])
            mine = self.domains[a.source.symbol]
            r = r.extend((*r.dims, *self.runs.fields)).reorder(wide.dims) & mine.extend(wide.dims).reorder(wide.dims)
            value = self.values[a.send.value]
            self._send_if(self.runs.stored_by_run(step), wide, r, mine, value, into, index)
        more, after = self.runs.next_user()
        if not points.constrain(more).is_empty():
            connect(self.program, keep, keep.arg(v), into, (*after, *here(own)), rule="handed on", origin=a.send,
                    condition=more)  # fmt: skip

    @staticmethod
    def _send_if(
        condition: Formula, a: Arrow, r: PSet, context: PSet, value: SSAValue, into: SymbolRefAttr,
        index: Sequence[IndexExpr],
    ) -> None:  # fmt: skip
        """Send a value, one token for each point of a part of an arrow, where a condition on the points holds too."""
        new = restricted(a, r, context)
        on_points = bool(condition.names & set(a.loops))
        send = SendOp(
            value, into, tuple(index), iterators=a.send.loops, rule="kept",
            condition=new.condition if on_points else condition & new.condition,
            point_condition=condition & new.point_condition if on_points else new.point_condition,
        )  # fmt: skip
        send.location = a.send.location
        a.source.block.add_op(send)

    def _let_go(self, op: NodeOp, a: Arrow, r: PSet, points: PSet, keep: NodeOp, go: str, shared: bool) -> None:
        """The token by which the adjoint of the step after the run lets a held token go.

        A held token that is `shared` has a `*` for the run: the other one names its instance.
        """
        mark = f"{self.along}'"
        after = self.runs.after(self.step(op.symbol, "'"))
        r = r.project((*points.dims, *a.dst))
        duals = sorted(self.loop.duals.items(), key=lambda d: d[0] != op.symbol)
        same = [(name, node) for name, node in duals if node.fields == op.fields]
        # The instance of the same index tells; where layers differ in width there may be none, and then the least of the
        # step tells, first along the last field.
        for free, (name, node) in ((n, dual) for n in range(len(a.dst)) for dual in same):
            phase = self.loop.phases[name]
            at = r.extend((*r.dims, "at")).constrain(Formula.compare("at", "==", after + phase))
            loose = [mark, *[d for d in reversed(a.dst) if d != mark][:free]]
            at = at.project([d for d in at.dims if d not in loose]).rename({"at": mark}).extend(r.dims).reorder(r.dims)
            domain = self.sets.domain(node.symbol)
            inside = domain.rename(dict(zip(domain.dims, a.dst, strict=True))).extend(r.dims).reorder(r.dims)
            there = self._one(at & inside, points.dims, a.dst)
            if there is None or not points <= there.project(points.dims):
                continue
            stand_in = replace(a, source=keep, target=node, port=node.ports[0])
            yes = Body(node.block, node.location).constant(1, i1)
            answer(self.program, stand_in, there, None if shared else points, port_ref(keep.symbol, go), node, yes, domain)
            return
        raise error(
            "UPL1431", f"no adjoint node tells when the adjoint of a segment is done where {a.text} enters it: none with "
            f"the fields <{','.join(op.fields)}> fires at all those indices", span_of(a.send),
        )  # fmt: skip

    @staticmethod
    def _one(r: PSet, points: Sequence[str], dst: Sequence[str]) -> PSet | None:
        """For each point the least of the instances that belong to it."""
        known = list(points)
        for d in dst:
            if r.express(IndexExpr.of(d), known) is None:
                low = r.project((*known, d))
                least = earliest(low) if low.exact else None
                if least is None:
                    return None
                r = r & least.extend(r.dims).reorder(r.dims)
            known.append(d)
        return r

    # -- what the adjoint takes ----------------------------------------------------------------------------------------
    def _answer_adjoints(self, op: NodeOp) -> None:
        """Where a copy fires for it, the copy and not the node itself sends the adjoint what that needs."""
        adjoints = {n.symbol for n in self.loop.adjoints}
        mine, whole = self.domains[op.symbol], self.sets.domain(op.symbol)
        step = self.step(op.symbol)
        for a in self.sets.out_of(op.symbol):
            if a.target.symbol not in adjoints:
                continue
            if not a.exact:
                raise _by_data(a)
            r = self.sets.relation(a)
            early = self._early(a, r, step)
            dims = (*self.runs.fields, *a.dims)
            again = (r - early).extend(dims).reorder(dims) & mine.extend(dims).reorder(dims)
            again = again.constrain(self.runs.answers(step)).coalesce()
            rest = ((r - r.constrain(self.runs.replaced(step))) | early).coalesce()
            copy_along(replace(a, source=self.copies[op.symbol]), again, mine, lambda a=a: self.values[a.send.value],
                       a.send.target, rule=a.send.rule.data if a.send.rule else "stash")  # fmt: skip
            if rest.is_empty():
                a.send.detach()
                a.send.erase()
                continue
            new = restricted(a, rest.in_terms_of(a.src), whole)
            a.send.condition = None if new.condition.is_true else FormulaAttr(new.condition)
            a.send.point_condition = None if new.point_condition.is_true else FormulaAttr(new.point_condition)
            a.send.count = None if new.count is None or new.count == IndexExpr.of(1) else CountAttr(new.count)

    def _early(self, a: Arrow, r: PSet, step: IndexExpr) -> PSet:
        """What the adjoint wants of an arrow before the run that could send it: it must wait from the first time on."""
        if a.target.symbol not in self.loop.phases:
            return self.sets.ctx.empty(a.dims)
        wanted = self.step(a.target.symbol, "'")
        early = r.constrain(Formula.compare(wanted, ">", step) & self.runs.replaced(step))
        early = early.constrain(self.runs.same(step, wanted).negate()) if not self.runs.fields else early
        if early.is_empty():
            return early
        if self.runs.fields:
            raise error("UPL1431", f"the adjoint wants what {a.text} sends at a step before its own", span_of(a.send))
        self.kept.append(early.project((*a.src, *a.loops)))
        return early.coalesce()


def _by_data(a: Arrow) -> Exception:
    """UPL1431 for an arrow that data decide."""
    text = condition_text(a.send) if a.send.predicate is not None else target_text(a.send)
    message = f"data decide what {a.text} sends (`{text}`), so that arrow cannot be sent again"
    return error("UPL1431", message, span_of(a.send))


def _cost(chosen: Sequence[tuple[Entering, PSet]]) -> tuple[int, int]:
    """How many fields the held tokens have, at most, and how many arrows send them: fewer fields, fewer tokens."""
    return max(len(held.dims) for _, held in chosen), len(chosen)
