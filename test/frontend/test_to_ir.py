# ruff: noqa: E501  (programs)
"""What the programs of the language's text mean as IR: splits, defaults, types, positions, glued nodes."""

from __future__ import annotations

from typing import cast

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import FileLineColLoc, FloatAttr, ModuleOp
from xdsl.ir import Operation

from upl_mlir.dialects.upl import AdjointOp, InputOp, LetOp, NodeOp, OutputOp, ProgramOp, SendOp, Special
from upl_mlir.dialects.upl.query import endpoints, program_of
from upl_mlir.frontend.upl_text.load import load_text
from upl_mlir.poly.expr import IndexExpr


def program(text: str) -> ProgramOp:
    return program_of(load_text(text, "dir/my-prog.upl"))


def node(text: str, name: str = "A") -> NodeOp:
    found = endpoints(program(text))[name]
    assert isinstance(found, NodeOp)
    return found


def body(statements: str, ports: str = "x, y, n: int, p: bool, f: f32") -> NodeOp:
    """A node <k,i> with some inputs whose arrows go to R (real), C (int), P (bool), F (f32)."""
    return node(
        "param D >= 1\nconst K = 3\nconst eta = 0.5\nconst N[0:K] = [1,2,3,4]\n"
        "output R<k,i>\noutput C<k,i>: int\noutput P<k,i>: bool\noutput F<k,i>: f32\n"
        f"node A<k,i> {{\n  in {ports}\n  {statements}\n}}\n"
        "node B<k,j> { in b, c: int; b -> R<k,0> }\n"
    )


def ops(op: NodeOp) -> list[str]:
    return [o.name for o in op.block.ops]


def location(op: Operation) -> tuple[str, int, int]:
    loc = op.location
    assert isinstance(loc, FileLineColLoc)
    return loc.filename.data, loc.line.data, loc.column.data


def test_conditions_split_into_static_and_data() -> None:
    (send,) = body("if k<K && x>0 && (i==0 || i==N[k]) && !(p && k>1): x -> R").sends
    assert str(send.when) == "k<K && (i==0 || i==N[k])"
    assert send.predicate is not None and isinstance(send.predicate.owner, arith.AndIOp)


def test_a_chain_is_split_only_where_it_mixes() -> None:
    (send,) = body("if 0<k<n: x -> R").sends
    assert str(send.when) == "k>0" or str(send.when) == "0<k"
    assert send.predicate is not None and isinstance(send.predicate.owner, arith.CmpiOp)
    op = body("if 0<x*y<n: x -> R")
    assert op.sends[0].when.is_true
    assert ops(op).count("arith.mulf") == 1, "the middle is computed once"


@pytest.mark.parametrize("condition", ["k<K", "!(k<K || i>=2*D)", "true", "k mod 2 == 0 ? i>0 : i<0", "abs(k-i)<=1"])
def test_static_conditions_stay_static(condition: str) -> None:
    (send,) = body(f"if {condition}: x -> R").sends
    assert send.predicate is None


@pytest.mark.parametrize("condition", ["eta > 0.4", "n > 0", "p", "k < 2.5"])
def test_conditions_on_data_or_reals_are_values(condition: str) -> None:
    (send,) = body(f"if {condition}: x -> R").sends
    assert send.when.is_true and send.predicate is not None


def test_default_index_by_name_else_star() -> None:
    text = "output R<k>\nnode A<k,i> { in x; -> B.b }\nnode B<i,k,z> { in b, c; b -> R }\n"
    (send,) = node(text).sends
    assert send.index.data == (IndexExpr.of("i"), IndexExpr.of("k"), None)


def test_an_iterator_counts_for_the_default_index() -> None:
    (send,) = body("x -> B.b for j in 0..k if j!=i").sends
    assert send.index.data == (IndexExpr.of("k"), IndexExpr.of("j"))
    assert str(send.loops[0]) == "j in 0..k"
    assert str(send.when_point) == "j!=i"


