"""A distribution for people: who owns what, which read needs what of other ranks, how many bytes that is; and its proofs."""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.passes.distribute.counts import elements
from upl_mlir.passes.distribute.exchanges import Need, Placed
from upl_mlir.passes.distribute.inputs import inputs_in_blocks
from upl_mlir.passes.distribute.schedule import Distributed
from upl_mlir.passes.loops.legal import Fault, faults
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.poly.expr import IndexExpr


@dataclass(frozen=True)
class Owner:
    """An array that is cut: the owner map of isl, and the indices that are divided."""

    array: str
    map: str
    divided: str


@dataclass(frozen=True)
class Row:
    """An exchange: what a rank needs, how often, for which reads (each with its place and its kind), and the bytes that a
    rank receives in all, by the sizes and by its blocks; None if no formula was found."""

    array: str
    box: str
    each: str
    reads: tuple[tuple[str, str, str], ...]
    bytes: str | None


@dataclass(frozen=True)
class Report:
    """`whole` are the arrays that every rank computes for itself; `given_up` says which cuts failed, and why."""

    owners: tuple[Owner, ...]
    whole: tuple[str, ...]
    rows: tuple[Row, ...]
    given_up: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    """The inputs of which a rank reads its own block only, each with the field along which it is cut."""


def report(d: Distributed) -> Report:
    """The report of a distribution."""
    p = d.program
    owners: list[Owner] = []
    for name, cut in p.cuts.items():
        fields = p.system.equations[name].fields
        text = f"{{ rank -> {name}[{','.join(fields)}] : {cut.block.first} <= {cut.field} <= {cut.block.last} }}"
        owners.append(Owner(name, text, f"{cut.block.low}..{cut.block.high}"))
    whole = tuple(n for n in p.system.equations if n not in p.cuts)
    rows = tuple(_row(p, x) for x in d.exchanges)
    failed = tuple(
        f"{e.reader.array} reads {e.read.array}<{','.join(map(str, e.read.index))}>: {e.why}" for e in d.given_up
    )
    fields = {h.name: h.fields for h in p.hosts}
    inputs = tuple(f"{n} by {fields[n][at]}" for n, (at, _) in inputs_in_blocks(p).items())
    return Report(tuple(owners), whole, rows, failed, inputs)


def proofs(d: Distributed) -> list[Fault]:
    """What is wrong with a distribution: empty if every rank owns or has received what it reads."""
    return list(faults(d.program))


def _row(p: LoopProgram, x: Placed) -> Row:
    box = ", ".join(
        f"{_all('max', r.lows)}..{_all('min', r.highs)}" if r.lows != r.highs else _all("max", r.lows)
        for r in x.exchange.ranges
    )
    n = elements(p, x)
    size = p.system.equations[x.exchange.array].kind.bytes
    reads = dict.fromkeys(_read(p, n) for n in x.needs) if x.needs else {_combined(p, x.exchange.array): None}
    each = " and ".join(f"each {v}" for v in x.outer) or "once"
    return Row(x.exchange.array, f"{x.exchange.array}<{box}>", each, tuple(reads), None if n is None else str(n * size))


def _read(p: LoopProgram, n: Need) -> tuple[str, str, str]:
    """A read as text, where it stands in the program, and its kind."""
    s = n.site.leaf.stmt
    text = f"{s.array}<{','.join(s.fields)}> reads {n.read.array}<{','.join(map(str, n.read.index))}>"
    return text, str(p.places.get(s.array) or ""), n.kind


def _combined(p: LoopProgram, array: str) -> tuple[str, str, str]:
    """What combines the parts of a partial array: its operator, where it stands in the program, and the kind."""
    eq = p.system.equations[array]
    return f"{array}<{','.join(eq.fields)}> by {p.partial[array].value}", str(p.places.get(array) or ""), "partial sums"


def _all(name: str, parts: tuple[IndexExpr, ...]) -> str:
    return str(parts[0]) if len(parts) == 1 else f"{name}({','.join(map(str, parts))})"
