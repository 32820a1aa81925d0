"""The Python API: programs, their derivatives, and callables on every engine."""
