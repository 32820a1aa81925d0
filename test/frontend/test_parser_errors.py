"""What the parser says about malformed texts: code, line and column, message, suggestion, notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from upl_mlir.diagnostics import Diagnostic, UplError
from upl_mlir.frontend.upl_text import parse_expression, parse_file, parse_text

ITEMS = "expected `param`, `const`, `input`, `output`, `node` or `adjoint`"


def diagnosis(text: str) -> Diagnostic:
    """The one error of a text, which shows the line it is on."""
    with pytest.raises(UplError) as caught:
        parse_text(text, "t.upl")
    (found,) = caught.value.diagnostics
    assert found.span is not None and caught.value.sources.texts == {"t.upl": text}
    return found


PROGRAM_ERRORS = [
    # text; code; line:col; part of the message; part of the suggestion
    ("", "UPL1013", "1:1", "no program", "program NAME"),
    ("// only a comment\n\n", "UPL1013", "1:1", "no program", "program NAME"),
    ("program", "UPL1002", "1:8", "expected the name of the program, found the end of the text", ""),
    ("program p\nprogram q", "UPL1012", "2:1", "`program` stands once", ""),
    ("program p node A { }", "UPL1002", "1:11", "expected a new line or `;` after the name of the program", ""),
    ("nod A { }", "UPL1002", "1:1", f"{ITEMS}, found the name `nod`", "did you mean `node`?"),
    ("x = 3", "UPL1002", "1:1", ITEMS, "`const x = …`"),
    ("-> R", "UPL1012", "1:1", "`->` stands outside of every block", "in `{ }`"),
    ("}", "UPL1008", "1:1", "there is no open `{`", ""),
    ("node A { } }", "UPL1008", "1:12", "there is no open `{`", ""),
    ("node A { } node B { }", "UPL1002", "1:12", "expected a new line or `;`, found the reserved word `node`", ""),
    ("adjoint R wrt X", "UPL1002", "1:9", "expected `of`, found the name `R`", ""),
    ("adjoint of R", "UPL1002", "1:13", "expected `wrt`", ""),
    ("adjoint of A.x.y wrt B", "UPL1002", "1:15", "one `.` at most", "NODE.input"),
    ("adjoint of R wrt X\n-> A.b", "UPL1012", "2:1", "outside of every block", "on the line of its `wrt`"),
    ("param D = 5", "UPL1002", "1:9", "found `=`", "`const`"),
    ("param D in 3", "UPL1002", "1:9", "found the reserved word `in`", "param D >= 1"),
    ("param A, B", "UPL1002", "1:8", "found `,`", "one `param` for each"),
    ("const const = 3", "UPL1007", "1:7", "`const` is a reserved word", "choose another name"),
    ("const K == 3", "UPL1002", "1:9", "expected `=`, found `==`", "const K = …"),
    ("const K: int = 3", "UPL1002", "1:8", "expected `=`, found `:`", "type follows"),
    ("const K = [1]", "UPL1002", "1:11", "expected an expression, found `[`", "`const K[0:n-1] = […]`"),
    ("const N[7] = [1]", "UPL1002", "1:10", "expected `:` after the lower bound", "both bounds"),
    ("const N[0:1] = [1, 2", "UPL1008", "1:21", "expected `,` or `]`, found the end of the text", ""),
    ("const K = 1 2", "UPL1002", "1:13", "expected a new line or `;`, found the number `2`", ""),
    ("input X(i)", "UPL1002", "1:8", "found `(`", "`input X<i,j>`"),
    ("input X<1>", "UPL1002", "1:9", "expected a field name, found the number `1`", "after `in`"),
    ("input X<i+1>", "UPL1002", "1:10", "expected `,` or `>`, found `+`", ""),
    ("input X in 0<=i : f32", "UPL1002", "1:17", "found `:`", "before `in`"),
    ("input X { in s; -> R }", "UPL1012", "1:11", "holds only arrows", "inputs are declared in nodes"),
    ("input X { t = 3 }", "UPL1012", "1:11", "holds only arrows", "variables are assigned in nodes"),
    ("input X in i=0", "UPL1010", "1:13", "found `=`", "compare with `==`"),
    ("output R { -> X }", "UPL1012", "1:10", "an output has no block", ""),
    ("node in<i> { }", "UPL1007", "1:6", "expected the name of a node, but `in` is a reserved word", "`in_`"),
    ("node A", "UPL1002", "1:7", "expected `in` or `{`, found the end of the text", ""),
    ("node A: f32 { }", "UPL1002", "1:7", "found `:`", "its inputs have"),
    ("node A<i { in s }", "UPL1008", "1:10", "expected `,` or `>`, found `{`", ""),
    ("node A {\n in s", "UPL1008", "2:6", "expected a statement or `}`, found the end of the text", ""),
    ("node A {\n in s\nnode B { in t }", "UPL1008", "3:1", "found the reserved word `node`", ""),
    ("node A {\n x = (a\n}", "UPL1008", "3:1", "expected an operator or `)`, found `}`", ""),
    ("node A { input s }", "UPL1008", "1:10", "found the reserved word `input`", "declared with `in`"),
    ("node δ² { }", "UPL1003", "1:6", "`²` (U+00B2) cannot stand in a name", "letters"),
    ("node A\0 { }", "UPL1003", "1:7", "NUL byte", ""),
    ("node A { }\n/* open", "UPL1004", "2:1", "comment is never closed", "`*/`"),
    ("node A { \u00a0 }", "UPL1003", "1:10", "unexpected white space U+00A0", "ordinary space"),
    ("node A { \u200b }", "UPL1003", "1:10", "invisible character U+200B", "remove"),
    ("node A { \r }", "UPL1003", "1:10", "carriage return", "line feed"),
]

BODY_ERRORS = [
    # statements, on line 2 of the text; code; column; part of the message; part of the suggestion
    ("in real", "UPL1007", 4, "`real` is a reserved word", "`real_`"),
    ("in r s", "UPL1002", 6, "expected `,` or the end of the statement, found the name `s`", ""),
    ("in r: float", "UPL1002", 7, "expected a type (`real`, `f32`, `f64`, `int` or `bool`)", "did you mean `f32`?"),
    ("in r: boole", "UPL1002", 7, "expected a type", "did you mean `bool`?"),
    ("in @() s[#]", "UPL1002", 6, "operation of a gathering input, found `)`", "`@(+) s[n]`"),
    ("in @(+) s", "UPL1002", 10, "expected `[`", "`s[#]`"),
    ("in @(+) s[]", "UPL1002", 11, "expected the number of summands", "`s[#]`"),
    ("in s[3]", "UPL1002", 5, "found `[`", "`@(+) s[n]`"),
    ("x := 3", "UPL1002", 4, "expected a type", "written with `=`"),
    ("int = 3", "UPL1007", 1, "expected the name of a variable, but `int` is a reserved word", "`int_`"),
    ("t = s -> R", "UPL1002", 7, "the end of the statement, found `->`", "two statements"),
    ("x = 1)", "UPL1002", 6, "found `)`", ""),
    ("x = a[1,2]", "UPL1002", 8, "expected `]`, found `,`", "one index"),
    ("x = f(1,)", "UPL1002", 9, "expected an expression, found `)`", "leave out the comma"),
    ("x = a ? b", "UPL1002", 10, "expected `:` after the first alternative of `?`", ""),
    ("x = int", "UPL1007", 5, "`int` is a reserved word", "`int(x)`"),
    ("x = if", "UPL1007", 5, "expected an expression, but `if` is a reserved word", ""),
    ("x = +5", "UPL1002", 5, "found `+`", "no unary `+`"),
    ("x = .5", "UPL1002", 5, "found `.`", "`0.5`"),
    ("x = 1.2.3", "UPL1005", 5, "malformed number `1.2.3`", "one dot"),
    ("x = 0x10", "UPL1005", 5, "malformed number `0x10`", "decimal"),
    ("x = 1_000", "UPL1005", 5, "malformed number `1_000`", "without `_`"),
    ("x = 3k", "UPL1005", 5, "malformed number `3k`", "`3*k`"),
    ("x = 9223372036854775808", "UPL1006", 5, "too large", "64 bits"),
    ("x = 1e999", "UPL1006", 5, "too large for f64", ""),
    ("x = a → b", "UPL1003", 7, "unexpected character `→`", "`->`"),
    ("x = a ≤ b", "UPL1003", 7, "unexpected character `≤`", "`<=`"),
    ("x = a % b", "UPL1003", 7, "unexpected character `%`", "`mod`"),
    ("x = a and b", "UPL1002", 7, "found the name `and`", "`&&`"),
    ("x = " + "(" * 300 + "1" + ")" * 300, "UPL1009", 205, "nested too deeply", "name parts"),
    ("x = " + "-" * 5000 + "1", "UPL1009", 205, "nested too deeply", "name parts"),
    ("x = " + "a ? b : " * 5000 + "c", "UPL1009", 1601, "nested too deeply", "name parts"),
    ("x = " + "a**" * 5000 + "c", "UPL1009", 605, "nested too deeply", "name parts"),
    ("x = " + "f(" * 5000, "UPL1009", 405, "nested too deeply", "name parts"),
    ("x = " + "N[" * 5000, "UPL1009", 405, "nested too deeply", "name parts"),
    ("if s=0: -> R", "UPL1010", 5, "expected `:` after the condition, found `=`", "compare with `==`"),
    ("a[1] = 3", "UPL1010", 6, "found `=`", "`name = value`"),
    ("if s -> R", "UPL1002", 6, "expected `:` after the condition", ""),
    ("if : -> R", "UPL1002", 4, "expected an expression, found `:`", ""),
    ("if a: if b: -> R", "UPL1002", 7, "expected a value, `#` or `->`", "join conditions by `&&`"),
    ("s>0: -> R", "UPL1002", 4, "found `:`", "begins with `if`"),
    ("else: t -> Q", "UPL1012", 1, "`else` begins no statement", "opposite condition"),
    ("s*2", "UPL1012", 1, "this statement has no arrow: expected `->`, found the end of the line", "-> NODE.input"),
    ("s*2\n#3 -> R", "UPL1012", 1, "this statement has no arrow", "`#` stands on the line of the value"),
    ("s N -> R", "UPL1002", 3, "expected an operator, `#` or `->`, found the name `N`", "written with `#`"),
    ("## 3 -> R", "UPL1002", 4, "expected an operator or `->`", ""),
    ("# -> R", "UPL1002", 3, "expected an expression, found `->`", ""),
    ("s ->", "UPL1002", 1, "expected the name of a node or output, found `}`", ""),
    ("s => R", "UPL1002", 4, "found `>`", "`->`"),
    ("-> node", "UPL1007", 4, "`node` is a reserved word", "`node_`"),
    ("-> A.b.c", "UPL1002", 7, "one `.` at most", "NODE.input"),
    ("-> R(i)", "UPL1002", 5, "found `(`", "-> NODE.input<i,j>"),
    ("-> R if s>0", "UPL1002", 6, "the end of the statement, found the reserved word `if`", "before the value"),
    ("-> R -> Q", "UPL1002", 6, "found `->`", "one arrow for each target"),
    ("-> R #3", "UPL1002", 6, "found `#`", "before `->`"),
    ("-> R<i<3>", "UPL1011", 7, "the comparison `<` stands directly inside an index", "parentheses"),
    ("-> R<i<=3>", "UPL1011", 7, "the comparison `<=` stands", "parentheses"),
    ("-> R<i==3 ? 1 : 2>", "UPL1011", 7, "the comparison `==` stands", "parentheses"),
    ("-> R<i>3>", "UPL1002", 8, "the end of the statement, found the number `3`", "needs parentheses"),
    ("-> R<i,>", "UPL1002", 8, "expected an expression, found `>`", "leave out the comma"),
    ("-> R<*+1>", "UPL1002", 7, "expected `,` or `>`, found `+`", ""),
    ("-> R<1+*>", "UPL1002", 8, "expected an expression, found `*`", ""),
    ("-> R<i;j>", "UPL1008", 7, "expected `,` or `>`, found `;`", ""),
    ("for i in 0..2: -> R", "UPL1012", 1, "`for` without an arrow", "for i in lo..hi"),
    ("s for i in 0..2 -> R", "UPL1002", 3, "found the reserved word `for`", "after the target"),
    ("-> R for i = 0..2", "UPL1002", 12, "expected `in` after the iterator", "for i in lo..hi"),
    ("-> R for i in 0", "UPL1002", 16, "expected `..` after the lower bound", ""),
    ("-> R for i in 0..2 for j in 0..2", "UPL1002", 20, "the end of the statement, found the reserved word `for`", ""),
    (")", "UPL1002", 1, "expected a statement, found `)`", ""),
]


@pytest.mark.parametrize(("text", "code", "where", "message", "help"), PROGRAM_ERRORS)
def test_malformed_programs(text: str, code: str, where: str, message: str, help: str) -> None:
    found = diagnosis(text)
    assert found.span is not None
    assert (found.code, f"{found.span.line}:{found.span.col}") == (code, where)
    assert message in found.message
    assert help in (found.help or "") and (help != "" or found.help is None)


@pytest.mark.parametrize(("text", "code", "col", "message", "help"), BODY_ERRORS, ids=lambda v: str(v)[:30])
def test_malformed_statements(text: str, code: str, col: int, message: str, help: str) -> None:
    found = diagnosis(f"node A<i> {{\n{text}\n}}")
    assert found.span is not None
    line = 3 if text == "s ->" else 2  # a line end after `->` does not end the statement
    assert (found.code, found.span.line, found.span.col) == (code, line, col)
    assert message in found.message
    assert help in (found.help or "") and (help != "" or found.help is None)


def test_an_open_bracket_is_shown_by_a_note() -> None:
    with pytest.raises(UplError) as caught:
        parse_text("node A {\n  in s\n\nnode B { }", "t.upl")
    assert str(caught.value) == (
        "t.upl:4:1: error[UPL1008]: expected a statement or `}`, found the reserved word `node`\n"
        " 4 | node B { }\n"
        "   | ^^^^\n"
        "t.upl:1:8: note: this `{` is still open\n"
        " 1 | node A {\n"
        "   |        ^"
    )


def test_an_index_with_a_comparison_is_shown_by_a_note() -> None:
    (note,) = diagnosis("node A<i> {\n -> B.x<i<2>\n}").notes
    assert str(note.span) == "t.upl:2:8"


def test_the_first_error_of_a_text_is_reported() -> None:
    assert "found `)`" in diagnosis("node A { x = ) ; y = 1e999; § }").message
    assert "1e999" in diagnosis("node A { y = 1e999; § ; x = ) }").message


def test_errors_of_expressions() -> None:
    for text, message in [("", "found the end of the text"), ("a b", "the end of the expression"), ("a <", "found")]:
        with pytest.raises(UplError, match=message):
            parse_expression(text)


def test_long_names_are_shortened() -> None:
    assert len(diagnosis("x" * 10_000).message) < 120


def test_a_long_name_with_a_bad_end_is_quick() -> None:
    assert "`²`" in diagnosis("node " + "x" * 200_000 + "² { }").message


# --- files --------------------------------------------------------------------------------------------------------


def file_error(path: str | Path) -> tuple[str, str]:
    """Code and rendered text of the error for a file."""
    with pytest.raises(UplError) as caught:
        parse_file(path)
    (found,) = caught.value.diagnostics
    return found.code, str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.upl"
    assert file_error(path) == ("UPL1001", f"{path}: error[UPL1001]: there is no such file")
    (tmp_path / "f").write_text("x")
    assert file_error(tmp_path / "f" / "g")[0] == "UPL1001"


def test_directory(tmp_path: Path) -> None:
    assert file_error(tmp_path) == ("UPL1001", f"{tmp_path}: error[UPL1001]: this is a directory, not a file")


def test_impossible_names_of_files() -> None:
    assert file_error("a\0b")[0] == "UPL1001"
    assert file_error("x" * 5000)[0] == "UPL1001"


@pytest.mark.parametrize(
    ("data", "where", "byte"),
    [
        (b"\xff", "1:1", "0xFF"),
        (b"node A { }\n// \xd0\xaf \xd0", "2:6", "0xD0"),
        (b"\n\n\xc3\xa9\xe9\n", "3:2", "0xE9"),
    ],
)
def test_invalid_utf8(tmp_path: Path, data: bytes, where: str, byte: str) -> None:
    path = tmp_path / "bad.upl"
    path.write_bytes(data)
    code, text = file_error(path)
    assert code == "UPL1001" and text.startswith(f"{path}:{where}: ") and byte in text


def test_errors_in_files_show_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.upl"
    path.write_bytes(b"node A {\r\n  x = = 3\r\n}\r\n")
    assert file_error(path) == (
        "UPL1002",
        f"{path}:2:7: error[UPL1002]: expected an expression, found `=`\n 2 |   x = = 3\n   |       ^",
    )


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.upl"
    path.write_bytes(b"")
    assert file_error(path)[0] == "UPL1013"
