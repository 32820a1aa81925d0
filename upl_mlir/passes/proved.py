"""What the native engine takes for granted, proved: every ordinary input gets its one token, every gather its summands.

The interpreter finds out while it runs; loops over arrays would compute something all the same.  Nodes and arrows that
differentiation made are left out: their counts follow from those of the primal program.  That nothing waits for itself
is not asked here: the schedule shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import target_port
from upl_mlir.passes.check import Report
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.obligations import Obligation, of_arrow, of_gather, of_ordinary
from upl_mlir.passes.relations import ProgramSets

DERIVED = "upl.primal"
"""The attribute of nodes that differentiation made."""


@bounded("the proof")
def require_proved(program: ProgramOp) -> None:
    """Raise UplError (UPL13xx) if an obligation is refuted.  The domains must be known."""
    report = Report(list(_obligations(ProgramSets(program))))
    if not report.ok:
        raise UplError(*report.diagnostics())


def _obligations(sets: ProgramSets) -> Iterator[Obligation]:
    for op in sets.ends.values():
        if isinstance(op, InputOp) or DERIVED in op.attributes:
            continue
        for port in op.ports if isinstance(op, NodeOp) else (target_port(op, None),):
            of = of_gather if isinstance(op, NodeOp) and port.gather is not None else None
            yield from of(sets, op, port) if of and isinstance(op, NodeOp) else of_ordinary(sets, op, port)
    for a in sets.arrows:
        if a.send.rule is None:
            yield from of_arrow(sets, a)
