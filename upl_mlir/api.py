"""The Python API: programs, their derivatives, and callables on every engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from upl_mlir.diagnostics import Sources, UplError, did_you_mean, error
from upl_mlir.dialects.upl import AdjointOp, InputOp, OutputOp, ParamOp, ProgramOp
from upl_mlir.dialects.upl.query import endpoints, program_of
from upl_mlir.passes.check import Report
from upl_mlir.pipeline import GRADIENT, TANGENT, passes_of, run, verify
from upl_mlir.ports import PortView, require_arrays

if TYPE_CHECKING:
    from upl_mlir.native.engine import NativeEngine

Array = NDArray[Any]
_MLIR_TEXT = re.compile(r'\s*(//[^\n]*\n\s*)*("?builtin\.module\b|"?upl\.program\b|#)')
"""How text of the dialect begins; no statement of UPL begins so."""
Value = int | float | Sequence[Any]
Bounds = int | str | tuple[int | str, int | str]


class Engine:
    """Names of the engines."""

    INTERP = "interp"
    TOKEN = "token"
    NATIVE = "native"
    RTL = "rtl"
    ALL = (INTERP, TOKEN, NATIVE, RTL)


class Program:
    """A UPL program.  Passes never change it: derivatives are new programs."""

    def __init__(self, module: ModuleOp, sources: Sources | None = None):
        self.module = module
        self.sources = sources or Sources()

    @property
    def op(self) -> ProgramOp:
        """The `upl.program` operation."""
        return program_of(self.module)

    @property
    def name(self) -> str:
        """The program's name."""
        return self.op.sym_name.data

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the open parameters."""
        return tuple(op.symbol for op in self.op.body.block.ops if isinstance(op, ParamOp))

    @property
    def inputs(self) -> dict[str, PortView]:
        """The host inputs, in text order."""
        return {n: PortView(self, n) for n, op in endpoints(self.op).items() if isinstance(op, InputOp)}

    @property
    def outputs(self) -> dict[str, PortView]:
        """The host outputs, in text order."""
        return {n: PortView(self, n) for n, op in endpoints(self.op).items() if isinstance(op, OutputOp)}

    @property
    def notes(self) -> tuple[str, ...]:
        """What transformations had to choose, in words, in order."""
        from upl_mlir.passes.notes import notes_of

        return notes_of(self.op)

    def infer_domains(self) -> Program:
        """Infer the domains in place, if they are not known yet; returns the program."""
        from upl_mlir.passes.infer_domains import domains_known, infer_domains

        if not domains_known(self.op):
            with self.errors():
                infer_domains(self.op)
        return self

    def check(self) -> Report:
        """Prove that no token strands and nothing deadlocks: LANGUAGE section 4."""
        from upl_mlir.passes.check import check

        with self.errors():
            return check(self.op)

    def clone(self) -> Program:
        """An independent copy."""
        return Program(self.module.clone(), self.sources)

    def expanded(self) -> Program:
        """The program with its `adjoint of` directives expanded; itself if it has none."""
        if not any(isinstance(op, AdjointOp) for op in self.op.body.block.ops):
            return self
        return _differentiated(self, None, ())

    def __repr__(self) -> str:
        given, made = (", ".join(map(repr, ports.values())) for ports in (self.inputs, self.outputs))
        return f"<program {self.name}({given}) -> ({made})>"

    def to_mlir(self) -> str:
        """The program as MLIR text."""
        return str(self.module)

    def __str__(self) -> str:
        from upl_mlir.frontend.upl_text.printer import print_program

        return print_program(self.op)

    def _repr_svg_(self) -> str | None:
        """The picture, for notebooks; None without the extra `draw`, so that the text is shown."""
        from upl_mlir.drawing import shown

        return shown(self)

    def errors(self) -> _WithSources:
        """A context in which errors learn the program's text, so that they can show the line."""
        return _WithSources(self.sources)


@dataclass(frozen=True)
class _WithSources:
    sources: Sources

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, found: BaseException | None, _traceback: object) -> None:
        if isinstance(found, UplError):
            for file, text in self.sources.texts.items():
                found.sources.texts.setdefault(file, text)


