"""Changes that no test caught when `score` tried them, and what came of looking at them: a test since, or a reason.

`score` goes on counting them as missed; RELIABILITY.md says both.
"""

from __future__ import annotations

from dataclasses import dataclass

from mutation.operators import Place, places


@dataclass(frozen=True)
class Survivor:
    """A change in the last line of a text that its file has once.

    `test` fails for it since, or `reason` says why none can; `removed`: the code did nothing, and is gone; `was`: the line
    as the sample had it, if it is another one now.
    """

    file: str
    text: str
    what: str
    test: str = ""
    reason: str = ""
    removed: bool = False
    was: str = ""

    def place(self, source: str) -> Place:
        """Where that is in the file.  Raises ValueError if it is there no more, or not once."""
        at = source.find(self.text) + len(self.text)
        line = source.count("\n", 0, at) + 1
        found = [p for p in places(self.file, source) if p.line == line and p.what == self.what]
        if source.count(self.text) != 1 or not found:
            raise ValueError(f"{self.file} has no such place, or not once: {self.text}")
        return found[0]


def judged(tried: dict[str, object]) -> Survivor | None:
    """What came of looking at a change that `score` has tried; None if nobody did."""
    for s in SURVIVORS:
        line = s.was or s.text.splitlines()[-1].strip()
        if (s.file, s.what, line) == (tried["file"], tried["what"], tried["source"]):
            return s
    return None


