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

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import poly_context, program_of
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.analysis.strata import forget_ranks
from upl_mlir.passes.batch import names_of
from upl_mlir.passes.build import unused
from upl_mlir.passes.check import Count, Counts, number
from upl_mlir.passes.checkpoint.refire import Refire
from upl_mlir.passes.checkpoint.runs import Revolve, Segments, revolve
from upl_mlir.passes.checkpoint.time_loop import MOST_STEPS, Loop
from upl_mlir.passes.expand import expand
from upl_mlir.passes.notes import add_note
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class CheckpointPass(ModulePass):
    """Keep the state before some steps of the loop along the field `along`, and fire the steps between them again.

    With `every` (a number, or the name of an integer constant) every `every`-th state is kept. With `snapshots` at most
    that many states are kept at any time, the first included, by the schedule that needs the fewest firings; the number
    of steps must then be known.

    Requires: all domains known; no `adjoint of` directives; a gradient program.
    Establishes: forward values, except those of the last steps, come from copies ``R...``. A copy fires when the
    adjoint has come back to the step after it.
    Source: AUTODIFF section 4; A. Griewank, A. Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000).
    """

    name = "checkpoint"
    along: str
    every: int | str | None = None
    snapshots: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        checkpoint(program, self.along, self.every, self.snapshots)


@bounded("checkpointing")
def checkpoint(program: ProgramOp, along: str, every: int | str | None = None, snapshots: int | None = None) -> None:
    """Checkpoint a gradient program in place; see `CheckpointPass`.  Raises UplError (UPL143x)."""
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
    refire = Refire(program, loop, runs)
    refire.run()
    forget_ranks(program)
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
    far = f"; {_words(_sum(refire.far))} values that go more than one step on wait from first to last" if refire.far else ""
    add_note(
        program, f"checkpoint along {along} {what}: {_words(tape)} forward values waited for the adjoint; now {kept} kept "
        f"and {_words(at_once)} wait at a time; {fired} firings more{far}",
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
