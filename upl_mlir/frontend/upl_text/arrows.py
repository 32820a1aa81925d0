"""Arrows: conditions split into a static and a data part, default values and indices, targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from upl_mlir.diagnostics import Note, Span, UplError, did_you_mean, error
from upl_mlir.dialects.upl import Index, Iterator, Port, SendOp, Special, port_ref
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.bodies import BodyBuilder, literal_value
from upl_mlir.frontend.upl_text.declarations import GLOBALS
from upl_mlir.frontend.upl_text.fold import Constants
from upl_mlir.frontend.upl_text.ranks import UPL_RANK, Rank, rank_of
from upl_mlir.frontend.upl_text.scope import VALUES, Poisoned, Role, Scope, Symbol, clash, declared_at, loc
from upl_mlir.frontend.upl_text.static import NotStatic, StaticReader
from upl_mlir.frontend.upl_text.typing_rules import CASTS, check_conversion
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr


@dataclass
class Endpoint:
    """A host port or node as arrows see it; a host output is its own one input.

    `fields` is None, and so is an input's port, where the declaration has an error.
    """

    name: str
    role: Role
    span: Span
    fields: tuple[str, ...] | None
    ports: dict[str, Port | None] = field(default_factory=dict[str, Port | None])

    @property
    def bracketed(self) -> str:
        """The fields as text: ``<d,k,i>``."""
        return f"<{','.join(self.fields or ())}>"

    @property
    def known_fields(self) -> tuple[str, ...]:
        """The fields.  Raises Poisoned if they are not known."""
        if self.fields is None:
            raise Poisoned
        return self.fields


@dataclass
class ArrowBuilder:
    """Makes the arrows of one source: a node or a host input."""

    source: Endpoint
    scope: Scope
    endpoints: Mapping[str, Endpoint]
    constants: Constants
    builder: BodyBuilder
    last: Symbol | ast.Bare | None = None
    """The last expression of the body so far: a variable, or one without a name."""
    taken: dict[tuple[ast.Bare, Rank], SSAValue] = field(default_factory=dict[tuple[ast.Bare, Rank], SSAValue])
    """Expressions without a name that arrows have taken, as the types wanted."""

    def build(self, arrow: ast.Arrow) -> SendOp:
        """Append the operations of an arrow.  Raises UplError."""
        target, port = self._target(arrow.target)
        scope, iterators = self._iterators(arrow.iterators)
        typer = self.builder.typer
        typer.iterators = frozenset(i.name for i in iterators)
        try:
            condition, predicate = self._condition(arrow.condition)
            value = self._value(arrow, target, port)
        finally:
            typer.iterators = frozenset()
        index = self._index(arrow, target, port, scope)
        point_condition = TRUE
        if arrow.iterator_condition is not None:
            roles = GLOBALS | {Role.FIELD, Role.ITERATOR}
            point_condition = self._reader("a condition on iterators", scope, roles).formula(arrow.iterator_condition)
        send = SendOp(
            value,
            port_ref(target.name, None if target.role is Role.HOST_OUTPUT else port.name),
            index,
            count=self._count(arrow.multiplicity, port, scope),
            condition=condition,
            predicate=predicate,
            iterators=iterators,
            point_condition=point_condition,
        )
        send.location = loc(arrow.span)
        self.builder.block.add_op(send)
        return send

    def _reader(
        self, what: str, scope: Scope, roles: frozenset[Role], *, data: bool = False, help: str | None = None
    ) -> StaticReader:
        return StaticReader(what, scope, self.constants.known, roles, data, help)

    # -- target ------------------------------------------------------------------------------------------------
    def _target(self, ref: ast.PortRef) -> tuple[Endpoint, Port]:
        target = find_endpoint(self.endpoints, self.scope, ref)
        if target.role is Role.HOST_INPUT:
            notes = (Note(f"host input `{target.name}` is declared here", target.span),)
            message = f"nothing can be sent to host input `{target.name}`"
            raise error("UPL1104", message, ref.port.span, notes=notes)
        return target, find_input(target, ref)

    # -- iterators ---------------------------------------------------------------------------------------------
    def _iterators(self, items: Sequence[ast.Iterator]) -> tuple[Scope, list[Iterator]]:
        """The scope with the iterators in it; bounds may use the iterators before."""
        scope = dict(self.scope)
        out: list[Iterator] = []
        for item in items:
            reader = self._reader("an iterator's bound", scope, GLOBALS | {Role.FIELD, Role.ITERATOR})
            lo, hi = reader.index(item.lo), reader.index(item.hi)
            name = item.name.name
            old = scope.get(name)
            if old is not None and old.role in VALUES:
                raise clash(name, item.name.span, Role.ITERATOR, old)
            scope[name] = Symbol(name, Role.ITERATOR, item.name.span, Rank.INT)
            out.append(Iterator(name, lo, hi))
        return scope, out

    # -- condition ---------------------------------------------------------------------------------------------
    def _condition(self, e: ast.Expr | None) -> tuple[Formula, SSAValue | None]:
        """The static part as a formula, the rest as a truth value."""
        if e is None:
            return TRUE, None
        static: list[Formula] = []
        data: list[ast.Expr] = []
        reader = self._reader("a condition", self.scope, GLOBALS | {Role.FIELD})
        _split(e, reader, static, data)
        for part in data:
            check_conversion(self.builder.typer.rank(part), Rank.BOOL, "a condition", part.span)
        return Formula.all(static), self.builder.conjunction(data, e.span)

    # -- value -------------------------------------------------------------------------------------------------
    def _value(self, arrow: ast.Arrow, target: Endpoint, port: Port) -> SSAValue:
        wanted = UPL_RANK[port.type]
        what = f"host output `{target.name}`" if target.role is Role.HOST_OUTPUT else f"`{target.name}.{port.name}`"
        if arrow.value is not None:
            self.builder.typer.convertible(arrow.value, wanted, what)
            return self.builder.emit(arrow.value, wanted)
        symbol = self._default_value(arrow, port)
        if isinstance(symbol, ast.Bare):
            key = symbol, wanted
            if key not in self.taken:
                self.builder.typer.convertible(symbol.value, wanted, what)
                self.taken[key] = self.builder.emit(symbol.value, wanted)
            return self.taken[key]
        if symbol.value is None:
            raise Poisoned
        check_conversion(rank_of(symbol.value.type), wanted, f"{what}, which gets `{symbol.name}`,", arrow.span)
        return self.builder.convert(symbol.value, wanted, arrow.span)

    def _default_value(self, arrow: ast.Arrow, port: Port) -> Symbol | ast.Bare:
        """The only input, or the variable with the name of the target's input; else the last expression (LANGUAGE 3.5)."""
        inputs = [self.scope[n] for n in self.source.ports]
        found = inputs if len(inputs) == 1 else []
        variable = self.scope.get(port.name)
        if variable is not None and variable.role is Role.VARIABLE:
            found = [variable, *found]
        if len(found) == 1:
            return found[0]
        if not found and self.last is not None:
            return self.last
        if found:
            both = " and ".join(f"{s.role.value} `{s.name}`" for s in found)
            message = f"this arrow names no value, and two could be meant: {both}"
        else:
            names = ", ".join(f"`{s.name}`" for s in inputs)
            has = f"the inputs {names}" if names else "no input"
            message = f"this arrow names no value: `{self.source.name}` has {has}"
            message += f" and no variable `{port.name}` is assigned above"
        help = f"write the value in front: `{next((s.name for s in found or inputs), '1')} -> …`"
        raise error("UPL1107", message, arrow.span, help=help)

    # -- index and count ---------------------------------------------------------------------------------------
    def _index(self, arrow: ast.Arrow, target: Endpoint, port: Port, scope: Scope) -> Index:
        fields = target.known_fields
        index: Index
        if arrow.index is None:
            usable = {n for n, s in scope.items() if s.role in (Role.FIELD, Role.ITERATOR)}
            index = tuple(IndexExpr.of(f) if f in usable else None for f in fields)
        else:
            if len(arrow.index) != len(fields):
                count = f"{len(fields)} index field{'s' * (len(fields) != 1)}"
                message = f"{target.name} has {count} {target.bracketed}, the arrow gives {len(arrow.index)}"
                notes = (Note(f"`{target.name}` is declared here", target.span),)
                raise error("UPL1105", message, arrow.target.span, notes=notes)
            reader = self._reader("an index", scope, GLOBALS | {Role.FIELD, Role.ITERATOR}, data=True)
            index = tuple(None if isinstance(e, ast.Star) else reader.index(e) for e in arrow.index)
        if None in index and (port.gather or target.role is Role.HOST_OUTPUT):
            missing = fields[index.index(None)]
            kind = "gathering input" if port.gather else "host output"
            how = "" if arrow.index is not None else f": `{self.source.name}` has no field `{missing}`"
            message = f"a token for {kind} `{port.name}` carries no `*`{how}"
            help = (
                f"give field `{missing}` of {target.name}{target.bracketed} in full, or use `for {missing} in lo..hi`"
            )
            raise error("UPL1105", message, arrow.target.span, help=help)
        return index

    def _count(self, e: ast.Expr | ast.Unbounded | None, port: Port, scope: Scope) -> IndexExpr | Special | None:
        if e is None:
            return None
        if isinstance(e, ast.Unbounded):
            if port.gather:
                message = f"`##` says nothing to gathering input `{port.name}`, which counts its summands"
                raise error("UPL1106", message, e.span)
            return Special.UNBOUNDED
        reader = self._reader("a multiplicity", scope, GLOBALS | {Role.FIELD, Role.ITERATOR}, data=True)
        count = reader.index(e)
        if count.constant is not None and count.constant < 1:
            help = "a token that no instance uses is not sent: guard the arrow, `if …:`"
            raise error("UPL1108", f"the multiplicity is {count.constant}; it must be at least 1", e.span, help=help)
        return count


