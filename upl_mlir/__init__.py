"""UPL, the graphical dataflow language, as a compiler: text to derivatives to hardware.

    import upl_mlir as upl

    p = upl.load("perceptron.upl")
    g = upl.vjp(p, of="R", wrt=["W"])
    out = upl.compile(g)(X=x, W=w, d_R=r)

Names are imported when they are first used, so that `import upl_mlir` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from upl_mlir.api.drawing import draw
    from upl_mlir.api.program import Program
    from upl_mlir.api.programs import batch, checkpoint, compile, hvp, load, ragged
    from upl_mlir.api.quantize import quantize
    from upl_mlir.diagnostics import UplError
    from upl_mlir.frontend.jaxpr.imported import from_jax
    from upl_mlir.frontend.trace import (
        check_grads,
        fori_loop,
        function,
        grad,
        hessian,
        jacobian,
        jvp,
        range,
        scan,
        segment_max,
        segment_min,
        segment_sum,
        stop_gradient,
        value_and_grad,
        vjp,
        vmap,
        while_loop,
    )
    from upl_mlir.observe.notebook import view
    from upl_mlir.passes.check import Report

_FROM = {
    "Program": "api.program", "Report": "passes.check", "UplError": "diagnostics",
    "draw": "api.drawing", "quantize": "api.quantize",
    **dict.fromkeys(("batch", "checkpoint", "compile", "hvp", "load", "ragged"), "api.programs"),
    # derivatives of programs and of Python functions alike
    **dict.fromkeys(("check_grads", "grad", "hessian", "jacobian", "jvp", "vjp"), "frontend.trace"),
    **dict.fromkeys(("fori_loop", "function", "range", "scan", "stop_gradient"), "frontend.trace"),
    **dict.fromkeys(("segment_max", "segment_min", "segment_sum"), "frontend.trace"),
    **dict.fromkeys(("value_and_grad", "vmap", "while_loop"), "frontend.trace"),
    "from_jax": "frontend.jaxpr.imported",
    **dict.fromkeys(("load_ipython_extension", "view"), "observe.notebook"),
}  # fmt: skip

__all__ = [
    "Program", "Report", "UplError", "__version__", "batch", "check_grads", "checkpoint", "compile", "draw", "fori_loop",
    "from_jax", "function", "grad", "hessian", "hvp", "jacobian", "jvp", "load", "quantize", "ragged", "range", "scan",
    "segment_max", "segment_min", "segment_sum", "stop_gradient", "value_and_grad", "view", "vjp", "vmap", "while_loop",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _FROM:
        from importlib import import_module

        return getattr(import_module(f"upl_mlir.{_FROM[name]}"), name)
    raise AttributeError(f"module 'upl_mlir' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
