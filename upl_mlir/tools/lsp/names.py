"""Every name in a text, where it stands and what it means: for definitions, references, renaming, and completion.

A name is known by its owner and itself: a port, node, constant or parameter belongs to the program (the owner ""); an index
field, input or variable to its node or host port; an iterator to its arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import cast

from upl_mlir.diagnostics import Span
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.scope import Role
from upl_mlir.tools.lsp.text import Place, within

Key = tuple[str, str]
"""Owner and name."""


@dataclass(frozen=True)
class Occurrence:
    """A name in the text."""

    span: Span
    key: Key
    declares: bool


@dataclass(frozen=True)
class Declared:
    """What a name means: its role, where it is declared first, and that item, input, assignment or field."""

    key: Key
    role: Role
    span: Span
    node: ast.Node


@dataclass
class Shape:
    """A host port or node as arrows see it: all its blocks together."""

    name: str
    role: Role
    fields: tuple[str, ...] = ()
    inputs: dict[str, ast.InputDecl] = field(default_factory=dict[str, ast.InputDecl])
    items: list[ast.HostInput | ast.HostOutput | ast.NodeBlock] = field(
        default_factory=list[ast.HostInput | ast.HostOutput | ast.NodeBlock]
    )

    @property
    def bracketed(self) -> str:
        """The fields as they are written behind the name."""
        return f"<{','.join(self.fields)}>" if self.fields else ""


class Names:
    """The names of a program; `at` and `of` ask for them."""

    def __init__(self, program: ast.Program):
        self.program = program
        self.occurrences: list[Occurrence] = []
        self.declared: dict[Key, Declared] = {}
        self.shapes: dict[str, Shape] = {}
        self._seen: set[Place] = set()
        for item in program.items:
            self._declare_item(item)
        for item in program.items:
            self._walk_item(item)
        self.occurrences.sort(key=lambda o: (o.span.line, o.span.col))

    # -- questions -----------------------------------------------------------------------------------------------
    def at(self, place: Place) -> Occurrence | None:
        """The name at a place, or just before it."""
        found = [o for o in self.occurrences if within(o.span, place)]
        return found[-1] if found else None

    def of(self, key: Key) -> list[Occurrence]:
        """Everywhere a name stands, in text order."""
        return [o for o in self.occurrences if o.key == key]

    def members(self, owner: str) -> dict[str, Declared]:
        """The fields, inputs and variables of a node, or the fields of a port."""
        return {name: d for (of, name), d in self.declared.items() if of == owner}

    def item_at(self, place: Place) -> ast.Item | None:
        """The item that a place is in."""
        return next((i for i in self.program.items if within(i.span, place)), None)

    def sources_of(self, name: str) -> Iterator[tuple[str, ast.Arrow]]:
        """The arrows to a node or port, each with the name of its source."""
        for source, arrow in self.arrows():
            if arrow.target.port.name == name:
                yield source, arrow

    def arrows(self) -> Iterator[tuple[str, ast.Arrow]]:
        """All arrows, each with the name of its source."""
        for item in self.program.items:
            if isinstance(item, ast.HostInput):
                for arrow in item.arrows:
                    yield item.name.name, arrow
            elif isinstance(item, ast.NodeBlock):
                for statement in item.body:
                    if isinstance(statement, ast.Arrow):
                        yield item.name.name, statement

    # -- declarations --------------------------------------------------------------------------------------------
    def _declare(self, owner: str, ident: ast.Ident, role: Role, node: ast.Node) -> None:
        self.declared.setdefault((owner, ident.name), Declared((owner, ident.name), role, ident.span, node))
        self._note(ident.span, (owner, ident.name), declares=True)

    def _declare_item(self, item: ast.Item) -> None:
        match item:
            case ast.Param():
                self._declare("", item.name, Role.PARAMETER, item)
            case ast.Const():
                self._declare("", item.name, Role.CONSTANT, item)
            case ast.ConstArray():
                self._declare("", item.name, Role.ARRAY, item)
            case ast.HostInput() | ast.HostOutput() | ast.NodeBlock():
                self._declare_endpoint(item)
            case ast.Adjoint():
                pass

    def _declare_endpoint(self, item: ast.HostInput | ast.HostOutput | ast.NodeBlock) -> None:
        roles: dict[type, Role] = {ast.HostInput: Role.HOST_INPUT, ast.HostOutput: Role.HOST_OUTPUT}
        name, role = item.name.name, roles.get(type(item), Role.NODE)
        self._declare("", item.name, role, item)
        shape = self.shapes.setdefault(name, Shape(name, role))
        shape.items.append(item)
        if item.fields and not shape.fields:
            shape.fields = tuple(f.name for f in item.fields)
        for ident in item.fields or ():
            self._declare(name, ident, Role.FIELD, ident)
        for statement in item.body if isinstance(item, ast.NodeBlock) else ():
            match statement:
                case ast.Inputs():
                    for decl in statement.inputs:
                        self._declare(name, decl.name, Role.INPUT, decl)
                        shape.inputs.setdefault(decl.name.name, decl)
                case ast.Assign():
                    self._declare(name, statement.name, Role.VARIABLE, statement)
                case _:
                    pass

    # -- uses ----------------------------------------------------------------------------------------------------
    def _note(self, span: Span, key: Key, *, declares: bool = False) -> None:
        if (span.line, span.col) not in self._seen:
            self._seen.add((span.line, span.col))
            self.occurrences.append(Occurrence(span, key, declares))

    def _walk_item(self, item: ast.Item) -> None:
        owner = item.name.name if isinstance(item, ast.HostInput | ast.HostOutput | ast.NodeBlock) else ""
        self._walk(item, owner, {})

    def _walk(self, node: object, owner: str, iterators: Mapping[str, Key]) -> None:
        match node:
            case ast.Name():
                self._use(node.name, node.span, owner, iterators)
            case ast.Lookup():
                self._use(node.array.name, node.array.span, owner, iterators)
                self._walk(node.index, owner, iterators)
            case ast.Call():
                for argument in node.arguments:
                    self._walk(argument, owner, iterators)
            case ast.PortRef():
                self._port(node)
            case ast.Arrow():
                self._arrow(node, owner)
            case tuple():
                for part in cast("tuple[object, ...]", node):
                    self._walk(part, owner, iterators)
            case ast.Node():
                for part in fields(node):
                    self._walk(getattr(node, part.name), owner, iterators)
            case _:
                pass

    def _arrow(self, arrow: ast.Arrow, owner: str) -> None:
        scope = f"{owner}@{arrow.span.line}:{arrow.span.col}"
        own: dict[str, Key] = {}
        for iterator in arrow.iterators:
            own[iterator.name.name] = (scope, iterator.name.name)
            self._declare(scope, iterator.name, Role.ITERATOR, iterator)
        for part in fields(arrow):
            self._walk(getattr(arrow, part.name), owner, own)

    def _use(self, name: str, span: Span, owner: str, iterators: Mapping[str, Key]) -> None:
        for key in (iterators.get(name), (owner, name), ("", name)):
            if key is not None and key in self.declared:
                self._note(span, key)
                return

    def _port(self, ref: ast.PortRef) -> None:
        if ("", ref.port.name) in self.declared:
            self._note(ref.port.span, ("", ref.port.name))
        if ref.member is not None and (ref.port.name, ref.member.name) in self.declared:
            self._note(ref.member.span, (ref.port.name, ref.member.name))
