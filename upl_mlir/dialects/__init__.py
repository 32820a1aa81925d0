"""The MLIR dialects of this package: `upl` (programs) and `ttm` (the tagged-token machine)."""
