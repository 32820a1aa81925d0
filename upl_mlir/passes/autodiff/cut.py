"""Which forward values an adjoint node needs as tokens: a minimum vertex cut of the body's graph (AUTODIFF rule 7).

Every value of the body can be sent (cost: its bits) or recomputed from its operands; fields and constants are free.  The
cut separates the node's inputs from the values that the derivatives read.  Among cheapest cuts the one nearest to the
readers is taken, so that as little as possible is computed twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from xdsl.ir import Operation, SSAValue

from upl_mlir.passes.loops.terms import inner_first


def cheapest_cut(
    needed: Iterable[SSAValue], is_input: Callable[[SSAValue], bool], bits: Callable[[SSAValue], int]
) -> list[SSAValue]:
    """The values to send, in the order in which the body defines them; everything needed follows from them."""
    sinks = list(dict.fromkeys(needed))
    order: list[SSAValue] = []
    below: dict[SSAValue, bool] = {}

    for asked in sinks:  # `order` gets those that depend on an input at all, operands first
        for v in inner_first(asked, lambda x: () if x in below or not isinstance(x.owner, Operation) else x.owner.operands):
            if v not in below:
                below[v] = is_input(v) or (isinstance(v.owner, Operation) and any(below[o] for o in v.owner.operands))
                if below[v]:
                    order.append(v)
    sinks = [v for v in sinks if below[v]]
    if not sinks:
        return []
    # vertices (v, "in") -> (v, "out") with capacity bits(v); operand out -> result in without limit
    infinite = 1 << 60
    ends = {v: (2 * i + 2, 2 * i + 3) for i, v in enumerate(order)}
    capacity: dict[int, dict[int, int]] = {i: {} for i in range(2 * len(order) + 2)}

    def edge(a: int, b: int, c: int) -> None:
        capacity[a][b] = c
        capacity[b].setdefault(a, 0)

    source, sink = 0, 1
    for v in order:
        enter, leave = ends[v]
        edge(enter, leave, bits(v))
        if is_input(v):
            edge(source, enter, infinite)
        elif isinstance(v.owner, Operation):
            for o in v.owner.operands:
                if o in ends:
                    edge(ends[o][1], enter, infinite)
    for v in sinks:
        edge(ends[v][1], sink, infinite)
    while (path := _augmenting(capacity, source, sink)) is not None:
        flow = min(capacity[a][b] for a, b in path)
        for a, b in path:
            capacity[a][b] -= flow
            capacity[b][a] += flow
    reaches = _reaching(capacity, sink)
    return [v for v in order if ends[v][0] not in reaches and ends[v][1] in reaches]


def _augmenting(capacity: dict[int, dict[int, int]], source: int, sink: int) -> list[tuple[int, int]] | None:
    """A path with spare capacity, by breadth-first search."""
    came: dict[int, int] = {source: source}
    queue = deque([source])
    while queue and sink not in came:
        a = queue.popleft()
        for b, c in capacity[a].items():
            if c > 0 and b not in came:
                came[b] = a
                queue.append(b)
    if sink not in came:
        return None
    path: list[tuple[int, int]] = []
    at = sink
    while at != source:
        path.append((came[at], at))
        at = came[at]
    return path


def _reaching(capacity: dict[int, dict[int, int]], sink: int) -> set[int]:
    """The vertices from which the sink can still be reached."""
    seen = {sink}
    stack = [sink]
    while stack:
        b = stack.pop()
        for a, row in capacity.items():
            if a not in seen and row.get(b, 0) > 0:
                seen.add(a)
                stack.append(a)
    return seen
