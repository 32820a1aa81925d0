"""A right program as a circuit: the property "circuit".

It is refused for a reason with a code, or its plan is proved, every output bit is the reference's, runs follow each other
and wait at their ports without changing any, and the clocks are those that the plan says.
"""

from __future__ import annotations

import gc
import warnings
from collections import Counter

import numpy as np

import upl_mlir as upl
from agreement.properties import Broken, Case, difference, host_arrays
from upl_mlir.engines.circuit.engine import CircuitEngine, run
from upl_mlir.passes.circuit.plan import cycles
from upl_mlir.passes.circuit.prove import proofs
from upl_mlir.passes.lower_to_circuit import wish

REFUSES = ("UPL1205", "UPL1513", *(f"UPL{n}" for n in range(1820, 1830)), *(f"UPL{n}" for n in range(2001, 2006)))
"""Codes with which there may be no circuit: what data decide, what native code refuses, too, and UPL20xx."""
RUNS = 2


def circuit(case: Case) -> Counter[str]:
    """What happened, counted."""
    p = upl.load(case.text).infer_domains()
    lanes, share = 1 + case.seed % 4, case.seed % 8 > 5
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Amaranth, about hardware that is begun and then refused
            engine = CircuitEngine(p.expanded().module, case.params, wish(lanes, share=share))
    except upl.UplError as error:
        code = error.diagnostics[0].code
        if code not in REFUSES:
            raise Broken(f"circuit at {dict(case.params)}: {error}") from None
        del error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
        return Counter({f"circuit: refused {code}": 1})
    plan = engine.plan
    wrong = [str(x) for x in proofs(plan) if not x.holds]
    if wrong:
        raise Broken(f"circuit of {lanes} lanes at {dict(case.params)}: not proved: {wrong[0]}")
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


def _narrow(a: np.ndarray) -> np.ndarray:
    """Reals as f32; integers and truth values as they are."""
    return a.astype(np.float32) if a.dtype.kind == "f" else a
