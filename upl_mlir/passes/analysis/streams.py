"""Along which index fields a program streams: no token goes from a later value of the field to an earlier one."""

from __future__ import annotations

from collections.abc import Mapping

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import Endpoint
from upl_mlir.passes.analysis.proved import require_proved
from upl_mlir.passes.analysis.relations import ProgramSets, primed
from upl_mlir.poly.expr import Formula
from upl_mlir.poly.operators import CmpOp


def streams(program: ProgramOp) -> dict[str, dict[str, int]]:
    """The fields that a program streams along, by name: for each the number of the field in every node that has it.

    Requires: all domains known, all parameters bound. Then whoever takes the tokens of every instance in the order of that
    field never waits in vain: instances depend on none of a later value, and on none without the field that depends on one
    with it. Only for programs that are proved: an instance that never fires would be waited for.
    """
    sets = ProgramSets(program)
    if sets.ctx.params or any(sets.dynamic(a) for a in sets.arrows):
        return {}
    try:
        if require_proved(program):
            return {}  # an instance may not fire
    except UplError:
        return {}  # it will be said by others, or shows while it runs
    names = {f: None for op in sets.ends.values() if isinstance(op, NodeOp) for f in op.fields}
    return {f: _places(sets, f) for f in names if _ordered(sets, f) and not _returns(sets, f)}


def _places(sets: ProgramSets, field: str) -> dict[str, int]:
    return {
        name: op.fields.index(field)
        for name, op in sets.ends.items()
        if isinstance(op, NodeOp) and field in op.fields
    }


def _ordered(sets: ProgramSets, field: str) -> bool:
    """Whether no arrow goes back along a field."""
    for a in sets.arrows:
        if not isinstance(a.target, NodeOp) or field not in a.src or field not in a.target.fields:
            continue
        (there,) = primed((field,))
        # Source and target may name other fields alike: only the ends' own are compared.
        back = sets.relation(a).constrain(Formula.compare(there, CmpOp.LT, field))
        if not back.is_empty():
            return False
    return True


def _returns(sets: ProgramSets, field: str) -> bool:
    """Whether tokens go from nodes that have the field to such nodes through others."""
    targets: Mapping[str, list[Endpoint]] = {n: [a.target for a in sets.out_of(n)] for n in sets.ends}
    seen: set[str] = set()
    stack: list[Endpoint] = [
        t for n, op in sets.ends.items() if isinstance(op, NodeOp | InputOp) and field in op.fields for t in targets[n]
        if field not in t.fields
    ]  # fmt: skip
    while stack:
        op = stack.pop()
        if op.symbol in seen:
            continue
        seen.add(op.symbol)
        for t in targets[op.symbol]:
            if isinstance(t, NodeOp) and field in t.fields:
                return True
            stack.append(t)
    return False
