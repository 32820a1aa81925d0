"""`distribute`: the schedule of one rank of a program that several ranks run, with the exchanges between them.

A cut for which no exchange can be placed is given up, and the choice is made again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial as with_

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import UplError, error, placed
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.analysis.effort import bounded_work
from upl_mlir.passes.distribute.choice import Choice, Chooser
from upl_mlir.passes.distribute.deep import deepen
from upl_mlir.passes.distribute.exchanges import Exchanges, NotPlaced, Placed
from upl_mlir.passes.distribute.narrow import narrow
from upl_mlir.passes.distribute.partial import NoBarrier, insert
from upl_mlir.passes.expand import expand
from upl_mlir.passes.loops.legal import faults
from upl_mlir.passes.loops.passes import LOOP_PASSES
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.transform.wavefront import STEPS
from upl_mlir.passes.schedule import prepared, put, raised
from upl_mlir.poly.counts.quota import TooComplex, limited

BEFORE = ("invariant-fields", "split-products")
AFTER = ("order-loops", "allocate-arrays", "unroll-loops", "forward-copies")
"""The passes on the equations, and those on what is left of them for one rank."""
EFFORT = 8
"""So many times the usual limit of isl's work a distribution with deep halos may take; what needs more exchanges at each
step. Chosen: the usual limit is too low for stencils in one dimension."""
PROOF = 3
"""The same for the proof of a distribution: the training of `digits` needs 1.3 times the usual limit."""


@dataclass(frozen=True, eq=False)
class Distributed:
    """The program of a rank, how its arrays are cut, and the exchanges with what they are for."""

    program: LoopProgram
    choice: Choice
    exchanges: list[Placed]
    given_up: list[NotPlaced]
    deep: bool = False
    """Whether some loop exchanges for several steps at once; then it is proved already."""


def distribute(
    program: ProgramOp, *, real: str = "f64", gather: str = "relaxed", proved: bool = True, steps: int = STEPS,
    sizes: Mapping[str, int] | None = None,
) -> Distributed:
    """Distribute a checked affine program (with `adjoint of` expanded); sizes and blocks stay symbolic.

    Stencils exchange once in `steps` steps, where that can be proved with a bounded effort.  Under `relaxed`, sums over cut
    fields are sums of the ranks' parts, where that can be proved.  `sizes` are parameters for which the division should be
    good; it is right for all.
    Raises UplError: UPL2101 if nothing can be cut, UPL2102 if the proof of the schedule fails (`proved`), UPL18xx.
    """
    expand(program)
    if gather != "ordered":
        try:
            found = _attempt(program, real, gather, proved=True, steps=steps, partial=True, sizes=sizes)
        except (NoBarrier, UplError):
            pass  # without, it says what is wrong
        else:
            return found
    return _attempt(program, real, gather, proved=proved, steps=steps, partial=False, sizes=sizes)


def _attempt(
    program: ProgramOp, real: str, gather: str, *, proved: bool, steps: int, partial: bool,
    sizes: Mapping[str, int] | None,
) -> Distributed:  # fmt: skip
    """A distribution, with partial sums or without."""
    found: Distributed | None = None
    if steps > 1:
        try:
            with placed(span_of(program)), limited(EFFORT):
                found = _divided(program, real, gather, steps, partial=partial, sizes=sizes)
        except TooComplex:
            pass
    if found is None:
        with bounded_work("the distribution", program):
            found = _divided(program, real, gather, 1, partial=partial, sizes=sizes)
    if proved and not found.deep:
        with bounded_work("the proof of the distribution", program, PROOF):
            wrong = next(faults(found.program), None)
        if wrong is not None:
            where = None if wrong.statement is None else found.program.places.get(wrong.statement.array)
            raise error("UPL2102", f"the distribution is not proved: {wrong}", where, help='use engine="native"')
    return found


def _divided(
    program: ProgramOp, real: str, gather: str, steps: int, *, partial: bool, sizes: Mapping[str, int] | None
) -> Distributed:
    """The distribution, its proof apart, but for one with deep halos."""
    whole = raised(program, real=real, gather=gather, fixed={}, split=False, again=False)
    _pass(whole, (*BEFORE, "order-loops"))
    banned: set[tuple[str, str]] = set()
    given_up: list[NotPlaced] = []
    while True:
        choice = Chooser(whole, banned, partial=partial, sizes=sizes).choose()
        if not choice.fields:
            raise _nothing_to_cut(program, whole, given_up)

        def narrowed(*, weak: bool, choice: Choice = choice) -> LoopProgram:
            p = raised(program, real=real, gather=gather, fixed={}, again=False)
            _pass(p, BEFORE)
            strong, barriers = narrow(p, choice, partial=partial)
            p.system.lin = p.system.lin if weak else strong
            _pass(p, AFTER[:1])
            insert(p, barriers)
            _pass(p, AFTER[1:])
            p.system.lin = strong
            return p

        try:
            if steps > 1 and (deep := _with_deep_halos(with_(narrowed, weak=True), steps)) is not None:
                return Distributed(deep[0], choice, deep[1], given_up, deep=True)
            p = narrowed(weak=False)
            return Distributed(p, choice, Exchanges(p).insert(), given_up)
        except NotPlaced as e:
            given_up.append(e)
            banned.add((e.read.array, choice.fields[e.read.array]))


@dataclass(frozen=True)
class DistributePass(ModulePass):
    """Replace a program by the loops of one of several ranks: each computes its blocks and exchanges what others need.

    Requires: all domains known, `adjoint of` expanded, nothing refuted (the pass sees to these); no arrow decided by data.
    Establishes: one `upl_loops.program` with a schedule and exchanges. It is proved that a rank owns or has received
    whatever it reads, for all sizes and all blocks. Stencils exchange once in `steps` steps where that can be proved.
    Source: owner-computes (Callahan, Kennedy 1988); communication from dependences (Bondhugula 2013).

        for "L1" from 1 to T { for "L2" from 1 to n-2 parallel { run U<L1,L2> } }
        ->
        for "L1" from 1 to T { exchange U in <"t in L1-1..L1-1; i in first1-1..last1+1">
                               for "L2" from 1, first1 to n-2, last1 parallel { run U<L1,L2> } }
    """

    name = "distribute"
    real: str = "f64"
    gather: str = "relaxed"
    steps: int = STEPS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.steps < 1:
            raise error("UPL1802", f"steps={self.steps}: expected a number from 1 on")
        program = prepared(op, self.real, self.gather)
        put(op, program, distribute(program, real=self.real, gather=self.gather, steps=self.steps).program)


def _with_deep_halos(narrowed: Callable[[], LoopProgram], steps: int) -> tuple[LoopProgram, list[Placed]] | None:
    """A program that exchanges once in so many steps; None where that is not possible, or not proved.

    What is proved is that ranks have what they read when the steps run one after the other.  Then the steps between two
    exchanges are tiled as native code tiles them, by the same dependences.
    """
    found = _deepened(narrowed(), steps, tiled=False)
    if found is None or next(faults(found[0]), None) is not None:
        return None
    return _deepened(narrowed(), steps, tiled=True)


def _deepened(p: LoopProgram, steps: int, *, tiled: bool) -> tuple[LoopProgram, list[Placed]] | None:
    deep = deepen(p, steps, tiled=tiled)
    try:
        return (p, Exchanges(p, deep).insert()) if deep else None
    except NotPlaced:
        return None


def _pass(p: LoopProgram, names: tuple[str, ...]) -> None:
    for name in names:
        LOOP_PASSES[name]().step(p)


def _nothing_to_cut(program: ProgramOp, p: LoopProgram, given_up: list[NotPlaced]) -> UplError:
    if given_up:
        e = given_up[0]
        message = f"`{e.reader.array}` cannot be computed by several ranks: it reads `{e.read.array}`, and {e.why}"
        return error("UPL2101", message, p.places.get(e.reader.array), help='use engine="native"')
    message = "no array has a field whose elements could be computed by several ranks at the same time"
    return error("UPL2101", message, next(iter(p.places.values()), None), help='use engine="native"')
