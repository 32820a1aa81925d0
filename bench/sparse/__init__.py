"""Programs that data decide, natively, beside C by hand, scipy, JAX, numba and PyTorch: python -m bench.sparse"""
