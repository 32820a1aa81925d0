"""`adjoint of` between inputs of nodes, in the middle of a random program: first and second order, on two engines.

What a directive gives is an array of the program: it equals what `vjp` gives outside, agrees with forward mode, is the same
natively, and has derivatives itself, which equal those of the gradient program.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np

import upl_mlir as upl
from agreement.engines import NOT_NATIVE
from agreement.properties import REFERENCE, Arrays, Broken, Case, Way, difference, host_arrays, real_ports, run_on
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import nodes

TRIES = 6
SEED, NODE, OUT = "adj_one", "AdjNode", "AdjOut"


def inside(case: Case) -> Counter[str]:
    """See above.  Where the derivative is refused (UPL14xx), that is counted."""
    p = upl.load(case.text).infer_domains()
    ports = [(op, q.name) for op in nodes(p.read()) for q in op.ports if q.gather is None and q.type.value == "real"]
    found = Counter[str]()
    rng = Random(case.seed)
    for _ in range(TRIES if len(ports) > 1 else 0):
        (f, x), (g, y) = rng.choice(ports), rng.choice(ports)
        if f is g:
            continue
        of, wrt = f"{g.symbol}.{y}", f"{f.symbol}.{x}"
        try:
            reverse, forward = upl.vjp(p, of=of, wrt=wrt), upl.jvp(p, of=of, wrt=wrt)
            q = upl.load(_with_directive(case.text, f, x, g, y))
            q.expanded()
        except upl.UplError as e:
            code = e.diagnostics[0].code
            if not code.startswith(("UPL14", "UPL12")):
                raise Broken(f"adjoint of {of} by {wrt}: {e}") from None
            found[f"refused {code}"] += 1
            continue
        here = _compared(case, p, q, reverse, forward, f"adjoint of {of} by {wrt}")
        found += here
        if here["not zero"]:
            break
    return found


def _with_directive(text: str, f: NodeOp, x: str, g: NodeOp, y: str) -> str:
    """A second block of `g` has the seed; a node at the index of `f` sends the derivative out."""
    index = f"<{','.join(f.fields)}>" if f.fields else ""
    at = f"<{','.join(f.fields)}>"
    return (
        f"{text}node {g.symbol} {{ {SEED} = 1.0 }}\noutput {OUT}{index}\n"
        f"node {NODE}{index} {{ in adj; adj -> {OUT}{at} }}\n"
        f"adjoint of {g.symbol}.{y} seed {g.symbol}.{SEED} wrt {f.symbol}.{x} -> {NODE}.adj\n"
    )


def _compared(
    case: Case, p: upl.Program, q: upl.Program, reverse: upl.Program, forward: upl.Program, what: str
) -> Counter[str]:
    found = Counter[str]({"directives": 1})
    arrays = host_arrays(p, case.params, case.seed)
    d, t = next(n for n in reverse.outputs if n.startswith("d_")), next(n for n in forward.outputs if n.startswith("t_"))
    ones = {n: np.ones(v.shape(**case.params), v.dtype) for n, v in reverse.inputs.items() if n not in arrays}
    first = run_on(q, REFERENCE, arrays, case.params)
    _same(case, run_on(reverse, REFERENCE, {**arrays, **ones}, case.params)[d], first[OUT], f"{what}: vjp and the directive")
    rng = np.random.default_rng(case.seed)
    (name,) = [n for n in forward.inputs if n not in arrays]
    move = rng.normal(size=forward.inputs[name].shape(**case.params))
    pushed = run_on(forward, REFERENCE, {**arrays, name: move}, case.params)[t]
    _same(case, np.sum(pushed, dtype=float), np.sum(first[OUT] * move, dtype=float), f"{what}: forward mode")
    try:
        got = run_on(q, Way("native", {"gather": "ordered"}), arrays, case.params)
        where = difference(first, got, exact=False)
        if where is not None:
            raise Broken(f"{what}: native: {where}")
        found["directives natively"] += 1
    except upl.UplError as e:
        if e.diagnostics[0].code not in NOT_NATIVE:
            raise
        found[f"native: refused {e.diagnostics[0].code}"] += 1
    _, ins = real_ports(p)
    if np.any(first[OUT]):
        found["not zero"] += 1
    if ins and found["not zero"]:
        found += _second(case, q, reverse, d, ins, {**arrays, **ones}, what)
    return found


def _second(
    case: Case, q: upl.Program, reverse: upl.Program, d: str, ins: list[str], arrays: Arrays, what: str
) -> Counter[str]:
    """⟨w, J v⟩ of the directive's array: reverse mode of the program that has it, forward mode of the gradient program."""
    try:
        outer, pushed = upl.vjp(q, of=OUT, wrt=ins), upl.jvp(reverse, of=d, wrt=ins)
    except upl.UplError as e:
        code = e.diagnostics[0].code
        if not code.startswith(("UPL14", "UPL1205")):
            raise Broken(f"derivative of {what}: {e}") from None
        return Counter({f"second order refused {code}": 1})
    rng = np.random.default_rng(case.seed + 1)
    moves = {f"t_{n}": rng.normal(size=arrays[n].shape) for n in ins}
    moved = run_on(pushed, REFERENCE, {**arrays, **moves}, case.params)[f"t_{d}"]
    weights = rng.normal(size=moved.shape)
    given = {f"d_{OUT}": weights} if f"d_{OUT}" in outer.inputs else {}
    host = {n: a for n, a in arrays.items() if n in outer.inputs}
    pulled = run_on(outer, REFERENCE, {**host, **given}, case.params)
    left = np.sum(moved * (weights if given else 1.0), dtype=float)
    right = sum(float(np.sum(pulled[f"d_{n}"] * moves[f"t_{n}"], dtype=float)) for n in ins)
    _same(case, left, right, f"derivative of {what}")
    return Counter({"second order": 1, "second order, not zero": int(bool(left))})


def _same(case: Case, a: Any, b: Any, what: str) -> None:
    a, b = np.asarray(a, float), np.asarray(b, float)
    wide = 2e-3 if "f32" in case.text else 1e-7
    near = wide * np.max(np.abs(a), initial=0.0) + (1e-5 if "f32" in case.text else 1e-12)
    if a.shape != b.shape or not np.allclose(a, b, rtol=wide, atol=near, equal_nan=True):
        raise Broken(f"{what}: {a.tolist()} and {b.tolist()}")
