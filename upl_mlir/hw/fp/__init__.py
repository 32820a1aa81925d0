"""Floating-point units in RTL, generic in the widths of exponent and mantissa, and the model they are compared with."""
