"""The rule of matching, written as naively as possible: what the RTL is compared with.

It keeps tokens in a list and tries every combination.  Indices are tuples with None for `*`; values are the 32 bits
that the RTL sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from upl_mlir.hw.matching_unit.interface import InputMode

Index = tuple[int | None, ...]

UNBOUNDED = None
"""The multiplicity that is never counted down, of a `GoldToken`."""


@dataclass(frozen=True)
class GoldToken:
    """A token: number of its node and input, index (None = `*`), 32 bits of value, multiplicity (None = unbounded).

    For a summand the multiplicity is the number of summands.
    """

    node: int
    input: int
    index: Index
    value: int
    multiplicity: int | None = 1


@dataclass(frozen=True)
class Firing:
    """One activation: the node, its full index and the value of each of its inputs."""

    node: int
    index: tuple[int, ...]
    values: tuple[int, ...]


class UndeterminedError(Exception):
    """Every input has a token, and a field of the index is open in all of them."""


class CountError(Exception):
    """The summands of one gather disagree on their number."""


def unify(left: Index, right: Index) -> Index | None:
    """The index that both allow, None if a field contradicts."""
    for a, b in zip(left, right, strict=True):
        if a is not None and b is not None and a != b:
            return None
    return tuple(b if a is None else a for a, b in zip(left, right, strict=True))


@dataclass
class _Stored:
    token: GoldToken
    left: int | None

    def use(self) -> None:
        if self.left is not None:
            self.left -= 1


@dataclass
class GoldUnit:
    """The matching unit of the language's rule.  `modes[node]` lists the mode of each input of that node."""

    modes: Sequence[Sequence[InputMode]]
    add: dict[InputMode, Callable[[int, int], int]]
    """What a gathering mode does to two values (as 32 bits)."""
    stored: list[_Stored] = field(default_factory=list[_Stored])
    sums: dict[tuple[int, int, Index], tuple[int, int, int]] = field(
        default_factory=dict[tuple[int, int, Index], tuple[int, int, int]]
    )
    """Node, input, index → number of summands, summands yet to come, sum so far."""

    def accept(self, token: GoldToken) -> list[Firing]:
        """The firings that an arriving token causes: a summand's only when the sum is complete."""
        if self.modes[token.node][token.input] is InputMode.ORDINARY:
            return self.join(token)
        total = self.gather(token)
        return [] if total is None else self.join(total)

    def gather(self, token: GoldToken) -> GoldToken | None:
        """Add a summand; the completed gather as one token of multiplicity 1 if it was the last."""
        key = (token.node, token.input, token.index)
        assert token.multiplicity is not None
        if key not in self.sums:
            self.sums[key] = (token.multiplicity, token.multiplicity - 1, token.value)
        else:
            count, left, value = self.sums[key]
            if count != token.multiplicity:
                raise CountError
            add = self.add[self.modes[token.node][token.input]]
            self.sums[key] = (count, left - 1, add(value, token.value))
        _, left, value = self.sums[key]
        if left:
            return None
        del self.sums[key]
        return replace(token, value=value, multiplicity=1)

    def join(self, token: GoldToken) -> list[Firing]:
        """Join a token with the stored ones, once; store what is left of it."""
        mine = _Stored(token, token.multiplicity)
        firings: list[Firing] = []
        for partners, index in self._combinations(token, 0, token.index):
            if mine.left == 0 or any(p.left == 0 for p in partners):
                continue
            if any(i is None for i in index):
                raise UndeterminedError
            values = [token.value] * len(self.modes[token.node])
            for used in (mine, *partners):
                values[used.token.input] = used.token.value
                used.use()
            firings.append(Firing(token.node, tuple(i for i in index if i is not None), tuple(values)))
        self.stored = [s for s in self.stored if s.left != 0]
        if mine.left != 0:
            self.stored.append(mine)
        return firings

    def follow(self, token: GoldToken, firings: Sequence[Firing]) -> None:
        """Check that the rule allows exactly these firings when a token is joined, and take them.

        Which of several partners a token meets that has not enough multiplicity for all is left open by the rule, so
        this accepts any choice.  AssertionError if a firing has no stored tokens to make it or comes twice, or if the
        token could have made another one.
        """
        mine = _Stored(token, token.multiplicity)
        choices = list(self._combinations(token, 0, token.index))
        for firing in firings:
            for number, (partners, index) in enumerate(choices):
                values = {s.token.input: s.token.value for s in (mine, *partners)}
                wanted = dict(enumerate(firing.values[: len(values)]))
                live = mine.left != 0 and all(s.left != 0 for s in partners)
                if live and firing.node == token.node and firing.index == index and values == wanted:
                    for used in (mine, *partners):
                        used.use()
                    del choices[number]
                    break
            else:
                raise AssertionError(f"{token} cannot cause {firing}")
        for partners, index in choices:
            if mine.left != 0 and all(s.left != 0 for s in partners):
                raise AssertionError(f"{token} should also have fired at {index}")
        self.stored = [s for s in self.stored if s.left != 0]
        if mine.left != 0:
            self.stored.append(mine)

    def leftovers(self) -> list[GoldToken]:
        """Stored tokens, except unbounded ones, and incomplete sums: what must not be there at the end."""
        tokens = [s.token for s in self.stored if s.left is not None]
        return tokens + [GoldToken(n, i, index, v, c) for (n, i, index), (c, _, v) in self.sums.items()]

    def _combinations(self, token: GoldToken, q: int, index: Index) -> Iterator[tuple[tuple[_Stored, ...], Index]]:
        """Every choice of one stored token for each other input from q on, with the unified index."""
        if q == len(self.modes[token.node]):
            yield (), index
            return
        if q == token.input:
            yield from self._combinations(token, q + 1, index)
            return
        for stored in self.stored:
            if (stored.token.node, stored.token.input) == (token.node, q):
                both = unify(index, stored.token.index)
                if both is not None:
                    for rest, result in self._combinations(token, q + 1, both):
                        yield (stored, *rest), result
