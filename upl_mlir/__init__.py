"""UPL, the graphical dataflow language, as a compiler: text to derivatives to hardware.

    import upl_mlir as upl

    p = upl.load("perceptron.upl")
    g = upl.vjp(p, of="R", wrt=["W"])
    out = upl.compile(g)(X=x, W=w, d_R=r)

Names are imported when they are first used, so that `import upl_mlir` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from upl_mlir.api import batch, checkpoint, compile, hvp, load, ragged
    from upl_mlir.diagnostics import UplError
    from upl_mlir.drawing import draw
    from upl_mlir.frontend.trace import (
        fori_loop,
        function,
        grad,
        hessian,
        jacobian,
        jvp,
        range,
        value_and_grad,
        vjp,
    )
    from upl_mlir.gradient_check import check_grads
    from upl_mlir.passes.check import Report
    from upl_mlir.program import Program

_FROM = {
    "Program": "program", "Report": "passes.check", "batch": "api", "checkpoint": "api", "compile": "api",
    "hvp": "api", "load": "api", "ragged": "api",
    "check_grads": "gradient_check", "UplError": "diagnostics", "draw": "drawing",
    # derivatives of programs and of Python functions alike
    "grad": "frontend.trace", "hessian": "frontend.trace", "jacobian": "frontend.trace", "jvp": "frontend.trace",
    "vjp": "frontend.trace",
    "fori_loop": "frontend.trace", "function": "frontend.trace", "range": "frontend.trace",
    "value_and_grad": "frontend.trace",
}  # fmt: skip

__all__ = [
    "Program", "Report", "UplError", "__version__", "batch", "check_grads", "checkpoint", "compile", "draw", "fori_loop",
    "function", "grad", "hessian", "hvp", "jacobian", "jvp", "load", "ragged", "range", "value_and_grad", "vjp",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _FROM:
        from importlib import import_module

        return getattr(import_module(f"upl_mlir.{_FROM[name]}"), name)
    raise AttributeError(f"module 'upl_mlir' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
