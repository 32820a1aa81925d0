"""A program as equations: what each element of each array is."""

from __future__ import annotations

from dataclasses import dataclass, field

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.terms import Term
from upl_mlir.poly.linear import Cons, Linear


@dataclass(eq=False)
class Equation:
    """The elements of one array: `pieces` are disjoint and each has one form."""

    name: str
    kind: Kind
    fields: tuple[str, ...]
    domain: tuple[Cons, ...]
    pieces: list[tuple[Cons, Term]] = field(default_factory=list[tuple[Cons, Term]])
    output: bool = False
    planar: bool = False
    """Whether fields of few values come first in memory, so that vectors run along the others."""


@dataclass(eq=False)
class System:
    """All equations, in the order of definition; `hosts` are the kinds, fields and domains of host inputs."""

    lin: Linear
    equations: dict[str, Equation]
    hosts: dict[str, tuple[Kind, tuple[str, ...], tuple[Cons, ...]]]
