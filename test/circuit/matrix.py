"""The whole matrix of circuits: every program of the tests, at its three sizes, on 1, 2, 4 and 16 lanes.

`PYTHONPATH=test python -m circuit.matrix [PART]` runs those whose name has PART in it; the tests run some of them, as each
takes some ten seconds of a compiler.  For each circuit: the proofs (depths are those that wait at once), every output bit,
every value that every site reads in its order, cycles as predicted, ports that wait at random.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial

from circuit.circuits import CASES, Case
from circuit.networks import GRADIENTS, LEARNING, NETS, SOLVERS
from circuit.test_circuits import LANES, near_the_interpreter, same_as_the_interpreter
from circuit.test_decided import same_as_the_interpreter as same_where_data_decide

from upl_mlir.passes.circuit.prove import proofs

SIZES = (1, 4, 16)
"""Of the programs that data decide."""


def proved(case: Case, lanes: int, compare: Callable[[Case, int], None]) -> None:
    """The plan's proofs hold, and its circuit computes what it should."""
    _, plan = case.planned(lanes)
    assert [str(p) for p in proofs(plan) if not p.holds] == []
    compare(case, lanes)


def matrix() -> Iterator[tuple[str, Callable[[], None]]]:
    """All circuits: a name, and what to run."""
    exact = [(case, same_as_the_interpreter) for case in (*CASES, *NETS, *GRADIENTS, *SOLVERS)]
    for case, compare in (*exact, *((case, near_the_interpreter) for case in LEARNING)):
        for lanes in LANES:
            yield f"{case}, lanes {lanes}", partial(proved, case, lanes, compare)
    for name in ("newton", "spmv"):
        for n in SIZES:
            for lanes in (x for x in LANES if x <= n):
                yield f"{name}-{n}, lanes {lanes}", partial(same_where_data_decide, name, n, lanes)


def main(wanted: str) -> int:
    """Run them; a line each, and how many failed."""
    ran = failed = 0
    for name, check in matrix():
        if wanted not in name:
            continue
        ran += 1
        try:
            check()
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name}", flush=True)
        else:
            print(f"equal {name}", flush=True)
    print(f"{ran} circuits, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main("".join(sys.argv[1:2])))
