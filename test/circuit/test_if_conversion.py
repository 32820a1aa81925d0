"""If-conversion: a converted program computes what the program does, on the interpreter, and says where a run went wrong."""

from __future__ import annotations

import io

import numpy as np
import pytest
from circuit.decided import PROGRAMS

import upl_mlir as upl
from upl_mlir.api.targets import UplTarget
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.predicate.checks import Check, checks, judge
from upl_mlir.passes.predicate.convert import decided_by_data, if_convert
from upl_mlir.passes.schedule import prepared


def converted(text: str) -> tuple[upl.Program, dict[str, Check]]:
    """The program that a text becomes, proved, and its outputs by which runs are judged."""
    module = upl.load(text).infer_domains().module.clone()
    program = program_of(module)
    if_convert(program)
    assert not decided_by_data(program) and all(a.exact for a in ProgramSets(program).arrows)
    prepared(module, "f64", "ordered")
    out = io.StringIO()
    UplTarget().emit(None, module, out)  # type: ignore[arg-type]
    return upl.load(out.getvalue()), checks(program)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_computes_the_same(name: str) -> None:
    """Bit for bit: zeros of both signs, and sums in their order."""
    case = PROGRAMS[name]
    new, found = converted(case.text)
    before, after = (upl.compile(p, real="f32", gather="ordered") for p in (upl.load(case.text), new))
    rng = np.random.default_rng(7)
    for n in (1, 2, 5):
        sizes = case.sizes(n)
        given = case.data(rng, sizes)
        wanted, made = dict(before(**given, **sizes)), dict(after(**given, **sizes))
        assert made.keys() == wanted.keys() | found.keys()
        for output, array in wanted.items():
            assert np.asarray(made[output]).tobytes() == np.asarray(array).tobytes(), output
        judge(found, {k: np.asarray(made[k]) for k in found}, {k: (0,) * np.ndim(made[k]) for k in found})


def test_numbers_that_no_token_has_do_not_matter() -> None:
    """An instance that is not there computes with numbers that are none: nothing of them comes to a result."""
    new, found = converted(PROGRAMS["halves"].text.replace("a*0.5", "0.5/(a - a)*a"))
    made = upl.compile(new, real="f32")(A=[0.25, 0.5, 0.125])
    assert np.asarray(made["O"]).tolist() == [0.25, 0.5, 0.125] and np.asarray(made["Steps"]).tolist() == [0, 0, 0]
    assert all((np.asarray(made[k]) == 1).all() for k in found)


def test_a_summand_that_is_not_there_keeps_the_sign_of_zero() -> None:
    new, _ = converted(PROGRAMS["spmv"].text)
    given = {"V": [[-0.0, 1.0]], "Col": [[0, 1]], "Count": [1], "X": [1.0, 1.0]}
    made = np.asarray(upl.compile(new, real="f32", gather="ordered")(**given)["Y"])
    assert made.tolist() == [0.0] and np.signbit(made).all()


WRONG = {
    "no token": ("deep", "if !(x > 1): x -> O<i>", "if x < 0: x -> O<i>", {"A": [0.5, 2.0]}, "UPL1603"),
    "two tokens": ("deep", "if !(x > 1): x -> O<i>", "if x > 0: x -> O<i>; x -> V.x<i>", {"A": [0.5]}, "UPL1602"),
    "index": ("routing", "", "", {"A": [1.0, 2.0], "K": [0, 2]}, "UPL1601"),
    "twice": ("routing", "", "", {"A": [1.0, 2.0], "K": [1, 1]}, "UPL1601"),
    "too few": ("largest", "", "", {"A": [1.0, 2.0], "C": 3}, "UPL1601"),
    "too many": ("largest", "", "", {"A": [1.0, 2.0], "C": 1}, "UPL1601"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_run_that_goes_wrong_is_told(name: str) -> None:
    program, old, new, given, code = WRONG[name]
    text = PROGRAMS[program].text.replace(old, new)
    with pytest.raises(upl.UplError):
        upl.compile(upl.load(text))(**given)
    made, found = converted(text)
    outputs = upl.compile(made)(**given)
    with pytest.raises(upl.UplError, match=code) as caught:
        judge(found, {k: np.asarray(outputs[k]) for k in found}, {k: (0,) * np.ndim(outputs[k]) for k in found})
    assert all(d.span is not None and d.help for d in caught.value.diagnostics)


REFUSED = {
    "no bounds": ("a -> T.x<k>", "node T<j> { in x; x -> U.x<0> }\nnode U<i> in 0<=i<1 { in x; -> O<0> }", "UPL120"),
    "outside": ("if a > 0: a -> T.x<i+1>; if k>0: a -> T.y<i>", "node T<i> in 0<=i<n { in x, y; x*y -> O<i> }",
                "it may send to what is no instance of `T`"),
    "stars": ("if a > 0: a #n -> T.x<*>", "node T<i> in 0<=i<n { in x; x -> O<i> }", "by `\\*`"),
    "carried": ("if a > 0: a #i+1 -> T.x<0>", "node T<i> in 0<=i<1 { in @(+) x[#]; x -> O<i> }",
                "the number of summands that it carries"),
    "some loose": ("if a > 0: a ## -> T.x<i>; if !(a > 0): a -> T.x<i>; k -> T.k<i>",
                   "node T<i> in 0<=i<n { in x, k: int; x -> O<i> }", "some tokens go with `##`"),
    "multiplicity": ("if a > 0: a #2 -> T.x<i>; if !(a > 0): a -> T.x<i>", "node T<i> in 0<=i<n { in x; x -> O<i> }",
                     "its multiplicity is 2"),
    "order": ("a -> T.x<k>; a -> T.x<i>; k -> T.c<i>",
              "node T<i> in 0<=i<n { in c: int, @(+) x[c]; x -> O<i> }",
              "do not come last in their node"),
}  # fmt: skip
REST = """program refused
param n >= 1
input A<i> in 0<=i<n { -> S.a }
input K<i>: int in 0<=i<n { -> S.k }
output O<i> in 0<=i<n
node S<i> { in a, k: int; %s }
"""


@pytest.mark.parametrize("name", REFUSED)
def test_what_bits_cannot_say_is_refused(name: str) -> None:
    sends, others, message = REFUSED[name]
    with pytest.raises(upl.UplError, match=message) as caught:
        converted(REST % sends + others)
    assert all(d.span is not None for d in caught.value.diagnostics)
