"""The MLIR dialects of this package: `upl` (programs), `upl_loops` (schedules), `ttm` (the tagged-token machine)."""
