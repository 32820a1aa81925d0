"""Names that the compiler invents, given to things of a program: it computes what it did."""

from __future__ import annotations

import pytest

from agreement.names import cases, difference

FOUND = (
    ("grid", "m", "L1"), ("grid", "m", "L4"), ("solve", "n", "L2"),  # loops: wrong numbers
    ("grid", "E", "status"), ("product", "A", "status"), ("product", "n", "status"),  # the last argument: wrong numbers
    ("grid", "E", "NULL"), ("grid", "E", "int64_t"), ("solve", "solve", "pow"), ("grid", "N", "y1"),  # C and its headers
    ("grid", "grid", "r_f64"), ("grid", "grid", "N"), ("grid", "grid", "double"),  # the function and its tables
    ("grid", "j", "d_B"), ("grid", "c", "d_u"), ("grid", "N", "d_u"), ("grid", "r", "d_u"),  # new fields, inputs
    ("rows", "w", "r"), ("rows", "b", "d"), ("rows", "m", "d"),  # inputs of nodes that a derivative adds: UPL1100
    ("product", "m", "self"), ("solve", "L", "self"), ("solve", "L", "out"), ("grid", "B", "out"),  # arguments of a call
)  # fmt: skip
"""What made a difference once."""


@pytest.mark.parametrize("case", FOUND, ids="-".join)
def test_names_that_meant_something_else(case):
    """Wrong numbers, C that does not compile, calls that fail."""
    assert difference(*case) is None


@pytest.mark.parametrize("case", list(cases(20)), ids="-".join)
def test_a_sample_of_all(case):
    """`python -m agreement.names` looks at as many as one likes."""
    assert difference(*case) is None
