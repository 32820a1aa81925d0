"""Lowered modules as readable C99."""
