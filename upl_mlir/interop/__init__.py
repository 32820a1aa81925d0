"""UPL programs as functions of other systems, derivatives included: `jax.py`, `torch.py`."""
