"""A program made to blow up isl's sets is refused in time and memory that one can wait for, and the user can allow more."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from upl_mlir.poly.counts.quota import DEFAULT_OPERATIONS

UPL = str(Path(sys.executable).with_name("upl"))


def program(inputs: int) -> str:
    """Arrows under conditions with many moduli: their intersections fall into a number of pieces that grows by powers."""
    primes = [7, 11, 13, 17, 19, 23, 29, 31]
    others = [5, 3, 7, 9, 11, 13, 17, 19]
    arrows = "".join(
        f"  if ({2 * q + 1}*i + {3 * q + 2}*j + k) mod {primes[q]} != {q} && ({q + 1}*j - k) mod {others[q]} != 1: "
        f"X -> A.x{q}<j,k,i>\n"
        for q in range(inputs)
    )
    names = ", ".join(f"x{q}" for q in range(inputs))
    return (
        f"program blow\nparam n >= 1\ninput X<i,j,k> in 0<=i<n, 0<=j<n, 0<=k<=i+j {{\n{arrows}}}\noutput Y<i,j,k>\n"
        f"node A<i,j,k> {{ in {names}; x0 -> Y }}\n"
    )


def scattered(arrows: int) -> str:
    """One node that many arrows reach, each at other remainders: one call to subtract their union would not come back."""
    sends = "".join(
        f"  if (i*{k + 2}+j) mod {k + 3} == {k % 3} || (i+j*{k + 1}) mod {2 * k + 5} != 0: X -> A.x<i+{k},j*{k + 1}>\n"
        for k in range(arrows)
    )
    return (
        f"program scattered\nparam n >= 1\ninput X<i,j> in 0<=i<n, 0<=j<n {{\n{sends}}}\noutput R<i,j>\n"
        "node A<i,j> { in x; x -> R }\n"
    )


TEXTS = {"operations": program(3), "pieces": program(8), "calls that count little": scattered(60)}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_too_complex_is_said_in_time(text: str, tmp_path: Path) -> None:
    """Operations run out, or pieces are too many; in time even where isl counts little."""
    path = tmp_path / "blow.upl"
    path.write_text(text, encoding="utf-8")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    done = subprocess.run(
        [UPL, "check", str(path)], capture_output=True, text=True, timeout=60, check=False, preexec_fn=limit
    )
    assert done.returncode == 1
    assert "error[UPL1205]: too complex: " in done.stderr
    assert f"UPL_MAX_OPERATIONS={10 * DEFAULT_OPERATIONS}" in done.stderr
    assert "Traceback" not in done.stderr


def test_more_can_be_allowed(tmp_path: Path) -> None:
    path = tmp_path / "two.upl"
    path.write_text(program(1), encoding="utf-8")
    command = [UPL, "check", str(path)]
    few = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "UPL_MAX_OPERATIONS": "2000"}
    )
    assert "error[UPL1205]" in few.stderr
    more = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "UPL1205" not in more.stderr
