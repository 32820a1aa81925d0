"""What becomes of bits that flip in the matching store, with and without parity: `python -m bench.faults [COUNT]`.

Prints the tables of docs/machine_simulation.md (organisation `hashed`) and docs/direct.md. A product of two 3 × 3 matrices,
its elements scaled by a third one: tokens with `*`, gathers, and records that two inputs share; on one core, of `hashed`
with 16 records in 2 ways, so that records go to the backing memory and come back.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np

import upl_mlir as upl
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.observe.faults import Campaign, table
from upl_mlir.hw.machine import Machine, Matching, Organisation, Token

PROGRAM = """\
program scaled_product
param n >= 1
input  A<i,k> in 0<=i<n, 0<=k<n { #n -> Mul.a<i,*,k> }
input  B<k,j> in 0<=k<n, 0<=j<n { #n -> Mul.b<*,j,k> }
input  S<i,j> in 0<=i<n, 0<=j<n { -> Acc.f }
output C<i,j>
node Mul<i,j,k> { in a, b; a*b -> Acc.s<i,j> }
node Acc<i,j>   { in f, @(+) s[n]; f*s -> C }
"""


def engine(
    parity: bool, size: int, organisation: Organisation = Organisation.HASHED
) -> tuple[RtlEngine, dict[str, np.ndarray]]:
    """The program on the small machine, and its inputs."""
    program = upl.load(PROGRAM, n=size).infer_domains()
    direct = organisation is Organisation.DIRECT  # which wants a lane for each field, and places for all
    machine = Machine(
        token=Token(tag_bits=24 if direct else 8, node_bits=2, multiplicity_bits=5, max_inputs=2),
        matching=Matching(
            organisation=organisation, capacity=32 if direct else 16, ways=2, spill_capacity=64, parity=parity,
            backing_latency_cycles=2, stages=1,
        ),
    )  # fmt: skip
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(v.shape()).astype(np.float32) for name, v in program.inputs.items()}
    return RtlEngine(program.module, {}, machine=machine), arrays


def main(count: int) -> None:
    """Both tables."""
    for organisation, parity in product((Organisation.HASHED, Organisation.DIRECT), (False, True)):
        made, arrays = engine(parity, 3, organisation)
        done = [0]

        def progress(_: object, done: list[int] = done) -> None:
            done[0] += 1
            print(f"\r{done[0]} of {count}", end="", file=sys.stderr)

        faults = Campaign(made, arrays).run(count, progress)
        print(f"\r{organisation.value}, matching.parity = {str(parity).lower()}\n\n{table(faults)}\n", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
