"""The parser of the text form: every construct, precedence, line ends, limits, start-up."""

from __future__ import annotations

import ast as python_ast
import subprocess
import sys

import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.upl_text import ast, parse_expression, parse_text
from upl_mlir.frontend.upl_text.ast import BinaryOp, CompareOp, ScalarType

# --- a short notation for trees, so that a test shows structure on one line ---------------------------------------


def show(tree: object) -> str:
    """An expression with every parenthesis; a statement as parts in `|`."""
    match tree:
        case None:
            return "-"
        case ast.Number():
            return repr(tree.value)
        case ast.BoolLit():
            return str(tree.value).lower()
        case ast.Name() | ast.Ident():
            return tree.name
        case ast.Lookup():
            return f"{tree.array.name}[{show(tree.index)}]"
        case ast.Unary():
            return f"({tree.op.value}{show(tree.operand)})"
        case ast.Binary() | ast.Logical():
            return f"({show(tree.left)} {tree.op.value} {show(tree.right)})"
        case ast.Compare():
            return "(" + show(tree.first) + "".join(f" {op.value} {show(e)}" for op, e in tree.rest) + ")"
        case ast.Conditional():
            return f"({show(tree.condition)} ? {show(tree.then)} : {show(tree.otherwise)})"
        case ast.Call():
            return f"{tree.function.name}({','.join(map(show, tree.arguments))})"
        case ast.Star():
            return "*"
        case ast.Unbounded():
            return "##"
        case ast.StatedBySummands():
            return "#"
        case ast.TypeRef():
            return tree.type.value
        case ast.PortRef():
            return show(tree.port) + (f".{show(tree.member)}" if tree.member else "")
        case ast.Iterator():
            return f"{tree.name.name}={show(tree.lo)}..{show(tree.hi)}"
        case ast.Arrow():
            index = "-" if tree.index is None else f"<{','.join(map(show, tree.index))}>"
            loops = ",".join(map(show, tree.iterators)) or "-"
            parts = [show(p) for p in (tree.condition, tree.value, tree.multiplicity, tree.target)]
            return "|".join([*parts, index, loops, show(tree.iterator_condition)])
        case ast.Assign():
            return f"{tree.name.name}:{show(tree.type)}={show(tree.value)}"
        case ast.Inputs():
            return "in " + ",".join(map(show, tree.inputs))
        case ast.InputDecl():
            gather = f"@({tree.gather.name})" if tree.gather else ""
            return f"{gather}{tree.name.name}[{show(tree.count)}]:{show(tree.type)}"
        case tuple():
            return ", ".join(map(show, tree))
    raise TypeError(tree)


def expr(text: str) -> str:
    return show(parse_expression(text))


def body(text: str) -> list[str]:
    """The statements of a node with this text as its body."""
    (node,) = parse_text(f"node A<i> {{{text}}}").items
    assert isinstance(node, ast.NodeBlock)
    return [show(s) for s in node.body]


def item(text: str) -> ast.Item:
    (found,) = parse_text(text).items
    return found


