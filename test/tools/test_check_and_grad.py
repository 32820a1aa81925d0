"""`upl check` and `upl grad`: reports as text and as JSON, exit statuses, `-D`; and `--version`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from upl_mlir import __version__

Tool = Callable[..., Any]

REFUTED = """\
program refuted
param n >= 3
input A<i> in 0<=i<n { #n+1 -> M.a<i,*> }
input B<j> in 0<=j<n { #n -> M.b<*,j> }
node M<i,j> in 0<=i<n, 0<=j<n { in a, b }
"""
DYNAMIC = """\
program dynamic
input X<i> in 0<=i<3 { if X > 0: -> M.x<i> }
node M<i> { in x }
"""


def test_text(upl: Tool, examples: Path) -> None:
    """Firings by node, the totals of LANGUAGE section 5, and how much is proved."""
    done = upl("check", examples / "perceptron.upl")
    assert (done.status, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[:4] == [["Res", "29*D"], ["Link", "111*D"], ["Sum", "25*D"], ["AF_ReLU", "25*D"]]
    assert lines[4][:4] == ["firings:", "190*D", "tokens:", "305*D"]
    assert done.out.splitlines()[-1].endswith("perceptron.upl: 34 proved")


def test_numbers(upl: Tool, examples: Path) -> None:
    """With bound parameters the polynomials are numbers; constants can be replaced, arrays too."""
    done = upl("check", examples / "perceptron.upl", "-D", "D=3")
    assert "firings: 570   tokens: 915" in done.out
    done = upl("check", examples / "perceptron.upl", "-D", "K=3", "-D", "N=[64, 32, 10]", "-DD=1")
    assert done.status == 0
    assert ["Link", str(64 * 32 + 32 * 10)] in [line.split() for line in done.out.splitlines()]


def test_json(upl: Tool, examples: Path) -> None:
    """The keys that readers of the report rely on."""
    done = upl("check", examples / "perceptron.upl", "--json")
    assert (done.status, done.err) == (0, "")
    report = json.loads(done.out)
    assert report["ok"] is True
    assert {"obligations", "firings", "tokens", "field_bits", "waiting_bound"} <= report.keys()
    for o in report["obligations"]:
        assert {"kind", "status", "where", "arrow", "witness", "message"} <= o.keys()
        assert o["status"] == "proved"
    assert report["firings"] == {"Res": "29*D", "Link": "111*D", "Sum": "25*D", "AF_ReLU": "25*D"}
    assert report["field_bits"]["Link"] == {"d": None, "k": 3, "i": 3, "j": 3}
    assert (report["critical_path"], report["average_parallelism"]) == (25, "(190*D)/25")


def test_the_published_schema_is_that_of_the_report(upl: Tool, examples: Path) -> None:
    """`docs/check.schema.json` is what `--schema` prints, and what `--json` prints obeys it."""
    import msgspec

    from upl_mlir.tools.report import ReportJson

    published = (examples.parent / "docs" / "check.schema.json").read_text(encoding="utf-8")
    done = upl("check", "--schema")
    assert (done.status, done.out) == (0, published)
    text = upl("check", examples / "training.upl", "--json").out
    report = msgspec.json.decode(text, type=ReportJson)
    assert report.critical_path == "51*D+1", "with the derivatives that `adjoint of` stands for"
    assert json.loads(text).keys() == set(json.loads(published)["$defs"]["ReportJson"]["required"])


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_refuted(upl: Tool, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A refuted obligation: status 1, the arrow's position and a witness, as text on the standard error or in JSON."""
    path = tmp_path / "refuted.upl"
    path.write_text(REFUTED, encoding="utf-8")
    done = upl("check", path, *options)
    assert done.status == 1
    if not options:
        message = "multiplicity n+1 of A<0> (n=3) is 4, but its token covers 3 instances of M"
        assert f"{path}:3:24: error[UPL1304]: {message}" in done.err
        assert done.out.splitlines()[-1].startswith(f"{path}: ")
        assert done.out.splitlines()[-1].endswith(" proved, 1 refuted")
        return
    report = json.loads(done.out)
    (bad,) = [o for o in report["obligations"] if o["status"] == "refuted"]
    assert report["ok"] is False
    assert (bad["kind"], bad["where"], bad["arrow"]) == ("multiplicity", f"{path}:3:24", "A -> M.a")
    assert bad["witness"] == {"i": 0, "n": 3}


def test_unproved_is_no_error(upl: Tool, tmp_path: Path) -> None:
    """What data decide is named and not refuted."""
    path = tmp_path / "dynamic.upl"
    path.write_text(DYNAMIC, encoding="utf-8")
    done = upl("check", path)
    assert (done.status, done.err) == (0, "")
    assert f"{path}:2:24: unproved: every instance gets a token, M.x: the arrow X -> M.x depends on data" in done.out
    report = json.loads(upl("check", path, "--json").out)
    assert report["ok"] is True
    assert report["firings"] == {"M": None}
    status = {o["kind"]: o["status"] for o in report["obligations"] if o["where"].startswith(f"{path}:")}
    assert status["coverage"] == "unproved" and status["unique"] == "proved", "what may come never comes twice"


def test_mlir(upl: Tool, upl_opt: Tool, examples: Path, tmp_path: Path) -> None:
    """The same program as MLIR text gives the same report."""
    path = tmp_path / "p.mlir"
    assert upl_opt(examples / "perceptron.upl", "-o", path).status == 0
    text, mlir = upl("check", examples / "perceptron.upl"), upl("check", path)
    assert mlir.status == 0
    assert mlir.out.splitlines()[:-1] == text.out.splitlines()[:-1]


def test_grad(upl: Tool, examples: Path, tmp_path: Path) -> None:
    """`upl grad` writes a program of which `check` proves everything, with the firings of LANGUAGE section 5."""
    to = tmp_path / "g.upl"
    assert upl("grad", examples / "perceptron.upl", "--of", "R", "--wrt", "W", "-o", to).status == 0
    assert upl("grad", examples / "perceptron.upl", "--of", "R", "--wrt", "W").out == to.read_text(encoding="utf-8")
    done = upl("check", to, "-D", "D=3")
    assert done.status == 0
    assert "firings: 1128   tokens: 2508" in done.out
    lists = upl("grad", examples / "perceptron.upl", "--of", "R", "--wrt", "X,W")
    assert lists.out == upl("grad", examples / "perceptron.upl", "--of", "R", "--wrt", "X", "--wrt", "W").out
    assert "output d_X<d,i>" in lists.out


def test_grad_of_one_number(upl: Tool, scale: Path) -> None:
    """An `of` without fields takes no seed."""
    done = upl("grad", scale, "--of", "S", "--wrt", "X")
    assert done.status == 0
    assert "input d_S" not in done.out
    assert "output d_X<i> in 1<=i<=D" in done.out


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--of", "Q", "--wrt", "W"), 1, "error[UPL1401]: `of Q`: there is no port or node `Q`"),
        (("--of", "R", "--wrt", "Ww"), 1, "did you mean `W`?"),
        (("--of", "R"), 2, "the following arguments are required: --wrt"),
        (("--of", "R", "--wrt", "W", "--mode", "sideways"), 2, "invalid choice: 'sideways'"),
    ],
)
def test_grad_refuses(
    upl: Tool, examples: Path, tmp_path: Path, options: tuple[str, ...], status: int, message: str
) -> None:
    """What is wrong is said and nothing is written."""
    done = upl("grad", examples / "perceptron.upl", *options, "-o", tmp_path / "g.upl")
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert not list(tmp_path.iterdir())


def test_versions(upl: Tool, upl_opt: Tool) -> None:
    """Both tools say which version they are."""
    assert upl("--version").out == f"upl {__version__}\n"
    assert upl_opt("--version").out.startswith(f"upl-opt {__version__}, built on xDSL ")
    assert upl("--version").status == upl_opt("--version").status == 0


def test_no_command(upl: Tool) -> None:
    """Without a command: all of them, status 2."""
    done = upl()
    assert done.status == 2
    assert "usage: upl" in done.err