def test_default_values() -> None:
    op = node("output R\nnode A { in x, y; R = x*y; -> R }")
    assert isinstance(op.sends[0].value.owner, LetOp)
    op = node("output R\nnode A { in x; -> R }")
    assert op.sends[0].value is op.arg("x")
    made = endpoints(program("input X<i> in 0<=i<3 { #2 -> A.x }\noutput R\nnode A<i> { in x; -> R }"))["X"]
    assert isinstance(made, InputOp)
    assert made.sends[0].value is made.value
    assert made.sends[0].multiplicity == IndexExpr.of(2)


def test_counts() -> None:
    sends = body("x #N[k-1]*2 -> B.b<k,*>; x ## -> B.b<k,*>; x #n -> B.b<k,*>; x -> B.b<k,1>").sends
    assert [str(s.multiplicity) for s in sends] == ["2*N[k-1]", str(Special.UNBOUNDED), "n", "1"]
    assert sends[3].count is None


def test_an_index_may_name_integers_that_arrive() -> None:
    (send,) = body("m = n+1; x -> B.b<m,n+k>").sends
    assert [str(e) for e in send.index.data] == ["m", "k+n"]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("p*x -> R", "arith.uitofp arith.mulf"),
        ("n*x -> R", "arith.sitofp arith.mulf"),
        ("n*f -> F", "arith.sitofp arith.mulf"),
        ("f*x -> R", "arith.extf arith.mulf"),
        ("p + p -> C", "arith.extui arith.extui arith.addi"),
        ("n/k -> R", "arith.sitofp arith.sitofp arith.divf"),
        ("2*x -> R", "arith.constant arith.mulf"),
        ("n -> R", "arith.sitofp"),
        ("p -> C", "arith.extui"),
        ("x -> F", "arith.truncf"),
        ("n**2 -> C", "arith.constant math.ipowi"),
        ("n**-1 -> R", "arith.sitofp arith.constant math.powf"),
        ("x**2 -> R", "arith.constant math.powf"),
        ("int(x) -> C", "arith.fptosi"),
        ("floor(x) -> C", "math.floor arith.fptosi"),
        ("n floordiv 2 -> C", "arith.constant arith.floordivsi"),
        ("n mod 2 -> C", "arith.constant upl.mod"),
        ("min(n, k, 2) -> C", "arith.minsi arith.constant arith.minsi"),
        ("max(x, n) -> R", "arith.sitofp arith.maximumf"),
        ("x < n -> P", "arith.sitofp arith.cmpf"),
        ("!p || n > 0 -> P", "arith.constant arith.xori arith.constant arith.cmpi arith.ori"),
        ("p ? 1 : x -> R", "arith.constant arith.select"),
        ("sigmoid(stop_gradient(x)) -> R", "upl.stop_gradient upl.sigmoid"),
        ("N[k]*eta -> R", "upl.lookup arith.sitofp upl.ref arith.mulf"),
        ("D -> C", "upl.ref"),
        ("-n -> C", "arith.constant arith.subi"),
        ("-x -> R", "arith.negf"),
        ("-1 -> R", "arith.constant"),
        ("abs(n) + abs(k) -> C", "math.absi math.absi arith.addi"),
    ],
)
def test_operations_and_promotions(statement: str, expected: str) -> None:
    assert " ".join(ops(body(statement))[:-1]) == expected


def test_literals_take_the_type_that_is_wanted() -> None:
    op = body("x + 2 -> R; f + 2 -> F")
    values = [cast("FloatAttr", o.value) for o in op.block.ops if isinstance(o, arith.ConstantOp)]
    assert [str(v.type) for v in values] == ["f64", "f32"]


def test_unequal_reals_compare_true_for_nan() -> None:
    op = body("x != y -> P")
    (test,) = [o for o in op.block.ops if isinstance(o, arith.CmpfOp)]
    assert test.predicate.value.data == 13  # une