def _split(e: ast.Expr, reader: StaticReader, static: list[Formula], data: list[ast.Expr]) -> None:
    """Sort the parts of a conjunction; a chain stays whole only if it is all data and computes a middle operand."""
    match e:
        case ast.Logical(op=ast.LogicalOp.AND, left=left, right=right):
            _split(left, reader, static, data)
            _split(right, reader, static, data)
        case ast.Compare(first=first, rest=rest) if len(rest) > 1:
            lefts = [first, *[r for _, r in rest]]
            pairs = [ast.Compare(e.span, left, (link,)) for left, link in zip(lefts, rest, strict=False)]
            formulas = [_try_formula(p, reader) for p in pairs]
            if not all(map(_is_simple, lefts[1:-1])) and all(f is None for f in formulas):
                data.append(e)
                return
            static += [f for f in formulas if f is not None]
            data += [p for p, f in zip(pairs, formulas, strict=True) if f is None]
        case _:
            formula = _try_formula(e, reader)
            if formula is None:
                data.append(e)
            else:
                static.append(formula)


def _is_simple(e: ast.Expr) -> bool:
    """Whether an expression costs nothing to compute twice: a name or literal, perhaps converted."""
    match e:
        case ast.Call(function=function, arguments=(argument,)) if function.name in ("floor", *CASTS):
            return _is_simple(argument)
        case _:
            return isinstance(e, ast.Name) or literal_value(e) is not None


