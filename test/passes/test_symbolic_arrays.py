"""Programs whose number of layers and widths are both open: `param K`, `param N[0:K-1]`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis.obligations import Status

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

NET = (INPUTS / "network.upl").read_text(encoding="utf-8")


def test_every_obligation_is_proved_for_all_depths_and_widths():
    report = upl.load(NET).check()
    assert {o.status for o in report.obligations} == {Status.PROVED} and len(report.obligations) > 15


def test_the_adjoint_is_the_papers_for_all_depths_and_widths():
    g = upl.vjp(upl.load(NET), of="R", wrt=["W"])
    assert {o.status for o in g.check().obligations} == {Status.PROVED}
    text = str(g)
    assert "node DRes<d,k,i> in 1<=d<=D, 2<=k<=K, 1<=i<=N[k-1] { in @(+) d_r[#]; d_r -> DAF.d_r<d,k-1,i> }" in text
    assert "d_s #N[k-1] -> DLink.d_s<d,k,*,i>" in text and "if k>1: d_s*w #N[k] -> DRes.d_r<d,k,i>" in text


@pytest.mark.parametrize("widths", [[2, 3, 2], [1, 4], [3, 1, 2, 2]])
def test_one_text_runs_at_any_size(widths):
    """Bound when it is loaded, printed derivative included; against numpy."""
    rng = np.random.default_rng(4)
    g = upl.load(str(upl.vjp(upl.load(NET), of="R", wrt=["X"])), K=len(widths), N=widths)
    p = upl.load(NET, K=len(widths), N=widths)
    x = rng.standard_normal((1, widths[0]))
    w = {
        (1, k + 1, i + 1, j + 1): rng.standard_normal()
        for k in range(len(widths) - 1) for i in range(widths[k]) for j in range(widths[k + 1])
    }  # fmt: skip
    seed = rng.standard_normal((1, widths[-1]))
    value, back, masks = x[0], [], []
    for k in range(len(widths) - 1):
        m = np.array([[w[1, k + 1, i + 1, j + 1] for j in range(widths[k + 1])] for i in range(widths[k])])
        value = value @ m
        back.append(m)
        masks.append(value > 0)
        value = value * masks[-1]
    np.testing.assert_allclose(upl.compile(p)(X=x, W=w, D=1)["R"][0], value, rtol=1e-14)
    delta = seed[0]
    for m, mask in zip(reversed(back), reversed(masks), strict=True):
        delta = m @ (delta * mask)
    np.testing.assert_allclose(upl.compile(g)(X=x, W=w, d_R=seed, D=1)["d_X"][0], delta, rtol=1e-13)


MISTAKES = [
    ("#N[k] -> Link.r", "#N[k-1] -> Link.r"),
    ("#N[k-1] -> Sum.s", "#N[k] -> Sum.s"),
    ("if k<K:  #N", "if k<=K:  #N"),
    ("b*s -> Res.r<d,k+1,i>", "b*s -> Res.r<d,k,i>"),
    ("1<=k<=K, 1<=i<=N[k-1] {", "1<=k<=K, 1<=i<=N[k-1]+1 {"),
    ("1<=j<=N[k] {", "1<=j<N[k] {"),
]


@pytest.mark.parametrize(("old", "new"), MISTAKES)
def test_a_mistake_is_refuted_with_depth_and_widths(old, new):
    """The witness says which depth and widths; the same program at those is refuted, too."""
    assert NET.count(old) == 1
    report = upl.load(NET.replace(old, new)).check()
    bad = next(o for o in report.obligations if o.status is Status.REFUTED)
    assert bad.witness is not None and bad.witness["K"] >= 2
    widths = {int(re.findall(r"\d+", n)[0]): v for n, v in bad.witness.items() if n.startswith("N[")}
    K = bad.witness["K"]
    bound = upl.load(NET.replace(old, new), K=K, N=[widths.get(k, 1) for k in range(K)])
    assert any(o.status is Status.REFUTED and o.kind is bad.kind for o in bound.check().obligations)


def test_an_entry_outside_proves_nothing():
    """`N[k]` at k = K does not exist: that the condition holds of it must not be taken for granted."""
    text = NET.replace("1<=k<=K, 1<=i<=N[k-1] {", "1<=k<=K, 1<=i<=N[k-1], N[k]>=1 {")
    assert not all(o.status is Status.PROVED for o in upl.load(text).check().obligations)


def test_text_and_ir_read_back():
    p = upl.load(NET)
    assert "param N[0:K-1] >= 1\n" in str(p)
    assert str(upl.load(str(p))) == str(p)


def test_ir_reads_back(tmp_path):
    p = upl.load(NET)
    path = tmp_path / "net.mlir"
    path.write_text(p.to_mlir(), encoding="utf-8")
    assert 'upl.array "N" <"0"> to <"K-1"> where <"N>=1">' in p.to_mlir() or "where" in p.to_mlir()
    assert str(upl.load(path)) == str(p)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"N": [2, 3, 2]}, "UPL1111", "`K` is a parameter"),
        ({"K": 3, "N": [2, 3]}, "UPL1512", "is given 2 values"),
        ({"K": 3, "N": [2, 0, 1]}, "UPL1512", "`N[1]` is 0, which contradicts `N>=1`"),
        ({"K": 3, "N": 4}, "UPL1512", "it takes a list"),
    ],
)
def test_wrong_values_are_refused(given, code, words):
    with pytest.raises(upl.UplError) as e:
        upl.load(NET, **given)
    assert e.value.diagnostics[0].code == code and words in e.value.diagnostics[0].message


def test_engines_ask_for_the_values():
    with pytest.raises(upl.UplError, match="UPL1513") as e:
        upl.compile(upl.load(NET))
    assert e.value.diagnostics[0].help == "give them when loading: -D N=[...]"
    with pytest.raises(upl.UplError, match="UPL1513"):
        upl.load(NET).inputs["X"].shape(D=1, K=2)


@pytest.mark.parametrize(("index", "where"), [("N[K-1]", ""), ("N[k-1]", "1<=k<=K, ")], ids=["one entry", "every entry"])
def test_an_entry_as_the_number_of_summands(index, where):
    """No entry is 0, and outside the array there is none: the gather's images alone say where it is served."""
    field = "k" if where else "d"
    where = where or "1<=d<=3, "
    p = upl.load(f"""program p
    param K >= 2
    param N[0:K-1] >= 1
    input X<{field},i> in {where}1<=i<={index} {{ -> Sum.s<{field}> }}
    output Y<{field}>
    node Sum<{field}> {{ in @(+) s[{index}]; -> Y }}
    """)
    report = p.check()
    assert {o.status for o in report.obligations} == {Status.PROVED}
    assert str(report.firings["Sum"]) == ("K" if field == "k" else "3")
    wrong = upl.load(str(p).replace(f"s[{index}]", f"s[{index}+1]"))
    assert not wrong.check().ok
