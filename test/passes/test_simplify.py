"""`simplify`: each of its rules on a body of an adjoint node, and that no body means something else afterwards."""

from __future__ import annotations

import random
import re

import pytest
from xdsl.dialects.builtin import StringAttr

import upl_mlir as upl
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.passes.arrows import PRIMAL
from upl_mlir.passes.simplify import simplify


def program(bodies: list[str], *, adjoint: bool = True) -> upl.Program:
    """A node for each body, with the same inputs; `adjoint`: written by a pass, and simplified."""
    sends = {x: "; ".join(f"-> M{i}.{x}" for i in range(len(bodies))) for x in "abcp"}
    text = "program t\n" + "".join(f"input {x.upper()} {{ {sends[x]} }}\n" for x in "abc")
    text += f"input P: bool {{ {sends['p']} }}\n" + "".join(f"output R{i}\n" for i in range(len(bodies)))
    text += "".join(f"node M{i} {{ in a, b, c, p: bool; {body} -> R{i} }}\n" for i, body in enumerate(bodies))
    p = upl.load(text)
    if adjoint:
        for node in nodes(p.op):
            node.attributes[PRIMAL] = StringAttr("M")
        simplify(p.op)
    return p


def simplified(*bodies: str, adjoint: bool = True) -> list[str]:
    """The bodies as they are printed."""
    return re.findall(r"p: bool; (.*) -> R", str(program(list(bodies), adjoint=adjoint)))


RULES = [
    ("a*1.0", "a"),
    ("1.0*(a/1.0)", "a"),
    ("-(-a)", "a"),
    ("a*b*2.0", "2*a*b"),
    ("a*(2.0*b)", "2*a*b"),
    ("4.0*(0.5*a)", "2*a"),
    ("2.0*(0.5*a)", "a"),
    ("2.0*(3.0*a)", "6*a"),
    ("3.0*(5.0*a)", "3*(5*a)"),  # not exact: rounds twice
    ("(-a)*b", "-a*b"),
    ("a/(-b)", "-a/b"),
    ("-(2.0*a)", "-2*a"),
    ("-(a-b)", "b - a"),
    ("a+a", "2*a"),
    ("2.0*a+a", "3*a"),
    ("a+(-b)", "a - b"),
    ("(-a)+b", "b - a"),
    ("2.0*a-4.0*a", "-2*a"),
    ("4.0*a-2.0*a", "2*a"),
    ("a-a", "a - a"),  # infinity - infinity is no 0
    ("a-(-b)", "a + b"),
    ("p ? a : a", "a"),
    ("!p ? a : b", "p ? b : a"),
    ("(p ? a : 0.0)+(p ? 0.0 : b)", "p ? a : b"),
    ("(p ? 0.0 : b)+(p ? a : 0.0)", "p ? a : b"),
    ("(p ? a : 0.0)+(p ? b : 0.0)", "(p ? a : 0) + (p ? b : 0)"),
    ("p && p ? a : b", "p ? a : b"),
    ("p ? a : (p ? b : c)*c", "p ? a : c*c"),  # the first arm is an input: the second is looked at all the same
    ("p ? (p ? b : c)*c : a", "p ? b*c : a"),
    ("p ? (p ? a : b)*c : (p ? a : b)/c", "p ? a*c : b/c"),
]


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What the bodies of all rules become."""
    bodies = [body for body, _ in RULES]
    return dict(zip(bodies, simplified(*bodies), strict=True))


@pytest.mark.parametrize(("body", "expected"), RULES)
def test_a_rule(found: dict[str, str], body: str, expected: str) -> None:
    assert found[body] == expected


def test_equal_operations_are_one() -> None:
    """And what the author wrote stays as it is."""
    assert simplified("sin(a)*b + sin(a)*b") == ["2*sin(a)*b"]
    assert simplified("a*1.0 + a*1.0", adjoint=False) == ["a*1 + a*1"]


def _body(r: random.Random, depth: int) -> str:
    if depth == 0 or r.random() < 0.1:
        return r.choice(["a", "b", "c", "a", "0.0", "1.0", "2.0", "0.5", "-1.0", "3.0"])
    one, two = _body(r, depth - 1), _body(r, depth - 1)
    match r.randrange(7):
        case 0:
            return f"-({one})"
        case 1:
            return f"({r.choice(['p', '!p', 'p && p', 'p || p'])} ? {one} : {two})"
        case k:
            return f"({one} {'++-**'[k - 2]} {two})"


@pytest.mark.parametrize("seed", range(2))
def test_bodies_mean_the_same_afterwards(seed: int) -> None:
    """On dyadic numbers nothing rounds, so results are equal."""
    r = random.Random(seed)
    bodies = [_body(r, 5) for _ in range(12)]
    before, after = program(bodies, adjoint=False), program(bodies)
    runs = [upl.compile(p, engine="interp") for p in (before, after)]
    for choice in (False, True) * 2:
        given = {x: r.randint(-8, 8) / 4 for x in "ABC"}
        results = [run(**given, P=choice) for run in runs]
        for i, body in enumerate(bodies):
            assert results[0][f"R{i}"] == results[1][f"R{i}"], body


def test_what_the_author_wrote_stays() -> None:
    p = program(["a*1.0 + (b - (-b))"], adjoint=False)
    before = str(p)
    simplify(p.op)
    assert str(p) == before
