"""Programs that hold `adjoint of`: whatever is done with one is what is done with the program it expands to.

Every registered pass and every function of the API that takes a program stands in a table here, and so does whatever is
added later: the tests fail where a name is missing.  Numbers are those of complex steps through the same steps in Python.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import Program
from upl_mlir.frontend.einsum.gather_form import gather_form
from upl_mlir.observe.explain import explain
from upl_mlir.observe.viewing import view
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.expand import expand
from upl_mlir.passes.pipelines import SCHEDULE
from upl_mlir.pipeline import new_context
from upl_mlir.universe import PASSES, UPL_UNIVERSE

FIT = """program fit
param n >= 1
const T = 3
input w { -> Use.w<0> }
input rate { #T -> Upd.rate<*> }
input X<i> in 0<=i<n { #T -> Err.x<*,i> }
input Y<i> in 0<=i<n { #T -> Err.y<*,i> }
output End
node Use<t> in 0<=t<T { in w; #n -> Err.w<t,*>; -> Upd.w }
node Err<t,i> in 0<=t<T, 0<=i<n { in w, x, y; e = sin(w)*x - y; e*e/2 #n -> Loss.l<t> }
node Loss<t> { in @(+) l[#]; one = 1.0 }
node Upd<t> in 0<=t<T { in w, rate, g; v = w - rate*g; if t<T-1: v -> Use.w<t+1>; if t==T-1: v -> End<> }
adjoint of Loss.l seed Loss.one wrt Use.w -> Upd.g
"""
"""Three steps of gradient descent."""
N = 3
GIVEN = {"w": np.array(0.4), "rate": np.array(0.15), "X": np.array([1.0, -0.5, 2.0]), "Y": np.array([0.3, 0.8, -1.1])}


CHAIN = """program chain
const T = 6
input x { -> Start.x<> }
output Y
output D
node Start { in x; x -> F.x<0> }
node F<t> in 0<=t<T { in x; s = sin(x); if t<T-1: s -> F.x<t+1>; if t==T-1: s -> End.y<> }
node End { in y; one = 1.0; y -> Y<> }
node Out { in d; d -> D<> }
adjoint of End.y seed End.one wrt Start.x -> Out.d
"""
"""A loop whose values wait for the derivative that the program asks for."""


MANY = """program many
param m >= 1
input X<i> in 0<=i<m { -> F.x<i> }
output D<i>
node F<i> in 0<=i<m { in x; sin(x) -> End.y<i> }
node End<i> in 0<=i<m { in y; one = 1.0 }
node Out<i> in 0<=i<m { in d; d -> D<i> }
adjoint of End.y seed End.one wrt F.x -> Out.d
"""
"""A program that several ranks may share."""


def fit(w: Any, rate: Any, X: Any, Y: Any) -> Any:
    """The same in Python; complex numbers go through it."""
    for _ in range(3):
        w = w - rate * np.sum((np.sin(w) * X - Y) * np.cos(w) * X)
    return w


def by_complex_step(name: str) -> np.ndarray:
    """The derivative of `fit` by an argument."""
    out = np.zeros(GIVEN[name].shape)
    for at in np.ndindex(out.shape):
        moved = GIVEN[name].astype(complex)
        moved[at] += 1e-30j
        out[at] = np.imag(fit(**{**GIVEN, name: moved})) / 1e-30
    return out


def source(**overrides: int) -> Program:
    """The program, as it was written."""
    return upl.load(FIT, **overrides)


def text(p: Program) -> str:
    """What a program computes: directives that are still there are expanded."""
    return str(p.expanded())


# -- the passes ------------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "infer-domains": {},
    "check": {},
    "autodiff": {"of": "End", "wrt": ("w", "X")},
    "tangent": {"of": ("End",), "wrt": ("rate", "X")},
    "eliminate-dead-derivatives": {},
    "simplify": {},
    "schedule": {},
    "distribute": {},
    "lower-loops": {},
    "lower-linalg": {},
    "batch": {"ports": ("w",), "field": "b"},
    "checkpoint": {"along": "t", "every": 2},
    "relay": {"port": "Upd.g"},
    "strip-mine": {"node": "Upd", "field": "t", "by": 2},
    "chain-gathers": {},
    "lower-hw": {},
    "lower-circuit": {},
    "if-convert": {},
    **{name: {} for name in SCHEDULE.passes},
}
"""What each pass is called with."""
BEFORE = {name: SCHEDULE.passes[:k] for k, name in enumerate(SCHEDULE.passes)}
"""The passes on programs of loops need those that come before them."""
TEXTS = {"checkpoint": CHAIN, "distribute": MANY}
"""Programs for passes that cannot do anything with the first one."""


def test_every_pass_is_tried() -> None:
    assert OPTIONS.keys() == PASSES.keys(), "a pass that reads arrows begins with `expand`; this table tries it"


ONE_STATEMENT = ("lower-circuit",)
"""Passes on programs of one statement, of which none holds a directive: they begin with `prepared`, as `schedule` does."""


@pytest.mark.parametrize("name", [n for n in PASSES if n not in ONE_STATEMENT])
def test_a_pass_sees_what_a_directive_stands_for(name: str) -> None:
    """The module after the pass, or the directive in it expanded, is that of the pass on the expanded program."""
    found: list[str] = []
    written = upl.load(TEXTS[name]) if name in TEXTS else source(n=N)
    for p in (written.clone(), written.expanded()):
        module = p.infer_domains().module
        for each in (*BEFORE.get(name, ()), name):
            PASSES[each]()(**OPTIONS[each]).apply(new_context(), module)
        module.verify()
        held = any(op.name == "upl.program" for op in module.body.block.ops)
        found.append(text(Program(module)) if held else str(module))
        if name in ("schedule", "autodiff"):
            found[-1] += str(module)
    assert found[0] == found[1]
    assert "adjoint of Loss.l" not in found[0] and "adjoint of End.y" not in found[0]


@pytest.mark.parametrize("target", [t for t in UPL_UNIVERSE.all_targets if t != "hw"])  # which takes circuits only
def test_a_target_shows_what_a_directive_stands_for(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-t upl` prints the text with its directive; what is made of arrows has those of the derivative."""
    monkeypatch.setattr("upl_mlir.hw.verilog.verilog_of", str)  # what it is made of: the lowered module
    written = []
    for p in (source(n=N), source(n=N).expanded()):
        out = io.StringIO()
        UPL_UNIVERSE.all_targets[target]()().emit(new_context(), p.infer_domains().module, out)
        written.append(out.getvalue())
    if target == "upl":
        assert "adjoint of Loss.l" in written[0]
    else:
        assert written[0] == written[1]


def test_arrows_are_not_read_past_a_directive() -> None:
    """A pass that forgets `expand` is stopped, at the directive."""
    p = source().infer_domains()
    with pytest.raises(upl.UplError, match="UPL1411") as e:
        ProgramSets(p.op)
    span = e.value.diagnostics[0].span
    assert span is not None and FIT.splitlines()[span.line - 1].startswith("adjoint of")
    program = p.op
    expand(program)
    assert str(Program(p.module)) == str(source().expanded())


# -- the API ---------------------------------------------------------------------------------------------------------------


def pictured(p: Program) -> str:
    """The picture of a program, for Graphviz."""
    return upl.draw(p).dot()


def proofs(p: Program) -> list[str]:
    """What `check` finds, and its figures."""
    report = p.check()
    assert report.ok
    found = [f"{o.kind.name} {o.status.name} {o.where} {o.message}" for o in report.obligations]
    return [*found, str(report.firings), str(report.tokens), str(report.critical_path), str(report.waiting_bound)]


TRANSFORMATIONS: dict[str, Callable[[Program], Program]] = {
    "vjp": lambda p: upl.vjp(p, of="End", wrt=["w", "rate", "X", "Y"]),
    "grad": lambda p: upl.grad(p, of="End", wrt=["w", "rate", "X", "Y"]),
    "jvp": lambda p: upl.jvp(p, of="End", wrt=["w", "rate", "X", "Y"]),
    "hvp": lambda p: upl.hvp(p, of="End", wrt=["w", "rate"]),
    "jacobian": lambda p: upl.jacobian(p, of="End", wrt=["w", "X"]),
    "hessian": lambda p: upl.hessian(p, of="End", wrt=["w", "rate"]),
    "batch": lambda p: upl.batch(p, ["rate"], "b"),
    "checkpoint": lambda p: upl.checkpoint(upl.grad(p, of="End", wrt="w"), along="t", every=1),
}
READERS: dict[str, Callable[[Program], object]] = {
    "compile": lambda p: upl.compile(p)(**GIVEN)["End"],
    "draw": pictured,
    "check_grads": lambda p: upl.check_grads(p, "End", ["w", "rate", "X"], GIVEN, order=2),
    "ragged": lambda p: upl.ragged(GIVEN["X"], p.inputs["X"], "i"),
    "quantize": lambda p: (upl.quantize(p, GIVEN).seen, upl.quantize(p, GIVEN).chosen),
}
NO_PROGRAM = {
    "Program", "Report", "UplError", "__version__", "fori_loop", "from_jax", "function", "load", "range", "scan",
    "segment_max", "segment_min", "segment_sum", "stop_gradient", "value_and_grad", "view", "vmap", "while_loop",
}  # fmt: skip
"""What makes programs, or takes functions only."""


def test_every_function_is_tried() -> None:
    assert set(upl.__all__) == TRANSFORMATIONS.keys() | READERS.keys() | NO_PROGRAM


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("sizes", [{}, {"n": N}], ids=["open", "known"])
def test_a_transformation_sees_what_a_directive_stands_for(name: str, sizes: dict[str, int]) -> None:
    transformed = TRANSFORMATIONS[name]
    assert text(transformed(source(**sizes))) == text(transformed(source(**sizes).expanded()))


def no_einsum(p: Program) -> str:
    """Why it is no einsum kernel: the node named last is one of the derivative."""
    with pytest.raises(upl.UplError) as e:
        gather_form(p)
    return e.value.diagnostics[0].message


READ: dict[str, Callable[[Program], object]] = {
    **READERS,
    "check": proofs,
    "explain": explain,
    "einsum": no_einsum,
}


@pytest.mark.parametrize("name", READ)
def test_a_reader_sees_what_a_directive_stands_for(name: str) -> None:
    given = source(n=N)
    assert repr(READ[name](given)) == repr(READ[name](source(n=N).expanded()))


def test_the_page_shows_both_derivatives() -> None:
    """`upl view --of`: first what the directive stands for, then the derivative of the whole."""
    page = view(source(n=N), of="End", wrt=["w"])
    assert "adjoint of Loss" in page and "adjoint of Upd" in page


# -- numbers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
def test_a_run_is_differentiated_through_its_own_derivatives(engine: Any) -> None:
    """By initial weight, rate and data, in both modes: not 0, and not as if the steps were constants."""
    names = list(GIVEN)
    reverse = upl.compile(upl.vjp(source(), of="End", wrt=names), engine)(**GIVEN, d_End=2.0)
    np.testing.assert_allclose(reverse["End"], fit(**GIVEN), rtol=1e-14)
    wanted = {n: by_complex_step(n) for n in names}
    for n in names:
        np.testing.assert_allclose(reverse[f"d_{n}"], 2 * wanted[n], rtol=1e-12)
    rng = np.random.default_rng(1)
    along = {n: rng.normal(size=v.shape) for n, v in GIVEN.items()}
    forward = upl.compile(upl.jvp(source(), of="End", wrt=names), engine)(**GIVEN, **{f"t_{n}": t for n, t in along.items()})
    np.testing.assert_allclose(forward["t_End"], sum(np.sum(wanted[n] * along[n]) for n in names), rtol=1e-12)


def test_second_derivatives_of_a_run() -> None:
    """The Hessian by weight and rate, against differences of complex steps; it is symmetric."""
    out = upl.compile(upl.hessian(source(), of="End", wrt=["w", "rate"]))(**GIVEN)
    h = np.array([[out[f"H_{a}_{b}"] for b in ("w", "rate")] for a in ("w", "rate")])
    np.testing.assert_allclose(h, h.T, rtol=1e-12)

    def slope(name: str, **moved: Any) -> float:
        given = {**GIVEN, **moved}
        return float(np.imag(fit(**{**given, name: given[name] + 1e-30j})) / 1e-30)

    for j, b in enumerate(("w", "rate")):
        for i, a in enumerate(("w", "rate")):
            ahead, behind = (slope(a, **{b: GIVEN[b] + s}) for s in (1e-5, -1e-5))
            np.testing.assert_allclose(h[i, j], (ahead - behind) / 2e-5, rtol=1e-8)


# -- several directives ----------------------------------------------------------------------------------------------------

TWO = """program two
input x { -> F.x<> }
input a { -> F.a<> }
output D2
node F { in x, a; a*x**3 -> G.l<> }
node G { in l; one = 1.0 }
node First { in d; d -> Again.l<> }
node Again { in l; one = 1.0 }
node Second { in d; d -> D2 }
FIRST
SECOND
"""
INNER, OUTER = "adjoint of G.l seed G.one wrt F.x -> First.d", "adjoint of Again.l seed Again.one wrt F.x -> Second.d"


@pytest.mark.parametrize("order", [(INNER, OUTER), (OUTER, INNER)])
def test_a_directive_is_expanded_after_those_that_it_reads(order: tuple[str, str]) -> None:
    """d/dx of d/dx of a x^3 is 6 a x, in whatever order the text asks for them."""
    p = upl.load(TWO.replace("FIRST", order[0]).replace("SECOND", order[1]))
    out = upl.compile(upl.grad(p, of="D2", wrt=["x", "a"]))(x=2.0, a=0.7)
    np.testing.assert_allclose([out["D2"], out["d_x"], out["d_a"]], [6 * 0.7 * 2, 6 * 0.7, 12.0], rtol=1e-14)


RING = """program ring
input p { -> A.p<> }
input q { -> B.q<> }
output P
output Q
node A { in p; -> GA.x<>; -> NewA.p<>  EARLY }
node B { in q; -> GB.x<>; -> NewB.q<> }
node GA { in x, y; l = x*x*y; -> LA.l<> }
node GB { in x, y; l = x*y*y; -> LB.l<> }
node LA { in l; one = 1.0 }
node LB { in l; one = 1.0 }
node NewA { in p, d; p - d -> P<>  LATE }
node NewB { in q, d; q - d -> Q<>; q - d -> GA.y<> }
adjoint of LA.l seed LA.one wrt A.p -> NewA.d
adjoint of LB.l seed LB.one wrt B.q -> NewB.d
"""


def test_directives_that_need_each_other_are_refused() -> None:
    """Each objective reads the result of the other directive; where only one does, it is differentiated through that."""
    with pytest.raises(upl.UplError, match="UPL1409") as e:
        upl.load(RING.replace("EARLY", "").replace("LATE", "; p - d -> GB.y<>")).expanded()
    assert e.value.diagnostics[0].span is not None and "stop_gradient" in str(e.value)
    p = upl.load(RING.replace("EARLY", "; -> GB.y<>").replace("LATE", ""))
    assert p.check().ok
    out = upl.compile(p)(p=0.5, q=3.0)
    q = 3.0 - 0.5**2  # and so the other objective is p^2 (3 - p^2)
    np.testing.assert_allclose([out["Q"], out["P"]], [q, 0.5 - (6 * 0.5 - 4 * 0.5**3)], rtol=1e-14)


def test_a_directive_that_goes_through_its_own_result_is_refused() -> None:
    """The weight that a step computes is read by the same objective again."""
    again = FIT.replace("#n -> Err.w<t,*>; -> Upd.w", "-> Upd.w").replace(
        "-> Use.w<t+1>", "-> Use.w<t+1>; if t<T-1: v #n -> Err.w<t+1,*>"
    ).replace("input w { -> Use.w<0> }", "input w { -> Use.w<0>; #n -> Err.w<0,*> }")  # fmt: skip
    with pytest.raises(upl.UplError, match=r"UPL1409.*its own result"):
        upl.load(again).expanded()
    constant = again.replace("v #n -> Err.w", "stop_gradient(v) #n -> Err.w").replace(
        "input w { -> Use.w<0>; #n -> Err.w<0,*> }", "input w { -> Use.w<0> }\nnode Use { if t==0: #n -> Err.w<t,*> }"
    )
    assert upl.load(constant).check().ok


# -- seeds -----------------------------------------------------------------------------------------------------------------

SCALAR = "program p\ninput x { -> F.x<> }\noutput L\nnode F { in x; x*x -> G.l<> }\nnode G { in l; sin(l) -> L }\n"


@pytest.mark.parametrize("of", ["L", "G.l"])
def test_a_derivative_of_one_number(of: str) -> None:
    """`vjp` asks for the number that weights it, as for arrays; `grad` is that with 1, without asking."""
    x, name = 1.3, "d_" + of.replace(".", "_")
    wanted = 2 * x * (np.cos(x * x) if of == "L" else 1.0)
    weighted, plain = upl.vjp(upl.load(SCALAR), of=of, wrt="x"), upl.grad(upl.load(SCALAR), of=of, wrt="x")
    assert list(weighted.inputs) == ["x", name] and list(plain.inputs) == ["x"]
    for engine in ("interp", "token", "native"):
        np.testing.assert_allclose(upl.compile(weighted, engine)(x=x, **{name: -3.0})["d_x"], -3 * wanted, rtol=1e-14)
        np.testing.assert_allclose(upl.compile(plain, engine)(x=x)["d_x"], wanted, rtol=1e-14)
    for p in (weighted, plain):
        assert p.check().ok and list(upl.load(str(p)).inputs) == list(p.inputs)


def test_a_number_that_data_choose_the_sender_of() -> None:
    """One of two nodes sends the objective: the number that weights it goes back to that one."""
    text = """program p
    input x { -> F.x<> }
    output L
    node F { in x; if x>1: x*x -> L<>; if !(x>1): x -> G.x<> }
    node G { in x; 5*x -> L<> }
    """
    f = upl.compile(upl.vjp(upl.load(text), of="L", wrt="x"))
    assert f(x=3.0, d_L=2.0)["d_x"] == 12 and f(x=0.5, d_L=2.0)["d_x"] == 10
    g = upl.compile(upl.grad(upl.load(text), of="L", wrt="x"))
    assert g(x=3.0)["d_x"] == 6 and g(x=0.5)["d_x"] == 5


def test_the_same_name_twice() -> None:
    """An output that is called d_x already keeps its name; the Hessian is of what is asked for."""
    text = SCALAR + "output d_x\nnode F { x -> d_x<> }\n"
    p = upl.load(text)
    assert list(upl.vjp(p, of="L", wrt="x").outputs) == ["L", "d_x", "d_x_2"]
    out = upl.compile(upl.hvp(p, of="L", wrt="x"))(x=1.3, t_x=1.0)
    np.testing.assert_allclose(out["t_d_x_2"], 2 * np.cos(1.69) - 4 * 1.69 * np.sin(1.69), rtol=1e-14)


def test_a_signature_says_what_there_is() -> None:
    """Every transformation takes the program first."""
    from upl_mlir.api import jacobians
    from upl_mlir.api import programs as api

    for name in TRANSFORMATIONS:
        f = getattr(api, name, None) or getattr(jacobians, name)
        assert next(iter(inspect.signature(f).parameters.values())).annotation == "Program"
