"""Differentiation: reverse mode and forward mode, arrow by arrow, and dead derivatives."""
