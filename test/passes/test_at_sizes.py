"""Obligations looked at for given sizes: native code runs no program that the interpreter refuses at those sizes."""

import numpy as np
import pytest
from xdsl.context import Context

import upl_mlir as upl
from upl_mlir.passes.analysis.at_sizes import require_at
from upl_mlir.passes.lower_to_loops import LowerLoopsPass

HEAD = "program p\nparam n >= 1\nparam q >= 1\n"

# One sum of what is a multiple of q: each summand says that all n come, so that only q = 1 is right.
SUM = HEAD + """input X<i> in 0<=i<n { if i mod q == 0: X #n -> S.s<> }
output Y
node S { in @(+) s[#]; -> Y }
"""

# Two inputs under conditions that say the same in different words.
PAIR = HEAD + """input X<i> in 0<=i<n { if i mod q == 0: -> A.x }
input Z<i> in 0<=i<n { if i - q*(i floordiv q) == 0: -> A.z }
output Y<i>
node A<i> { in x, z; x*z -> Y }
"""

# A gather that counts by an expression which is no polynomial.
COUNT = HEAD + """input X<i,j> in 0<=i<n, 0<=j<q { if j < (i*i) mod q: X -> G.s<i> }
output Y<i>
node G<i> in 0<=i<n { in @(+) s[COUNT]; -> Y }
"""

# A token for all instances of a node, as many as its multiplicity says.
STAR = HEAD + """input X<i> in 0<=i<n { if i mod q == 0: -> A.x }
input Z { Z #COUNT -> A.z<*> }
output Y<i>
node A<i> { in x, z; x*z -> Y }
"""


def outcome(text: str, engine: str, **given: object) -> object:
    """The result Y, or the group of the error's code."""
    try:
        return upl.compile(upl.load(text), engine=engine)(**given)["Y"]
    except upl.UplError as e:
        return e.diagnostics[0].code[:5]


