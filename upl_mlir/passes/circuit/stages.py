"""At which stage of an instance each operation begins, where its value matters, and what is read when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from upl_mlir.passes.circuit.body import Node, latency
from upl_mlir.passes.circuit.process import Process
from upl_mlir.poly.expr import FALSE, Formula, IndexExpr


@dataclass(frozen=True, eq=False)
class Site:
    """A read: of the array `array` at `index`, at a stage, where `when` holds.

    Of a process's array, `written` is the stage at which an instance of it has the value that is read; `own` if it is that
    of the reading process.  Without an `index` it is the running sum of the instance before.
    """

    node: Node
    array: str
    index: tuple[IndexExpr, ...]
    stage: int
    when: Formula
    written: int | None = None
    own: bool = False

    @property
    def running(self) -> bool:
        """Whether it is the running sum that is read."""
        return self.node.kind == "previous"


@dataclass(frozen=True, eq=False)
class Stages:
    """`start`: the stage at which a node takes its operands (a read: at which it is needed first); `result`: that of the
    result."""

    start: Mapping[Node, int]
    result: int
    units: Mapping[str, int]

    def end(self, node: Node) -> int:
        """The stage at which a node's value is there."""
        return self.start[node] + latency(node, self.units)


def stages(p: Process, units: Mapping[str, int]) -> Stages:
    """All operations as late as the result allows."""
    ready: dict[Node, int] = {}
    for node in p.body.nodes:
        ready[node] = max((ready[a] for a in node.args), default=0) + latency(node, units)
    result = ready[p.body.result]
    start: dict[Node, int] = {}
    wanted = {p.body.result: result}
    for node in reversed(p.body.nodes):
        start[node] = wanted[node] - latency(node, units)
        for a in node.args:
            wanted[a] = min(wanted.get(a, result), start[node])
    return Stages(start, result, units)


def last_summand(p: Process) -> Formula:
    """Where a running sum is complete."""
    dims = {d.name: d for d in p.dims}
    return Formula.all(Formula.compare(s, "==", dims[s].low + dims[s].extent - 1) for s in p.sums)


def matters(p: Process) -> dict[Node, Formula]:
    """Where the value of each node has an influence on the result.

    Of a running sum each summand has one where the sum has: not in elements that another piece of the array computes.
    """
    wanted = {p.body.result: p.domain & last_summand(p)}
    if p.body.total is not None:
        summed = _matters(p, {p.body.result: p.domain})[p.body.total]
        wanted[p.body.total] = wanted.get(p.body.total, FALSE) | summed
    return _matters(p, wanted)


def _matters(p: Process, wanted: Mapping[Node, Formula]) -> dict[Node, Formula]:
    """Where the value of each node has an influence on those that are wanted, where they are."""
    out: dict[Node, Formula] = {**dict.fromkeys(p.body.nodes, FALSE), **wanted}
    for node in reversed(p.body.nodes):
        here = out[node]
        for n, a in enumerate(node.args):
            where = here
            if node.kind == "select":
                earlier = Formula.all(w.negate() for w in node.when[:n])
                where = here & node.when[n] & earlier if n < len(node.args) - 1 else here & earlier
            elif node.kind == "sum" and a.kind == "previous":
                where = here & node.when[0].negate()
            out[a] = out[a] | where
    return out


def sites(p: Process, at: Stages, written: Mapping[str, int]) -> list[Site]:
    """All reads; `written` is the stage at which each process has its result, by array.

    What comes from outside of the process is read once for all that use it; elements of its own array once for each stage,
    as a delay more or less costs nothing there.
    """
    where = matters(p)
    used: dict[Node, list[Node]] = {}
    for node in p.body.nodes:
        for a in node.args:
            used.setdefault(a, []).append(node)
    out: list[Site] = []
    for node in p.body.nodes:
        if node.kind == "previous":
            assert p.body.total is not None
            out.append(Site(node, p.name, (), at.start[node], where[node], at.end(p.body.total), own=True))
        elif node.kind == "read" and node.array == p.name:
            begins = {at.start[n] for n in used.get(node, ())} or {at.start[node]}
            out += [Site(node, p.name, node.index, s, where[node], at.result, own=True) for s in sorted(begins)]
        elif node.kind == "read":
            out.append(Site(node, node.array, node.index, at.start[node], where[node], written.get(node.array)))
    return out
