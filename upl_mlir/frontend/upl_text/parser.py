"""From tokens to the tree of `ast.py`: recursive descent for items and statements, precedence climbing for expressions.

Written by hand rather than generated: a statement of UPL may begin like an expression and turn out to be an arrow, and
the messages can say in the language's own words what is missing.  It is also quick to start (no tables to build).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TypeVar

from upl_mlir.diagnostics import Note, Span, UplError, did_you_mean, error
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.lexer import ITEM_WORDS, RESERVED, TYPE_WORDS, Kind, Token, tokenize

MAX_DEPTH = 100
_T = TypeVar("_T")

_COMPARE = {op.value: op for op in ast.CompareOp}
_SUM = {"+": ast.BinaryOp.ADD, "-": ast.BinaryOp.SUB}
_PRODUCT = {
    "*": ast.BinaryOp.MUL, "/": ast.BinaryOp.DIV, "floordiv": ast.BinaryOp.FLOORDIV, "ceildiv": ast.BinaryOp.CEILDIV,
    "mod": ast.BinaryOp.MOD,
}  # fmt: skip
_GATHER = {op.value: op for op in ast.GatherOp}
_TYPES = {t.value: t for t in ast.ScalarType}


def parse_text(text: str, file: str = "<string>") -> ast.Program:
    """The tree of a whole program.  Raises UplError (UPL10xx), which knows the text."""
    return _with_text(text, file, lambda p: p.program())


def parse_expression(text: str, file: str = "<string>") -> ast.Expr:
    """The tree of one expression.  Raises UplError (UPL10xx)."""

    def whole(p: _Parser) -> ast.Expr:
        out = p.expression()
        p.skip_newlines()
        if p.here.kind is not Kind.END:
            p.fail("the end of the expression")
        return out

    return _with_text(text, file, whole)


def parse_file(path: str | Path) -> tuple[ast.Program, str]:
    """The tree of a file, and its text.  Raises UplError: UPL1001 if the file cannot be read or is not UTF-8."""
    name = str(path)
    try:
        data = Path(path).read_bytes()
    except IsADirectoryError:
        raise error("UPL1001", "this is a directory, not a program", Span(name, 0, 0)) from None
    except FileNotFoundError:
        raise error("UPL1001", "there is no such file", Span(name, 0, 0)) from None
    except OSError as e:
        raise error("UPL1001", f"cannot read the file: {e.strerror}", Span(name, 0, 0)) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        before = data[: e.start]
        line, col = before.count(b"\n") + 1, e.start - (before.rfind(b"\n") + 1) + 1
        raise error(
            "UPL1001", f"the file is not UTF-8: byte {e.start} is 0x{data[e.start]:02x}", Span(name, line, col),
            help="save it as UTF-8",
        ) from None  # fmt: skip
    return parse_text(text, name), text


def _with_text(text: str, file: str, parse: Callable[[_Parser], _T]) -> _T:
    try:
        return parse(_Parser(text, file))
    except UplError as e:
        e.sources.add(file, text)
        raise


class _Parser:
    """A cursor over the tokens; each method reads one construct and leaves the cursor behind it."""

    def __init__(self, text: str, file: str):
        self.tokens, self.comments = tokenize(text, file)
        self.pos = 0
        self.depth = 0
        self.open: list[Token] = []  # braces and brackets that are not closed yet

    # -- tokens ------------------------------------------------------------------------------------------------------
    @property
    def here(self) -> Token:
        token = self.tokens[self.pos]
        if token.kind is Kind.ERROR:
            assert isinstance(token.value, UplError)
            raise token.value
        return token

    @property
    def last(self) -> Token:
        return self.tokens[max(0, self.pos - 1)]

    def peek(self, ahead: int) -> Token:
        return self.tokens[min(self.pos + ahead, len(self.tokens) - 1)]

    def at(self, *texts: str) -> bool:
        token = self.here
        return token.kind in (Kind.SYMBOL, Kind.WORD) and token.text in texts

    def advance(self) -> Token:
        token = self.here
        if token.kind is not Kind.END:
            self.pos += 1
        return token

    def take(self, *texts: str) -> Token | None:
        return self.advance() if self.at(*texts) else None

    def expect(self, text: str, why: str = "") -> Token:
        return self.take(text) or self.fail(f"`{text}`{why}")

    def skip_newlines(self) -> None:
        while self.here.kind is Kind.NEWLINE or self.at(";"):
            self.pos += 1

    def span(self, start: Token | ast.Node) -> Span:
        """From the start to the last token read."""
        s, e = start.span, self.last.span
        return Span(s.file, s.line, s.col, e.end_line, e.end_col)

    def shown(self) -> str:
        token = self.here
        match token.kind:
            case Kind.END:
                return "the end of the text"
            case Kind.NEWLINE:
                return "the end of the line"
            case Kind.WORD:
                return f"the reserved word `{token.text}`"
            case _:
                return f"`{token.text}`"

    def fail(self, expected: str, help: str | None = None) -> NoReturn:
        notes = []
        if self.here.kind is Kind.END or (self.here.kind is Kind.WORD and self.here.text in ITEM_WORDS):
            notes = [Note(f"`{t.text}` is opened here", t.span) for t in self.open[-1:]]
        raise error(
            "UPL1002", f"expected {expected}, found {self.shown()}", self.here.span, notes=notes,
            help=help or self._hint(expected),
        )  # fmt: skip

    def _hint(self, expected: str) -> str | None:
        token = self.here
        if token.text == "=" and token.kind is Kind.SYMBOL:
            return "equality is written `==`"
        if "name" in expected and token.kind is Kind.WORD and token.text in RESERVED:
            return f"`{token.text}` is reserved; choose another name, such as `{token.text}_`"
        return None

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise error(
                "UPL1007", f"expression nested more than {MAX_DEPTH} deep", self.here.span,
                help="name a part of it with an assignment",
            )  # fmt: skip

    def bracketed(self, opening: Token, closing: str, kind: Kind = Kind.SYMBOL) -> None:
        """Read the closing bracket of `opening`."""
        if self.here.kind is kind and self.here.text == closing:
            self.pos += 1
            self.open.pop()
            return
        help_ = None
        if kind is Kind.INDEX_CLOSE and self.at(*_COMPARE):
            help_ = "inside an index a comparison needs parentheses"
        raise error(
            "UPL1002", f"expected `{closing}`, found {self.shown()}", self.here.span,
            notes=[Note(f"`{opening.text}` is opened here", opening.span)], help=help_ or self._hint(""),
        )  # fmt: skip

    def ident(self, what: str) -> ast.Ident:
        if self.here.kind is not Kind.NAME:
            self.fail(what)
        token = self.advance()
        return ast.Ident(token.span, token.text)

    # -- items -------------------------------------------------------------------------------------------------------
    def program(self) -> ast.Program:
        first = self.tokens[0]
        self.skip_newlines()
        name: ast.Ident | None = None
        if self.take("program"):
            name = self.ident("the program's name")
            self.end_of_item()
        items: list[ast.Item] = []
        while True:
            self.skip_newlines()
            if self.here.kind is Kind.END:
                break
            items.append(self.item())
            self.end_of_item()
        if not items and name is None:
            raise error("UPL1008", "there is no program in this text", first.span, help="a program begins with `program NAME`")
        return ast.Program(self.span(first), name, tuple(items), tuple(self.comments))

    def end_of_item(self) -> None:
        if self.last.text == "}" or self.here.kind in (Kind.END, Kind.NEWLINE) or self.at(";"):
            return
        self.fail("the end of the line")

    def item(self) -> ast.Item:
        start = self.here
        readers: dict[str, Callable[[Token], ast.Item]] = {
            "param": self.param, "const": self.const, "input": self.host_input, "output": self.host_output,
            "node": self.node, "adjoint": self.adjoint,
        }  # fmt: skip
        if start.kind is Kind.WORD and start.text in readers:
            self.pos += 1
            return readers[start.text](start)
        if self.at("program"):
            self.fail("a declaration", "a text holds one program; `program` stands at its beginning")
        hint = did_you_mean(start.text, readers) if start.kind is Kind.NAME else None
        if self.at("}"):
            hint = "there is no open `{`"
        self.fail("`param`, `const`, `input`, `output`, `node` or `adjoint`", hint)

    def param(self, start: Token) -> ast.Param:
        name = self.ident("the parameter's name")
        condition: ast.Compare | None = None
        if self.at(*_COMPARE):
            condition = self.comparison_after(ast.Name(name.span, name.name))
        elif self.at("="):
            self.fail("a condition such as `>= 1`", "a parameter has no value in the text: use `const`, or -D on the command line")
        return ast.Param(self.span(start), name, condition)

    def const(self, start: Token) -> ast.Const | ast.ConstArray:
        name = self.ident("the constant's name")
        if opening := self.take("["):
            self.open.append(opening)
            lo = self.expression()
            self.expect(":", " between the bounds")
            hi = self.expression()
            self.bracketed(opening, "]")
            self.expect("=")
            values = self.array_values()
            return ast.ConstArray(self.span(start), name, lo, hi, values)
        self.expect("=")
        if self.at("["):
            self.fail("a number", f"an array says its bounds: `const {name.name}[0:n-1] = [...]`")
        return ast.Const(self.span(start), name, self.expression())

    def array_values(self) -> tuple[ast.Expr, ...]:
        opening = self.expect("[", " before the values")
        self.open.append(opening)
        values: list[ast.Expr] = []
        while not self.at("]"):
            values.append(self.expression())
            if not self.take(","):
                break
        self.bracketed(opening, "]")
        return tuple(values)

    def fields(self) -> tuple[ast.Ident, ...] | None:
        if self.here.kind is not Kind.INDEX_OPEN:
            return None
        opening = self.advance()
        self.open.append(opening)
        out: list[ast.Ident] = []
        while self.here.kind is not Kind.INDEX_CLOSE:
            out.append(self.ident("a field name"))
            if not self.take(","):
                break
        self.bracketed(opening, ">", Kind.INDEX_CLOSE)
        return tuple(out)

    def type_ref(self) -> ast.TypeRef | None:
        if not self.take(":"):
            return None
        token = self.here
        if token.kind is not Kind.WORD or token.text not in TYPE_WORDS:
            self.fail("a type: `real`, `f32`, `f64`, `int` or `bool`", did_you_mean(token.text, TYPE_WORDS))
        self.pos += 1
        return ast.TypeRef(token.span, _TYPES[token.text])

    def domain(self) -> tuple[ast.Expr, ...] | None:
        if not self.take("in"):
            return None
        out = [self.expression()]
        while self.take(","):
            out.append(self.expression())
        return tuple(out)

    def host_input(self, start: Token) -> ast.HostInput:
        name = self.ident("the input's name")
        fields, type_, domain = self.fields(), self.type_ref(), self.domain()
        arrows: list[ast.Arrow] = []
        if self.at("{"):
            for s in self.block():
                if not isinstance(s, ast.Arrow):
                    what = "an assignment" if isinstance(s, ast.Assign) else "a declaration of inputs"
                    raise error("UPL1009", f"the block of a host input holds only arrows, this is {what}", s.span,
                                help="put it into a node")  # fmt: skip
                arrows.append(s)
        return ast.HostInput(self.span(start), name, fields, type_, domain, tuple(arrows))

    def host_output(self, start: Token) -> ast.HostOutput:
        name = self.ident("the output's name")
        out = ast.HostOutput(start.span, name, self.fields(), self.type_ref(), self.domain())
        if self.at("{"):
            self.fail("the end of the line", "a host output sends nothing: it has no block")
        return replace(out, span=self.span(start))

    def node(self, start: Token) -> ast.NodeBlock:
        name = self.ident("the node's name")
        fields, domain = self.fields(), self.domain()
        if not self.at("{"):
            self.fail("`{` before the node's body")
        body = self.block()
        return ast.NodeBlock(self.span(start), name, fields, domain, body)

    def adjoint(self, start: Token) -> ast.Adjoint:
        self.expect("of", " after `adjoint`")
        of = self.port_ref()
        seed = self.port_ref() if self.take("seed") else None
        self.expect("wrt", " and what to differentiate by")
        wrt = [self.port_ref()]
        while self.take(","):
            wrt.append(self.port_ref())
        targets: list[ast.PortRef] = []
        if self.take("->"):
            targets.append(self.port_ref())
            while self.take(","):
                targets.append(self.port_ref())
        return ast.Adjoint(self.span(start), of, seed, tuple(wrt), tuple(targets))

    def port_ref(self) -> ast.PortRef:
        start = self.here
        port = self.ident("the name of a node or port")
        member = self.ident("the name of an input") if self.take(".") else None
        return ast.PortRef(self.span(start), port, member)

    # -- statements --------------------------------------------------------------------------------------------------
    def block(self) -> tuple[ast.Statement, ...]:
        opening = self.expect("{")
        self.open.append(opening)
        out: list[ast.Statement] = []
        while True:
            self.skip_newlines()
            if self.at("}"):
                self.pos += 1
                self.open.pop()
                return tuple(out)
            if self.here.kind is Kind.END or (self.here.kind is Kind.WORD and self.here.text in ITEM_WORDS):
                self.fail("`}`")
            out.append(self.statement())
            if not (self.here.kind is Kind.NEWLINE or self.at(";", "}")):
                self.fail("the end of the statement", self._statement_hint(out[-1]))

    def _statement_hint(self, before: ast.Statement) -> str | None:
        if isinstance(before, ast.Arrow) and self.at("if"):
            return "a condition stands before the arrow: `if c: v -> Target.input<...>`"
        if self.here.kind is Kind.NAME:
            return "statements are separated by `;` or a new line"
        return self._hint("")

    def statement(self) -> ast.Statement:
        start = self.here
        if self.at("in"):
            self.pos += 1
            return self.inputs(start)
        if start.kind is Kind.NAME:
            following = self.peek(1)
            if following.kind is Kind.SYMBOL and following.text in ("=", ":"):
                return self.assign(start)
        return self.arrow(start)

    def inputs(self, start: Token) -> ast.Inputs:
        out = [self.input_decl()]
        while self.take(","):
            out.append(self.input_decl())
        return ast.Inputs(self.span(start), tuple(out))

    def input_decl(self) -> ast.InputDecl:
        start = self.here
        if not self.take("@"):
            name = self.ident("the name of an input")
            if self.at("["):
                self.fail("`,` or the end of the line", f"a gathering input says how: `@(+) {name.name}[...]`")
            return ast.InputDecl(self.span(start), name, self.type_ref())
        self.expect("(", " and the operator of the gather")
        op = self.here
        if op.text not in _GATHER:
            self.fail("a gather operator: `+ * min max && ||`")
        self.pos += 1
        self.expect(")")
        name = self.ident("the name of an input")
        opening = self.expect("[", " and the number of summands: `[#]` or `[n]`")
        self.open.append(opening)
        count: ast.Expr | ast.StatedBySummands
        if mark := self.take("#"):
            count = ast.StatedBySummands(mark.span)
        else:
            count = self.expression()
        self.bracketed(opening, "]")
        end = self.type_ref()
        return ast.InputDecl(self.span(start), name, end, _GATHER[op.text], count)

    def assign(self, start: Token) -> ast.Assign:
        name = self.ident("the name of a variable")
        type_ = self.type_ref()
        self.expect("=")
        return ast.Assign(self.span(start), name, type_, self.expression())

    def continues(self, *texts: str) -> bool:
        """Whether one of the texts comes next, perhaps on the next line: it continues a statement that has no arrow."""
        if self.here.kind is Kind.NEWLINE:
            following = self.peek(1)
            if following.kind in (Kind.SYMBOL, Kind.WORD) and following.text in texts:
                self.pos += 1
        return self.at(*texts)

    def arrow(self, start: Token) -> ast.Arrow:
        condition: ast.Expr | None = None
        if self.take("if"):
            condition = self.expression()
            self.expect(":", " after the condition")
            while self.here.kind is Kind.NEWLINE:  # a condition without its arrow goes on
                self.pos += 1
        value: ast.Expr | None = None
        if not self.at("->", "#", "##"):
            value = self.expression()
        multiplicity: ast.Expr | ast.Unbounded | None = None
        if self.continues("->", "#", "##") and (mark := self.take("#", "##")):
            multiplicity = ast.Unbounded(mark.span) if mark.text == "##" else self.multiplicity()
        if not self.continues("->"):
            self.fail("`->` and the arrow's target", self._arrow_hint(value))
        self.pos += 1
        target = self.port_ref()
        index = self.index() if self.here.kind is Kind.INDEX_OPEN else None
        iterators: list[ast.Iterator] = []
        iterator_condition: ast.Expr | None = None
        if self.take("for"):
            iterators.append(self.iterator())
            while self.take(","):
                iterators.append(self.iterator())
            if self.take("if"):
                iterator_condition = self.expression()
        return ast.Arrow(
            self.span(start), condition, value, multiplicity, target, index, tuple(iterators), iterator_condition
        )

    def _arrow_hint(self, value: ast.Expr | None) -> str | None:
        if self.at("="):
            return "a variable is assigned as `name = value`; equality is written `==`"
        if isinstance(value, ast.Compare) and self.here.kind is not Kind.NEWLINE:
            return "a condition begins with `if` and ends with `:`"
        return None

    def multiplicity(self) -> ast.Expr:
        return self.expression()

    def index(self) -> tuple[ast.IndexElement, ...]:
        opening = self.advance()
        self.open.append(opening)
        out: list[ast.IndexElement] = []
        while self.here.kind is not Kind.INDEX_CLOSE:
            if self.at("*"):
                out.append(ast.Star(self.advance().span))
            else:
                out.append(self.sum())  # a comparison inside an index needs parentheses
            if not self.take(","):
                break
        self.bracketed(opening, ">", Kind.INDEX_CLOSE)
        return tuple(out)

    def iterator(self) -> ast.Iterator:
        start = self.here
        name = self.ident("the name of an iterator")
        self.expect("in", " and the iterator's range `lo..hi`")
        lo = self.expression()
        self.expect("..", " between the bounds")
        return ast.Iterator(self.span(start), name, lo, self.expression())

    # -- expressions -------------------------------------------------------------------------------------------------
    def expression(self) -> ast.Expr:
        self.deeper()
        start = self.here
        out = self.disjunction()
        if self.take("?"):
            then = self.expression()
            self.expect(":", " of the conditional expression")
            out = ast.Conditional(self.span(start), out, then, self.expression())
            out = replace(out, span=self.span(start))
        self.depth -= 1
        return out

    def disjunction(self) -> ast.Expr:
        return self._logical("||", ast.LogicalOp.OR, lambda: self._logical("&&", ast.LogicalOp.AND, self.comparison))

    def _logical(self, text: str, op: ast.LogicalOp, operand: Callable[[], ast.Expr]) -> ast.Expr:
        start = self.here
        out = operand()
        while self.take(text):
            right = operand()
            out = ast.Logical(self.span(start), op, out, right)
        return out

    def comparison(self) -> ast.Expr:
        first = self.sum()
        return self.comparison_after(first) if self.at(*_COMPARE) else first

    def comparison_after(self, first: ast.Expr) -> ast.Compare:
        rest: list[tuple[ast.CompareOp, ast.Expr]] = []
        while op := self.take(*_COMPARE):
            rest.append((_COMPARE[op.text], self.sum()))
        return ast.Compare(self.span(first), first, tuple(rest))

    def _left(self, ops: dict[str, ast.BinaryOp], operand: Callable[[], ast.Expr]) -> ast.Expr:
        start = self.here
        out = operand()
        while op := self.take(*ops):
            right = operand()
            out = ast.Binary(self.span(start), ops[op.text], out, right)
        return out

    def sum(self) -> ast.Expr:
        return self._left(_SUM, lambda: self._left(_PRODUCT, self.unary))

    def unary(self) -> ast.Expr:
        start = self.here
        if op := self.take("-", "!"):
            self.deeper()
            operand = self.unary()
            self.depth -= 1
            return ast.Unary(self.span(start), ast.UnaryOp(op.text), operand)
        return self.power()

    def power(self) -> ast.Expr:
        start = self.here
        base = self.primary()
        if self.take("**"):
            self.deeper()
            exponent = self.unary()  # right-associative; a minus may follow
            self.depth -= 1
            return ast.Binary(self.span(start), ast.BinaryOp.POW, base, exponent)
        return base

    def primary(self) -> ast.Expr:
        token = self.here
        match token.kind:
            case Kind.INT | Kind.REAL:
                self.pos += 1
                assert isinstance(token.value, int | float)
                return ast.Number(token.span, token.value, token.kind is Kind.REAL)
            case Kind.NAME:
                return self.name()
            case Kind.WORD if token.text in ("true", "false"):
                self.pos += 1
                return ast.BoolLit(token.span, token.text == "true")
            case Kind.WORD if token.text in TYPE_WORDS and self.peek(1).text == "(":
                self.pos += 1
                return self.call(ast.Ident(token.span, token.text))
            case Kind.SYMBOL if token.text == "(":
                self.pos += 1
                self.open.append(token)
                out = self.expression()
                self.bracketed(token, ")")
                return replace(out, span=self.span(token))
            case _:
                self.fail("an expression")

    def name(self) -> ast.Expr:
        token = self.advance()
        ident = ast.Ident(token.span, token.text)
        if self.at("("):
            return self.call(ident)
        if opening := self.take("["):
            self.open.append(opening)
            index = self.expression()
            self.bracketed(opening, "]")
            return ast.Lookup(self.span(token), ident, index)
        return ast.Name(token.span, token.text)

    def call(self, function: ast.Ident) -> ast.Call:
        opening = self.expect("(")
        self.open.append(opening)
        arguments: list[ast.Expr] = []
        while not self.at(")"):
            arguments.append(self.expression())
            if not self.take(","):
                break
        self.bracketed(opening, ")")
        return ast.Call(self.span(function), function, tuple(arguments))


__all__: Sequence[str] = ("parse_expression", "parse_file", "parse_text")
