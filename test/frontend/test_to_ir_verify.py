
"""Structural faults of programs given as MLIR text: the message, and the operation at fault."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser

from upl_mlir.dialects.bases import RuleError
from upl_mlir.dialects.upl import UPL

HEAD = """upl.param @D
upl.const @K = 3 : i64
upl.const @eta = 5.0 : f64
upl.array @N <"0"> to <"1"> from 0 : i64 = array<i64: 1, 2>
upl.array @M <"0"> to <"1"> from 0 : i64 = array<f64: 1.0, 2.0>
upl.output @R <"i"> "real"
upl.output @C <"i"> "int"
upl.node @B <"i,j"> <"a, @(+) s[#], n: int"> { ^bb0(%i: i64, %j: i64, %a: f64, %s: f64, %n: i64): }
"""

A = 'upl.node @A <"d,k"> <"x, n: int, p: bool"> {{ ^bb0(%d: i64, %k: i64, %x: f64, %n: i64, %p: i1): {} }}'


def module(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Arith, UPL):
        context.load_dialect(dialect)
    return Parser(context, f"upl.program @p {{ {HEAD} {text} }}").parse_module()


def test_a_sound_program() -> None:
    module(
        A.format(
            '%y = upl.let "y" %n : i64 '
            'upl.send %x -> @B::@a <"y+1,*"> count <"##"> when <"k<K && d>N[k]"> if %p : f64 '
            'upl.send %x -> @B::@s <"d,b"> count <"n"> for <"a in 0..D, b in a..k"> when_point <"a!=b"> : f64 '
            'upl.send %n -> @C <"d"> : i64'
        )
        + " upl.adjoint of @A::@x seed @A::@y wrt [@A::@x] into [@B::@a]"
    ).verify()


@pytest.mark.parametrize(
    ("text", "message", "culprit"),
    [
        (A.format('upl.send %x -> @Q <"d"> : f64'), "unknown target `Q`", "upl.send"),
        (A.format('upl.send %x -> @K <"d"> : f64'), "unknown target `K`", "upl.send"),
        (A.format('upl.send %x -> @B::@q <"d,k"> : f64'), "node `B` has no input `q`", "upl.send"),
        (A.format('upl.send %x -> @B <"d,k"> : f64'), "node `B` has no input ``", "upl.send"),
        (A.format('upl.send %x -> @R::@r <"d"> : f64'), "`R` has no inputs of its own", "upl.send"),
        (A.format('upl.send %x -> @B::@a <"d"> : f64'), "`B.a` has 2 index fields, the arrow gives 1", "upl.send"),
        (A.format('upl.send %n -> @B::@a <"d,k"> : i64'), "`B.a` takes real, the arrow sends i64", "upl.send"),
        (A.format('upl.send %x -> @C <"d"> : f64'), "`C` takes int, the arrow sends f64", "upl.send"),
        (A.format('upl.send %x -> @B::@s <"d,*"> : f64'), "carries no `*`", "upl.send"),
        (A.format('upl.send %x -> @R <"*"> : f64'), "carries no `*`", "upl.send"),
        (A.format('upl.send %x -> @R <"z"> : f64'), "unknown name `z` in the arrow's index", "upl.send"),
        (A.format('upl.send %x -> @R <"x"> : f64'), "unknown name `x` in the arrow's index", "upl.send"),
        (A.format('upl.send %x -> @R <"eta"> : f64'), "unknown name `eta`", "upl.send"),
        (A.format('upl.send %x -> @R <"M[0]"> : f64'), "unknown integer array `M`", "upl.send"),
        (A.format('upl.send %x -> @R <"d"> when <"n>0"> : f64'), "unknown name `n` in the arrow's condition", "upl.send"),
        (A.format('upl.send %x -> @R <"d"> count <"z"> : f64'), "unknown name `z` in the multiplicity", "upl.send"),
        (A.format('upl.send %x -> @R <"d"> for <"a in 0..b, b in 0..1"> : f64'), "`b` in a bound", "upl.send"),
        (A.format('upl.send %x -> @R <"d"> for <"k in 0..1"> : f64'), "iterator `k`", "upl.send"),
        (A.format('%a = upl.let "x" %x : f64'), "`x` is assigned twice", "upl.let"),
        (A.format('%a = upl.let "v" %x : f64 %b = upl.let "v" %x : f64'), "`v` is assigned twice", "upl.let"),
        (A.format("%a = upl.ref @N : i64"), "unknown constant or parameter `N`", "upl.ref"),
        (A.format("%a = upl.ref @K : f64"), "`K` is an integer", "upl.ref"),
        (A.format("%a = upl.lookup @K[%n] : i64"), "unknown constant array `K`", "upl.lookup"),
        (A.format("%a = upl.lookup @M[%n] : i64"), "`M` is real", "upl.lookup"),
        ('upl.node @A <"d"> <"x"> { ^bb0(%d: i64, %x: i64): }', "block arguments of `A`", "upl.node"),
        ('upl.node @A <"d"> <"x"> { ^bb0(%d: i64): }', "block arguments of `A`", "upl.node"),
        ('upl.node @A <"d,d"> <""> { ^bb0(%d: i64, %e: i64): }', "are called `d`", "upl.node"),
        ('upl.node @A <"d"> <"d"> { ^bb0(%d: i64, %e: f64): }', "are called `d`", "upl.node"),
        ('upl.node @A <"K"> <""> { ^bb0(%d: i64): }', "index field `K` of `A` has the name", "upl.node"),
        ('upl.node @A <"d"> <"x"> in <"d<x"> { ^bb0(%d: i64, %x: f64): }', "unknown name `x` in the declared", "upl.node"),
        ('upl.node @A <"d"> <"@(+) s[z]"> { ^bb0(%d: i64, %s: f64): }', "the count of `s`", "upl.node"),
        ('upl.node @A <"d"> <"@(+) s[m], m"> { ^bb0(%d: i64, %s: f64, %m: f64): }', "not another `int`", "upl.node"),
        ('upl.node @A <""> <"@(&&) s[#]"> { ^bb0(%s: f64): }', "`@(&&)` cannot gather", "upl.node"),
        ('upl.output @S <"i"> "int" in <"i<z">', "unknown name `z` in the declared domain of `S`", "upl.output"),
        ('upl.param @E where <"E>z">', "unknown name `z`", "upl.param"),
        ("upl.adjoint of @Q wrt [@B::@a]", "`of` names `Q`", "upl.adjoint"),
        ("upl.adjoint of @R wrt [@R]", "`wrt` names `R`", "upl.adjoint"),
        ("upl.adjoint of @R seed @B::@a wrt [@B::@a]", "the seed `B.a`", "upl.adjoint"),
        ("upl.adjoint of @R wrt [@B::@a] into [@B::@a, @B::@s]", "one input for each", "upl.adjoint"),
    ],
)  # fmt: skip
def test_faults(text: str, message: str, culprit: str) -> None:
    made = module(text)
    with pytest.raises(RuleError) as caught:
        made.verify()
    assert message in str(caught.value)
    assert caught.value.culprit.name == culprit
