"""Every diagnostic of a run: code, what it names, where it points (LANGUAGE 3.8)."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl.query import arrows, nodes
from upl_mlir.engines.interp import Engine


def failing(program, arrays, params=None, **options):
    """The diagnostics of a run that fails, with spans: arrows lie on lines 100+, nodes on lines 200+."""
    for base, ops in ((100, arrows(program)), (200, nodes(program))):
        for i, op in enumerate(ops):
            op.location = FileLineColLoc(StringAttr("p.upl"), IntAttr(base + i), IntAttr(3))
    engine = Engine(program, params, **options)
    with pytest.raises(UplError) as e:
        engine.run({k: np.asarray(v) for k, v in arrays.items()})
    return e.value.diagnostics


def pairs(ir, a_body, b_body, where="0<=i<3"):
    """R = a*b element by element."""
    return ir.program(
        ir.input("A<i>", where, a_body),
        ir.input("B<i>", where, b_body),
        ir.node("M<i>", "a, b", '%p = arith.mulf %a, %b : f64\nupl.send %p -> @R <"i"> : f64'),
        ir.output("R<i>", where),
    )


ONES = np.ones(3)


def test_a_stranded_token_names_the_input_that_never_came(ir):
    program = pairs(ir, 'upl.send %A -> @M::@a <"i"> : f64', 'upl.send %B -> @M::@b <"i"> when <"i!=1"> : f64')
    stranded, missing = failing(program, {"A": ONES, "B": ONES})
    assert (stranded.code, stranded.message) == ("UPL1601", "a token is left over in `M`: M.a<1>")
    assert str(stranded.span) == "p.upl:200:3"
    assert [n.message for n in stranded.notes] == ["M<1>: `b` never came"]
    assert (missing.code, missing.message) == (
        "UPL1603", "1 of 3 elements of the host output `R` never came: R<1>",
    )  # fmt: skip


def test_long_lists_are_cut(ir):
    program = pairs(
        ir, 'upl.send %A -> @M::@a <"i"> : f64', 'upl.send %B -> @M::@b <"i"> when <"i<0"> : f64', "0<=i<30"
    )
    stranded, missing = failing(program, {"A": np.ones(30), "B": np.ones(30)})
    assert stranded.message.startswith("30 tokens are left over")
    assert stranded.message.endswith("M.a<9> and 20 more")
    assert missing.message.endswith("R<9> and 20 more")
    assert len(stranded.notes) == 10


def test_too_large_a_multiplicity_strands_the_token(ir):
    program = pairs(ir, 'upl.send %A -> @M::@a <"i"> count <"3"> : f64', 'upl.send %B -> @M::@b <"i"> : f64')
    (stranded,) = failing(program, {"A": ONES, "B": ONES})
    assert "M.a<0> (2 activations left)" in stranded.message


def test_too_small_a_multiplicity_strands_a_later_token(ir):
    program = pairs(
        ir, 'upl.send %A -> @M::@a <"*"> count <"2"> when <"i==0"> : f64', 'upl.send %B -> @M::@b <"i"> : f64'
    )
    stranded, missing = failing(program, {"A": ONES, "B": ONES})
    assert "M.b<2>" in stranded.message
    assert missing.code == "UPL1603"


@pytest.mark.parametrize(("order", "seed"), [("fifo", 0), *(("random", s) for s in range(10))])
def test_a_token_used_up_half_way_through_a_join_is_not_used_again(ir, order, seed):
    program = ir.program(
        ir.input("B<j>", "0<=j<2", 'upl.send %B -> @M::@b <"*,j,*"> count <"1"> : f64'),  # 2 would be right
        ir.input("C<k>", "0<=k<2", 'upl.send %C -> @M::@c <"*,*,k"> count <"2"> : f64'),
        ir.input("A", "", 'upl.send %A -> @M::@a <"0,*,*"> count <"4"> : f64'),
        ir.node("M<i,j,k>", "a, b, c", 'upl.send %a -> @R <"i,j,k"> : f64'),
        ir.output("R<i,j,k>", "i==0 && 0<=j<2 && 0<=k<2"),
    )
    stranded, missing = failing(program, {"A": 1.0, "B": [1.0, 1], "C": [1.0, 1]}, order=order, seed=seed)
    assert "M.a<0,*,*> (2 activations left)" in stranded.message
    assert missing.message.startswith("2 of 4 elements")


def test_two_tokens_on_one_input(ir):
    program = pairs(
        ir,
        'upl.send %A -> @M::@a <"0"> when <"i<2"> : f64',
        'upl.send %B -> @M::@b <"i"> when <"i<0"> : f64',
    )
    (found,) = failing(program, {"A": [5.0, 6.0, 7.0], "B": ONES})
    assert found.code == "UPL1602"
    assert found.message == "two tokens wait on `M.a<0>` at once: 5.0 and 6.0"
    assert str(found.span) == "p.upl:200:3"
    assert str(found.notes[0].span) == "p.upl:100:3"


def test_two_multicast_tokens_on_one_input(ir):
    program = pairs(
        ir, 'upl.send %A -> @M::@a <"*"> count <"3"> : f64', 'upl.send %B -> @M::@b <"i"> when <"i<0"> : f64'
    )
    (found,) = failing(program, {"A": ONES, "B": ONES})
    assert found.message == "two tokens wait on `M.a<*>` at once: 1.0 and 1.0"


def test_two_tokens_for_one_output(ir):
    program = ir.program(
        ir.input("A<i>", "0<=i<2", 'upl.send %A -> @R <"0"> : f64'), ir.output("R<i>", "i==0")
    )  # fmt: skip
    (found,) = failing(program, {"A": [5.0, 6.0]})
    assert (found.code, found.message) == ("UPL1602", "the host output `R<0>` receives two tokens: 5.0 and 6.0")
    assert str(found.notes[0].span) == "p.upl:100:3"


def test_a_token_for_an_element_that_an_output_does_not_have(ir):
    program = ir.program(
        ir.input("A<i>", "0<=i<2", 'upl.send %A -> @R <"2*i"> : f64'), ir.output("R<i>", "i==0")
    )  # fmt: skip
    (found,) = failing(program, {"A": [5.0, 6.0]})
    assert found.code == "UPL1603"
    assert "does not have: R<2>" in found.message


def test_a_multiplicity_below_one(ir):
    program = pairs(ir, 'upl.send %A -> @M::@a <"i"> count <"i"> : f64', 'upl.send %B -> @M::@b <"i"> : f64')
    (found,) = failing(program, {"A": ONES, "B": ONES})
    assert (found.code, found.message) == ("UPL1604", "`A<0>` sends a token of multiplicity 0 to `M.a`")
    assert str(found.span) == "p.upl:100:3"
    assert found.help is not None


def test_a_carried_count_below_one(ir):
    program = summing(ir, "#", 'upl.send %X -> @S::@s <""> count <"i"> : f64')
    (found,) = failing(program, {"X": ONES})
    assert found.code == "UPL1604"


def summing(ir, count, body):
    return ir.program(
        ir.input("X<i>", "0<=i<3", body),
        ir.node("S", f"@(+) s[{count}]", 'upl.send %s -> @R <""> : f64'),
        ir.output("R", ""),
    )


@pytest.mark.parametrize("order", ["fifo", "random"])
@pytest.mark.parametrize(("count", "announced"), [("2", 2), ("1", 1)])
def test_more_summands_than_announced(ir, order, count, announced):
    program = summing(ir, count, 'upl.send %X -> @S::@s <""> : f64')
    (found,) = failing(program, {"X": ONES}, order=order)
    assert (found.code, found.message) == (
        "UPL1605", f"the gather `S.s<>` receives more summands than the {announced} announced",
    )  # fmt: skip
    assert str(found.span) == "p.upl:200:3"


def test_more_summands_than_the_input_that_counts_them_says(ir):
    for order, seed in [("fifo", 0), *(("random", s) for s in range(6))]:
        program = ir.program(
            ir.input("N", "", 'upl.send %N -> @S::@n <""> : i64', "int"),
            ir.input("X<i>", "0<=i<3", 'upl.send %X -> @S::@s <""> : f64'),
            ir.node("S", "@(+) s[n], n: int", 'upl.send %s -> @R <""> : f64'),
            ir.output("R", ""),
        )
        assert failing(program, {"N": 2, "X": ONES}, order=order, seed=seed)[0].code == "UPL1605"


def test_fewer_summands_than_announced(ir):
    program = summing(ir, "5", 'upl.send %X -> @S::@s <""> : f64')
    stranded, missing = failing(program, {"X": ONES})
    assert stranded.message == "a token is left over in `S`: S.s<> (3 of 5 summands)"
    assert missing.message == "1 of 1 elements of the host output `R` never came: R<>"


def test_summands_that_disagree(ir):
    program = summing(ir, "#", 'upl.send %X -> @S::@s <""> count <"3+i"> : f64')
    (found,) = failing(program, {"X": ONES})
    assert (found.code, found.message) == ("UPL1605", "the summands of `S.s<>` disagree on their number: 3 and 4")


@pytest.mark.parametrize("order", ["fifo", "random"])
def test_a_program_that_never_ends_is_stopped(ir, order):
    program = ir.program(
        ir.input("X", "", 'upl.send %X -> @M::@x <"0"> : f64'),
        ir.node("M<i>", "x", 'upl.send %x -> @M::@x <"i+1"> : f64'),
        ir.output("R<i>", "0<=i<0"),
    )
    (found,) = failing(program, {"X": 1.0}, max_firings=1000, order=order)
    assert found.code == "UPL1606"
    assert "the limit is 1000" in found.message


def test_an_entry_outside_an_array(ir):
    program = ir.program(
        'upl.array @N <"0"> to <"2"> from 0 : i64 = array<i64: 1, 1, 1>',
        ir.input("X<i>", "0<=i<4", 'upl.send %X -> @R <"i+N[i]"> : f64'),
        ir.output("R<i>", "1<=i<5"),
    )
    (found,) = failing(program, {"X": np.ones(4)})
    assert found.code == "UPL1604"
    assert found.message == "in `X<3>`: `N[3]` is outside the array, which has 0..2"
    assert str(found.span) == "p.upl:100:3"


def test_an_output_without_a_domain(ir):
    program = ir.program(ir.input("X<i>", "0<=i<4", 'upl.send %X -> @R <"i"> : f64'), 'upl.output @R <"i"> "real"')
    with pytest.raises(UplError, match=r"UPL1507.*domain of `R` is not known"):
        Engine(program)
