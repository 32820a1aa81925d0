"""Integer polynomials over atoms of any kind, in a normal form: equal polynomials have equal terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Generic, Self, TypeVar

A = TypeVar("A")


@total_ordering
@dataclass(frozen=True, init=False)
class Polynomial(Generic[A]):
    """`terms` maps monomials (sorted atoms) to nonzero coefficients.

    A subclass says what its atoms are: what can be made one (`of`), and in which order they stand (`atom_order`,
    `monomial_order`). Polynomials themselves are ordered by their texts.
    """

    terms: tuple[tuple[tuple[A, ...], int], ...] = ()

    def __init__(self, terms: tuple[tuple[tuple[A, ...], int], ...] = ()):
        self.__dict__["terms"] = terms  # most of what is made: half the time of a frozen class's own way

    @staticmethod
    def of(value: Any) -> Polynomial[A]:
        """An integer, an atom or what stands for one as a polynomial."""
        raise NotImplementedError

    @staticmethod
    def atom_order(atom: A) -> tuple[int, str]:
        """What the atoms of a monomial are sorted by."""
        raise NotImplementedError

    @staticmethod
    def monomial_order(monomial: tuple[A, ...]) -> Any:
        """What monomials are sorted by; the constant comes last."""
        raise NotImplementedError

    @classmethod
    def sum_of(cls, terms: Mapping[tuple[A, ...], int]) -> Self:
        """The sum of monomials with their coefficients."""
        kept = [(m, c) for m, c in terms.items() if c]
        return cls(tuple(sorted(kept, key=lambda t: cls.monomial_order(t[0])) if len(kept) > 1 else kept))

    def __add__(self, other: Polynomial[A] | int | str) -> Self:
        if isinstance(other, int):  # the constant is the last term
            if not other:
                return self
            rest, own = (self.terms[:-1], self.terms[-1][1]) if self.terms and not self.terms[-1][0] else (self.terms, 0)
            return type(self)((*rest, ((), own + other)) if own + other else rest)
        more = other.terms if isinstance(other, Polynomial) else self.of(other).terms
        if not more:
            return self
        out = dict(self.terms)
        for m, c in more:
            out[m] = out.get(m, 0) + c
        return self.sum_of(out)

    def __neg__(self) -> Self:
        return type(self)(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Polynomial[A] | int | str) -> Self:
        return self + (-other if isinstance(other, int | Polynomial) else -self.of(other))

    def __mul__(self, other: Polynomial[A] | int | str) -> Self:
        n = other if isinstance(other, int) else self.of(other).constant
        if n is not None:
            return self if n == 1 else type(self)(tuple((m, c * n) for m, c in self.terms) if n else ())
        out: dict[tuple[A, ...], int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in self.of(other).terms:
                m = tuple(sorted(m1 + m2, key=self.atom_order))
                out[m] = out.get(m, 0) + c1 * c2
        return self.sum_of(out)

    def __lt__(self, other: Polynomial[A]) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        found = self.__dict__.get("hash")  # a cached property takes a lock, and tens of thousands are asked for theirs
        if found is None:
            found = self.__dict__["hash"] = hash(self.terms)
        return found

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Polynomial) and self.terms == other.terms)

    @property
    def constant(self) -> int | None:
        """The value if the expression is an integer literal, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None
