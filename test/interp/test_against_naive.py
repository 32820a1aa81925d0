"""The generated matching against a naive one that keeps a list of tokens, on random patterns and arrival orders."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from upl_mlir.engines.interp import Engine, Event

FIELDS = ("i", "j", "k")
SIZE = 2


def naive(inputs, arriving):
    """Firings by a list of stored tokens [port, index, multiplicity]; what is left at the end."""
    stored, fired = [], []
    for port, index, count in arriving:
        others = [[t for t in stored if t[0] == p] for p in range(inputs) if p != port]
        for partners in itertools.product(*others):
            if count == 0 or any(t[2] == 0 for t in partners):
                continue
            at = [{x for x in column if x is not None} for column in zip(index, *(t[1] for t in partners), strict=True)]
            if all(len(values) == 1 for values in at):
                fired.append(tuple(values.pop() for values in at))
                count -= 1
                for t in partners:
                    t[2] -= 1
        stored = [t for t in stored if t[2]]
        if count:
            stored.append([port, index, count])
    return sorted(fired), sum(1 for t in stored)


def exact(pattern):
    """How many instances of the cube a token covers."""
    return SIZE ** sum(x is None for x in pattern)


@pytest.mark.parametrize("seed", range(40))
def test_same_firings_and_nothing_left(ir, seed):
    choose = random.Random(seed)
    inputs = choose.choice([2, 3])
    while True:  # every field must be known from some input
        kept = [tuple(choose.random() < 0.6 for _ in FIELDS) for _ in range(inputs)]
        if all(any(k[f] for k in kept) for f in range(3)):
            break
    pieces, arrays, tokens = [], {}, []
    for p, keep in enumerate(kept):
        name, port = f"X{p}", f"x{p}"
        own = [f for f, k in zip(FIELDS, keep, strict=True) if k]
        index = ",".join(f if k else "*" for f, k in zip(FIELDS, keep, strict=True))
        where = " && ".join(f"0<={f}<{SIZE}" for f in own)
        count = SIZE ** (3 - len(own))
        body = f'upl.send %{name} -> @M::@{port} <"{index}"> count <"{count}"> : f64'
        pieces.append(ir.input(f"{name}<{','.join(own)}>", where, body))
        arrays[name] = np.ones((SIZE,) * len(own))
        for point in itertools.product(range(SIZE), repeat=len(own)):
            values = iter(point)
            tag = tuple(next(values) if k else None for k in keep)
            tokens.append((p, tag, exact(tag)))
    ports = ", ".join(f"x{p}" for p in range(inputs))
    pieces.append(ir.node("M<i,j,k>", ports, 'upl.send %x0 -> @R <"i,j,k"> : f64'))
    pieces.append(ir.output("R<i,j,k>", " && ".join(f"0<={f}<{SIZE}" for f in FIELDS)))
    program = ir.program(*pieces)
    for order, run in itertools.product(("fifo", "random"), range(3)):
        fired = []

        def trace(kind, node, index, value, fired=fired):
            if kind is Event.FIRE and node == "M":
                fired.append(index)

        mixed = list(tokens)
        if order == "random":
            random.Random(run).shuffle(mixed)
        expected, left = naive(inputs, mixed)
        assert (len(expected), left) == (SIZE**3, 0)
        result = Engine(program, order=order, seed=run, trace=trace).run(arrays)
        assert sorted(fired) == expected
        assert result.waiting == ()
