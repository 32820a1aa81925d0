"""Malformed input: mutations of every kind of file that the tools read, and what must hold of the answer."""
