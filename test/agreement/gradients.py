"""Derivatives of right programs: against dual numbers computed naively, reverse against forward, second order symmetric.

Dual numbers are to the naive evaluator what the complex step is to a function of floats: derivatives to the last bits,
without a step.  The complex step itself is not defined for the comparisons, `min` and `max` that programs are full of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import upl_mlir as upl
from agreement.properties import REFERENCE, Arrays, Broken, Case, host_arrays, real_ports, run_on

REFUSED = ("UPL14", "UPL1205", "UPL1209")
"""What may be refused: a derivative, more work on sets than a differentiation may take, a condition that is a hull there."""
Tangents = Callable[[str, list[str], Arrays, Arrays], Any]


def gradients(case: Case, tangents: Tangents | None = None) -> Counter[str]:
    """The gradient of each of the first two outputs: ⟨Jv, w⟩ = ⟨v, Jᵀw⟩, Jv from `tangents`; in every fourth case the
    Hessian is symmetric, in every sixteenth nothing is wrong with the gradient program: each takes as long as the rest."""
    p = upl.load(case.text).infer_domains()
    outs, ins = real_ports(p)
    found = Counter[str]()
    if not ins:
        return found
    arrays = host_arrays(p, case.params, case.seed, noise=case.seed % 2 == 1)
    rng = np.random.default_rng(case.seed)
    for of in outs[:2]:
        try:
            reverse = upl.vjp(p, of=of, wrt=ins)
        except upl.UplError as e:
            code = e.diagnostics[0].code
            if not code.startswith(REFUSED):
                raise Broken(f"derivative of {of}: {e}") from None
            found[f"refused {code}"] += 1
            continue
        moves = {f"t_{n}": rng.normal(size=arrays[n].shape).astype(arrays[n].dtype) for n in ins}
        shape, dtype = p.outputs[of].shape(**case.params), p.outputs[of].dtype
        given = {f"d_{of}": rng.normal(size=shape).astype(dtype)} if f"d_{of}" in reverse.inputs else {}
        weights = given.get(f"d_{of}", np.ones(shape, dtype))
        pulled = run_on(reverse, REFERENCE, {**arrays, **given}, case.params)
        if tangents is not None:
            pushed = tangents(of, ins, arrays, moves)
        else:
            pushed = run_on(upl.jvp(p, of=of, wrt=ins), REFERENCE, {**arrays, **moves}, case.params)[f"t_{of}"]
        wide = 2e-3 if "f32" in case.text else 1e-8
        terms = {n: pulled[f"d_{n}"].astype(np.float64) * moves[f"t_{n}"] for n in ins}
        _equal(pushed.astype(np.float64) * weights, list(terms.values()), wide, f"⟨J v, w⟩ of {of} by {ins}")
        found["gradients"] += 1
        if case.seed % 16 == 0:
            report = reverse.check()
            bad = [o for o in report.obligations if o.status.name == "REFUTED"]
            if bad:
                raise Broken(f"vjp of {of}: {bad[0].kind.name} {bad[0].message}\n{reverse}")
            found["gradient programs with nothing refuted"] += 1
        if case.seed % 8 in (2, 4):
            found += _second_order(case, reverse, ins[0], {**arrays, **given}, rng, wide)
    return found


def _second_order(
    case: Case, reverse: upl.Program, wrt: str, arrays: Arrays, rng: np.random.Generator, wide: float
) -> Counter[str]:
    """⟨H u, v⟩ = ⟨u, H v⟩ for the Hessian of ⟨R, w⟩ by one input: forward over reverse."""
    try:
        second = upl.jvp(reverse, of=f"d_{wrt}", wrt=wrt)
    except upl.UplError as e:
        code = e.diagnostics[0].code
        if not code.startswith(REFUSED):
            raise Broken(f"second derivative by {wrt}: {e}") from None
        return Counter({f"second order refused {code}": 1})
    u, v = (rng.normal(size=arrays[wrt].shape).astype(arrays[wrt].dtype) for _ in range(2))
    run = upl.compile(second, gather="ordered")
    hu, hv = (run(**arrays, **{f"t_{wrt}": t}, **case.params)[f"t_d_{wrt}"] for t in (u, v))
    _equal(hu.astype(np.float64) * v, [hv.astype(np.float64) * u], max(wide, 1e-7), f"⟨H u, v⟩ by {wrt}")
    found = Counter({"second order symmetric": 1})
    if np.any(hu):
        found["second order symmetric, not zero"] += 1
    return found


def _equal(left: Any, right: list[Any], wide: float, what: str) -> None:
    a, b = float(np.sum(left)), sum(float(np.sum(t)) for t in right)
    size = 1.0 + float(np.sum(np.abs(left))) + sum(float(np.sum(np.abs(t))) for t in right)
    if not (np.isfinite(a) and np.isfinite(b)):
        if np.isfinite(a) != np.isfinite(b):
            raise Broken(f"{what}: {a} and {b}")
        return
    if abs(a - b) > wide * size:
        raise Broken(f"{what}: {a} and {b}")
