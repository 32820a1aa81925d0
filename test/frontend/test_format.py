"""The formatter: one layout for every program, whatever its blanks were; comments, order and literals stay."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upl_mlir.diagnostics import UplError
from upl_mlir.frontend.upl_text.lexer import Kind, tokenize
from upl_mlir.frontend.upl_text.parser import parse_text
from upl_mlir.frontend.upl_text.printing import format as formatter
from upl_mlir.frontend.upl_text.printing.format import WIDTH, format_file, format_text
from upl_mlir.frontend.upl_text.printing.spacing import comment_text, same_tree

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.upl"))
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES}

WIDE = """\
/* what it is */ // and more
// by whom

program wide  // its name
param D>=K-1
const K=3; const M = 2*K-1 /* a */ // b
const T[0:2] = [1e-9, // first
  2., // second
  // own
  3.50]
input X<i, j>:f32 in 1<=i<=D,1<=j<=max(i ,2) {
  // inside

  X #D /* c */
  -> N.x<*,j> // arrow
  for k in 1. ..3,
    l in 0 .. 2 if k < l ; -> M<>
}
/* over
     two lines */ output S // out
node N<i> // head
  // second
{
  in x, @(+) s[#]:int, n :int
  y:real = x > 0&&!(x>1) ? -x *2.:x floordiv (3 - -n)**-2 /* d */ ; // e
  /* f */ z=true
  if n>1 : -> M.t<i, (i < 2 ? 1:2)>
  if n<=1&&n >- 5: #T[i - 1] -> M.t<>

  // end
}
node M { }
node P { /* only */ }
node Q in 1<=i<=D { in s;  } // tail
adjoint of S seed N . y wrt X ,M.t->N.x , N.s"""


def comments(text: str) -> list[str]:
    """The comments of a program, in order."""
    return [comment_text(c) for c in parse_text(text).comments]


def check(text: str) -> str:
    """Format a program, with what holds for every text; returns the result."""
    out = format_text(text)
    assert parse_text(out) == parse_text(text)
    assert comments(out) == comments(text)
    assert format_text(out) == out
    assert out.endswith("\n") and not out.endswith("\n\n") and "\n\n\n" not in out
    return out


# --- examples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_the_examples_are_in_this_style(name: str) -> None:
    def narrow(text: str) -> str:
        return re.sub(r"(?<=\S) +", " ", text)

    assert narrow(check(TEXTS[name])) == narrow(TEXTS[name])  # only columns may differ


@pytest.mark.parametrize("path", sorted((ROOT / "test").rglob("*.upl")), ids=lambda p: p.name)
def test_programs_of_other_tests(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    try:
        parse_text(text)
    except UplError:
        with pytest.raises(UplError):
            format_text(text)
    else:
        check(text)


# --- the layout ------------------------------------------------------------------------------------------------------


def test_everything_at_once() -> None:
    assert check(WIDE) == """\
/* what it is */ // and more
// by whom

program wide  // its name
param D >= K-1
const K = 3
const M = 2*K - 1      /* a */ // b
const T[0:2] = [1e-9,  // first
    2.,                // second
    // own
    3.50]
input X<i,j>: f32 in 1<=i<=D, 1<=j<=max(i, 2) {
  // inside

  X #D             /* c */
      -> N.x<*,j>  // arrow
      for k in 1. ..3, l in 0..2 if k<l
  -> M<>
}
/* over
     two lines */
output S     // out
node N<i> {  // head
  // second
  in x, @(+) s[#]: int, n: int
  y: real = x>0 && !(x>1) ? -x*2. : x floordiv (3 - -n)**-2  /* d */ // e
  /* f */ z = true
  if n>1:          -> M.t<i,(i<2 ? 1 : 2)>
  if n<=1 && n>-5: #T[i-1] -> M.t<>

  // end
}
node M            { }
node P            { /* only */ }
node Q in 1<=i<=D { in s }  // tail
adjoint of S seed N.y wrt X, M.t -> N.x, N.s
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("node A<>{}", "node A<> { }"),
        ("node A{\n}", "node A { }"),
        ("node A{\nin s}", "node A {\n  in s\n}"),
        ("node A\n{in s;-> B<>}", "node A { in s; -> B<> }"),
        ("node A{in s;//c\n->B}", "node A {\n  in s  //c\n  -> B\n}"),
        ("node A{\n\n\nin s\n\n\n\nt=s\n\n}", "node A {\n  in s\n\n  t = s\n}"),
        ("node A{a=f( -x,b [ i-1 ] )}", "node A { a = f(-x, b[i-1]) }"),
        ("node A{a=b-c*-d/e**- 2}", "node A { a = b - c*-d/e**-2 }"),
        ("node A{a=b==c||!d&&e!=1}", "node A { a = b == c || !d && e != 1 }"),
        ("node A{a=i mod 2;b=int( a )}", "node A { a = i mod 2; b = int(a) }"),
        ("node A{a=(x + 1 < 2) ? y : z}", "node A { a = (x+1<2) ? y : z }"),
        ("node A{a=c ? (d ? x : y) : z ;if a ? b : c : ->B}", "node A { a = c ? (d ? x : y) : z; if a ? b : c: -> B }"),
        ("node A{##->B.c;#N [k]->B;x#n+1->B}", "node A { ## -> B.c; #N[k] -> B; x #n+1 -> B }"),
        ("node A{in @( && )a[n + 1],@(max) b[#]:f64}", "node A { in @(&&) a[n+1], @(max) b[#]: f64 }"),
        ("node A{->B<-1,*,i>for j in 1 .. 3,k in - 1..2 if j<k}",
         "node A { -> B<-1,*,i> for j in 1..3, k in -1..2 if j<k }"),
        ("const N[0 : 1]=[]", "const N[0:1] = []"),
        ("const a=0.10e+5;const b=a", "const a = 0.10e+5\nconst b = a"),
        ("param D;param E < 5 - D", "param D\nparam E < 5-D"),
        ("input X<i>:int in(i)>0,i<5", "input X<i>: int in (i)>0, i<5"),
        ("input X{->A}\noutput YY<i>in i>0", "input  X { -> A }\noutput YY<i> in i>0"),
        ("input X{->A}\n\noutput Y", "input X { -> A }\n\noutput Y"),
        ("node A{in s}//1\nnode Bcd{in s}//2\n//3\nnode E{in s}//4",
         "node A   { in s }  //1\nnode Bcd { in s }  //2\n//3\nnode E { in s }  //4"),
        ("adjoint of A . r wrt B,C.w->D.d,E", "adjoint of A.r wrt B, C.w -> D.d, E"),
        ("\ufeff\n\nprogram p;;\r\n\r\n\r\nparam D\r\n", "program p\n\nparam D"),
        ("const é=1", "const é = 1"),
    ],
)  # fmt: skip
def test_layout(text: str, wanted: str) -> None:
    assert check(text) == wanted + "\n"


