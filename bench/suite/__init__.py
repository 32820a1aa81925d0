"""Programs that nobody tuned for, natively beside JAX: python -m bench.suite"""
