# ruff: noqa: E501  (one case, one line)
"""Programs with an error: code, position and words of the message, and of the help where there is one."""

from __future__ import annotations

import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.frontend.upl_text.load import load_text

HEAD = """param D >= 1
const K = 3
const eta = 0.5
const N[0:K] = [1, 2, 3, 4]
input X<d,i> in 1<=d<=D, 1<=i<=N[0] { -> A.x<d,i> }
output R<d>
output C<d>: int
node B<d> { in @(+) s[#], b: bool; 1.0 -> R }
"""
FIRST = HEAD.count("\n") + 1  # the line on which a case begins

# (what is tested, the text after HEAD, code, line within the text, column, part of the message, part of the help)
CASES = [
    ("duplicate node and const", "node K<d> { in x }", "UPL1102", 1, 6, "already a constant", None),
    ("duplicate output", "output R<d>", "UPL1102", 1, 8, "`R` is declared twice", None),
    ("output like a node", "output B<d>", "UPL1102", 1, 8, "already a node", None),
    ("field twice", "node A<d,d> { in x }", "UPL1102", 1, 10, "`d` is declared twice", None),
    ("field like a constant", "node A<K> { in x }", "UPL1102", 1, 8, "already a constant", None),
    ("input like a field", "node A<d,i> { in d }", "UPL1102", 1, 18, "already an index field", None),
    ("input twice", "node A<d,i> { in x, x }", "UPL1102", 1, 21, "declared twice", None),
    ("inputs that disagree", "node A<d,i> { in x }\nnode A { in x: int }", "UPL1102", 2, 13, "differently", None),
    ("fields that disagree", "node A<d,i> { in x }\nnode A<i> { }", "UPL1102", 2, 6, "<d,i>, here <i>", "leave them out"),
    ("domains that disagree", "node A<d,i> in d>1 { in x }\nnode A in d>2 { }", "UPL1102", 2, 6, "d>1", None),
    ("unknown name", "node A<d,i> { in x; y = x*ets }", "UPL1103", 1, 27, "unknown name `ets`", "`eta`"),
    ("unknown function", "node A<d,i> { in x; y = sgrt(x) }", "UPL1103", 1, 25, "unknown function", "`sqrt`"),
    ("used before assigned", "node A<d,i> { in x; y = z; z = x }", "UPL1103", 1, 25, "before it is assigned", "move"),
    ("node as a value", "node A<d,i> { in x; y = B }", "UPL1103", 1, 25, "`B` is a node", None),
    ("iterator in a value", "node A<d,i> { in x; a*x -> B.s<d> for a in 0..1 }", "UPL1103", 1, 21, "iterator `a`", "for … if"),
    ("iterator in a condition", "node A<d,i> { in x; if a>0: x -> B.s<d> for a in 0..1 }", "UPL1103", 1, 24, "iterator", "for … if"),
    ("unknown target", "node A<d,i> { in x; x -> BB.s<d> }", "UPL1104", 1, 26, "unknown node", "`B`"),
    ("unknown input", "node A<d,i> { in x; x -> B.bb<d> }", "UPL1104", 1, 28, "no input `bb`", "`B.b`"),
    ("constant as target", "node A<d,i> { in x; x -> K<d> }", "UPL1104", 1, 26, "a constant", None),
    ("input as target", "node A<d,i> { in x; x -> X<d,i> }", "UPL1104", 1, 26, "nothing can be sent", None),
    ("member of an output", "node A<d,i> { in x; x -> R.r<d> }", "UPL1104", 1, 28, "no inputs of its own", "`R`"),
    ("too few indices", "node A<d,i> { in x; x -> B.s<d,i> }", "UPL1105", 1, 26, "B has 1 index field <d>, the arrow gives 2", None),
    ("star to a gather", "node A<d,i> { in x; x -> B.s<*> }", "UPL1105", 1, 26, "carries no `*`", "for d"),
    ("default star to an output", "node A<d,i> { in x }\nnode E { in x; x -> R }", "UPL1105", 2, 21, "has no field `d`", None),
    ("real to int", "node A<d,i> { in x; x -> C<d> }", "UPL1106", 1, 21, "is an integer, this value is real", "int(…)"),
    ("real to bool", "node A<d,i> { in x; x -> B.b<d> }", "UPL1106", 1, 21, "a truth value", "x != 0"),
    ("operator", "node A<d,i> { in @(-) x[1]; x -> R<d> }", "UPL1103", 1, 20, "unknown gather operator `-`", "`+`, `*`, `min`"),
    ("not of a real", "node A<d,i> { in x; b = !x }", "UPL1106", 1, 26, "truth value", "x != 0"),
    ("real condition", "node A<d,i> { in x; if x: x -> R<d> }", "UPL1106", 1, 24, "a condition", None),
    ("integer condition", "node A<d,i> { in x; if d: x -> R<d> }", "UPL1106", 1, 24, "expected a condition", None),
    ("floordiv of a real", "node A<d,i> { in x; y = x floordiv 2 }", "UPL1106", 1, 25, "takes integers", "floor(a/b)"),
    ("arity", "node A<d,i> { in x; y = max(x) }", "UPL1106", 1, 25, "two or more", None),
    ("bool()", "node A<d,i> { in x; y = bool(x) }", "UPL1106", 1, 25, "no conversion to bool", None),
    ("array as a value", "node A<d,i> { in x; y = x*N }", "UPL1106", 1, 27, "constant array", "`N[…]`"),
    ("input as an array", "node A<d,i> { in x; y = x[1] }", "UPL1106", 1, 25, "not a constant array", "scalars"),
    ("gather of bools", "node A<d,i> { in x, @(+) p[2]: bool }", "UPL1106", 1, 21, "gathers numbers", "&&"),
    ("gather by && of reals", "node A<d,i> { in x, @(&&) p[2] }", "UPL1106", 1, 21, "gathers truth values", ": bool"),
    ("unbounded gather", "node A<d,i> { in x; x ## -> B.s<d> }", "UPL1106", 1, 23, "counts its summands", None),
    ("no default value", "node A<d,i> { in x, y; -> R<d> }", "UPL1107", 1, 24, "inputs `x`, `y`", "`x -> …`"),
    ("two default values", "node A<d,i> { in x; s = x; -> B.s<d> }", "UPL1107", 1, 28, "variable `s` and input `x`", None),
    ("no default input", "node A<d,i> { in x; x -> B<d> }", "UPL1107", 1, 26, "2 inputs: which one?", "`B.s` or `B.b`"),
    ("real in an index", "node A<d,i> { in x; x -> B.s<d+x> }", "UPL1108", 1, 32, "`x` is real", ": int"),
    ("real constant in an index", "node A<d,i> { in x; x -> B.s<eta> }", "UPL1108", 1, 30, "`eta` is real", None),
    ("unknown name in an index", "node A<d,i> { in x; x -> B.s<dd> }", "UPL1108", 1, 30, "unknown name `dd`", "`d`"),
    ("division in an index", "node A<d,i> { in x; x -> B.s<d/2> }", "UPL1108", 1, 30, "`/`", "floordiv"),
    ("divisor zero", "node A<d,i> { in x; x -> B.s<d mod 0> }", "UPL1108", 1, 36, "divisor of `mod` is 0", None),
    ("data in a bound", "node A<d,i> { in x, n: int; x -> B.s<d> for a in 0..n }", "UPL1108", 1, 53, "input `n`", None),
    ("unknown name in a domain", "node A<d,i> in d<=M { in x }", "UPL1108", 1, 19, "unknown name `M`", None),
    ("input in a domain", "node A<d,i> in 0<=d<x { in x }", "UPL1108", 1, 21, "`x`", "index fields"),
    ("count by an expression of inputs", "node A<d,i> { in n: int, @(+) x[n+1] }", "UPL1108", 1, 33, "`n`", "name of one"),
    ("multiplicity 0", "node A<d,i> { in x; x #0 -> R<d> }", "UPL1108", 1, 24, "at least 1", "guard"),
    ("assignment to an input", "node A<d,i> { in x; x = 1 }", "UPL1109", 1, 21, "cannot assign to input `x`", None),
    ("assignment to a field", "node A<d,i> { in x; d = 1 }", "UPL1109", 1, 21, "index field `d`", None),
    ("assignment to a constant", "node A<d,i> { in x; K = 1 }", "UPL1109", 1, 21, "constant `K`", None),
    ("assigned twice", "node A<d,i> { in x; y = x }\nnode A { y = 2 }", "UPL1109", 2, 10, "assigned twice", None),
    ("iterator like a field", "node A<d,i> { in x; x -> B.s<d> for i in 0..1 }", "UPL1102", 1, 37, "an iterator cannot be called `i`", None),
    ("adjoint of an unknown port", "node A<d,i> { in x }\nadjoint of RR wrt A.x", "UPL1110", 2, 12, "unknown", "`R`"),
    ("adjoint of an input", "node A<d,i> { in x }\nadjoint of X wrt A.x", "UPL1110", 2, 12, "not a host input", None),
    ("adjoint wrt an output", "node A<d,i> { in x }\nadjoint of R wrt R", "UPL1110", 2, 18, "not a host output", None),
    ("adjoint of integers", "node A<d,i> { in x }\nadjoint of C wrt X", "UPL1110", 2, 12, "derivatives are", None),
    ("seed that is an input", "node A<d,i> { in x }\nadjoint of A.x seed A.x wrt X", "UPL1110", 2, 23, "no variable", "an input"),
    ("targets that do not match", "node A<d,i> { in x }\nadjoint of R wrt X -> B.s", "UPL1110", 2, 23, "has the index <d>", None),
    ("two for one", "node A<d,i> { in x }\nadjoint of R wrt X -> A.x, A.x", "UPL1110", 2, 23, "1 derivatives and 2", None),
    ("array too short", "const M[0:2] = [1, 2]\nnode A<d,i> { in x }", "UPL1111", 1, 1, "3 entries, 2 values", "both bounds"),
    ("constant outside", "const m = N[9]\nnode A<d,i> { in x }", "UPL1111", 1, 13, "`N[9]` is outside", None),
    ("constant of a parameter", "const m = 2*D\nnode A<d,i> { in x }", "UPL1111", 1, 13, "parameter", "-D D=VALUE"),
    ("constant too large", "const m = 2**64\nnode A<d,i> { in x }", "UPL1111", 1, 11, "64 bits", None),
    ("constant used before", "const aa = bb\nconst bb = 1\nnode A<d,i> { in x }", "UPL1111", 1, 12, "declared later", None),
    ("constant bool", "const a = true\nnode A<d,i> { in x }", "UPL1106", 1, 11, "truth value", None),
    ("node without inputs", "node A<d,i> { in x }\nnode E<d> { }", "UPL1112", 2, 6, "no inputs", "in x"),
]  # fmt: skip


