"""Jacobians: what each mode costs, where a program is narrow, and the product of the Jacobians on both sides."""
