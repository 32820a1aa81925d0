"""The interpreter's own tests, run on the token engine: matching, gathers, errors with their words, the perceptron.

The tests are those of `test/interp`, loaded a second time with `Engine` replaced.  What concerns the interpreter's Python
source or its traces is left out, and the tables of single operations, which `test_values.py` of this folder has at once.
"""

from __future__ import annotations

import pytest
from interp import again

from upl_mlir.engines.token.engine import TokenEngine

LEFT_OUT = {
    "test_trace_tells_every_firing_and_token", "test_no_text_of_the_program_is_in_the_source",
    "test_functions_of_one_real", "test_functions_of_two_reals", "test_functions_of_two_integers",
    "test_comparisons_of_reals", "test_every_row_of_the_table_is_tested",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("quick_compiler")
MODULES = ("test_errors", "test_gathers", "test_matching", "test_perceptron", "test_values")
TESTS = again.tests(TokenEngine, MODULES, LEFT_OUT)
globals().update(TESTS)


def test_they_are_all_there():
    assert len(TESTS) > 50
