"""Firing forward nodes of a loop again, run by run: the copies, what they are fed with, and what holds them back.

A *step* is the index along the loop, less a node's phase: nodes of one step may belong to different values of the field,
so that as few tokens as possible go from one step to the next.  A run is a range of steps.  Copies take their tokens

* from copies of the same run;
* from the forward nodes themselves where a run begins, and from outside the loop: these come long before they are wanted,
  so at instances that have no token of the first kind one of them is held by a node ``Keep...`` until the adjoint has
  come back to the step after the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr, i1
from xdsl.ir import SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import CountAttr, FormulaAttr, NodeOp, Port, ProgramOp, SendOp, UplType, port_ref
from upl_mlir.dialects.upl.query import span_of, symbols
from upl_mlir.passes.arrows import COMMENT, PRIMAL, answer, connect, copy_along, free_names, here, restricted
from upl_mlir.passes.build import Body, unused
from upl_mlir.passes.eliminate_dead_derivatives import erase_unused
from upl_mlir.passes.relations import Arrow, ProgramSets
from upl_mlir.poly.describe import describe, fibre_count, interval
from upl_mlir.poly.expr import CmpOp, DivKind, Formula, IndexExpr, divide
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class Segments:
    """Runs of `size` steps from `first` on; those before step `last`, where the last one begins, fire again."""

    first: IndexExpr
    last: IndexExpr
    size: int

    @staticmethod
    def over(first: IndexExpr, end: IndexExpr, size: int) -> Segments:
        """Segments of the steps from `first` to `end`, both included."""
        whole = divide(DivKind.FLOORDIV, end - first, IndexExpr.of(size))
        return Segments(first, first + whole * size, size)

    def number(self, step: IndexExpr) -> IndexExpr:
        """The number of the segment of a step, from 0."""
        return divide(DivKind.FLOORDIV, step - self.first, IndexExpr.of(self.size))

    def again(self, step: IndexExpr) -> Formula:
        """Whether a step fires again."""
        return Formula.compare(step, "<", self.last)

    def same(self, a: IndexExpr, b: IndexExpr) -> Formula:
        """Whether two steps are of one run."""
        return Formula.compare(self.number(a), "==", self.number(b))

    def after(self, step: IndexExpr) -> IndexExpr:
        """The step that follows on the run of a step."""
        return self.first + (self.number(step) + 1) * self.size


@dataclass
class Entering:
    """An arrow into a copy from outside its run; `held` are the source points whose tokens a ``Keep`` node holds."""

    arrow: Arrow
    relation: PSet
    held: PSet | None = None


@dataclass
class Refire:
    """One program being given copies of the nodes `again` along a field.

    `phases` has each node's phase; `adjoints` are the nodes that take values from the copies and may let a run go.
    """

    program: ProgramOp
    sets: ProgramSets
    along: str
    runs: Segments
    phases: dict[str, int]
    adjoints: Sequence[NodeOp]
    copies: dict[str, NodeOp] = field(default_factory=dict[str, NodeOp])
    domains: dict[str, PSet] = field(default_factory=dict[str, PSet])
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    keeps: list[tuple[NodeOp, PSet]] = field(default_factory=list[tuple[NodeOp, PSet]])

    def run(self, again: Sequence[NodeOp]) -> None:
        """Make the copies and their arrows."""
        sets, taken = self.sets, symbols(self.program)
        for op in again:
            self.domains[op.symbol] = sets.domain(op.symbol).constrain(self.runs.again(self.step(op.symbol))).coalesce()
        live = [op for op in again if not self.domains[op.symbol].is_empty()]
        entering = {op.symbol: self._entering(op, {o.symbol for o in live}) for op in live}
        for op in live:
            self._copy(op, unused(f"R{op.symbol}", taken))
        for op in live:
            within, outside = entering[op.symbol]
            for a, r in within:
                source = self.copies[a.source.symbol]
                copy_along(replace(a, source=source), r, self.domains[a.source.symbol],
                           lambda a=a: self.values[a.send.value], self._into(a), rule="fired again")  # fmt: skip
            for e in outside:
                self._enter(op, e, taken)
        for op in live:
            self._answer_adjoints(op)
            erase_unused(self.copies[op.symbol].block.ops)

    def step(self, name: str, mark: str = "") -> IndexExpr:
        """The step of an instance of a node, over its fields with `mark` behind them."""
        return IndexExpr.of(self.along + mark) - self.phases.get(name, 0)

    def _into(self, a: Arrow) -> SymbolRefAttr:
        return port_ref(self.copies[a.target.symbol].symbol, a.port.name)

    # -- copies --------------------------------------------------------------------------------------------------------
    def _copy(self, op: NodeOp, name: str) -> None:
        """A node that computes what `op` does, without arrows."""
        formula = describe(self.domains[op.symbol])
        copy = NodeOp(name, op.fields, op.ports, formula)
        copy.domain = FormulaAttr(formula)
        copy.location = op.location
        copy.attributes |= {**op.attributes, PRIMAL: StringAttr(op.symbol)}
        copy.attributes[COMMENT] = StringAttr(f"{op.symbol} again, segment by segment")
        self.values.update(zip(op.block.args, copy.block.args, strict=True))
        for inner in op.block.ops:
            if not isinstance(inner, SendOp):
                new = inner.clone({o: self.values[o] for o in inner.operands})
                copy.block.add_op(new)
                self.values.update(zip(inner.results, new.results, strict=True))
        self.program.body.block.add_op(copy)
        self.copies[op.symbol] = copy

    def _entering(self, op: NodeOp, live: set[str]) -> tuple[list[tuple[Arrow, PSet]], list[Entering]]:
        """The arrows into a copy: those from copies of the same run, and the others, of which some are held."""
        sets, mine = self.sets, self.domains[op.symbol]
        within: list[tuple[Arrow, PSet]] = []
        outside: list[Entering] = []
        for a in sets.into(op.symbol):
            r = sets.relation(a) & self._inside(a, mine)
            if r.is_empty():
                continue
            if not a.exact:
                raise error(
                    "UPL1431", f"data decide what {a.text} sends, so that arrow cannot be sent again", span_of(a.send)
                )
            if a.source.symbol not in live or f"{self.along}'" in a.stars:
                outside.append(Entering(a, r))
                continue
            there, here_ = self.step(a.source.symbol), self.step(op.symbol, "'")
            if not r.constrain(Formula.compare(here_, "<", there)).is_empty():
                raise error("UPL1431", f"{a.text} goes back along `{self.along}`: no chain of states", span_of(a.send))
            same = self.runs.same(there, here_)
            if not (part := r.constrain(same)).is_empty():
                within.append((a, part.coalesce()))
            if not (part := r.constrain(same.negate())).is_empty():
                outside.append(Entering(a, part.coalesce()))
        start = mine
        for a, r in within:
            start = start - self._landing(a, r)
        if not start.is_empty():
            self._hold(op, outside, start.coalesce())
        return within, outside

    @staticmethod
    def _inside(a: Arrow, domain: PSet) -> PSet:
        return domain.rename(dict(zip(a.target.fields, a.dst, strict=True))).extend(a.dims).reorder(a.dims)

    @staticmethod
    def _landing(a: Arrow, r: PSet) -> PSet:
        """The target instances of a part of an arrow."""
        return r.project(a.dst).rename(dict(zip(a.dst, a.target.fields, strict=True)))

    def _hold(self, op: NodeOp, outside: Sequence[Entering], start: PSet) -> None:
        """Choose tokens such that one is held for every instance of `start`, which no token of its run reaches."""
        best: list[tuple[Entering, PSet]] | None = None
        for p in op.ports:
            chosen: list[tuple[Entering, PSet]] = []
            left = start
            for e in outside:
                if e.arrow.port is p and f"{self.along}'" not in e.arrow.stars and not left.is_empty():
                    part = e.relation & self._inside(e.arrow, left)
                    if not part.is_empty():
                        held = part.project((*e.arrow.src, *e.arrow.loops)).coalesce()
                        chosen.append((e, held))
                        left = left - self._landing(e.arrow, part)
            if left.is_empty() and (best is None or _cost(chosen) < _cost(best)):
                best = chosen
        if best is None:
            raise error(
                "UPL1431", f"nothing could hold back `{op.symbol}` when it fires again: no input of it gets, where a "
                f"segment starts, a token of its own for each `{self.along}`", span_of(op),
            )  # fmt: skip
        for e, held in best:
            e.held = held

    # -- tokens from outside -------------------------------------------------------------------------------------------
    def _enter(self, op: NodeOp, e: Entering, taken: set[str]) -> None:
        """Send what comes from outside its run to a copy, some of it by way of a node that holds it."""
        a, context = e.arrow, self.sets.domain(e.arrow.source.symbol)
        direct = e.relation
        if e.held is not None:
            held = e.held.extend(a.dims).reorder(a.dims)
            direct = e.relation - held
            self._keep(op, a, e.relation & held, e.held, unused(f"Keep_{a.source.symbol}", taken))
        if not direct.is_empty():
            copy_along(a, direct.coalesce(), context, lambda: a.send.value, self._into(a), rule="fed again")

    def _keep(self, op: NodeOp, a: Arrow, r: PSet, points: PSet, name: str) -> None:
        """A node that holds the tokens of an arrow, one for each of its points, until the adjoint lets them go."""
        v, go = free_names(self.sets, points.dims, "v", "go")
        formula = describe(points)
        type_ = a.port.type
        keep = NodeOp(name, points.dims, [Port(v, type_), Port(go, UplType.BOOL)], formula)
        keep.domain = FormulaAttr(formula)
        keep.location = a.send.location
        keep.attributes[PRIMAL] = StringAttr(a.source.symbol)
        keep.attributes[COMMENT] = StringAttr(f"kept for {self.copies[op.symbol].symbol} until the adjoint is back")
        self.program.body.block.add_op(keep)
        copy_along(a, r, self.sets.domain(a.source.symbol), lambda: a.send.value, port_ref(name, v), rule="kept",
                   index=here(points.dims), count=False)  # fmt: skip
        count = a.send.count.data if a.send.count else None
        if isinstance(count, IndexExpr) and a.port.gather is None:
            count = fibre_count(r, a.dst, [count]) or count
        connect(self.program, keep, keep.arg(v), self._into(a), a.send.index.data, rule="let go", origin=a.send,
                count=count if isinstance(count, IndexExpr) else None)  # fmt: skip
        self._let_go(op, a, r, points, keep, go)
        self.keeps.append((keep, points))

    def _let_go(self, op: NodeOp, a: Arrow, r: PSet, points: PSet, keep: NodeOp, go: str) -> None:
        """The token by which the adjoint of the step after the run lets a held token go."""
        mark = f"{self.along}'"
        after = self.runs.after(self.step(op.symbol, "'"))
        for node in sorted(self.adjoints, key=lambda n: self._primal(n) != op.symbol):
            if node.fields != op.fields or self._primal(node) not in self.phases:
                continue
            phase = self.phases[self._primal(node)]
            at = r.extend((*r.dims, "at")).constrain(Formula.compare("at", "==", after + phase))
            at = at.project([d for d in at.dims if d != mark]).rename({"at": mark}).reorder(r.dims)
            domain = self.sets.domain(node.symbol)
            there = self._one(at & self._inside(a, domain), points.dims, a.dst)
            if there is None or not points <= there.project(points.dims):
                continue
            stand_in = replace(a, target=node, port=node.ports[0])
            yes = Body(node.block, node.location).constant(1, i1)
            answer(self.program, stand_in, there, points, keep, go, node, yes, domain)
            return
        raise error(
            "UPL1431", f"no adjoint node tells when the adjoint of a segment is done where {a.text} enters it: none with "
            f"the fields <{','.join(op.fields)}> fires at all those indices", span_of(a.send),
        )  # fmt: skip

    @staticmethod
    def _primal(node: NodeOp) -> str:
        """The node that an adjoint node belongs to, by its mark or, in a program read from text, by its name."""
        mark = node.attributes.get(PRIMAL)
        return mark.data if isinstance(mark, StringAttr) else node.symbol.removeprefix("D")

    @staticmethod
    def _one(r: PSet, points: Sequence[str], dst: Sequence[str]) -> PSet | None:
        """For each point the least of the instances that belong to it."""
        known = list(points)
        for d in dst:
            if r.express(IndexExpr.of(d), known) is None:
                got = interval(r, d, known)
                if got is None or not got[1].is_true:
                    return None
                r = r.constrain(Formula.compare(d, CmpOp.EQ, got[0].lo))
            known.append(d)
        return r

    # -- what the adjoint takes ----------------------------------------------------------------------------------------
    def _answer_adjoints(self, op: NodeOp) -> None:
        """Where a copy fires, it and not the node itself sends the adjoint what that needs."""
        adjoints = {n.symbol for n in self.adjoints}
        mine, whole = self.domains[op.symbol], self.sets.domain(op.symbol)
        for a in self.sets.out_of(op.symbol):
            if a.target.symbol not in adjoints:
                continue
            if not a.exact:
                raise error(
                    "UPL1431", f"data decide what {a.text} sends, so that arrow cannot be sent again", span_of(a.send)
                )
            r = self.sets.relation(a)
            again = (r & mine.extend(a.dims).reorder(a.dims)).coalesce()
            rest = (r - again).coalesce()
            copy = self.copies[op.symbol]
            copy_along(replace(a, source=copy), again, mine, lambda a=a: self.values[a.send.value], a.send.target,
                       rule=a.send.rule.data if a.send.rule else "stash")  # fmt: skip
            if rest.is_empty():
                a.send.detach()
                a.send.erase()
                continue
            new = restricted(a, rest.in_terms_of(a.src), whole)
            a.send.condition = None if new.condition.is_true else FormulaAttr(new.condition)
            a.send.point_condition = None if new.point_condition.is_true else FormulaAttr(new.point_condition)
            a.send.count = None if new.count is None or new.count == IndexExpr.of(1) else CountAttr(new.count)


def _cost(chosen: Sequence[tuple[Entering, PSet]]) -> tuple[int, int]:
    """How many fields the held tokens have, at most, and how many arrows send them: fewer fields, fewer tokens."""
    return max(len(held.dims) for _, held in chosen), len(chosen)
