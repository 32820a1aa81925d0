"""From `.upl` text to the tree of `ast.py`: items and statements.  The expressions are in `grammar.py`.

Written by hand: importing lark alone takes 60 to 90 ms, which is more than importing and running this parser; and messages
in the user's words, which depend on what was being read, are simple here and not in an LALR table.

    program   ::= [program NAME] {item}                        items and statements end at a line end or `;`
    item      ::= param NAME [[e:e]] [comparison]  |  const NAME = e  |  const NAME[e:e] = [e, ...]  (also empty)
                | input NAME [fields] [: TYPE] [in e, ...] [{ arrows }]
                | output NAME [fields] [: TYPE] [in e, ...]
                | node NAME [fields] [in e, ...] { statements }
                | adjoint of PORT [seed PORT] wrt [total] PORT, ... [-> PORT, ...]
    fields    ::= <NAME, ...>  |  <>
    statement ::= in input, ...  |  NAME [: TYPE] = e  |  e ;  |  arrow
    input     ::= NAME [: TYPE]  |  @(OP) NAME[e | # | ##] [: TYPE]
    arrow     ::= [if e :] [e] [# e | ##] -> PORT [<(e | *), ...>] [for NAME in e..e, ... [if e]]
    PORT      ::= NAME [. NAME]

A line end before `->` does not end an arrow that has a condition, value or multiplicity but no `->` yet; one before
`for` does not end an arrow without `for` (no statement begins with `for`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TypeVar

from upl_mlir.diagnostics import Note, Span, UplError, decode, did_you_mean, error, read_bytes
from upl_mlir.frontend.upl_text.ast import (
    Adjoint,
    Arrow,
    Assign,
    Bare,
    Compare,
    CompareOp,
    Const,
    ConstArray,
    Expr,
    HostInput,
    HostOutput,
    Ident,
    IndexElement,
    InputDecl,
    Inputs,
    Item,
    Iterator,
    Name,
    NodeBlock,
    Param,
    PortRef,
    Program,
    Star,
    StatedBySummands,
    Statement,
    TypeRef,
    Unbounded,
)
from upl_mlir.frontend.upl_text.grammar import Cursor, begins_operand, describe, is_one_of
from upl_mlir.frontend.upl_text.lexer import ITEM_WORDS, TYPE_WORDS, Kind, Token

_S = TypeVar("_S", bound=Statement)
_R = TypeVar("_R")

_ITEMS = "`param`, `const`, `input`, `output`, `node` or `adjoint`"
_COMPARISONS = tuple(op.value for op in CompareOp)


def parse_text(text: str, file: str = "<string>") -> Program:
    """The tree of the text of a whole program; `file` is the name its positions get.

    Raises UplError (UPL1002 to UPL1013), which knows the text and shows the line.
    """
    return _read(text, file, lambda parser: parser.program())


def parse_expression(text: str, file: str = "<string>") -> Expr:
    """The tree of a text that is one expression.  Raises UplError (UPL1002 to UPL1011)."""
    return _read(text, file, lambda parser: parser.whole_expression())


def parse_file(path: str | Path) -> tuple[Program, str]:
    """The tree of the program in a file, and its text.

    Raises UplError: as `read_file`, else as `parse_text`.
    """
    text = read_file(path)
    return parse_text(text, str(path)), text


def read_file(path: str | Path) -> str:
    """The text of a file.  Raises UplError (UPL1001) if it cannot be read or is not UTF-8."""
    return decode(read_bytes(path), str(path))


def _read(text: str, file: str, read: Callable[[_Parser], _R]) -> _R:
    try:
        return read(_Parser(text, file))
    except UplError as e:
        e.sources.add(file, text)
        raise


class _Parser(Cursor):
    """Items and statements.  Each method reads the construct of its name and leaves the cursor behind it."""

    # --- the whole text ----------------------------------------------------------------------------------------------

    def program(self) -> Program:
        self.skip_separators()
        name: Ident | None = None
        if self.accept("program"):
            name = self.ident("the name of the program")
            self.end_of_item("the name of the program")
        items: list[Item] = []
        self.skip_separators()
        while self.token.kind is not Kind.END:
            items.append(self.item())
            self.skip_separators()
            if self.at("->") and isinstance(items[-1], Adjoint):
                help = "the `->` of a directive stands on the line of its `wrt`"
                raise error("UPL1012", "`->` stands outside of every block", self.token.span, help=help)
        end = self.token.span
        if name is None and not items:
            raise error("UPL1013", "there is no program in this text", end, help="begin with `program NAME`")
        span = Span(end.file, 1, 1, end.end_line, end.end_col)
        return Program(span, name, tuple(items), tuple(self.comments))

    def whole_expression(self) -> Expr:
        self.skip_separators()
        out = self.expression()
        self.skip_separators()
        if self.token.kind is not Kind.END:
            self.fail("an operator or the end of the expression")
        return out

    # --- items -------------------------------------------------------------------------------------------------------

    def item(self) -> Item:
        token = self.token
        if token.kind is not Kind.WORD or token.text not in ITEM_WORDS:
            self._no_item()
        if token.text == "program":
            message = "`program` stands once, at the beginning of the text"
            raise error("UPL1012", message, token.span)
        self.advance()
        match token.text:
            case "param":
                return self.param(token)
            case "const":
                return self.const(token)
            case "input":
                return self.host_input(token)
            case "output":
                return self.host_output(token)
            case "node":
                return self.node(token)
            case _:
                return self.adjoint(token)

    def _no_item(self) -> NoReturn:
        token = self.token
        if self.at("}"):
            self._not_open()
        if is_one_of(token, ("->", "if", "in", "for", "#", "##")):
            help = "only nodes and inputs have statements, in `{ }`"
            raise error("UPL1012", f"`{token.text}` stands outside of every block", token.span, help=help)
        help = None
        if token.kind is Kind.NAME:
            help = did_you_mean(token.text, ITEM_WORDS)
            if help is None and self.following().text == "=":
                help = f"a constant is declared by `const {token.text} = …`; variables belong to nodes"
        self.fail(_ITEMS, help=help)

    def _not_open(self) -> NoReturn:
        raise error("UPL1008", "there is no open `{` that this `}` closes", self.token.span)

    def end_of_item(self, before: str, *, help: str | None = None) -> None:
        """Check that an item ends here; `before` is what it consists of, in words."""
        if self.token.kind not in (Kind.NEWLINE, Kind.END) and not self.at(";"):
            if self.at("}"):
                self._not_open()
            self.fail("a new line or `;`" + (f" after {before}" if before else ""), help=help)

    def param(self, start: Token) -> Param:
        name = self.ident("the name of a parameter")
        condition: Compare | None = None
        bounds: tuple[Expr, Expr] | None = None
        if opening := self.accept("["):
            bounds = self.array_bounds(name, opening, "param")
        if self.at(*_COMPARISONS):
            condition = self.comparisons(Name(name.span, name.name), name.span)
        help = None
        if self.at("="):
            help = "a value makes it a constant: write `const`, or give the value on the command line"
        elif self.at("in"):
            help = f"a bound is written `param {name.name} >= 1`"
        elif self.at(","):
            help = "write one `param` for each"
        self.end_of_item("" if condition else "the bounds" if bounds else "the name of a parameter", help=help)
        return Param(self.since(start), name, condition, bounds)

    def array_bounds(self, name: Ident, opening: Token, word: str) -> tuple[Expr, Expr]:
        """`lo:hi]`, both ends included."""
        lo = self.expression()
        value = " = […]" if word == "const" else ""
        self.expect(":", after="the lower bound", help=f"give both bounds: `{word} {name.name}[0:n-1]{value}`")
        hi = self.expression()
        self.close(opening, "an operator")
        return lo, hi

    def const(self, start: Token) -> Const | ConstArray:
        name = self.ident("the name of a constant")
        opening = self.accept("[")
        if opening is None:
            help = f"write `const {name.name} = …`" + ("; its type follows from its value" if self.at(":") else "")
            self.expect("=", help=help)
            if self.at("["):
                self.fail("an expression", help=f"an array has bounds: `const {name.name}[0:n-1] = […]`")
            value = self.expression()
            self.end_of_item("")
            return Const(self.since(start), name, value)
        lo, hi = self.array_bounds(name, opening, "const")
        self.expect("=")
        opening = self.expect("[")
        values = () if self.at("]") else self.list_of(self.expression)
        self.close(opening, "`,`")
        self.end_of_item("")
        return ConstArray(self.since(start), name, lo, hi, values)

    def host_input(self, start: Token) -> HostInput:
        name, fields, kind, domain = self.host_header("input")
        arrows: tuple[Arrow, ...] = ()
        if self.at("{"):
            arrows = self.block(self.host_statement)
        self.end_of_item("")
        return HostInput(self.since(start), name, fields, kind, domain, arrows)

    def host_output(self, start: Token) -> HostOutput:
        name, fields, kind, domain = self.host_header("output")
        if self.at("{"):
            raise error("UPL1012", "an output has no block: tokens end in it", self.token.span)
        self.end_of_item("")
        return HostOutput(self.since(start), name, fields, kind, domain)

    def host_header(self, what: str) -> tuple[Ident, tuple[Ident, ...] | None, TypeRef | None, tuple[Expr, ...] | None]:
        name = self.ident(f"the name of an {what}")
        fields = self.fields(f"{what} {name.name}")
        kind = self.type_after_colon()
        domain = self.domain()
        if domain and self.at(":"):
            self.fail("`{` or the end of the line", help="the type stands before `in`")
        return name, fields, kind, domain

    def node(self, start: Token) -> NodeBlock:
        name = self.ident("the name of a node")
        fields = self.fields(f"node {name.name}")
        domain = self.domain()
        if not self.at("{"):
            help = "a node has no type; its inputs have" if self.at(":") else None
            self.fail("`{`" if domain else "`in` or `{`", help=help)
        body = self.block(self.statement)
        self.end_of_item("")
        return NodeBlock(self.since(start), name, fields, domain, body)

    def adjoint(self, start: Token) -> Adjoint:
        self.expect("of")
        of = self.port_ref("the name of an output or node")
        seed = self.port_ref("the name of a node") if self.accept("seed") else None
        self.expect("wrt")
        total = self.token.text == "total" and self.following().kind is Kind.NAME and bool(self.advance())
        wrt = self.list_of(lambda: self.port_ref("the name of an input or node"))
        targets = self.list_of(lambda: self.port_ref("the name of a node")) if self.accept("->") else ()
        self.end_of_item("")
        return Adjoint(self.since(start), of, seed, total, wrt, targets)

    def fields(self, head: str) -> tuple[Ident, ...] | None:
        """`<field, …>`, or None if there is none."""
        if self.token.kind is not Kind.INDEX_OPEN:
            if self.at("(", "["):
                self.fail("index fields in `< >`, `in` or `{`", help=f"fields are written `{head}<i,j>`")
            return None
        opening = self.advance()
        names: tuple[Ident, ...] = ()
        if not self.at_index_close():
            names = self.list_of(lambda: self.ident("a field name", help="bounds and conditions stand after `in`"))
        self.close(opening, "`,`")
        return names

    def domain(self) -> tuple[Expr, ...] | None:
        """`in condition, …`, or None if there is none."""
        return self.list_of(self.expression) if self.accept("in") else None

    def port_ref(self, what: str) -> PortRef:
        start = self.token
        port = self.ident(what)
        member = self.ident(f"the name of an input of `{port.name}`") if self.accept(".") else None
        if self.at("."):
            self.fail("one `.` at most", help="write `NODE.input`")
        return PortRef(self.since(start), port, member)

    # --- statements --------------------------------------------------------------------------------------------------

    def block(self, read: Callable[[], _S]) -> tuple[_S, ...]:
        """`{ statements }`."""
        opening = self.advance()
        out: list[_S] = []
        while True:
            self.skip_separators()
            if self.accept("}"):
                return tuple(out)
            if self.token.kind is Kind.END or self.at(*ITEM_WORDS):
                help = "the inputs of a node are declared with `in`" if self.at("input") else None
                self.fail("a statement or `}`", opening=opening, help=help)
            out.append(read())
            if not (self.token.kind in (Kind.NEWLINE, Kind.END) or self.at(";", "}")):
                self._no_end(out[-1])

    def host_statement(self) -> Arrow:
        if self.at("in") or self._assigns():
            what = "inputs are declared" if self.at("in") else "variables are assigned"
            raise error("UPL1012", "the block of an input holds only arrows", self.token.span, help=f"{what} in nodes")
        return self.arrow()

    def statement(self) -> Statement:
        if self.at("in"):
            start = self.advance()
            inputs = self.list_of(self.input_decl)
            return Inputs(self.since(start), inputs)
        if self._assigns():
            start = self.token
            name = self.ident("the name of a variable")
            if name.name in ("else", "elif") and self.following().text not in ("=", *TYPE_WORDS):
                help = "there is no `else`: write a second arrow with the opposite condition"
                raise error("UPL1012", f"`{name.name}` begins no statement", name.span, help=help)
            kind = self.type_after_colon()
            self.expect("=")
            value = self.expression()
            return Assign(self.since(start), name, kind, value)
        start, value = self.token, self.expression() if begins_operand(self.token) else None
        if value is not None and self.at(";"):  # said with `;`: at a line end an arrow is more likely missing
            return Bare(replace(start.span, end_line=self.token.span.end_line, end_col=self.token.span.end_col), value)
        return self.arrow(start, value)

    def _assigns(self) -> bool:
        """Whether `NAME =` or `NAME :` comes next, or a reserved word is taken for such a name."""
        named = self.token.kind is Kind.NAME or (self.token.kind is Kind.WORD and not self.at("if", "in"))
        return named and is_one_of(self.following(), ("=", ":"))

    def _no_end(self, before: Statement) -> NoReturn:
        """Raise the error that a statement does not end here."""
        token, help = self.token, None
        if isinstance(before, Inputs):
            expected = "`,` or the end of the statement"
            if self.at("["):
                help = "a gathering input has an operation: `@(+) s[n]`"
        elif isinstance(before, Assign):
            expected = "an operator or the end of the statement"
            if self.at("->", "#", "##"):
                help = "write two statements: the assignment; then the arrow"
        else:
            expected = "the end of the statement"
            if self.at("if"):
                help = "a condition stands before the value, `if condition: value -> …`, or after `for`"
            elif self.at("->"):
                help = "write one arrow for each target, with `;` between them"
            elif self.at("#", "##"):
                help = "a multiplicity stands before `->`"
            elif self.at("(", "["):
                help = "an index is written `-> NODE.input<i,j>`"
            elif self.previous.kind is Kind.INDEX_CLOSE and token.kind is not Kind.NEWLINE:
                help = "the index ended at `>`; inside an index a comparison needs parentheses"
        self.fail(expected, help=help)

    def input_decl(self) -> InputDecl:
        start = self.token
        if not self.accept("@"):
            name = self.ident("the name of an input, or `@(op)`")
            kind = self.type_after_colon()
            return InputDecl(self.since(start), name, kind)
        opening = self.expect("(")
        if self.token.kind not in (Kind.SYMBOL, Kind.NAME) or self.token.text == ")":
            self.fail("the operation of a gathering input", help="a sum is `@(+) s[n]`")
        operator = self.advance()
        gather = Ident(self.since(operator), operator.text)
        self.close(opening, "nothing else")
        name = self.ident("the name of an input")
        if not self.at("["):
            self.fail("`[`", help=f"give the number of summands, `{name.name}[n]`, or `{name.name}[#]`")
        opening = self.advance()
        if self.at("]"):
            self.fail("the number of summands", help=f"`{name.name}[#]` if summands say it, `{name.name}[##]` if none do")
        mark = self.accept("#", "##")
        count = (Unbounded if mark.text == "##" else StatedBySummands)(mark.span) if mark else self.expression()
        self.close(opening, "an operator" if not mark else "nothing else")
        kind = self.type_after_colon()
        return InputDecl(self.since(start), name, kind, gather, count)

    def arrow(self, start: Token | None = None, value: Expr | None = None) -> Arrow:
        """An arrow, of which the value may have been read already, from `start` on."""
        start, condition = start or self.token, None
        if value is None and self.accept("if"):
            condition = self.expression()
            self.expect(":", after="the condition")
        if value is None and begins_operand(self.token):
            value = self.expression()
        elif value is None and not self.at("#", "##", "->"):
            self._no_statement(condition)
        self._join_line("->")
        multiplicity: Expr | Unbounded | None = None
        if mark := self.accept("##"):
            multiplicity = Unbounded(mark.span)
        elif self.accept("#"):
            multiplicity = self.expression()
        self._join_line("->")
        if not self.accept("->"):
            self._no_arrow(start, value, multiplicity)
        target = self.port_ref("the name of a node or output")
        index: tuple[IndexElement, ...] | None = None
        if self.token.kind is Kind.INDEX_OPEN:
            index = self.index()
        self._join_line("for")
        iterators: tuple[Iterator, ...] = ()
        iterator_condition: Expr | None = None
        if self.accept("for"):
            iterators = self.list_of(self.iterator)
            if self.accept("if"):
                iterator_condition = self.expression()
        return Arrow(self.since(start), condition, value, multiplicity, target, index, iterators, iterator_condition)

    def _join_line(self, text: str) -> None:
        """Step over a line end before `text`."""
        if self.token.kind is Kind.NEWLINE and is_one_of(self.following(), (text,)):
            self.advance()

    def _no_statement(self, condition: Expr | None) -> NoReturn:
        if self.at("for"):
            help = "it ends an arrow: `-> NODE.input<…> for i in lo..hi`"
            raise error("UPL1012", "`for` without an arrow", self.token.span, help=help)
        help = "a statement has at most one `if`; join conditions by `&&`" if condition and self.at("if") else None
        self.fail("a value, `#` or `->`" if condition else "a statement", help=help)

    def _no_arrow(self, start: Token, value: Expr | None, multiplicity: Expr | Unbounded | None) -> NoReturn:
        """Raise the error that a value or multiplicity is not followed by `->`."""
        token = self.token
        help = None
        if token.kind in (Kind.NEWLINE, Kind.END) or self.at(";", "}"):
            help = "send it, `-> NODE.input`, give it a name, `t = …`, or end it with `;` if arrows below shall take it"
            if is_one_of(self.following(), ("#", "##")):
                help = f"`{self.following().text}` stands on the line of the value"
            message = f"this statement has no arrow: expected `->`, found {describe(token)}"
            raise error("UPL1012", message, self.since(start), notes=[Note("expected here", token.span)], help=help)
        if self.at(":") and value and not multiplicity:
            help = "a condition begins with `if`"
        elif self.at("for"):
            help = "`for` stands after the target: `-> NODE.input<…> for i in lo..hi`"
        elif multiplicity is None and begins_operand(token) and self.on_this_line("->"):
            help = "a multiplicity is written with `#`: `value #n -> NODE.input`"
        expected = "an operator or `->`" if multiplicity else "an operator, `#` or `->`"
        self.fail(expected, help=help)

    def index(self) -> tuple[IndexElement, ...]:
        """`<element, …>`, or `<>`."""
        opening = self.advance()
        elements: tuple[IndexElement, ...] = ()
        if not self.at_index_close():
            elements = self.list_of(lambda: self._element(opening))
        self.close(opening, "`,`")
        return elements

    def _element(self, opening: Token) -> IndexElement:
        if self.at("*"):
            return Star(self.advance().span)
        return self.index_element(opening)

    def iterator(self) -> Iterator:
        name = self.ident("the name of an iterator")
        self.expect("in", after="the iterator", help=f"write `for {name.name} in lo..hi`")
        lo = self.expression()
        self.expect("..", after="the lower bound")
        hi = self.expression()
        return Iterator(self.since(name.span), name, lo, hi)
