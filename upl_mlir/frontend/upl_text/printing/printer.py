"""Programs as `.upl` text, written as a person would write them; the text reads back as the same program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import (
    AdjointOp,
    ArrayOp,
    ConstOp,
    InputOp,
    LetOp,
    NodeOp,
    OutputOp,
    ParamOp,
    ProgramOp,
    SendOp,
    UplType,
)
from upl_mlir.dialects.upl.attributes import count_text, index_text
from upl_mlir.dialects.upl.query import array_values, is_integer_array, span_of, symbols
from upl_mlir.frontend.upl_text.lexer import RESERVED
from upl_mlir.frontend.upl_text.printing.print_values import Strength, ValuePrinter, is_deep, is_trivial, real_text
from upl_mlir.frontend.upl_text.ranks import rank_of
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.operators import Connective

SHORT_LINE = 100
"""A node with at most one statement beside its inputs stands on one line if that is no longer than this."""
LONG = 80
"""What stands in a condition is not written out beyond this."""


@dataclass(frozen=True)
class ArrowText:
    """The parts of an arrow; empty where there is nothing to say."""

    condition: str
    value: str
    count: str
    target: str  # with its index
    loops: str

    def __str__(self) -> str:
        condition = f"if {self.condition}:" if self.condition else ""
        loops = f"for {self.loops}" if self.loops else ""
        return " ".join(p for p in (condition, self.value, self.count, f"-> {self.target}", loops) if p)


def arrow_texts(program: ProgramOp) -> dict[SendOp, ArrowText]:
    """Every arrow of a program as `print_program` writes it, part by part."""
    taken = symbols(program)
    out: dict[SendOp, ArrowText] = {}
    for op in program.body.block.ops:
        if isinstance(op, InputOp | NodeOp):
            body = _Body(op, taken)
            for _ in body.statements():
                pass
            out |= body.arrows
    return out


def condition_text(send: SendOp) -> str:
    """The condition of an arrow as it would be written without assignments: ``2**i<=q``, not the name of its truth value."""
    parts = [] if send.when.is_true else [f"{send.when}"]
    if send.predicate is not None:
        parent = send.parent_op()
        assert isinstance(parent, InputOp | NodeOp)
        values = _Body(parent, set()).values
        needed = {send.predicate}
        ops = list(parent.block.ops)
        for op in reversed(ops):
            if any(r in needed for r in op.results):
                needed.update(op.operands)
        for op in ops:
            if isinstance(op, LetOp) and op.result in needed:
                values.texts[op.result] = values.exact(op.value)
            elif any(r in needed for r in op.results):
                values.define(op)
                if len(values.exact(op.results[0]).text) > LONG:  # what is used often would grow without end
                    values.name(op.results[0], "...")
        parts.append(values.exact(send.predicate).text)
    return " && ".join(f"({p})" if len(parts) > 1 and "||" in p else p for p in parts)


def target_text(send: SendOp) -> str:
    """Where an arrow leads, with its index."""
    return f"{_ref(send.target)}<{index_text(send.index.data)}>"


def assignment_texts(program: ProgramOp) -> dict[NodeOp, tuple[str, ...]]:
    """The assignments of every node as `print_program` writes them, in order."""
    taken = symbols(program)
    out: dict[NodeOp, tuple[str, ...]] = {}
    for op in program.body.block.ops:
        if isinstance(op, NodeOp):
            body = _Body(op, taken)
            statements = [s for s, _ in body.statements()]
            sent = {str(a) for a in body.arrows.values()}
            out[op] = tuple(s for s in statements if s not in sent)
    return out


def declaration_texts(program: ProgramOp) -> tuple[str, ...]:
    """The parameters and constants as `print_program` writes them, in order."""
    return tuple(_declaration(op) for op in program.body.block.ops if isinstance(op, ParamOp | ConstOp | ArrayOp))


def print_program(program: ProgramOp, *, domains: bool = False) -> str:
    """The program as UPL text; `domains` also prints inferred domains where none is declared.

    Raises UplError (UPL1113) for what a pass has made of operations that UPL has no text for.
    """
    ops = list(program.body.block.ops)
    taken: set[str] = set()
    for op in ops:
        if isinstance(op, ParamOp | ConstOp | ArrayOp | InputOp | OutputOp | NodeOp):
            taken.add(op.symbol)
    sections: list[list[str]] = [[f"program {program.sym_name.data}"], [], [], []]
    for op in ops:
        match op:
            case ParamOp() | ConstOp() | ArrayOp():
                sections[0].append(_declaration(op))
            case InputOp() | OutputOp() | NodeOp():
                at = 2 if isinstance(op, NodeOp) or sections[2] else 1
                sections[at].append(_block(op, taken, domains=domains))
            case AdjointOp():
                sections[2 if sections[2] else 1].append(_adjoint(op))
            case _:
                raise error("UPL1113", f"`{op.name}` cannot be written as UPL text", span_of(op))
    return "\n\n".join("\n".join(s) for s in sections if s) + "\n"


# -- declarations ------------------------------------------------------------------------------------------------


def _declaration(op: ParamOp | ConstOp | ArrayOp) -> str:
    name = op.symbol
    match op:
        case ParamOp():
            return _param(op)
        case ConstOp():
            if op.expr is not None:
                return f"const {name} = {op.expr.data}"
            if isinstance(op.value, IntegerAttr):
                return f"const {name} = {_integer(op.value.value.data)}"
            return f"const {name} = {real_text(op.value.value.data)}"
        case ArrayOp() if op.symbolic:
            return _param(op)
        case ArrayOp():
            show = _integer if is_integer_array(op) else real_text
            values = ", ".join(show(v) for v in cast("Sequence[int]", array_values(op)))
            return f"const {name}[{op.lower.data}:{op.upper.data}] = [{values}]"


def _integer(value: int) -> str:
    return str(value) if value > -(2**63) else f"-{2**63 - 1} - 1"


def _param(op: ParamOp | ArrayOp) -> str:
    head = f"param {op.symbol}" + (f"[{op.lower.data}:{op.upper.data}]" if isinstance(op, ArrayOp) else "")
    if op.condition is None:
        return head
    condition = op.condition.data
    if condition.kind is Connective.CMP:
        for c in (condition, Formula.compare(condition.rhs, condition.op.flipped, condition.lhs)):
            if c.lhs == IndexExpr.of(op.symbol):
                return f"{head} {c.op.value} {c.rhs}"
    message = f"the condition `{condition}` of parameter `{op.symbol}` cannot be written as UPL text"
    raise error("UPL1113", message, span_of(op))


def _ref(ref: SymbolRefAttr) -> str:
    return ref.string_value()


def _adjoint(op: AdjointOp) -> str:
    text = f"adjoint of {_ref(op.of)}"
    if op.seed is not None:
        text += f" seed {_ref(op.seed)}"
    text += f" wrt {'total ' if op.total else ''}{', '.join(_ref(r) for r in op.wrt)}"
    return text + (f" -> {', '.join(_ref(r) for r in op.into)}" if op.into else "")


# -- ports and nodes ---------------------------------------------------------------------------------------------


def _block(op: InputOp | OutputOp | NodeOp, taken: set[str], *, domains: bool) -> str:
    kind = {InputOp: "input", OutputOp: "output", NodeOp: "node"}[type(op)]
    head = f"{kind} {op.symbol}"
    if op.fields:
        head += f"<{','.join(op.fields)}>"
    if not isinstance(op, NodeOp) and op.dtype.data != UplType.REAL.value:
        head += f": {op.dtype.data}"
    domain = op.declared or (op.domain if domains else None)
    if domain is not None:
        head += f" in {domain.data.text(domain=True)}"
    comment = comment_of(op)
    if isinstance(op, OutputOp):
        return head + comment
    statements = list(_Body(op, taken).statements())
    ports = [f"in {', '.join(map(str, op.ports))}"] if isinstance(op, NodeOp) and op.ports else []
    plain = not any(c for _, c in statements)
    line = f"{head} {{ {'; '.join([*ports, *[s for s, _ in statements]])} }}"
    if not ports and not statements:
        return (f"{head} {{ }}" if isinstance(op, NodeOp) else head) + comment
    if plain and len(statements) <= 1 and len(line) <= SHORT_LINE:
        return line + comment
    lines = [f"{head} {{{comment}", *[f"  {p}" for p in ports], *[f"  {s}{c}" for s, c in statements], "}"]
    return "\n".join(lines)


def comment_of(op: Operation) -> str:
    """The text of the attribute ``upl.comment`` as a comment, with two spaces before it; empty if there is none."""
    attr = op.attributes.get("upl.comment")
    return f"  // {' '.join(attr.data.split())}" if isinstance(attr, StringAttr) else ""


class _Body:
    """The statements of a body, each with its comment."""

    def __init__(self, op: InputOp | NodeOp, taken: set[str]) -> None:
        self.op = op
        self.values = ValuePrinter()
        names = [*op.fields, *([p.name for p in op.ports] if isinstance(op, NodeOp) else [op.symbol])]
        for arg, name in zip(op.block.args, names, strict=True):
            self.values.name(arg, name)
        self.taken = taken | set(names) | RESERVED
        for inner in op.block.ops:
            if isinstance(inner, LetOp):
                self.taken.add(inner.var.data)
            elif isinstance(inner, SendOp):
                self.taken |= {i.name for i in inner.loops}
        self.arrows: dict[SendOp, ArrowText] = {}
        self.live = self._live()
        self.position = {inner: i for i, inner in enumerate(op.block.ops)}

    def statements(self) -> Iterator[tuple[str, str]]:
        """Assignments and arrows in order."""
        uses = self._uses()
        named = isinstance(self.op, NodeOp)  # the block of a host input has no assignments
        for op in self.op.block.ops:
            if isinstance(op, LetOp):
                if not named:
                    self.values.texts[op.result] = self.values.exact(op.value)
                    continue
                yield self._let(op), comment_of(op)
                self.values.name(op.result, op.var.data)
                if not is_trivial(op.value, self.values.named):
                    self.values.name(op.value, op.var.data)
            elif isinstance(op, SendOp):
                self.arrows[op] = self._send(op)
                yield str(self.arrows[op]), comment_of(op)
            elif op in self.live:
                self.values.define(op)
                value = op.results[0]
                shared = uses.get(value, 0) > 1 and not is_trivial(value, self.values.named)
                if named and (shared or is_deep(self.values.exact(value))) and not self._let_first(value):
                    name = self._fresh()
                    yield f"{name} = {self.values.exact(value).text}", ""
                    self.values.name(value, name)

    def _live(self) -> set[Operation]:
        """Operations whose values are used by a statement, directly or not."""
        live: set[Operation] = set()
        for op in reversed(list(self.op.block.ops)):
            if isinstance(op, LetOp | SendOp) or any(u.operation in live for r in op.results for u in r.uses):
                live.add(op)
        return live

    def _uses(self) -> dict[SSAValue, int]:
        """How often the text of each value is written; the middle of a chain of comparisons is written once."""
        uses: dict[SSAValue, int] = {}
        for op in self.op.block.ops:
            if op in self.live:
                for v in op.operands:
                    uses[v] = uses.get(v, 0) + 1
        for op in self.op.block.ops:
            chain = self.values.chain(op) if op in self.live else None
            if chain is not None:
                uses[chain.shared] -= 1
        return uses

    def _let_first(self, value: SSAValue) -> bool:
        """Whether the first to use a value is an assignment, whose name then serves all others."""
        users = [u.operation for u in value.uses if u.operation in self.live]
        return bool(users) and isinstance(min(users, key=self.position.__getitem__), LetOp)

    def _fresh(self) -> str:
        n = 1
        while f"t{n}" in self.taken:
            n += 1
        self.taken.add(f"t{n}")
        return f"t{n}"

    def _let(self, op: LetOp) -> str:
        exact, bare = self.values.exact(op.value), self.values.bare(op.value, narrow=True)
        wanted = rank_of(op.result.type)
        converted = not isinstance(op.value.owner, arith.ConstantOp) or exact.text.startswith("f32(")
        if bare is not exact and converted and bare.rank is not wanted:
            return f"{op.var.data}: {wanted.word} = {bare.text}"
        return f"{op.var.data} = {exact.text}"

    def _send(self, op: SendOp) -> ArrowText:
        condition: list[str] = []
        if not op.when.is_true:
            bracket = op.when.kind is Connective.OR and op.predicate is not None and op.when.args
            condition.append(f"({op.when})" if bracket else str(op.when))
        if op.predicate is not None:
            needed = Strength.AND if condition else Strength.OR
            condition.append(self.values.exact(op.predicate).at(needed))
        count = count_text(op.count.data) if op.count is not None else ""
        loops = ", ".join(map(str, op.loops))
        if op.loops and op.when_point != TRUE:
            loops += f" if {op.when_point}"
        return ArrowText(
            condition=" && ".join(condition),
            value=self.values.bare(op.value, narrow=True).text,
            count=count if count.startswith("#") or not count else f"#{count}",
            target=target_text(op),
            loops=loops,
        )
