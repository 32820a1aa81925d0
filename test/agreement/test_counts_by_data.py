"""Gathers of as many summands as another input says, at nodes without a declared domain: the instances are those that the
other inputs serve, also where no summand can come (LANGUAGE 3.9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis.obligations import Kind, Status

INPUTS = "input N<i>: int in 0<=i<4 { -> S.n<i> }\ninput X<k> in 0<=k<3 { X -> S.s<(k floordiv 2)*2> }\n"
X = np.array([1.0, 2, 3])
CASES = {
    "an output's domain": "node S<i> { in n: int, @(+) s[n]; s -> Y }\noutput Y<i> in 0<=i<4\n",
    "none at all": "node S<i> { in n: int, @(+) s[n]; s -> R }\nnode R<i> { in x; x -> Y }\noutput Y<i>\n",
    "the node's": "node S<i> in 0<=i<4 { in n: int, @(+) s[n]; s -> Y }\noutput Y<i>\n",
    "two gathers": "node S<i> { in n: int, @(+) s[n], @(max) t[n]; s -> Y }\noutput Y<i>\n"
    "input Z<k> in 0<=k<3 { Z -> S.t<(k floordiv 2)*2> }\n",
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ["interp", "reference", "token", "native", "rtl"])
def test_instances_without_a_summand(name: str, engine: Any) -> None:
    """They were refuted: "the token that N<1> sends to S belongs to no instance"."""
    p = upl.load("program counted\n" + INPUTS + CASES[name])
    report = p.check()
    assert report.ok
    assert [o.where for o in report.obligations if o.status is Status.UNPROVED and o.kind is Kind.GATHER][:1] == ["S.s"]
    f = upl.compile(p, engine=engine)
    more = {"Z": X} if name == "two gathers" else {}
    assert f(N=np.array([2, 0, 1, 0]), X=X, **more)["Y"].tolist() == [3, 0, 3, 0]
    for n in ([2, 1, 1, 0], [2, 0, 1, 1], [2, 0, 0, 0], [1, 0, 1, 0], [3, 0, 1, 0]):  # others than come
        with pytest.raises(upl.UplError, match=r"UPL1[67]"):
            f(N=np.array(n), X=X, **more)


def test_another_input_decides() -> None:
    text = "program counted\n" + INPUTS + "input U<k> in 0<=k<=2 { U -> S.u<k> }\n"
    text += "node S<i> { in u, n: int, @(+) s[n]; s+u -> Y }\noutput Y<i>\n"
    bad = [o for o in upl.load(text).check().obligations if o.status is Status.REFUTED]
    assert [o.kind for o in bad] == [Kind.EXISTS] and "N<3>" in bad[0].message  # of U none comes there
    p = upl.load(text.replace("0<=k<=2 { U", "0<=k<4 { U"))
    assert p.check().ok and p.infer_domains().read() is not None
    for engine in ("interp", "native"):
        y = upl.compile(p, engine=engine)(N=np.array([2, 0, 1, 0]), X=X, U=np.ones(4))["Y"]
        assert y.tolist() == [4, 1, 4, 1]


def test_a_summand_where_nothing_counts() -> None:
    """Its token has no instance: this stays refuted."""
    text = "program counted\n" + INPUTS.replace("(k floordiv 2)*2", "k+2") + CASES["none at all"]
    bad = [o for o in upl.load(text).check().obligations if o.status is Status.REFUTED]
    assert [o.kind for o in bad] == [Kind.EXISTS] and "X<2>" in bad[0].message
