"""Open gathers on the machine: they end by rank when nothing is under way, with what came, and say what is wrong."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false
# Amaranth's components are untyped.

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

import upl_mlir as upl
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.core.layouts import Dimensions, TokenKind, token_layout
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import BootToken, HostOutput, Input, Node, ProgramImage, layout_fields, pack
from upl_mlir.hw.machine import Host, Machine, Matching, Network, Organisation, Topology
from upl_mlir.hw.microcode import Instruction, Op, Send, ToHost, ValueType
from upl_mlir.hw.system.board import Answer, Board, Command, finished_layout, write_layout
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.placement import placement_writes
from upl_mlir.tools.upl_opt import main as upl_opt

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_board import Driver, results, split

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HASHED = Organisation.HASHED
MACHINES = {
    "one core": Machine(),
    "two cores": Machine(cores=2),
    "a mesh": Machine(cores=4, network=Network(topology=Topology.MESH), host=Host(ports=2)),
    "records spill": Machine(matching=Matching(capacity=4, ways=2)),
    "beside direct": Machine(matching=Matching(organisation=Organisation.DIRECT, beside=32, capacity=4096)),
}
STEPS = """program steps
param n >= 1
param T >= 1
input X<i> in 0<=i<n { -> S.s<0,i> }
input To<i>: int in 0<=i<n { -> Go.to<t,i> for t in 0..T-1 }
output Y<i> in 0<=i<n
node Go<t,i> { in to: int; to -> Move.to<t,i> }
node Move<t,i> { in x, to: int; x + 1 -> S.s<t+1,to> }
node S<t,i> in 0<=t<=T, 0<=i<n { in @(+) s[##]; if t<T: s -> Move.x<t,i>; if t==T: s -> Y<i> }
"""


def steps(x: Any, to: Any, rounds: int) -> Any:
    """What STEPS computes, by numpy."""
    for _ in range(rounds):
        new = np.zeros_like(x)
        np.add.at(new, to, x + 1)
        x = new
    return x


@pytest.mark.parametrize("name", MACHINES)
def test_steps(name: str) -> None:
    """Each step is a rank; places that nothing comes to have 0.  Small whole numbers: no order of summands rounds."""
    r = np.random.default_rng(1)
    x, to = r.integers(-8, 9, 7).astype(float), r.integers(0, 4, 7)
    f = upl.compile(upl.load(STEPS), engine="rtl", machine=MACHINES[name], T=5)
    np.testing.assert_array_equal(f(X=x, To=to)["Y"], steps(x, to, 5))


@pytest.mark.parametrize("cores", [1, 2])
def test_simulators_agree(cores: int) -> None:
    """In results and in cycles."""
    r = np.random.default_rng(2)
    x, to = r.integers(-8, 9, 5).astype(float), r.integers(0, 5, 5)
    cycles: set[int] = set()
    for simulator in ("compiled", "amaranth"):
        f = upl.compile(upl.load(STEPS), engine="rtl", machine=Machine(cores=cores), simulator=simulator, T=3)
        np.testing.assert_array_equal(f(X=x, To=to)["Y"], steps(x, to, 3))
        cycles.add(f.stats["cycles"])
    assert len(cycles) == 1


GATHERS = """program gathers
param n >= 1
input X<i> in 0<=i<n { {send} }
input K<i>: int in 0<=i<n { -> Go.k<i> }
output Y<i> in 0<=i<3
node Go<i> { in x: {type}, k: int; x -> G.s<k> }
node G<i> in 0<=i<3 { in @({op}) s[##]: {type}; {result} -> Y }
"""


@pytest.mark.parametrize(
    ("op", "type_", "empty"),
    [("+", "real", 0.0), ("*", "real", 1.0), ("min", "real", np.inf), ("max", "real", -np.inf),
     ("+", "int", 0), ("*", "int", 1), ("max", "int", -(2.0**31)), ("||", "bool", 0.0), ("&&", "bool", 1.0)],
)  # fmt: skip
def test_operators(op: str, type_: str, empty: float) -> None:
    """The sum at 0 has three summands, that at 1 one, that at 2 none."""
    to = {"real": "x", "int": "floor(x)", "bool": "x > 0"}[type_]
    text = (
        GATHERS.replace("{send}", f"{to} -> Go.x<i>")
        .replace("{type}", type_)
        .replace("{op}", op)
        .replace("x > 0", "X > 0")
    )
    text = text.replace("floor(x)", "floor(X)").replace("x -> Go", "X -> Go")
    text = text.replace("{result}", "s ? 1 : 0" if type_ == "bool" else "s")
    x, k = np.array([3.0, -2.0, 5.0, 4.0]), np.array([0, 0, 1, 0])
    p = upl.load(text)
    got = upl.compile(p, engine="rtl")(X=x, K=k)["Y"]
    if type_ == "int" and op == "max":  # the least integer has 32 bits here, 64 elsewhere
        np.testing.assert_array_equal(got, [4, 5, empty])
        return
    np.testing.assert_array_equal(got, upl.compile(p, engine="interp", real="f32")(X=x, K=k)["Y"])
    assert got[2] == empty


def test_zeros_keep_their_signs() -> None:
    """No summands give 0; a sum of -0 alone is -0.  So the token that says that a gather exists is no summand."""
    text = (
        GATHERS.replace("{send}", "X -> Go.x<i>")
        .replace("{type}", "real")
        .replace("{op}", "+")
        .replace("{result}", "1/s")
    )
    f = upl.compile(upl.load(text), engine="rtl")
    got = f(X=np.array([-0.0, -0.0, 0.0, -0.0]), K=np.array([0, 0, 1, 1]))["Y"]
    np.testing.assert_array_equal(got, [-np.inf, np.inf, np.inf])


UNDECLARED = """program undeclared
input X<i> in 0<=i<4 { -> Go.x<i> }
input K<i>: int in 0<=i<4 { -> Go.k<i> }
input B<i> in 0<=i<3 { -> G.b<2*i> }
output Y<i> in 0<=i<3
node Go<i> { in x, k: int; x -> G.s<2*k> }
node G<i> { in b, @(+) s[##], @(max) m[##]; b + s + max(m, -9) -> Y<i/2> }
"""


def test_tokens_of_other_inputs_tell_where_gathers_are() -> None:
    """No domain is declared: there is an instance where a token of `b` came, with both gathers, summands or not."""
    text = UNDECLARED.replace("i/2", "i floordiv 2")
    got = upl.compile(upl.load(text), engine="rtl")(X=np.ones(4), K=np.array([0, 0, 2, 0]), B=np.array([1.0, 2, 3]))[
        "Y"
    ]
    np.testing.assert_array_equal(got, [1 + 3 - 9, 2 - 9, 3 + 1 - 9])


def test_tokens_without_instances() -> None:
    """`##` tokens for an index that the target does not have do nothing, on the machine too."""
    p = upl.load(EXAMPLES / "sparse" / "lower_solve.upl")
    g = upl.vjp(p, of="X", wrt="B")
    arrays = {
        "V": np.ones((3, 2)), "Col": np.array([[0, 0], [0, 0], [1, 0]]), "Count": np.array([0, 1, 2]),
        "Diag": np.full(3, 2.0), "B": np.ones(3), "d_X": np.array([1.0, 2.0, 4.0]),
    }  # fmt: skip
    want = upl.compile(g, engine="interp", n=3, w=2)(**arrays)
    got = upl.compile(g, engine="rtl", n=3, w=2)(**arrays)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6)


# -- by beats and by hand ------------------------------------------------------------------------------------------------
F32 = ValueType.F32


def image(rank: int) -> ProgramImage:
    """Y<i> is the sum of what comes to S<i>, whose gather has that rank in each token; two of them exist from the start."""
    code = (Instruction(0, Op.INPUT, (), 0), Instruction(1, Op.FIELD, (), 0))
    node = Node("S", layout_fields([("i", 0, 3)]), (Input("s", F32, upl.dialects.upl.gathers.Gather.SUM, open=True),), code,
                (Send(ToHost(0), 0, (1,)),))  # fmt: skip
    return ProgramImage("beats", (node,), (HostOutput("Y", ("i",), F32),), (), (BootToken(0, 0, (0,), 0.0, rank),))


def test_nothing_ends_before_the_host_has_said_that_no_more_comes() -> None:
    """A slow host: long gaps between its tokens. And a second run begins with its ranks anew."""
    d = Dimensions(
        tag_bits=8, node_bits=2, sets=4, ways=2, spill_words=3, queue_words=16, contexts=4, code_words=64, send_words=16,
        table_words=16, network=True, closes=True,
    )  # fmt: skip
    s = System(d, 2, Topology.CROSSBAR)
    program = image(0)
    words = encode(program, d, [(0, 0, (0,), 1)])
    writes = [*words.writes, *placement_writes(program, Machine(cores=2), d, words)]
    load = [
        Command.WRITE | write_layout().const({"select": w.select, "address": w.address, "data": w.data}).as_bits() << 8
        for w in writes
    ]

    def beat(index: int, value: float) -> int:
        tag, _ = pack(program.nodes[0].fields, (index,), "")
        parts = {"kind": int(TokenKind.SUMMAND), "node": 0, "input": 0, "tag": tag, "multiplicity": 1,
                 "value": to_bits(value, F32)}  # fmt: skip
        return Command.TOKEN | token_layout(d).const(parts).as_bits() << 8

    runs = [[(n % 3, float(n)) for n in range(9)], [(0, 1.0), (3, 2.0), (0, 4.0)]]
    board = Board(s)
    driver = Driver(board, 3)

    async def bench(context: Any) -> None:
        await driver.send(context, load, until_last=False)
        for run in runs:
            beats = [b for i, value in run for b in (beat(i, value), *[Command.NOTHING] * 60)]
            await driver.send(context, [*beats, Command.END], until_last=True)

    simulator = Simulator(board)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    found = split(driver.beats)
    assert [run[-1] & 0xFF for run in found] == [Answer.FINISHED, Answer.FINISHED]
    for run, wanted in zip(found, ({0: 9.0, 1: 12.0, 2: 15.0}, {0: 5.0, 3: 2.0}), strict=True):
        bits = {i: np.uint32(v & 0xFFFFFFFF).view(np.float32) for i, v in results(s, words, run).items()}
        assert bits == wanted
        over: Any = finished_layout().from_bits(run[-1] >> 8 & (1 << 80) - 1)
        assert over.left == 0


TTM = """ttm.program @by_hand {
  ttm.output @Y <"i from 0 bits 2"> f32 in <"0<=i<2">
  ttm.node @X host <"i from 0 bits 2"> <"X: f32"> in <"0<=i<2"> {
  ^bb0(%i: i32, %X: f32):
    %r = arith.constant RANK : i32
    ttm.send %X -> @A::@s tag %i as "x" times %r : f32
  }
  ttm.node @A <"i from 0 bits 2"> <"@(+) s[##]: f32"> {
  ^bb0(%i: i32, %s: f32):
    %r = arith.constant 2 : i32
    ttm.send %s -> @B::@s tag %i as "x" times %r : f32
  }
  ttm.node @B <"i from 0 bits 2"> <"@(+) s[##]: f32"> {
  ^bb0(%i: i32, %s: f32):
    ttm.send %s -> @Y tag %i as "x" : f32
  }
}
"""


def test_a_program_by_hand() -> None:
    """Its ranks are its own."""
    got = upl.compile(upl.load(TTM.replace("RANK", "1")), engine="rtl")(X=np.array([1.0, 2.0]))["Y"]
    np.testing.assert_array_equal(got, [1.0, 2.0])


def test_a_summand_after_the_end() -> None:
    """A rank that is too high is found out when its way leads to one that has ended."""
    with pytest.raises(upl.UplError, match=r"UPL1705.*B\.s<\d>.*came after that open gather had ended"):
        upl.compile(upl.load(TTM.replace("RANK", "3")), engine="rtl")(X=np.array([1.0, 2.0]))


def test_summands_that_disagree_on_the_rank() -> None:
    text = TTM.replace("RANK", "1").replace("tag %i as \"x\" times %r : f32\n  }\n  ttm.node @A",
                                            'tag %z as "x" times %q : f32\n  }\n  ttm.node @A')  # fmt: skip
    text = text.replace(
        "    ttm.send %X", "    %z = arith.constant 0 : i32\n    %q = arith.addi %i, %r : i32\n    ttm.send %X"
    )
    with pytest.raises(upl.UplError, match=r"UPL1705.*A\.s<0>"):
        upl.compile(upl.load(text), engine="rtl")(X=np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            " times %r : f32\n  }\n  ttm.node @B",
            " : f32\n  }\n  ttm.node @B",
            "`B.s` is an open gather: its tokens say its rank",
        ),
        (
            '"i from 0 bits 2"> <"@(+) s[##]: f32"> {\n  ^bb0(%i: i32, %s: f32):\n    ttm.send %s -> @Y',
            '"i from 0 bits 2"> <"s[##]: f32"> {\n  ^bb0(%i: i32, %s: f32):\n    ttm.send %s -> @Y',
            "needs an operator",
        ),
        (
            "  ttm.node @A",
            "  ttm.boot @A::@s at array<i64: 0>\n  ttm.node @A",
            "`A.s` is an open gather: expected `rank`",
        ),
        ('@Y tag %i as "x" : f32', '@Y tag %i as "x" present : f32', "`Y` has no open gather here"),
    ],
)
def test_malformed_programs(old: str, new: str, told: str) -> None:
    text = TTM.replace("RANK", "1")
    assert text.count(old) == 1
    with pytest.raises(upl.UplError) as caught:
        upl.load(text.replace(old, new))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("matching", "told"),
    [
        (Matching(organisation=Organisation.CAM), 'organisation "cam" cannot tell'),
        (Matching(organisation=Organisation.DIRECT), "matching.beside = 64"),
        (Matching(open_gathers=False), "matching.open_gathers = false"),
    ],
)
def test_machines_without_them(matching: Matching, told: str) -> None:
    with pytest.raises(upl.UplError, match=r"UPL1732") as caught:
        upl.compile(upl.load(STEPS), engine="rtl", machine=Machine(matching=matching), T=2)(
            X=np.ones(2), To=np.array([0, 1])
        )
    assert told in str(caught.value)


NO_INPUT_TELLS = """program none
input A<i> in 0<=i<2 { #2 -> G.a<i,*> }
input B<j> in 0<=j<2 { #2 -> G.b<*,j> }
input K<i>: int in 0<=i<2 { -> Go.k<i> }
output Y<i,j> in 0<=i<2, 0<=j<2
node Go<i> { in k: int; 1 -> G.s<i,k> }
node G<i,j> { in a, b, @(+) s[##]; a + b + s -> Y<i,j> }
"""


def test_where_no_input_tells() -> None:
    """Every other input has `*` in its tokens, and no domain is declared."""
    given = {"A": np.ones(2), "B": np.array([2.0, 4.0]), "K": np.array([1, 1])}
    with pytest.raises(upl.UplError, match=r"UPL1732.*every input of `G` gets tokens with `\*`"):
        upl.compile(upl.load(NO_INPUT_TELLS), engine="rtl")(**given)
    declared = NO_INPUT_TELLS.replace("node G<i,j> {", "node G<i,j> in 0<=i<2, 0<=j<2 {")
    np.testing.assert_array_equal(upl.compile(upl.load(declared), engine="rtl")(**given)["Y"], [[3, 6], [3, 6]])


def test_the_hardware_in_verilog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the list where the program has open gathers, and else is what it was."""
    (tmp_path / "p.upl").write_text(STEPS)
    assert not upl_opt([str(tmp_path / "p.upl"), "-D", "n=2", "-D", "T=2", "--lower-hw", "-t", "verilog"])
    assert "host_over" in capsys.readouterr().out
    assert not upl_opt([str(EXAMPLES / "matmul.upl"), *"-D m=2 -D n=2 -D r=2".split(), "--lower-hw", "-t", "verilog"])
    assert "host_over" not in capsys.readouterr().out