PARAMETERS = ("text", "code", "line", "col", "message", "help")


@pytest.mark.parametrize(PARAMETERS, [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_error(text: str, code: str, line: int, col: int, message: str, help: str | None) -> None:
    with pytest.raises(UplError) as caught:
        load_text(HEAD + text + "\n", "e.upl")
    found = [d for d in caught.value.diagnostics if not (d.span and d.span.line < FIRST)]  # A may not be there
    assert len(found) == 1, str(caught.value)
    (d,) = found
    assert (d.code, d.span and (d.span.line - FIRST + 1, d.span.col)) == (code, (line, col)), str(caught.value)
    assert message in d.message
    assert (help is None) or (d.help is not None and help in d.help), d.help


def test_the_error_shows_its_line() -> None:
    with pytest.raises(UplError) as caught:
        load_text("input X { -> A.y }\nnode A { in x }\n", "e.upl")
    text = str(caught.value)
    assert text.startswith("e.upl:1:16: error[UPL1104]: node `A` has no input `y`\n 1 | input X { -> A.y }\n")
    assert "e.upl:2:6: note: node `A` is declared here" in text


def test_one_error_for_each_statement_and_none_that_only_follows() -> None:
    text = "input X { -> A.x }\nnode A {\n  in x\n  y = x + q\n  z = y*2\n  z -> R\n  if w > 0: y -> R\n}\noutput R\n"
    with pytest.raises(UplError) as caught:
        load_text(text, "e.upl")
    assert [(d.code, d.span and d.span.line) for d in caught.value.diagnostics] == [("UPL1103", 4), ("UPL1103", 7)]


@pytest.mark.parametrize("text", ["+".join(["x"] * 5000), "-" * 400 + "x", "!(" * 300 + "x>0" + ")" * 300])
def test_a_deep_expression_is_an_error(text: str) -> None:
    with pytest.raises(UplError) as caught:
        load_text(f"input X {{ -> A.x }}\noutput R\nnode A {{ in x; {text} -> R }}\n", "e.upl")
    assert len(caught.value.diagnostics) == 1
    assert "deep" in caught.value.diagnostics[0].message


def test_a_long_sum_is_fine() -> None:
    load_text(f"input X {{ -> A.x }}\noutput R\nnode A {{ in x; {'+'.join(['x'] * 240)} -> R }}\n", "e.upl")
