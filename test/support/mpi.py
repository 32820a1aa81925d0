"""Tests of the engine `mpi`, which are skipped where MPI is not installed."""

from __future__ import annotations

import importlib.util

import pytest

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="MPI is not installed: pip install 'upl-mlir[mpi]'"
)
MPI = pytest.param("mpi", marks=needs_mpi)
"""The engine, as a parameter of a test."""
