"""Running sums of fixed point in units of their own: a summand in each slot.

    total = add(select(first: 0, previous), mul(a, b))    becomes    total = sum(previous, product(a, b)), first

In `sum` the choice costs no register, so a sum may take its next summand in the next slot.  `product` leaves its last
addition, that of the bit which rounds it, to the sum as its carry.  Results are the same, bit by bit: the rounded product
is in range, so the sum is rounded and held in range once (`hw/fp/saturating.py`).  Processes that share units keep theirs.
"""

from __future__ import annotations

from dataclasses import replace

from upl_mlir.passes.circuit.body import Body, Node, ordered
from upl_mlir.passes.circuit.numbers import Numbers
from upl_mlir.passes.circuit.process import Process


def fused(p: Process, numbers: Numbers) -> Process:
    """The process with its running sum in the form above, if it has that of the left side; else as it is."""
    total = p.body.total
    if numbers.fixed is None or total is None or total.kind != "add" or total.args[0].kind != "select":
        return p
    choice, summand = total.args
    begins = choice.args[0]
    if begins.kind != "constant" or begins.number != 0:
        return p
    if summand.kind == "mul" and sum(summand in n.args for n in p.body.nodes) == 1:
        summand = Node("product", summand.args, bits=numbers.width + 1)
    made = {total: Node("sum", (choice.args[1], summand), when=choice.when[:1])}
    for node in p.body.nodes:  # arguments come first
        args = tuple(made.get(a, a) for a in node.args)
        if node not in made and args != node.args:
            made[node] = replace(node, args=args)
    result = made.get(p.body.result, p.body.result)
    return replace(p, body=Body(result, ordered(result), made[total]))
