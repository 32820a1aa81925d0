"""The trace of a Hessian without the Hessian: Hutchinson's estimate, for multidimensional scaling.

For a vector v of independent signs, the mean of v'Hv is the trace of H.  One program, the Hessian times a vector of
`examples/mds.upl`, is batched over the probes: the points, their distances and the gradient are computed once for all.

    python examples/hutchinson.py [PROBES]

Source: M. F. Hutchinson, "A stochastic estimator of the trace of the influence matrix for Laplacian smoothing splines",
Communications in Statistics 19 (1990).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import upl_mlir as upl

Array = NDArray[Any]
PROGRAM = Path(__file__).parent / "mds.upl"


def products(p: upl.Program, of: str, wrt: str) -> upl.Program:
    """The program that multiplies the Hessian of `of` by many vectors ``t_W`` at once: their first field is `probe`."""
    return upl.batch(upl.hvp(p, of=of, wrt=wrt), f"t_{wrt}", "probe")


def estimates(h: upl.Program, wrt: str, inputs: dict[str, Any], probes: Array) -> Array:
    """v'Hv for each probe v; `probes` has the shape of `wrt` with the number of the probe in front."""
    out = upl.compile(h)(**inputs, **{f"t_{wrt}": probes})[f"t_d_{wrt}"]
    return np.sum(probes * out, axis=tuple(range(1, probes.ndim)))


def main(count: int) -> None:
    """Print the estimate after more and more probes, next to the trace of the whole Hessian."""
    random = np.random.default_rng(1990)
    points = random.normal(size=(6, 2))
    wanted = 1 + random.random((5, 5))  # D<i,j> for i < j: the box of 0..4 times 1..5, of which a half is read
    p = upl.load(PROGRAM)
    inputs = {"X": points, "D": wanted}
    values = estimates(products(p, "Stress", "X"), "X", inputs, random.choice([-1.0, 1.0], (count, *points.shape)))
    hessian = upl.compile(upl.hessian(p, of="Stress", wrt="X"))(**inputs)["H_X_X"].reshape(points.size, points.size)
    for n in sorted({min(count, 4**k) for k in range(1, 12)}):
        error = np.std(values[:n]) / np.sqrt(n)
        print(f"{n:5d} probes: {np.mean(values[:n]):9.4f} +- {error:.4f}")
    print(f"the trace:    {np.trace(hessian):9.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 256)
