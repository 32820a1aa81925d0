"""What lowering to loops takes for granted, proved: every ordinary input gets its one token, every gather its summands.

The interpreter finds out while it runs; loops over arrays would compute something all the same.  Nodes that a pass of ours
made in this process are left out: their counts follow from those of the program that they were made from.  Such a node
carries a mark that text cannot express (`arrows.made`): what is read from a file is proved in full.  That nothing waits for
itself is not asked here: the schedule shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import Endpoint, target_port
from upl_mlir.passes.analysis.bodies import of_bodies
from upl_mlir.passes.analysis.defined import of_values, require_values
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.obligations import Kind, Obligation, Status, of_arrow, of_domain, of_gather, of_ordinary
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.arrows import is_made
from upl_mlir.passes.check import Report

Input = tuple[str, str]
"""An input of a node, or a host output: (name, input)."""


ASSUMED = "upl.assumed"
"""The attribute of a program and of its function: inputs that are taken to get their tokens, not proved for all sizes."""


def note_assumed(program: ProgramOp, open_: Sequence[Input]) -> None:
    """Note on a program what its code will take for granted."""
    program.attributes.pop(ASSUMED, None)
    if open_:
        program.attributes[ASSUMED] = ArrayAttr([StringAttr(".".join(dict.fromkeys(at))) for at in open_])


@bounded("the proof")
def require_proved(program: ProgramOp) -> tuple[Input, ...]:
    """Raise UplError (UPL13xx) if an obligation is refuted, UPL1823 for an index that may have no value.  The domains
    must be known.

    Returns the inputs of which an obligation stays open, other than through data: `at_sizes.require_at` settles them for
    given sizes.
    """
    sets = ProgramSets(program)
    found = list(_obligations(sets))
    values = list(of_values(sets, is_made))
    report = Report([*(o for _, o in found), *values, *of_bodies(sets, is_made)])
    if not report.ok:
        raise UplError(*report.diagnostics())
    require_values(values, "native code")
    open_ = dict.fromkeys(at for at, o in found if o.status is Status.UNPROVED)
    return tuple(at for at in open_ if not any(map(sets.dynamic, sets.into(*at))))


def _obligations(sets: ProgramSets) -> Iterator[tuple[Input, Obligation]]:
    """What is to be proved, with the input that it is about."""
    for op in sets.ends.values():
        if isinstance(op, InputOp) or is_made(op):
            continue
        for port in op.ports if isinstance(op, NodeOp) else (target_port(op, None),):
            of = of_gather if isinstance(op, NodeOp) and port.gather is not None else None
            found = of(sets, op, port) if of and isinstance(op, NodeOp) else of_ordinary(sets, op, port)
            yield from (((op.symbol, port.name), o) for o in found)
        yield from (((op.symbol, p), o) for o in of_domain(sets, op) for p in _inputs(op))
    for a in sets.arrows:
        if not (is_made(a.source) or is_made(a.target)):
            yield from (((a.target.symbol, a.port.name), o) for o in of_arrow(sets, a) if o.kind is not Kind.AFFINE or
                        o.status is Status.REFUTED)  # fmt: skip


def _inputs(op: Endpoint) -> list[str]:
    return [p.name for p in op.ports] if isinstance(op, NodeOp) else [op.symbol]
