"""Set-up of the tests of the token engine: a cache folder of their own, and the comparison with the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.interp.engine import Engine, RunResult
from upl_mlir.engines.token.engine import TokenEngine
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))  # for the package `agreement`
Outcome = RunResult | str


@pytest.fixture(autouse=True, scope="session")
def _own_cache(own_cache: Path) -> None:
    """No code of another version is found."""


@pytest.fixture
def quick_compiler() -> Iterator[None]:
    """Without optimisation: half the time, where many programs are compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "g++ -O0")
        yield


def outcome(engine: type[Engine] | type[TokenEngine], p: upl.Program, arrays: Mapping[str, Any],
            params: Mapping[str, int], options: Mapping[str, Any]) -> Outcome:  # fmt: skip
    """The result of a run, or the text of its errors."""
    try:
        bound = bind_parameters(p.op, arrays, params)
        dense = bind_arrays(p.op, host_ports(p.op, bound), arrays)
        return engine(p.op, bound, **options).run(dense)
    except upl.UplError as e:
        return str(e)


def compared(
    p: upl.Program, arrays: Mapping[str, Any], params: Mapping[str, int] | None = None, **options: Any
) -> Outcome:
    """The outcome on the token engine, after it was held to that on the interpreter: bits, counts, what waits, errors."""
    p = p.expanded().infer_domains()
    theirs, ours = (outcome(e, p, arrays, params or {}, options) for e in (Engine, TokenEngine))
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
        return ours
    assert ours.outputs.keys() == theirs.outputs.keys()
    for name, values in theirs.outputs.items():
        assert ours.outputs[name].dtype == values.dtype and ours.outputs[name].shape == values.shape
        assert np.array_equal(ours.outputs[name], values, equal_nan=values.dtype.kind == "f"), name
        assert np.array_equal(np.signbit(ours.outputs[name]), np.signbit(values)) or values.dtype.kind != "f"
    one, other = theirs.stats.to_dict(), ours.stats.to_dict()
    assert {k: v for k, v in other.items() if k not in ("engine", "seconds")} == {
        k: v for k, v in one.items() if k not in ("engine", "seconds")
    }
    assert other["engine"] == "token"
    assert sorted(map(repr, ours.waiting)) == sorted(map(repr, theirs.waiting))
    return ours


@pytest.fixture(scope="session")
def agree() -> Callable[..., Outcome]:
    """`compared`, for test modules."""
    return compared
