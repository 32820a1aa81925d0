"""Exploring machines for a program: sweeps over machine descriptions, and what their figures say.

It lies above the API, not in `hw`: it loads programs, and compares with the interpreter.
"""
