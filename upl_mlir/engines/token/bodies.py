"""Bodies as C++ source: the interpreter's rules for what is evaluated where, with operations and arrows written in C++."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from upl_mlir.dialects.upl import LookupOp, RefOp
from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.engines.interp.bodies import Body, Rule
from upl_mlir.engines.interp.exprs import Writer
from upl_mlir.engines.interp.plan import Arrow, Mode
from upl_mlir.engines.token.expressions import C_TYPES, CScope, CWriter, integer
from upl_mlir.engines.token.tags import Layout, Tags

_TEXTS: dict[type[Operation], str] = {
    arith.DivfOp: "{0} / {1}", math.AbsFOp: "__builtin_fabs({0})", math.RoundOp: "round({0})", math.RoundEvenOp: "rint({0})",
    math.FmaOp: "fma({0}, {1}, {2})", math.PowFOp: "pow({0}, {1})", math.FPowIOp: "pow({0}, real({1}))",
    math.Exp2Op: "pow(2.0, {0})", math.SqrtOp: "__builtin_sqrt({0})",
    arith.AddiOp: "add({0}, {1})", arith.SubiOp: "sub({0}, {1})", arith.MuliOp: "mul({0}, {1})",
    math.AbsIOp: "int_abs({0})", arith.SIToFPOp: "real({0})", arith.UIToFPOp: "real({0})", arith.ExtUIOp: "truth({0})",
    arith.SelectOp: "{0} ? {1} : {2}",
}  # fmt: skip
"""Where the text differs from the interpreter's; all other texts are C++ as they stand (`runtime.h` has the functions)."""

_FLOAT_TESTS = (
    "false", "{0} == {1}", "{0} > {1}", "{0} >= {1}", "{0} < {1}", "{0} <= {1}", "{0} < {1} || {0} > {1}",
    "{0} == {0} && {1} == {1}", "!({0} < {1} || {0} > {1})", "!({0} <= {1})", "!({0} < {1})", "!({0} >= {1})",
    "!({0} > {1})", "{0} != {1}", "{0} != {0} || {1} != {1}", "true",
)  # fmt: skip


def c_text(op: type[Operation], rule: Rule) -> str:
    """The text of an operation in C++, where the interpreter has a rule for it."""
    return _TEXTS.get(op, rule.text.replace(" and ", " && ").replace(" or ", " || "))