def load(source: str | Path, **overrides: Value) -> Program:
    """A program from a `.upl` or `.mlir` file, or from such text.

    `overrides` replace constants (``K=3``, ``N=[64, 32, 10]``) and bind parameters.  Raises UplError.
    """
    text = str(source)
    if isinstance(source, Path) or not any(c in text for c in "\n{"):
        path = Path(text)
        if path.suffix == ".mlir":
            return _parse_mlir(_read(path), str(path), overrides)
        from upl_mlir.frontend.upl_text.load import load_file

        module = load_file(path, cast(Any, overrides))
        sources = Sources({str(path): path.read_text(encoding="utf-8")})
    elif _MLIR_TEXT.match(text):
        return _parse_mlir(text, "<string>", overrides)
    else:
        from upl_mlir.frontend.upl_text.load import load_text

        module = load_text(text, "<string>", cast(Any, overrides))
        sources = Sources({"<string>": text})
    return Program(module, sources)


def ragged(array: Array, port: PortView, field: str, **params: int) -> list[Array]:
    """A dense array over a port's box as a list along `field`, each slice dense over its own bounding box.

        f = upl.compile(g)
        d_W = upl.ragged(f(X=x, W=[w1, w2], d_R=r)["d_W"], g.outputs["d_W"], "k")       # [d_w1, d_w2]

    The inverse of passing such a list.  Parameters follow from the array's shape or are given.  Raises UplError (UPL1502,
    UPL1503, UPL1505).
    """
    return port.slices(array, field, **params)


def _read(path: Path) -> str:
    from upl_mlir.mlir_text import decode

    try:
        return decode(path.read_bytes(), str(path))
    except OSError as e:
        raise error("UPL1001", f"cannot read {path}: {e.strerror}") from None


def _parse_mlir(text: str, name: str, overrides: Mapping[str, Value]) -> Program:
    from upl_mlir.mlir_text import read_module
    from upl_mlir.pipeline import new_context

    module = read_module(text, name, new_context())
    verify(module)
    if overrides:
        from upl_mlir.passes.bind_parameters import bind_definitions

        bind_definitions(program_of(module), overrides)
    return Program(module, Sources({name: text}))


def _names(ports: str | Sequence[str]) -> tuple[str, ...]:
    return (ports,) if isinstance(ports, str) else tuple(ports)


def _differentiated(p: Program, of: str | None, wrt: Sequence[str]) -> Program:
    out = p.clone()
    with p.errors():
        run(out.module, passes_of(GRADIENT, {"autodiff": {"of": of, "wrt": tuple(wrt)}}))
    return out


def vjp(p: Program, of: str, wrt: str | Sequence[str]) -> Program:
    """The program with derivatives added: an extra input ``d_R`` (domain of `of`), an extra output ``d_W`` for each `wrt`.

    All outputs of `p` are kept.  Source: AUTODIFF rules 1–10.  Raises UplError (UPL14xx).
    """
    return _differentiated(p, of, _names(wrt))


def grad(p: Program, of: str, wrt: str | Sequence[str]) -> Program:
    """As `vjp` for an output with one instance: no seed input.  Raises UplError (UPL1406) if `of` has index fields."""
    op = endpoints(p.op).get(of.partition(".")[0])
    if op is not None and op.fields:
        raise error(
            "UPL1406", f"`{of}` has index fields <{','.join(op.fields)}>: a gradient is of one number",
            help=f"use vjp, which adds an input d_{of.replace('.', '_')} to weight its elements",
        )  # fmt: skip
    return _differentiated(p, of, _names(wrt))


def jvp(p: Program, of: str, wrt: str | Sequence[str]) -> Program:
    """The program with tangents added: an extra input ``t_W`` for each `wrt` and an extra output ``t_R``, the derivative
    of `of` along them.  Source: AUTODIFF section 4.  Raises UplError (UPL14xx).
    """
    return _with_tangent(p.expanded(), (of,), _names(wrt))


def _with_tangent(p: Program, of: tuple[str, ...], wrt: tuple[str, ...]) -> Program:
    out = p.clone()
    with p.errors():
        run(out.module, passes_of(TANGENT, {"tangent": {"of": of, "wrt": wrt}}))
    return out


