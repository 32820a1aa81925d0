"""Command line tools: `upl-opt`, the compiler driver, and `upl`, the workbench."""
