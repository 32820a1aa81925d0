"""The whole C++ source of a program: tables of constant arrays, and `struct Run` with the state of one run.

`struct Run` has a function for each node and host input (`fire<n>`), for each input of a node and token pattern
(`recv...`), and the dispatch of tokens to them; `entry.h`, included at the end, drives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.dialects.upl import ArrayOp
from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.dialects.upl.query import array_values, first_index
from upl_mlir.engines.interp.bodies import entry_tables
from upl_mlir.engines.interp.exprs import number_text
from upl_mlir.engines.interp.plan import Mode, Pattern, Plan, PortPlan
from upl_mlir.engines.token.bodies import CBody, pack
from upl_mlir.engines.token.expressions import C_TYPES, CScope, CWriter, integer
from upl_mlir.engines.token.gathers import identity_of
from upl_mlir.engines.token.matching import CMatching, matchings
from upl_mlir.engines.token.tags import Tags

_CELLS = {Kind.F64: "double", Kind.F32: "float", Kind.INT: "i64", Kind.BOOL: "u8"}
"""The C type of an element of a host array."""


@dataclass(frozen=True)
class Code:
    """Generated source, and what the numbers in an anomaly mean.

    `receivers` are the inputs and patterns of the receiving functions, `gathers` the gathering inputs, `stores` what
    `upl_left` lists: inputs with a pattern, or with None for the gathers under way.  `values` is how many values a fault
    has room for.
    """

    text: str
    tags: Tags
    receivers: tuple[tuple[PortPlan, Pattern], ...]
    gathers: tuple[PortPlan, ...]
    stores: tuple[tuple[PortPlan, Pattern | None], ...]
    values: int


def make_source(plan: Plan, tags: Tags) -> Code:
    """The source of a program.  Raises UplError (UPL1607)."""
    w = CWriter()
    tables = entry_tables(plan)
    scope = CScope(plan.ctx, tables)
    nodes = matchings(plan.nodes, scope, tags)
    ports = [p for n in plan.nodes for p in n.ports]
    sources = [*(n.op for n in plan.nodes), *plan.inputs]
    counts = any(p.mode is Mode.CARRIED or not all(p.patterns.values()) for p in ports)
    loops = [len(a.op.loops) for a in plan.arrows if a.port is not None and a.port.folded]
    order = max(loops, default=0) if any(p.folded for p in ports) else None
    values = max([2, *(len(n.ports) for n in plan.nodes), *(2 + len(op.fields) for op in plan.outputs)])

    w.line(f"#include <cstdint>\ntypedef {tags.type} Key;")
    w.line(f"#define NODES {len(plan.nodes)}\n#define SOURCES {len(sources)}\n#define ARROWS {len(plan.arrows)}")
    w.line(f"#define VALUES {values}")
    if counts:
        w.line("#define COUNTS")
    if order is not None:
        w.line(f"#define POINTS {order}")
    ranks = [len(n.rank) for n in plan.nodes if n.open]
    if ranks:
        w.line(f"#define RANK {ranks[0]}")
    w.line('#include "store.h"')
    _arrays(w, plan, tables)
    with w.block("struct Run"):
        w.line("Queue queue;")
        w.line("u64 fired[SOURCES] = {}, sent[ARROWS ? ARROWS : 1] = {};")
        w.line("i64 waiting = 0, peak = 0;")
        w.line("bool big = false;")
        if order is not None:
            w.line("Summands summands;")
        if ranks:
            w.line("Strata strata;")
        w.line("inline void arrived() { if (++waiting > peak) peak = waiting; }")
        for i, op in enumerate(plan.outputs):
            kind = kind_of(op.type, plan.real)
            w.line(f"Output<{_CELLS[kind]}, {C_TYPES[kind]}, {len(op.fields)}> o{i};")
        for i, op in enumerate(sources):
            own = [a for a in plan.arrows if a.source is op]
            receivers = dict(nodes[0].receivers) if nodes else {}
            CBody(plan, op, i, own, scope, tables, False, tags, order, receivers, counts).write(w)
        for n in nodes:
            n.write(w)
        _dispatch(w, plan, nodes)
        _ends(w, plan)
        _host(w, plan, tags)
        stores = _leftovers(w, nodes)
        with w.block("void start()"):
            for line in ("queue.start();", *(line for n in nodes for line in n.starts())):
                w.line(line)
    w.lines[-1] += ";"
    w.line('#include "entry.h"')
    found = tuple((p, pattern) for p in ports for pattern in p.patterns)
    return Code(w.source, tags, found, tuple(p for p in ports if p.gathers), stores, values)


def _arrays(w: CWriter, plan: Plan, tables: dict[str, str]) -> None:
    """The constant arrays."""
    for op in plan.program.body.block.ops:
        if isinstance(op, ArrayOp):
            name, values = tables[op.symbol], array_values(op)
            whole = all(isinstance(v, int) for v in values)
            type_ = "i64" if whole else "double"
            cells = ", ".join(integer(int(v)) if whole else number_text(float(v)) for v in values) or "0"
            w.line(f"static const {type_} {name}_[] = {{{cells}}};")
            w.line(f"static const Entries<{type_}> {name} = {{{name}_, {first_index(op)}, {len(values)}}};")


def _dispatch(w: CWriter, plan: Plan, nodes: list[CMatching]) -> None:
    """What a token does when it arrives, and the cache line that it will touch first."""
    with w.block("inline void receive(const Token &t)"), w.block("switch (t.to)"):
        for n, node in zip(nodes, plan.nodes, strict=True):
            for p in node.ports:
                for pattern in p.patterns:
                    name = p.receiver(pattern)
                    w.line(f"case {n.receivers[name]}: {name}(t); break;")
    with w.block("inline void prefetch(const Token &t)"), w.block("switch (t.to)"):
        for n, node in zip(nodes, plan.nodes, strict=True):
            for p in node.ports:
                for pattern in p.patterns:
                    ask = n.prefetches(p, pattern)
                    if ask is not None:
                        w.line(f"case {n.receivers[p.receiver(pattern)]}: {ask} break;")


def _ends(w: CWriter, plan: Plan) -> None:
    """The end of open gathers, when nothing is in flight (LANGUAGE 3.3)."""
    open_ = [n.at for n in plan.nodes if n.open]
    if not open_:
        return
    with w.block("void end(i64 node, const Key key)"), w.block("switch (node)"):
        for n in open_:
            w.line(f"case {n}: end{n}(key); break;")


def _host(w: CWriter, plan: Plan, tags: Tags) -> None:
    """Host inputs fire in lexicographic order of their indices; so do instances whose gathers have no summands."""
    first = len(plan.nodes)
    with w.block("void input(i64 number, const void *data, const u8 *inside, const i64 *lower, const i64 *shape)"):
        w.line("u64 at = 0;")
        with w.block("switch (number)"):
            for i, op in enumerate(plan.inputs):
                kind = kind_of(op.type, plan.real)
                layout = tags.layouts[first + i]
                fields = range(len(op.fields))
                with w.block(f"case {i}:"):
                    for f in fields:
                        w.line(f"for (i64 f{f} = lower[{f}]; f{f} < lower[{f}] + shape[{f}]; f{f}++)")
                    key = pack(layout, fields, [f"f{f}" for f in fields])
                    value = f"({C_TYPES[kind]})((const {_CELLS[kind]} *)data)[at - 1]"
                    w.line(f"if (inside[at++]) fire{first + i}({key}, {value});")
                    w.line("break;")
    with w.block("void empty(i64 node, i64 count, const i64 *x)"), w.block("switch (node)"):
        for n in plan.nodes:
            if n.may_boot:
                fields = range(len(n.op.fields))
                key = pack(tags.layouts[n.at], fields, [f"x[{f}]" for f in fields])
                none = ", ".join(identity_of(p) for p in n.ports)
                w.line(f"case {n.at}: for (; count--; x += {len(fields)}) fire{n.at}({key}, {none}); break;")
            elif n.ends_on_domain:
                fields = range(len(n.op.fields))
                key = pack(tags.layouts[n.at], fields, [f"x[{f}]" for f in fields])
                w.line(f"case {n.at}: for (; count--; x += {len(fields)}) await{n.at}({key}); break;")
    head = "void output(i64 number, void *data, u8 *have, const u8 *inside, const i64 *lower, const i64 *shape)"
    with w.block(head), w.block("switch (number)"):
        for i, op in enumerate(plan.outputs):
            cell = _CELLS[kind_of(op.type, plan.real)]
            fill = f"o{i}.data = ({cell} *)data; o{i}.have = have; o{i}.inside = inside;"
            w.line(f"case {i}: {fill} o{i}.lower = lower; o{i}.shape = shape; break;")
    with w.block("i64 outside(i64 number, i64 *out) const"):
        with w.block("switch (number)"):
            for i in range(len(plan.outputs)):
                w.line(f"case {i}: return o{i}.list_outside(out);")
        w.line("return 0;")


def _leftovers(w: CWriter, nodes: list[CMatching]) -> tuple[tuple[PortPlan, Pattern | None], ...]:
    """What remains in the stores; first waiting tokens, then gathers under way."""
    found = [entry for n in nodes for entry in n.leftovers()]
    found.sort(key=lambda entry: entry[1] is None)
    with w.block("i64 left(i64 store, Left *out) const"):
        with w.block("switch (store)"):
            for i, (_, _, call) in enumerate(found):
                w.line(f"case {i}: return {call};")
        w.line("return 0;")
    return tuple((p, pattern) for p, pattern, _ in found)
