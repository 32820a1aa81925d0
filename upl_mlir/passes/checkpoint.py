"""`checkpoint`: less waiting for a gradient along a loop, for more firings (AUTODIFF section 4, "Checkpointing").

The matching store is the tape: a forward value waits there for its adjoint.  Here only what enters a segment of the loop
is kept; when the adjoint comes back to a segment, copies of the forward nodes fire again and send what it needs.  Nothing
in a dataflow machine waits unless a token is missing: a kept value is held by a node ``Keep...`` whose other input comes
from the adjoint of the segment after, and so no copy starts before that one is done.

    U<t> -> Upd<t+1> -> U<t+1> ...          the loop; Upd sent its `c` to DUpd<t> at every t
    U<t>, Keep_U<t> -> CU<t> -> CUpd<t+1>   now only in the last segment; in the others the copy CUpd sends it,
    DU<t+S>.true -> Keep_U<t>               when the adjoint has come back to the start of the segment after
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.dialects.upl import AdjointOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import nodes, poly_context, program_of, span_of
from upl_mlir.passes.arrows import PRIMAL
from upl_mlir.passes.batch import names_of
from upl_mlir.passes.build import unused
from upl_mlir.passes.check import Count, Counts, number
from upl_mlir.passes.cycles import components
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.infer_domains import domains_known, infer_domains
from upl_mlir.passes.notes import add_note
from upl_mlir.passes.refire import Refire
from upl_mlir.passes.relations import Arrow, ProgramSets
from upl_mlir.passes.runs import Revolve, Segments, revolve
from upl_mlir.poly.counting import count
from upl_mlir.poly.describe import Interval, interval
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.sets import PSet, union

MOST_NODES = 12  # of which all phases are tried
MOST_STEPS = 256  # of a schedule that is written into the program as tables


@dataclass(frozen=True)
class CheckpointPass(ModulePass):
    """Keep what enters some steps of the loop along the field `along`; fire the steps between again.

    Either every `every`-th step (a number, or the name of an integer constant), or at any time at most `snapshots` steps,
    the first included, by the schedule that needs the fewest firings; then the number of steps must be known.

    Requires: all domains known (`infer-domains` is run if they are not); a gradient program (no `adjoint of`).
    Establishes: forward values, but those of the last steps, come from copies ``R...`` that fire when the adjoint has come
    back to the step after.
    Source: AUTODIFF section 4; A. Griewank, A. Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000).
    """

    name = "checkpoint"
    along: str
    every: int | str | None = None
    snapshots: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        if not domains_known(program):
            infer_domains(program)
        checkpoint(program, self.along, self.every, self.snapshots)


@bounded("checkpointing")
def checkpoint(program: ProgramOp, along: str, every: int | str | None = None, snapshots: int | None = None) -> None:
    """Checkpoint a gradient program in place; see `CheckpointPass`.  Raises UplError (UPL143x)."""
    directive = next((op for op in program.body.block.ops if isinstance(op, AdjointOp)), None)
    if directive is not None:
        raise error("UPL1430", "`adjoint of` must be expanded before a program is checkpointed", span_of(directive),
                    help="run --autodiff first")  # fmt: skip
    if (every is None) == (snapshots is None):
        raise error("UPL1430", "checkpoint: give either `every` or `snapshots`")
    loop = Loop(ProgramSets(program), along)
    first, end = loop.extent()
    tape = loop.tape()
    if every is not None:
        size = _size(program, every)
        runs = Segments.over(first, end, size)
        at_once = loop.tape(lambda step: Formula.compare(step, "<", first + size))
    else:
        assert snapshots is not None
        runs = _revolve(program, loop, first, end, snapshots)
        at_once = loop.tape(lambda step: Formula.compare(step, "==", runs.last))
        loop = Loop(ProgramSets(program), along)  # with the tables of the schedule
    refire = Refire(program, loop.sets, along, runs, loop.phases, loop.adjoints)
    refire.run(loop.again)
    if isinstance(runs, Segments):
        what = f"every {runs.size}"
        kept = f"{_words(_sum(refire.kept))} are"
    else:
        if not refire.shared:
            runs.forget_users(program)
        what = f"with {snapshots} snapshots"
        one = [s.constrain(Formula.compare(runs.run, "==", runs.last - 1)) for s in refire.kept]
        kept = f"at most {snapshots} times {_words(_sum(one))} are"
    fired = _words(_sum((*refire.domains.values(), *refire.keeps)))
    add_note(
        program, f"checkpoint along {along} {what}: {_words(tape)} forward values waited for the adjoint; now {kept} kept "
        f"and {_words(at_once)} wait at a time; {fired} firings more",
    )  # fmt: skip


def _sum(sets: Iterable[PSet]) -> Count:
    return Counts({str(n): number(count(s)) for n, s in enumerate(sets)}).total


def _words(n: Count) -> str:
    return "an unknown number of" if n is None else str(n)


def _revolve(program: ProgramOp, loop: Loop, first: IndexExpr, end: IndexExpr, snapshots: int) -> Revolve:
    """The optimal schedule for a known number of steps."""
    lo, hi = loop.sets.ctx.number(first), loop.sets.ctx.number(end)
    if lo is None or hi is None:
        raise error(
            "UPL1430", f"snapshots={snapshots}: the schedule needs a known number of steps, not {end - first + 1}",
            help="bind the parameters, for instance with -D, or use `every`",
        )  # fmt: skip
    if snapshots < 1:
        raise error("UPL1430", f"snapshots={snapshots}: the first step's must be kept")
    if hi - lo >= MOST_STEPS:
        raise error("UPL1430", f"{hi - lo + 1} steps are too many for a schedule in tables", help="use `every`")
    entered = loop.entered(lo)
    schedule = revolve(hi - entered + 1, snapshots)
    top = loop.sets.ctx.number(loop.steps(loop.again).hi)
    assert top is not None, "the last step is known"
    return Revolve.declare(program, (lo, top), entered, schedule, unused("run", names_of(program)))


def _size(program: ProgramOp, every: int | str) -> int:
    """The number of steps in a segment."""
    ctx = poly_context(program)
    size = ctx.constants.get(every) if isinstance(every, str) else every
    if isinstance(every, str) and every in ctx.params:
        raise error(
            "UPL1430", f"every={every}: the length of a segment must be known: else the segment of a step is no affine "
            f"function of it", help=f"bind it: -D {every}=4",
        )  # fmt: skip
    if size is None:
        raise error(
            "UPL1430", f"every={every}: there is no such integer constant", help=did_you_mean(str(every), ctx.constants)
        )
    if size < 1:
        raise error("UPL1430", f"every={every}: a segment has at least one step")
    return size


class Loop:
    """The loop along a field: which nodes are forward and which adjoint, what must fire again, the steps.

    Nodes that differentiation made are marked; in a program that was read from text, the forward nodes are those on cycles
    that go up along the field, and what feeds them.
    """

    def __init__(self, sets: ProgramSets, along: str):
        self.sets, self.along = sets, along
        here = [op for op in nodes(sets.program) if along in op.fields]
        if not here:
            fields = sorted({f for op in nodes(sets.program) for f in op.fields})
            raise error("UPL1430", f"no node has the index field `{along}`", help=did_you_mean(along, fields))
        marked = any(PRIMAL in op.attributes for op in here)
        self.forward = [op for op in here if PRIMAL not in op.attributes] if marked else self._rising(here)
        self.adjoints = [op for op in here if op not in self.forward]
        self.again = self._again()
        self.phases = self._phases()

    def _rising(self, here: Sequence[NodeOp]) -> list[NodeOp]:
        """Nodes on cycles that go up along the field, and those that feed them."""
        found: set[str] = set()
        for component in components(self.sets):
            names = {op.symbol for op in component}
            inner = [a for a in self.sets.arrows if a.source.symbol in names and a.target.symbol in names]
            if all(op in here for op in component) and all(self._ahead(a) for a in inner):
                found |= names
        self._with_sources(found, {op.symbol for op in here})
        return [op for op in here if op.symbol in found]

    def _ahead(self, a: Arrow) -> bool:
        r = self.sets.relation(a)
        return r.constrain(Formula.compare(f"{self.along}'", "<", self.along)).is_empty()

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
                ahead = self._constant_ahead(a)
                if ahead is None:
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

    def _constant_ahead(self, a: Arrow) -> int | None:
        """How far an arrow goes along the field, if always equally far."""
        r = self.sets.relation(a)
        mark = f"{self.along}'"
        got = r.express(IndexExpr.of(mark) - self.along, ())
        return got.constant if got is not None else None

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
        parts: list[PSet] = []
        for op in ops:
            both = self.sets.domain(op.symbol).project((self.along,)).extend((self.along, "step"))
            step = IndexExpr.of(self.along) - self.phases[op.symbol]
            parts.append(both.constrain(Formula.compare("step", "==", step)).project(("step",)))
        got = interval(union(parts).coalesce(), "step", ())
        if got is None:
            raise error("UPL1431", f"the steps along `{self.along}` are no interval")
        return got[0]
