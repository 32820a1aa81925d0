"""The interpreter: UPL programs run token by token, through generated Python; `reference` says what is right."""

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.engines.interp.engine import MAX_FIRINGS, Engine, Event, RunResult, Stats, Trace
from upl_mlir.engines.interp.errors import WaitingToken
from upl_mlir.engines.interp.plan import GatherOrder, Order

__all__ = [
    "MAX_FIRINGS", "Engine", "Event", "GatherOrder", "Kind", "Order", "RunResult", "Stats", "Trace", "WaitingToken",
]  # fmt: skip
