"""The transformations of programs of loops, each a pass over `upl_loops`.

The passes on equations come first, then `order-loops`, which gives the program its loops, then the passes on these
(`SCHEDULE` in `passes/pipelines.py`).  In the compiler they change one `LoopProgram` one after the other (`step`).  On IR
each reads the program, changes it and writes it back: so what stands after any of them can be looked at and edited.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import Span, UplError, error
from upl_mlir.dialects.loops.ops import LoopProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.analysis.effort import bounded_work
from upl_mlir.passes.loops.coordinates import Coordinates
from upl_mlir.passes.loops.ir import read, write
from upl_mlir.passes.loops.order import NoOrder, Scheduler
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.statements import edges, statements
from upl_mlir.passes.loops.transform import checkpoints, columns, reuse, running, unroll, wavefront
from upl_mlir.passes.loops.transform.by_data.empty import ask_no_empty_gathers
from upl_mlir.passes.loops.transform.by_data.equal import share_indices
from upl_mlir.passes.loops.transform.by_data.searches import part_searches
from upl_mlir.passes.loops.transform.by_data.single import gather_as_made
from upl_mlir.passes.loops.transform.by_data.truths import simplify_truths
from upl_mlir.passes.loops.transform.followed import follow_copies
from upl_mlir.passes.loops.transform.forward import Forwarder
from upl_mlir.passes.loops.transform.invariant import (
    chosen_by_data,
    drop_idle_iterators,
    settle_comparisons,
    take_invariant_fields,
)
from upl_mlir.passes.loops.transform.late import compare_last
from upl_mlir.passes.loops.transform.products import Splitter
from upl_mlir.passes.loops.transform.quotients import split_quotients
from upl_mlir.passes.loops.transform.residues import by_residues
from upl_mlir.passes.loops.transform.results import make_in_place
from upl_mlir.passes.loops.transform.stored import Stored
from upl_mlir.passes.loops.transform.tables import Tables
from upl_mlir.passes.loops.transform.unread import drop_unread
from upl_mlir.passes.storage import Storage


class Stage(Enum):
    """How far a program of loops is; the value names what it has since then, and the pass that gives it that."""

    EQUATIONS = ("equations", "raise-to-loops")
    ORDERED = ("schedule", "order-loops")
    KEPT = ("places for its arrays", "allocate-arrays")

    @staticmethod
    def of(p: LoopProgram) -> tuple[Stage, ...]:
        """How far it is; both of the later stages for a schedule without arrays that need places."""
        if p.tree is None:
            return (Stage.EQUATIONS,)
        if p.arrays is None:
            return (Stage.ORDERED,)
        return (Stage.KEPT,) if p.arrays else (Stage.ORDERED, Stage.KEPT)

    @property
    def number(self) -> int:
        """Later stages have larger numbers."""
        return list(Stage).index(self)


def loop_program_of(module: ModuleOp) -> LoopProgramOp:
    """The program of loops of a module.  Raises UplError (UPL1831) if there is none."""
    found = next((op for op in module.body.block.ops if isinstance(op, LoopProgramOp)), None)
    if found is None:
        raise error("UPL1831", "there is no `upl_loops.program`", span_of(module), help="run `raise-to-loops` first")
    return found


class LoopPass(ModulePass):
    """A transformation of a program of loops that is at a given stage."""

    stage: ClassVar[Stage]

    def step(self, p: LoopProgram) -> bool:
        """Change the program; whether there was something to change."""
        raise NotImplementedError

    def run(self, p: LoopProgram) -> None:
        """The step, when it is run on its own."""
        self.step(p)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Read the program of loops of a module, change it, write it back.

        Raises UplError: UPL1831 for none, or one at another stage; UPL1802 for an option out of range.
        """
        old = loop_program_of(op)
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, int) and value < 1:
                raise error("UPL1802", f"{option.name}={value}: expected a number from 1 on", span_of(old))
        with bounded_work(f"the pass `{self.name}`", old):
            p = read(old)
            if p.cuts:
                message = f"`{self.name}` does not know the exchanges of a distributed program"
                raise error("UPL1831", message, span_of(old), help="run it before `distribute`")
            found = Stage.of(p)
            if self.stage not in found:
                raise _wrong_stage(self, found[0], span_of(old))
            self.run(p)
        new = write(p)
        new.location = old.location
        op.body.block.insert_op_before(new, old)
        old.detach()
        old.erase()