def test_declared_types_of_variables() -> None:
    op = body("b: bool = x>0; r: real = n; s: f32 = x; b*r*s -> R")
    lets = {o.var.data: str(o.result.type) for o in op.block.ops if isinstance(o, LetOp)}
    assert lets == {"b": "i1", "r": "f64", "s": "f32"}


def test_positions() -> None:
    made = program(
        "input X<i> in 0<=i<3 { -> A.x }\noutput R<i>\nnode A<i> {\n  in x\n  y = x*\n    exp(x)\n  if i>0: y -> R\n}\nnode A { y -> R<0> }\n"
    )
    found = endpoints(made)["A"]
    assert isinstance(found, NodeOp)
    file = "dir/my-prog.upl"
    assert location(found) == (file, 3, 1)
    places = {o.name: location(o) for o in found.block.ops if not isinstance(o, SendOp)}
    assert places == {"math.exp": (file, 6, 5), "arith.mulf": (file, 5, 7), "upl.let": (file, 5, 3)}
    assert [location(s) for s in found.sends] == [(file, 7, 3), (file, 9, 10)]
    assert [cast("FileLineColLoc", a.location).line.data for a in found.block.args] == [3, 4]
    assert made.sym_name.data == "my_prog"


def test_a_glued_node_is_one_node() -> None:
    made = program(
        "output R<i>\nnode A { x -> R<0> }\noutput S<i>\nnode A<i> in i>0 { in x, y }\nnode A { in y, z; w = z }\n"
    )
    names = [o.symbol for o in made.body.block.ops if isinstance(o, NodeOp | OutputOp)]
    assert names == ["R", "A", "S"]
    found = endpoints(made)["A"]
    assert isinstance(found, NodeOp)
    assert (found.fields, [p.name for p in found.ports]) == (("i",), ["x", "y", "z"])
    assert found.declared is not None and str(found.declared.data) == "i>0"
    assert ops(found) == ["upl.send", "upl.let"]


def test_declarations_come_first_and_directives_stay() -> None:
    made = program(
        "adjoint of R wrt A.x\nnode A { in x; y = x*K; -> R }\nconst K = 2\noutput R\ninput X { -> A.x }\n".replace(
            "y = x*K; ", ""
        )
    )
    assert [o.name for o in made.body.block.ops] == ["upl.const", "upl.adjoint", "upl.node", "upl.output", "upl.input"]


def test_adjoint_references() -> None:
    made = program(
        "input X<i> in 0<=i<2 { -> A.x }\noutput R<i>\nnode A<i> { in x, d; e = x*x; e -> R }\n"
        "adjoint of A.x seed A.e wrt X, A.x -> A.d, A.d\n"
    )
    (op,) = [o for o in made.body.block.ops if isinstance(o, AdjointOp)]
    refs = [op.of, *([op.seed] if op.seed else []), *op.wrt, *(op.into or [])]
    assert [r.string_value() for r in refs] == ["A.x", "A.e", "X", "A.x", "A.d", "A.d"]


def test_integer_inputs_count_summands() -> None:
    op = node("output R\nnode A<i> { in n: int, @(+) s[n], @(max) m[2*i+1]; s + m -> R<> }")
    assert [str(p) for p in op.ports] == ["n: int", "@(+) s[n]", "@(max) m[2*i+1]"]


def test_values_in_a_host_input() -> None:
    made = endpoints(
        program("const c = 2.5\ninput X<i> in 0<=i<3 { c*X + i -> A.x }\noutput R<i>\nnode A<i> { in x; -> R }")
    )
    found = made["X"]
    assert isinstance(found, InputOp)
    assert [o.name for o in found.block.ops][:2] == ["upl.ref", "arith.mulf"]


def test_everything_verifies_and_prints_as_mlir() -> None:
    module = load_text("output R\nnode A { in x; -> R }\ninput X { -> A.x }\n")
    assert isinstance(module, ModuleOp)
    module.verify()
    assert "upl.program @string" in str(module)
