"""What a lowered function assumes of the arrays that it gets, and what it makes: told to those who call it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from upl_mlir.diagnostics import Span, error
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


REACH = "upl.reach"
"""The attribute of a function with the terms of its reach, if one of them is steep."""
LIMIT = 2**63
"""What an index of 64 bits does not reach."""


@dataclass(frozen=True)
class Term:
    """A term of the polynomial, in the magnitudes of parameters, that no index of the function passes."""

    factor: int
    names: tuple[str, ...]

    @staticmethod
    def of(text: str) -> Term:
        """The term that is written so."""
        numbers, names = list[str](), list[str]()
        for part in text.split("*"):
            (numbers if part.isdigit() else names).append(part)
        return Term(math.prod(map(int, numbers)), tuple(names))

    def given(self, values: Mapping[str, int], but: Collection[str]) -> Term:
        """The term with numbers for all parameters but some."""
        factor = self.factor * math.prod(abs(values[n]) for n in self.names if n not in but)
        return Term(factor, tuple(n for n in self.names if n in but))

    @property
    def steep(self) -> bool:
        """Whether parameters of 32 bits may let it pass 64 bits."""
        return len(self.names) > 1 or self.factor >= 2**31

    def __str__(self) -> str:
        return "*".join((*([] if self.factor == 1 and self.names else [str(self.factor)]), *self.names))


def require_reach(terms: Sequence[Term], params: Mapping[str, int], at: Callable[[], Span | None]) -> None:
    """Raise UplError (UPL1826), with a position, if an index may pass 64 bits with these parameters."""
    sizes = [t.factor * math.prod(abs(params[n]) for n in t.names) for t in terms]
    if sum(sizes) < LIMIT:
        return
    worst = terms[sizes.index(max(sizes))]
    given = ", ".join(f"{n}={params[n]}" for n in dict.fromkeys(worst.names))
    what = f"native code computes indices in 64 bits, and some may reach `{worst}`" + (f" at {given}" if given else "")
    raise error("UPL1826", what, at(), help='use engine="interp" or "token"')
