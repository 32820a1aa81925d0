"""Bodies with truth values, choices by data, least and greatest, and gathers other than sums: the interpreter's bits.
Functions: the bits of their arithmetic on arrays.

The data have infinities, NaN, and zeros of both signs.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from circuit.circuits import EXAMPLES, NOT_FINITE, Text
from circuit.test_circuits import bits, same, same_as_the_interpreter

import upl_mlir as upl
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.process import network_of
from upl_mlir.passes.lower_to_circuit import planned_circuit
from upl_mlir.passes.schedule import prepared, raised

BODIES = {
    "relu": "b1: bool = a > 0; b1*a",
    "relu_of_the_other_side": "a*(b >= a)",
    "leaky": "a >= 0 ? a : 0.1*a",
    "greatest": "max(a, b)",
    "least": "min(a, abs(b)) + min(0.0, -b)",
    "logic": "a > 0 && !(b < a) || a == b ? 1 : -a",
    "unordered": "a != b ? a : b",
    "parity": "(a < b) == (b <= 1) ? 2.5 : -a",
    "chained": "a < b < 1 ? 1 : 0",
    "of_choices": "(a < b ? a : b) < 0 ? (a > 1 && i > 2 ? b : 3) : i < 7 ? a : -b",
    "by_index": "b1: bool = i > 3; b1*a + (i < 2)*b",
    "choice_of_truths": "c: bool = i > 2 ? a > b : a < b; c ? a : -b",
    "root": "sqrt(a) - sqrt(abs(b) + 2)",
    "square": "a**2 - b**2.0",
}
ELEMENTS = """program elements
param n >= 1
input A<i> in 0<=i<n { -> F.a<i> }
%s
output Y<i>
node F<i> in 0<=i<n { in a%s; %s -> Y<i> }
"""
GATHER = """program gather
param m >= 1
param n >= 1
input A<i,j> in 0<=i<m, 0<=j<n { -> M.a<i,j> }
output Y<i>
node M<i,j> in 0<=i<m, 0<=j<n { in a; %s -> F.s<i> }
node F<i> in 0<=i<m { in @(%s) s[%s]; s -> Y<i> }
"""
NEIGHBOURS = """program neighbours
param n >= 3
input A<i> in 0<=i<n {
  -> F.s<i>
  if i>0: -> F.s<i-1>
  if i<n-1: -> F.s<i+1>
  if i==0: -> F.s<i>
  if i==n-1: -> F.s<i>
}
output Y<i>
node F<i> in 0<=i<n { in @(%s) s[3]; s -> Y<i> }
"""


def elements(value: str) -> Text:
    """A program with a value for each element of `a`, and of `b` if it is read."""
    second = ("input B<i> in 0<=i<n { -> F.b<i> }", ", b") if re.search(r"\bb\b", value) else ("", "")
    return Text("elements", (("n", 41),), ELEMENTS % (*second, value))


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str) -> None:
    same_as_the_interpreter(elements(BODIES[name]), 2, NOT_FINITE)


@pytest.mark.parametrize("operator", ["max", "min", "*", "+"])
def test_gathers_of_many(operator: str) -> None:
    """Of all numbers, and of finite ones, whose products do not all vanish."""
    case = Text("gather", (("m", 6), ("n", 5)), GATHER % ("a", operator, "n"))
    for lanes, special in ((1, NOT_FINITE), (3, ())):
        same_as_the_interpreter(case, lanes, special or (1.0, -0.0))


@pytest.mark.parametrize("operator", ["max", "min", "*", "+"])
def test_gathers_of_a_few(operator: str) -> None:
    same_as_the_interpreter(Text("neighbours", (("n", 23),), NEIGHBOURS % operator), 1, NOT_FINITE)


BEFORE = """program before
param n >= 2
input A<i,j> in 0<=i<n, 0<=j<i { -> F.s<i> }
output Y<i>
node F<i> in 0<=i<n { in @(%s) s[i]; s -> Y<i> }
"""


@pytest.mark.parametrize("operator", ["max", "min", "*", "+"])
def test_gathers_of_none_or_many(operator: str) -> None:
    """What comes of no summands is not what changes none: a sum of none is 0, and not -0."""
    same_as_the_interpreter(Text("before", (("n", 5),), BEFORE % operator), 1, (-3.0, -0.0))


def test_a_statement_with_two_gathers_of_many_is_refused() -> None:
    """As a circuit's text may have it; of a program each becomes a statement of its own."""
    text = GATHER.replace("-> F.s<i> }", "-> F.s<i>; 2*a -> F.s<i> }") % ("a", "+", "2*n")
    sizes = {"m": 2, "n": 4}
    assert len(planned_circuit(upl.load(text).infer_domains().module.clone(), sizes, Wish(1))[1].parts) == 2
    program = prepared(upl.load(text).infer_domains().module.clone(), "f32", "ordered")
    loops = raised(program, real="f32", gather="ordered", fixed=sizes, split=False, again=False)
    with pytest.raises(upl.UplError, match=r"UPL2001.*`Y` has more than one gather of many summands"):
        network_of(loops)


