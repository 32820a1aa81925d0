"""Lowering to the tagged-token machine."""
