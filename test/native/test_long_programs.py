"""Programs far longer than Python's stack is deep: bodies of many operations, chains of many nodes."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl

LONG = 400


def body() -> str:
    lines = "\n".join(f"  v{i} = {'v' + str(i - 1) if i else 'x'}*0.75 + x" for i in range(LONG))
    return (
        "program long\nparam m >= 1\ninput X<i> in 0<=i<m { -> F.x<i> }\noutput Y<i>\n"
        f"node F<i> {{\n  in x\n{lines}\n  v{LONG - 1} -> Y\n}}\n"
    )


def chain() -> str:
    nodes = "\n".join(
        f"node N{i}<i> {{ in x; v = 0.5*x + {i}.25; v -> {f'N{i + 1}.x' if i + 1 < LONG // 4 else 'Y'} }}"
        for i in range(LONG // 4)
    )
    return f"program chain\nparam m >= 1\ninput X<i> in 0<=i<m {{ -> N0.x<i> }}\noutput Y<i>\n{nodes}\n"


@pytest.mark.parametrize("text", [body(), chain()], ids=["body", "chain"])
def test_a_long_program(text: str) -> None:
    program = upl.load(text)
    x = np.linspace(-1, 1, 5)
    wanted = upl.compile(program, gather="ordered")(X=x)["Y"]
    np.testing.assert_array_equal(upl.compile(program, engine="native", gather="ordered")(X=x)["Y"], wanted)
    np.testing.assert_allclose(upl.compile(program, engine="native")(X=x)["Y"], wanted, rtol=1e-12)