FUNCTIONS = {
    "exp": "exp(a)", "log": "log(a)", "tanh": "tanh(a)", "sigmoid": "sigmoid(a)", "sin": "sin(a)",
    "cos": "cos(a)",
    "softplus": "max(a, 0) + log(1 + exp(-abs(a)))", "gate": "sigmoid(a)*tanh(b) + exp(-a*a)",
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """As plain evaluation, bit for bit; and so near to the interpreter, which rounds, as the bound on the error says."""
    case = elements(FUNCTIONS[name])
    interpreter = upl.compile(case.program, engine="interp", real="f32", gather="ordered")

    def wanted(arrays: dict[str, np.ndarray], by_plain: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if FUNCTIONS[name] == f"{name}(a)":
            rounded = interpreter(**arrays, **case.params)["Y"]
            assert np.abs(bits(rounded).astype(np.int64) - bits(by_plain["Y"])).max() <= 1
        return by_plain

    same(case, 1, wanted, NOT_FINITE)


def test_an_example_with_a_function() -> None:
    text = (EXAMPLES / "conv2d.upl").read_text(encoding="utf-8")
    assert "tanh" in text
    same(Text("conv2d", (("H", 5), ("W", 7)), text), 1, lambda _, by_plain: by_plain)


UNREAD = ELEMENTS.replace("in a%s", "in a, b").replace("%s\noutput", "input B<i> in 0<=i<n { -> F.b<i> }\noutput")


def test_a_sum_of_some_elements_reads_nothing_for_others() -> None:
    """One element of the array is a sum, and the others are inputs, for which the sum's reads would be out of bounds."""
    program = upl.load("""program pieces
    input X<t> in 0<=t<=2 { if t>=1: X -> A.x<t>; X -> E.x<t> for it in 0..t*t-1 }
    output O<t>
    node E<t> in 0<=t<=2 { in @(+) x[t*t]; if t>=2: x -> A.x<t-2> }
    node A<t> { in x; x -> O<t> }
    """)
    for lanes in (1, 2):
        f = upl.compile(program, engine="circuit", lanes=lanes)
        assert np.asarray(f(X=[1.0, 2.0, 3.0])["O"]).tolist() == [12.0, 2.0, 3.0]


@pytest.mark.parametrize("value", ["-a", "i < 7 ? a*b : a", "i > 30 ? a*b : a", "i == 20 ? a*b : a"])
def test_words_that_nobody_reads_pass(value: str) -> None:
    same_as_the_interpreter(Text("unread", (("n", 41),), UNREAD % value), 2)


REFUSED = {
    "i mod 2 == 0 ? a : 1": "`upl.mod`",
    "floor(a)": "a value of type int", "i*a": "an index as a value", "(a < b) + (b < a) + a": "a value of type int",
    "a**b": "`math.powf`",
}  # fmt: skip


@pytest.mark.parametrize("value", REFUSED)
def test_what_has_no_unit_is_refused(value: str) -> None:
    with pytest.raises(upl.UplError, match="UPL2002") as caught:
        planned_circuit(elements(value).program.infer_domains().module.clone(), {"n": 4}, Wish(1))
    assert REFUSED[value] in str(caught.value)
