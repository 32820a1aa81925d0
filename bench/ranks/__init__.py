"""Programs on several ranks: what is measured, the measurement, and a model of it.

``python -m bench.ranks`` in the root of the repository.
"""