# --- expressions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", "a"),
        ("7", "7"),
        ("007", "7"),
        ("7.", "7.0"),
        ("1e-9", "1e-09"),
        ("1.5E+3", "1500.0"),
        ("true", "true"),
        ("false", "false"),
        ("9223372036854775807", "9223372036854775807"),
        ("N[k-1]", "N[(k - 1)]"),
        ("N[N[0]]", "N[N[0]]"),
        ("max(a, b+1)", "max(a,(b + 1))"),
        ("f()", "f()"),
        ("int(x)", "int(x)"),
        ("f32(x)", "f32(x)"),
        ("a-b-c", "((a - b) - c)"),
        ("a+b*c", "(a + (b * c))"),
        ("a/b*c", "((a / b) * c)"),
        ("a floordiv b mod c", "((a floordiv b) mod c)"),
        ("a ceildiv 2 + 1", "((a ceildiv 2) + 1)"),
        ("-a**b", "(-(a ** b))"),
        ("a**-b", "(a ** (-b))"),
        ("a**b**c", "(a ** (b ** c))"),
        ("a**-b**c", "(a ** (-(b ** c)))"),
        ("(-a)**b", "((-a) ** b)"),
        ("-a*b", "((-a) * b)"),
        ("a*-b", "(a * (-b))"),
        ("a**b*c", "((a ** b) * c)"),
        ("a - -b", "(a - (-b))"),
        ("--a", "(-(-a))"),
        ("!a == b", "((!a) == b)"),
        ("!(a == b)", "(!(a == b))"),
        ("!a && b", "((!a) && b)"),
        ("a < b", "(a < b)"),
        ("0 <= i+1 < n", "(0 <= (i + 1) < n)"),
        ("a == b != c >= d > e", "(a == b != c >= d > e)"),
        ("(a < b) < c", "((a < b) < c)"),
        ("a || b && c", "(a || (b && c))"),
        ("a && b || c", "((a && b) || c)"),
        ("a || b || c", "((a || b) || c)"),
        ("a < b && c < d", "((a < b) && (c < d))"),
        ("a ? b : c", "(a ? b : c)"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("a ? b ? c : d : e", "(a ? (b ? c : d) : e)"),
        ("a || b ? c < d : e + 1", "((a || b) ? (c < d) : (e + 1))"),
        ("(a ? b : c) + 1", "((a ? b : c) + 1)"),
        ("δ*Якорь", "(δ * Якорь)"),
        ("((a))", "a"),
    ],
)
def test_expressions(text: str, tree: str) -> None:
    assert expr(text) == tree


def test_literals_keep_their_kind() -> None:
    one, real = parse_expression("1"), parse_expression("1.")
    assert isinstance(one, ast.Number) and not one.is_real and type(one.value) is int
    assert isinstance(real, ast.Number) and real.is_real and type(real.value) is float


def test_names_are_in_normal_form_c() -> None:
    assert parse_expression("cafe\u0301") == parse_expression("caf\u00e9")


@pytest.mark.parametrize("op", [*BinaryOp, *CompareOp, *ast.LogicalOp])
def test_every_operator_of_two_operands(op: BinaryOp | CompareOp | ast.LogicalOp) -> None:
    assert expr(f"a {op.value} b") == f"(a {op.value} b)"


# --- arrows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("-> A", "-|-|-|A|-|-|-"),
        ("-> Loss.s<>", "-|-|-|Loss.s|<>|-|-"),
        ("-> R<d,i>", "-|-|-|R|<d,i>|-|-"),
        ("s -> A.x", "-|s|-|A.x|-|-|-"),
        ("b*s -> Res.r<d,k+1,i>", "-|(b * s)|-|Res.r|<d,(k + 1),i>|-|-"),
        ("#3 -> A", "-|-|3|A|-|-|-"),
        ("r*w #N[k-1] -> S.s", "-|(r * w)|N[(k - 1)]|S.s|-|-|-"),
        ("x ## -> A<*>", "-|x|##|A|<*>|-|-"),
        ("## -> A<*,1>", "-|-|##|A|<*,1>|-|-"),
        ("if k<K: #N[k] -> L.r<d,*>", "(k < K)|-|N[k]|L.r|<d,*>|-|-"),
        ("if a ? b : c: x -> T", "(a ? b : c)|x|-|T|-|-|-"),
        ("if a: b ? c : d -> T", "a|(b ? c : d)|-|T|-|-|-"),
        ("-> A for j in 0..2", "-|-|-|A|-|j=0..2|-"),
        ("-> A<j> for j in i+1..n-1, k in 0..j", "-|-|-|A|<j>|j=(i + 1)..(n - 1),k=0..j|-"),
        ("if c: v #2 -> A<j> for j in 0..2 if j != i", "c|v|2|A|<j>|j=0..2|(j != i)"),
        ("-> A<(a < b), (c > d) ? 1 : 2>", "-|-|-|A|<(a < b),((c > d) ? 1 : 2)>|-|-"),
        ("-> A<max(a > b, c), N[a > b]>", "-|-|-|A|<max((a > b),c),N[(a > b)]>|-|-"),
        ("-> A<(m*i+j) floordiv 8, -1>", "-|-|-|A|<(((m * i) + j) floordiv 8),(-1)>|-|-"),
    ],
)
def test_arrows(text: str, tree: str) -> None:
    assert body(text) == [tree]
    (host,) = parse_text(f"input X {{ {text} }}").items
    assert isinstance(host, ast.HostInput) and show(host.arrows) == tree


