"""`schedule`: equations, the order of their statements, and where their elements live."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import UplError, did_you_mean, error
from upl_mlir.dialects.upl import ArrayOp, ConstOp, InputOp, ParamOp, ProgramOp
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import endpoints, first_index, inputs, outputs, program_of, span_of
from upl_mlir.passes.analysis.at_sizes import only_a_hull, require_at
from upl_mlir.passes.analysis.effort import bounded, bounded_work
from upl_mlir.passes.analysis.proved import ASSUMED, note_assumed, require_proved
from upl_mlir.passes.analysis.relations import forgotten
from upl_mlir.passes.expand import expand
from upl_mlir.passes.loops.equations import equations
from upl_mlir.passes.loops.ir import write
from upl_mlir.passes.loops.matches import searches
from upl_mlir.passes.loops.passes import (
    LOOP_PASSES,
    AllocateArraysPass,
    ColumnFoldsPass,
    FollowCopiesPass,
    OrderLoopsPass,
    ReuseFunctionsPass,
    RunningSumsPass,
)
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.loops.transform import columns, pushed
from upl_mlir.passes.loops.tree import Leaf, Loop, leaves, subtrees
from upl_mlir.passes.pipelines import SCHEDULE
from upl_mlir.passes.predicate.drafts import COMPARED

GATHERS = ("relaxed", "ordered")


@bounded("the schedule")
def schedule(
    program: ProgramOp, *, real: str = "f64", gather: str = "relaxed", threads: int = 1,
    fixed: Mapping[str, int] | None = None, without: frozenset[str] = frozenset(),
) -> LoopProgram:  # fmt: skip
    """Schedule a checked affine program (with `adjoint of` expanded); sizes stay symbolic.

    `real` is what `real` means ("f64", "f32" or a small type, whose folds keep their order), `gather`
    whether folds keep their order ("ordered") or not ("relaxed").
    With several `threads` sums along columns stay loops over parallel ones, which the threads share.
    `fixed` are parameters that are numbers; the others stay symbols.  The passes `without` are left out.
    Raises UplError (UPL19xx) for what is not such a program.
    """
    expand(program)
    left_out = without if threads == 1 else without | {RunningSumsPass.name}
    p = _transformed(program, real, gather, fixed or {}, left_out)
    if p.compared and (found := pushed.wanted(p.scheduled, _searched(p))):
        p = _transformed(program, real, gather, fixed or {}, left_out, found)
    if threads == 1:  # then IR says all that there is
        for t in subtrees(p.scheduled):
            if isinstance(t, Loop):
                t.lag = -1
    for array in _searched(p) if p.compared else ():
        what = f"data decide which elements of `{array}` there are, and no loop but a search finds them"
        raise error("UPL1821", what, p.places.get(array), help='use engine="native", which moves tokens then')
    return p


def _searched(p: LoopProgram) -> list[str]:
    """The arrays whose elements look through summands for those with their index, and those that are added to otherwise than
    in place."""
    plain = [leaf.stmt for leaf, _ in leaves([t for t in subtrees(p.scheduled) if isinstance(t, Leaf)])]
    return [s.array for s in plain if searches(s.term, s.fields)] + pushed.apart(p)


def _transformed(
    program: ProgramOp, real: str, gather: str, fixed: Mapping[str, int], left_out: frozenset[str],
    added: pushed.Wanted | None = None,
) -> LoopProgram:  # fmt: skip
    """The program after the passes of `SCHEDULE`, but those that are left out; arrays of `added` are added to in the loop
    that reads them.  Without `follow-copies` domains are not cut at conditions on indices, and values behind sums not
    computed again, either.  Raises UplError."""
    cut = FollowCopiesPass.name not in left_out
    p = raised(program, real=real, gather=gather, fixed=fixed, split=cut, again=cut)
    tried = ""  # the last pass whose equations may have no order of loops that serves
    for step in (LOOP_PASSES[name]() for name in SCHEDULE.passes if name in LOOP_PASSES and name not in left_out):
        if added and isinstance(step, OrderLoopsPass):
            pushed.push(p.system, added)
        try:
            changed = step.step(p)
        except UplError:
            if tried and isinstance(step, OrderLoopsPass):
                return _transformed(program, real, gather, fixed, left_out | {tried}, added)
            raise
        if isinstance(step, AllocateArraysPass) and tried == ColumnFoldsPass.name and columns.kept_whole(p):
            return _transformed(program, real, gather, fixed, left_out | {tried}, added)
        if changed and isinstance(step, FollowCopiesPass | ReuseFunctionsPass | ColumnFoldsPass):
            tried = step.name
    return p


def raised(
    program: ProgramOp, *, real: str, gather: str, fixed: Mapping[str, int], split: bool = True, again: bool = True
) -> LoopProgram:
    """A program as equations, divided at conditions on indices if `split`, with values behind sums computed where they are
    read if `again`.  Raises UplError (UPL18xx)."""
    kind = Kind.of_real(real)
    ordered = gather == "ordered" or kind.format is not None
    system = equations(program, kind, ordered=ordered, fixed=fixed, split=split, again=again)
    hosts: list[Host] = []
    for op in (*inputs(program), *outputs(program)):
        output = not isinstance(op, InputOp)
        eq = system.equations.get(op.symbol)
        own, _, cases = system.hosts[op.symbol] if eq is None else (eq.kind, eq.fields, eq.domain)
        attr = op.declared or op.domain
        hosts.append(Host(op.symbol, own, op.fields, attr.data if attr else None, cases, output))
    ops = [op for op in program.body.block.ops if isinstance(op, ParamOp | ConstOp | ArrayOp)]
    assumed = program.attributes.get(ASSUMED)
    ends = endpoints(program)
    places = {n: span_of(ends[re.split("[.:]", n)[0]]) for n in (*system.hosts, *system.equations)}
    return LoopProgram(
        program.sym_name.data, [_bound(op, fixed) for op in ops], hosts, system, ordered,
        cast("ArrayAttr[Attribute] | None", assumed), places=places, small=kind if kind.format is not None else None,
        compared=COMPARED in program.attributes,
    )  # fmt: skip


def _bound(op: ParamOp | ConstOp | ArrayOp, fixed: Mapping[str, int]) -> Operation:
    """A declaration, a parameter that is a number as a constant."""
    if isinstance(op, ParamOp) and op.symbol in fixed:
        return ConstOp(op.symbol, IntegerAttr(fixed[op.symbol], i64))
    return op


def prepared(module: ModuleOp, real: str, gather: str) -> ProgramOp:
    """The program of a module, ready for `schedule`: domains inferred, `adjoint of` expanded, every count proved.

    Changes the module in place.  Raises UplError: UPL1802 for another `real` or `gather`, UPL1513 for an array without
    values, UPL13xx if the program is wrong, UPL1829 for a domain that is a hull and no proof that its instances get tokens.
    """
    Kind.of_real(real)
    if gather not in GATHERS:
        hint = did_you_mean(gather, GATHERS)
        raise error("UPL1802", f"gather={gather!r}: expected one of {', '.join(GATHERS)}", help=hint)
    program = program_of(module)
    for op in program.body.block.ops:
        if isinstance(op, ArrayOp):
            first_index(op)
    expand(program)
    open_ = require_proved(program)
    if open_ and not any(isinstance(op, ParamOp) for op in program.body.block.ops):
        require_at(program, {}, open_)  # there is one size
        open_ = ()
    ends = endpoints(program)
    for op in dict.fromkeys(ends[name] for name, _ in open_):
        if lost := forgotten(op):
            hint = 'declare its domain, or use engine="native", which counts the tokens at given sizes'
            raise only_a_hull(op, lost, "", hint)
    note_assumed(program, open_)
    return program


@dataclass(frozen=True)
class SchedulePass(ModulePass):
    """Replace a program by its loops over arrays: what is computed, when, and where it is kept (`upl_loops`).

    Requires: all domains known, `adjoint of` expanded, nothing refuted (the pass sees to these); no arrow decided by data.
    Establishes: one `upl_loops.program` with a schedule and with a place for every array, which `lower-loops` takes.
    Source: Feautrier 1991 (recurrences to loops), Allen and Kennedy 1987 (order), Bondhugula et al. 2008 (fusion).

        upl.program @scan { ... }
        ->
        upl_loops.program @scan "relaxed" { ... upl_loops.schedule { upl_loops.for "L1" from <"1"> to <"n"> { ... } } }
    """

    name = "schedule"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = prepared(op, self.real, self.gather)
        put(op, program, schedule(program, real=self.real, gather=self.gather))


@dataclass(frozen=True)
class RaiseToLoopsPass(ModulePass):
    """Replace a program by its equations: what each element of each array is (`upl_loops` without a schedule).

    Requires: all domains known, `adjoint of` expanded, nothing refuted (the pass sees to these); no arrow decided by data.
    Establishes: one `upl_loops.program` without a schedule, to which the passes on equations apply.
    Source: Feautrier 1991 (recurrences to loops).

        upl.node @U <"t,i"> <"u"> { ... upl.send @U <"t+1,i"> ... }
        ->
        upl_loops.array @U.u <"t,i"> f64 "local";  upl_loops.statement @S1 writes @U.u where <"t >= 1"> { ... }
    """

    name = "raise-to-loops"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = prepared(op, self.real, self.gather)
        with bounded_work("the schedule", program):
            raised_ = raised(program, real=self.real, gather=self.gather, fixed={})
        put(op, program, raised_)


def put(module: ModuleOp, program: ProgramOp, p: LoopProgram) -> None:
    """The program of loops in place of the program."""
    new = write(p)
    new.location = program.location
    module.body.block.insert_op_before(new, program)
    program.detach()
    program.erase()
