"""What derivatives cost to run: firings of value and gradient over firings of the value, and operations per order.

Firings are counted by the interpreter, on programs whose arrows do not depend on data; random numbers will do for those.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import upl_mlir as upl
from bench.report import Row
from upl_mlir.api.programs import reverse
from upl_mlir.dialects.upl import AdjointOp

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT / "examples", ROOT / "bench" / "native" / "programs")
SIZE = 6
"""Every parameter and width, but for the programs here below."""
SIZES: dict[tuple[str, str], dict[str, int | list[int]]] = {
    ("examples", "mlp"): {"K": 3, "N": [6, 5, 4]},
    ("examples", "matrix_chain"): {"K": 3, "N": [6, 5, 4, 6]},
    ("examples", "scan"): {"K": 3, "P": [1, 2, 4, 7]},
    ("programs", "mlp"): {"I": 12, "A": 8, "B": 6, "C": 4},
}
ORDERS = 3
OVER = {
    "examples/floyd_warshall": "a `@(min)` sends its result back to each summand's selection, and ties are counted first",
}
"""Programs whose gradient costs more than three times the value, and why."""


def firings(program: upl.Program, params: dict[str, int]) -> int:
    """How many firings one run of the interpreter has."""
    random = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for name, port in program.inputs.items():
        shape = port.shape(**params)
        real = port.dtype.kind == "f"
        arrays[name] = random.uniform(0.5, 1.5, shape) if real else random.integers(0, SIZE, shape)
    run = upl.compile(program, **params)
    run(**arrays)
    return sum(run.stats["firings"].values())


def of_gradients() -> tuple[list[Row], list[str]]:
    """Each program's first output by all its inputs; and the programs left out, with the reason."""
    rows: list[Row] = []
    left_out: list[str] = []
    for path in sorted(p for folder in FOLDERS for p in folder.glob("*.upl")):
        program = upl.load(path, **SIZES.get((path.parent.name, path.stem), {}))
        if any(isinstance(op, AdjointOp) for op in program.op.body.block.ops):
            left_out.append(f"{path.parent.name}/{path.stem}: holds its own derivative")
            continue
        params = dict.fromkeys(program.params, SIZE)
        of = [n for n, port in program.outputs.items() if port.dtype.kind == "f"]
        wrt = [n for n, port in program.inputs.items() if port.dtype.kind == "f"]
        try:
            value = firings(program, params)
            both = firings(reverse(program, of[0], wrt), params)
        except upl.UplError as e:
            left_out.append(f"{path.parent.name}/{path.stem}: {e.diagnostics[0].message}")
            continue
        title = f"{path.parent.name}/{path.stem}: value, and d {of[0]} by {', '.join(wrt)}"
        rows.append(Row(title, both, "firings", "<= 3 times", "value alone", value))
    return rows, left_out


def operations(program: upl.Program) -> int:
    """Arithmetic operations in the text: those of node bodies and arrows, constants not counted."""
    names = (op.name for op in program.module.walk())
    return sum(n.startswith(("arith.", "math.")) and n != "arith.constant" for n in names)


def of_orders() -> list[Row]:
    """The gradient of the gradient of the gradient of a program of scalars."""
    program = upl.load(ROOT / "examples" / "scalars.upl")
    rows: list[Row] = []
    before = operations(program)
    for order in range(1, ORDERS + 1):
        program = upl.grad(program, list(program.outputs)[-1], "w1")
        now = operations(program)
        title = f"examples/scalars: operations with all derivatives by w1 up to order {order}"
        rows.append(Row(title, now, "operations", "<= 4 times", f"up to order {order - 1}", before))
        before = now
    return rows


def rows() -> tuple[list[Row], str]:
    """All rows, and a note on the programs that have none."""
    found, left_out = of_gradients()
    note = "".join(f"Over 3: {name}: {why}. " for name, why in OVER.items())
    note += f"Parameters are {SIZE} unless `cost.py` says otherwise. Without a row: {'; '.join(left_out) or 'none'}."
    return [*found, *of_orders()], note