@dataclass
class CBody(Body):
    """The body of one node or host input; `tags` say how indices are packed, its own and those of its targets.

    `order` is the number of iterators that an ordered summand's origin has, None if the program folds nothing in order;
    `receivers` numbers the receiving functions.
    """

    tags: Tags
    order: int | None
    receivers: dict[str, int]
    counts: bool  # tokens carry a multiplicity
    UNBOUNDED = "FOREVER"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scope = CScope(self.scope.ctx, self.scope.tables, self.scope.names, self.scope.dynamic)

    @property
    def _layout(self) -> Layout:
        return self.tags.layouts[self.number]

    # -- values ----------------------------------------------------------------------------------------------------
    def _rule(self, op: Operation) -> Rule | None:
        rule = super()._rule(op)
        if rule is None or isinstance(op, LookupOp):
            return rule
        if isinstance(op, arith.CmpfOp):
            return replace(rule, text=_FLOAT_TESTS[op.predicate.value.data])
        return replace(rule, text=c_text(type(op), rule))

    def _literal(self, op: arith.ConstantOp | RefOp, kind: Kind) -> str:
        text = super()._literal(op, kind)
        match kind:
            case Kind.BOOL:
                return text.lower()
            case Kind.INT:
                return integer(int(text.strip("()")))
            case _:
                return text

    def _assign(self, w: Writer, op: Operation) -> None:
        rule = self._rule(op)
        if rule is None:
            return
        value, kind, rounded = self._computed(op, rule)
        if rounded:
            value = f"round_f32({value})"
        w.line(f"const {C_TYPES[kind]} {self._texts[op.results[0]]} = {value};")

    # -- the function ----------------------------------------------------------------------------------------------
    def write(self, w: Writer) -> None:
        """Write the member function ``fire<number>(key, a0, ...)``."""
        first, values, tests = self.needs()
        assert isinstance(w, CWriter)
        args = [f"{C_TYPES[self.kind(a)]} a{i}" for i, a in enumerate(self.op.block.args[len(self.op.fields) :])]
        with w.block(f"inline void fire{self.number}({', '.join(['Key key', *args])})"):
            w.line(f"fired[{self.number}]++;")
            unpack(w, self._layout, "key")
            with w.block("try"):
                self._assign_all(w, first)
                for a, value, test in zip(self.arrows, values, tests, strict=True):
                    with w.block(""):
                        self._write_send(w, a, value - first, test - first)
            given = "".join(f", bits(a{i})" for i in range(len(args)))
            w.line(f"catch (const Trap &) {{ anomaly(TRAP, {self.number}, key{given}); }}")
            w.line(f"catch (const OutOfTag &) {{ anomaly(TAG, {self.number}, key{given}); }}")

    def _write_send(self, w: Writer, a: Arrow, value: set[Operation], test: set[Operation]) -> None:
        s, depth = a.op, w.depth

        def open_(head: str) -> None:
            w.line(head + " {")
            w.depth += 1

        if not s.when.is_true:
            open_(f"if ({self.scope.condition(s.when)})")
        self._assign_all(w, test)
        if s.predicate is not None:
            open_(f"if ({self.text(s.predicate)})")
        self._assign_all(w, value - test)
        scope = self.scope
        points: list[str] = []
        for i, it in enumerate(s.loops):
            # The last value may be the greatest integer.
            ends = f"t{i} = {scope.expr(it.lo)}, u{i} = {scope.expr(it.hi)}, go{i} = t{i} <= u{i}"
            open_(f"for (i64 {ends}; go{i}; go{i} = t{i} < u{i}, t{i} += go{i})")
            scope = scope.extended({it.name: f"t{i}"})
            points.append(f"t{i}")
        if not s.when_point.is_true:
            open_(f"if ({scope.condition(s.when_point)})")
        self._write_token(w, a, scope, points)
        while w.depth > depth:
            w.depth -= 1
            w.line("}")

    def _write_token(self, w: Writer, a: Arrow, scope: object, points: Sequence[str]) -> None:
        assert isinstance(scope, CScope)
        s = a.op
        parts = [scope.expr(e) for e in s.index.data if e is not None]
        if a.counted:
            w.line(f"sent[{a.at}]++;")
        value = f"({C_TYPES[self._target_kind(a)]})({self._converted(s, a)})"
        if a.port is None:
            args = "".join(f", {p}" for p in parts)
            w.line(f"o{a.output}.put({a.output}, {value}{args});")
            return
        layout = self.tags.layouts[a.port.node]
        own = [f"f{i}" for i in range(len(self.op.fields))]
        whole = len(a.pattern) == len(s.index.data)
        same = parts == own and whole and layout == self._layout
        w.line(f"const Key to = {'key' if same else pack(layout, a.pattern, parts)};")
        count = "1"
        if a.port.mode in (Mode.ORDINARY, Mode.CARRIED):
            count = self._count(w, a, scope)
        w.line("Token &t = queue.put();")
        w.line(f"t.to = {self.receivers[a.port.receiver(a.pattern)]};")
        w.line("t.key = to;")
        w.line(f"t.v = bits({value});")
        if self.counts:
            w.line(f"t.m = {count};")
        if a.port.folded:
            assert self.order is not None
            w.line(f"t.ord.arrow = {a.at};")
            w.line("t.ord.source = key;")
            for i in range(self.order):
                w.line(f"t.ord.point[{i}] = {points[i] if i < len(points) else 0};")

    def _target_kind(self, a: Arrow) -> Kind:
        if a.port is not None:
            return a.port.kind
        assert a.output is not None
        return kind_of(self.plan.outputs[a.output].type, self.plan.real)

    def _checked_count(self, w: Writer, a: Arrow, text: str) -> None:
        w.line(f"const i64 n = {text};")
        w.line("if (UNLIKELY(n < 1)) trap();")


def pack(layout: Layout, pattern: Sequence[int], parts: Sequence[str]) -> str:
    """Source of the packed tag of a token; a field that does not fit is an error."""
    terms = [
        f"packed<{layout.fields[i].bits}, {layout.fields[i].shift}>({part}, {integer(layout.fields[i].lower)})"
        for i, part in zip(pattern, parts, strict=True)
    ]
    return " | ".join(terms) or "(Key)0"


def unpack(w: Writer, layout: Layout, key: str) -> None:
    """Write the fields `f<i>` of a packed tag; those that are not used cost nothing."""
    for i, f in enumerate(layout.fields):
        w.line(f"const i64 f{i} = unpacked<{f.bits}, {f.shift}>({key}, {integer(f.lower)});")
