"""`upl explain`: the paper's table of the perceptron's adjoint, with the arrows that it comes from."""

from __future__ import annotations

import json

import pytest


def test_the_papers_table(upl, examples):
    """Each adjoint arrow, the primal arrow under it in the paper's section IV, and the rule (docs/autodiff.md section 3)."""
    done = upl("explain", examples / "perceptron.upl", "--of", "R", "--wrt", "W,X", "--json")
    assert (done.status, done.err) == (0, "")
    table = json.loads(done.out)
    rows = {f"{r['source']} -> {r['target']}": r for r in table["arrows"]}
    comes = {
        "d_R -> DRes.d_r<d,K,i>": ("Res: if k==K: r -> R<d,i>", "", ""),
        "DRes -> DAF_ReLU.d_r<d,k-1,i>": ("AF_ReLU: b*s -> Res.r<d,k+1,i>", "k>1", ""),
        "DRes -> d_X<d,i>": ("X: X -> Res.r<d,1,i>", "k==1", ""),
        "DAF_ReLU -> DSum.d_s<d,k,i>": ("Sum: s -> AF_ReLU.s<d,k,i>", "", ""),
        "DSum -> DLink.d_s<d,k,*,i>": ("Link: r*w #N[k-1] -> Sum.s<d,k,j>", "", "#N[k-1]"),
        "DLink -> DRes.d_r<d,k,i>": ("Res: if k<K: r #N[k] -> Link.r<d,k,i,*>", "", "#N[k]"),
        "DLink -> d_W<d,k,i,j>": ("W: W -> Link.w<d,k,i,j>", "", ""),
    }
    assert {k: (r["primal"], r["condition"], r["count"]) for k, r in rows.items()} == comes
    assert rows["DSum -> DLink.d_s<d,k,*,i>"]["rule"] == "reversed arrow, gather to multicast"
    assert rows["DSum -> DLink.d_s<d,k,*,i>"]["where"].endswith("perceptron.upl:19:3")
    kept = {(k["node"], k["value"]): k["why"] for k in table["kept"]}
    assert kept == {
        ("Link", "r"): "∂(product)/∂w reads r (64 bits a token)",
        ("Link", "w"): "∂(product)/∂r reads w (64 bits a token)",
        ("AF_ReLU", "b"): "∂(product)/∂s reads b (1 bit a token)",
    }


def test_as_text_and_with_grad(upl, examples):
    done = upl("explain", examples / "perceptron.upl", "--of", "R", "--wrt", "W")
    lines = done.out.splitlines()
    assert lines[0].split() == ["derivative", "comes", "from", "rule"]
    assert any(line.startswith("DLink: if k>1: d_s*w #N[k] -> DRes.d_r<d,k,i>  Res: if k<K:") for line in lines)
    grad = upl("grad", examples / "perceptron.upl", "--of", "R", "--wrt", "W", "--explain")
    assert grad.err == done.out and grad.out == upl("grad", examples / "perceptron.upl", "--of", "R", "--wrt", "W").out


def test_a_directive_is_expanded(upl, examples):
    done = upl("explain", examples / "training.upl", "--json")
    rules = {r["rule"] for r in json.loads(done.out)["arrows"]}
    assert {"seed", "result", "reversed arrow"} <= rules


@pytest.mark.parametrize("options", [("--wrt", "W"), ("--of", "Z", "--wrt", "W")])
def test_what_is_wrong_is_said(options, upl, examples):
    done = upl("explain", examples / "perceptron.upl", *options)
    assert done.status in (1, 2) and "Traceback" not in done.err and done.out == ""