def test_a_statement_may_begin_with_a_minus_sign() -> None:
    text = "program p\ninput X { -> T.q<> }\noutput Y\nnode T {\n  in q\n  // half\n  -0.5*q -> Y\n}\n"
    assert "  -0.5*q -> Y\n" in format_text(text)


def test_names_stay_as_written() -> None:
    """A name that is not in normal form C is the same name, but not the same text."""
    decomposed = "const e\u0301 = 1\n"
    assert check(decomposed) == decomposed


def test_a_block_that_is_too_long_for_a_line_gets_lines() -> None:
    statements = [f"variable_{i} = s + {i}" for i in range(6)]
    out = check(f"node A {{ in s; {'; '.join(statements)} }} // end")
    assert out == "\n".join(["node A {", "  in s", *(f"  {s}" for s in statements), "}  // end"]) + "\n"


def test_long_lines_are_broken() -> None:
    values = ", ".join(str(i * 1000) for i in range(60))
    long = "alpha*" * 8 + "omega"
    text = f"""\
const N[0:59] = [{values}]
node A<i> {{
  in s
  t = {long} + f({long}, {long}) - {long}
  if i>1 && {long}>2: {long} #{long} -> B.c<i,j> for j in 1..{long}, k in 1..{long}
}}
"""
    out = check(text)
    assert max(map(len, out.splitlines())) <= WIDTH
    assert re.search(r"^      (->|for) ", out, re.MULTILINE)
    narrow = re.sub(r"\n {4,}", " ", out)
    assert narrow == text


def test_what_cannot_be_broken_is_left_long() -> None:
    name = "n" * 200
    assert check(f"node A {{ {name} = {name}*{name} }}") == f"node A {{\n  {name} =\n      {name}*{name}\n}}\n"


def test_lines_are_not_aligned_where_that_made_them_too_long() -> None:
    short, long = "a" * 5, "b" * 60
    text = f"input {short} in 1<=i {{ -> {long} }}\ninput {long} in 1<=i {{ -> {short} }}\n"
    assert check(text) == text


def test_a_long_sum_is_no_deep_recursion() -> None:
    text = "const a = " + " + ".join(["1"] * 5000) + "\n"
    out = format_text(text)
    assert out.split() == text.split()
    assert format_text(out) == out


def test_many_comments_take_time_in_proportion() -> None:
    text = "program p\n" + "// c\n" * 20_000 + "const a = 1\n"
    assert format_text(text) == text