def _wrong_stage(p: LoopPass, found: Stage, at: Span | None) -> UplError:
    """The pass comes too early or too late."""
    if found.number < p.stage.number:
        what, maker = p.stage.value
        return error("UPL1831", f"the program of loops has no {what}", at, help=f"run `{maker}` before `{p.name}`")
    what, maker = list(Stage)[p.stage.number + 1].value
    help_ = None if p.name == maker else f"run `{p.name}` before `{maker}`"
    return error("UPL1831", f"the program of loops has its {what} already", at, help=help_)


# -- on equations -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FollowCopiesPass(LoopPass):
    """An element that is written in one round of a loop, and handed from round to round, is read where it was written.

    So it is where it goes to the neighbour's place in each round (a shift register).  What another array copies is made in
    its place (`transform/stored.py`).

    Requires: equations, no schedule yet (`raise-to-loops`).
    Establishes: arrays without rounds, where each element is written in one round and all copies go; the same numbers.
    Sums are cut between what was written and what stands there from the beginning, but not under `ordered`.  Folds that
    nobody reads go (`transform/unread.py`): a triangle is left of those that are read behind a condition on indices.
    Source: copy propagation on arrays; dead code elimination.

        x<0,i> = 0;  x<k,i> = x<k-1,i> where i != k-1;  x<k,k-1> = b<k-1> - + over r of A<k-1,r> * x<k-1,r>
        ->
        x<k> = b<k> - + over r < k of A<k,r> * x<r>
    """

    name = "follow-copies"
    stage: ClassVar[Stage] = Stage.EQUATIONS

    def step(self, p: LoopProgram) -> bool:
        some = Stored(p.system).merge_copies()
        some |= follow_copies(p.system, ordered=p.ordered)
        return drop_unread(p.system) or some


@dataclass(frozen=True)
class SplitProductsPass(LoopPass):
    """Sums of products, and factors that many summands share, get equations of their own, to become contractions.

    What such a sum reads by quotient and remainder, as after a reshape, becomes two iterators or two fields; an iterator
    that both factors only read beside a field gets a copy of one of them (`transform/quotients.py`).  So do costly functions
    in folds of few summands get equations: these are loops of vectors, along the fields of the fold's array.

    Requires: equations, no schedule yet (`raise-to-loops`).
    Establishes: sums of products of array elements alone; the same numbers.

        D<d,a> = Z<d,a> > 0 ? + over b of E<d,b> * W<a,b> : 0
        ->
        D.part1<d,a> = + over b of E<d,b> * W<a,b>;  D<d,a> = Z<d,a> > 0 ? D.part1<d,a> : 0
    """

    name = "split-products"
    stage: ClassVar[Stage] = Stage.EQUATIONS

    def step(self, p: LoopProgram) -> bool:
        before = len(p.system.equations)
        Splitter(p.system, ordered=p.ordered).split()
        return split_quotients(p.system) or len(p.system.equations) > before


