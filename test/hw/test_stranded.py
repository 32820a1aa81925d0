"""What the report of stranded tokens says about each kind of leftover."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl import Gather
from upl_mlir.engines.rtl.observe.stranded import Leftover, stranded_error
from upl_mlir.hw.image import Input, Node, ProgramImage, layout_fields
from upl_mlir.hw.microcode import ValueType

F32 = ValueType.F32
NODE = Node(
    "N",
    layout_fields([("i", 0, 3), ("j", 0, 3)]),
    (Input("x", F32), Input("y", F32), Input("s", F32, Gather.SUM)),
)
IMAGE = ProgramImage("p", (NODE,))
X = Leftover(0, 0, (1, 2), 1)


@pytest.mark.parametrize(
    ("leftovers", "expected"),
    [
        ([X], "N.x<1,2> waits for input `y` and input `s`: they never came"),
        ([X, Leftover(0, 1, (1, None), 3)], "N.x<1,2> waits for input `s`: it never came"),
        ([X, Leftover(0, 1, (1, None), 3)], "N.y<1,*> waits (for 3 activations) for input `s`: it never came"),
        # The token of another row is no partner.
        ([X, Leftover(0, 1, (2, 2), 1)], "N.x<1,2> waits for input `y` and input `s`: they never came"),
        (
            [X, Leftover(0, 1, (1, 2), None), Leftover(0, 2, (1, 2), 2, 5)],
            "N.x<1,2> waits for input `s`, whose sum is incomplete: it never came",
        ),
        ([X, Leftover(0, 2, (1, 2), 2, 5)], "N.s<1,2> has 3 of 5 summands"),
        (
            [Leftover(0, 0, (1, 2), 2), Leftover(0, 1, (1, None), None), Leftover(0, 2, (1, 2), 1)],
            "N.x<1,2> is left over (for 2 activations): its multiplicity is larger than the number of activations",
        ),
    ],
)
def test_reasons(leftovers: list[Leftover], expected: str) -> None:
    assert expected in str(stranded_error(IMAGE, leftovers))


def test_unbounded_tokens_are_not_stranded() -> None:
    assert stranded_error(IMAGE, [Leftover(0, 1, (1, None), None)]) is None
    text = str(stranded_error(IMAGE, [X, Leftover(0, 1, (1, None), None)]))
    assert "1 token is stranded" in text
    assert "N.y" not in text


def test_a_long_list_is_cut() -> None:
    text = str(stranded_error(IMAGE, [X] * 25))
    assert "25 tokens are stranded" in text
    assert "and 5 more" in text


ALONE = """program alone
input X<i> in 0<=i<2 { TIMES -> B }
output Y<i>
node B<i> { in x; x -> Y }
"""


def test_what_is_left_of_a_token_that_fires_alone() -> None:
    """A node without other inputs; `##` counts nothing."""
    assert upl.compile(upl.load(ALONE.replace("TIMES", "##")), engine="rtl")(X=np.arange(2.0))["Y"].tolist() == [0, 1]
    with pytest.raises(upl.UplError, match="UPL1701") as caught:
        upl.compile(upl.load(ALONE.replace("TIMES", "#2")), engine="rtl")(X=np.arange(2.0))
    assert "2 tokens are stranded" in str(caught.value)
