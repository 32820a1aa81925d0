"""From the tree of a `.upl` text to the `upl` dialect: names resolved, types found, defaults filled in.

What LANGUAGE leaves to the reader is decided here once: glued nodes become one operation, an omitted index or value is
written out, a condition is split into its static part and the part on data.  The operations stand in text order, the
declarations first, a glued node where its first block is; each has the position of its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from upl_mlir.diagnostics import Note, Sources, Span, UplError, error
from upl_mlir.dialects import upl
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, ProgramOp, UplType
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.adjoint import read_adjoint
from upl_mlir.frontend.upl_text.arrows import ArrowBuilder, Endpoint
from upl_mlir.frontend.upl_text.bodies import BodyBuilder
from upl_mlir.frontend.upl_text.declarations import GLOBALS, Declarations, Override, Problems
from upl_mlir.frontend.upl_text.depth import too_deep
from upl_mlir.frontend.upl_text.lexer import RESERVED
from upl_mlir.frontend.upl_text.ranks import UPL_RANK, Rank
from upl_mlir.frontend.upl_text.scope import VALUES, Role, Scope, Symbol, clash, declare, declared_at, loc
from upl_mlir.frontend.upl_text.static import StaticReader
from upl_mlir.frontend.upl_text.typing_rules import Typer
from upl_mlir.poly.expr import Formula, IndexExpr

_ROLES: dict[type, Role] = {
    ast.Param: Role.PARAMETER, ast.Const: Role.CONSTANT, ast.ConstArray: Role.ARRAY, ast.HostInput: Role.HOST_INPUT,
    ast.HostOutput: Role.HOST_OUTPUT, ast.NodeBlock: Role.NODE,
}  # fmt: skip


def to_ir(program: ast.Program, text: str, file: str, overrides: Mapping[str, Override] | None = None) -> ModuleOp:
    """The program as a module with one `upl.program`.

    `overrides` gives parameters, constants and arrays other values; a parameter that is given one becomes a constant.
    Raises UplError (UPL11xx, UPL151x) with one diagnostic for each statement that has an error.
    """
    problems = Problems()
    problems.found += too_deep(program)
    module = ModuleOp([])
    if not problems.found:
        module = _Translator(program, overrides or {}, problems).run(program_name(program, file))
    if problems.found:
        sources = Sources()
        sources.add(file, text)
        ordered = sorted(problems.found, key=lambda d: (d.span.line, d.span.col) if d.span else (0, 0))
        raise UplError(*dict.fromkeys(ordered), sources=sources)
    module.location = loc(Span(file, 1, 1))
    return module


def program_name(program: ast.Program, file: str) -> str:
    """The name in the text, else one made from the file's name."""
    if program.name is not None:
        return program.name.name
    stem = re.sub(r"\W+", "_", PurePath(file).stem).strip("_")
    if not stem.isidentifier() or stem in RESERVED:
        stem = f"program_{stem}".rstrip("_")
    return stem


@dataclass
class _Node:
    """A node put together from its blocks."""

    endpoint: Endpoint
    blocks: list[ast.NodeBlock]
    fields: tuple[ast.Ident, ...] = ()
    inputs: list[ast.InputDecl] = field(default_factory=list[ast.InputDecl])
    op: NodeOp | None = None


