"""While a program is compiled, Python's collector waits longer; afterwards it is as it was."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from upl_mlir.host.collector import ALLOCATIONS, rarely_collecting


@pytest.fixture(autouse=True)
def thresholds() -> Generator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@rarely_collecting
def compiled(depth: int) -> int:
    if depth == 0:
        raise ValueError
    return gc.get_threshold()[0] if depth == 1 else compiled(depth - 1)


def test_thresholds_come_back() -> None:
    gc.set_threshold(123, 4, 5)
    assert compiled(1) == compiled(3) == ALLOCATIONS
    assert gc.get_threshold() == (123, 4, 5)


def test_thresholds_come_back_after_an_error() -> None:
    gc.set_threshold(123, 4, 5)
    with pytest.raises(ValueError):
        compiled(0)
    assert gc.get_threshold() == (123, 4, 5)


@pytest.mark.parametrize("own", [0, 10 * ALLOCATIONS])
def test_a_caller_who_collects_less_is_left_alone(own: int) -> None:
    gc.set_threshold(own)
    assert compiled(1) == own


def test_what_was_there_is_left_alone_for_the_time() -> None:
    @rarely_collecting
    def frozen() -> int:
        return gc.get_freeze_count()

    gc.unfreeze()  # the tests have frozen what was loaded
    try:
        assert frozen() > 1000
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()
    assert frozen() == gc.get_freeze_count()
