"""Compiler passes over `upl` programs: one pass, one file."""