class _Translator:
    def __init__(self, program: ast.Program, overrides: Mapping[str, Override], problems: Problems) -> None:
        self.program = program
        self.problems = problems
        self.scope: Scope = {}
        self.declarations = Declarations(self.scope, overrides)
        self.endpoints: dict[str, Endpoint] = {}
        self.nodes: dict[str, _Node] = {}
        self.accepted: list[ast.Item] = []  # items whose names are not taken; of a glued node, the first block

    def run(self, name: str) -> ModuleOp:
        self._declare_names()
        plain = [i for i in self.accepted if isinstance(i, ast.Param | ast.Const | ast.ConstArray)]
        self.declarations.run(plain, self.problems)
        ops: list[Operation] = list(self.declarations.ops)
        for item in self.accepted:  # all ports first: arrows may lead anywhere
            if isinstance(item, ast.HostInput | ast.HostOutput):
                self._host_endpoint(item)
            elif isinstance(item, ast.NodeBlock):
                self._join_blocks(self.nodes[item.name.name])
        made: dict[int, Operation] = {}
        for adjoints in (False, True):  # directives last: they name variables
            for i, item in enumerate(self.accepted):
                if isinstance(item, ast.Adjoint) is adjoints:
                    with self.problems.statement():
                        op = self._item(item)
                        if op is not None:
                            made[i] = op
        ops += [made[i] for i in sorted(made)]
        program = ProgramOp(name, ops)
        program.location = loc(self.program.name.span if self.program.name else self.program.span)
        return ModuleOp([program])

    def _item(self, item: ast.Item) -> Operation | None:
        """The operation of an item; None for a declaration, which has been made already."""
        match item:
            case ast.HostInput():
                return self._host_input(item)
            case ast.HostOutput():
                return self._host_output(item)
            case ast.NodeBlock():
                return self._node(self.nodes[item.name.name])
            case ast.Adjoint():
                op = read_adjoint(item, self.endpoints, self.scope, {n: node.op for n, node in self.nodes.items()})
                op.location = loc(item.span)
                return op
            case _:
                return None

    # -- names -------------------------------------------------------------------------------------------------
    def _declare_names(self) -> None:
        for item in self.program.items:
            if isinstance(item, ast.Adjoint):
                self.accepted.append(item)
                continue
            role, name = _ROLES[type(item)], item.name.name
            old = self.scope.get(name)
            if isinstance(item, ast.NodeBlock) and old is not None and old.role is Role.NODE:
                self.nodes[name].blocks.append(item)
                continue
            with self.problems.statement():
                declare(self.scope, Symbol(name, role, item.name.span), item.name.span)
                self.accepted.append(item)
                if isinstance(item, ast.NodeBlock):
                    endpoint = Endpoint(name, Role.NODE, item.name.span, None)
                    self.nodes[name] = _Node(endpoint, [item])
                    self.endpoints[name] = endpoint

    def _fields(self, fields: Sequence[ast.Ident], owner: str, *, host: bool) -> tuple[str, ...]:
        """The names of index fields, which must be new."""
        seen: Scope = {n: s for n, s in self.scope.items() if s.role in GLOBALS or (host and n == owner)}
        for ident in fields:
            declare(seen, Symbol(ident.name, Role.FIELD, ident.span, Rank.INT), ident.span)
        return tuple(i.name for i in fields)

    # -- host ports --------------------------------------------------------------------------------------------
    def _host_endpoint(self, item: ast.HostInput | ast.HostOutput) -> None:
        name, role = item.name.name, _ROLES[type(item)]
        endpoint = Endpoint(name, role, item.name.span, None, {name: upl.Port(name, _type(item.type))})
        self.endpoints[name] = endpoint
        with self.problems.statement():
            endpoint.fields = self._fields(item.fields or (), name, host=role is Role.HOST_INPUT)

    def _domain(self, parts: Sequence[ast.Expr] | None, fields: Sequence[ast.Ident]) -> Formula | None:
        """A declared domain: over the fields, constants and parameters."""
        if parts is None:
            return None
        scope = dict(self.scope)
        for ident in fields:
            scope[ident.name] = Symbol(ident.name, Role.FIELD, ident.span, Rank.INT)
        help = "a domain uses the index fields, constants and parameters"
        reader = StaticReader("a domain", scope, self._known, GLOBALS | {Role.FIELD}, help=help)
        out: list[Formula] = []
        for part in parts:
            with self.problems.statement():
                out.append(reader.formula(part))
        return Formula.all(out)

    def _known(self, e: IndexExpr) -> int | None:
        return self.declarations.constants.known(e)

    def _host_output(self, item: ast.HostOutput) -> OutputOp:
        fields = self.endpoints[item.name.name].known_fields
        op = OutputOp(item.name.name, fields, _type(item.type), self._domain(item.domain, item.fields or ()))
        op.location = loc(item.span)
        return op

    def _host_input(self, item: ast.HostInput) -> InputOp:
        endpoint = self.endpoints[item.name.name]
        idents = item.fields or ()
        op = InputOp(item.name.name, endpoint.known_fields, _type(item.type), self._domain(item.domain, idents))
        op.location = loc(item.span)
        scope = dict(self.scope)
        for ident, arg in zip(idents, op.block.args[:-1], strict=True):
            arg.location = loc(ident.span)
            scope[ident.name] = Symbol(ident.name, Role.FIELD, ident.span, Rank.INT, arg)
        op.value.location = loc(item.name.span)
        rank = UPL_RANK[op.type]
        scope[item.name.name] = Symbol(item.name.name, Role.ELEMENT, item.name.span, rank, op.value)
        arrows = self._arrow_builder(endpoint, scope, BodyBuilder(op.block, Typer(scope)))
        for arrow in item.arrows:
            with self.problems.statement():
                arrows.build(arrow)
        return op

    # -- nodes -------------------------------------------------------------------------------------------------
    def _join_blocks(self, node: _Node) -> None:
        """Fields and inputs of a glued node: the blocks must agree."""
        name = node.endpoint.name
        with_fields = [b for b in node.blocks if b.fields is not None]
        first = with_fields[0] if with_fields else node.blocks[0]
        node.fields = first.fields or ()
        with self.problems.statement():
            node.endpoint.fields = self._fields(node.fields, name, host=False)
        for block in with_fields[1:]:
            with self.problems.statement():
                given = tuple(i.name for i in block.fields or ())
                wanted = tuple(i.name for i in node.fields)
                if given != wanted:
                    message = f"node `{name}` has the fields <{','.join(wanted)}>, here <{','.join(given)}>"
                    notes = (Note("its first block is here", first.name.span),)
                    help = "all blocks of a node have the same fields; leave them out in the later ones"
                    raise error("UPL1102", message, block.name.span, notes=notes, help=help)
        known: dict[str, tuple[ast.InputDecl, ast.NodeBlock]] = {}
        for block in node.blocks:
            for statement in block.body:
                for decl in statement.inputs if isinstance(statement, ast.Inputs) else ():
                    with self.problems.statement():
                        self._input(node, decl, block, known)
        for decl in node.inputs:  # counts may name other inputs, so they come last
            with self.problems.statement():
                node.endpoint.ports[decl.name.name] = self._port(node, decl)
        if not any(isinstance(s, ast.Inputs) for b in node.blocks for s in b.body):
            with self.problems.statement():
                help = "declare what it waits for: `in x`"
                raise error(
                    "UPL1112", f"node `{name}` has no inputs: nothing makes it fire", first.name.span, help=help
                )

    def _input(
        self,
        node: _Node,
        decl: ast.InputDecl,
        block: ast.NodeBlock,
        known: dict[str, tuple[ast.InputDecl, ast.NodeBlock]],
    ) -> None:
        """Take in one input; a repetition in another block must be the same."""
        name, span = decl.name.name, decl.name.span
        if name in known:
            first, first_block = known[name]
            notes = (Note(f"input `{name}` is declared here", first.name.span),)
            same = (_type(first.type), first.gather, first.count) == (_type(decl.type), decl.gather, decl.count)
            if first_block is block:
                raise error("UPL1102", f"input `{name}` is declared twice", span, notes=notes)
            if not same:
                message = f"input `{name}` of node `{node.endpoint.name}` is declared twice, and differently"
                raise error("UPL1102", message, span, notes=notes)
            return
        field_ident = next((i for i in node.fields if i.name == name), None)
        if field_ident is not None:
            raise clash(name, span, Role.INPUT, Symbol(name, Role.FIELD, field_ident.span))
        old = self.scope.get(name)
        if old is not None and old.role in GLOBALS:
            raise clash(name, span, Role.INPUT, old)
        known[name] = (decl, block)
        node.inputs.append(decl)
        node.endpoint.ports[name] = None

    def _port(self, node: _Node, decl: ast.InputDecl) -> upl.Port:
        name, type_ = decl.name.name, _type(decl.type)
        if decl.gather is None or decl.count is None:
            return upl.Port(name, type_)
        gather = next((g for g in upl.Gather if decl.gather.name == g.value), None)
        if gather is None:
            known = ", ".join(f"`{g.value}`" for g in upl.Gather)
            raise error("UPL1103", f"unknown gather operator `{decl.gather.name}`", decl.gather.span, help=f"one of {known}")
        logical = gather.of_truths
        if logical != (type_ is UplType.BOOL):
            gathered = "truth values" if logical else "numbers"
            message = f"`@({gather.value})` gathers {gathered}, `{name}` is {type_.value}"
            help = "for truth values there are " + " and ".join(f"`{g.value}`" for g in upl.Gather if g.of_truths)
            if logical:
                help = f"write `@({gather.value}) {name}[…]: bool`"
            raise error("UPL1106", message, decl.span, help=help)
        if isinstance(decl.count, ast.StatedBySummands):
            return upl.Port(name, type_, gather, upl.Special.CARRIED)
        if isinstance(decl.count, ast.Unbounded):
            return upl.Port(name, type_, gather, upl.Special.UNBOUNDED)
        return upl.Port(name, type_, gather, self._gather_count(node, decl, decl.count))

    def _gather_count(self, node: _Node, decl: ast.InputDecl, count: ast.Expr) -> IndexExpr:
        """The number of summands: an index expression over fields, or the name of another input."""
        scope = dict(self.scope)
        for ident in node.fields:
            scope[ident.name] = Symbol(ident.name, Role.FIELD, ident.span, Rank.INT)
        for other in node.inputs:
            rank = UPL_RANK[_type(other.type)]
            scope[other.name.name] = Symbol(other.name.name, Role.INPUT, other.name.span, rank)
        alone = isinstance(count, ast.Name) and count.name != decl.name.name
        help = "a count uses fields, constants and parameters, or is the name of one `int` input"
        roles = GLOBALS | {Role.FIELD}
        return StaticReader("a count", scope, self._known, roles, data=alone, help=help).index(count)

    def _node(self, node: _Node) -> NodeOp:
        endpoint = node.endpoint
        ports = [p for p in endpoint.ports.values() if p is not None]
        op = NodeOp(endpoint.name, endpoint.known_fields, ports, self._declared(node))
        op.location = loc(node.blocks[0].span)
        node.op = op
        args = list(op.block.args)
        scope = dict(self.scope)
        for ident, arg in zip(node.fields, args, strict=False):
            arg.location = loc(ident.span)
            scope[ident.name] = Symbol(ident.name, Role.FIELD, ident.span, Rank.INT, arg)
        at = len(op.fields)
        for decl in node.inputs:
            name = decl.name.name
            port = endpoint.ports[name]
            scope[name] = Symbol(name, Role.INPUT, decl.name.span)
            if port is not None:
                args[at].location = loc(decl.span)
                scope[name] = Symbol(name, Role.INPUT, decl.name.span, UPL_RANK[port.type], args[at])
                at += 1
        self._body(node, op, scope)
        return op

    def _declared(self, node: _Node) -> Formula | None:
        """The declared domain; blocks that declare one must agree."""
        out: Formula | None = None
        first: Span | None = None
        for block in node.blocks:
            domain = self._domain(block.domain, node.fields)
            if domain is None:
                continue
            if out is not None and domain != out:
                with self.problems.statement():
                    other = out.text(domain=True)
                    message = f"node `{node.endpoint.name}` has another domain in its other block: `{other}`"
                    raise error("UPL1102", message, block.name.span, notes=(Note("declared here", first),))
            out, first = domain, block.name.span
        return out

    def _body(self, node: _Node, op: NodeOp, scope: Scope) -> None:
        statements = [s for b in node.blocks for s in b.body if not isinstance(s, ast.Inputs)]
        later: dict[str, Span] = {}
        for s in statements:
            if isinstance(s, ast.Assign):
                later.setdefault(s.name.name, s.name.span)
        typer = Typer(scope, later)
        builder = BodyBuilder(op.block, typer)
        arrows = self._arrow_builder(node.endpoint, scope, builder)
        for s in statements:
            with self.problems.statement():
                if isinstance(s, ast.Assign):
                    self._assign(s, scope, builder)
                    arrows.last = scope[s.name.name]
                elif isinstance(s, ast.Bare):
                    arrows.last = s
                else:
                    arrows.build(s)
        taken = {bare for bare, _ in arrows.taken}
        for s in statements:
            if isinstance(s, ast.Bare) and s not in taken and not self.problems.found:
                with self.problems.statement():
                    raise _not_taken(s, node)

    def _arrow_builder(self, endpoint: Endpoint, scope: Scope, builder: BodyBuilder) -> ArrowBuilder:
        return ArrowBuilder(endpoint, scope, self.endpoints, self.declarations.constants, builder)

    def _assign(self, s: ast.Assign, scope: Scope, builder: BodyBuilder) -> None:
        name, span = s.name.name, s.name.span
        old = scope.get(name)
        if old is not None and old.role in VALUES:
            message = f"cannot assign to {old.role.value} `{name}`"
            help = None
            if old.role is Role.VARIABLE:
                message, help = f"variable `{name}` is assigned twice", "each variable has one value: take another name"
            raise error("UPL1109", message, span, notes=declared_at(old), help=help)
        scope[name] = Symbol(name, Role.VARIABLE, span)  # stays so if there is an error below
        wanted = builder.typer.rank(s.value)
        if s.type is not None:
            wanted = UPL_RANK[_type(s.type)]
            builder.typer.convertible(s.value, wanted, f"variable `{name}`")
        let = upl.LetOp(name, builder.emit(s.value, wanted))
        value = builder.add(let, s.span)
        scope[name] = replace(scope[name], rank=wanted, value=value)


def _not_taken(s: ast.Bare, node: _Node) -> UplError:
    """The error about an expression that no arrow takes."""
    message = "no arrow takes the value of this statement"
    if len(node.inputs) == 1:
        message += f": where an arrow leaves it out, the only input `{node.inputs[0].name.name}` is meant"
    help_ = "write it in the arrow, `… -> NODE.input`, or give it the name of the target's input"
    return error("UPL1012", message, s.span, help=help_)


def _type(ref: ast.TypeRef | None) -> UplType:
    return UplType.REAL if ref is None else UplType(ref.type.value)