def hvp(p: Program, of: str, wrt: str | Sequence[str]) -> Program:
    """Hessian times vector, forward over reverse: for each `wrt` an extra input ``t_W`` (the vector) and output ``t_d_W``.

    `of` has one instance.  Raises UplError (UPL14xx).
    """
    names = _names(wrt)
    return _with_tangent(grad(p, of, names), tuple(f"d_{n.replace('.', '_')}" for n in names), names)


def batch(p: Program, ports: str | Sequence[str], field: str, bounds: Bounds | None = None) -> Program:
    """The program for many values of some inputs at once (vmap): the host inputs in `ports`, and all that depends on
    them, get the index field `field` in front; everything else is computed once.

    `bounds` says which values the field takes: a number or name ``n`` means 0..n-1, a pair (lo, hi) both ends, each an
    integer or an expression of parameters and constants; by default 0..B-1 with a new parameter ``B``.  A port may also be
    ``NODE.input``.  Source: AUTODIFF section 4.  Raises UplError (UPL1420).
    """
    from upl_mlir.passes.batch import BatchPass

    lo, hi = bounds if isinstance(bounds, tuple) else (0, bounds)
    if hi is not None and not isinstance(bounds, tuple):
        hi = hi - 1 if isinstance(hi, int) else f"({hi})-1"
    out = p.expanded().clone()
    with p.errors():
        run(out.module, [BatchPass(ports=_names(ports), field=field, lo=lo, hi=hi)])
    return out


def checkpoint(g: Program, along: str, every: int | str | None = None, snapshots: int | None = None) -> Program:
    """A gradient program that keeps only some steps of its loop along the field `along`, and fires the forward nodes
    between again when the adjoint comes back: fewer waiting tokens for more firings; `notes` says how many.

    `every` keeps each so-many-th step (a number, or the name of an integer constant); `snapshots` keeps at most that many
    steps at a time, by the schedule of fewest firings, where the number of steps is known.  Results are those of `g`, bit
    for bit in ordered mode where no sum mixes tokens from inside and outside the loop.  Source: AUTODIFF section 4.
    Raises UplError (UPL143x).
    """
    from upl_mlir.passes.checkpoint import CheckpointPass

    out = g.expanded().clone()
    with g.errors():
        run(out.module, [CheckpointPass(along=along, every=every, snapshots=snapshots)])
    return out


