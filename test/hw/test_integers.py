"""Integers of the machine have 32 bits: what has more is refused, and what has no more is what other engines make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

WIDE_FIELD = """program wide
input X<i> in 4000000000<=i<=4000000003 { -> B.x }
output Y<i>
node B<i> { in x; x*i -> Y }
"""
BOTH_ENDS = """program ends
input X<i> in 8589934593<=i<=8589934594 { -> B.x }
input Y<i> in 1<=i<=2 { -> B.x }
output Z
node B<i> { in x; x*i #4 -> S.s<> }
node S { in @(+) s[4]; s -> Z }
"""
WIDE_CONSTANT = """program constant
const k = VALUE
input X<i>: int in 0<=i<2 { -> A }
output Y<i>: int
node A<i> { in x: int; max(x, k) -> Y }
"""
WIDE_ENTRY = """program entry
const N[0:1] = [4000000000, 1]
input X<i> in 0<=i<2 { -> A }
output Y<i>
node A<i> { in x; x*N[i] -> Y }
"""


@pytest.mark.parametrize(
    ("text", "inputs", "code", "message"),
    [
        (WIDE_FIELD, {"X": 4}, "UPL1731", "the field `i` of `B` has values from 4000000000 to 4000000003 in its 2 bits"),
        (BOTH_ENDS, {"X": 2, "Y": 2}, "UPL1710", "the field `i` of node `B` needs 34 bits, the machine has 31 for a field"),
        (WIDE_CONSTANT.replace("VALUE", "2147483648"), {"X": 2}, "UPL1731", "the constant 2147483648 does not fit"),
        (WIDE_CONSTANT.replace("VALUE", "-2147483649"), {"X": 2}, "UPL1731", "the constant -2147483649 does not fit"),
        (WIDE_ENTRY, {"X": 2}, "UPL1731", "an entry of `N` is 4000000000, which does not fit the machine's 32-bit integers"),
    ],
)
def test_what_needs_more_bits_is_refused(text: str, inputs: dict[str, int], code: str, message: str) -> None:
    """The machine read the lowest 32 bits, and went on."""
    with pytest.raises(upl.UplError) as caught:
        upl.compile(upl.load(text), engine="rtl")(**{name: np.ones(n) for name, n in inputs.items()})
    assert caught.value.diagnostics[0].code == code
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1])
def test_the_least_and_the_greatest_integer_fit(value: int) -> None:
    f = upl.compile(upl.load(WIDE_CONSTANT.replace("VALUE", str(value))), engine="rtl")
    assert f(X=np.array([-5, 7]))["Y"].tolist() == [max(-5, value), max(7, value)]


def test_an_index_that_is_only_passed_on_may_be_large() -> None:
    p = upl.load(WIDE_FIELD.replace("x*i", "2*x"))
    assert upl.compile(p, engine="rtl")(X=np.arange(4.0))["Y"].tolist() == [0, 2, 4, 6]


COUNTED = """program counted
input N<i>: int in 0<=i<4 { -> B.n }
input X<i,j> in 0<=i<4, 0<=j<2 { if i>=2: -> B.s<i> }
output Y<i>
node B<i> in 0<=i<4 { in n: int, @(+) s[n]; VALUE -> Y }
"""


@pytest.mark.parametrize("value", ["s", "s + n"])
def test_a_count_below_0_is_0(value: str) -> None:
    """LANGUAGE 3.2; the machine stopped, as it was to send a token with multiplicity 0 or less."""
    p, data = upl.load(COUNTED.replace("VALUE", value)), {"N": [-1, -(2**31), 2, 2], "X": np.arange(8.0).reshape(4, 2)}
    found = upl.compile(p, engine="rtl")(**data)["Y"]
    assert found.tolist() == upl.compile(p, engine="reference", real="f32")(**data)["Y"].tolist()
    assert not np.signbit(found[0]) or value == "s + n"


def test_powers_of_integers() -> None:
    """Of any constant exponent: products that are no larger than the power."""
    text = "program powers\ninput N<i>: int in 0<=i<5 { -> B.n }\n"
    names = [f"P{k}" for k in (0, 1, 2, 5, 30, 41)]
    text += "".join(f"output {name}<i>: int\n" for name in names)
    text += "node B<i> { in n: int; m = -1<=n<=1 ? n : 1; "
    text += "; ".join(f"{'m' if int(name[1:]) > 30 else 'n'}**{name[1:]} -> {name}" for name in names) + " }\n"
    p, n = upl.load(text), np.array([0, 1, -1, 2, -2])
    found: dict[str, Any] = upl.compile(p, engine="rtl")(N=n)
    for name in names:
        of = np.where(np.abs(n) <= 1, n, 1) if name == "P41" else n
        assert found[name].tolist() == (of ** int(name[1:])).tolist(), name


SENT = """program sent
const M = 0
input X<i> in 0<=i<2 { -> A }
output Y<i>
node A<i> { in x; #M -> B.x }
node B<i> { in x; x -> Y }
"""


def test_a_multiplicity_that_no_token_has(tmp_path: Path) -> None:
    """One below 1 is an error where the token is sent, one that is too large before; both were taken modulo 2**16."""
    with pytest.raises(upl.UplError, match="UPL1706") as caught:
        upl.compile(upl.load(SENT), engine="rtl")(X=np.ones(2))
    assert "A<0>: sends a token with a multiplicity that is below 1 or too large" in str(caught.value)
    for number in (65535, 65537):
        with pytest.raises(upl.UplError, match="UPL1710") as caught:
            upl.compile(upl.load(SENT, M=number), engine="rtl")(X=np.ones(2))
        assert f"an arrow of node `A` needs {number} as multiplicity, the machine has 65534" in str(caught.value)
    text = "program sums\ninput X<i> in 0<=i<17 { -> A }\noutput Y\nnode A<i> { in x; x -> B.s<> }\n"
    p = upl.load(text + "node B { in @(+) s[17]; s -> Y }\n")
    machine = tmp_path / "m.toml"
    machine.write_text("[token]\nmultiplicity_bits = 4\n")
    with pytest.raises(upl.UplError, match="UPL1710") as caught:
        upl.compile(p, engine="rtl", machine=machine)(X=np.ones(17))
    assert "set token.multiplicity_bits = 5 or more" in str(caught.value)
