"""Every public function and every command, on programs of the generator, right ones and wrong ones: what they raise.

A function answers or raises UplError; a command ends with 0 or 1 and never speaks of an internal error.  Each name of the
package and each command, pass and target of the tools has to be in the tables here, or the first test fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from agreement.campaign import case_of
from agreement.generator import generate
from agreement.mutants import mutants
from agreement.properties import Case, host_arrays
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.passes.pipelines import SCHEDULE
from upl_mlir.tools import upl as upl_tool
from upl_mlir.tools import upl_opt
from upl_mlir.universe import PASSES, UPL_UNIVERSE

SEEDS = range(9_400_000, 9_400_006)
Arrays = Mapping[str, Any]


def _ports(p: upl.Program) -> tuple[str, list[str]]:
    """An output and the inputs, differentiable or not: a name that does not exist where there are none."""
    return next(iter(p.outputs), "no_output"), list(p.inputs)[:2] or ["no_input"]


def _field(p: upl.Program) -> str:
    return next((f for v in p.inputs.values() for f in v.fields), "i")


def _node(p: upl.Program) -> tuple[str, str]:
    """A node and its first field."""
    found = [(op.symbol, op.fields[0]) for op in nodes(p.expanded().op) if isinstance(op, NodeOp) and op.fields]
    return next(iter(found), ("no_node", "i"))


def _slices(p: upl.Program, a: Arrays, s: Mapping[str, int]) -> None:
    for name, v in p.inputs.items():
        for f in v.fields:
            upl.ragged(a[name], v, f, **s)


def _run(**options: Any) -> Callable[[upl.Program, Arrays, Mapping[str, int]], object]:
    return lambda p, a, s: upl.compile(p, **options)(**a, **s)


def _gradient(p: upl.Program, a: Arrays, s: Mapping[str, int]) -> None:
    of, wrt = _ports(p)
    upl.check_grads(p, of, wrt, a, s, modes=("fwd", "rev"))


FUNCTIONS: Mapping[str, Callable[[upl.Program, Arrays, Mapping[str, int]], object]] = {
    "load": lambda p, a, s: upl.load(str(p)),
    "compile": _run(),
    "compile, ordered": _run(gather="ordered", order="random"),
    "compile, f32": _run(real="f32"),
    "compile, native": _run(engine="native"),
    "vjp": lambda p, a, s: upl.vjp(p, of=_ports(p)[0], wrt=_ports(p)[1]),
    "jvp": lambda p, a, s: upl.jvp(p, of=_ports(p)[0], wrt=_ports(p)[1]),
    "grad": lambda p, a, s: upl.grad(p, of=_ports(p)[0], wrt=_ports(p)[1]),
    "hvp": lambda p, a, s: upl.hvp(p, of=_ports(p)[0], wrt=_ports(p)[1]),
    "hessian": lambda p, a, s: upl.hessian(p, of=_ports(p)[0], wrt=_ports(p)[1][0]),
    "jacobian": lambda p, a, s: upl.jacobian(p, of=_ports(p)[0], wrt=_ports(p)[1][0]),
    "check_grads": _gradient,
    "batch": lambda p, a, s: upl.batch(p, _ports(p)[1], "example"),
    "checkpoint": lambda p, a, s: upl.checkpoint(upl.vjp(p, of=_ports(p)[0], wrt=_ports(p)[1]), along=_field(p), every=2),
    "draw": lambda p, a, s: upl.draw(p).svg,
    "view": lambda p, a, s: upl.view(p, inputs={**a, **s}).html,
    "ragged": _slices,
    "quantize": lambda p, a, s: upl.quantize(p, a, **s),
    "Program.check": lambda p, a, s: (p.check().diagnostics(), p.check().firings.at(**s), p.check().tokens.total),
    "Program.infer_domains": lambda p, a, s: p.clone().infer_domains(),
    "Program.expanded": lambda p, a, s: p.expanded(),
    "Program.to_mlir": lambda p, a, s: upl.load(p.to_mlir()),
}
OTHERS = {
    "Program", "Report", "UplError", "__version__", "fori_loop", "from_jax", "function", "range", "scan", "segment_max",
    "segment_min", "segment_sum", "stop_gradient",
    "value_and_grad", "vmap", "while_loop",
}  # fmt: skip
"""Classes, and what takes Python functions instead of programs (test/frontend/trace)."""

COMMANDS: Mapping[str, list[str]] = {
    "check": ["FILE"],
    "grad": ["FILE", "--of", "OF", "--wrt", "WRT"],
    "explain": ["FILE", "--of", "OF", "--wrt", "WRT"],
    "jacobian": ["FILE", "--of", "OF", "--wrt", "WRT"],
    "draw": ["FILE", "-o", "DIR/x.svg"],
    "view": ["FILE", "-o", "DIR/x.html"],
    "run": ["FILE", "INPUTS", "--output", "DIR/out.npz", "--stats", "DIR/s.json"],
    "train": ["FILE", "--data", "DIR/in.npz", "--carry", "OF=IN", "--epochs", "1"],
    "einsum": ["--recognise", "FILE"],
    "quantize": ["FILE", "INPUTS"],
    "plot": ["FILE", "-o", "DIR/p.svg"],  # no trace: an error
    "synth": ["FILE", "--machine", "FILE"],  # no machine: an error
    "wrap": ["FILE", "-o", "DIR/wrapped"],
    "explore": ["FILE", "--list"],  # no sweep: an error
    "fmt": ["--stdout", "FILE"],
}
OTHER_COMMANDS = {"lsp", "completion"}
"""Those that take no program."""
PIPELINES: Mapping[str, list[str]] = {
    "infer-domains": ["--infer-domains"],
    "check": ["--check"],
    "autodiff": ["--autodiff=of=OF,wrt=WRT"],
    "tangent": ["--tangent=of=OF,wrt=WRT"],
    "eliminate-dead-derivatives": ["--autodiff=of=OF,wrt=WRT", "--eliminate-dead-derivatives"],
    "simplify": ["--autodiff=of=OF,wrt=WRT", "--simplify"],
    "schedule": ["--schedule"],
    "distribute": ["--distribute"],
    "lower-loops": ["--lower-loops"],
    "lower-linalg": ["--lower-linalg"],
    "lower-circuit": ["--lower-circuit"],
    "if-convert": ["--if-convert"],
    "batch": ["--batch=ports=WRT,field=example"],
    "relay": ["--relay=port=NODE.x"],
    "strip-mine": ["--strip-mine=node=NODE,field=OWN,by=2"],
    "chain-gathers": ["--chain-gathers"],
    "checkpoint": ["--autodiff=of=OF,wrt=WRT", "--checkpoint=along=FIELD,every=2"],
    "lower-hw": ["--lower-hw"],
    **{name: [f"--{p}" for p in SCHEDULE.passes[: k + 1]] for k, name in enumerate(SCHEDULE.passes)},
}
TARGETS = ["upl", "c", "svg", "dot", "verilog", "hw"]


def cases() -> list[Case]:
    """Right programs and, of each third, one with a mistake in it."""
    found: list[Case] = []
    for seed in SEEDS:
        program = generate(seed, 2)
        found.append(case_of(program, seed))
        if seed % 3 == 0:
            wrong = next(iter(mutants(program, seed, 1)), None)
            found += [Case(wrong.program.text(), False, found[-1].params, seed)] if wrong else []
    return found


CASES = cases()
NUMBERS = [n if n < 1 else pytest.param(n, marks=pytest.mark.slow) for n in range(len(CASES))]


def test_every_entry_is_in_the_tables() -> None:
    functions_ = {n.partition(",")[0] for n in FUNCTIONS if not n.startswith("Program.")}
    assert functions_ | OTHERS == set(upl.__all__) and not functions_ & OTHERS
    parser = upl_tool._parser()
    (commands,) = (a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    assert set(COMMANDS) | OTHER_COMMANDS == set(commands or ())
    assert set(PIPELINES) == set(PASSES) and set(TARGETS) == set(UPL_UNIVERSE.all_targets)


@pytest.mark.parametrize("n", NUMBERS)
def test_functions(n: int) -> None:
    """Each function on a program: an answer or UplError, and not the one of an internal error."""
    case = CASES[n]
    for name, call in FUNCTIONS.items():
        try:
            p = upl.load(case.text)
            sizes = {k: v for k, v in case.params.items() if k in p.params}
            call(p, host_arrays(p, sizes, case.seed), sizes)
        except upl.UplError as e:
            assert e.diagnostics and "UPL1000" not in str(e), (name, case.text)
        except Exception as e:
            raise AssertionError(f"{name}: {type(e).__name__}: {e}\n{case.text}") from e


def _answered(status: int, tool: str, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    out = capsys.readouterr()
    assert status in (0, 1), (tool, status, out.err, case.text)
    assert "internal error" not in out.err and "Traceback" not in out.err, (tool, out.err, case.text)
    assert status == 0 or "error" in out.err or "error" in out.out, (tool, out, case.text)


@pytest.mark.parametrize("n", NUMBERS)
def test_commands(n: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command, pass and target on a program: it ends with 0 or 1, with an error in the second case."""
    case = CASES[n]
    file = tmp_path / "p.upl"
    file.write_text(case.text, encoding="utf-8")
    of, wrt, field, inputs = "no_output", "no_input", "i", list[str]()
    node = "no_node", "i"
    try:
        p = upl.load(case.text)
        (of, (wrt, *_)), field = _ports(p), _field(p)
        node = _node(p)
        np.savez(tmp_path / "in.npz", **host_arrays(p, case.params, case.seed))
        inputs = [f"--input={tmp_path / 'in.npz'}"]
    except upl.UplError:
        pass
    sizes = [f"-D{k}={v}" for k, v in case.params.items()]

    places = {"FILE": str(file), "DIR": str(tmp_path), "FIELD": field, "OF": of, "WRT": wrt, "IN": wrt}
    places |= dict(zip(("NODE", "OWN"), node, strict=True))

    def filled(words: list[str]) -> list[str]:
        out: list[str] = []
        for w in words:
            if w == "INPUTS":
                out += inputs
                continue
            for key, value in places.items():
                w = w.replace(key, value)
            out.append(w)
        return out

    for name, words in COMMANDS.items():
        more = sizes if name in ("run", "train") else []
        _answered(upl_tool.main([name, *filled(words), *more]), f"upl {name}", case, capsys)
    for name, words in PIPELINES.items():
        _answered(upl_opt.main([str(file), *filled(words)]), f"upl-opt {name}", case, capsys)
    for target in TARGETS:
        at = sizes if target == "verilog" else []
        _answered(upl_opt.main([str(file), "-t", target, *at]), f"upl-opt -t {target}", case, capsys)
