"""Strongly connected components of any graph: what waits for itself, and an order for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def components(vertices: Sequence[T], successors: Callable[[T], Iterable[T]]) -> list[list[T]]:
    """Strongly connected components (Tarjan's algorithm, without recursion); a component comes after its successors."""
    index: dict[T, int] = {}
    low: dict[T, int] = {}
    on: set[T] = set()
    stack: list[T] = []
    out: list[list[T]] = []
    for root in vertices:
        if root in index:
            continue
        work: list[tuple[T, Iterator[T]]] = [(root, iter(list(successors(root))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            v, rest = work[-1]
            for w in rest:
                if w not in index:
                    index[w] = low[w] = len(index)
                    stack.append(w)
                    on.add(w)
                    work.append((w, iter(list(successors(w)))))
                    break
                if w in on:
                    low[v] = min(low[v], index[w])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[v])
                if low[v] == index[v]:
                    group: list[T] = []
                    while True:
                        w = stack.pop()
                        on.discard(w)
                        group.append(w)
                        if w == v:
                            break
                    out.append(group[::-1])
    return out
