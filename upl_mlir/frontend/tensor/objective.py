"""One number for several results: their elements, each times a weight that comes in from outside, added up.

The gradient of that number is the vector–Jacobian product of all results at once, with the weights as seeds.
"""

from __future__ import annotations

from dataclasses import replace

from upl_mlir.frontend.tensor.form import Apply, Expr, Read, Statement, Sum, Tensor, TensorProgram
from upl_mlir.frontend.tensor.lower import output_name
from upl_mlir.frontend.tensor.wiring import unused
from upl_mlir.poly.expr import IndexExpr


def with_objective(p: TensorProgram) -> tuple[TensorProgram, str]:
    """The program with an input ``d_R`` for each result R (by the name of its output) and one more result, named here."""
    taken = {*p.tensors}
    tensors, weights = dict(p.tensors), list[str]()
    name = unused("objective", taken)
    ranges: dict[str, tuple[int, int]] = {}
    total: Expr | None = None
    for out in p.outputs:
        t = p.tensors[out]
        weight = unused(f"d_{output_name(p, out)}", {*taken, *tensors})
        weights.append(weight)
        tensors[weight] = replace(t, name=weight)
        over = tuple(f"{out}_{i}" for i in range(len(t.shape)))
        ranges |= {i: (0, n - 1) for i, n in zip(over, t.shape, strict=True)}
        index = tuple(IndexExpr.of(i) for i in over)
        term: Expr = Apply("*", (Read(out, index), Read(weight, index)))
        term = Sum(over, term) if over else term
        total = term if total is None else Apply("+", (total, term))
    assert total is not None, "a program has results"
    tensors[name] = Tensor(name, (), p.span)
    last = Statement(name, (), total, ranges, p.span)
    inputs, outputs, statements = (*p.inputs, *weights), (*p.outputs, name), (*p.statements, last)
    return replace(p, tensors=tensors, inputs=inputs, outputs=outputs, statements=statements), name
