"""A whole core: every operation and every form of sending against the model of the execution unit, programs against the
interpreter, both simulators against each other, and what stops a core."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.alu import Code
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.core.code.encode_node import FieldGuard, compile_node
from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.execute import Scalar, run_activation, to_bits
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, Table, layout_fields
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.microcode import Constant, FromRegister, Instruction, Loop, Op, Send, ToHost, ToNode, ValueType
from upl_mlir.hw.results import HostToken
from upl_mlir.hw.sim.compiled import available
from upl_mlir.hw.system.layouts import System

sys.path.insert(0, str(Path(__file__).resolve().parent))
from programs_bench import rows_of, same_as_the_interpreter, same_in_every_cycle, small

F32, I32, BOOL = ValueType.F32, ValueType.I32, ValueType.BOOL
SMALL = Machine(matching=Matching(organisation=Organisation.HASHED, capacity=64, spill_capacity=64))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

FLOATS = [0.0, -0.0, 1.0, -1.5, 2.25, 3e38, -3e38, 1e-40, float("inf"), float("nan"), 7.75, -0.3]
INTEGERS = [0, 1, -1, 2, -7, 30, -30, 12345, 7, -12345]

F_TO_F = [Op.ADD_F32, Op.SUB_F32, Op.MUL_F32, Op.DIV_F32, Op.MIN_F32, Op.MAX_F32]
F_TO_B = [Op.LT_F32, Op.LE_F32, Op.GT_F32, Op.GE_F32, Op.EQ_F32, Op.NE_F32]
F_ONE = [Op.NEG_F32, Op.SQRT_F32, Op.ABS_F32, Op.FLOOR_F32]
I_TO_I = [Op.ADD_I32, Op.SUB_I32, Op.MUL_I32, Op.FLOORDIV_I32, Op.CEILDIV_I32, Op.MOD_I32, Op.MIN_I32, Op.MAX_I32]
I_TO_B = [Op.LT_I32, Op.LE_I32, Op.GT_I32, Op.GE_I32, Op.EQ_I32, Op.NE_I32]
B_TO_B = [Op.AND_BOOL, Op.OR_BOOL, Op.XOR_BOOL]


def step(result: int, op: Op, *operands: int, immediate: float | None = None) -> Instruction:
    return Instruction(result, op, operands, immediate)


def operations(
    name: str, kind: ValueType, ops: list[tuple[Op, int, ValueType]], first: int
) -> tuple[Node, list[HostOutput]]:
    """A node with inputs a and b that sends the result of every operation to a host output of its own."""
    body = [step(0, Op.INPUT, immediate=0), step(1, Op.INPUT, immediate=1), step(2, Op.FIELD, immediate=0)]
    sends: list[Send] = []
    outputs: list[HostOutput] = []
    for n, (op, operands, type_) in enumerate(ops):
        body.append(step(3 + n, op, *range(operands)))
        sends.append(Send(ToHost(first + n), value=3 + n, index=(2,)))
        outputs.append(HostOutput(op.value, ("i",), type_))
    fields = layout_fields([("i", -5, 250)])
    return Node(name, fields, (Input("a", kind), Input("b", kind)), tuple(body), tuple(sends)), outputs


def same_as_the_model(image: ProgramImage, tokens: list[HostToken]) -> None:
    """Run on the RTL, and every activation by the model; all activations are those of nodes that get full tokens only."""
    values: dict[tuple[int, tuple[int, ...]], dict[int, Scalar]] = {}
    for t in tokens:
        index = tuple(i for i in t.index if i is not None)
        values.setdefault((t.node, index), {})[t.input] = t.value if not isinstance(t.value, float) else np.float32(t.value)
    wanted: dict[tuple[str, tuple[int, ...]], int] = {}
    for (node, index), found in values.items():
        for sent in run_activation(image, image.nodes[node], index, [found[n] for n in range(len(found))]):
            assert isinstance(sent.target, ToHost)
            output = image.outputs[sent.target.output]
            wanted[output.name, tuple(i for i in sent.index if i is not None)] = to_bits(sent.value, output.type)
    result = run_machine(image, SMALL, tokens, simulator="amaranth", max_cycles=100_000)
    types = {o.name: o.type for o in image.outputs}
    got = {(o.output, o.index): to_bits(o.value, types[o.output]) for o in result.outputs}
    assert got == wanted


def test_every_operation() -> None:
    f, f_out = operations("F", F32, [*((op, 2, F32) for op in F_TO_F), *((op, 2, BOOL) for op in F_TO_B),
                                     *((op, 1, F32) for op in F_ONE)], 0)  # fmt: skip
    more = [(Op.NEG_I32, 1, I32), (Op.ABS_I32, 1, I32), (Op.I32_TO_F32, 1, F32)]
    i, i_out = operations("I", I32, [*((op, 2, I32) for op in I_TO_I), *((op, 2, BOOL) for op in I_TO_B), *more], len(f_out))
    ones = [(Op.NOT_BOOL, 1, BOOL), (Op.BOOL_TO_I32, 1, I32), (Op.BOOL_TO_F32, 1, F32)]
    b, b_out = operations("B", BOOL, [*((op, 2, BOOL) for op in B_TO_B), *ones], len(f_out) + len(i_out))
    image = ProgramImage("operations", (f, i, b), (*f_out, *i_out, *b_out))
    tokens: list[HostToken] = []
    n = 0
    for number, values in enumerate((FLOATS, INTEGERS, [False, True])):
        for left in values:
            for right in values[n % 2 :: 1 if number == 2 else 3]:
                if number != 1 or (right != 0 and abs(left * right) < 2**31):
                    tokens += [HostToken(number, 0, (n - 5,), left), HostToken(number, 1, (n - 5,), right)]
                    n = (n + 1) % 256
        n = 0
    same_as_the_model(image, _limited(tokens))


def _limited(tokens: list[HostToken]) -> list[HostToken]:
    """At most 250 instances a node: their index has 8 bits."""
    return [t for t in tokens if t.index[0] is not None and t.index[0] < 245]


def test_conversion_to_integers() -> None:
    node = Node(
        "N", layout_fields([("i", 0, 15)]), (Input("a", F32),),
        (step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0), step(2, Op.F32_TO_I32, 0)),
        (Send(ToHost(0), value=2, index=(1,)),),
    )  # fmt: skip
    image = ProgramImage("convert", (node,), (HostOutput("Y", ("i",), I32),))
    values = [0.0, -0.0, 0.99, -0.99, 1.5, -2.5, 8388609.0, 2147483520.0, -2147483648.0, 1e-40, 16777216.0]
    same_as_the_model(image, [HostToken(0, 0, (n,), v) for n, v in enumerate(values)])


def test_constants_selection_and_tables() -> None:
    body = (
        step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0), step(2, Op.CONST_F32, immediate=2.5),
        step(3, Op.CONST_I32, immediate=3), step(4, Op.LT_I32, 1, 3), step(5, Op.MUL_F32, 2, 0),
        step(6, Op.SELECT, 4, 5, 2), step(7, Op.LDTAB, 1, immediate=0), step(8, Op.SUB_I32, 3, 1),
        step(9, Op.SUB_F32, 2, 6), step(10, Op.CONST_BOOL, immediate=True), step(11, Op.ADD_I32, 8, 3),
    )  # fmt: skip
    sends = tuple(Send(ToHost(n), value=register, index=(1,)) for n, register in enumerate((6, 7, 8, 9, 10, 2, 11)))
    outputs = tuple(HostOutput(f"Y{n}", ("i",), t) for n, t in enumerate((F32, I32, I32, F32, BOOL, F32, I32)))
    node = Node("N", layout_fields([("i", -3, 4)]), (Input("a", F32),), body, sends)
    table = Table("T", I32, (-3,), (8,), tuple(range(100, 108)))
    other = Table("U", I32, (0,), (2,), (7, 8))
    image = ProgramImage("selection", (node,), outputs, (table, other))
    same_as_the_model(image, [HostToken(0, 0, (i,), i * 0.5) for i in range(-3, 5)])


def test_loops_conditions_and_guards() -> None:
    """for i in 0..n, j in i..2 if (i + j) mod 2 = 1: value a + i to <f, i, 2*j - 1>, only where n is even."""
    body = (
        step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0), step(2, Op.CONST_I32, immediate=0),
        step(3, Op.CONST_I32, immediate=2), step(4, Op.MOD_I32, 1, 3), step(5, Op.EQ_I32, 4, 2),
    )  # fmt: skip
    nest = Send(
        ToHost(0), value=14, index=(1, 6, 12), guard=5,
        loops=(Loop(6, 2, 1), Loop(7, 6, 3)),
        condition_code=(step(8, Op.ADD_I32, 6, 7), step(9, Op.MOD_I32, 8, 3), step(10, Op.NE_I32, 9, 2)),
        predicate=10,
        code=(step(11, Op.ADD_I32, 7, 7), step(15, Op.CONST_I32, immediate=1), step(12, Op.SUB_I32, 11, 15),
              step(13, Op.I32_TO_F32, 6), step(14, Op.ADD_F32, 0, 13)),
    )  # fmt: skip
    plain = Send(ToHost(1), value=0, index=(1,), guard=5)
    node = Node("N", layout_fields([("n", 0, 7)]), (Input("a", F32),), body, (nest, plain))
    outputs = (HostOutput("Y", ("n", "i", "j"), F32), HostOutput("Z", ("n",), F32))
    image = ProgramImage("loops", (node,), outputs)
    same_as_the_model(image, [HostToken(0, 0, (n,), n * 0.5) for n in range(8)])


def test_guards_on_a_field() -> None:
    """Every comparison of n + 1 with a constant, from both sides, with constants inside and outside of what n can be; then
    one of an input, which no descriptor can do."""
    comparisons = (Op.LT_I32, Op.LE_I32, Op.GT_I32, Op.GE_I32, Op.EQ_I32, Op.NE_I32)
    body = [step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0), step(2, Op.CONST_I32, immediate=1),
            step(3, Op.ADD_I32, 1, 2)]  # fmt: skip
    sends: list[Send] = []
    for constant in (-9, -2, 0, 3, 9):
        body.append(step(len(body), Op.CONST_I32, immediate=constant))
        place = len(body) - 1
        for op in comparisons:
            for operands in ((3, place), (place, 3)):
                body.append(step(len(body), op, *operands))
                sends.append(Send(ToHost(len(sends)), value=0, index=(1,), guard=len(body) - 1))
    body.append(step(len(body), Op.GT_I32, 0, 3))
    sends.append(Send(ToHost(len(sends)), value=0, index=(1,), guard=len(body) - 1))
    node = Node("N", layout_fields([("n", -3, 4)]), (Input("a", I32),), tuple(body), tuple(sends))
    steps = compile_node(node, 65535).steps
    assert sum(s.code in (Code.LT_I32, Code.LE_I32, Code.EQ_I32, Code.NE_I32) for s in steps) == 1
    outputs = tuple(HostOutput(f"Y{n}", ("n",), I32) for n in range(len(sends)))
    same_as_the_model(ProgramImage("guards", (node,), outputs), [HostToken(0, 0, (n,), 3 * n) for n in range(-3, 5)])


def test_a_node_without_constants_is_one_instruction() -> None:
    """Link of the training program: its product, the multiplicity from the array of sizes, and all that it sends."""
    from upl_mlir.engines.rtl.engine import RtlEngine

    module = upl.load(EXAMPLES / "training.upl", D=1).expanded().infer_domains().module
    image = RtlEngine(module, {}, machine=None).image
    (one,) = compile_node(image.nodes[image.node("Link")], 65535).steps
    assert (one.code, len(one.sends), one.last) == (Code.MUL_F32, len(image.nodes[image.node("Link")].sends), True)
    assert one.sends[0].table is not None
    (only,) = compile_node(image.nodes[image.node("Res")], 65535).steps
    assert only.code is Code.SEND
    assert all(isinstance(send.guard, FieldGuard) for send in only.sends)


def test_what_is_sent_later_keeps_its_register() -> None:
    """Two products, both sent after the second one is made."""
    body = (
        step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0), step(2, Op.MUL_F32, 0, 0), step(3, Op.MUL_F32, 2, 0),
    )  # fmt: skip
    sends = (Send(ToHost(0), value=2, index=(1,)), Send(ToHost(1), value=3, index=(1,)))
    node = Node("N", layout_fields([("n", 0, 3)]), (Input("a", F32),), body, sends)
    image = ProgramImage("both", (node,), (HostOutput("Y", ("n",), F32), HostOutput("Z", ("n",), F32)))
    same_as_the_model(image, [HostToken(0, 0, (n,), n + 1.5) for n in range(4)])


def bad(op: Op, left: float, right: float, kind: ValueType = I32) -> str:
    node, outputs = operations("N", kind, [(op, 2 if op is not Op.F32_TO_I32 else 1, kind)], 0)
    image = ProgramImage("bad", (node,), tuple(outputs))
    with pytest.raises(UplError) as caught:
        run_machine(image, SMALL, [HostToken(0, 0, (1,), left), HostToken(0, 1, (1,), right)], simulator="amaranth")
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "left", "right", "kind", "text"),
    [
        (Op.ADD_I32, 2**31 - 1, 1, I32, "UPL1706]: N<1>: a result overflows"),
        (Op.MUL_I32, 1 << 16, 1 << 15, I32, "overflows"),
        (Op.FLOORDIV_I32, -(2**31), -1, I32, "overflows"),
        (Op.MOD_I32, 5, 0, I32, "integer division by 0"),
        (Op.F32_TO_I32, 3e9, 0.0, F32, "a real that has no 32-bit integer"),
    ],
)
def test_arithmetic_that_fails(op: Op, left: float, right: float, kind: ValueType, text: str) -> None:
    assert text in bad(op, left, right, kind)


def sending(send: Send, *code: Instruction, tables: tuple[Table, ...] = ()) -> str:
    node = Node("N", layout_fields([("i", 0, 7)]), (Input("a", F32),),
                (step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0), *code), (send,))  # fmt: skip
    other = Node("M", layout_fields([("i", 0, 3)]), (Input("x", F32), Input("y", F32)))
    image = ProgramImage("sending", (node, other), (HostOutput("Y", ("i",), F32),), tables)
    with pytest.raises(UplError) as caught:
        run_machine(image, SMALL, [HostToken(0, 0, (5,), 1.0)], simulator="amaranth")
    return str(caught.value)


def test_sending_that_fails() -> None:
    zero = step(2, Op.CONST_I32, immediate=0)
    nothing = step(3, Op.MUL_I32, 1, 2)
    assert "UPL1712]: N<5>: sends a token to an index" in sending(Send(ToNode(1, 0), 0, (1,)))
    times = Send(ToNode(1, 0), 0, (3,), FromRegister(3))
    assert "UPL1706]: N<5>: sends a token with a multiplicity" in sending(times, zero, nothing)
    load = step(3, Op.LDTAB, 1, immediate=0)
    table = Table("T", F32, (1,), (4,), (1.0, 2.0, 3.0, 4.0))
    assert "an index that is outside of its array" in sending(Send(ToHost(0), 3, (1,)), load, tables=(table,))


def test_programs_that_do_not_fit() -> None:
    mixed = (Send(ToNode(1, 0), 0, (None,), Constant(4)), Send(ToNode(1, 0), 0, (1,)))
    node = Node("N", layout_fields([("i", 0, 7)]), (Input("a", F32),),
                (step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0)), mixed)  # fmt: skip
    target = Node("M", layout_fields([("i", 0, 7)]), (Input("x", F32), Input("y", F32)))
    with pytest.raises(UplError, match=r"UPL1713.*`M.x` gets tokens with different"):
        encode(ProgramImage("mixed", (node, target)), Dimensions(), [])
    open_ = replace(node, sends=(mixed[0], replace(mixed[0], target=ToNode(1, 1))))
    with pytest.raises(UplError, match=r"UPL1704.*no input of node `M` gives the field `i`"):
        encode(ProgramImage("open", (open_, target)), Dimensions(), [])
    with pytest.raises(UplError, match=r"UPL1710.*needs 2 send descriptors, the core has 1"):
        encode(ProgramImage("big", (replace(node, sends=mixed[1:] * 2), target)), Dimensions(send_words=1), [])


def test_leftovers_are_named() -> None:
    node = Node("N", layout_fields([("i", 0, 7), ("j", 2, 5)]), (Input("a", F32), Input("b", F32)))
    with pytest.raises(UplError, match="2 tokens are stranded") as caught:
        run_machine(ProgramImage("left", (node,)), SMALL, [HostToken(0, 0, (3, None), 1.0, 4), HostToken(0, 1, (2, 5), 1.0)],
                    simulator="amaranth")  # fmt: skip
    assert "N.a<3,*> waits (for 4 activations) for input `b`" in str(caught.value)
    assert "N.b<2,5> waits for input `a`" in str(caught.value)


# ------------------------------------------------------------------------------------------------ programs, compiled

HASHED = '[matching]\norganisation = "hashed"\nspill_capacity = 1023\n'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "m.toml"
    path.write_text(HASHED)
    return path


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("perceptron", {"D": 2}),
        ("training", {"D": 2, "eta": 0.5}),
        ("floyd_warshall", {"n": 4}),  # gathers by min
        ("matmul", {"m": 3, "n": 4, "r": 2}),
        ("upsample", {"m": 3, "n": 4}),
    ],
)
def test_programs_give_what_the_interpreter_gives(machine: Path, name: str, constants: dict[str, float]) -> None:
    """On data where binary32 is exact: bit for bit, with the same firings."""
    program = upl.load(EXAMPLES / f"{name}.upl", **constants)
    stats = same_as_the_interpreter(program, machine)
    assert stats["simulator"] == ("compiled" if available() else "amaranth")
    assert 0 < stats["occupancy"]["mean"] <= stats["occupancy"]["peak"] == stats["peak_waiting"]
    assert all(0 <= share <= 1 for share in stats["utilisation"].values())


def test_both_simulators_agree_in_every_cycle(machine: Path) -> None:
    """The same checksum of everything at the units' ports in each of the first 2000 cycles, and the same report."""
    if not available():
        pytest.skip("no C++ compiler")
    from upl_mlir.engines.rtl.engine import RtlEngine

    program = upl.vjp(upl.load(EXAMPLES / "perceptron.upl", D=3), of="R", wrt=["W"])
    engine = RtlEngine(program.infer_domains().module, {}, machine=machine)
    arrays = {port: small(v.shape(), 2, 0) for port, v in program.inputs.items()}
    tokens = engine.inject(arrays)
    system = System.of(engine.machine)
    d = system.core
    words = encode(engine.image, d, [(t.node, t.input, t.index, t.multiplicity) for t in tokens])
    same_in_every_cycle(system, words.writes, rows_of(engine.image, tokens), 2000)