def test_the_less_sign_opens_an_index_only_after_a_name_that_can_have_one() -> None:
    assert body("x<y -> A<i>") == ["-|(x < y)|-|A|<i>|-|-"]
    assert body("t = x < y; -> A.b <i> ; u = y > x") == ["t:-=(x < y)", "-|-|-|A.b|<i>|-|-", "u:-=(y > x)"]


# --- statements and items -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("in s", "in s[-]:-"),
        ("in x, n: int, @(+) s[n]: f32", "in x[-]:-,n[-]:int,@(+)s[n]:f32"),
        ("in @(&&) s[#]", "in @(&&)s[#]:-"),
        ("in @(max) s[N[k]-1]", "in @(max)s[(N[k] - 1)]:-"),
        ("b: bool = s > 0", "b:bool=(s > 0)"),
        ("e = r - y", "e:-=(r - y)"),
    ],
)
def test_statements(text: str, tree: str) -> None:
    assert body(text) == [tree]


@pytest.mark.parametrize("op", list(Gather))
def test_every_gather_operation(op: Gather) -> None:
    assert body(f"in @({op.value}) s[#]") == [f"in @({op.value})s[#]:-"]


@pytest.mark.parametrize("scalar", list(ScalarType))
def test_every_type(scalar: ScalarType) -> None:
    assert body(f"in s: {scalar.value}") == [f"in s[-]:{scalar.value}"]


def test_param() -> None:
    free, bounded = item("param D"), item("param D >= 1")
    assert isinstance(free, ast.Param) and free.name.name == "D" and free.condition is None
    assert isinstance(bounded, ast.Param) and show(bounded.condition) == "(D >= 1)"
    chained = item("param n > m <= 2*K")
    assert isinstance(chained, ast.Param) and show(chained.condition) == "(n > m <= (2 * K))"


def test_const() -> None:
    found = item("const O = H-F+1")
    assert isinstance(found, ast.Const) and (found.name.name, show(found.value)) == ("O", "((H - F) + 1)")


def test_const_array() -> None:
    found = item("const N[0:K-1] = [4, -1,\n 2*K]")
    assert isinstance(found, ast.ConstArray)
    assert (found.name.name, show(found.lo), show(found.hi)) == ("N", "0", "(K - 1)")
    assert show(found.values) == "4, (-1), (2 * K)"
    empty = item("const N[0:-1] = []")
    assert isinstance(empty, ast.ConstArray) and empty.values == ()


def test_host_ports() -> None:
    full = item("input X<i>: f32 in 0<=i<n, i != 3 { -> A; #2 -> B }")
    assert isinstance(full, ast.HostInput) and full.fields is not None
    assert (show(full.fields), show(full.type), show(full.domain)) == ("i", "f32", "(0 <= i < n), (i != 3)")
    assert [show(a.target) for a in full.arrows] == ["A", "B"]
    bare = item("input X")
    assert isinstance(bare, ast.HostInput)
    assert (bare.fields, bare.type, bare.domain, bare.arrows) == (None, None, None, ())
    output = item("output S<i,j>: int in 0<=i<3")
    assert isinstance(output, ast.HostOutput) and (show(output.fields), show(output.type)) == ("i, j", "int")
    plain = item("output S: int")
    assert isinstance(plain, ast.HostOutput) and (plain.fields, plain.domain) == (None, None)