class Compiled:
    """A program ready to run on an engine.  Call it with arrays by input name; parameters follow from them or are given."""

    def __init__(
        self,
        program: Program,
        *,
        engine: str,
        real: str | None,
        gather: str,
        order: str,
        seed: int,
        machine: str | Path | None,
        params: Mapping[str, int],
        threads: int = 1,
    ):
        self.program = program
        self.engine = engine
        self.real = real or ("f32" if engine == Engine.RTL else "f64")
        self.gather = gather
        self.order = order
        self.seed = seed
        self.machine = machine
        self.given = dict(params)
        self._stats: dict[str, Any] = {}
        self._built: dict[tuple[tuple[str, int], ...], Any] = {}
        self._params = frozenset(program.params)
        self.scalar: Callable[..., tuple[Any, ...]] = self._by_call
        """For programs whose ports have no fields: numbers in text order in, numbers out."""
        self._native: NativeEngine | None = None
        if engine == Engine.NATIVE:
            from upl_mlir.native.engine import NativeEngine

            with program.errors():
                self._native = NativeEngine(program.op, real=self.real, gather=gather, threads=threads, given=self.given)
            if not self._params and not any(v.fields for v in (*program.inputs.values(), *program.outputs.values())):
                self.scalar = self._native.scalar()

    @property
    def stats(self) -> dict[str, Any]:
        """Figures of the last run, as ``stats.json`` has them."""
        return self._stats if self._native is None else self._native.stats().to_dict()

    def __call__(self, *, out: Any = None, **arrays: Any) -> dict[str, Array]:
        """Run once; returns the outputs as dense numpy arrays.  Raises UplError (UPL15xx, UPL16xx, UPL17xx).

        `out` are arrays by output name that the results go to (of the right shape and type); the same arrays are returned.
        """
        given = self.given
        if self._params and not self._params.isdisjoint(arrays):
            given = given | {n: arrays.pop(n) for n in list(arrays) if n in self._params}
        if self._native is not None:
            try:
                return self._native(arrays, given, out)
            except UplError:
                with self.program.errors():  # not before, as a call may take a microsecond
                    raise
        found = self._interpreted(given, arrays)
        for name, into in cast("dict[str, Any]", out or {}).items():
            if name not in found or into.shape != found[name].shape or into.dtype != found[name].dtype:
                raise error("UPL1503", f"out[{name!r}] is not of the shape and type of an output")
            into[...] = found[name]
            found[name] = into
        return found

    def _interpreted(self, given: Mapping[str, int], arrays: dict[str, Any]) -> dict[str, Array]:
        from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports

        op = self.program.op
        with self.program.errors():
            bound = bind_parameters(op, arrays, given)
            ports = host_ports(op, bound, np.dtype(np.float32 if self.real == "f32" else np.float64))
            dense = bind_arrays(op, ports, arrays)
            outputs, self._stats = self._run(bound, dense)
        return outputs

    def _by_call(self, *values: float) -> tuple[Any, ...]:
        """`scalar` by way of arrays."""
        names = list(self.program.inputs)
        if any(v.fields for v in (*self.program.inputs.values(), *self.program.outputs.values())):
            raise error("UPL1503", "scalar() is for programs whose ports have no index fields")
        if len(values) != len(names):
            raise error("UPL1501", f"scalar() takes {len(names)} numbers ({', '.join(names)}), {len(values)} given")
        out = self(**dict(zip(names, values, strict=True)))
        return tuple(out[n].item() for n in self.program.outputs)

    def _run(self, bound: dict[str, int], dense: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Any]]:
        key = tuple(sorted(bound.items()))
        if self.engine == Engine.RTL:
            from upl_mlir.hw.engine import RtlEngine

            if key not in self._built:
                self._built[key] = RtlEngine(self.program.module, bound, machine=self.machine)
        elif key not in self._built:
            if self.engine == Engine.TOKEN:
                from upl_mlir.token.engine import TokenEngine as Build
            else:
                from upl_mlir.interp.engine import Engine as Build

            self._built[key] = Build(
                self.program.op, bound, real=cast(Any, self.real), gather=cast(Any, self.gather),
                order=cast(Any, self.order), seed=self.seed,
            )  # fmt: skip
        result = self._built[key].run(dense)
        return result.outputs, result.stats.to_dict()


def compile(
    p: Program,
    engine: Literal["interp", "token", "native", "rtl"] = "interp",
    *,
    real: Literal["f32", "f64"] | None = None,
    gather: Literal["relaxed", "ordered"] = "relaxed",
    order: Literal["fifo", "random"] = "fifo",
    seed: int = 0,
    machine: str | Path | None = None,
    threads: int = 1,
    **params: int,
) -> Compiled:
    """A callable for a program on an engine; `adjoint of` directives are expanded, domains inferred.

    `real` is what the type `real` means (f64 on the interpreter, f32 on hardware), `gather` how sums are folded, `order`
    and `seed` the arrival order of tokens, `machine` a machine description for the engine "rtl", `threads` how many threads
    the engine "native" may use; `params` bind parameters.
    """
    if engine not in Engine.ALL:
        raise error(
            "UPL1802", f"there is no engine `{engine}`", help=did_you_mean(engine, Engine.ALL) or f"one of {Engine.ALL}"
        )
    for what, value, allowed in (
        ("real", real, (None, "f32", "f64")),
        ("gather", gather, ("relaxed", "ordered")),
        ("order", order, ("fifo", "random")),
    ):
        if value not in allowed:
            raise error("UPL1802", f"{what}={value!r}: expected one of {', '.join(map(str, allowed))}")
    if engine == Engine.RTL and real == "f64":
        raise error("UPL1733", "the machine computes in f32", help="compare with the interpreter under --real f32")
    if engine == Engine.RTL and gather == "ordered":
        raise error("UPL1733", "the machine adds summands in arrival order", help="use gather=relaxed")
    program = p.expanded().infer_domains()
    require_arrays(program.op)
    return Compiled(
        program,
        engine=engine,
        real=real,
        gather=gather,
        order=order,
        seed=seed,
        machine=machine,
        params=params,
        threads=threads,
    )
