"""Constants and parameters of a program: values, overrides from outside, and their operations."""

from __future__ import annotations

import numbers
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Operation

from upl_mlir.diagnostics import Diagnostic, Span, UplError, did_you_mean, error
from upl_mlir.dialects.upl import ArrayOp, ConstOp, ParamOp
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.fold import INT_MAX, INT_MIN, Constants, Value
from upl_mlir.frontend.upl_text.ranks import Rank
from upl_mlir.frontend.upl_text.scope import Poisoned, Role, Scope, declared_at, loc
from upl_mlir.frontend.upl_text.static import NotStatic, StaticReader
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr

Scalar = int | float
Override = int | float | Sequence[Any]
"""A value given from outside for a constant, a parameter or an array."""

GLOBALS = frozenset({Role.CONSTANT, Role.ARRAY, Role.PARAMETER})
"""What index expressions may use everywhere."""


@dataclass
class Problems:
    """The errors found so far; one statement's error does not hide the next statement's."""

    found: list[Diagnostic] = field(default_factory=list[Diagnostic])

    @contextmanager
    def statement(self) -> Generator[None]:
        """Keep the errors of the block; what only follows from an error already kept is dropped."""
        try:
            yield
        except Poisoned:
            pass
        except UplError as e:
            self.found += e.diagnostics


