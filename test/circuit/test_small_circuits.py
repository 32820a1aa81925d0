"""Circuits of f16, bf16 and fixed point: every output bit, every value that every site reads, every clock, against plain
evaluation of the equations by the reference's rationals; and against the interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from circuit.circuits import Case, Plain, Text, data, plain, read
from small.pointwise import bits, pointwise
from xdsl.dialects import math
from xdsl.ir import Operation

import upl_mlir as upl
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.engines.circuit.engine import run
from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.engines.reference.values import COMPUTE, Form, comparison, computed, fitted, named
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.numbers.words import from_words
from upl_mlir.passes.circuit.ir import write
from upl_mlir.passes.circuit.plan import Plan, cycles
from upl_mlir.passes.circuit.prove import proofs
from upl_mlir.passes.loops.terms import Apply, Fold, Number

BODY = pointwise("body", "P Q", """
  c: bool = a*b > 0.1 || a <= -b
  p = (-a/b + abs(b)*0.3)/3 + 4*a - b/8 - (-2)*b + c*a
  q = a > b ? a**2 - b : min(a, -b)/(-1.5) - max(a*0.25, 0.7)
  p -> P; q -> Q
""")
GATHERS = """
program gathers
param n >= 1
param m >= 1
input A<i,j> in 0<=i<n, 0<=j<m { -> G.s<i> }
output O<i>
node G<i> in 0<=i<n { in @(@op) s[m]; s -> O }
"""


def body(n: int) -> Text:
    """All operations that small types have in circuits."""
    return Text("body", (("n", n),), BODY)


def gathers(op: str, n: int, m: int) -> Text:
    """A gather."""
    return Text(f"gathers {op}", (("n", n), ("m", m)), GATHERS.replace("@op", op))


@dataclass
class SmallPlain(Plain):
    """Plain evaluation in a small type."""

    form: Form = Form.F64

    def literal(self, value: float) -> Any:
        """A real constant."""
        return fitted(value, self.form)

    def _form(self, kind: Kind) -> Form:
        return Form.BOOL if kind is Kind.BOOL else Form.INT if kind is Kind.INT else self.form

    def computed(self, t: Apply, values: list[Any]) -> Any:
        """What an operation gives; an exponent that is a constant is as it is written."""
        if isinstance(t.op, math.PowFOp) and isinstance(t.args[1], Number):
            values[1] = t.args[1].value
        return computed(type(t.op), comparison(t.op) or COMPUTE[type(t.op)], self._form(t.kind), *values)

    def joined(self, t: Fold, total: Any, value: Any) -> Any:
        """One more summand."""
        step: type[Operation] | None = t.gather.real
        assert step is not None
        return computed(step, COMPUTE[step], self.form, total, value)


def same(case: Case, lanes: int, real: str, special: tuple[float, ...] = (0.0, -0.0, 1e9, -1e9, 1.0)) -> None:
    """Three runs without a reset, and the same with ports that wait at random."""
    loops, plan = case.planned(lanes, real)
    form, simulation = named(real), Simulation(Circuit(plan, watched=True))
    inputs = [{n: a.astype(np.float64) for n, a in data(plan, seed, special).items()} for seed in range(3)]
    rounded = [{n: np.vectorize(lambda x: fitted(float(x), form))(a) for n, a in arrays.items()} for arrays in inputs]
    values = [plain(loops, plan, arrays, lambda *more: SmallPlain(*more, form=form)) for arrays in rounded]
    interpreter = upl.compile(case.program, real=real)
    room = 3 * max(p.nest.instances for p in plan.parts)
    found, streamed = run(simulation, inputs, watched=room)
    for f, v, arrays in zip(found, values, inputs, strict=True):
        wanted, same_as = v.outputs(plan), interpreter(**arrays, **case.params)
        for name, array in f.items():
            np.testing.assert_array_equal(bits(array), bits(wanted[name]), err_msg=name)
            np.testing.assert_array_equal(bits(array), bits(same_as[name]).reshape(array.shape), err_msg=name)
    assert streamed.cycles == cycles(plan, 3)
    for probe, words in zip(simulation.circuit.probes, streamed.watched, strict=True):
        reads = [w for v in values for w in read(plan.parts[probe.part], v, probe.site, probe.lane)]
        np.testing.assert_array_equal(bits(from_words(words, form.small)), bits(reads), err_msg=probe.site.array)
    held, slow = run(simulation, inputs, hold_in=60, hold_out=60, seed=lanes)
    assert slow.cycles >= streamed.cycles
    for f, h in zip(found, held, strict=True):
        for name, array in f.items():
            np.testing.assert_array_equal(bits(array), bits(h[name]))


REALS = ("q8.8", "q4.14", "f16", "bf16", "q12.20")
SQUARE = Case("matmul", (("m", 4), ("n", 4), ("r", 4)))
DEEP = Case("matmul", (("m", 2), ("n", 3), ("r", 5)))
MATMUL, JACOBI, WAVE, FIR = (
    Case("matmul", (("m", 4), ("n", 5), ("r", 3))), Case("jacobi1d", (("T", 2), ("n", 6))),
    Case("wave", (("T", 3), ("n", 7))), Case("fir", (("K", 3), ("n", 7))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("case", "lanes", "real"), [(MATMUL, 2, "q4.14"), (JACOBI, 3, "f16"), (body(20), 1, "q8.8"), (body(20), 1, "bf16")],
    ids=str,
)
def test_a_small_circuit(case: Case, lanes: int, real: str) -> None:
    same(case, lanes, real)


def test_a_running_sum_takes_a_summand_in_each_slot() -> None:
    """In fixed point the last iterator is the innermost loop: a lane keeps no sums but that in its register, and one word
    until its turn; its operands are dealt to it."""
    _, plan = SQUARE.planned(4, "q4.14")
    (part,), (out,) = plan.parts, plan.outputs
    assert part.nest.order[-1] in part.process.sums and part.nest.slots == 16
    assert [k.lengths for links in part.links.values() for k in links] == [(0,)] * 4
    assert (out.depth, out.pace, out.wait) == (1, 4, 4)
    assert [n.kind for n in part.process.body.nodes] == ["previous", "read", "read", "product", "sum"]
    assert {f.dealt for i in plan.inputs for f in i.feeds if not f.shared} == {True}


def test_lanes_take_turns_as_their_words_come() -> None:
    """Words that come five slots apart leave as far apart, so each lane keeps one."""
    loops, plan = DEEP.planned(2, "q4.14")
    (out,) = plan.outputs
    assert (out.depth, out.pace) == (1, 5)
    assert "depth 1 pace 5" in str(write(loops, plan))
    assert [str(p) for p in proofs(plan) if not p.holds] == []


NOT_FUSED = """
program p
input A<i,j> in 0<=i<3, 0<=j<4 { -> F.a<i,j> }
output O<i>
node F<i,j> in 0<=i<3, 0<=j<4 { in a; @what -> G.s<i> }
node G<i> in 0<=i<3 { in @(+) s[4]; -> O }
"""


def kinds(plan: Plan) -> list[str]:
    return [n.kind for p in plan.parts for n in p.process.body.nodes if n.kind not in ("read", "constant", "previous")]


@pytest.mark.parametrize(
    ("what", "found"),
    [("a*a", ["product", "sum"]), ("a + a*a", ["mul", "add", "sum"]), ("a", ["sum"])],
)
def test_what_a_running_sum_takes(what: str, found: list[str]) -> None:
    """A product that is rounded by the sum, if nothing else wants it."""
    case = Text(what, (), NOT_FUSED.replace("@what", what))
    assert kinds(case.planned(1, "q4.14")[1]) == found
    same(case, 1, "q4.14")


MORE = [
    *((case, lanes, real) for case in (MATMUL, JACOBI, WAVE, FIR) for lanes in (1, 3) for real in REALS),
    *((case, 4, real) for case in (Case("matmul", (("m", 9), ("n", 6), ("r", 11))), Case("jacobi1d", (("T", 4), ("n", 21))),
                                   Case("fir", (("K", 8), ("n", 40)))) for real in REALS),
    *((body(n), 1, real) for n in (1, 60) for real in (*REALS, "q1.17", "q2.30", "q18.0")),
    *((gathers(op, 3, 5), 1, real) for op in ("min", "max", "*", "+") for real in REALS),
]  # fmt: skip


@pytest.mark.parametrize(("case", "lanes", "real"), MORE, ids=str)
def test_more_small_circuits(case: Case, lanes: int, real: str) -> None:
    same(case, lanes, real)


@pytest.mark.parametrize(("real", "lanes"), [("q4.14", 2), ("f16", 2)])
def test_a_gradient(real: str, lanes: int) -> None:
    p = upl.vjp(upl.load("examples/jacobi1d.upl"), of="B", wrt=["A"])
    rng = np.random.default_rng(7)
    given = {"A": rng.normal(size=9), "d_B": rng.normal(size=9)}
    wanted = upl.compile(p, real=real)(**given, T=3)
    got = upl.compile(p, "circuit", real=real, lanes=lanes)(**given, T=3)
    for name in wanted:
        np.testing.assert_array_equal(bits(got[name]), bits(wanted[name]))


def test_a_text_names_the_type() -> None:
    """What `lower-circuit` writes is read back with its type."""
    from upl_mlir.passes.circuit.ir import read as read_circuit

    loops, plan = MATMUL.planned(2, "q4.14")
    again, other = read_circuit(write(loops, plan))
    assert again.small is Kind.of("q4.14") and other.numbers.width == 18


@pytest.mark.parametrize(
    ("value", "real", "what"),
    [("sqrt(a)", "q4.12", "`math.sqrt` of q4.12"), ("exp(a)", "f16", "`math.exp` of f16"), ("exp(a)", "q4.12", "of q4.12")],
)
def test_what_has_no_unit_is_refused(value: str, real: str, what: str) -> None:
    p = upl.load(f"program p\ninput A<i> in 0<=i<4 {{ -> F.a }}\noutput O<i>\nnode F<i> {{ in a; {value} -> O }}")
    with pytest.raises(upl.UplError, match=f"UPL2002.*{what}") as e:
        upl.compile(p, "circuit", real=real)(A=np.ones(4))
    assert e.value.diagnostics[0].span is not None


def test_products_without_a_one_are_refused() -> None:
    with pytest.raises(upl.UplError, match=r"UPL2002.*gather of products of q1.15, which has no 1"):
        upl.compile(gathers("*", 2, 3).program, "circuit", real="q1.15")(A=np.ones((2, 3)))


def test_f64_is_refused() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1733.*circuits compute in f32, or in a small type"):
        upl.compile(MATMUL.program, "circuit", real="f64")