@dataclass(frozen=True)
class InvariantFieldsPass(LoopPass):
    """What is the same in each step is computed once; where data choose elements, what need not be stored is not.

    Arrays lose the fields on which their elements do not depend (`transform/invariant.py`): a value that goes to all rows of
    a product is kept once.  A costly function of one sum of indices becomes a table (`transform/tables.py`).  The rest
    is for programs in which data choose elements (`transform/by_data`).  Indices that are computed in the same way are one
    array (`equal.py`).  The test whether a gather has summands is removed, of sums if the
    sign of 0 does not matter (`empty.py`). Each condition is tested once, and not where the answer is known (`truths.py`).
    Truth values that are only gathered are gathered as they are made (`single.py`). Gathers that look for their summands get
    arrays of their own (`searches.py`). An array of which an output is a copy is made in place of the output
    (`transform/results.py`).

    Requires: equations, no schedule yet.
    Establishes: fewer elements, with the same values; `relaxed` sums may differ in the sign of 0.
    Source: loop-invariant code motion (Aho, Sethi, Ullman 1986), of whole arrays.

        N<t,v> = + over e of (D<e> == v ? 1 : 0)    ->    N<v> = + over e of (D<e> == v ? 1 : 0)
    """

    name = "invariant-fields"
    stage: ClassVar[Stage] = Stage.EQUATIONS

    def step(self, p: LoopProgram) -> bool:
        if not (p.compared or chosen_by_data(p.system)):
            some = take_invariant_fields(p.system)
            return Tables(p.system).make() or some
        some = share_indices(p.system)
        some |= settle_comparisons(p.system)
        some |= simplify_truths(p.system)
        some |= ask_no_empty_gathers(p.system, signed=p.ordered)
        some |= simplify_truths(p.system, counts=True)
        some |= part_searches(p.system)
        while drop_idle_iterators(p.system) or take_invariant_fields(p.system):
            some = True
        some |= gather_as_made(p.system)
        return make_in_place(p.system) or some


@dataclass(frozen=True)
class ReuseFunctionsPass(LoopPass):
    """A costly function of a stored element is read where another array holds its values already.

    So is a term that another array of the same loop over steps holds (`transform/stored.py`).

    Requires: equations, no schedule yet.
    Establishes: no array is read more often than before for functions; the same bits. Those of at least `cost` additions
    are replaced. If the changed program would have no order of loops, it stays as it was.
    Source: common subexpressions (Cocke 1970), across arrays.

        H<i> = tanh(S<i>);  D<i> = G<i> * (1 - tanh(S<i>) * tanh(S<i>))    ->    D<i> = G<i> * (1 - H<i> * H<i>)
    """

    name = "reuse-functions"
    stage: ClassVar[Stage] = Stage.EQUATIONS
    cost: int = reuse.COSTLY

    def step(self, p: LoopProgram) -> bool:
        some = Stored(p.system).read()
        return reuse.Reuse(p.system, self.cost).replace() or some

    def run(self, p: LoopProgram) -> None:
        tried = read(write(p))
        if not self.step(tried):
            return
        RunningSumsPass().step(tried)
        try:
            OrderLoopsPass().step(tried)
        except UplError:
            return
        self.step(p)


@dataclass(frozen=True)
class RunningSumsPass(LoopPass):
    """Sums along columns become running sums, so that they are computed while their summands are computed.

    Of several values the one that comes of the array itself is compared last (`transform/late.py`).

    Requires: equations, no schedule yet.  A program whose sums keep their order (`ordered`) stays as it is.
    Establishes: sums in another order, those of at most `short` elements excepted.
    Source: scans as recurrences; reassociation as by `relaxed` (docs/native.md).

        G<i> = + over j of W<j,i> * X<j>    ->    G.run1<j,i> = G.run1<j-1,i> + W<j,i> * X<j>;  G<i> = G.run1<n-1,i>
    """

    name = "running-sums"
    stage: ClassVar[Stage] = Stage.EQUATIONS
    short: int = running.SHORT

    def step(self, p: LoopProgram) -> bool:
        before = len(p.system.equations)
        if p.ordered:
            return False
        running.RunningSums(p.system, self.short).replace()
        return compare_last(p.system) or len(p.system.equations) > before


