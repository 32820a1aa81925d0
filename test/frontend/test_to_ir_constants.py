"""Constants, parameters and their overrides from outside."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from xdsl.dialects.builtin import FloatAttr, IntegerAttr

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import ArrayOp, ConstOp, ParamOp, ProgramOp
from upl_mlir.dialects.upl.query import array_values, program_of
from upl_mlir.frontend.upl_text.declarations import Override
from upl_mlir.frontend.upl_text.load import load_text

REST = "\nnode A { in x; x -> R }\noutput R\n"


def program(text: str, **overrides: Override) -> ProgramOp:
    return program_of(load_text(text + REST, "c.upl", overrides))


def values(text: str, **overrides: Override) -> dict[str, object]:
    out: dict[str, object] = {}
    for op in program(text, **overrides).body.block.ops:
        if isinstance(op, ConstOp):
            value = op.value
            out[op.symbol] = value.value.data if isinstance(value, IntegerAttr) else cast("FloatAttr", value).value.data
        elif isinstance(op, ArrayOp):
            out[op.symbol] = (op.base.value.data, *array_values(op))
    return out


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2**62 + (2**62 - 1)", 2**63 - 1),
        ("-7 floordiv 2", -4),
        ("-7 mod 3", 2),
        ("7 ceildiv 2", 4),
        ("7/2", 3.5),
        ("4/2", 2.0),
        ("2**-1", 0.5),
        ("min(3, 1, 2) + max(1, 5)", 6),
        ("floor(2.7) + int(-2.7)", 0),
        ("sqrt(16.0)", 4.0),
        ("1 < 2 <= 2 ? 10 : 20", 10),
        ("!(1 == 1) || 2 != 2 ? 10 : 20", 20),
        ("N[2] + N[1]", 50),
        ("abs(-3)", 3),
        ("-1/0", float("-inf")),
        ("log(0)", float("-inf")),
        ("exp(1000)", float("inf")),
        ("sigmoid(0)", 0.5),
        ("min(1, 2.0)", 1.0),
    ],
)
def test_values(expression: str, value: object) -> None:
    found = values(f"const N[1:2] = [20, 30]\nconst c = {expression}")["c"]
    assert (found, type(found)) == (value, type(value))


def test_an_integer_constant_keeps_its_expression() -> None:
    ops = [
        op for op in program("const H = 7\nconst O = H-3+1\nconst P = 2*3").body.block.ops if isinstance(op, ConstOp)
    ]
    assert [str(op.expr.data) if op.expr else None for op in ops] == [None, "H-2", None]


def test_overrides_change_what_depends_on_them() -> None:
    text = "const K = 7\nconst L = K+1\nconst N[0:K-1] = [1,2,3,4,5,6,7]\nconst s = N[K-1]/2"
    assert values(text, K=2, N=[8, 9]) == {"K": 2, "L": 3, "N": (0, 8, 9), "s": 4.5}
    assert values(text, K=2, N=np.array([8, 9]))["N"] == (0, 8, 9)
    assert values(text, s=3)["s"] == 3.0


def test_a_bound_parameter_is_a_constant() -> None:
    found = program("param D >= K\nconst K = 3\nparam G", D=5)
    kinds = [(type(op), op.symbol) for op in found.body.block.ops if isinstance(op, ConstOp | ParamOp)]
    assert kinds == [(ConstOp, "D"), (ConstOp, "K"), (ParamOp, "G")]
    assert values("param F\nconst E = 2*F", F=4) == {"F": 4, "E": 8}


@pytest.mark.parametrize(
    ("text", "overrides", "code", "message", "help"),
    [
        ("const K = 7", {"k": 1}, "UPL1511", "no parameter or constant `k`", "`K`"),
        ("const KK = 7", {"KKK": 1}, "UPL1511", "no parameter or constant `KKK`", "`KK`"),
        ("const K = 7", {"A": 1}, "UPL1511", "`A` is a node", None),
        ("const K = 7", {"K": 1.5}, "UPL1512", "takes an integer, not 1.5", None),
        ("const K = 7", {"K": [1]}, "UPL1512", "takes an integer, not the list [1]", None),
        ("const K = 7", {"K": True}, "UPL1512", "takes an integer, not True", None),
        ("const K = 7", {"K": 2**63}, "UPL1512", "64 bits", None),
        ("const c = 0.5", {"c": "x"}, "UPL1512", "takes a number", None),
        ("const N[0:2] = [1,2,3]", {"N": 1}, "UPL1512", "it takes a list", "N=[…]"),
        ("const N[0:2] = [1,2,3]", {"N": [1, 2]}, "UPL1512", "given 2 values, but `N[0:2]` has 3", None),
        ("const N[0:2] = [1,2,3]", {"N": [1, 2, 0.5]}, "UPL1512", "takes an integer, not 0.5", None),
        (
            "const K = 3\nconst N[0:K-1] = [1,2,3]",
            {"K": 2},
            "UPL1111",
            "`N[0:K-1=1]` has 2 entries, 3 values",
            "give `N`",
        ),
        ("param D >= 2", {"D": 1}, "UPL1512", "`D` is 1, which contradicts `D>=2`", None),
        ("param T\nparam D <= T", {"D": 1}, "UPL1512", "while `T` is free", "bind `T`"),
    ],
)
def test_wrong_overrides(text: str, overrides: dict[str, Override], code: str, message: str, help: str | None) -> None:
    with pytest.raises(UplError) as caught:
        program(text, **overrides)
    (d,) = caught.value.diagnostics
    assert d.code == code and message in d.message, str(caught.value)
    assert help is None or (d.help and help in d.help), d.help
