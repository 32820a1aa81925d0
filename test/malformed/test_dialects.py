"""Malformed programs of the machine (`ttm`) and of loops (`upl_loops`), by the command lines that read such files.

Each is a good file of ``test/Inputs`` with one change.  The answer is exit status 1 and an error with a code at the line
that was changed.  The dialect's own verifier gives it: `upl-opt FILE`, which does nothing else, says the same as a command
that lowers or runs the file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from malformed import inputs
from malformed.inputs import Input

ROWS, SCAN, PRODUCT = ((inputs.ROOT / "test" / "Inputs" / f"{n}.mlir").read_text() for n in ("rows", "scan", "product"))

MUL = '<"i from 1 bits 2, j from 1 bits 3"> <"a: f32, v: i32">'
SUM = '<"@(+) s: f32, @(+) n: i32">'
SEND = 'ttm.send %product -> @Sum::@s tag %i as "x" times %n : f32'
MACHINE = [
    # fields and inputs
    (MUL, '<"i from 1, j from 1 bits 3"> <"a: f32, v: i32">', "expected `NAME from BIAS bits WIDTH`, found `i from 1`"),
    (MUL, '<"i from 1 bits 99, j from 1 bits 3"> <"a: f32, v: i32">', "the field `i` has 99 bits"),
    (MUL, '<"i from 1 bits 2, i from 1 bits 3"> <"a: f32, v: i32">', "there are two fields `i`"),
    (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"a: f32, a: i32">', "there are two inputs `a`"),
    (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"a, v: i32">', r"expected `NAME: TYPE` or `@\(OPERATOR\) NAME: TYPE`"),
    (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"a: f64, v: i32">', "unknown type `f64`"),
    (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"">', "`Mul` has no input"),
    (SUM, '<"@(+) s: f32">', r"each field and input: expected \(i32, f32\), found \(i32, f32, i32\)"),
    (SUM, '<"@(avg) s: f32, @(+) n: i32">', r"unknown gather operator `avg`: expected one of \+, \*, min"),
    (SUM, '<"@(&&) s: f32, @(+) n: i32">', "`Sum.s` cannot gather f32 by `&&`"),
    ('<"A: f32">', '<"@(+) A: f32">', "the host input `A` has one input"),
    # domains, streams, tables
    ('<"V: i32"> in <"1<=j<=5">', '<"V: i32"> in <"1<=k<=5">', "`k` in `1<=k<=5` is no field here"),
    ('<"V: i32"> in <"1<=j<=5">', '<"V: i32"> in <"1<=j<=M[1]">', "there is no table `M`"),
    ('<"V: i32"> in <"1<=j<=5">', '<"V: i32"> in <"1<=j<=scale[1]">', "`scale`, whose entries are no integers"),
    ('streams <"i">', 'streams <"t">', "streams along `t`, which no node has"),
    ("array<f64: 0.5, 2.0> : f32", "array<i64: 1, 2> : f32", "the table `scale` of f32 is written as an array of f64"),
    ("array<i64: 1, 3, 2, 5>", "array<i64: 1, 3, 2, 5000000000>", "does not fit the machine's 32-bit integers"),
    # arrows
    (SEND, SEND.replace("@Sum::@s", "@Total::@s"), "there is no node `Total`"),
    (SEND, SEND.replace("@Sum::@s", "@Sum::@t"), "`Sum` has no input `t`: it has `s`, `n`"),
    (SEND, SEND.replace("@Sum::@s", "@Sum"), "`Sum` has no input ``"),
    (SEND, SEND.replace("@Sum::@s", "@A::@A"), "`A` is a host input"),
    (SEND, SEND.replace("@Sum::@s", "@Y::@s"), "`Y` is an output and has no inputs"),
    (SEND, SEND.replace('"x"', '"y"'), "the pattern `y` is of `x` and"),
    (SEND, SEND.replace('tag %i as "x"', 'tag %i, %j as "xx"'), "`Sum` has 1 fields, the pattern `xx` has 2"),
    (SEND, SEND.replace("tag %i", "tag %i, %j"), "the pattern `x` takes 1 from the tag, found 2 values"),
    (SEND, SEND.replace('tag %i as "x"', 'as "*"'), r"`Sum` takes no `\*`: its input gathers"),
    (SEND, SEND.replace("@Sum::@s", "@Sum::@n"), "`Sum` takes a value of type i32, found f32"),
    (SEND, SEND.replace("times %n", "times %n unbounded"), "a token that is unbounded has no multiplicity"),
    (SEND, SEND.replace("%n :", "%later :") + "\n%later = arith.constant 1 : i32", "used before it is computed"),
    ("ttm.send %A -> @Mul::@a tag %i, %j", "ttm.send %A -> @Y tag %i, %j", "sends to nodes only, `Y` is an output"),
    # code
    ("ttm.load @N[%i] : i32", "ttm.load @M[%i] : i32", "there is no table `M`"),
    ("ttm.load @scale[%odd] : f32\n", "ttm.load @N[%odd] : f32\n", "entries of `N` are of type i32, found f32"),
    ("ttm.send %n ->", "%x = arith.constant 2 : i64\nttm.send %n ->", "no values of type i64"),
    (SEND, "%bad = arith.andi %i, %j : i32\n" + SEND, "`arith.andi` is of i1 on the machine, found i32"),
    (SEND, "builtin.module {\n}\n" + SEND, "`builtin.module` cannot stand in a node"),
    (SEND, f'"ttm.for"(%i, %j) ({{\n^bb1():\n{SEND}\n}}) : (i32, i32) -> ()', "a loop has one iterator"),
    (
        "ttm.send %one -> @Sum::@n", "ttm.when %positive {\nttm.when %positive {\nttm.send %one -> @Sum::@n",
        "the machine has one guard outside of all loops",
    ),
    # the program
    ("ttm.output @Count", "ttm.boot @Mul::@a at array<i64: 1, 1>\nttm.output @Count", "`Mul.a` is no gather"),
    ("ttm.output @Count", "ttm.boot @Sum::@s at array<i64: 1, 1>\nttm.output @Count", "`Sum` has 1 fields, found 2"),
    ("ttm.output @Count", "ttm.boot @Sum::@s at array<i64: 9>\nttm.output @Count", "i = 9 does not fit in its 2 bits"),
    ("ttm.output @Count", "%c = arith.constant 1 : i32\nttm.output @Count", "`arith.constant` cannot stand"),
    ("@Y <\"i from 1 bits 2\"> f32", "@Y <\"i from 1 bits 2\"> f64", "the output `Y` is of type f64"),
    # text
    ("cmpf ogt", "cmpf bits", "Unknown comparison mnemonic: bits"),
    ("constant 2 : i32", f"constant 1{'0' * 30} : i32", "out of range for type i32"),
    (MUL, '<"i from 1 bits -2, j from 1 bits 3"> <"a: f32, v: i32">',
     "expected `NAME from BIAS bits WIDTH`, found `i from 1 bits -2`"),
    (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"@(+ a: f32, v: i32">',
     r"expected `NAME: TYPE` or `@\(OPERATOR\) NAME: TYPE`"),
]  # fmt: skip
"""What is replaced by what in the rows, and what is said of it."""

RUN = 'upl_loops.run @S1 at <"L1">'
FIRST = 'upl_loops.run @S0 at <"0">'
KEPT = ' kept <"0 from 0 size 2 mod 2">'
LOOPS = [
    ('@S1 at <"L1">', '@S9 at <"L1">', "there is no statement `S9`"),
    ('@S1 at <"L1">', '@S1 at <"L1,0">', "`S` has 1 fields, found 2"),
    ('@S1 at <"L1">', '@S1 at <"*">', "an index of `S` has no `\\*` here"),
    ('@S1 at <"L1">', '@S1 at <"L2">', "`L2` in `L2` is no name here"),
    ('for "L1"', 'for "n"', "`n` has a meaning here already"),
    ('from <"1"> to', 'from <""> to', "has a bound on each side"),
    ("writes @B", "writes @A", "`A` is an input"),
    ("writes @B", "writes @C", "there is no array `C`"),
    ("read @S <\"n-1\">", "read @T <\"n-1\">", "there is no array `T`"),
    ("read @S <\"n-1\">", "read @S <\"m-1\">", "`m` in `m-1` is no name here"),
    ("read @S <\"n-1\">", "read @S <\"n-1,0\">", "`S` has 1 fields, found 2"),
    ("0 from 0 size 2 mod 2", "1 from 0 size 2 mod 2", "no field number 1"),
    ("0 from 0 size 2 mod 2", "0 from 0 size 2 mod 0", "is no axis"),
    ("0 from 0 size 2 mod 2", "0 from 0 size 1 mod 2", "has not as many places as values are kept"),
    ("0 from 0 size 2 mod 2", "0 from 0", "expected `FIELD from LOWER size EXTENT"),
    ('"relaxed"', '"loose"', "expected one of ordered, relaxed"),
    ('f64 "input"', 'f64 "host"', "expected one of input, output, local"),
    ('where <"i == 0">', 'where <"i = 0">', "in `i = 0`"),
    ('where <"i == 0">', 'where <"i <= 0">', "expected `left >= right` or `left == right`"),
    ('where <"i == 0">', 'where <"P[i] == 0">', "there is no table `P`"),
    ("%2 = arith.addf", 'upl_loops.run @S0 at <"0">\n    %2 = arith.addf', "`upl_loops.run` cannot stand in a body"),
    ('kept <"0 from 0 size 2 mod 2">', 'kept <"0 from 0 size 2 mod 2"> private "L7"', "private to the loop `L7`"),
    # names
    ('@A <"i"> f64', '@A <"i,i"> f64', "`i` has a meaning here already"),
    ('@A <"i"> f64', '@A <"n"> f64', "`n` has a meaning here already"),
    ('read @A <"i">', 'read @A <"j">', "`j` in `j` is no name here"),
    ('in <"0<=i<n">', 'in <"0<=i<k">', "`k` in `.*` is no name here"),
    ('where <"n>=2">', 'where <"at>=2">', "`at` in `.*` is no name here"),
    ('where <"n>=2">', 'where <"N[1]>=2">', "there is no table `N`"),
    ('in <"0<=i<n">', 'in <"0<=i<N[1]">', "there is no table `N`"),
    # types and values
    ('@S <"i"> f64', '@S <"i"> f16', "`S` has elements of type f16"),
    ("%1 = upl_loops.read @A", "%1 = arith.addf %2, %2 : f64\n%3 = upl_loops.read @A",
     "`arith.addf` uses a value that is not computed before it"),
    # axes
    (KEPT, ' kept <"0 from 0 size 2 lead -1">', "unexpected `lead`"),
    (KEPT, ' kept <"0 from 0 size m">', "`m` in `m` is no name here"),
    ('"input" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && n >= i+1">]', '"input" [] kept <"0 from 0 size n">',
     "the host says how `A` is kept"),
    # schedules
    (RUN + "\n    }", RUN + "\n    }\n" + RUN, "`L1` in `L1` is no name here"),
    ("upl_loops.schedule {", RUN + "\nupl_loops.schedule {", "`upl_loops.run` cannot stand in a program of loops"),
    ("upl_loops.schedule {", f"upl_loops.schedule {{\n{FIRST}\n}}\nupl_loops.schedule {{",
     "a program has one schedule at most"),
    (RUN, "%0 = arith.constant 0.0 : f64", "`arith.constant` cannot stand in a schedule"),
    ('to <"n-1">', 'to <"*">', r"has no `\*` here"),
    ('where <"i == 0">', 'where <"i == 0 &&">', "i == 0 &&"),
    ('where <"n>=2">', 'where <"n>=">', "n>="),
]  # fmt: skip
"""The same of the running sums."""

CONTRACT = 'upl_loops.contract @S0 at <"*,*"> around <""> over <"i in 0..m-1; j in 0..n-1"> index <"i,j">'
(FACTORS,) = re.findall(r"upl_loops.product .*", PRODUCT)
CONTRACTIONS = [
    (CONTRACT, CONTRACT.replace("@S0", "@S9"), "there is no statement `S9`"),
    (CONTRACT, CONTRACT.replace('"*,*"', '"*"'), "`C` has 2 fields, found 1"),
    (CONTRACT, CONTRACT.replace("j in", "i in"), "`i` has a meaning here already"),
    (CONTRACT, CONTRACT.replace('index <"i,j">', 'index <"i,q">'), "`q` in `q` is no name here"),
    (CONTRACT, CONTRACT.replace('index <"i,j">', 'index <"i">'), "`C` has 2 fields, found 1"),
    (CONTRACT, CONTRACT.replace("0..m-1", "0.."), "0.."),
    (FACTORS, FACTORS.replace("[@A, @B]", "[@A, @D]"), "there is no array `D`"),
    (FACTORS, FACTORS.replace("[@A, @B]", "[@A]"), "a product has two factors"),
    (FACTORS, FACTORS.replace('<"i,k_1">, #upl.index', '<"i">, #upl.index', 1), "`A` has 2 fields, found 1"),
    (FACTORS, FACTORS.replace("k_1 in 0", "n in 0"), "`n` has a meaning here already|`k_1` in `k_1` is no name here"),
    (FACTORS, FACTORS + ' padded <"0">', "outside of limits"),
    (FACTORS, FACTORS + ' padded <"7"> limits <"0 in 0..m-1">', "factor number 0 or 1 is padded"),
    (FACTORS, FACTORS + ' padded <"0"> limits <"5 in 0..m-1">', "`A` has no index number 5"),
    (FACTORS, 'upl_loops.run @S0 at <"0,0">', "expected products"),
    ('upl_loops.fold "+"', 'upl_loops.fold "avg"', "expected a gather operator, found `avg`"),
    ('part <"k_1">', 'part <"k_1,k_1">', "`k_1` has a meaning here already"),
    ('part <"k_1">', 'part <"i">', "`i` has a meaning here already"),
    ("} plain {", "} {", "Expected 'plain'"),
    ('upl_loops.run @S0 at <"L1,L2">', 'upl_loops.run @S0 at <"L1,L3">', "`L3` in `L3` is no name here"),
    ('upl_loops.run @S0 at <"L1,L2">', FACTORS, "contract"),
]  # fmt: skip
"""The same of the matrix product."""

BODY = "^bb0(%i: i32, %s: f32, %n: i32):"
REALS = 'upl.array @c <"0"> to <"1"> from 0 : i64 = array<f64: 0.5, 1.5>'
NO_SUM = """writes @C where <""> {
    %9 = upl_loops.read @A <"i,0"> : f64
    upl_loops.yield %9 : f64
  }
  upl_loops.statement @S1 writes @C where"""
ELSEWHERE = [
    (ROWS, "ttm.node @Sum", "ttm.node @Mul", 'Redefinition of symbol "Mul"', 2),
    (ROWS, f'in <"1<=i<=4"> {{\n  {BODY}', f'in <"1<=i<=4">\n  {BODY}', "Expected region", 27),
    (ROWS, BODY, "", r"values used but not defined: \[%i, %s, %n\]", 0),
    (ROWS, "ttm.mod %i, %two", "ttm.mod %i, %three", r"values used but not defined: \[%three\]", 0),
    (SCAN, '@B <""> f64 "output"', '@A <""> f64 "output"', 'Redefinition of symbol "A"', 2),
    (SCAN, "statement @S1", "statement @S0", 'Redefinition of symbol "S0"', 2),
    (SCAN, '@A <"i"> : f64', '@A <"i"> : f32', "used with type f64, but .* f32", 9),
    (SCAN, 'read @S <"n-1"> : f64', 'index <"n">', "used with type f64, but .* i64", 19),
    (SCAN, "upl_loops.yield %2 : f64", "", "arith.addf terminates block", 14),
    (SCAN, "%0, %1 : f64", "%0, %9 : f64", r"values used but not defined: \[%9\]", 0),
    (SCAN.replace('read @S <"n-1">', 'read @S <"c">'), "upl_loops.array @A",
     "upl.const @c = 0.5 : f64\nupl_loops.array @A", "`c` in `c` is no name", 19),
    (SCAN.replace('read @S <"n-1">', 'read @S <"c[0]">'), "upl_loops.array @A",
     f"{REALS}\nupl_loops.array @A", "entries that are no integers", 19),
    (SCAN, "upl_loops.schedule {", "upl_loops.schedule", "Expected region", 22),
    (PRODUCT, FACTORS, "", "Region 'products' .* expected a single block", 22),
    (PRODUCT, "writes @C where", NO_SUM, "`S0` is no sum of products", 26),
]  # fmt: skip
"""Changes of which another line speaks (0: the file's end): a good file, the change, the message, and that line."""
LATER = [
    (KEPT, "", "UPL1831", "the program of loops has no place for `S`"),
    ('upl_loops.run @S2 at <"">', "", "UPL1830", ""),
    ('to <"n-1"> {', 'to <"n-2"> {', "UPL1830", ""),
    ('from <"1">', 'from <"0">', "UPL1830", ""),
    ('where <"n>=2">', "", "UPL1830", "was not written before"),
    ('where <"n>=2">', 'where <"n<=5">', "UPL1830", "was not written before"),
    ('upl_loops.run @S1 at <"L1">', 'upl_loops.run @S1 at <"n-L1">', "UPL1830", ""),
    ('read @A <"i"> : f64\n    %2', 'read @A <"i+1"> : f64\n    %2', "UPL1830", ""),
    ('where <"i >= 1 && n >= i+1"> {', 'where <"i >= 2 && n >= i+1"> {', "UPL1830", ""),
]  # fmt: skip
"""Changes of the running sums after which the text is a program, of which lowering finds that it is wrong."""

READS, LOWERS = ("upl-opt", "FILE"), ("upl-opt", "FILE", "--lower-loops", "-t", "c")
RUNS = ("upl", "run", "FILE", "--engine", "rtl", "--input", "V=[3,-1,2,1,-2]")


def changed(text: str, old: str, new: str) -> tuple[str, range]:
    """The text with a change, and the lines of it that the change touches."""
    assert old in text
    at = text.index(old)
    first = text[:at].count("\n") + 1
    return text[:at] + new + text[at + len(old) :], range(first, first + new.count("\n") + 1)


def refused(text: str, command: tuple[str, ...], folder: Path) -> tuple[int, str, str]:
    """The command ends with an error: its line, its code, and all that is said."""
    got = inputs.answer(Input("mlir", ".mlir", text.encode(), command), folder)
    assert got.fault() is None, (command, got)
    assert (got.status, got.out) == (1, ""), command
    found = re.match(rf"{re.escape(str(folder))}/f\.mlir:(\d+):\d+: error\[(UPL\d+)\]: ", got.err)
    assert found, got.err
    return int(found[1]), found[2], got.err


def of_dialect(text: str, lines: range, message: str, command: tuple[str, ...], folder: Path) -> None:
    """The reader or the dialect's verifier says it, at one of the lines."""
    line, code, said = refused(text, command, folder)
    assert line in lines, said
    assert code in ("UPL1002", "UPL1100")
    assert re.search(message, said), said


@pytest.mark.parametrize("command", [READS, RUNS], ids=" ".join)
@pytest.mark.parametrize(("old", "new", "message"), MACHINE)
def test_programs_of_the_machine(old: str, new: str, message: str, command: tuple[str, ...], tmp_path: Path) -> None:
    text, lines = changed(ROWS, old, new)
    if "ttm.when" in new:
        text = text.replace('as "x" times %n : i32', 'as "x" times %n : i32\n}\n}', 1)
    of_dialect(text, lines, message, command, tmp_path)


@pytest.mark.parametrize("command", [READS, LOWERS], ids=" ".join)
@pytest.mark.parametrize(
    ("good", "old", "new", "message"), [*((SCAN, *c) for c in LOOPS), *((PRODUCT, *c) for c in CONTRACTIONS)]
)
def test_programs_of_loops(good: str, old: str, new: str, message: str, command: tuple[str, ...], tmp_path: Path) -> None:
    of_dialect(*changed(good, old, new), message, command, tmp_path)


@pytest.mark.parametrize(("good", "old", "new", "message", "line"), ELSEWHERE)
def test_what_another_line_speaks_of(good: str, old: str, new: str, message: str, line: int, tmp_path: Path) -> None:
    text, _ = changed(good, old, new)
    line = line or text.count("\n") + 1
    for command in (READS, RUNS if good is ROWS else LOWERS):
        of_dialect(text, range(line, line + 1), message, command, tmp_path)


@pytest.mark.parametrize(("old", "new", "code", "message"), LATER)
def test_what_lowering_finds(old: str, new: str, code: str, message: str, tmp_path: Path) -> None:
    text, _ = changed(SCAN, old, new)
    assert inputs.answer(Input("mlir", ".mlir", text.encode(), READS), tmp_path).status == 0
    _, found, said = refused(text, LOWERS, tmp_path)
    assert found == code, said
    assert message in said


@pytest.mark.parametrize("command", [READS, LOWERS], ids=" ".join)
@pytest.mark.parametrize("text", [SCAN, PRODUCT], ids=["scan", "product"])
def test_without_a_change_nothing_is_refused(text: str, command: tuple[str, ...], tmp_path: Path) -> None:
    got = inputs.answer(Input("mlir", ".mlir", text.encode(), command), tmp_path)
    assert (got.status, got.err) == (0, "")
