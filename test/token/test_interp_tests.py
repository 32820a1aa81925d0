"""x"""
import importlib.util, sys
from pathlib import Path
HERE = Path(__file__).resolve().parents[1] / "interp"
from upl_mlir.token.engine import TokenEngine
def load(name):
    spec = importlib.util.spec_from_file_location(f"token_{name}", HERE / f"{name}.py")
    m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
    return m
c = load("conftest")
ir, rng = c.ir, c.rng
for n in ("test_errors","test_gathers","test_matching","test_values","test_perceptron"):
    m = load(n)
    if hasattr(m, "Engine"): m.Engine = TokenEngine
    globals().update({f"{k}__{n}": f for k, f in vars(m).items() if k.startswith("test_")})
