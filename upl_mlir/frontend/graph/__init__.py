"""Static graphs: the API of the teaching systems, in which one builds a graph of nodes first and feeds arrays later.

    from upl_mlir.frontend import graph as ad

    x1, x2 = ad.Variable("x1"), ad.Variable("x2")
    y = ad.matmul_op(x1, x2) * x1 + 1
    d1, d2 = ad.gradients(y, [x1, x2])                  # nodes again: they can be used, and differentiated
    y_value, d1_value, d2_value = ad.Executor([y, d1, d2]).run(feed_dict={x1: a, x2: b})

A graph becomes a UPL program once the shapes are known, at `run`; derivatives are those of UPL.
"""

from __future__ import annotations

from upl_mlir.frontend.graph import ops
from upl_mlir.frontend.graph.backward import find_topo_sort, gradients
from upl_mlir.frontend.graph.branches import cond_op, while_op
from upl_mlir.frontend.graph.executor import Executor
from upl_mlir.frontend.graph.functions import call_op
from upl_mlir.frontend.graph.node import Node, Op, Variable
from upl_mlir.frontend.graph.ops import (
    add_byconst_op,
    add_op,
    and_op,
    div_byconst_op,
    div_op,
    eq_byconst_op,
    eq_op,
    ge_byconst_op,
    ge_op,
    gt_byconst_op,
    gt_op,
    le_byconst_op,
    le_op,
    lt_byconst_op,
    lt_op,
    matmul_op,
    mul_byconst_op,
    mul_op,
    ne_byconst_op,
    ne_op,
    neg_op,
    not_op,
    oneslike_op,
    or_op,
    placeholder_op,
    print_op,
    rdiv_byconst_op,
    relu_op,
    rsub_byconst_op,
    stop_gradient_op,
    sub_byconst_op,
    sub_op,
    sum_op,
    transpose_op,
    where_op,
    zeroslike_op,
)

placeholder = placeholder_op
"""The name without `_op`, beside `Variable`."""


def __getattr__(name: str) -> ops.Elementwise:
    """`exp_op`, `log_op` and so on: each elementary function of UPL with one argument."""
    return getattr(ops, name)


__all__ = [
    "Executor", "Node", "Op", "Variable", "add_byconst_op", "add_op", "and_op", "call_op", "cond_op", "div_byconst_op",
    "div_op", "eq_byconst_op", "eq_op", "find_topo_sort", "ge_byconst_op", "ge_op", "gradients", "gt_byconst_op", "gt_op",
    "le_byconst_op", "le_op", "lt_byconst_op", "lt_op", "matmul_op", "mul_byconst_op", "mul_op", "ne_byconst_op",
    "ne_op", "neg_op", "not_op", "oneslike_op", "or_op", "placeholder", "placeholder_op", "print_op", "rdiv_byconst_op",
    "relu_op", "rsub_byconst_op", "stop_gradient_op", "sub_byconst_op", "sub_op", "sum_op", "transpose_op", "where_op",
    "while_op", "zeroslike_op",
]  # fmt: skip