# --- errors ----------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_the_parser() -> None:
    with pytest.raises(UplError, match=r"p\.upl:1:9: error\[UPL1007\]"):
        format_text("program program", "p.upl")


def test_a_result_that_is_another_program_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatter, "_join", lambda parts: "".join(p.text for p in parts))
    with pytest.raises(UplError, match="UPL1015"):
        format_text("program p\n")


def test_a_result_without_a_comment_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatter, "_align_tails", lambda run: setattr(run[0], "tail", ""))  # pyright: ignore
    with pytest.raises(UplError, match="UPL1015"):
        format_text("program p // a\nparam D // b\n")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.upl"
    path.write_bytes(b"program  p\r\n")
    assert format_file(path) == ("program  p\r\n", "program p\n")


@pytest.mark.parametrize(
    ("left", "right"),
    [("const a = 1", "const a = 1."), ("const a = b+c", "const a = b-c"), ("node A { }", "node A<> { }"),
     ("node A { a = f(x) }", "node A { a = f(x, y) }"), ("const a = b", "const a = c")],
)  # fmt: skip
def test_different_trees(left: str, right: str) -> None:
    assert not same_tree(parse_text(left), parse_text(right))
    assert same_tree(parse_text(left), parse_text("// c\n" + left.replace(" ", "  ")))


# --- every text ------------------------------------------------------------------------------------------------------

BLANKS = st.sampled_from([" ", "  ", "\t", "     "])


def respaced(text: str, data: st.DataObject) -> str:
    """The same program with other blanks, and line breaks where they mean nothing; blocks stay on their lines."""
    out: list[str] = []
    for line in text.splitlines():
        code, mark, comment = line.partition("//")
        tokens = [t.text for t in tokenize(code, "")[0] if t.kind not in (Kind.NEWLINE, Kind.END)]
        new = data.draw(BLANKS) if data.draw(st.booleans()) else ""
        opened = False
        for left, right in zip(tokens, [*tokens[1:], ""], strict=False):
            new += left
            opened = opened or left == "{"
            breaks = left in (",", "=", "+", "-", "&&", "[", "(") and not opened
            if breaks and data.draw(st.integers(0, 5)) == 0:
                new += data.draw(st.sampled_from(["\n", "\n   ", "\r\n\t", "\n\n"]))
            elif (left[-1:].isalnum() or left[-1:] == "_") and (right[:1].isalnum() or right[:1] == "_"):
                new += data.draw(BLANKS)
            else:
                new += data.draw(BLANKS | st.just("")) if right else ""
        if mark:
            new += (data.draw(BLANKS) if tokens else "") + mark + comment
        out.append(new + (data.draw(BLANKS) if data.draw(st.booleans()) else ""))
        if not line.strip():
            out += [""] * data.draw(st.integers(0, 2))
    return data.draw(st.sampled_from(["\n", "\r\n"])).join(out) + "\n" * data.draw(st.integers(0, 2))


@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_blanks_do_not_matter(name: str, data: st.DataObject) -> None:
    assert format_text(respaced(TEXTS[name], data)) == format_text(TEXTS[name])


COMMENTS = ["/* c */", "/**/", "/* c\n d */", "// c\n", "\n// c\n", "\n\n/* c */ // d\n\n", "// a\n// b\n", "\n", ";", " "]
SOURCES = {**TEXTS, "wide": WIDE}


@given(st.sampled_from(sorted(SOURCES)), st.data())
def test_comments_anywhere(name: str, data: st.DataObject) -> None:
    text = SOURCES[name]
    for i in range(data.draw(st.integers(1, 5))):
        tokens, _ = tokenize(text, "")
        starts = [0, *(m.end() for m in re.finditer("\n", text))]
        places = [starts[t.span.line - 1] + t.span.col - 1 for t in tokens if t.kind not in (Kind.NEWLINE, Kind.END)]
        at = data.draw(st.sampled_from([*places, len(text)]))
        changed = text[:at] + data.draw(st.sampled_from(COMMENTS)).replace("c", f"c{i}") + text[at:]
        try:
            parse_text(changed)
        except UplError:
            continue  # a line break that ended a statement
        text = changed
    check(text)


CHANGES = "x 1 1. , ; : ? # ## -> < > ( ) [ ] { } in if for .. . + - * ** ! && <= == = @ \n // /* */".split(" ")


@given(st.sampled_from(sorted(SOURCES)), st.data())
def test_whatever_can_be_read_can_be_formatted(name: str, data: st.DataObject) -> None:
    text = SOURCES[name]
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.sampled_from([0, 0, 1, 2, 8, 40]))
        changed = text[:at] + data.draw(st.sampled_from(["", " ", *CHANGES])) + text[until:]
        try:
            parse_text(changed)
        except UplError:
            continue
        text = changed
    check(text)
