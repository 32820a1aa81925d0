"""Total derivatives: by ports that depend on each other, along all paths; and what else is held fixed.

Compared with derivatives by one port at a time (which cut nothing), with NumPy's backward pass, and with the transpose.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.frontend import graph as ad
from upl_mlir.passes.analysis.obligations import Status
from upl_mlir.tools.upl import main

CHAIN = """
program chain
input x { -> V1.v1 }
output L
node V1 { in v1; sin(v1) -> V2.v2; v1 -> V3.a }
node V2 { in v2; v2*v2 -> V3.v2 }
node V3 { in a, v2; a*v2 -> S.v3 }
node S { in v3; exp(v3) -> L }
"""
PORTS = ["V2.v2", "V3.v2", "S.v3", "V3.a"]

LAYERS = """
program layers
param K >= 2
const n = 3
input X<i> in 0<=i<n { -> R.r<0,i> }
input W<k,i,j> in 0<=k<K, 0<=i<n, 0<=j<n { -> Link.w<k,i,j> }
output Y<i>
node R<k,i> in 0<=k<=K, 0<=i<n { in r; if k<K: #n -> Link.r<k,i,*>; if k==K: -> Y<i> }
node Link<k,i,j> in 0<=k<K, 0<=i<n, 0<=j<n { in r, w; r*w #n -> Sum.s<k,j> }
node Sum<k,j> in 0<=k<K, 0<=j<n { in @(+) s[#]; tanh(s) -> R.r<k+1,j> }
"""


def one_by_one(p: upl.Program, of: str, ports: list[str], **inputs: object) -> dict[str, float]:
    """The derivative by each port alone."""
    out: dict[str, float] = {}
    for w in ports:
        name = f"d_{w.replace('.', '_')}"
        out[name] = float(upl.compile(upl.grad(p, of=of, wrt=w))(**inputs)[name])
    return out


def test_the_backward_table() -> None:
    """All of it in one program, by ports that depend on each other."""
    p = upl.load(CHAIN)
    g = upl.grad(p, of="L", wrt=PORTS, total=True)
    assert g.check().ok
    assert not g.notes
    got = upl.compile(g)(x=0.7)
    for name, value in one_by_one(p, "L", PORTS, x=0.7).items():
        assert float(got[name]) == pytest.approx(value, rel=1e-14)
        assert value != 0


def test_what_is_held_fixed_is_said() -> None:
    """Without `total`: numbers, notes, and the comment in the text."""
    g = upl.grad(upl.load(CHAIN), of="L", wrt=["V2.v2", "S.v3", "V3.a"])
    got = upl.compile(g)(x=0.7)
    assert [float(got[f"d_{n}"]) for n in ("V2_v2", "V3_a")] == [0.0, 0.0]
    assert float(got["d_S_v3"]) == pytest.approx(float(got["L"]))
    assert [n.partition(";")[0] for n in g.notes] == [
        "the derivative by `V2.v2` holds `S.v3` fixed",
        "the derivative by `V3.a` holds `S.v3` fixed",
    ]
    assert "by V2.v2, with S.v3 held fixed" in str(g)
    assert not upl.grad(upl.load(CHAIN), of="L", wrt=["V2.v2", "V3.a"]).notes  # no path from one to the other


def test_one_port_at_all_its_indices() -> None:
    """A layer's values by those of all layers: the table of NumPy's backward pass, for any depth."""
    random = np.random.default_rng(3)
    k, n = 4, 3
    x, w, d = random.normal(size=n), random.normal(size=(k, n, n)), random.normal(size=n)
    p = upl.load(LAYERS)
    g = upl.vjp(p, of="Y", wrt=["R.r", "W", "Sum.s"], total=True)
    report = g.check()
    assert report.ok
    assert not report.counts().get(Status.UNPROVED)
    states = [x]
    for layer in w:
        states.append(np.tanh(states[-1] @ layer))
    back = [d]
    for layer, after in zip(w[::-1], states[:0:-1], strict=True):
        back.append(layer @ (back[-1] * (1 - after**2)))
    got = upl.compile(g)(X=x, W=w, d_Y=d)
    np.testing.assert_allclose(got["d_R_r"], back[::-1], rtol=1e-13)
    np.testing.assert_allclose(got["d_Sum_s"][-1], d * (1 - states[-1] ** 2), rtol=1e-13)
    np.testing.assert_allclose(got["d_W"], upl.compile(upl.vjp(p, of="Y", wrt="W"))(X=x, W=w, d_Y=d)["d_W"], rtol=1e-13)
    cut = upl.vjp(p, of="Y", wrt=["R.r"])
    assert "`R.r` at other indices" in cut.notes[0]
    np.testing.assert_array_equal(upl.compile(cut)(X=x, W=w, d_Y=d)["d_R_r"][:-1], 0.0)


@pytest.mark.parametrize("total", [True, False])
def test_forward_mode_is_the_transpose(total: bool) -> None:
    """<J t, d> = <t, J^T d> for random t and d, where tangents come beside the seeds."""
    random = np.random.default_rng(8)
    k, n = 3, 3
    arrays = {"X": random.normal(size=n), "W": random.normal(size=(k, n, n))}
    p, wrt = upl.load(LAYERS), ["R.r", "Sum.s", "W"]
    forward = upl.jvp(p, of="Y", wrt=wrt, total=total)
    assert forward.check().ok
    back = upl.compile(upl.vjp(p, of="Y", wrt=wrt, total=total))
    d = random.normal(size=n)
    pulled = back(**arrays, d_Y=d)
    moves = {w.replace(".", "_"): random.normal(size=pulled[f"d_{w.replace('.', '_')}"].shape) for w in wrt}
    pushed = upl.compile(forward)(**arrays, **{f"t_{w}": t for w, t in moves.items()})["t_Y"]
    right = sum(float(np.sum(pulled[f"d_{w}"] * t)) for w, t in moves.items())
    assert float(pushed @ d) == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("total", [True, False])
def test_jacobians_are_the_same_in_both_modes(total: bool) -> None:
    """Forward mode held nothing fixed, reverse mode did."""
    p = upl.load(CHAIN)
    modes = [upl.compile(upl.jacobian(p, "L", PORTS, mode, total=total))(x=0.7) for mode in ("reverse", "forward")]
    for name in modes[0]:
        assert float(modes[0][name]) == pytest.approx(float(modes[1][name]), rel=1e-14)
    alone = one_by_one(p, "L", PORTS, x=0.7)
    assert (float(modes[0]["J_L_V2_v2"]) == pytest.approx(alone["d_V2_v2"])) is total


@pytest.mark.parametrize("gather", ["+", "max", "*"])
@pytest.mark.parametrize("count", ["[3]", "[#]"])
def test_the_tangent_by_a_gathering_input(gather: str, count: str) -> None:
    """It is one number, whatever the count: with `[3]` the twin waited for three."""
    sent = "#3 " if count == "[#]" else ""
    p = upl.load(
        f"program g\ninput X<i> in 0<=i<3 {{ {sent}-> S.s<> }}\noutput L\nnode S {{ in @({gather}) s{count}; s*s -> L }}\n"
    )
    forward = upl.jvp(p, of="L", wrt="S.s")
    assert forward.check().ok
    x = [1.5, 2.0, 3.0]
    gathered = {"+": 6.5, "max": 3.0, "*": 9.0}[gather]
    assert float(upl.compile(forward)(X=x, t_S_s=0.5)["t_L"]) == pytest.approx(gathered)
    both = upl.jvp(p, of="L", wrt=["S.s", "X"], total=True)
    assert both.check().ok
    t = np.array([0.1, -0.4, 0.3])
    inner = {"+": t.sum(), "max": t[2], "*": 9 * (t / x).sum()}[gather]
    got = float(upl.compile(both)(X=x, t_X=t, t_S_s=0.5)["t_L"])
    assert got == pytest.approx(2 * gathered * (inner + 0.5))
    back = upl.compile(upl.grad(p, of="L", wrt=["S.s", "X"], total=True))(X=x)
    assert float(back["d_S_s"]) * 0.5 + float(back["d_X"] @ t) == pytest.approx(got)


DIRECTIVE = CHAIN + """
output A
output B
node Got { in a, b; a -> A; b -> B }
adjoint of L wrt total V2.v2, S.v3 -> Got.a, Got.b
"""


def test_the_directive() -> None:
    """`wrt total` in the text, and back."""
    p = upl.load(DIRECTIVE)
    text = str(p)
    assert "wrt total V2.v2, S.v3 -> Got.a, Got.b" in text
    assert str(upl.load(text)) == text
    assert upl.load(p.to_mlir()).to_mlir() == p.to_mlir()
    assert p.check().ok
    alone = one_by_one(upl.load(CHAIN), "L", ["V2.v2", "S.v3"], x=0.7)
    for program in (p, upl.load(p.to_mlir())):
        got = upl.compile(program)(x=0.7)
        assert [float(got["A"]), float(got["B"])] == pytest.approx(list(alone.values()), rel=1e-14)
    cut = upl.compile(upl.load(DIRECTIVE.replace("wrt total", "wrt")))(x=0.7)
    assert float(cut["A"]) == 0.0


def test_a_port_may_be_called_total() -> None:
    """The word is one only before another name."""
    text = "program t\ninput total { total*total -> S.y }\noutput L\nnode S { in y; y*y -> L }\nadjoint of L wrt total\n"
    p = upl.load(text)
    assert float(upl.compile(p)(total=2.0)["d_total"]) == pytest.approx(32.0)


def test_a_total_derivative_through_its_own_result() -> None:
    """An update that is read later is a path, too: only the partial derivative exists."""
    text = """
    program t
    param T >= 1
    input w0 { -> F.w<1> }
    output E
    output W
    node F<t> in 1<=t<=T { in w; w -> U.w<t>; w*w #T -> Loss.s<> }
    node Loss { in @(+) s[#]; s -> E }
    node U<t> in 1<=t<=T { in w, d; v = w - 0.1*d; if t<T: v -> F.w<t+1>; if t==T: v -> W }
    adjoint of Loss.s wrt total F.w -> U.d
    """
    with pytest.raises(UplError, match=r"UPL1409.*goes through its own result"):
        upl.load(text).expanded()


def test_graphs_ask_once() -> None:
    """`gradients` by nodes that depend on each other is one directive, and one adjoint program."""
    x = ad.Variable("x")
    h = ad.exp_op(x)
    y = ad.sum_op(h * x)
    e = ad.Executor([y, *ad.gradients(y, [h, x])], engine="interp")
    value = np.array([0.3, -1.2])
    adjoints = re.findall(r"// adjoint of (\w+)", str(e.program({x: value})))
    assert sorted(adjoints) == sorted(set(adjoints))  # before, one set of nodes for each of `h` and `x`
    _, dh, dx = e.run({x: value})
    np.testing.assert_allclose(dh, value, rtol=1e-14)
    np.testing.assert_allclose(dx, np.exp(value) * (1 + value), rtol=1e-14)


def test_the_command(tmp_path, capsys) -> None:
    """`upl grad --total`; without it, the note is on the standard error."""
    file = tmp_path / "chain.upl"
    file.write_text(CHAIN)
    ask = ["grad", str(file), "--of", "L", "--wrt", "V2.v2,S.v3"]
    assert main(ask) == 0
    out, err = capsys.readouterr()
    assert "note: the derivative by `V2.v2` holds `S.v3` fixed; `--total` " in err
    assert main([*ask, "--total"]) == 0
    out, err = capsys.readouterr()
    assert not err
    alone = one_by_one(upl.load(CHAIN), "L", ["V2.v2"], x=0.7)
    assert float(upl.compile(upl.load(out))(x=0.7)["d_V2_v2"]) == pytest.approx(alone["d_V2_v2"])
    assert main(["explain", str(file), "--total"]) == 2
    assert "wrt total A, B" in capsys.readouterr().err
