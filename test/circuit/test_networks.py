"""Circuits of several processes against the interpreter: every output bit, every value that every site reads, every clock.

Each program has three sizes and 1, 4 and 16 lanes; `make test` runs some of them, which have every kind of channel.
"""

from __future__ import annotations

from itertools import product

import pytest
from circuit.networks import GRADIENTS, LEARNING, NETS, SOLVERS, Net
from circuit.test_circuits import near_the_interpreter, same_as_the_interpreter

from upl_mlir.passes.circuit.ir import channel
from upl_mlir.passes.circuit.plan import at_sites
from upl_mlir.passes.circuit.prove import proofs

LANES = (1, 4, 16)
FEW = [
    ("transposed-4-6", 4), ("centred-4-6", 1), ("products-4", 4), ("scalar-4", 1), ("gradient jacobi1d-2-5", 4),
    ("floyd_warshall-5", 1), ("triangular_solve-5", 1),
]  # fmt: skip
"""What `make test` runs; the others are slow."""
ALL = [(net, lanes) for net in (*NETS, *GRADIENTS) for lanes in LANES]


def sample(found: list[Net]) -> list[tuple[Net, int]]:
    """The first size of each program with the fewest and the most lanes, the smallest one with one lane, the largest one
    with 4: a simulation is a minute of a compiler.  All others are planned and proved."""
    return [(net, lanes) for n, net in enumerate(found) for lanes in (LANES[::2], (1,), (4,))[n % 3]]


ALL += sample(SOLVERS)


@pytest.mark.parametrize(("net", "lanes"), [c for c in ALL if (str(c[0]), c[1]) not in FEW], ids=str)
def test_more_networks(net: Net, lanes: int) -> None:
    same_as_the_interpreter(net, lanes)


@pytest.mark.parametrize(("net", "lanes"), [c for c in ALL if (str(c[0]), c[1]) in FEW], ids=str)
def test_a_network_computes_as_the_interpreter(net: Net, lanes: int) -> None:
    same_as_the_interpreter(net, lanes)


@pytest.mark.parametrize(("net", "lanes"), sample(LEARNING), ids=str)
def test_a_network_that_learns(net: Net, lanes: int) -> None:
    near_the_interpreter(net, lanes)


def test_every_plan_is_proved_and_every_kind_of_channel_is_there() -> None:
    """Proofs know nothing of the code that made the plan; depths are those that they count."""
    kinds: set[str] = set()
    for net, lanes in product((*NETS, *GRADIENTS, *SOLVERS, *LEARNING), (1, 3, 16)):
        _, plan = net.planned(lanes)
        assert [str(p) for p in proofs(plan) if not p.holds] == [], (net, lanes)
        kinds |= {channel(plan, part, s)[0] for part, s in at_sites(plan)}
    assert kinds >= {"delay", "varying", "fifo", "sticky", "buffer", "window", "windows", "dealt"}


def test_a_loop_runs_down_where_values_come_from_later_iterations() -> None:
    _, plan = next(n for n in GRADIENTS if n.name == "gradient jacobi1d").planned(1)
    by_name = {p.array: p.nest for p in plan.parts}
    assert by_name["DU.d_u"].down == ("t",) == by_name["DMean:0"].down
    assert by_name["DU.d_u"].every[0] == by_name["DMean:0"].every[0]
