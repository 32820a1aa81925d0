"""Random programs that a change is shown to after the quick tests: some of each campaign of `agreement.soak`, a test each.

`covered` and `score` name this file; a run of all tests does not find it, as `test_agreement.py` looks at such programs.
"""

from __future__ import annotations

import pytest
from agreement.campaign import Tally
from agreement.soak import CAMPAIGNS

PROGRAMS = {
    "native": 70, "wide": 40, "gradients": 40, "programs": 30, "decided": 25, "steps": 25, "conditions": 10,
    "circuit": 40, "chosen": 15, "ranks": 30, "machine": 20, "rare": 20,
}  # fmt: skip
"""How many of each campaign: more of those that come to more of the compiler."""
FIRST = 700_000
"""Their seeds; campaigns begin elsewhere."""


@pytest.mark.parametrize(("name", "seed"), [(name, FIRST + n) for name, count in PROGRAMS.items() for n in range(count)])
def test_a_program(name: str, seed: int) -> None:
    """All ways agree, as in a campaign."""
    tally = Tally()
    CAMPAIGNS[name].step(seed, tally)
    assert not tally.failures, tally.failures
