"""The Python API: programs, their derivatives, and callables on every engine."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from upl_mlir.api.engines import ENGINES
from upl_mlir.api.origin import key_of_text
from upl_mlir.api.ports import PortView, require_arrays
from upl_mlir.api.program import Program, differentiated, made_or_known
from upl_mlir.diagnostics import Sources, decode, error, nearest_or_all, read_bytes
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import endpoints, program_of, require_determined
from upl_mlir.dialects.verifying import verify
from upl_mlir.engines.names import SIMULATORS, EngineName
from upl_mlir.engines.protocol import Runner, Setting
from upl_mlir.host.collector import rarely_collecting
from upl_mlir.passes.pipelines import TANGENT
from upl_mlir.pipeline import passes_of

if TYPE_CHECKING:
    from upl_mlir.api.engines import AllSizes
    from upl_mlir.engines.rtl.engine import RtlEngine
    from upl_mlir.host.arrays import HostPort

Array = NDArray[Any]
_MLIR_TEXT = re.compile(r'\s*(//[^\n]*\n\s*)*("?builtin\.module\b|"?(upl|ttm)\.program\b|#)')
"""How text of the dialects begins; no statement of UPL begins so."""
Value = int | float | Sequence[Any]
Bounds = int | str | tuple[int | str, int | str]


def load(source: str | Path, /, **overrides: Value) -> Program:
    """A program from a `.upl` or `.mlir` file, or from such text.

    `overrides` replace constants (``K=3``, ``N=[64, 32, 10]``) and bind parameters.  Raises UplError.
    """
    text = str(source)
    if isinstance(source, Path) or not any(c in text for c in "\n{"):
        path = Path(text)
        if path.suffix == ".mlir":
            return _parse_mlir(_read(path), str(path), overrides)
        from upl_mlir.frontend.upl_text.parser import read_file

        return _of_upl(read_file(path), str(path), overrides)
    return of_text(text, "<string>", overrides)


def of_text(text: str, name: str, overrides: Mapping[str, Value]) -> Program:
    """A program from text, of which messages say that it is from `name`.  Raises UplError."""
    return (_parse_mlir if _MLIR_TEXT.match(text) else _of_upl)(text, name, overrides)


def _of_upl(text: str, name: str, overrides: Mapping[str, Value]) -> Program:
    def made() -> ModuleOp:
        from upl_mlir.frontend.upl_text.load import load_text

        return load_text(text, name, cast(Any, overrides))

    key = key_of_text("text", text, name, overrides)
    sources = Sources({name: text})
    return Program(made(), sources) if key is None else made_or_known(key, None, sources, now=made, again=made)


def ragged(array: Array, port: PortView, field: str, /, **params: int) -> list[Array]:
    """A dense array over a port's box as a list along `field`, each slice dense over its own bounding box.

        f = upl.compile(g)
        d_W = upl.ragged(f(X=x, W=[w1, w2], d_R=r)["d_W"], g.outputs["d_W"], "k")       # [d_w1, d_w2]

    The inverse of passing such a list.  Parameters follow from the array's shape or are given.  Raises UplError (UPL1502,
    UPL1503, UPL1505).
    """
    return port.slices(array, field, **params)


def _read(path: Path) -> str:
    return decode(read_bytes(path), str(path))


def _parse_mlir(text: str, name: str, overrides: Mapping[str, Value]) -> Program:
    from upl_mlir.api.mlir_text import read_module
    from upl_mlir.pipeline import new_context

    module = read_module(text, name, new_context())
    program = Program(module, Sources({name: text}))
    with program.errors():
        verify(module)
        if overrides:
            from upl_mlir.passes.bind_parameters import bind_definitions

            bind_definitions(program_of(module), overrides)
    return program


def _names(ports: str | Sequence[str]) -> tuple[str, ...]:
    return (ports,) if isinstance(ports, str) else tuple(ports)


def vjp(p: Program, of: str, wrt: str | Sequence[str], *, total: bool = False) -> Program:
    """The program with derivatives added: an extra input ``d_R`` (domain of `of`; one number where `of` is one), an extra
    output ``d_W`` for each `wrt`.

    All outputs of `p` are kept.  Where node inputs of `wrt` depend on each other, each derivative holds the others fixed,
    and `notes` says so; `total` derivatives are those along all paths: the whole backward table in one pass.  Source:
    AUTODIFF rules 1–10.  Raises UplError (UPL14xx).
    """
    return differentiated(p, of, _names(wrt), unit=False, total=total)


def grad(p: Program, of: str, wrt: str | Sequence[str], *, total: bool = False) -> Program:
    """As `vjp` for an output with one instance, without the extra input: the derivative of `of` itself.

    Raises UplError (UPL1406) if `of` has index fields.
    """
    if fields := _fields(p, of):
        raise error(
            "UPL1406", f"`{of}` has index fields <{','.join(fields)}>: a gradient is of one number",
            help=f"use vjp, which adds an input d_{of.replace('.', '_')} to weight its elements",
        )  # fmt: skip
    return differentiated(p, of, _names(wrt), unit=True, total=total)


def reverse(p: Program, of: str, wrt: str | Sequence[str], *, total: bool = False) -> Program:
    """`grad` where `of` is one number, else `vjp`: what the tools show as the derivative."""
    return differentiated(p, of, _names(wrt), unit=True, total=total)


def _fields(p: Program, of: str) -> tuple[str, ...]:
    """The index fields of a host output, or of the node of ``NODE.input``."""
    name = of.partition(".")[0]
    if name in p.facts.outputs:
        return p.facts.outputs[name]
    op = endpoints(p.expanded().read()).get(name)
    return () if op is None else op.fields


def jvp(p: Program, of: str, wrt: str | Sequence[str], *, total: bool = False) -> Program:
    """The program with tangents added: an extra input ``t_W`` for each `wrt` and an extra output ``t_R``, the derivative
    of `of` along them.  With `total`, ``t_W`` of a node input is added to the tangent that comes to it, and not in its place
    (the transpose of `vjp` with `total`).  Source: AUTODIFF section 4.  Raises UplError (UPL14xx).
    """
    return _with_tangent(p, (of,), _names(wrt), total)


def _with_tangent(p: Program, of: tuple[str, ...], wrt: tuple[str, ...], total: bool = False) -> Program:
    return p.derived(
        ("tangent", repr((of, total)), *wrt),
        lambda: passes_of(TANGENT, {"tangent": {"of": of, "wrt": wrt, "total": total}}),
    )


def hvp(p: Program, of: str, wrt: str | Sequence[str]) -> Program:
    """Hessian times vector, forward over reverse: for each `wrt` an extra input ``t_W`` (the vector) and output ``t_d_W``.

    `of` has one instance.  Raises UplError (UPL14xx).
    """
    names = _names(wrt)
    g = grad(p, of, names)
    return _with_tangent(g, added(p.expanded().outputs, g.outputs), names)


def added(before: Iterable[str], after: Iterable[str]) -> tuple[str, ...]:
    """The ports that a derivative has added to those of its program (expanded), in the order of what it was asked."""
    old = set(before)
    return tuple(n for n in after if n not in old)


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
    step = BatchPass(ports=_names(ports), field=field, lo=lo, hi=hi)
    return p.derived(("batch", repr((_names(ports), field, lo, hi))), lambda: [step])


def checkpoint(g: Program, along: str, every: int | str | None = None, snapshots: int | None = None) -> Program:
    """A gradient program that keeps only some steps of its loop along the field `along`, and fires the forward nodes
    between again when the adjoint comes back: fewer waiting tokens for more firings; `notes` says how many.

    `every` keeps each so-many-th step (a number, or the name of an integer constant); `snapshots` keeps at most that many
    steps at a time, by the schedule of fewest firings, where the number of steps is known.  Results are those of `g`, bit
    for bit in ordered mode where no sum mixes tokens from inside and outside the loop.  Source: AUTODIFF section 4.
    Raises UplError (UPL143x).
    """
    from upl_mlir.passes.checkpoint.checkpoint import CheckpointPass

    step = CheckpointPass(along=along, every=every, snapshots=snapshots)
    return g.derived(("checkpoint", repr((along, every, snapshots))), lambda: [step])


class Compiled:
    """A program ready to run on an engine.  Call it with arrays by input name; parameters follow from them or are given."""

    def __init__(self, program: Program, *, engine: EngineName, setting: Setting, given: Mapping[str, int]):
        self.program = program
        self.engine = engine
        self.setting = setting
        self.given = dict(given)
        self._row = ENGINES[engine]
        self._stats: dict[str, Any] = {}
        self._built: dict[tuple[tuple[str, int], ...], Runner] = {}
        self._ports: dict[tuple[tuple[str, int], ...], dict[str, HostPort]] = {}
        self._params = frozenset(program.params)
        self.inputs = frozenset(program.inputs)
        """Names of the inputs."""
        self._takes_out = "out" in self.inputs
        self.scalar: Callable[..., tuple[Any, ...]] = self._by_call
        """For programs whose ports have no fields: numbers in text order in, numbers out."""
        self._native: AllSizes | None = None
        if self._row.all_sizes is not None:
            with program.errors():
                self._native = self._row.all_sizes(program, self.given, setting)
            if not self._params and not any(v.fields for v in (*program.inputs.values(), *program.outputs.values())):
                self.scalar = self._native.scalar()

    @property
    def stats(self) -> dict[str, Any]:
        """Figures of the last run, as ``stats.json`` has them."""
        return self._stats if self._native is None else self._native.stats().to_dict()

    def __call__(self, /, *, out: Any = None, **arrays: Any) -> dict[str, Array]:
        """Run once; returns the outputs as dense numpy arrays.  Raises UplError (UPL15xx, UPL16xx, UPL17xx).

        `out` are arrays by output name that the results go to (of the right shape and type); the same arrays are returned.
        In a program with an input of that name it is that input.
        """
        native = self._native
        if self._takes_out and out is not None:
            arrays["out"], out = out, None
        if native is not None and (last := native.last) is not None and last.given == self.given:
            results = last.run(arrays, out)  # most calls are like the last one, and may take microseconds
            if type(results) is dict:
                return results
        if out is not None and not isinstance(out, Mapping):
            message = f"`out` is {type(cast(object, out)).__name__}: expected arrays by output name"
            raise error("UPL1503", message, help="out={'Y': y}")
        given = self.given
        if self._params and not self._params.isdisjoint(arrays):
            given = given | {n: arrays.pop(n) for n in list(arrays) if n in self._params}
        if native is not None:
            with self.program.errors():
                return native(arrays, given, cast("Mapping[str, Any] | None", out))
        return _written(self._interpreted(given, arrays), cast("Mapping[str, Any]", out or {}))

    def whole(self, arguments: Any, constants: Mapping[str, Array], result: Any) -> Callable[[tuple[Any, ...]], Any] | None:
        """Calls like the last one as one function, from a tuple of arguments to a result: see
        `engines.native.call.whole_call`.  None where there is none."""
        last = None if self._native is None else self._native.last
        return None if last is None or last.given != self.given else last.whole(arguments, constants, result)

    def _interpreted(self, given: Mapping[str, int], arrays: dict[str, Any]) -> dict[str, Array]:
        from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports

        with self.program.errors():
            if self.program.lowered:
                machine = self._runner(given)
                result = machine.run(cast("RtlEngine", machine).bind(arrays))
            else:
                op = self.program.read()
                bound = bind_parameters(op, arrays, given)
                key = tuple(sorted(bound.items()))
                if key not in self._ports:
                    real = np.dtype(np.float32 if self.setting.real == "f32" else np.float64)
                    self._ports[key] = host_ports(op, bound, real)
                result = self._runner(bound).run(bind_arrays(op, self._ports[key], arrays))
        self._stats = result.stats.to_dict()
        return result.outputs

    def _by_call(self, *values: float) -> tuple[Any, ...]:
        """`scalar` by way of arrays."""
        names = list(self.program.inputs)
        if any(v.fields for v in (*self.program.inputs.values(), *self.program.outputs.values())):
            raise error("UPL1503", "scalar() is for programs whose ports have no index fields")
        if len(values) != len(names):
            raise error("UPL1501", f"scalar() takes {len(names)} numbers ({', '.join(names)}), {len(values)} given")
        out = self(**dict(zip(names, values, strict=True)))
        return tuple(out[n].item() for n in self.program.outputs)

    def __repr__(self) -> str:
        return f"<{self.program.name} on the engine {self.engine}>"

    def _repr_html_(self) -> str:
        """For notebooks: the engine, what goes in and comes out, the figures of the last run."""
        from upl_mlir.api.displays import of_compiled

        return of_compiled(self.program, str(self.engine), self.given, self._stats if self._native is None else self.stats)

    def _runner(self, bound: Mapping[str, int]) -> Runner:
        """The program with its sizes on the engine."""
        key = tuple(sorted(bound.items()))
        if key not in self._built:
            assert self._row.build is not None
            self._built[key] = self._row.build(self.program, bound, self.setting)
        return self._built[key]


def _written(found: dict[str, Array], out: Mapping[str, Any]) -> dict[str, Array]:
    """The results, of which some go to arrays of the caller's.  Raises UplError (UPL1502, UPL1503)."""
    for name, into in out.items():
        if name not in found:
            raise error("UPL1502", f"out[{name!r}]: there is no such output", help=nearest_or_all(str(name), found))
        if type(into) is not np.ndarray or into.shape != found[name].shape or into.dtype != found[name].dtype:
            wanted = f"expected an array of shape {found[name].shape} and type {found[name].dtype}"
            shape, dtype = getattr(into, "shape", type(into).__name__), getattr(into, "dtype", "")
            raise error("UPL1503", f"out[{name!r}]: {wanted}, found {shape} {dtype}")
        if not into.flags.writeable:
            raise error("UPL1503", f"out[{name!r}] must be writeable")
    for (a, x), (b, y) in itertools.combinations(out.items(), 2):
        if np.shares_memory(x, y):
            raise error("UPL1503", f"out[{a!r}] and out[{b!r}] share memory: each output needs its own")
    for name, into in out.items():
        into[...] = found[name]
    return found | dict(out)


