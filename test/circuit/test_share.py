"""Units that processes use in turn: bits, reads and clocks as without, fewer units, and one operation in each at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest
from circuit.networks import Net
from circuit.test_circuits import near_the_interpreter
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.ppn import CircuitOp
from upl_mlir.dialects.verifying import verify
from upl_mlir.passes.circuit import placing
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.ir import read, write
from upl_mlir.passes.circuit.plan import Fixed, Plan, planned
from upl_mlir.passes.circuit.prove import proofs
from upl_mlir.passes.circuit.share import units_of
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.lower_to_circuit import planned_circuit
from upl_mlir.pipeline import new_context


@dataclass(frozen=True)
class Shared(Net):
    """A program whose products share an array of lanes."""

    def planned(self, lanes: int) -> tuple[LoopProgram, Plan]:
        return planned_circuit(
            self.program.expanded().infer_domains().module.clone(), self.params, Wish(lanes, share=True)
        )


SMALL = Shared("iris_batch", (("D", 4),), (4, 5, 3))
LARGE = Shared("iris_batch", (("D", 8),), (12, 20, 10))
PRODUCTS = [Shared("products", (("n", n),)) for n in (4, 16)]
CASES = [(net, lanes) for net in (SMALL, LARGE, *PRODUCTS, Shared("gradient matmul", (("m", 4), ("n", 5), ("r", 3))))
         for lanes in (1, 4, 16)]  # fmt: skip
FEW = [("products-4", 4)]


@pytest.mark.parametrize(("net", "lanes"), [c for c in CASES if (str(c[0]), c[1]) in FEW], ids=str)
def test_what_is_shared_computes_the_same(net: Shared, lanes: int) -> None:
    near_the_interpreter(net, lanes)


@pytest.mark.parametrize(("net", "lanes"), [c for c in CASES if (str(c[0]), c[1]) not in FEW], ids=str)
def test_more_that_is_shared(net: Shared, lanes: int) -> None:
    near_the_interpreter(net, lanes)


@pytest.mark.parametrize("real", ["q8.8", "f16"])
def test_more_that_is_shared_of_small_types(real: Literal["q8.8", "f16"]) -> None:
    """The interpreter's bits, in fixed point and in a small floating-point type."""
    rng = np.random.default_rng(1)
    given = {name: rng.uniform(-2, 2, (4, 4)) for name in "ABC"}
    p = PRODUCTS[0].program
    found = upl.compile(p, engine="circuit", real=real, lanes=4, share=True)(**given, n=4)["E"]
    np.testing.assert_array_equal(found, upl.compile(p, real=real, gather="ordered")(**given, n=4)["E"])


@pytest.mark.parametrize(("net", "lanes"), CASES, ids=str)
def test_one_operation_at_a_time(net: Shared, lanes: int) -> None:
    """The plan is proved, and read back from its text; each operation has a unit."""
    loops, plan = net.planned(lanes)
    assert [str(p) for p in proofs(plan) if not p.holds] == []
    units = units_of(plan.parts, plan.shared)
    operations = Counter(n.kind for p in plan.parts for n in p.process.body.nodes
                         if n.kind not in ("read", "constant", "previous"))  # fmt: skip
    assert sum((Counter(x.node.kind for x in u.uses) for u in units), Counter()) == operations
    assert {len(u.uses) for u in units if u.kind == "add"} >= {len(plan.shared[0])}
    text = str(ModuleOp([write(loops, plan)]))
    module = Parser(new_context(), text).parse_module()
    verify(module)
    (op,) = module.body.block.ops
    assert isinstance(op, CircuitOp)
    _, again = read(op)
    assert (set(again.shared), again.slots) == (set(plan.shared), plan.slots)
    assert str(ModuleOp([write(loops, again)])) == text


def test_what_computes_an_element_at_a_time_shares_one_lane() -> None:
    """Both updates of weights, the derivative of the activation and the error have one subtractor, beside the products."""
    _, plan = SMALL.planned(4)
    _, elements = plan.shared
    subtractions = [u for u in units_of(plan.parts, plan.shared) if u.kind == "sub"]
    assert [{plan.parts[x.part].array for x in u.uses} for u in subtractions] == [elements]
    assert len(elements) == 4 and all(p.nest.lanes == 1 for p in plan.parts if p.array in elements)


def test_a_process_that_begins_too_early_is_found() -> None:
    _, plan = SMALL.planned(4)
    (first, second, *_) = [p for p in plan.parts if p.array in plan.shared[0]]
    early = replace(second, nest=replace(second.nest, start=first.nest.start + first.nest.busy - 1))
    parts = tuple(early if p is second else p for p in plan.parts)
    wrong = [str(p) for p in proofs(replace(plan, parts=parts)) if p.claim == "has one operation at a time" and not p.holds]
    assert wrong
    assert second.process.name in wrong[0]


