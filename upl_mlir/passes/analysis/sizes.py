"""How often each node of a program fires, and how many tokens it gets, at given sizes: without running the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.counts.quota import TooComplex, limited
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.sets import PSet

Figures = dict[str, int | None]


@dataclass(frozen=True)
class Sizes:
    """Firings by node, and tokens received by node and host output, as polynomials in the parameters; None where data decide
    them or no polynomial is found."""

    program: ProgramOp
    firings: dict[str, IndexExpr | None]
    tokens: dict[str, IndexExpr | None]

    @staticmethod
    def of(program: ProgramOp) -> Sizes:
        """The counts of a program whose domains are known."""
        sets = ProgramSets(program)

        def counted(s: PSet) -> IndexExpr | None:
            try:
                with limited():
                    return count(s)
            except TooComplex:
                return None

        firings: dict[str, IndexExpr | None] = {}
        tokens: dict[str, IndexExpr | None] = {}
        for name, op in sets.ends.items():
            if isinstance(op, NodeOp):
                firings[name] = None if name in sets.dynamic_nodes else counted(sets.domain(name))
            if not isinstance(op, InputOp):
                sent = [None if sets.dynamic(a) else counted(sets.tokens(a)) for a in sets.into(name)]
                known = [e for e in sent if e is not None]
                tokens[name] = sum(known, IndexExpr()) if len(known) == len(sent) else None
        return Sizes(program, firings, tokens)

    def at(self, params: Mapping[str, int]) -> tuple[Figures, Figures]:
        """Firings and tokens at these sizes."""
        context = poly_context(self.program)
        values = {**context.constants, **params}

        def figures(of: Mapping[str, IndexExpr | None]) -> Figures:
            return {n: None if e is None else e.evaluate(values, context.read) for n, e in of.items()}

        return figures(self.firings), figures(self.tokens)


def total(tokens: Mapping[str, int | None]) -> int | None:
    """The sum; None if a part is not known."""
    known = [n for n in tokens.values() if n is not None]
    return sum(known) if len(known) == len(tokens) else None