@rarely_collecting
def compile(
    p: Program,
    /,
    engine: Literal["interp", "token", "native", "rtl", "circuit", "mpi", "reference"] = "interp",
    *,
    real: str | None = None,
    gather: Literal["relaxed", "ordered"] = "relaxed",
    order: Literal["fifo", "random"] = "fifo",
    seed: int = 0,
    machine: str | Path | None = None,
    threads: int = 1,
    lanes: int = 1,
    along: str | None = None,
    share: bool = False,
    bench: str | Path | None = None,
    simulator: Literal["amaranth", "compiled", "verilator"] | None = None,
    checkpoint: str | Path | None = None,
    every: int = 1,
    local: bool = False,
    **params: int,
) -> Compiled:
    """A callable for a program on an engine; `adjoint of` directives are expanded, domains inferred.

    `real` is what the type `real` means (f64 on the interpreter, f32 on hardware; "f64", "f32", "f16", "bf16", or fixed
    point as "q8.8": docs/numbers.md), `gather` how sums are folded, `order`
    and `seed` the arrival order of tokens, `machine` a machine description for the engine "rtl" and `simulator` what runs
    it (default: "compiled" where there is a C++ compiler, else "amaranth"), `threads` how many threads the engine "native"
    may use, `lanes` how many instances the engine "circuit" computes at a time, `along` which field, and `share` whether
    gathers of many summands use one array of lanes in turn; `bench` is a folder to which its Verilog, a bench and the words
    of the last call go; `checkpoint` is a folder in which the engine "mpi" saves its state `every` so many steps, and from
    which it takes a run up again; with `local` that engine takes and returns the blocks of a rank (docs/mpi.md);
    `params` bind parameters.  A program of the machine (`ttm`) runs on the engine "rtl" only.
    """
    names = [*map(str, EngineName)]
    if engine not in names:
        help_ = nearest_or_all(engine, names)
        raise error("UPL1802", f"there is no engine `{engine}`", help=help_)
    name = EngineName(engine)
    row = ENGINES[name]
    for what, value, allowed in (
        ("gather", gather, ("relaxed", "ordered")),
        ("order", order, ("fifo", "random")),
        ("simulator", simulator, (None, *SIMULATORS)),
    ):
        if value not in allowed:
            raise error("UPL1802", f"{what}={value!r}: expected one of {', '.join(map(str, allowed))}")
    real = None if real is None else Kind.of_real(real).value
    own = {
        "machine": machine, "simulator": simulator, "threads": threads != 1, "lanes": lanes != 1, "along": along,
        "share": share, "bench": bench, "checkpoint": checkpoint, "every": every != 1, "local": local,
    }  # fmt: skip
    row.check(name, p, [option for option, value in own.items() if value], real=real, gather=gather)
    program = p.expanded().infer_domains()
    if row.all_sizes is None and not (program.lowered and row.machine_programs):  # native code may be there already
        require_arrays(program.read())
        with program.errors():
            require_determined(program.read())
    setting = Setting(
        real or row.real, gather, order, seed, machine, threads, lanes, along, bench, simulator, share, checkpoint, every,
        local,
    )  # fmt: skip
    return Compiled(program, engine=name, setting=setting, given=params)
