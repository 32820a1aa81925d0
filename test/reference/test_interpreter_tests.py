"""The interpreter's own tests, run on the reference: matching, gathers, errors with their codes, the perceptron, values.

The tests are those of `test/interp`, loaded a second time with `Engine` replaced.  What concerns the interpreter's Python
source or its traces is left out.
"""

from __future__ import annotations

from interp import again

from upl_mlir.engines.reference import Evaluator

LEFT_OUT = {"test_trace_tells_every_firing_and_token", "test_no_text_of_the_program_is_in_the_source"}
MODULES = ("test_errors", "test_gathers", "test_matching", "test_perceptron", "test_values")
TESTS = again.tests(Evaluator, MODULES, LEFT_OUT)
globals().update(TESTS)


def test_they_are_all_there():
    assert len(TESTS) > 50
