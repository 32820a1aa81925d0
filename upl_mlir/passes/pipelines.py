"""The named pipelines as data: which passes run, in which order, and why in that one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pipeline:
    """A named list of passes with the reason for its order."""

    name: str
    passes: tuple[str, ...]
    reason: str


GRADIENT = Pipeline(
    "gradient",
    ("infer-domains", "autodiff", "eliminate-dead-derivatives", "simplify"),
    "autodiff works on whole domains; what nobody asked for goes before it is simplified and counted",
)
TANGENT = Pipeline("tangent", ("infer-domains", "tangent"), "a tangent copies arrows: the domains are those of the primal")
SCHEDULE = Pipeline(
    "schedule",
    (
        "raise-to-loops", "follow-copies", "invariant-fields", "split-products", "reuse-functions", "running-sums",
        "column-folds", "order-loops", "allocate-arrays", "recompute-states", "tile-time", "unroll-loops", "forward-copies",
    ),
    "what is computed is settled before when, and when before where; time is tiled in the order that stands, and loops are "
    "written out last, as the others look for whole loops",
)  # fmt: skip
PIPELINES = {p.name: p for p in (GRADIENT, TANGENT, SCHEDULE)}
"""All of them by name."""
