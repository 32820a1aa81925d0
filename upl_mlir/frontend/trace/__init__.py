"""Python functions over arrays as UPL programs, and their derivatives, as in JAX.

    import numpy as np
    import upl_mlir as upl

    @upl.function
    def loss(w, x, y):
        return np.mean((np.tanh(x @ w) - y) ** 2)

    loss(w, x, y)                                    # runs as a UPL program
    upl.grad(loss)(w, x, y)                          # the derivative by w, by UPL's reverse mode
    print(upl.grad(loss).program(w, x, y))           # the program behind it

Running the function once, on arrays that know only their shapes, gives statements on tensors (`build.py`) and so a UPL
program with the positions of the Python lines.
"""

from __future__ import annotations

from upl_mlir.frontend.trace.batches import check_grads, vmap
from upl_mlir.frontend.trace.chosen import segment_max, segment_min, segment_sum
from upl_mlir.frontend.trace.functions.table import install
from upl_mlir.frontend.trace.loops import fori_loop, range, scan
from upl_mlir.frontend.trace.program import Function, function
from upl_mlir.frontend.trace.rounds import while_loop
from upl_mlir.frontend.trace.transforms import (
    grad,
    hessian,
    jacobian,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
)

install()

__all__ = [
    "Function", "check_grads", "fori_loop", "function", "grad", "hessian", "jacobian", "jvp", "range", "scan",
    "segment_max", "segment_min", "segment_sum", "stop_gradient", "value_and_grad", "vjp", "vmap", "while_loop",
]  # fmt: skip
