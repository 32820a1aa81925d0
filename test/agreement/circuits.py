"""Programs as circuits: the property "circuit" of right programs, and the campaign "chosen" of programs that data decide.

A right program is refused for a reason with a code, or its plan is proved, every output bit is the reference's, runs follow
each other and wait at their ports without changing any, and the clocks are those that the plan says.  A program that data
decide (`decided`: pieces whose data may be wrong, chains of stages and their gradients) has the interpreter's results on
right data and an error, though often of another code, on wrong ones.
"""

from __future__ import annotations

import gc
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

import upl_mlir as upl
from agreement import decided
from agreement.properties import Arrays, Broken, Case, difference, host_arrays
from upl_mlir.engines.circuit.engine import CircuitEngine, run
from upl_mlir.passes.circuit.plan import Plan, cycles
from upl_mlir.passes.circuit.prove import proofs
from upl_mlir.passes.lower_to_circuit import planned_circuit, wish

REFUSES = ("UPL1205", "UPL1513", *(f"UPL{n}" for n in range(1820, 1830)), *(f"UPL{n}" for n in range(2001, 2006)))
"""Codes with which there may be no circuit: what data decide, what native code refuses, too, and UPL20xx."""
RUNS = 2
CHOSEN = ("pieces", "stages")
"""Of the kinds of programs that data decide."""
KEPT = 2
"""At most so many right data of a program, and so many wrong ones."""
UNITS = 24
"""Of programs that data decide, circuits with more lanes in all their processes are only proved: making one takes long."""
SMOOTH = ("exp(", "log(", "tanh(", "sin(", "cos(", "sigmoid(")
"""Calls whose bits are not the interpreter's."""


def circuit(case: Case) -> Counter[str]:
    """What happened, counted."""
    p = upl.load(case.text).infer_domains()
    lanes, share = _wished(case.seed)
    engine = _made(p, case.params, case.seed)
    if isinstance(engine, str):
        return Counter({f"circuit: refused {engine}": 1})
    assert isinstance(engine, CircuitEngine)
    plan = engine.plan
    reference = upl.compile(p, engine="reference", real="f32", gather="ordered")
    given = [host_arrays(p, case.params, case.seed + n, noise=n > 0 and case.noise) for n in range(RUNS)]
    expected = [reference(**arrays, **case.params) for arrays in given]
    narrow = [engine.given({n: _narrow(np.asarray(a)) for n, a in arrays.items()}) for arrays in given]
    for hold in (0, 90):
        made, streamed = run(engine.simulation, narrow, hold_in=hold, hold_out=hold, seed=case.seed)
        for n, (outputs, want) in enumerate(zip(made, expected, strict=True)):
            where = difference(dict(want), engine.results(outputs), exact=not case.smooth)
            if where is not None:
                raise Broken(f"circuit of {lanes} lanes, share={share}, run {n}, ports held {hold}: {where}")
        if not hold and streamed.cycles != cycles(plan, RUNS):
            raise Broken(f"circuit of {lanes} lanes: {streamed.cycles} clocks, {cycles(plan, RUNS)} predicted")
    several = "several processes" if len(plan.parts) > 1 else "one process"
    return Counter({f"circuit: equal {'within rounding' if case.smooth else 'bit for bit'}": 1, f"circuit: {several}": 1})


def chosen(seed: int) -> Counter[str]:
    """What happened with the program of a seed that data decide, counted.  Raises Broken."""
    kind = CHOSEN[seed % len(CHOSEN)]
    try:
        cases = list(decided.KINDS[kind](seed // len(CHOSEN)))
    except upl.UplError as e:
        if e.diagnostics[0].code != "UPL1205":  # too complex for our sets
            raise
        return Counter({f"{kind}: refused UPL1205": 1})
    found = Counter[str]()
    for case in cases:
        engine = _made(case.program.infer_domains(), case.params, seed, UNITS)
        if isinstance(engine, str):
            return Counter({f"{kind}: refused {engine}": 1})
        if isinstance(engine, Plan):
            return Counter({f"{kind}: proved, and not simulated": 1})
        found += _compared(case, engine, exact=not any(f in str(case.program) for f in SMOOTH))
    return Counter({f"{kind}: {what}": n for what, n in found.items()} | {f"{kind}: programs": 1})


def _compared(case: decided.Case, engine: CircuitEngine, *, exact: bool) -> Counter[str]:
    one = upl.compile(case.program, engine="interp", real="f32", gather="ordered")
    found, used = Counter[str](), Counter[bool]()
    for arrays in case.data:
        want = _tried(lambda arrays=arrays: dict(one(**arrays, **case.params)))
        right = isinstance(want, dict)
        if used[right] >= KEPT:
            continue
        used[right] += 1
        got = _tried(lambda arrays=arrays: engine.run({n: _narrow(np.asarray(a)) for n, a in arrays.items()}).outputs)
        if right and isinstance(got, upl.UplError) and got.diagnostics[0].code == "UPL1504":
            found["an integer has no room in a word"] += 1
            continue
        where = None
        if isinstance(want, dict) and isinstance(got, dict):
            where = difference(want, got, exact=exact)
        elif right or isinstance(got, dict):
            where = f"interpreter: {'right' if right else want}\ncircuit: {got if right else 'right'}"
        if where is not None:
            raise Broken(f"{where}\n{decided.shown(case, arrays)}")
        found["right data, equal" if right else "wrong data, an error"] += 1
    return found


def _tried(run: Callable[[], Arrays]) -> Arrays | upl.UplError:
    """Results, or the error in their place."""
    try:
        return run()
    except upl.UplError as e:
        return e


def _wished(seed: int) -> tuple[int, bool]:
    """Lanes, and whether units are shared."""
    return 1 + seed % 4, seed % 8 > 5


def _made(p: upl.Program, params: Mapping[str, int], seed: int, units: float = math.inf) -> CircuitEngine | Plan | str:
    """The circuit of a program; its plan if it has more `units`; the code with which it is refused.  Raises Broken, also
    where the plan is not proved."""
    lanes, share = _wished(seed)
    module, wanted = p.expanded().module, wish(lanes, share=share)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Amaranth, about hardware that is begun and then refused
            plan = planned_circuit(module.clone(), params, wanted)[1]
            few = sum(q.nest.lanes for q in plan.parts) <= units
            made = CircuitEngine(module, params, wanted) if few else plan
    except upl.UplError as error:
        code = error.diagnostics[0].code
        if code not in REFUSES:
            raise Broken(f"circuit at {dict(params)}: {error}") from None
        del error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
        return code
    wrong = [str(x) for x in proofs(made.plan if isinstance(made, CircuitEngine) else made) if not x.holds]
    if wrong:
        raise Broken(f"circuit of {lanes} lanes at {dict(params)}: not proved: {wrong[0]}")
    return made


def _narrow(a: np.ndarray) -> np.ndarray:
    """Reals as f32; integers and truth values as they are."""
    return a.astype(np.float32) if a.dtype.kind == "f" else a