def test_nodes() -> None:
    found = item("node A<i,δ> in 0<=i<n, δ > 0 { }")
    assert isinstance(found, ast.NodeBlock)
    assert (show(found.fields), show(found.domain), found.body) == ("i, δ", "(0 <= i < n), (δ > 0)", ())
    loss = item("node Loss { in s }")
    assert isinstance(loss, ast.NodeBlock) and loss.fields is None and loss.domain is None
    none = item("node Loss<> { in s }")
    assert isinstance(none, ast.NodeBlock) and none.fields == ()


def test_glued_nodes_stay_two_items() -> None:
    first, second = parse_text("node A<i> { in s }\nnode A { s -> B }").items
    assert isinstance(first, ast.NodeBlock) and isinstance(second, ast.NodeBlock)
    assert first.name == second.name and second.fields is None


def test_adjoint() -> None:
    short = item("adjoint of R wrt Link.w")
    assert isinstance(short, ast.Adjoint)
    assert (show(short.of), short.seed, show(short.wrt), short.targets) == ("R", None, "Link.w", ())
    full = item("adjoint of E.r seed E.e wrt L.w, X -> U.dw, V.dx")
    assert isinstance(full, ast.Adjoint)
    shown = (show(full.of), show(full.seed), show(full.wrt), show(full.targets))
    assert shown == ("E.r", "E.e", "L.w, X", "U.dw, V.dx")


def test_the_program_line_may_be_omitted() -> None:
    assert parse_text("node A { }").name is None
    named = parse_text("program p").name
    assert named is not None and named.name == "p"


def test_comments_are_kept_apart() -> None:
    text = "// one\nnode A /* two\n2 */ { } // three"
    program = parse_text(text)
    assert [c.text for c in program.comments] == ["// one", "/* two\n2 */", "// three"]
    assert program == parse_text("node A { }")


def test_a_comment_may_contain_what_ends_another() -> None:
    assert body("x = 1 // */ /* \n y = 2 /* // */; /***/ z = 3") == ["x:-=1", "y:-=2", "z:-=3"]


# --- line ends: each sentence of the rule -------------------------------------------------------------------------


def test_a_statement_ends_at_a_line_end_or_semicolon() -> None:
    assert body("in s\nx = 1; y = 2\n\n;; z = 3;") == ["in s[-]:-", "x:-=1", "y:-=2", "z:-=3"]
    assert [type(i).__name__ for i in parse_text("program p; param D; const K = 1;node A { };output R").items] == [
        "Param", "Const", "NodeBlock", "HostOutput",
    ]  # fmt: skip


def test_lines_may_end_in_carriage_return_and_line_feed() -> None:
    text = "node A { // x\n in s\n s -> B /*\n*/ }\n"
    assert parse_text(text.replace("\n", "\r\n")) == parse_text(text)


def test_a_byte_order_mark_is_skipped() -> None:
    program = parse_text("\ufeffnode A { }")
    assert program.items[0].span.col == 1


def test_a_line_end_inside_brackets_does_not_end_a_statement() -> None:
    assert body("x = (a\n + b)\ny = f(a\n,\nb\n)\nz = N[\nk\n]") == ["x:-=(a + b)", "y:-=f(a,b)", "z:-=N[k]"]
    assert body("-> A<i\n,\nj\n>") == ["-|-|-|A|<i,j>|-|-"]


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "**", "mod", "floordiv", "ceildiv", "<", "<=", "==", "&&", "||"])
def test_a_line_end_after_an_operator_does_not_end_a_statement(op: str) -> None:
    assert body(f"x = a {op} // why\n\n  b") == [f"x:-=(a {op} b)"]


def test_a_line_end_after_a_comma_or_another_operator_does_not_end_a_statement() -> None:
    assert body("in a,\n b: \n int") == ["in a[-]:-,b[-]:int"]
    assert body("x =\n c ?\n a :\n -\n b") == ["x:-=(c ? a : (-b))"]
    assert body("if c:\n v #\n 2 ->\n A.\n b for i in 0..\n 2,\n j in 0..1") == ["c|v|2|A.b|-|i=0..2,j=0..1|-"]


