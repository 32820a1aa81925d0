"""The native engine against its peers: the table of cases with JAX, PyTorch, numpy and hand-written C beside it.

``python -m bench.native`` in the root of the repository, or ``make bench BENCH_ARGS=native``.
"""
