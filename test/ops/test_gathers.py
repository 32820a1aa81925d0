"""The rows of gather operators: each type on every engine against numpy, no summands included; derivatives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl import Gather, UplType

TYPES = {
    Gather.SUM: ("real", "int"), Gather.PRODUCT: ("real", "int"), Gather.MIN: ("real", "int"), Gather.MAX: ("real", "int"),
    Gather.AND: ("bool",), Gather.OR: ("bool",), Gather.PARITY: ("bool",),
}  # fmt: skip
NUMPY = {
    Gather.SUM: np.add, Gather.PRODUCT: np.multiply, Gather.MIN: np.minimum, Gather.MAX: np.maximum,
    Gather.AND: np.logical_and, Gather.OR: np.logical_or, Gather.PARITY: np.logical_xor,
}  # fmt: skip
CASES = [(g, t) for g, types in TYPES.items() for t in types]
BY_TYPE = {UplType.REAL: "real", UplType.INT: "integer", UplType.BOOL: "truth"}


def program(gather: Gather, type_: str) -> upl.Program:
    """Rows of a triangle: row i has i summands, the first none."""
    return upl.load(f"""program p
param N >= 1
input X<i,j>: {type_} in 0<=j<i<N {{ -> F.s<i> }}
output R<i>: {type_}
node F<i> in 0<=i<N {{ in @({gather.value}) s[i]: {type_}; s -> R }}
""")


def given(type_: str, n: int) -> Any:
    rng = np.random.default_rng(n)
    numbers = rng.integers(-3, 4, (n, n))
    return numbers > 0 if type_ == "bool" else numbers if type_ == "int" else numbers / 4


@pytest.mark.parametrize(("gather", "type_"), CASES, ids=lambda x: getattr(x, "name", x))
def test_an_operator_on_every_engine(gather: Gather, type_: str, tmp_path: Path) -> None:
    n, p = 6, program(gather, type_)
    x = given(type_, n)
    reference = upl.compile(p, engine="reference")(X=x[1:, :-1], N=n)["R"]
    np.testing.assert_array_equal(reference[1:], [NUMPY[gather].reduce(x[i, :i]) for i in range(1, n)])
    limits = {np.inf: 2**63 - 1, -np.inf: -(2**63)}
    assert reference[0] == (limits.get(gather.empty, gather.empty) if type_ == "int" else gather.empty)
    for engine in ("interp", "token", "native"):
        found = upl.compile(p, engine=engine, gather="ordered")(X=x[1:, :-1], N=n)["R"]
        np.testing.assert_array_equal(found, reference, err_msg=engine)
    for machine in ("hashed", "direct"):
        (tmp_path / "machine.toml").write_text(f'[matching]\norganisation = "{machine}"\n')
        found = upl.compile(p, engine="rtl", machine=tmp_path / "machine.toml")(X=x[1:, :-1], N=n)["R"]
        np.testing.assert_array_equal(found[1:], reference[1:], err_msg=machine)
        assert type_ == "int" or found[0] == reference[0]  # the machine's integers have 32 bits, and so their limits


def test_every_row_is_tried() -> None:
    assert list(TYPES) == list(Gather) == list(NUMPY)
    for gather, types in TYPES.items():
        assert types == tuple(t.value for t, name in BY_TYPE.items() if getattr(gather, name) is not None)


@pytest.mark.parametrize("gather", [g for g in Gather if not g.of_truths], ids=lambda g: g.name)
def test_an_operator_of_reals_has_its_derivatives(gather: Gather) -> None:
    text = f"""program p
input X<i> in 0<=i<4 {{ -> F.s<> }}
output L
node F {{ in @({gather.value}) s[4]; s*s -> L }}
"""
    upl.check_grads(upl.load(text), of="L", wrt="X", inputs={"X": np.array([0.5, 1.5, -0.7, 2.0])}, modes=("fwd", "rev"))


def test_neutral_values_change_nothing() -> None:
    """On reals -0.0 is what leaves a sum as it is."""
    samples = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf])
    for gather in (g for g in Gather if g.real is not None):
        out = NUMPY[gather](gather.neutral, samples)
        np.testing.assert_array_equal(out, samples)
        np.testing.assert_array_equal(np.signbit(out), np.signbit(samples))
