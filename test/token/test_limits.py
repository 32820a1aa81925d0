"""What the token engine has of its own: packed tags, the compiler, interruption, memory."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.token import engine as token_engine
from upl_mlir.engines.token import library
from upl_mlir.engines.token.engine import Fault, TokenEngine
from upl_mlir.engines.token.tags import make_tags

CHAIN = """program chain
param n >= 1
input X { -> M.x<0> }
output R
node M<i> { in x; if i<n: x+1 -> M.x<i+1>; if i==n: x -> R }
"""


def test_faults_are_numbered_alike():
    text = (Path(library.__file__).parent / "runtime.h").read_text()
    found = re.search(r"enum Fault : i64 \{(.*?)\}", text)
    assert found
    assert [n.strip().rstrip("_") for n in found.group(1).split(",")] == [f.name for f in Fault]


@pytest.mark.parametrize("far", [10**6, 10**9, 10**15])
def test_a_token_far_outside_the_domain_is_what_it_is_on_the_interpreter(agree, far):
    p = upl.load(f"""program p
input A<i> in 0<=i<3 {{ -> M.a<i> }}
input B<i> in 0<=i<3 {{ -> M.b<i*{far}> }}
output R<i>
node M<i> in 0<=i<3 {{ in a, b; a*b -> R }}
""")
    found = agree(p, {"A": np.ones(3), "B": np.ones(3)})
    assert isinstance(found, str) and "UPL1601" in found and str(2 * far) in found


def test_indices_of_128_bits(agree):
    """Fields of 17, 20, 27, 17 and 4 bits."""
    p = upl.load("""program p
input A<i>: int in 0<=i<4 { -> M.x<A,A*7,A*A,-A,3> }
input B<i>: int in 0<=i<4 { -> M.y<B,B*7,B*B,-B,3> }
output R<i>: int in 0<=i<4
node M<a,b,c,d,e> in 0<=a<100000, 0<=b<1000000, 0<=c<100000000, -100000<=d<=0, 0<=e<9 {
  in x: int, y: int
  x*y + b + c*d -> R<a-1000>
}
""")
    values = np.arange(1000, 1004)
    result = agree(p, {"A": values, "B": values[::-1].copy()})
    assert make_tags(TokenEngine(p.expanded().infer_domains().op).plan).width == 128
    assert result.outputs["R"].tolist() == [x * x + 7 * x - x**3 for x in values.tolist()]


def test_a_loop_ends_at_the_greatest_integer():
    """It went on for ever."""
    low, high = 2**63 - 3, 2**63 - 1
    text = "program ends\ninput N: int { -> A.n }\n"
    text += f"output Y<j>: int in {low}<=j<={high}\n"
    text += f"node A {{ in n: int; n -> Y<j> for j in {low}..{high} }}\n"
    for engine in ("interp", "token"):
        assert upl.compile(upl.load(text), engine=engine)(N=3)["Y"].tolist() == [3, 3, 3]


def test_an_index_beyond_all_bits_is_an_error():
    p = upl.load("""program p
input A: int { -> M.x<A> }
output R
node M<a> in 0<=a<9 { in x: int; if a<5: 1.0 -> R }
""")
    with pytest.raises(upl.UplError, match=r"UPL1608.*index computed in `A<>`"):
        upl.compile(p, "token")(A=2**62)


def test_without_a_compiler_it_says_so(monkeypatch):
    p = upl.load(CHAIN)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(upl.UplError, match=r"UPL1609.*needs a C\+\+ compiler") as e:
        upl.compile(p, "token")(X=1.0, n=3)
    assert "CXX" in str(e.value)


def test_a_compiler_that_fails_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(upl.UplError, match=r"UPL1609.*false failed"):
        upl.compile(upl.load(CHAIN), "token")(X=1.0, n=4)


def test_the_cache_is_used_and_repaired(own_cache, monkeypatch):
    p = upl.load(CHAIN)
    run = lambda: upl.compile(p, "token")(X=1.0, n=5)["R"]  # noqa: E731
    before = set(own_cache.glob("token-*"))
    assert run() == 6.0
    (new,) = set(own_cache.glob("token-*")) - before
    with monkeypatch.context() as patch:  # no compiler is run for what is kept
        patch.setattr("subprocess.run", lambda *_args, **_kwargs: pytest.fail("compiled again"))
        assert run() == 6.0
    data = new.read_bytes()
    new.unlink()  # never written in place: the library is in use
    new.write_bytes(data[: len(data) // 2])
    assert run() == 6.0 and new.stat().st_size > len(data) // 2


def test_a_run_that_never_ends_can_be_interrupted():
    """Ctrl-C reaches Python between two slices of a run."""
    code = f"""
import numpy as np
import upl_mlir as upl
from upl_mlir.engines.token.engine import TokenEngine
engine = TokenEngine(upl.load({CHAIN!r}).infer_domains().op, {{"n": 10**12}}, max_firings=10**15)
print("go", flush=True)
engine.run({{"X": np.array(1.0)}})
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "go\n"
    time.sleep(1)  # it runs
    child.send_signal(signal.SIGINT)
    try:
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()  # else it would run for ever
    assert child.returncode != 0 and "KeyboardInterrupt" in errors


def test_tokens_that_do_not_fit_the_memory_are_an_error(monkeypatch):
    p = upl.load("""program flood
param n >= 1
input X<i> in 0<=i<n { -> M.x<i> }
input Y { -> M.y<0> }
output R
node M<i> in 0<=i<1 { in x, y; x*y -> R }
""")
    monkeypatch.setattr(token_engine.os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 1000)
    with pytest.raises(upl.UplError, match=r"UPL1020.*out of memory"):
        upl.compile(p, "token")(X=np.ones(10**6), Y=1.0)


def test_several_threads_run_one_engine():
    p = upl.load(CHAIN).infer_domains()
    engine = TokenEngine(p.op, {"n": 200_000})
    found = []
    threads = [
        threading.Thread(target=lambda x=x: found.append((x, engine.run({"X": np.array(float(x))}).outputs["R"][()])))
        for x in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [(x, x + 200_000.0) for x in range(4)]
