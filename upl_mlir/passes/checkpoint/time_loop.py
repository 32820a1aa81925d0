"""The loop along a field of a gradient program: what goes forward, what comes back, and at which step each node stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from xdsl.dialects.builtin import StringAttr

from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import domain_of, nodes, span_of
from upl_mlir.passes.analysis.cycles import components
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import COMMENT, PRIMAL
from upl_mlir.passes.check import Count, Counts, number
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.describe import Interval, interval
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr

MOST_NODES = 12  # of which all phases are tried
MOST_STEPS = 256  # of a schedule that is written into the program as tables


class Loop:
    """The loop along a field: which nodes are forward and which adjoint, what must fire again, the steps.

    `again` are the nodes that must fire again, `adjoints` those on the way back, `duals` the adjoint node of each node.
    `phases` has the phase of each node of `again`, and of each node on the way back that its values are wanted for: a node's
    step is the index along the field less its phase.
    """

    def __init__(self, sets: ProgramSets, along: str):
        self.sets, self.along = sets, along
        here = [op for op in nodes(sets.program) if along in op.fields]
        if not here:
            fields = sorted({f for op in nodes(sets.program) for f in op.fields})
            raise error("UPL1430", f"no node has the index field `{along}`", help=nearest_or_all(along, fields))
        self.forward = self._forward(here)
        self.adjoints = [op for op in here if op not in self.forward]
        self.again = self._again()
        self.phases = self._phases()
        self.duals = {op.symbol: node for op in self.again for node in self.adjoints if _is_dual(node, op)}
        self._wanted()

    def _forward(self, here: Sequence[NodeOp]) -> list[NodeOp]:
        """The nodes on cycles that go up along the field, those that differentiation did not make (they are marked, but not
        in a program that was read from text: there those that no `D...` node serves, if no cycle goes up), and what feeds
        any of them."""
        marked = any(PRIMAL in op.attributes for op in here)
        found = {op.symbol for op in here if marked and PRIMAL not in op.attributes}
        for component in components(self.sets):
            names = {op.symbol for op in component}
            inner = [a for a in self.sets.arrows if a.source.symbol in names and a.target.symbol in names]
            ahead = any(self._steps(a, ">") for a in inner)  # else it goes along another field: either way
            if ahead and all(op in here for op in component) and not any(self._steps(a, "<") for a in inner):
                found |= names
        if not found:
            names = {op.symbol for op in here}
            found = names - self._served({f"D{name}" for name in names} & names, names)
        self._with_sources(found, {op.symbol for op in here})
        return [op for op in here if op.symbol in found]

    def _served(self, sources: set[str], allowed: set[str]) -> set[str]:
        """The nodes among those allowed that get tokens from the sources, at any distance, and the sources."""
        found, stack = set(sources), list(sources)
        while stack:
            for a in self.sets.out_of(stack.pop()):
                if (name := a.target.symbol) in allowed - found:
                    found.add(name)
                    stack.append(name)
        return found

    def _steps(self, a: Arrow, op: str) -> bool:
        """Whether an arrow brings some token to a later (``>``) or earlier (``<``) index along the field."""
        return not self.sets.relation(a).constrain(Formula.compare(f"{self.along}'", op, self.along)).is_empty()

    def _with_sources(self, found: set[str], allowed: set[str]) -> None:
        """Add the nodes that send, each at one index along the field, to those found."""
        stack = list(found)
        while stack:
            for a in self.sets.into(stack.pop()):
                name = a.source.symbol
                if name in allowed and name not in found and f"{self.along}'" not in a.stars:
                    found.add(name)
                    stack.append(name)

    def _again(self) -> list[NodeOp]:
        """The nodes that send the adjoint something, and all that these need inside the loop."""
        adjoints = {op.symbol for op in self.adjoints}
        found = {
            op.symbol for op in self.forward if any(a.target.symbol in adjoints for a in self.sets.out_of(op.symbol))
        }
        if not found:
            raise error(
                "UPL1430", f"nothing waits along `{self.along}`: no node with that field sends a value to its adjoint",
                help="checkpoint a gradient program, along the field of its time loop",
            )  # fmt: skip
        self._with_sources(found, {op.symbol for op in self.forward})
        return [op for op in self.forward if op.symbol in found]

    def tape(self, inside: Callable[[IndexExpr], Formula] | None = None) -> Count:
        """The tokens that the loop sends to its adjoint, at all steps or at those for which `inside` holds."""
        adjoints = {op.symbol for op in self.adjoints}
        total = Counts()
        for op in self.again:
            for a in self.sets.out_of(op.symbol):
                if a.target.symbol in adjoints:
                    tokens = self.sets.tokens(a)
                    if inside is not None:
                        tokens = tokens.constrain(inside(IndexExpr.of(self.along) - self.phases[op.symbol]))
                    total[str(len(total))] = number(count(tokens))
        return total.total

    # -- steps ---------------------------------------------------------------------------------------------------------
    def _phases(self) -> dict[str, int]:
        """A phase of 0 or 1 for each node, such that as few tokens as possible go from a step to the next.

        That is retiming as of synchronous circuits: a node with phase 1 belongs to the step before its index.
        """
        names = [op.symbol for op in self.again]
        edges: list[tuple[int, int, int, int]] = []
        for a in self.sets.arrows:
            if a.source.symbol in names and a.target.symbol in names and f"{self.along}'" not in a.stars:
                ahead, most = self._span(a)
                if ahead is None or (ahead != most and ahead < 1):
                    return dict.fromkeys(names, 0)
                edges.append((names.index(a.source.symbol), names.index(a.target.symbol), ahead, self._weight(a)))
        if len(names) > MOST_NODES:
            return dict.fromkeys(names, 0)
        best: tuple[int, int, tuple[int, ...]] | None = None
        for choice in product((0, 1), repeat=len(names)):
            spans = [ahead - choice[t] + choice[s] for s, t, ahead, _ in edges]
            if min(spans, default=0) >= 0 and 0 in choice:
                cost = sum(n * w for n, (*_, w) in zip(spans, edges, strict=True))
                best = min(best or (cost, sum(choice), choice), (cost, sum(choice), choice))
        return dict(zip(names, best[2] if best else (0,) * len(names), strict=True))  # without any: it goes backward

    def _span(self, a: Arrow) -> tuple[int | None, int | None]:
        """How far an arrow goes along the field, at least and at most."""
        r = self.sets.relation(a).project((self.along, f"{self.along}'")).extend((self.along, f"{self.along}'", "far"))
        far = Formula.compare("far", "==", IndexExpr.of(f"{self.along}'") - self.along)
        return r.constrain(far).project(("far",)).extent("far")

    def _wanted(self) -> None:
        """Phases of the nodes on the way back: what a node sends must not be wanted at a later step than its own.

        So a node that tells which value was the extremum belongs to the step of the gather, not of the value.
        """
        back = {op.symbol for op in self.adjoints}
        known = {node.symbol: self.phases[name] for name, node in self.duals.items()}
        arrows = [a for a in self.sets.arrows if {a.source.symbol, a.target.symbol} <= back]
        spans = [self._span(a)[1] for a in arrows]
        for _ in range(len(back)):
            for a, span in zip(arrows, spans, strict=True):
                name = a.source.symbol
                if (
                    span is not None
                    and a.target.symbol in known
                    and name not in {n.symbol for n in self.duals.values()}
                ):
                    known[name] = min(known.get(name, MOST_STEPS), known[a.target.symbol] - span)
        self.phases |= known

    def _weight(self, a: Arrow) -> int:
        """Tokens that an arrow sends at some sizes."""
        ctx = self.sets.ctx
        sizes = dict.fromkeys(ctx.params, 7)
        try:
            small = ProgramSets(self.sets.program, sizes)
            twin = next(b for b in small.arrows if b.send is a.send)
            return sum(1 for _ in small.tokens(twin).points())
        except IndexError:
            return 1

    def extent(self) -> tuple[IndexExpr, IndexExpr]:
        """The first step that may fire again, and the last that sends the adjoint something."""
        adjoints = {op.symbol for op in self.adjoints}
        last = [op for op in self.again if any(a.target.symbol in adjoints for a in self.sets.out_of(op.symbol))]
        return self.steps(self.again).lo, self.steps(last).hi

    def entered(self, lowest: int) -> int:
        """The last of the steps at which states enter the loop from outside, each at one step."""
        names = {op.symbol for op in self.again}
        out = lowest
        for a in self.sets.arrows:
            if a.target.symbol in names and a.source.symbol not in names and f"{self.along}'" not in a.stars:
                step = self.sets.relation(a).express(IndexExpr.of(f"{self.along}'") - self.phases[a.target.symbol], ())
                at = None if step is None else self.sets.ctx.number(step)
                out = out if at is None else max(out, at)
        return out

    def steps(self, ops: Sequence[NodeOp]) -> Interval:
        """The steps of some nodes."""
        found: list[Interval] = []
        for op in ops:
            got = interval(self.sets.domain(op.symbol).project((self.along,)).coalesce(), self.along, ())
            if got is None:
                domain = domain_of(op) or TRUE
                raise error(
                    "UPL1431", f"the indices of `{op.symbol}` along `{self.along}` are no interval: {domain}", span_of(op)
                )
            phase = self.phases[op.symbol]
            found.append(Interval(got[0].lo - phase, got[0].hi - phase))
        return Interval(self._extreme([i.lo for i in found], "<"), self._extreme([i.hi for i in found], ">"))

    def _extreme(self, values: Sequence[IndexExpr], op: str) -> IndexExpr:
        """The least (``<``) or greatest of some expressions of parameters, for all sizes the same one."""
        ctx = self.sets.ctx
        for v in dict.fromkeys(values):
            if all(ctx.set((), Formula.compare(w, op, v) & ctx.param_condition).is_empty() for w in values):
                return v
        shown = ", ".join(map(str, dict.fromkeys(values)))
        raise error(
            "UPL1431", f"along `{self.along}` it depends on the sizes which of {shown} is the first or last step"
        )


def _is_dual(node: NodeOp, op: NodeOp) -> bool:
    """Whether a node is the adjoint node of another, by its mark or, in a program that was read from text, by its name."""
    mark, comment = node.attributes.get(PRIMAL), node.attributes.get(COMMENT)
    if isinstance(mark, StringAttr) and isinstance(comment, StringAttr):
        return mark.data == op.symbol and comment.data == f"adjoint of {op.symbol}"
    return mark is None and node.symbol == f"D{op.symbol}"
