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
    from upl_mlir.api import Program, Report, batch, checkpoint, compile, grad, hvp, jvp, load, vjp
    from upl_mlir.diagnostics import UplError
    from upl_mlir.gradient_check import check_grads
    from upl_mlir.host.arrays import ragged
    from upl_mlir.jacobians import hessian, jacobian

_FROM = {
    "Program": "api", "Report": "api", "batch": "api", "checkpoint": "api", "compile": "api",
    "grad": "api", "hvp": "api", "jvp": "api", "load": "api", "vjp": "api",
    "check_grads": "gradient_check", "UplError": "diagnostics", "ragged": "host.arrays",
    "hessian": "jacobians", "jacobian": "jacobians",
}  # fmt: skip

__all__ = [
    "Program", "Report", "UplError", "__version__", "batch", "check_grads", "checkpoint", "compile", "grad",
    "hessian", "hvp", "jacobian", "jvp", "load", "ragged", "vjp",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _FROM:
        from importlib import import_module

        return getattr(import_module(f"upl_mlir.{_FROM[name]}"), name)
    raise AttributeError(f"module 'upl_mlir' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
