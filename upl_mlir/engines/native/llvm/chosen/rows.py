"""Whether code copies rows that data choose, and copies nothing else.

    for i { for c { Y[i,c] = if j[i] is within bounds {X[j[i],c]} else {-inf} } }

LLVM writes the loop over c as a call of `memcpy`.  A row is short, and the call takes a sixth of the time of 512 rows of 64
reals: written as vectors, the loop takes no longer than C.  Arrays that are copied or cleared whole keep the call, which
knows the machine's caches.
"""

from __future__ import annotations

from xdsl.dialects import func, memref, scf
from xdsl.ir import Operation

from upl_mlir.passes.loops.emit.bits import guards_an_element

_LOOPS = (scf.ForOp, scf.ParallelOp, scf.WhileOp)


def only_rows(function: func.FuncOp) -> bool:
    """Whether elements are chosen, and every loop that stores has another one outside."""
    chosen = any(isinstance(op, scf.IfOp) and guards_an_element(op) for op in function.walk())
    return chosen and not any(_stores(op) for op in function.body.block.ops if isinstance(op, _LOOPS))


def _stores(loop: Operation) -> bool:
    """Whether a loop without others inside stores; one over several indices is as good as several loops."""
    if isinstance(loop, scf.ParallelOp) and len(loop.lowerBound) > 1:
        return False
    inside = list(loop.walk())[1:]
    return any(isinstance(op, memref.StoreOp) for op in inside) and not any(isinstance(op, _LOOPS) for op in inside)