REMOVED = "the code was never used, and is gone"
SIMPLIFY = "test/passes/test_simplify.py::test_a_rule"
SCHEDULES = "test/native/test_schedules.py"
READABLE = "test/autodiff/test_readable.py"
SURVIVORS = (
    # of the sample at 45c6dc15
    Survivor(
        "poly/describe.py", "if p.isl.n_basic_set() > 1:  # entries of arrays that were projected out leave cases behind",
        "condition turned round",
        test="test/poly/test_describe.py::test_an_interval_where_entries_of_an_array_are_projected_out",
    ),
    Survivor(
        "passes/simplify.py", "if not isinstance(inner, Operation) or not value.has_one_use():\n            continue",
        "continue to break", test=f"{SIMPLIFY}[p ? a : (p ? b : c)*c-p ? a : c*c]",
    ),
    Survivor(
        "passes/loops/unroll.py",
        "if high - low < FEW and all(isinstance(b, Leaf) and b.stmt.array in planar for b in t.body):", "Lt to LtE",
        reason="a bound on effort: a loop of one pass more is written out",
    ),
    Survivor(
        "hw/matching_unit/unit.py",
        "last_level = Signal(range(dim.max_inputs + 1))  # the node's inputs - 2, where it has two or more",
        "Add to Sub", reason="the width of a signal that is at most max_inputs - 2",
    ),
    Survivor(
        "poly/counting.py", "if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div):", "0 to 1",
        reason="executed with the package islpy-barvinok only, which the tests do not have",
    ),
    # of the sample at fc936519
    Survivor(
        "passes/simplify.py", "if x is y and n != m:", "NotEq to Eq", test=f"{SIMPLIFY}[2.0*a-4.0*a--2*a]",
    ),
    Survivor(
        "passes/simplify.py", "if _constant(b) is not None and _constant(a) is None:", "Is to IsNot",
        test=f"{SIMPLIFY}[a*b*2.0-2*a*b]",
    ),
    Survivor(
        "poly/ranking.py", "if size < 2 or sum(map(abs, dims)) != 1 or any(inner):", "Lt to LtE",
        test="test/poly/test_ranking.py::test_proved[segments of two]",
    ),
    Survivor(
        "passes/storage.py",
        "if not reach or not self._in_place(depth, loop, field, sign, reach, writers, deps):\n"
        "                    size = reach + 1",
        "1 to 2", test="test/native/test_schedules.py::test_what_is_kept_from_step_to_step[mixed]",
    ),
    Survivor(
        "passes/limit_inputs.py", "if v not in title:", "NotIn to In",
        test="test/passes/test_limit_inputs.py::test_the_parts_compute_what_the_node_did",
    ),
    Survivor(
        "passes/limit_inputs.py",
        "first = max((self.home.get(v, 0) for v in operands if not isinstance(v, BlockArgument)), default=0)",
        "not left out", test="test/passes/test_limit_inputs.py::test_the_parts_compute_what_the_node_did",
    ),
    Survivor(
        "passes/dynamic.py", "return Formula.any((_formula(op.lhs, leaves), _formula(op.rhs, leaves)))", "returns None",
        test="test/autodiff/test_dynamic.py::test_of_two_arrows_one_sends_whatever_the_condition",
    ),
    Survivor(
        "passes/eliminate_dead_derivatives.py", "if not adjoints:", "condition turned round",
        test="test/autodiff/test_sizes.py::test_a_multicast_to_fewer_instances_that_no_expression_counts[1]",
    ),
    Survivor(
        "poly/linear.py",
        "return Con(self.e.substitute(values), self.eq) if self.e.names & values.keys() else self", "BitAnd to BitOr",
        reason="a short way: where no name is replaced, substituting gives the same",
    ),
    Survivor(
        "passes/loops/graph.py", "return [(node.symbol, p.name) for p in node.ports]", "returns None", reason=REMOVED,
        removed=True,
    ),
    Survivor("passes/adjoint_body.py", "otherwise: bool = False", "False to True", reason=REMOVED, removed=True),
    Survivor(
        "passes/loops/order.py",
        "def __init__(self, lin: Linear, stmts: Sequence[Statement], deps: Sequence[Edge], *, ordered: bool = False):",
        "False to True", reason=REMOVED, removed=True,
    ),
    Survivor(
        "passes/loops/wavefront.py",
        "apart = (o.row + o.time * slope).substitute(later) - (r.row + r.time * slope)", "Add to Sub",
        test=f"{SCHEDULES}::test_a_loop_over_time_runs_as_a_wavefront[jacobi]",
    ),
    Survivor(
        "passes/loops/wavefront.py",
        "if a is None or a.loop is not None or len(a.axes) < 2 or "
        "self.lin.plain(a.axes[-1].extent).constant is not None:",
        "1 to 2", test=f"{SCHEDULES}::test_the_rows_of_a_grid_of_known_height_too",
    ),
    Survivor(
        "passes/refire.py", "duals = sorted(self.loop.duals.items(), key=lambda d: d[0] != op.symbol)", "NotEq to Eq",
        test="test/autodiff/test_checkpoint.py::test_a_state_is_kept_once",
    ),
    Survivor(
        "poly/nest.py",
        "if got[0].lo == got[0].hi and got[1].is_true:  "
        "# the entry of an array in it kept `express` from seeing that",
        "1 to 2", test="test/poly/test_nest.py::test_the_loops_enumerate_the_points[i==3-k && j==N[i]+k-loops8]",
    ),
    Survivor(
        "passes/loops/equations.py",
        "return None if e is None else e.substitute(dict(zip(arrow.dst, a.target.fields, strict=True)))",
        "condition turned round", test="test/native/test_turned_round.py::test_the_source_is_found[last-ordered]",
    ),
    Survivor(
        "passes/loops/equations.py", "return not ctx.set(sorted(names), where).is_empty()", "not left out",
        test="test/native/test_rings.py::test_cases_that_only_the_entries_of_arrays_rule_out",
        was="return not self.lin.ctx.set(fields, where).is_empty()",
    ),
    Survivor(
        "passes/adjoint_body.py", "return bool(self.dependence.of(v) & self.active)", "BitAnd to BitOr",
        test=f"{READABLE}::test_one_value_is_sent_where_it_is_all_that_a_derivative_reads",
    ),
    Survivor(
        "passes/simplify.py", "named.setdefault(op.value, op.result)", "statement left out",
        test=f"{READABLE}::test_what_two_names_are_given_is_one_value",
    ),
    Survivor(
        "passes/loops/contractions.py",
        "few = [d for d in both if d in dims and self._extent((*context, *cons), d, 0) in range(1, NEAR + 1)]",
        "In to NotIn", test=f"{SCHEDULES}::test_gradients_of_a_convolution[relaxed]",
    ),
    Survivor(
        "passes/loops/boxes.py", "if len(used) != 1 or used[0] in seen or abs(place.factors[used[0]]) != 1:",
        "NotEq to Eq", test=f"{SCHEDULES}::test_gradients_of_a_convolution[relaxed]",
    ),
)  # fmt: skip
