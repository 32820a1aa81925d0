"""Set-up shared by every pytest: hypothesis profiles, and the folders of the repository as fixtures.

Hypothesis is deterministic unless told otherwise: profile `ci` derives its examples from the test itself, so that a
run that passed here passes everywhere.  `HYPOTHESIS_PROFILE=explore make test` looks for new examples instead.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of the example programs and their data."""
    return ROOT / "examples"