@dataclass(frozen=True)
class ColumnFoldsPass(LoopPass):
    """Folds down the columns of arrays become running folds, so that the arrays are read along their rows.

    Requires: equations, no schedule yet.  Columns of at most `short` elements stay as they are.
    Establishes: folds whose arrays are read in neighbouring places by the loop inside; the same bits where sums are ordered.
    Source: loop interchange by the cost of strides (Allen and Kennedy 1984).

        B<s> = max over r of A<r> + M<r,s>    ->    B:down1<r,s> = max(B:down1<r-1,s>, A<r> + M<r,s>);  B<s> = B:down1<n-1,s>
    """

    name = "column-folds"
    stage: ClassVar[Stage] = Stage.EQUATIONS
    short: int = columns.SHORT

    def step(self, p: LoopProgram) -> bool:
        return columns.Columns(p.system, self.short, ordered=p.ordered).replace()


@dataclass(frozen=True)
class OrderLoopsPass(LoopPass):
    """The equations become statements in loops, in an order that keeps all dependences.

    Requires: equations, no schedule yet.
    Establishes: a schedule.  Loops over the same values are fused, and marked where iterations are parallel; those that
    would cut contractions are not, nor those that would compute functions one by one.  Fields are replaced by other
    coordinates where no order of loops is found by those of the program.
    Source: Allen and Kennedy 1987; Bondhugula et al. 2008 (fusion); Feautrier 1991.

        U<t,i> = f(U<t-1,i>)    ->    for "L1" from 1 to T { for "L2" from 0 to n-1 parallel { run U<L1,L2> } }
    """

    name = "order-loops"
    stage: ClassVar[Stage] = Stage.EQUATIONS

    def step(self, p: LoopProgram) -> bool:
        coordinates = Coordinates(p.system)
        first: NoOrder | None = None
        while True:
            stmts = statements(p.system)
            p.deps = edges(p.system.lin, stmts)
            try:
                p.tree = Scheduler(p.system.lin, stmts, p.deps, ordered=p.ordered, compared=p.compared).tree()
            except NoOrder as e:
                first = first or e
                if not coordinates.change(e.deps):
                    raise _no_order(p, first) from None
            else:
                return True


def _no_order(p: LoopProgram, e: NoOrder) -> UplError:
    """What the program's own coordinates say."""
    what = f"the elements of {', '.join(f'`{n}`' for n in e.arrays)}, which depend on each other"
    help_ = 'use engine="interp" or "token", which need none'
    return error("UPL1824", f"no order of loops found for {what}", p.places.get(e.arrays[0]), help=help_)


# -- on loops ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AllocateArraysPass(LoopPass):
    """Every array gets memory: along each field, as many values as are needed at the same time.

    Requires: a schedule (`order-loops`).
    Establishes: a place in memory for each element, which it keeps until its last read.
    Source: Lefebvre and Feautrier 1998 (windows modulo a number).

        upl_loops.array @U <"t,i"> f64 "local" [...]    ->    ... kept <"0 from 0 size 2 mod 2, 1 from 0 size n">
    """

    name = "allocate-arrays"
    stage: ClassVar[Stage] = Stage.ORDERED

    def step(self, p: LoopProgram) -> bool:
        p.arrays = Storage(p.system, p.scheduled, p.dependences()).arrays()
        return True


