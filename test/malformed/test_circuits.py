"""Malformed circuits (`ppn`), by the command lines that read such files: `upl-opt`, and what makes Verilog or proves.

Each is the good file ``test/Inputs/filter.mlir`` with one change.  The answer is exit status 1, nothing on the output,
and an error with a code at the line that was changed.  What the dialect's verifier knows, `upl-opt FILE` says, too; what
does not follow from the schedule is seen when the circuit is made.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from malformed import inputs
from malformed.inputs import Input
from malformed.test_dialects import changed, of_dialect, refused

FILTER = (inputs.ROOT / "test" / "Inputs" / "filter.mlir").read_text(encoding="utf-8")
READS, WRITES = ("upl-opt", "FILE"), ("upl-opt", "FILE", "-t", "verilog")
PROVES = ("upl", "check", "FILE", "--circuit")

OVER, ORDER = 'over <"i in 0..5, k_1 in 0..1">', 'order <"i,k_1">'
LINK, TABLE = '@Y.process to @Y.process at 13 "delay" depth 0', '@H_0 from @H to @Y.process of <"k_1">'
PORT = '@X "in" order <"i"> words 7 need <"loop 1: 1 x 2, 5 x 1">'
WRONG = [
    # the process
    ("computes @Y", "computes @Z", "`Z` is no array that the program computes"),
    ("computes @Y", "computes @X", "`X` is no array that the program computes"),
    (OVER, 'over <"i in 0..5, k_1 in 0-1">', "expected `FIELD in FIRST..LAST`, found `k_1 in 0-1`"),
    (OVER, 'over <"i in 5..0, k_1 in 0..1">', r"`i` has no value in 5..0"),
    (OVER, 'over <"i in 0..5, i in 0..1">', "expected the order of `i`, `i`, each once"),
    ("lanes 2", "lanes 0", "`lanes` is 0: expected 1 or more"),
    ("lanes 2", "lanes -2", "`lanes` is -2: expected 1 or more"),
    ("lanes 2", "lanes 3", "3 lanes are more than the values of `k_1`"),
    ('along "k_1"', 'along "j"', "the lanes lie along one of `i`, `k_1`, found `j`"),
    (ORDER, 'order <"i">', "expected the order of `i`, `k_1`, each once, found `i`"),
    (ORDER, 'order <"i,j">', "expected the order of `i`, `k_1`, each once, found `i`, `j`"),
    ('every <"1, 1">', 'every <"1">', "expected slots for 2 loops, found 1"),
    ('every <"1, 1">', 'every <"1, 0">', "an iteration of `k_1` takes 1 slots or more, found 0"),
    ('every <"1, 1">', 'every <"1, -1">', "expected a number, found `-1`"),
    ('every <"1, 1">', 'every <"2, 1">', "a run takes 12 slots or more, found 7"),
    ("skew 13", "skew -1", "`skew` is -1: expected 0 or more"),
    ("slots 7", "slots 0", "`slots` is 0: expected 1 or more"),
    # units
    ("latency 14", "latency -1", "`latency` is -1: expected 0 or more"),
    ("interval 1", "interval 0", "`interval` is 0: expected 1 or more"),
    ("bind @mul_0", "bind @mul_1", "no unit is called `mul_1`"),
    ("@mul_0 to @Y.process", "@mul_0 to @Y", "no process is called `Y`"),
    ("@Y.process at 14", "@Y.process at -14", "`at` is -14: expected 0 or more"),
    # channels
    (LINK, LINK.replace("@Y.process to", "@Z to"), "no port or process is called `Z`"),
    (LINK, LINK.replace('"delay"', '"pipe"'), "expected one of `delay`, .*, found `pipe`"),
    (LINK, LINK.replace("depth 0", "depth -1"), "`depth` is -1: expected 0 or more"),
    (TABLE, TABLE.replace("to @Y.process", "to @Y"), "no process is called `Y`"),
    (TABLE, TABLE.replace('of <"k_1">', ""), "an index into `H` is missing"),
    (TABLE, TABLE.replace('"k_1"', '"k_1,i"'), "`H` has 1 fields, found 2"),
    (TABLE, TABLE.replace('"k_1"', '"k_1+"'), "k_1"),
    # ports
    ('@X "in"', '@X "out"', "`X` is no host port of the program with the role `out`"),
    ('@X "in"', '@Z "in"', "no port or process is called `X`|`Z` is no host port"),
    (PORT, PORT.replace('order <"i">', 'order <"j">'), "expected the fields `i` in some order"),
    (PORT, PORT.replace('order <"i">', 'order <"i block">'), "expected the fields `i` in some order"),
    (PORT, PORT.replace('order <"i">', 'order <"i half">'), "expected `i`, `i block` or `i lane`, found `i half`"),
    (PORT, PORT.replace("words 7", "words 0"), "`words` is 0: expected 1 or more"),
    (PORT, PORT.replace("loop 1: ", ""), "expected `loop NUMBER: GROUPS x WORDS, …`"),
    (PORT, PORT.replace("1 x 2", "1 * 2"), r"expected `GROUPS x WORDS`, found `1 \* 2`"),
    # what stands in a circuit
    ("ppn.unit @mul_0", 'ppn.circuit @c {\n}\nppn.unit @mul_0', "expected a single block"),
    ("ppn.unit @mul_0", "%0 = arith.constant 1 : i32\nppn.unit @mul_0", "`arith.constant` cannot stand in a circuit"),
]  # fmt: skip
"""What is replaced by what, and what is said of it."""
ELSEWHERE = [
    ("ppn.unit @add_0", "ppn.unit @mul_0", 'Redefinition of symbol "mul_0"', 2),
    ('ppn.port @H "in" order <"k"> words 2 need <"loop 0: 1 x 2"> free <"loop 0: 1 x 2">', "",
     "no port or process is called `H`", 30),
    ("%2 : f32\n            upl_loops.yield %3", "%2 : f32\n            upl_loops.yield %7",
     "values used but not defined", 0),
]  # fmt: skip
"""Changes of which another line speaks (0: the file's end)."""
PROCESS = 21
LATER = [
    ("skew 13", "skew 12", "UPL2003", "a value is read 1 slots before it is there", PROCESS),
    ("slots 7", "slots 6", "UPL2010", "`slots` of `Y.process` is 6: 7 follows from the schedule", PROCESS),
    ("cycles 62", "cycles 61", "UPL2010", "`cycles` of `Y.process` is 61: 62 follows from the schedule", PROCESS),
    ("result 26", "result 25", "UPL2010", "`result` of `Y.process` is 25: 26 follows from the schedule", PROCESS),
    (OVER, 'over <"i in 0..4, k_1 in 0..1">', "UPL2010", "the process `Y` is over", PROCESS),
    ('"mul" latency 14 interval 1', '"mul" latency 14 interval 2', "UPL2010", "`interval` of `mul_0` is 2: 1 follows", 23),
    ('@mul_0 "mul"', '@mul_0 "div"', "UPL2010", "`operation` of `mul_0` is", 23),
    ("@mul_0 to @Y.process at 0", "@mul_0 to @Y.process at 1", "UPL2010", "of `mul_0` to `Y.process` is 1: 0 follows", 26),
    ('"delay" depth 0', '"varying" depth 0', "UPL2010", "`kind` of `Y_0` is", 28),
    ('"delay" depth 0', '"fifo" depth 0', "UPL2010", "`kind` of `Y_0` is", 28),
    ('"delay" depth 0', '"delay" depth 1', "UPL2010", "`depth` of `Y_0` is 1: 0 follows", 28),
    ("reads 6", "reads 5", "UPL2010", "`reads` of `Y_0` is 5: 6 follows", 28),
    ('of <"i+k_1">', 'of <"i">', "UPL2010", "`of` of `X_0` is", 29),
    ('"windows" depth 64', '"windows" depth 16', "UPL2010", "`depth` of `X_0` is 16: 64 follows", 29),
    ("words 7", "words 8", "UPL2010", "`words` of `X` is 8: 7 follows", 31),
    ('"loop 1: 1 x 2, 5 x 1"', '"loop 1: 1 x 1, 6 x 1"', "UPL2010", "`need` of `X` is", 31),
    ('free <"loop 1: 5 x 1, 1 x 2">', "", "UPL2010", "`free` of `X` is missing", 31),
    ("ppn.port @H", 'ppn.unit @div_0 "div" latency 9 interval 1\nppn.port @H', "UPL2010", "`div_0` has no place", 32),
    ("    ppn.bind @mul_0 to @Y.process at 0\n", "", "UPL2010", "`ppn.bind` of `mul_0` to `Y.process` is missing", PROCESS),
]  # fmt: skip
"""Changes after which the text is one of the dialect, but says what does not follow: code, message, line."""


@pytest.mark.parametrize("command", [READS, WRITES, PROVES], ids=" ".join)
@pytest.mark.parametrize(("old", "new", "message"), WRONG)
def test_what_is_no_circuit(old: str, new: str, message: str, command: tuple[str, ...], tmp_path: Path) -> None:
    text, lines = changed(FILTER, old, new)
    if new.startswith('@Z "in"'):
        lines = range(29, 32)
    of_dialect(text, lines, message, command, tmp_path)


@pytest.mark.parametrize(("old", "new", "message", "line"), ELSEWHERE)
def test_what_another_line_speaks_of(old: str, new: str, message: str, line: int, tmp_path: Path) -> None:
    text, _ = changed(FILTER, old, new)
    line = line or text.count("\n") + 1
    for command in (READS, WRITES):
        of_dialect(text, range(line, line + 1), message, command, tmp_path)


@pytest.mark.parametrize("command", [WRITES, PROVES], ids=" ".join)
@pytest.mark.parametrize(("old", "new", "code", "message", "line"), LATER)
def test_what_does_not_follow(
    old: str, new: str, code: str, message: str, line: int, command: tuple[str, ...], tmp_path: Path
) -> None:
    text, _ = changed(FILTER, old, new)
    assert inputs.answer(Input("mlir", ".mlir", text.encode(), READS), tmp_path).status == 0
    at, found, said = refused(text, command, tmp_path)
    assert (at, found) == (line, code), said
    assert message in said


@pytest.mark.parametrize("command", [READS, WRITES, PROVES], ids=" ".join)
def test_without_a_change_nothing_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    got = inputs.answer(Input("mlir", ".mlir", FILTER.encode(), command), tmp_path)
    assert (got.status, got.err) == (0, "")


@pytest.mark.parametrize("command", [WRITES, PROVES], ids=" ".join)
def test_two_circuits_are_one_too_many(command: tuple[str, ...], tmp_path: Path) -> None:
    (circuit,) = re.findall(r"^  ppn\.circuit.*^  }$", FILTER, re.S | re.M)
    text = FILTER.replace(circuit, circuit + "\n" + circuit.replace("@fir {", "@other {", 1))
    line, code, said = refused(text, command, tmp_path)
    assert (line, code) == (35, "UPL1101"), said