@dataclass
class Declarations:
    """Evaluates declarations in text order; `scope` already knows all declared names of the program."""

    scope: Scope
    overrides: Mapping[str, Override]
    constants: Constants = field(default_factory=Constants)
    ops: list[Operation] = field(default_factory=list[Operation])

    def run(self, items: Sequence[ast.Param | ast.Const | ast.ConstArray], problems: Problems) -> None:
        """Evaluate everything; the operations come in text order."""
        with problems.statement():
            self._check_overrides()
        self.constants.later |= {i.name.name for i in items}
        for item in items:
            self.constants.later.discard(item.name.name)
            with problems.statement():
                match item:
                    case ast.Param(bounds=(_, _)):
                        self._array_param(item)
                    case ast.Param():
                        self._param(item)
                    case ast.Const():
                        self._const(item)
                    case ast.ConstArray():
                        self._array(item)
                continue
            self.constants.poisoned.add(item.name.name)  # the block ended with an error
        for item, condition in self._conditions(items, problems):
            with problems.statement():
                self._check_condition(item, condition)

    def reader(self, what: str, *, roles: frozenset[Role] = GLOBALS) -> StaticReader:
        """A reader of static expressions over global names."""
        return StaticReader(what, self.scope, self.constants.known, roles)

    # -- parameters --------------------------------------------------------------------------------------------
    def _param(self, item: ast.Param) -> None:
        name = item.name.name
        self.scope[name] = replace(self.scope[name], rank=Rank.INT)
        op: Operation
        if name in self.overrides:
            value = self._integer_override(name, self.overrides[name], item.name.span)
            self.constants.scalars[name] = value
            self.scope[name] = replace(self.scope[name], role=Role.CONSTANT)
            op = ConstOp(name, IntegerAttr(value, i64))
        else:
            self.constants.parameters.add(name)
            op = ParamOp(name)
        op.location = loc(item.span)
        self.ops.append(op)

    def _array_param(self, item: ast.Param) -> None:
        """A symbolic array, or a constant one if its values are given."""
        assert item.bounds is not None
        name = item.name.name
        self.scope[name] = replace(self.scope[name], role=Role.ARRAY, rank=Rank.INT)
        condition = TRUE
        if item.condition is not None:
            entry = {**self.scope, name: replace(self.scope[name], role=Role.PARAMETER)}
            reader = StaticReader("a condition on a parameter", entry, self.constants.known, GLOBALS)
            condition = reader.formula(item.condition)
        if name not in self.overrides:
            self.constants.parameters.add(name)
            reader = self.reader("a bound of an array")
            lo, hi = (reader.index(e) for e in item.bounds)
            self._append(ArrayOp(name, lo, hi, condition=condition), item.span)
            return
        self._array(ast.ConstArray(item.span, item.name, *item.bounds, ()))
        first, values = self.constants.arrays[name]
        for i, v in enumerate(values):
            env = {n: int(s) for n in condition.names if isinstance(s := self.constants.scalars.get(n), int)}
            env[name] = int(v)
            if all(n in env for n in condition.names) and not condition.evaluate(env, self.constants.entry):
                message = f"`{name}[{first + i}]` is {v}, which contradicts `{condition}`"
                raise error("UPL1512", message, item.span)

    def _conditions(
        self, items: Sequence[ast.Param | ast.Const | ast.ConstArray], problems: Problems
    ) -> list[tuple[ast.Param, Formula]]:
        """The conditions on parameters, once all constants are known."""
        out: list[tuple[ast.Param, Formula]] = []
        for item in items:
            if isinstance(item, ast.Param) and item.condition is not None and item.bounds is None:
                with problems.statement():
                    out.append((item, self.reader("a condition on a parameter").formula(item.condition)))
        return out

    def _check_condition(self, item: ast.Param, condition: Formula) -> None:
        """Store the condition on a free parameter; test it on a bound one."""
        name = item.name.name
        if name in self.constants.parameters:
            at = next(i for i, op in enumerate(self.ops) if isinstance(op, ParamOp) and op.symbol == name)
            op = ParamOp(name, condition)
            op.location = loc(item.span)
            self.ops[at] = op
            return
        free = sorted(condition.names & self.constants.parameters)
        if free:
            message = f"`{condition}` cannot be checked for `{name}` while `{free[0]}` is free"
            raise error("UPL1512", message, item.span, help=f"bind `{free[0]}`, too")
        env = {n: int(v) for n in condition.names if isinstance(v := self.constants.scalars.get(n), int)}
        if not all(n in env for n in condition.names):
            raise Poisoned
        lookup = {k: self.constants.known(IndexExpr.of(k)) for k in condition.lookups()}
        if None not in lookup.values() and not condition.evaluate(env, self.constants.entry):
            message = f"`{name}` is {env[name]}, which contradicts `{condition}`"
            raise error("UPL1512", message, item.span)

    # -- constants ---------------------------------------------------------------------------------------------
    def _const(self, item: ast.Const) -> None:
        name = item.name.name
        given = self.overrides.get(name)
        written = self._evaluate(item.value, given)
        if isinstance(written, bool):
            message = f"constant `{name}` would be a truth value"
            help = "a constant is an integer or a real number; write `1` or `… ? 1 : 0`"
            raise error("UPL1106", message, item.value.span, help=help)
        expr: IndexExpr | None = None
        value: Scalar = written
        if given is not None:
            read = self._real_override if isinstance(written, float) else self._integer_override
            value = read(name, given, item.name.span)
        elif isinstance(written, int) and not _is_literal(item.value):
            expr = self._written(item.value)
        self.constants.scalars[name] = value
        attr = IntegerAttr(value, i64) if isinstance(value, int) else FloatAttr(value, f64)
        rank = Rank.INT if isinstance(value, int) else Rank.REAL
        self.scope[name] = replace(self.scope[name], rank=rank)
        self._append(ConstOp(name, attr, expr), item.span)

    def _evaluate(self, e: ast.Expr, given: object) -> Value:
        """The value as written; where that fails, it does not matter for a constant whose value is given."""
        try:
            return self.constants.value(e)
        except UplError:
            if isinstance(given, numbers.Real):
                return int(given) if isinstance(given, numbers.Integral) else float(given)
            raise

    def _written(self, e: ast.Expr) -> IndexExpr | None:
        """An integer constant's expression as it is kept in the IR; None if it is not an index expression."""
        try:
            expr = self.reader("a constant").index(e)
        except NotStatic:
            return None
        return None if expr.constant is not None else expr

    def _array(self, item: ast.ConstArray) -> None:
        name = item.name.name
        lo, hi = (self._bound_of(e) for e in (item.lo, item.hi))
        first, last = self.constants.integer(item.lo, "a bound"), self.constants.integer(item.hi, "a bound")
        length = last - first + 1
        given = self.overrides.get(name)
        entries = None if given is None else _as_list(name, given, item.name.span)
        like = entries[0] if entries else None
        written = [self._evaluate(v, like) for v in item.values]
        values: list[Scalar] = [int(v) if isinstance(v, bool) else v for v in written]
        real = any(isinstance(v, float) for v in values)
        if entries is not None:
            read = self._real_override if real else self._integer_override
            values = [read(name, v, item.name.span) for v in entries]
        if len(values) != max(length, 0):
            shown = f"[{_bound_text(lo, first)}:{_bound_text(hi, last)}]"
            count = f"{len(values)} value{'s' * (len(values) != 1)}"
            if given is not None:
                message = f"`{name}` is given {count}, but `{name}{shown}` has {max(length, 0)}"
                raise error("UPL1512", message, item.name.span)
            help = "both bounds are included" if len(values) == length - 1 else None
            if any(n in self.overrides for n in lo.names | hi.names):
                help = f"give `{name}`, too"
            message = f"`{name}{shown}` has {max(length, 0)} entries, {count} given"
            raise error("UPL1111", message, item.span, help=help)
        self.constants.arrays[name] = (first, tuple(values))
        self.scope[name] = replace(self.scope[name], rank=Rank.REAL if real else Rank.INT)
        if real:
            dense = DenseArrayBase.from_list(f64, [float(v) for v in values])
        else:
            dense = DenseArrayBase.from_list(i64, [int(v) for v in values])
        self._append(ArrayOp(name, lo, hi, first, dense), item.span)

    def _bound_of(self, e: ast.Expr) -> IndexExpr:
        self.constants.integer(e, "a bound")
        return self.reader("a bound of an array").index(e)

    def _append(self, op: Operation, span: Span) -> None:
        op.location = loc(span)
        self.ops.append(op)

    # -- overrides ---------------------------------------------------------------------------------------------
    def _check_overrides(self) -> None:
        known = [s.name for s in self.scope.values() if s.role in GLOBALS]
        wrong: list[Diagnostic] = []
        for name in self.overrides:
            if name in known:
                continue
            help = did_you_mean(name, known)
            symbol = self.scope.get(name)
            message = f"the program has no parameter or constant `{name}`"
            if symbol is not None:
                message = f"`{name}` is {symbol.role.article}: only parameters and constants can be given a value"
            elif help is None and known:
                help = f"it has {', '.join(f'`{n}`' for n in known)}"
            notes = declared_at(symbol) if symbol else ()
            wrong.append(Diagnostic("UPL1511", message, None, notes, help))
        if wrong:
            raise UplError(*wrong)

    def _integer_override(self, name: str, value: Any, span: Span) -> int:
        if _is_number(value, numbers.Integral):
            if not INT_MIN <= int(value) <= INT_MAX:
                raise error("UPL1512", f"the value {value} for `{name}` does not fit into 64 bits", span)
            return int(value)
        raise error("UPL1512", f"`{name}` takes an integer, not {_shown(value)}", span)

    def _real_override(self, name: str, value: Any, span: Span) -> float:
        if _is_number(value, numbers.Real):
            return float(value)
        raise error("UPL1512", f"`{name}` takes a number, not {_shown(value)}", span)


def _bound_text(expr: IndexExpr, value: int) -> str:
    """A bound as text, with its value if that is not evident."""
    return str(expr) if expr.constant is not None else f"{expr}={value}"


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_literal(e: ast.Expr) -> bool:
    match e:
        case ast.Number() | ast.Unary(op=ast.UnaryOp.NEG, operand=ast.Number()):
            return True
        case _:
            return False


def _shown(value: object) -> str:
    text = repr(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return f"the list {text}" if isinstance(value, list | tuple) else text


def _as_list(name: str, value: object, span: Span) -> list[object]:
    """The entries of an array given as a list, a tuple or a one-dimensional numpy array."""
    to_list = getattr(value, "tolist", None)
    if to_list is not None:
        value = to_list()
    if isinstance(value, list | tuple):
        return list(cast("Sequence[object]", value))
    help = f"write {name}=[…]"
    raise error("UPL1512", f"`{name}` is an array: it takes a list, not {_shown(value)}", span, help=help)
