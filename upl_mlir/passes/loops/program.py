"""A program on its way to loops: what is computed (equations, statements), when (the tree), and where it is kept (arrays).

The passes of this folder change it; `ir.py` writes it as the dialect `upl_loops` and reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.statements import Edge, edges
from upl_mlir.passes.loops.system import System
from upl_mlir.passes.loops.tree import Tree, leaves
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Con, Cons


@dataclass(frozen=True, eq=False)
class Host:
    """A host port: `declared` is the domain by which the host lays it out, `cases` are its elements.

    Of a piece of a port, `whole` is that port, and `at` the values that some of its fields have in the piece."""

    name: str
    kind: Kind
    fields: tuple[str, ...]
    declared: Formula | None
    cases: tuple[Cons, ...]
    output: bool
    whole: Host | None = None
    at: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Block:
    """The part of the indices ``low..high`` that belongs to one rank: ``first..last``, two parameters that have other values
    on each rank.  The blocks of all ranks together are the whole, and no two have a common index."""

    first: str
    last: str
    low: IndexExpr
    high: IndexExpr

    def holds(self, e: IndexExpr) -> Cons:
        """The constraints that an index is in the block."""
        return (Con(e - IndexExpr.of(self.first)), Con(IndexExpr.of(self.last) - e))


@dataclass(frozen=True, eq=False)
class Cut:
    """How an array is distributed: an element belongs to the rank whose `block` has its `field`.

    `whole` is the domain of all ranks together; the equation's own domain is the part of one rank."""

    field: str
    block: Block
    whole: tuple[Cons, ...]


@dataclass(eq=False)
class LoopProgram:
    """A program as loops over arrays.

    `declarations` are its parameters, constants and tables, `hosts` its inputs and outputs in text order, inputs first.
    Without a `tree` it is a system of equations; without `arrays` nothing is known of where they are kept.
    `assumed` names inputs whose numbers of tokens nobody has proved for all sizes.
    """

    name: str
    declarations: Sequence[Operation]
    hosts: Sequence[Host]
    system: System
    ordered: bool
    assumed: ArrayAttr[Attribute] | None = None
    tree: list[Tree] | None = None
    deps: list[Edge] | None = None
    arrays: dict[str, Array] | None = None
    places: Mapping[str, Span | None] = field(default_factory=dict[str, "Span | None"])
    """Where the arrays stand in the source."""
    small: Kind | None = None
    """The type of all reals, if it is a small one."""
    cuts: Mapping[str, Cut] = field(default_factory=dict[str, "Cut"])
    """Of a program for several ranks, the arrays that are cut; every rank has all elements of the others."""
    partial: Mapping[str, Gather] = field(default_factory=dict[str, Gather])
    """Of a program for several ranks, the arrays of which each rank computes a part of every element, with the operator by
    which an exchange combines the parts."""
    saved: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict[str, tuple[tuple[int, str], ...]])
    """Of a program that can be saved (`distribute/restart.py`), the loops at whose iterations that is done, by variable: the
    number of the call, and the array."""
    begun: tuple[str, ...] = ()
    """Of a program that can be saved, the parameters that say where: further bounds of these loops."""
    compared: bool = False
    """Whether each comparison of an index with data is to be more than a search (`matches`)."""

    @property
    def scheduled(self) -> list[Tree]:
        """The tree of a program that has one."""
        assert self.tree is not None
        return self.tree

    @property
    def kept(self) -> dict[str, Array]:
        """The places of a program that has them."""
        assert self.arrays is not None
        return self.arrays

    def dependences(self) -> list[Edge]:
        """Which statement needs what of which."""
        if self.deps is None:
            self.deps = edges(self.system.lin, list(dict.fromkeys(leaf.stmt for leaf, _ in leaves(self.scheduled))))
        return self.deps