@dataclass(frozen=True)
class RecomputeStatesPass(LoopPass):
    """If a later loop reads the states of a time loop backwards, every `segment`-th state is kept and the others are
    recomputed.

    Requires: a schedule and places.
    Establishes: the two loops in blocks of time, each with a wave (`tile-time`); the same bits.  States whose elements cost
    more than `cost` additions are all kept.
    Source: Griewank and Walther 2000; Wonnacott 2000 for the wave.
    """

    name = "recompute-states"
    stage: ClassVar[Stage] = Stage.KEPT
    segment: int = checkpoints.SEGMENT
    cost: int = checkpoints.COST

    def step(self, p: LoopProgram) -> bool:
        found = checkpoints.remade(p.system, p.scheduled, p.dependences(), self.segment, self.cost)
        if found is None:
            return False
        arrays = Storage(p.system, found.tree, found.deps).arrays()
        if not all(x.modulus is not None for n, at in found.states.items() for x in arrays[n].axes if x.at == at):
            return False
        arrays |= found.arrays
        tiled = wavefront.wavefront(p.system.lin, found.tree, arrays, found.deps, found.blocks)
        if tiled is None:
            return False
        p.system.equations |= found.equations
        p.tree, p.deps, p.arrays = tiled, found.deps, arrays
        return True


@dataclass(frozen=True)
class TileTimePass(LoopPass):
    """A loop over time around sweeps over rows is tiled: `steps` steps advance together, row by row, as a wavefront.

    Requires: a schedule and places.
    Establishes: each row enters the cache once in `steps` steps; the same bits.  Threads share the blocks of steps, and each
    block stays some waves behind the one before.  States of at most 16 KB stay in a first-level cache, and are not tiled.
    Source: Wolfe 1986 (skewing and tiling); Wonnacott 2000.

        for t { for i { run U<t,i> } }    ->    for block { for wave { for t in the block { run U<t, wave-t> } } }
    """

    name = "tile-time"
    stage: ClassVar[Stage] = Stage.KEPT
    steps: int = wavefront.STEPS

    def step(self, p: LoopProgram) -> bool:
        tiled = wavefront.wavefront(p.system.lin, p.scheduled, p.kept, p.dependences(), steps=self.steps)
        p.tree = tiled or p.tree
        return tiled is not None


@dataclass(frozen=True)
class UnrollLoopsPass(LoopPass):
    """Loops of at most `most` iterations are written out where their variable picks entries of constant arrays.

    Innermost loops whose conditions ask for the remainder of their variable are written out by remainders
    (`transform/residues.py`).

    Requires: a schedule and places.
    Establishes: bounds inside such loops are numbers; innermost loops over planar arrays leave vectors to the loop outside.

        for k in 1..2 { for i in 1..N[k] { ... } }    ->    for i in 1..5 { ... };  for i in 1..6 { ... }
    """

    name = "unroll-loops"
    stage: ClassVar[Stage] = Stage.KEPT
    most: int = unroll.MOST

    def step(self, p: LoopProgram) -> bool:
        planar = {n for n, eq in p.system.equations.items() if eq.planar}
        p.tree = by_residues(p.system.lin, unroll.unrolled(p.system.lin, p.scheduled, p.kept, planar, self.most))
        return True


@dataclass(frozen=True)
class ForwardCopiesPass(LoopPass):
    """Copies of host inputs that only products read are left out: the products read the inputs.

    Requires: a schedule and places.
    Establishes: no such copies, and no places for them.
    Source: copy propagation on arrays.
    """

    name = "forward-copies"
    stage: ClassVar[Stage] = Stage.KEPT

    def step(self, p: LoopProgram) -> bool:
        storage = Storage(p.system, p.scheduled, ())
        outputs = {name for name, eq in p.system.equations.items() if eq.output}
        forwarder = Forwarder(p.system.lin, p.scheduled, p.system.hosts, outputs)
        p.tree = forwarder.forwarded()
        storage.without(p.kept, forwarder.gone)
        return bool(forwarder.gone)


LOOP_PASSES: dict[str, type[LoopPass]] = {
    c.name: c
    for c in (
        FollowCopiesPass, InvariantFieldsPass, SplitProductsPass, ReuseFunctionsPass, RunningSumsPass, ColumnFoldsPass,
        OrderLoopsPass, AllocateArraysPass, RecomputeStatesPass, TileTimePass, UnrollLoopsPass, ForwardCopiesPass,
    )
}  # fmt: skip
"""The transformations by name."""
