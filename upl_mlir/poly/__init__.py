"""Polyhedral mathematics with named dimensions: expressions, formulas, sets, counts.  Knows no IR."""