def test_a_text_cannot_let_them_meet() -> None:
    """Runs that follow too soon are made longer, which the text must say."""
    _, plan = SMALL.planned(4)
    nests = {p.array: replace(p.nest, slots=1) for p in plan.parts}
    orders = {o.name: o.order for o in (*plan.inputs, *plan.outputs)}
    again = planned(plan.network, Fixed(nests, orders, plan.shared), plan.units)
    assert again.slots == plan.slots
    late = max(plan.parts, key=lambda p: p.nest.start if p.array in plan.shared[0] else -1)
    nests[late.array] = replace(late.nest, start=0)
    with pytest.raises(UplError, match="UPL2003"):
        planned(plan.network, Fixed(nests, orders, plan.shared), plan.units)


def test_two_products_that_need_each_other_for_nothing_but_a_unit() -> None:
    """The sums of both updates have all that they read when the later one begins: only the unit keeps them apart."""
    _, plan = SMALL.planned(4)
    by_name = {p.array: p for p in plan.parts}
    one, other = by_name["W_out.1.sum0"], by_name["W_out.2.sum0"]
    at = max(one.nest.start, other.nest.start)
    nests = {p.array: replace(p.nest, start=at) if p in (one, other) else p.nest for p in plan.parts}
    later = {p.array: replace(nests[p.array], start=p.nest.start + plan.slots) for p in plan.parts if ".strips" in p.array
             or p.array in ("W_out.1", "W_out.2")}  # fmt: skip
    with pytest.raises(UplError, match="use a unit at the same time"):
        planned(plan.network, Fixed({**nests, **later}, {}, plan.shared), plan.units)


def test_nobody_waits_because_of_the_order_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update of one layer runs while what the other layer's update needs is on its way, and the first layer gives its
    sums in the order in which the second one takes them."""
    monkeypatch.setattr(placing, "MOST_TRIES", 0)
    text = LARGE.planned(16)[1]
    monkeypatch.undo()
    plan = LARGE.planned(16)[1]
    assert plan.slots < text.slots
    starts = {p.array: p.nest.start for p in plan.parts}
    assert starts["W_out.2.sum0"] < starts["W_out.1.sum0"]
    was, now = (next(p.nest.order for p in x.parts if p.array == "Res.r.2") for x in (text, plan))
    assert was[0] == "d" != now[0]


def test_words_are_kept_until_the_process_that_reads_last_has_read_them() -> None:
    """The weights are read by the first product and by the update, whose loops say when a word's place is free.  By the
    loops of the first product alone, all of them would be kept until the run ends, beside those of the next run."""
    plan = LARGE.planned(5)[1]
    weights = next(i for i in plan.inputs if i.name == "W.1")
    assert plan.parts[weights.by].process.name == "Sum.s.1"
    assert plan.parts[weights.until].process.name == "W_out.1.strips"
    assert weights.size < 2 * weights.words
    groups = sum(n for n, _ in weights.free.runs)
    early = replace(weights, free=replace(weights.free, runs=((1, weights.words), (groups - 1, 0))))
    wrong = replace(plan, inputs=tuple(early if i is weights else i for i in plan.inputs))
    refuted = [p for p in proofs(wrong) if not p.holds]
    assert [p.claim for p in refuted] == ["a word is kept until it is read"]


FIRST = """program first
input X<k> in 0<=k<4 { ## -> M.x<*,k> }
input W<i,k> in 0<=i<2, 0<=k<4 { -> M.w }
input V<i,k> in 0<=i<2, 0<=k<4 { -> Q.v<i,k> }
input A<i> in 0<=i<2 { -> U.a; -> O.a }
node M<i,k> { in x, w; x*w -> S.s<i> }
node Q<i,k> in 0<=i<2, 0<=k<4 { in v; v*v -> S2.s<i> }
node S<i> { in @(+) s[4]; s -> U.s }
node S2<i> { in @(+) s[4]; s -> Z }
node U<i> { in s, a; s*a -> Y }
node O<i> { in a; sqrt(a)*a -> R }
output Y<i> in 0<=i<2
output R<i> in 0<=i<2
output Z<i> in 0<=i<2
"""


def test_what_begins_first_may_use_a_unit_last() -> None:
    """`R` needs no sum, but a root before its product, and is placed behind `Y`, which waits for a sum."""
    p = upl.load(FIRST)
    _, plan = planned_circuit(p.infer_domains().module.clone(), {}, Wish(1, share=True))
    nests = {part.array: part.nest for part in plan.parts}
    assert nests["R"].start < nests["Y"].start
    assert all(proof.holds for proof in proofs(plan))
    rng = np.random.default_rng(1)
    given = {n: rng.integers(1, 9, port.shape()).astype(float) for n, port in p.inputs.items()}
    found = upl.compile(p, engine="circuit", share=True)(**given)
    right = upl.compile(p, engine="interp", real="f32", gather="ordered")(**given)
    for name, array in right.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
