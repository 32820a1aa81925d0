"""Loops over elements that data choose."""
