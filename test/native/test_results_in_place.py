"""Where data choose elements: results that are made in place, and calls like the one before, right and wrong in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.schedule import schedule

# `Twice` reads what the output is a copy of.
GRAPH = """program graph
param n >= 1
param m >= 1
input To<e>: int in 0<=e<m { -> E.to }
input X<e> in 0<=e<m { -> E.x }
output Sum<v>
output Twice<v>
node E<e> in 0<=e<m { in to: int, x; x -> S.s<to> }
node S<v> in 0<=v<n { in @(+) s[##]; s -> Sum<v>; 2*s -> Twice<v> }
"""


def test_sums_are_made_where_they_are_asked_for() -> None:
    converted = upl.load(GRAPH).derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    plan = schedule(converted.op)
    assert not [n for n, a in plan.kept.items() if str(a.kind.value) != "bool"]
    to, x = np.array([0, 2, 2, 4, 0]), np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    for gather in ("relaxed", "ordered"):
        found = upl.compile(upl.load(GRAPH), engine="native", gather=gather)(To=to, X=x, n=5)  # pyright: ignore
        assert found["Sum"].tolist() == [17, 0, 6, 0, 8]
        assert found["Twice"].tolist() == [34, 0, 12, 0, 16]


# An output that is more than a copy: of each element, or of some elements.
MORE = """program more
param n >= 1
param m >= 1
input To<e>: int in 0<=e<m { -> E.to }
input X<e> in 0<=e<m { -> E.x }
input Z<v> in 0<=v<n { -> C.z }
output Sum<v>
node E<e> in 0<=e<m { in to: int, x; x -> S.s<to> }
node S<v> in 0<=v<n { in @(+) s[##]; s -> TO<v> }
node C<v> in 0<=v<n { in z; z -> AND }
"""
BOTH = "node T<v> in 0<=v<n { in @(+) t[2]; t -> Sum }\n"
MORES = {
    "of each element": (MORE.replace("TO", "T.t").replace("AND", "T.t<v>") + BOTH, [11, 20, 36]),
    "of some elements": (MORE.replace("TO", "Sum").replace("AND", "Sum<v+n>"), [1, 0, 6, 10, 20, 30]),
}


@pytest.mark.parametrize("case", MORES)
@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_what_is_more_than_a_copy_is_all_there(gather: Any, case: str) -> None:
    text, expected = MORES[case]
    given = {"To": np.array([0, 2, 2]), "X": np.array([1.0, 2.0, 4.0]), "Z": np.array([10.0, 20.0, 30.0])}
    assert upl.compile(upl.load(text), engine="native", gather=gather)(**given)["Sum"].tolist() == expected


def test_right_and_wrong_calls_in_turn() -> None:
    f = upl.compile(upl.load(GRAPH), engine="native", n=2)
    x, right, wrong = np.arange(3.0), np.array([1, 0, 1]), np.array([1, 7, 1])
    into: dict[str, Any] = {"Sum": np.zeros(2), "Twice": np.zeros(2)}
    for _ in range(3):
        for _ in range(2):
            assert f(To=right, X=x)["Sum"].tolist() == [1, 2]
            assert set(found := f(To=right, X=x, out=into)) == {"Sum", "Twice"}
            assert found["Sum"] is into["Sum"]
            assert into["Sum"].tolist() == [1, 2]
        for out in (None, into):
            with pytest.raises(upl.UplError, match="UPL1603"):
                f(To=wrong, X=x, out=out)


def test_a_result_may_be_an_input() -> None:
    f = upl.compile(upl.load(GRAPH), engine="native")
    to, both = np.array([1, 0]), np.array([3.0, 5.0])
    for _ in range(3):
        x = both.copy()
        f(To=to, X=x, n=2, out={"Sum": x})
        assert x.tolist() == [5, 3]
    with pytest.raises(upl.UplError) as e:
        x = both.copy()
        f(To=np.array([1, 2]), X=x, n=2, out={"Sum": x})
    with pytest.raises(upl.UplError) as expected:
        upl.compile(upl.load(GRAPH))(To=np.array([1, 2]), X=both, n=2)
    assert [d.message for d in e.value.diagnostics] == [d.message for d in expected.value.diagnostics]
