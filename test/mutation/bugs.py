"""Bugs of a compiler, seeded on purpose: a changed line of the package each, and the test that catches it.

PYTHONPATH=test python -m mutation.seeded             all of them, each with its test
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """In `file` of the package, `old` (which is there once) becomes `new`; `test` fails then."""

    name: str
    file: str
    old: str
    new: str
    test: str


RULES = "test/autodiff/test_rules.py"
DESCRIBE = "test/poly/test_describe.py"
CHECK = "test/passes/test_check.py"
_UNIT = "test/hw/test_matching_unit.py"
_QUICK = (
    "two_open_inputs_determine_the_index_together",
    "a_stored_pair_is_not_joined_again",
    "a_used_up_partner_is_left_in_the_middle_of_a_walk",
)
UNIT = " ".join([*(f"{_UNIT}::test_{name}" for name in _QUICK), _UNIT])
NATIVE = "test/native/test_gradients.py test/native/test_schedules.py"
TOKEN = "test/token/test_examples.py test/token/test_random_programs.py"
TABLE = "passes/autodiff/derivative_table.py"
FUNCTIONS = "ops/functions.py"
OBLIGATIONS = "passes/analysis/obligations.py"
COUNTING = "poly/counts/counting.py"
SUMMING = "poly/counts/summing.py"
CAM = "hw/matching_unit/cam.py"
RTL = "hw/matching_unit/unit.py"

BUGS: tuple[Bug, ...] = (
    # -- rows of the table of derivatives
    Bug(
        "a - b by b without its sign",
        TABLE,
        "_same,                                             lambda d, a, b, o: -d)",
        "_same,                                             lambda d, a, b, o: d)",
        RULES,
    ),
    Bug("a * b by b is d*b", TABLE, "lambda d, a, b, o: d * a)", "lambda d, a, b, o: d * b)", RULES),
    Bug("a / b by b without its sign", TABLE, "-(d / b * o)", "(d / b * o)", RULES),
    Bug("sqrt without the half", FUNCTIONS, "0.5 * d / o", "d / o", RULES),
    Bug("cos without its sign", FUNCTIONS, "-(d * a.call(math.SinOp))", "(d * a.call(math.SinOp))", RULES),
    Bug("tan as tanh", FUNCTIONS, "d * (o * o + 1.0)", "d * (1.0 - o * o)", RULES),
    Bug(
        "tanh without its square",
        FUNCTIONS,
        "d * (1.0 - o * o),)",
        "d * (1.0 - o),)",
        RULES,
    ),
    Bug("atan2 by x without its sign", FUNCTIONS, "-(d * a / (a * a + b * b))", "(d * a / (a * a + b * b))", RULES),
    Bug("erf with another constant", FUNCTIONS, "(2.0 / py.sqrt(py.pi))", "(1.0 / py.sqrt(py.pi))", RULES),
    Bug("a tie of max counts twice", TABLE, "(d * 0.5).where", "(d * 1.0).where", RULES),
    Bug("a ** b by a with a ** b", TABLE, "a ** (b - 1.0)", "a ** b", RULES),
    Bug("the guard of a ** 0 is gone", TABLE, '.where(b.compare("une", 0.0), 0.0)', "", RULES),
    # -- reversed arrows
    Bug(
        "a reversed arrow without its condition",
        "passes/autodiff/reverse.py",
        "when = describe(r.project(fields), context)\n        return [Inverse(when,",
        "when = TRUE\n        return [Inverse(when,",
        "test/autodiff",
    ),
    Bug(
        "a * sent back where others would get it",
        "passes/autodiff/reverse.py",
        "if not covered <= r:",
        "if not r <= covered:",
        "test/autodiff",
    ),
    Bug(
        "the product rule forgets one zero",
        "passes/autodiff/adjoint_gather.py",
        'few = z.compare("ole", 1.0)',
        'few = z.compare("olt", 1.0)',
        "test/autodiff/test_gathers.py",
    ),
    Bug(
        "ties of a gather are not shared",
        "passes/autodiff/adjoint_gather.py",
        "self.share = (self.body.val(self.delta) / ties).ssa",
        "self.share = self.body.val(self.delta).ssa",
        "test/autodiff/test_gathers.py",
    ),
    # -- elimination and simplification
    Bug(
        "live instances are not asked behind an arrow",
        "passes/autodiff/eliminate_dead_derivatives.py",
        "        r = r & inside.extend(a.dims)\n",
        "        r = r | inside.extend(a.dims)\n",
        "test/autodiff/test_no_dead_derivatives.py",
    ),
    Bug(
        "what goes to the primal is dead",
        "passes/autodiff/eliminate_dead_derivatives.py",
        "if s.goal not in adjoints}",
        "if s.goal in ()}",
        "test/autodiff",
    ),
    Bug(
        "x - (-y) is x - y",
        "passes/simplify.py",
        "return _new(op, arith.AddfOp(a, b.owner.operand)) if",
        "return _new(op, arith.SubfOp(a, b.owner.operand)) if",
        "test/autodiff",
    ),
    Bug(
        "!c ? a : b is c ? a : b",
        "passes/simplify.py",
        "arith.SelectOp(cond.owner.lhs, b, a)",
        "arith.SelectOp(cond.owner.lhs, a, b)",
        "test/agreement/test_agreement.py::test_valid_programs",
    ),
    # -- sets, inversion of relations, counting
    Bug(
        "Faulhaber with B1 = -1/2",
        SUMMING,
        "bernoulli[1] = Fraction(1, 2)",
        "bernoulli[1] = Fraction(-1, 2)",
        DESCRIBE,
    ),
    Bug("a sum begins one too late", SUMMING, "for e in (hi, lo - 1))", "for e in (hi, lo))", DESCRIBE),
    Bug(
        "both parts of a cut have the border",
        SUMMING,
        "for op in (CmpOp.LE, CmpOp.GT)]",
        "for op in (CmpOp.LE, CmpOp.GE)]",
        DESCRIBE,
    ),
    Bug(
        "a count for sizes that have no points",
        COUNTING,
        "return IndexExpr.of(Select(describe(sizes, ever), n, IndexExpr()))",
        "return n",
        DESCRIBE,
    ),
    Bug(
        "a gather of 0 summands waits for a token",
        "passes/analysis/relations.py",
        "if port.gather is not None and isinstance(port.count, IndexExpr) and not self._by_token(op, port):",
        "if port.gather is None and isinstance(port.count, IndexExpr):",
        "test/passes test/interp",
    ),
    Bug(
        "a domain is a union over inputs",
        "passes/analysis/relations.py",
        "            out = out & self.received(op, p)",
        "            out = out | self.received(op, p)",
        "test/passes/test_infer_domains.py",
    ),
    Bug(
        "a fixpoint stops after its first round",
        "passes/infer_domains.py",
        "                changed = True\n",
        "                changed = False\n",
        "test/passes/test_infer_domains.py",
    ),
    # -- the checker
    Bug(
        "coverage asks for what is too much",
        OBLIGATIONS,
        "missing = domain - covered",
        "missing = covered - covered",
        CHECK,
    ),
    Bug(
        "two arrows are never compared", OBLIGATIONS, "        for b in into[:n]:", "        for b in into[:0]:", CHECK
    ),
    Bug("tokens that nobody takes are fine", OBLIGATIONS, "lost = sent - met", "lost = met - sent", CHECK),
    Bug(
        "every multiplicity is right",
        OBLIGATIONS,
        "        if same_value(base, n, m):\n",
        "        if base is not None:\n",
        CHECK,
    ),
    Bug("two tokens of one arrow differ in all", OBLIGATIONS, "differ = Formula.any(", "differ = Formula.all(", CHECK),
    Bug(
        "a gather's count is taken at its word",
        OBLIGATIONS,
        "bad = None if same_count(part, wanted, total) else",
        "bad = None if wanted is not None else",
        CHECK,
    ),
    # -- the matching unit in RTL
    Bug("open fields are compared", CAM, ") & care_columns[b])", "))", UNIT),
    Bug(
        "an entry once freed stays",
        CAM,
        "occupied.eq(occupied & ~place)",
        "occupied.eq(occupied)",
        UNIT,
    ),
    Bug(
        "a key's open fields are compared",
        CAM,
        "Mux(self.key_wild[b], 0, Mux(self.key_tag[b], ~column, column))",
        "Mux(self.key_tag[b], ~column, column)",
        UNIT,
    ),
    Bug(
        "unification takes the partner's index",
        RTL,
        "narrowed.eq(s.tag[s.level] | s.entry.tag)",
        "narrowed.eq(s.entry.tag)",
        UNIT,
    ),
    Bug(
        "a field stays open if one leaves it open",
        RTL,
        "still_open.eq(s.wild[s.level] & s.entry.wild)",
        "still_open.eq(s.wild[s.level] | s.entry.wild)",
        UNIT,
    ),
    Bug(
        "a token used is not counted",
        RTL,
        "m.d.sync += s.cur.multiplicity.eq(_used_once(s.cur.multiplicity, dim))",
        "m.d.sync += s.cur.multiplicity.eq(s.cur.multiplicity)",
        UNIT,
    ),
    Bug(
        "the walk ends at its first partner",
        CAM,
        "untried[self.level].eq(hit.bits & ~hit.onehot)",
        "untried[self.level].eq(0)",
        UNIT,
    ),
    # -- lowering to native code
    Bug(
        "what lies outside of a condition is left out",
        "passes/loops/equations.py",
        "        for rest in outside:\n            self._cut(eq, rest)\n",
        "        del outside\n",
        NATIVE,
    ),
    Bug(
        "a choice between arrows forgets conditions",
        "passes/loops/equations.py",
        "if all(_same_element(sent[0], t) for t in sent):",
        "if sent:",
        NATIVE,
    ),
    Bug(
        "new elements go over old ones that are still read",
        "passes/loops/groups.py",
        "if free and reads[1] & writes[0] and not reads[0] & writes[1]:",
        "if reads[1] & writes[0]:",
        NATIVE,
    ),
    # -- the token engine, and the interpreter it must equal
    Bug(
        "summands are folded the other way round",
        "engines/token/store.h",
        "pool[b].ord < pool[a].ord ? b : a",
        "pool[a].ord < pool[b].ord ? b : a",
        TOKEN,
    ),
    Bug(
        "the first of a list is lost",
        "engines/token/store.h",
        "else p->head = x.next[i];\n",
        "else p->head = NIL;\n",
        TOKEN,
    ),
    Bug(
        "tokens used up still wait",
        "engines/token/matching.py",
        '            w.line(f"waiting -= {len(others)};")\n',
        "",
        TOKEN,
    ),
    Bug(
        "a stored token is joined again",
        "engines/interp/matching.py",
        '            w.line(f"if {t.key} not in {self._store(t.port, t.pattern)}: break")\n',
        '            w.line("pass")\n',
        "test/interp",
    ),
    Bug(
        "an index finds tokens that are gone",
        "engines/interp/matching.py",
        '            w.line(f"del b[{key}]")\n',
        '            w.line("pass")\n',
        "test/agreement/test_found.py",
    ),
)
