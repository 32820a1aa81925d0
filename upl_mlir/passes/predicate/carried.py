"""How many summands an instance waits for whose tokens carry the number (`v #3 -> G.s`, gathered by `[#]`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from upl_mlir.dialects.upl import NodeOp
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr, Select
from upl_mlir.poly.sets import PSet

Cases = list[tuple[Formula, IndexExpr]]


def carried(
    sets: ProgramSets, op: NodeOp, into: Sequence[Arrow], refused: Callable[[Arrow, str], Exception]
) -> tuple[Cases, IndexExpr]:
    """The numbers over the fields of the target: of the instances of which a condition holds, and of all others.

    Raises what `refused` makes, where a number does not follow from the index, or an instance may be told two.
    """
    found: dict[IndexExpr, PSet] = {}
    for a in into:
        m, fields = a.send.multiplicity, dict(zip(a.dst, op.fields, strict=True))
        for n, there in _chosen(m, sets.relation(a)) if isinstance(m, IndexExpr) else [(None, sets.relation(a))]:
            e = None if n is None else there.express(n, a.dst)
            if e is None:
                raise refused(a, f"the number of summands that it carries does not follow from the index of `{op.symbol}`")
            number, image = e.substitute(fields), there.project(a.dst).rename(fields)
            found[number] = found[number] | image if number in found else image
    if not found:  # no token ever comes
        return [], IndexExpr()
    *first, last = sorted(found, key=str)
    if any(not (found[n] & found[m]).is_empty() for i, n in enumerate((*first, last)) for m in first[:i]):
        raise refused(into[0], f"summands carry different numbers: {', '.join(map(str, (*first, last)))}")
    domain = sets.domain(op.symbol).as_meant()
    return [(describe(found[n].as_meant(), domain), n) for n in first], last


def _chosen(number: IndexExpr, there: PSet) -> Iterator[tuple[IndexExpr, PSet]]:
    """The numbers among which `? :` choose, each with where it is chosen.

    So arrows to one instance may say one number by different choices.
    """
    choice = next((x for x in number.atoms() if isinstance(x, Select)), None)
    if choice is None:
        yield number, there
        return
    for condition, value in ((choice.cond, choice.then), (choice.cond.negate(), choice.other)):
        part = there.constrain(condition)
        if not part.is_empty():
            yield from _chosen(number.rewrite(lambda x, value=value: value if x == choice else None), part)