def test_a_line_end_after_the_sign_that_closes_an_index_ends_a_statement() -> None:
    assert body("-> A<i>\n-> B<i>\nx = 1") == ["-|-|-|A|<i>|-|-", "-|-|-|B|<i>|-|-", "x:-=1"]
    assert body("-> A<i>\n- x -> B") == ["-|-|-|A|<i>|-|-", "-|(-x)|-|B|-|-|-"]


def test_a_line_end_before_a_brace_does_not_end_an_item() -> None:
    found = item("node A<i> in 0<=i<3\n// here\n{\n}")
    assert isinstance(found, ast.NodeBlock) and show(found.domain) == "(0 <= i < 3)"


def test_a_line_end_before_an_arrow_sign_continues_what_has_no_arrow_yet() -> None:
    assert body("a*b\n -> A") == ["-|(a * b)|-|A|-|-|-"]  # an expression
    assert body("if c:\n -> A") == ["c|-|-|A|-|-|-"]  # a condition
    assert body("v #2\n\n // why\n -> A") == ["-|v|2|A|-|-|-"]  # a multiplicity
    assert body("##\n -> A") == ["-|-|##|A|-|-|-"]


def test_a_line_end_before_an_arrow_sign_does_not_continue_anything_else() -> None:
    assert body("in s\n-> A") == ["in s[-]:-", "-|-|-|A|-|-|-"]
    assert body("t = s\n-> A") == ["t:-=s", "-|-|-|A|-|-|-"]
    assert body("s -> A\n-> B") == ["-|s|-|A|-|-|-", "-|-|-|B|-|-|-"]


def test_a_line_end_before_for_continues_an_arrow_but_not_one_before_its_condition() -> None:
    assert body("-> A<j>\n for j in 0..2") == ["-|-|-|A|<j>|j=0..2|-"]
    assert body("-> A<j> for j in 0..2\n if c: -> B") == ["-|-|-|A|<j>|j=0..2|-", "c|-|-|B|-|-|-"]


def test_a_line_end_inside_a_comment_is_a_line_end() -> None:
    assert body("x = 1 /*\n*/ y = 2") == ["x:-=1", "y:-=2"]


def test_no_second_dot_after_the_dot_of_a_number() -> None:
    assert body("-> A for i in 0..2, j in 0.5..1.") == ["-|-|-|A|-|i=0..2,j=0.5..1.0|-"]


# --- limits, start-up ---------------------------------------------------------------------------------------------


def test_nesting_within_the_limit() -> None:
    assert expr("(" * 150 + "a" + ")" * 150) == "a"
    assert expr("-" * 150 + "a") == "(-" * 150 + "a" + ")" * 150
    assert expr("1+(" * 90 + "a" + ")" * 90).count("+") == 90


def test_a_long_sum_is_not_nested() -> None:
    tree = parse_expression("+".join(["a"] * 3000))
    depth = 0
    while isinstance(tree, ast.Binary):
        tree, depth = tree.left, depth + 1
    assert depth == 2999


def test_errors_know_their_text() -> None:
    with pytest.raises(UplError) as caught:
        parse_expression("a +", "e.upl")
    assert str(caught.value) == (
        "e.upl:1:4: error[UPL1002]: expected an expression, found the end of the text\n 1 | a +\n   |    ^"
    )


def test_the_package_does_not_import_its_parser() -> None:
    code = "import sys, upl_mlir.frontend.upl_text; print([m for m in sys.modules if 'parser' in m and 'upl' in m])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert python_ast.literal_eval(out.stdout) == []


def test_the_parser_imports_no_library() -> None:
    unwanted = "[m for m in ('lark', 'xdsl', 'numpy') if m in sys.modules]"
    code = f"import sys, upl_mlir.frontend.upl_text.parser; print({unwanted})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert python_ast.literal_eval(out.stdout) == []


def test_the_package_says_what_it_has_not() -> None:
    import upl_mlir.frontend.upl_text as package

    with pytest.raises(AttributeError, match="nonsense"):
        _ = package.nonsense  # type: ignore[attr-defined]
