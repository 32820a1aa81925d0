"""Elementary functions for `ordered` programs: the same calls of libm as the interpreter's, for the same bits.

The interpreter computes in f64 and rounds what is f32; so do these.  Nothing is inlined and nothing is replaced (LLVM would
turn pow(x, 2) into x·x, which is another number now and then): such programs do not vectorise their functions.
"""

from __future__ import annotations

from upl_mlir.engines.native.llvm.text import Code, float_text
from upl_mlir.ops.functions import TWO_ARGUMENTS


def definition(name: str, type_: str) -> tuple[str, dict[str, str]]:
    """The name to call for a function on `double` or `float`, and the texts that define or declare it, by key."""
    texts: dict[str, str] = {}
    if name == "sigmoid":
        full = _sigmoid(texts)
    elif name == "exp2":  # the interpreter's is pow(2, x)
        full = "@upl.exp2.ordered"
        code = Code()
        result = code.let(f"call double {_declared('pow', texts)}(double {float_text(2.0, 'double')}, double %x)")
        texts[full] = _function(full, "double", ["%x"], code, result)
    else:
        full = _declared(name, texts)
    return (full, texts) if type_ == "double" else _single(name, full, texts)


def _declared(name: str, texts: dict[str, str]) -> str:
    """A function of libm that LLVM takes for an unknown one."""
    args = ", ".join(["double"] * (2 if name in TWO_ARGUMENTS else 1))
    texts[f"@{name}"] = f"declare double @{name}({args}) #6"
    return f"@{name}"


def _single(name: str, full: str, texts: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The function on f32: computed in f64 and rounded."""
    own = f"@upl.{name}.ordered.f32"
    code = Code()
    names = ["%x", "%y"] if name in TWO_ARGUMENTS else ["%x"]
    wide = [code.let(f"fpext float {n} to double") for n in names]
    value = code.let(f"call double {full}({', '.join(f'double {w}' for w in wide)})")
    result = code.let(f"fptrunc double {value} to float")
    texts[own] = _function(own, "float", names, code, result)
    return own, texts


def _sigmoid(texts: dict[str, str]) -> str:
    """1/(1+e) for x ≥ 0 and e/(1+e) below, with e = exp(-|x|)."""
    full, code = "@upl.sigmoid.ordered", Code()
    minus = code.let(f"fneg double {code.let('call double @llvm.fabs.f64(double %x)')}")
    e = code.let(f"call double {_declared('exp', texts)}(double {minus})")
    one, zero = float_text(1.0, "double"), float_text(0.0, "double")
    positive = code.let(f"fcmp oge double %x, {zero}", "c")
    up = code.let(f"select i1 {positive}, double {one}, double {e}")
    result = code.let(f"fdiv double {up}, {code.let(f'fadd double {one}, {e}')}")
    texts[full] = _function(full, "double", ["%x"], code, result)
    return full


def _function(full: str, type_: str, names: list[str], code: Code, result: str) -> str:
    args = ", ".join(f"{type_} {n}" for n in names)
    return "\n".join([f"define internal {type_} {full}({args}) #1 {{", *code.lines, f"  ret {type_} {result}", "}"])
