"""`check_grads`: are the derivatives of a program right, at a point, along random directions?

The meaning is that of `jax.test_util.check_grads`: forward mode against central differences, reverse mode against forward
mode through the inner product <J t, d> = <t, J^T d>, and the same for the derivative program up to the given order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.programs import Program, added, compile, jvp, vjp
from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.dialects.upl import NodeOp, UplType
from upl_mlir.dialects.upl.query import endpoints
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports

Array = NDArray[Any]


def check_grads(
    p: Program,
    of: str,
    wrt: str | Sequence[str],
    inputs: Mapping[str, Any],
    params: Mapping[str, int] | None = None,
    *,
    order: int = 1,
    modes: Sequence[str] = ("fwd", "rev"),
    seed: int = 0,
    step: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Check the derivatives of host output `of` by the host inputs `wrt` at `inputs`.

    `step` is the half-width of the central difference.  It and the tolerances follow, where they are not given, from the
    program's coarsest type of reals: where a value is f32, a difference tells two or three digits.  Raises UplError
    (UPL1410) that says which derivative is off and by how much; returns nothing if all agree.
    """
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    unknown = set(modes) - {"fwd", "rev"}
    if unknown:
        raise error("UPL1802", f"mode {sorted(unknown)[0]!r}: expected fwd or rev")
    if order < 1:
        return
    p = p.expanded()
    exactness = _SINGLE if _holds_f32(p) else _DOUBLE
    step, rtol, atol = (e if v is None else v for v, e in zip((step, rtol, atol), exactness, strict=True))
    sizes = dict(params or {})
    random = np.random.default_rng(seed)
    values = _dense(p, of, names, inputs, sizes)
    tangents = {n: random.normal(size=values[n].shape) for n in names}
    run = compile(p)
    ahead, behind = (run(**_moved(values, tangents, s * step), **sizes)[of] for s in (1.0, -1.0))
    quotient = (ahead - behind) / (2 * step)
    where = f"{of} by {', '.join(names)}"
    forward = jvp(p, of, names)
    twins = dict(zip(added(p.inputs, forward.inputs), tangents.values(), strict=True))
    (twin,) = added(p.outputs, forward.outputs)
    pushed = compile(forward)(**values, **twins, **sizes)[twin]
    if "fwd" in modes:
        _agree(f"forward mode, {where}, against a difference quotient", pushed, quotient, rtol, atol)
    if "rev" in modes:
        reverse = vjp(p, of, names)
        d = random.normal(size=pushed.shape)
        seeds = dict.fromkeys(added(p.inputs, reverse.inputs), d)
        pulled = compile(reverse)(**values, **seeds, **sizes)
        left = np.sum(quotient * d)
        found = dict(zip(names, added(p.outputs, reverse.outputs), strict=True))
        right = sum(float(np.sum(pulled[found[n]] * tangents[n])) for n in names)  # 0 outside a domain
        _agree(f"reverse mode, {where}, against a difference quotient", np.asarray(right), np.asarray(left), rtol, atol)
    if order > 1:  # the tangent is linear in t: checking it by the inputs checks second derivatives
        check_grads(
            forward, twin, names, values | twins, params, order=order - 1, modes=modes, seed=seed + 1, step=step, rtol=rtol,
            atol=atol,
        )  # fmt: skip


_DOUBLE, _SINGLE = (1e-6, 1e-5, 1e-7), (5e-3, 1e-2, 1e-3)
"""Step, relative and absolute tolerance: a step near the cube root of the type's precision errs least."""


def _holds_f32(p: Program) -> bool:
    """Whether some port or input of the program is declared to be f32."""
    ends = endpoints(p.read()).values()
    return any(UplType.F32 in ([q.type for q in op.ports] if isinstance(op, NodeOp) else [op.type]) for op in ends)


def _dense(
    p: Program, of: str, wrt: Sequence[str], inputs: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Array]:
    """The inputs as dense arrays, those of `wrt` as reals.  Raises UplError (UPL1502, UPL15xx)."""
    for name, ports, what in ((of, p.outputs, "output"), *((n, p.inputs, "input") for n in wrt)):
        if name not in ports:
            raise error("UPL1502", f"there is no {what} `{name}`", help=nearest_or_all(name, ports))
    op = p.infer_domains().read()
    bound = bind_parameters(op, inputs, sizes)
    dense = bind_arrays(op, host_ports(op, bound), inputs)
    return {n: v.astype(float) if n in wrt else v for n, v in dense.items()}


def _moved(values: Mapping[str, Array], tangents: Mapping[str, Array], by: float) -> dict[str, Array]:
    return {n: v + by * tangents[n] if n in tangents else v for n, v in values.items()}


def _agree(what: str, found: Array, expected: Array, rtol: float, atol: float) -> None:
    if not np.allclose(found, expected, rtol=rtol, atol=atol):
        worst = float(np.max(np.abs(found - expected)))
        raise error("UPL1410", f"{what}: off by {worst:.3g}, found {found!r}, expected {expected!r}")
