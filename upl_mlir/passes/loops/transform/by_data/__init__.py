"""Transformations of programs in which data choose elements."""
