"""Whether the witnesses of refuted obligations are genuine: looked up in the enumeration of the same program."""

from __future__ import annotations

from collections.abc import Mapping

from agreement import naive
from agreement.model import Program
from agreement.properties import Broken
from agreement.static import OutOfRange
from upl_mlir.passes.analysis.obligations import Kind, Obligation

MAX_SIZE = 14


def sizes(program: Program, o: Obligation) -> dict[str, int]:
    """The values of the parameters at a witness; the least ones where it does not name them."""
    return {p.name: (o.witness or {}).get(p.name, p.low) for p in program.params}


def genuine(program: Program, o: Obligation) -> bool:
    """Whether a witness is confirmed; False where the sizes are too large to enumerate.  Raises Broken if it is not one."""
    witness = o.witness or {}
    params = sizes(program, o)
    low = next((p.name for p in program.params if params[p.name] < p.low), None)
    if low is not None:
        raise Broken(f"a witness with {low} below its bound: {o.kind.name} {o.message}")
    if any(v > MAX_SIZE for v in params.values()):
        return False
    look = naive.Naive(program, params, declared=True)
    try:
        assumed = look.run()
    except (naive.TooLarge, OutOfRange):
        return False
    try:
        good = _confirmed(program, o, look, assumed, witness)
    except OutOfRange:
        return False  # beyond an array nothing is known
    if not good:
        raise Broken(f"refuted, but nothing is wrong there at {params}: {o.kind.name} {o.message}")
    return True


def _confirmed(
    program: Program, o: Obligation, look: naive.Naive, assumed: naive.Result, witness: Mapping[str, int]
) -> bool:  # fmt: skip
    end = program.end(o.message.partition("<")[0] if o.kind is Kind.ACYCLIC else o.where.partition(".")[0].split(" ")[0])
    match o.kind:
        case Kind.DOMAIN:
            at = tuple(witness[f] for f in end.fields)
            return look.declares(end, at) != look.images(assumed, end, at)
        case Kind.ACYCLIC:
            return look.waits_for_itself(assumed, end.name, tuple(witness[f] for f in end.fields))
        case _:
            return _shows(program, o, assumed, witness)


_ALIKE = ({"GATHER", "EXISTS", "COVERAGE"}, {"MULTIPLICITY", "EXISTS"})
"""A gather without its instance, a token that covers none: one mistake, two names."""


def _shows(program: Program, o: Obligation, result: naive.Result, witness: Mapping[str, int]) -> bool:
    """Whether the enumeration has a violation where the witness says."""
    kind = o.kind.name
    for v in result.violations:
        if v.kind != kind and not any({v.kind, kind} <= alike for alike in _ALIKE):
            continue
        if v.kind in ("EXISTS", "MULTIPLICITY"):
            assert v.arrow is not None
            source = program.end(v.arrow[0])
            if o.arrow is not None and f"{source.name} -> {v.where}" != o.arrow:
                continue
            names = (*source.fields, *(p.it for p in source.arrows[v.arrow[1]].loops))
        else:
            if o.arrow is None and v.where != o.where:
                continue
            names = program.end(v.where.partition(".")[0]).fields
        # a gather's witness is of both ends at once, whose names may clash
        if kind == "GATHER" or all(witness.get(n, x) == x for n, x in zip(names, v.at, strict=True)):
            return True
    return False
