"""Changes that no test caught when `score` tried them, and what came of looking at them: a test since, or a reason.

`score` goes on counting them as missed; RELIABILITY.md says both.  Over 500 lines because it is one list.
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
        if (s.file, s.what) == (tried["file"], tried["what"]) and line in str(tried["source"]):
            return s
    return None


REMOVED = "the code was never used, and is gone"
SIMPLIFY = "test/passes/test_simplify.py::test_a_rule"
SCHEDULES = "test/native/test_schedules.py"
RINGS = "test/native/test_rings.py::test_a_circle_without_a_plain_field_is_ordered"
READABLE = "test/autodiff/test_readable.py"
DISTRIBUTE = "test/mpi/test_distribute.py"
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
        "passes/loops/transform/unroll.py",
        "if high - low < FEW and all(isinstance(b, Leaf) and b.stmt.array in planar for b in t.body):", "Lt to LtE",
        reason="a bound on effort: a loop of one pass more is written out",
    ),
    Survivor(
        "hw/matching_unit/state.py",
        "self.last_level = Signal(range(dim.max_inputs + 1))  # the node's inputs - 2, where it has two or more",
        "Add to Sub", reason="the width of a signal that is at most max_inputs - 2",
    ),
    Survivor(
        "poly/counts/counting.py", "if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div):", "0 to 1",
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
        "passes/hardware/limit_inputs.py", "if v not in title:", "NotIn to In",
        test="test/passes/test_limit_inputs.py::test_the_parts_compute_what_the_node_did",
    ),
    Survivor(
        "passes/hardware/limit_inputs.py",
        "first = max((self.home.get(v, 0) for v in operands if not isinstance(v, BlockArgument)), default=0)",
        "not left out", test="test/passes/test_limit_inputs.py::test_the_parts_compute_what_the_node_did",
    ),
    Survivor(
        "passes/autodiff/dynamic.py",
        "return Formula.any((_formula(op.lhs, leaves), _formula(op.rhs, leaves)))", "returns None",
        test="test/autodiff/test_dynamic.py::test_of_two_arrows_one_sends_whatever_the_condition",
    ),
    Survivor(
        "passes/autodiff/eliminate_dead_derivatives.py", "if not adjoints:", "condition turned round",
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
    Survivor("passes/autodiff/adjoint_body.py", "otherwise: bool = False", "False to True", reason=REMOVED, removed=True),
    Survivor(
        "passes/loops/order.py",
        "def __init__(self, lin: Linear, stmts: Sequence[Statement], deps: Sequence[Edge], *, ordered: bool = False):",
        "False to True", reason=REMOVED, removed=True,
    ),
    Survivor(
        "passes/loops/transform/wavefront.py",
        "apart = (o.row + o.time * slope).substitute(later) - (r.row + r.time * slope)", "Add to Sub",
        test=f"{SCHEDULES}::test_a_loop_over_time_runs_as_a_wavefront[jacobi]",
    ),
    Survivor(
        "passes/loops/transform/wavefront.py",
        "if (n := self.lin.plain(a.axes[-1].extent).constant) is not None and n < 32:", "1 to 2",
        was="if self.lin.plain(a.axes[-1].extent).constant is not None:",
        test=f"{SCHEDULES}::test_the_rows_of_a_grid_of_known_height_too",
    ),
    Survivor(
        "passes/checkpoint/refire.py",
        "duals = sorted(self.loop.duals.items(), key=lambda d: d[0] != op.symbol)", "NotEq to Eq",
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
        "passes/autodiff/adjoint_body.py", "return bool(self.dependence.of(v) & self.active)", "BitAnd to BitOr",
        test=f"{READABLE}::test_one_value_is_sent_where_it_is_all_that_a_derivative_reads",
    ),
    Survivor(
        "passes/simplify.py", "named.setdefault(op.value, op.result)", "statement left out",
        test=f"{READABLE}::test_what_two_names_are_given_is_one_value",
    ),
    Survivor(
        "passes/loops/transform/contractions.py",
        "few = [d for d in both if d in dims and self._extent((*context, *cons), d, 0) in range(1, NEAR + 1)]",
        "In to NotIn", test=f"{SCHEDULES}::test_gradients_of_a_convolution[relaxed]",
    ),
    Survivor(
        "passes/loops/emit/boxes.py", "if len(used) != 1 or used[0] in seen or abs(place.factors[used[0]]) != 1:",
        "NotEq to Eq", test=f"{SCHEDULES}::test_gradients_of_a_convolution[relaxed]",
    ),
    Survivor(
        "passes/build.py", "return _negated(body, condition(body, f.args[0], env, lazy))", "0 to 1",
        test="test/hw/test_host_order.py::test_a_condition_that_is_negated_as_a_whole",
    ),
    Survivor(
        "passes/loops/pull.py",
        "        for c in case:\n            k = next((k for m, k in c.e.terms if m == (Var(u),)), 0)", "0 to 1",
        reason="a constraint without `u` is passed over as before: `u` then is in what is left of it",
    ),
    Survivor(
        "poly/counts/quota.py",
        'return not isl.Set("{ [i] : 0 <= i <= 1 }").is_subset(isl.Set("{ [i] : i <= 1 }"))', "not left out",
        test="test/poly/test_sets.py::test_a_failure_of_isl_that_is_not_the_limit_is_none",
    ),
    Survivor(
        "passes/loops/emit/boxes.py", "low, high = ends if place.factors[used[0]] > 0 else (-ends[1], -ends[0])", "1 to 2",
        test="test/native/test_convolutions.py::test_kernels_that_count_channels_backwards",
    ),
    Survivor(
        "passes/loops/pull.py", "if u in arrow.unknowns and (value := express(arrow, u)) is not None:", "IsNot to Is",
        test="test/native/test_turned_round.py::test_the_source_is_found[last-ordered]",
    ),
    Survivor(
        "poly/linear.py", "return f\"{self.e} {'==' if self.eq else '>='} 0\"", "returns None", reason=REMOVED, removed=True,
    ),
    Survivor(
        "passes/arrows.py", "new = fibre_count(r, over, [before] if isinstance(before, IndexExpr) else [])",
        "condition turned round",
        test="test/autodiff/test_sizes.py::test_a_multiplicity_stays_as_it_was_written_where_it_fits",
        was="new = fibre_count(r, a.dst, [count] if isinstance(count, IndexExpr) else [])",
    ),
    Survivor("passes/loops/order.py", "self._vars = 0", "0 to 1", reason="the number in the names of loop variables"),
    Survivor(
        "passes/analysis/obligations.py", "return _small_witness(s, a, b)", "returns None",
        test="test/passes/test_check_messages.py::test_a_mistake_is_explained[#n*n for #m*n]",
    ),
    Survivor(
        "passes/hardware/lower_hw.py", "if name in counting_only(node):", "condition turned round",
        test="test/hw/test_host_order.py::test_tokens_come_in_that_order",
    ),
    Survivor(
        "passes/loops/equations.py", "self._building.add(key)", "statement left out",
        test="test/native/test_rings.py::test_a_ring_without_an_entry_is_refused", was="self._building.add(memo)",
    ),
    Survivor(
        "poly/levels.py",
        "for d in reversed(s.dims[:-1]):  # from the inside out: what bounds inner dimensions then needs no array entries",
        "1 to 2", test="test/poly/test_levels.py::test_the_greatest_value",
    ),
    Survivor(
        "passes/loops/emit/values.py", "if isinstance(op, arith.FloorDivSIOp | arith.CeilDivSIOp | arith.DivSIOp):",
        "condition turned round", test="test/native/test_engine.py::test_faults_of_integers",
    ),
    Survivor(
        "passes/check.py",
        "out[f] = None if lo is None or hi is None else max(1, (hi - lo).bit_length())\n    return out", "returns None",
        test="test/passes/test_check.py::test_numbers_of_the_perceptron",
    ),
    Survivor(
        "poly/counts/counting.py", "out[0] = Fraction(1)  # 0**0 counts", "0 to 1",
        reason="the constant cancelled, as the polynomial's difference at two places is all that is used; it is gone",
        removed=True,
    ),
    Survivor(
        "passes/loops/graph.py",
        "return [c for c in components(list(edges), lambda p: edges.get(p, [])) "
        "if len(c) > 1 or c[0] in edges.get(c[0], [])]", "Or to And",
        test=f"{RINGS}[entered before the node it is left at]",
    ),
    Survivor(
        "passes/autodiff/adjoint_plan.py", "prefer = [m] if isinstance(m, IndexExpr) and a.port.gather is None else []",
        "Is to IsNot",
        test="test/autodiff/test_sizes.py::test_the_derivatives_that_come_back_are_counted_as_the_author_counts",
    ),
    Survivor(
        "passes/loops/pull.py", "in cases]\n    if not free:", "not left out",
        test="test/native/test_turned_round.py::test_the_source_is_found[last-ordered]",
    ),
    Survivor(
        "poly/counts/quota.py", "if a.n_basic_set() <= FEW:", "LtE to Lt",
        reason="a bound on effort: the same pieces, subtracted in one call or several",
    ),
    Survivor(
        "poly/ranking.py", "if _always(s, later):\n        return 1", "1 to 2",
        reason="it is only asked whether this is 0: any other number says that a coordinate grows",
    ),
    Survivor(
        "passes/autodiff/adjoint_ends.py", "if value.port.count is upl.Special.CARRIED:", "Is to IsNot",
        test="test/autodiff/test_dynamic.py::test_newton_with_its_own_exit", was="if value.port.count is Special.CARRIED:",
    ),
    Survivor(
        "passes/hardware/lower_hw.py",
        "times = None if isinstance(count, Special) or count.constant == 1 else inner.index(count)", "1 to 2",
        test="test/hw/test_host_order.py::test_how_many_instances_a_token_serves",
    ),
    Survivor(
        "passes/loops/show.py",
        "return str(parts[0]) if len(parts) == 1 else f\"{name}({', '.join(map(str, parts))})\"", "returns None",
        test=f"{SCHEDULES}::test_the_bounds_of_loops_are_shown",
    ),
    Survivor(
        "poly/convert.py", "def aff(self, a: isl.Aff, *, floor: bool = False) -> IndexExpr:", "False to True",
        reason=REMOVED, removed=True,
    ),
    Survivor(
        "passes/analysis/entries.py", "not in sets.ctx.unknown:\n            continue", "continue to break", removed=True,
        reason="an index reads arrays of integers alone (UPL1108), which have a table or are open: none comes here",
    ),
    Survivor(
        "passes/simplify.py", "if isinstance(op, NodeOp | InputOp) and PRIMAL in op.attributes:", "And to Or",
        test="test/passes/test_simplify.py::test_what_the_author_wrote_stays",
    ),
    Survivor(
        "passes/loops/emit/boxes.py", "if i != at:", "condition turned round",
        reason="a bound on memory: how much of the padded copy is made at a time",
    ),
    Survivor(
        "poly/ranking.py", "by_value: bool = False  # array entries are looked up, not left open", "False to True",
        reason="a bound on effort: what is proved without the entries' values is proved with them, more slowly",
    ),
    Survivor(
        "passes/autodiff/differentiate.py",
        "term = body.add(arith.SelectOp(sent, index_value(body, n, env), body.constant(0, i64)))", "0 to 1",
        test="test/autodiff/test_dynamic.py::test_a_value_sent_to_two_instances_or_to_none",
    ),
    Survivor(
        "passes/loops/transform/running.py",
        "if len(fields) < 2 or len(domain) != 1 or not kind.is_float or not self._few(domain[0], fields[-1]):",
        "condition turned round", test="test/native/test_running_sums.py::test_nothing_is_kept_of_the_pairs",
    ),
    Survivor(
        "passes/hardware/limit_inputs.py", "out[v] = None\n        return list(out)", "returns None",
        test="test/passes/test_limit_inputs.py::test_the_parts_compute_what_the_node_did",
    ),
    # of the sample at 2cd66e1a
    Survivor(
        "passes/loops/transform/followed.py", "others = [(n, s) for n, s in enumerate(apart) if n != at and s != 0]",
        "0 to 1", test="test/native/test_read_where_stored.py::test_a_shift_register_of_rows_too[ordered]",
    ),
    Survivor(
        "passes/loops/transform/products.py",
        "        if any(isinstance(x, terms.Number) for x in found):\n            return False", "False to True",
        test=f"{SCHEDULES}::test_a_sum_times_a_number_is_no_product",
    ),
    Survivor(
        "passes/loops/coordinates.py",
        "if eq.output or not c.rest.names <= {*eq.fields, *self.lin.ctx.params} - {c.field}:\n            return False",
        "False to True", test="test/native/test_rings.py::test_a_result_has_its_own_coordinates",
    ),
    Survivor(
        "passes/loops/emit/small.py",
        'inside = self._whole(arith.AndIOp, self._tests(n, "sge", -(1 << 53)), self._tests(n, "sle", 1 << 53))',
        "minus left out", test="test/small/test_small_arithmetic.py::test_native_code_rounds_integers_once[f16]",
    ),
    Survivor(
        "passes/loops/graph.py",
        "return [p for p in ports if p not in self.stored_ports and not isinstance(self.ends[p[0]], OutputOp)]",
        "NotIn to In", test="test/native/test_long_programs.py::test_what_is_stored_of_a_loop_before_a_long_chain",
    ),
    Survivor(
        "passes/loops/tensors/convert.py",
        "dynamic = [scope.size(n) for n, old in zip(shape, type_.get_shape(), strict=True) if old < 0]", "Lt to LtE",
        test="test/native/test_mlir_tools.py::test_a_tensor_without_elements_is_given_no_size",
    ),
    Survivor(
        "passes/loops/transform/checkpoints.py", "later += [] if moved is None else [moved]", "condition turned round",
        test=f"{SCHEDULES}::test_states_of_a_grid_that_begins_below_zero",
    ),
    Survivor(
        "passes/loops/transform/checkpoints.py",
        "others = [Axis(i, lo, hi - lo + 1) for i, (lo, hi) in enumerate(self._bounds(name).values())]", "Sub to Add",
        test=f"{SCHEDULES}::test_states_of_a_grid_that_begins_below_zero",
    ),
    Survivor(
        "passes/loops/transform/checkpoints.py",
        'one = Loop(start.name or "", (self.forth.lows[0] - 1,), opening, False, first)', "Sub to Add",
        test=f"{SCHEDULES}::test_states_of_a_grid_that_begins_below_zero",
    ),
    Survivor(
        "passes/loops/transform/contractions.py",
        "if more or found is None:\n            return None\n        a, b = found\n"
        "        if not isinstance(a, Get) or not isinstance(b, Get):",
        "not left out", test="test/native/test_convolutions.py::test_which_images_are_worth_a_copy_with_zeros",
    ),
    Survivor(
        "passes/loops/transform/results.py",
        "while isinstance(term, Fold) and len(term.parts) == 1 and not (p := term.parts[0]).dims + p.cons + p.guards:",
        "1 to 2",
        test="test/native/test_results_in_place.py::test_what_is_more_than_a_copy_is_all_there[relaxed-of each element]",
    ),
    Survivor(
        "passes/loops/transform/results.py", "if len(eq.pieces) != 1 or len(eq.domain) != 1:", "Or to And",
        test="test/native/test_results_in_place.py::test_what_is_more_than_a_copy_is_all_there[relaxed-of some elements]",
    ),
    Survivor(
        "passes/loops/emit/ended.py", "for (one, _), v in zip(chain.folds, found, strict=True):", "True to False",
        reason="an assertion: the loop has one result for each fold behind its variable, as it is made with their types",
    ),
    Survivor(
        "passes/loops/show.py", "sign = _TESTS.get(test) or _TESTS.get(test[1:])", "Or to And",
        test=f"{SCHEDULES}::test_comparisons_are_shown",
    ),
    Survivor(
        "passes/loops/transform/unread.py",
        "out.update((h, None) for h in halves if len(h.e.names & fields) > 1 and not h.e.lookups())", "BitAnd to BitOr",
        test="test/native/test_unread.py::test_borders_along_one_field_stay",
    ),
    Survivor(
        "passes/loops/transform/tables.py",
        "if low is None or high is None or low > high or any(a is None or b is None for a, b in widths):", "Gt to GtE",
        test="test/native/test_read_where_stored.py::test_one_value_for_all_steps_is_a_table_too",
    ),
    Survivor(
        "passes/loops/equations.py",
        "together = tuple(cases) if dims and len(cases) > 1 and self.ordered else ()  # one loop keeps the order",
        "And to Or", test="test/native/test_few_summands.py::test_one_loop_keeps_the_order_of_two_cases[relaxed]",
    ),
    Survivor(
        "passes/loops/transform/forward.py",
        "if isinstance(g, Get) and (source := self._source(self._read(g, cons, t.env, context), g.index)) is not None",
        "IsNot to Is",
        test=f"{SCHEDULES}::test_products_read_what_is_copied_from_an_input",
    ),
    Survivor(
        "passes/loops/emit/boxes.py",
        "end = first if k > 0 else self._op(arith.SubiOp, self._op(arith.AddiOp, first, size), self._number(1))",
        "condition turned round",
        test="test/native/test_convolutions.py::test_which_images_are_worth_a_copy_with_zeros",
    ),
    Survivor(
        "passes/infer_domains.py", "return all(", "returns None",
        test="test/passes/test_infer_domains.py::test_domains_that_are_known_stay_as_they_are",
    ),
    Survivor(
        "passes/distribute/narrow.py",
        'Formula.compare(b.low, "<=", first) & Formula.compare(first, "<=", last + 1) & Formula.compare(last, "<=", b.high)',
        "1 to 2", test=f"{DISTRIBUTE}::test_what_is_known_of_a_block",
    ),
    Survivor(
        "passes/distribute/exchanges.py", "depth, place = depth + 1, 0", "1 to 2",
        test=f"{DISTRIBUTE}::test_gradients_of_shortest_paths_are_divided",
    ),
    Survivor(
        "passes/distribute/partial.py",
        "ranges.append(Range(f, *(tuple(lin.strongest(e, sign, around)) for e, sign in ((lows, 1), (highs, -1)))))",
        "statement left out", test=f"{DISTRIBUTE}::test_a_sum_over_a_cut_field_is_one_of_parts",
    ),
    Survivor(
        "passes/distribute/choice.py", "found *= NOMINAL if lo is None or hi is None else max(0, hi - lo + 1)", "0 to 1",
        test=f"{DISTRIBUTE}::test_what_all_need_is_received_where_that_costs_less_than_to_compute_it[6-0-False]",
    ),
    Survivor(
        "passes/distribute/choice.py", "return whole * (RANKS - 1) / RANKS", "1 to 2",
        test=f"{DISTRIBUTE}::test_what_all_need_is_received_where_that_costs_less_than_to_compute_it[6-0-False]",
    ),
    Survivor(
        "passes/distribute/schedule.py",
        "name = e.read.array if (e.read.array, choice.fields[e.read.array]) not in banned else reader", "NotIn to In",
        reason="a cut is never one of the banned ones: the condition always held, and is gone", removed=True,
    ),
    Survivor(
        "passes/analysis/tables.py",
        'rows = [(name, "?" if f is None else f, "?" if t is None else t) for name, (f, t) in counts.items()]',
        "condition turned round", test="test/tools/test_notebook.py::test_a_count_that_data_decide_is_a_question_mark",
    ),
    Survivor(
        "passes/analysis/tables.py", 'return f"<details><summary>{escape(title)}</summary>{inside}</details>"',
        "returns None", test="test/tools/test_notebook.py::test_a_report_is_a_table_of_obligations",
    ),
    *(
        Survivor(
            "passes/checkpoint/time_loop.py",
            "if a.target.symbol in names and a.source.symbol not in names and f\"{self.along}'\" not in a.stars:", what,
            test="test/autodiff/test_checkpoint.py::test_when_all_states_have_entered",
        )
        for what in ("condition turned round", "NotIn to In")
    ),
    Survivor(
        "poly/fibres.py", "if terms is None or len(terms) > 1:  # several are found faster, and are shorter, by values",
        "1 to 2", test="test/poly/test_fibres.py::test_what_is_counted_value_by_value_names_the_entries[1]",
    ),
    Survivor(
        "poly/convert.py", "c *= self.constant(at) or 0", "0 to 1",
        test="test/poly/test_sets.py::test_a_product_with_a_known_constant[0-6]",
    ),
    Survivor(
        "passes/autodiff/adjoint_plan.py",
        "at = Formula.all(Formula.compare(it, CmpOp.EQ, v) for it, v in zip(a.loops, point, strict=True))", "True to False",
        reason="an assertion: a point has one value for each iterator, as it is of the product of their ranges",
    ),
    Survivor(
        "passes/autodiff/adjoint_plan.py", "if any(read_outside(s) is not None for s in cases.values()):", "IsNot to Is",
        test="test/autodiff/test_sizes.py::test_no_entry_behind_an_arrays_end_is_read[count in the last row]",
    ),
    Survivor(
        "passes/autodiff/tangent_gather.py", "fires = None if node.symbol not in sets.dynamic_nodes else Special.UNBOUNDED",
        "condition turned round",
        test="test/autodiff/test_tangent.py::test_the_tangent_of_an_open_extremum_comes_where_the_node_fires[interp]",
    ),
    Survivor(
        "passes/analysis/relations.py",
        "stack += [a.target.symbol for a in self.out_of(at) if not a.port.open]", "statement left out",
        test="test/passes/test_check.py::test_nothing_is_proved_of_what_stands_far_behind_a_choice_of_data",
    ),
    Survivor(
        "passes/circuit/process.py", "if len(parts) > 1:", "1 to 2",
        test="test/circuit/test_bodies.py::test_a_statement_with_two_gathers_of_many_is_refused",
    ),
    Survivor(
        "passes/circuit/body.py", "if t.count is None or empty is neutral:", "Is to IsNot",
        test="test/circuit/test_bodies.py::test_gathers_of_none_or_many[+]",
    ),
    Survivor(
        "passes/circuit/channels/inputs.py", "return [i for i, start in zip(found, starts, strict=True) if start == first]",
        "True to False", reason="an assertion: the starts are those of the inputs, one for each",
    ),
    Survivor(
        "passes/jacobian/bottleneck.py",
        'costs[Cut(place, width, "reverse")] = width * g + m * (h + extra) + m * width', "Add to Sub",
        test="test/autodiff/test_mixed.py::test_the_join_with_fewest_instances",
    ),
    Survivor(
        "passes/hardware/lower_hw.py",
        "self.sets.domain(send.target_name)\n        for f, e in zip(target.fields, send.index.data, strict=True):",
        "True to False", reason="an assertion: the verifier has compared the two lengths (UPL1105)",
    ),
    Survivor(
        "passes/loops/terms.py", "same = x.table == y.table", "Eq to NotEq",
        test="test/native/test_chosen_elements.py::test_entries_of_two_tables_are_not_alike[N]",
    ),
    Survivor(
        "passes/analysis/backward.py", "self.exact = self.exact and found.exact", "And to Or",
        test="test/passes/test_backward.py::test_a_hull_on_the_way_is_not_exact[i*i-False]",
    ),
    Survivor(
        "hw/matching_unit/cam.py", '"BANK_BITS": bits_for(bank - 1) if banks > 1', "Gt to GtE",
        test="test/hw/test_board.py::test_the_verilog_with_an_associative_memory_has_no_warnings[20]",
    ),
    Survivor(
        "passes/distribute/report.py", "return str(parts[0]) if len(parts) == 1", "condition turned round",
        test=f"{DISTRIBUTE}::test_what_is_received_and_where_it_lies",
    ),
    Survivor(
        "passes/distribute/exchanges.py", "extent=extremum(Extremum.MIN, highs) - low + 1)", "Sub to Add",
        test=f"{DISTRIBUTE}::test_what_is_received_and_where_it_lies",
    ),
    Survivor(
        "passes/jacobian/costs.py", "asked = (Dynamics(self.sets).whole,) if whole else ()", "condition turned round",
        test="test/autodiff/test_jacobian.py::test_where_data_decide_what_fires_the_most_is_counted",
    ),
    Survivor(
        "passes/loops/transform/followed.py",
        "if apart[at] in (1, -1) and len(others) == 1 and (s := others[0][1]) in (1, -1):", "1 to 2",
        test="test/native/test_followed.py::test_a_window_of_any_length_is_kept_once[0-i-1-n-1]",
    ),
    Survivor(
        "passes/loops/transform/followed.py", "if c.eq or self.field in rest.names or abs(k) > 1:", "Or to And",
        test="test/native/test_followed.py::test_what_is_handed_on_in_one_round_only",
    ),
    Survivor(
        "passes/loops/passes.py", "raise _no_order(p, first) from None\n            else:\n                return True",
        "True to False", reason="`_transformed` asks other passes only whether they have changed something",
    ),
    Survivor(
        "passes/loops/tensors/convert.py", "place = [None] * len(s.op.indices)", "Mult to Add",
        test="test/native/test_mlir_tools.py::test_elements_that_data_choose[linalg]",
    ),
    Survivor(
        "passes/autodiff/reverse.py",
        "names = {d: e if e is not None else IndexExpr.of(s) for d, s, e in zip(arrow.src, src, index, strict=True)}",
        "IsNot to Is", reason=REMOVED, removed=True,
    ),
    Survivor(
        "passes/loops/transform/checkpoints.py", "if before < at:", "condition turned round",
        test=f"{SCHEDULES}::test_of_a_trajectory_few_states_are_kept",
    ),
    Survivor(
        "passes/circuit/body.py", "if part.guards:", "condition turned round",
        test="test/circuit/test_bodies.py::test_gathers_of_many[max]",
    ),
    Survivor(
        "passes/loops/transform/by_data/empty.py",
        "if len(counted.dims) != len(summed.dims) or len(counted.guards) != len(summed.guards):", "Or to And",
        test="test/native/test_empty_sums.py::test_a_count_of_something_else_is_asked[relaxed]",
    ),
    Survivor(
        "passes/loops/transform/tables.py", "stack += [a for a in more if a not in seen]", "NotIn to In",
        test="test/native/test_read_where_stored.py::test_a_function_of_one_sum_of_indices_is_a_table",
    ),
    Survivor(
        "passes/hardware/code.py", "if type_ == i32 and not -(2**31) <= value < 2**31:", "2 to 3",
        test="test/hw/test_integers.py::test_what_needs_more_bits_is_refused",
    ),
    Survivor(
        "passes/loops/emit/generic.py", "return not p.term.around and not p.term.cons", "not left out",
        test=f"{SCHEDULES}::test_several_products_add_to_one_result[relaxed]",
    ),
)  # fmt: skip
