"""Ranks: what each kind proves alone, and that a cycle is never proved away."""

from __future__ import annotations

import pytest

from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.parse import parse_formula
from upl_mlir.poly.ranking import Dependence, acyclic
from upl_mlir.poly.sets import PolyContext

CTX = PolyContext(("T", "n"), parse_formula("T>=1 && n>=1"), {"L": 4}, {"next": Table(0, (0, 0, 1, 1, 3))})


def _step(source: int, target: int, dims: str, n_source: int, formula: str) -> Dependence:
    return Dependence(source, target, CTX.set(tuple(dims.split()), parse_formula(formula)), n_source)


INSIDE = "0<=t && t<=T && 0<=u && u<=T && "

PROVED = {
    "the same place": [_step(0, 0, "t i u j", 2, INSIDE + "u==t+1")],
    "falling": [_step(0, 0, "t u", 1, INSIDE + "u==t-2")],
    "a shift": [_step(0, 1, "t u", 1, INSIDE + "u==t+2"), _step(1, 0, "t u", 1, INSIDE + "u==t-1")],
    "other places": [_step(0, 1, "t i u", 2, INSIDE + "u==i"), _step(1, 0, "t i u", 1, INSIDE + "u==t+1")],
    "a space without coordinates": [
        _step(0, 0, "t u", 1, INSIDE + "u==t+1 && t floordiv 4 == u floordiv 4"),
        _step(0, 1, "t u", 1, INSIDE + "u==t"),
        _step(1, 1, "t u", 1, INSIDE + "u==t-1"),
        _step(1, 2, "t", 1, "t==4"),
        _step(2, 0, "u", 0, "u==0"),
    ],
    "segments": [
        _step(0, 0, "t u", 1, INSIDE + "u==t+1 && t floordiv 4 == u floordiv 4"),  # on in a segment,
        _step(0, 1, "t u", 1, INSIDE + "u==t"),  # over to the other node,
        _step(1, 1, "t u", 1, INSIDE + "u==t-1"),  # back in it,
        _step(1, 0, "t u", 1, INSIDE + "t mod 4==0 && u==t-4"),  # and to the start of the one before
    ],
    "segments of two": [
        _step(0, 0, "t u", 1, INSIDE + "u==t+1 && t floordiv 2 == u floordiv 2"),
        _step(0, 1, "t u", 1, INSIDE + "u==t"),
        _step(1, 1, "t u", 1, INSIDE + "u==t-1"),
        _step(1, 0, "t u", 1, INSIDE + "t mod 2==0 && u==t-2"),
    ],
    "segments, shifted by a parameter": [
        _step(0, 0, "t u", 1, "n<=t && t<=T && u==t+1 && (t-n) floordiv 3 == (u-n) floordiv 3"),
        _step(0, 1, "t u", 1, "n<=t && t<=T && u==t"),
        _step(1, 1, "t u", 1, "n<=u && t<=T && u==t-1"),
        _step(1, 0, "t u", 1, "n<=u && t<=T && (t-n) mod 3==0 && u==t-3"),
    ],
    "by the values of a table": [_step(0, 0, "t u", 1, "1<=t && t<=L && u==next[t]")],
    "nothing": [_step(0, 0, "t u", 1, "t<0 && t>0")],
}  # fmt: skip

NOT_PROVED = {
    "itself": [_step(0, 0, "t u", 1, INSIDE + "u==t")],
    "there and back": [_step(0, 1, "t u", 1, INSIDE + "u==t+1"), _step(1, 0, "t u", 1, INSIDE + "u==t-1")],
    "round": [_step(0, 0, "t u", 1, "0<=t && t<3 && u==(t+1) mod 3")],
    "to its own segment": [
        _step(0, 0, "t u", 1, INSIDE + "u==t+1 && t floordiv 4 == u floordiv 4"),
        _step(0, 1, "t u", 1, INSIDE + "u==t"),
        _step(1, 0, "t u", 1, INSIDE + "t mod 4==3 && u==t-3"),
    ],
    "a table with a fixed point": [_step(0, 0, "t u", 1, "0<=t && t<=L && u==next[t]")],
}


@pytest.mark.parametrize("name", PROVED)
def test_proved(name: str) -> None:
    """An order is found."""
    assert acyclic(2, PROVED[name])


@pytest.mark.parametrize("name", NOT_PROVED)
def test_not_proved(name: str) -> None:
    """There is a cycle."""
    assert not acyclic(2, NOT_PROVED[name])