CASES = [
    (SUM, {"X": np.arange(1.0, 5.0), "q": 1}), (SUM, {"X": np.arange(1.0, 5.0), "q": 2}),
    (PAIR, {"X": np.arange(1.0, 8.0), "Z": np.arange(2.0, 9.0), "q": 3}),
    (COUNT.replace("COUNT", "(i*i) mod q"), {"X": np.ones((4, 4)), "q": 4}),
    (COUNT.replace("COUNT", "(i*i) mod q"), {"X": np.ones((4, 9)), "q": 9}),
    (COUNT.replace("COUNT", "i mod q"), {"X": np.ones((2, 4)), "q": 4}),
    (COUNT.replace("COUNT", "i mod q"), {"X": np.ones((4, 4)), "q": 4}),
    (STAR.replace("COUNT", "((n-1) floordiv q + 1)"), {"X": np.arange(7.0), "Z": 2.0, "q": 3}),
    (STAR.replace("COUNT", "((n+1) floordiv q)"), {"X": np.arange(7.0), "Z": 2.0, "q": 2}),
    (STAR.replace("COUNT", "((n+1) floordiv q)"), {"X": np.arange(7.0), "Z": 2.0, "q": 5}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given"), CASES)
@pytest.mark.parametrize("engine", ["token", "native"])
def test_what_no_proof_covers_is_as_on_the_interpreter(engine: str, text: str, given: dict[str, object]) -> None:
    expected = outcome(text, "interp", **given)
    found = outcome(text, engine, **given)
    if isinstance(found, str):  # what is wrong at some sizes is refused at all, where it can be refuted
        assert found == "UPL13" if not isinstance(expected, str) else found in ("UPL13", "UPL16")
    else:
        assert not isinstance(expected, str)
        np.testing.assert_allclose(found, expected)


def test_a_count_that_is_no_polynomial_is_taken_for_right_where_it_is() -> None:
    given = {"X": np.ones((6, 9)), "q": 9}
    out = upl.compile(upl.load(COUNT.replace("COUNT", "(i*i) mod q")), engine="native")(**given)
    np.testing.assert_array_equal(out["Y"], [i * i % 9 for i in range(6)])


def test_wrong_and_right_sizes_are_told_apart_by_one_engine() -> None:
    f = upl.compile(upl.load(SUM), engine="native")
    x = np.arange(1.0, 5.0)
    assert f(X=x, q=1)["Y"] == 10.0
    with pytest.raises(upl.UplError, match=r"UPL1605.*4 summands come to `S.s`, but 2 come \(.*q=2.*\)"):
        f(X=x, q=2)
    assert f(X=x[:2], q=1)["Y"] == 3.0
    with pytest.raises(upl.UplError, match="UPL1605"):
        f(X=x, q=2)


@pytest.mark.parametrize(
    ("text", "port", "code"),
    [
        ("if i < 2: X -> A.x<i>; if i > 0: X -> A.x<i>", ("A", "x"), "UPL1602"),
        ("if i < 2: X -> A.x<i>", ("A", "x"), "UPL1601"),
        ("X -> A.x<i+1>", ("A", "x"), "UPL1601"),
        ("X #2 -> A.x<i>", ("A", "x"), "UPL1601"),
        ("X -> A.x<j> for j in i..n-1", ("A", "x"), "UPL1602"),
    ],
)
def test_each_fault_is_found(text: str, port: tuple[str, str], code: str) -> None:
    p = upl.load(f"program p\nparam n >= 1\ninput X<i> in 0<=i<n {{ {text} }}\noutput Y<i>\n"
                 "node A<i> in 0<=i<n { in x; -> Y }")  # fmt: skip
    program = p.infer_domains().read()
    with pytest.raises(upl.UplError, match=code):
        require_at(program, {"n": 4}, [port])


def test_a_right_program_has_no_fault_at_any_input() -> None:
    """All ports of the paper's perceptron, by numpy as by proof."""
    p = upl.load("examples/perceptron.upl", K=3, N=[4, 3, 2]).infer_domains().read()
    ports = [("Link", "r"), ("Link", "w"), ("Sum", "s"), ("AF_ReLU", "s"), ("Res", "r"), ("R", "R")]
    require_at(p, {"D": 2}, ports)


def test_c_is_not_made_of_a_domain_that_is_a_hull() -> None:
    """The C function cannot count: what its loops would run over may be more than the instances."""
    p = upl.load(HEAD + """input X<i> in 0<=i<n { if i mod q == 0: -> A.x<2*(i floordiv 2)> }
output Y<a>
node A<a> { in @(+) x[#]; -> Y }
""")
    with pytest.raises(upl.UplError, match=r"(?s)UPL1829.*domain of `Y`.*`i mod q`"):
        LowerLoopsPass().apply(Context(), p.infer_domains().module.clone())
    x = np.arange(8.0)
    got, wanted = (upl.compile(p, engine=e)(X=x, q=2) for e in ("native", "interp"))
    np.testing.assert_array_equal(got["Y"], wanted["Y"])
    with pytest.raises(upl.UplError, match=r"UPL1829.*no token comes to A<4>"):  # each third sends: no place for each second
        upl.compile(p, engine="native")(X=x, q=3)


def test_a_hull_with_an_instance_too_many_is_no_fault_of_the_program() -> None:
    """Such an instance does not exist: at sizes that are numbers the domain is known, and the program runs."""
    p = upl.load(HEAD + """input X<i> in 0<=i<n { if i mod q == 0: -> A.x<2*(i floordiv 2)> }
output T
node A<a> { in @(+) x[#]; -> S.s<> }
input One { -> S.s<> }
node S { in @(+) s[(n+q-1) floordiv q+1]; -> T }
""")
    x = np.arange(9.0)
    assert upl.compile(p)(X=x, One=0.0, q=3)["T"] == upl.compile(p, engine="interp")(X=x, One=0.0, q=3)["T"] == 9.0
    program = p.infer_domains().read()
    require_at(program, {"n": 9, "q": 2}, [("A", "x")])
    with pytest.raises(upl.UplError, match=r"(?s)UPL1829.*domain of `A`.*`i mod q`; no token comes to A<4> \(n=9, q=3\)"):
        require_at(program, {"n": 9, "q": 3}, [("S", "s"), ("A", "x")])


def test_a_gather_of_nothing_tells_nothing_of_a_hull() -> None:
    """It waits for no summand; what is missing is missed at the input beside it."""
    p = upl.load(HEAD + """input X<i> in 0<=i<n { if i mod q == 0: -> A.z<2*(i floordiv 2)> }
output Y<a>
node A<a> { in z, @(+) x[0]; z+x -> Y }
""")
    program = p.infer_domains().read()
    require_at(program, {"n": 9, "q": 3}, [("A", "x")])
    with pytest.raises(upl.UplError, match=r"UPL1829.*no token comes to A<4>"):
        require_at(program, {"n": 9, "q": 3}, [("A", "x"), ("A", "z")])
