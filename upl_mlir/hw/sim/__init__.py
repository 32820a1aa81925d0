"""Simulating a machine: one interface, Amaranth's simulator and the compiled one behind it."""
