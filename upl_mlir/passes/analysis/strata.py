"""Ranks of open gathers `@(op) s[##]` (LANGUAGE 3.3): those of least rank end first, when nothing else can happen.

That is right if every way from an open gather to an open gather raises the rank.  A rank is a tuple of numbers over the
index fields, compared from the first on.  Between groups of nodes on cycles it counts the groups with open gathers that
come before; inside a group there is a number that never falls along any arrow (a field, plus a constant), then ranks for
the arrows along which it may stay.  A field that data decide is free in an arrow's relation, so it is never such a number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from upl_mlir.dialects.upl import NodeOp, ProgramOp, RankAttr
from upl_mlir.dialects.upl.query import nodes as nodes_of
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.analysis.obligations import Kind, Obligation, Status
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.ranking import NONE, Dependence, orders

Rank = tuple[IndexExpr, ...]
Ranks = dict[int, Rank]
"""Ranks by node, over the node's fields."""


def has_open(op: NodeOp) -> bool:
    """Whether a node has an open gather."""
    return any(p.open for p in op.ports)


def stratify(sets: ProgramSets) -> None:
    """Give every node with open gathers its `rank`; none gets one where one cannot have one (which `check` says)."""
    nodes = [op for op in sets.ends.values() if isinstance(op, NodeOp)]
    for op in nodes:
        op.rank = None
    found = _Search(sets, nodes).ranks() if any(map(has_open, nodes)) else {}
    if isinstance(found, dict):
        for n, rank in found.items():
            nodes[n].rank = RankAttr(rank)


def forget_ranks(program: ProgramOp) -> None:
    """Take the ranks away, after new arrows: they are found anew when they are needed."""
    for op in nodes_of(program):
        op.rank = None


def of_strata(sets: ProgramSets) -> list[Obligation]:
    """The obligation that open gathers end in an order; none where the program has none."""
    nodes = [op for op in sets.ends.values() if isinstance(op, NodeOp)]
    open_ = [op for op in nodes if has_open(op)]
    if not open_:
        return []
    found = _Search(sets, nodes).ranks()
    if isinstance(found, dict):
        where = ", ".join(op.symbol for op in open_)
        message = "; ".join(
            f"{nodes[n].symbol} ends by the rank ({', '.join(map(str, rank))})" for n, rank in sorted(found.items())
        )
        return [Obligation(Kind.STRATA, Status.PROVED, where, message, span_of(open_[0]))]
    ring = [nodes[n].symbol for n in found]
    first = next(nodes[n] for n in found if has_open(nodes[n]))
    port = next(p for p in first.ports if p.open)
    round_ = " -> ".join([*ring, ring[0]])
    message = f"no rank tells when `{first.symbol}.{port.name}[##]` ends: round {round_} no index field always goes on"
    help_ = "a gather of an unknown number of summands ends step by step: give its node a field that each round raises"
    return [Obligation(Kind.STRATA, Status.REFUTED, round_, message, span_of(first), None, None, help_)]


class _Search:
    """The search for ranks in one program."""

    def __init__(self, sets: ProgramSets, nodes: Sequence[NodeOp]):
        self.sets, self.nodes = sets, nodes
        self.open = {n for n, op in enumerate(nodes) if has_open(op)}
        self.width = max((len(op.fields) for op in nodes), default=0)

    def ranks(self) -> Ranks | list[int]:
        """Ranks of all nodes with open gathers, of one length; where there are none, the nodes of a cycle without."""
        place = {op.symbol: n for n, op in enumerate(self.nodes)}
        arrows = [a for a in self.sets.arrows if a.source.symbol in place and a.target.symbol in place]
        edges = [(place[a.source.symbol], place[a.target.symbol]) for a in arrows]
        groups = self._groups(range(len(self.nodes)), edges)
        round_ = {n: g for g, group in enumerate(groups) for n in group if self.open.intersection(group)}
        steps = [
            Dependence(s, t, self.sets.relation(a).project((*a.src, *a.dst)), len(a.src))
            for (s, t), a in zip(edges, arrows, strict=True) if s in round_ and round_[s] == round_.get(t)
        ]  # fmt: skip
        found = self._layers(range(len(self.nodes)), edges, [s for s in steps if not s.plain.is_empty()])
        if isinstance(found, list):
            return found
        longest = max(map(len, found.values()))
        ranks = {n: (*rank, *[IndexExpr()] * (longest - len(rank))) for n, rank in found.items()}
        told = [k for k, column in enumerate(zip(*ranks.values(), strict=True)) if len(set(column)) > 1 or column[0].names]
        return {n: tuple(rank[k] for k in told or (0,)) for n, rank in ranks.items()}

    @staticmethod
    def _groups(spaces: Sequence[int], edges: Collection[tuple[int, int]]) -> list[list[int]]:
        """Strongly connected groups, each before those that it leads to."""
        after: dict[int, list[int]] = {n: [] for n in spaces}
        for source, target in edges:
            after[source].append(target)
        return components(spaces, after.__getitem__)[::-1]

    def _layers(
        self, spaces: Sequence[int], edges: Collection[tuple[int, int]], steps: Sequence[Dependence]
    ) -> Ranks | list[int]:
        """Ranks that begin with the level of a node's group: how many groups with open gathers lead to it."""
        found: Ranks = {}
        level = dict.fromkeys(spaces, 0)
        for group in self._groups(spaces, edges):
            here, more = max(level[n] for n in group), bool(self.open.intersection(group))
            for source, target in edges:
                if source in group and target not in group:
                    level[target] = max(level[target], here + more)
            ranks = self._of_group(group, [s for s in steps if s.source in group and s.target in group])
            if isinstance(ranks, list):
                return ranks
            found |= {n: (IndexExpr.of(here), *rank) for n, rank in ranks.items()}
        return found

    def _of_group(self, group: Sequence[int], steps: Sequence[Dependence]) -> Ranks | list[int]:
        """Ranks inside a group; the smallest group without, where there are none."""
        opens = self.open.intersection(group)
        if not opens or not steps:
            return dict.fromkeys(opens, ())
        edges = [(s.source, s.target) for s in steps]
        if len(self._groups(group, edges)) > 1:
            return self._layers(group, edges, steps)
        failed = list(group)
        for order in orders(self.width, steps):
            rest = self._layers(group, [(s.source, s.target) for s in order.left], order.left)
            if isinstance(rest, list):
                failed = min(failed, rest, key=len)
                continue
            return {n: (self._number(n, *order.by_space[n]), *rank) for n, rank in rest.items()}
        return failed

    def _number(self, node: int, sign: int, coordinate: int, constant: int) -> IndexExpr:
        c = IndexExpr.of(constant)
        return c if coordinate == NONE else c + IndexExpr.of(self.nodes[node].fields[coordinate]) * IndexExpr.of(sign)
