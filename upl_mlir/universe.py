"""xDSL's universe of this package: dialects, passes and targets by name, each imported only when it is used.

Registered under the entry point ``xdsl.universe``, so that plain ``xdsl-opt`` knows them too.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeVar, cast

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target

_T = TypeVar("_T")


def _lazy(module: str, name: str, kind: type[_T]) -> Callable[[], _T]:
    """A function that imports `name` from `module` when it is called."""
    del kind
    return lambda: cast(_T, getattr(import_module(module), name))


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    name: _lazy(f"upl_mlir.passes.{module}", cls, type[ModulePass])
    for name, module, cls in (
        ("infer-domains", "infer_domains", "InferDomainsPass"),
        ("check", "check", "CheckPass"),
        ("autodiff", "autodiff.autodiff", "AutodiffPass"),
        ("tangent", "autodiff.tangent", "TangentPass"),
        ("eliminate-dead-derivatives", "autodiff.eliminate_dead_derivatives", "EliminateDeadDerivativesPass"),
        ("simplify", "simplify", "SimplifyPass"),
        ("schedule", "schedule", "SchedulePass"),
        ("distribute", "distribute.schedule", "DistributePass"),
        ("raise-to-loops", "schedule", "RaiseToLoopsPass"),
        ("follow-copies", "loops.passes", "FollowCopiesPass"),
        ("invariant-fields", "loops.passes", "InvariantFieldsPass"),
        ("split-products", "loops.passes", "SplitProductsPass"),
        ("reuse-functions", "loops.passes", "ReuseFunctionsPass"),
        ("running-sums", "loops.passes", "RunningSumsPass"),
        ("column-folds", "loops.passes", "ColumnFoldsPass"),
        ("order-loops", "loops.passes", "OrderLoopsPass"),
        ("allocate-arrays", "loops.passes", "AllocateArraysPass"),
        ("recompute-states", "loops.passes", "RecomputeStatesPass"),
        ("tile-time", "loops.passes", "TileTimePass"),
        ("unroll-loops", "loops.passes", "UnrollLoopsPass"),
        ("forward-copies", "loops.passes", "ForwardCopiesPass"),
        ("lower-loops", "lower_to_loops", "LowerLoopsPass"),
        ("lower-linalg", "lower_to_linalg", "LowerLinalgPass"),
        ("lower-circuit", "lower_to_circuit", "LowerCircuitPass"),
        ("if-convert", "if_convert", "IfConvertPass"),
        ("batch", "batch", "BatchPass"),
        ("strip-mine", "strip_mine", "StripMinePass"),
        ("chain-gathers", "chain_gathers", "ChainGathersPass"),
        ("relay", "jacobian.relay", "RelayPass"),
        ("checkpoint", "checkpoint.checkpoint", "CheckpointPass"),
        ("lower-hw", "hardware.lower_hw", "LowerHwPass"),
    )
}
"""Our passes by name, in the order in which a program meets them."""

UPL_UNIVERSE = Universe(
    all_dialects={
        "upl": _lazy("upl_mlir.dialects.upl", "UPL", Dialect),
        "upl_loops": _lazy("upl_mlir.dialects.loops.ops", "UPL_LOOPS", Dialect),
        "ppn": _lazy("upl_mlir.dialects.ppn", "PPN", Dialect),
        "ttm": _lazy("upl_mlir.dialects.ttm", "TTM", Dialect),
    },
    all_passes=dict(PASSES),
    all_targets={
        "upl": _lazy("upl_mlir.api.targets", "UplTarget", type[Target]),
        "c": _lazy("upl_mlir.api.targets", "CTarget", type[Target]),
        "svg": _lazy("upl_mlir.api.targets", "SvgTarget", type[Target]),
        "dot": _lazy("upl_mlir.api.targets", "DotTarget", type[Target]),
        "verilog": _lazy("upl_mlir.api.targets", "VerilogTarget", type[Target]),
        "hw": _lazy("upl_mlir.api.targets", "HwTarget", type[Target]),
    },
)
"""What xDSL discovers."""