def _try_formula(e: ast.Expr, reader: StaticReader) -> Formula | None:
    try:
        return reader.formula(e)
    except NotStatic:
        return None


def find_endpoint(endpoints: Mapping[str, Endpoint], scope: Scope, ref: ast.PortRef, code: str = "UPL1104") -> Endpoint:
    """The host port or node that a reference names.  Raises UplError."""
    name = ref.port.name
    if name in endpoints:
        return endpoints[name]
    symbol = scope.get(name)
    if symbol is not None:
        message = f"`{name}` is {symbol.role.article}, not a node or a host port"
        raise error(code, message, ref.port.span, notes=declared_at(symbol))
    help = did_you_mean(name, endpoints)
    if help is None and ref.member is None:
        help = f"declare it: `output {name}`, with its index fields in `<>`; an input of a node is written NODE.input"
    raise error(code, f"unknown node or host port `{name}`", ref.port.span, help=help)


def find_input(target: Endpoint, ref: ast.PortRef, code: str = "UPL1104") -> Port:
    """The input of a node (or the host port) that a reference names.  Raises UplError, or Poisoned."""
    name = target.name
    if target.role is not Role.NODE:
        if ref.member is not None:
            message = f"{target.role.value} `{name}` has no inputs of its own"
            raise error(code, message, ref.member.span, help=f"write `{name}`")
        port = target.ports[name]
    elif ref.member is None:
        if len(target.ports) != 1:
            raise _which_input(target, ref, "UPL1107" if code == "UPL1104" else code)
        port = next(iter(target.ports.values()))
    elif ref.member.name in target.ports:
        port = target.ports[ref.member.name]
    else:
        help = did_you_mean(ref.member.name, target.ports)
        if help is not None:
            help = help.replace("`", f"`{name}.", 1)
        elif target.ports:
            help = f"its inputs are {', '.join(f'`{n}`' for n in target.ports)}"
        message = f"node `{name}` has no input `{ref.member.name}`"
        notes = (Note(f"node `{name}` is declared here", target.span),)
        raise error(code, message, ref.member.span, notes=notes, help=help)
    if port is None:
        raise Poisoned
    return port


def _which_input(target: Endpoint, ref: ast.PortRef, code: str) -> UplError:
    names = [f"`{target.name}.{n}`" for n in target.ports]
    if not names:
        return error(code, f"node `{target.name}` has no inputs", ref.span)
    message = f"node `{target.name}` has {len(names)} inputs: which one?"
    return error(code, message, ref.span, help="write " + " or ".join(names))
