"""What a lowered function assumes of the arrays that it gets, and what it makes: told to those who call it."""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.poly.expr import IndexExpr


@dataclass(frozen=True)
class Layout:
    """How the function lays out a host port: the index of element 0 and the extents, by parameters."""

    lower: tuple[IndexExpr, ...]
    shape: tuple[IndexExpr, ...]


@dataclass(frozen=True)
class Scratch:
    """An intermediate array: the size of an element, and the extents by parameters."""

    name: str
    element_bytes: int
    shape: tuple[IndexExpr, ...]
