"""Counting and enumerating: numbers of points as formulas, sums, points one by one."""
