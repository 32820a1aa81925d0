"""The tables of the native engine in Markdown, made from what the workers found."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.native.case import Case
from bench.native.cases import CASES

Record = Mapping[str, Any]
REASONS = Path(__file__).parent / "reasons.toml"
PEERS = ("jax", "torch", "numpy", "python")
RATIO, THREADS, MEMORY = 3.0, 1.5, 1 / 5
HOW = """Value and gradient; medians of interleaved rounds, one case at a time in a process of its own, on one core; every
contender's numbers were compared with a numpy reference first. Bold: target missed. A peer without a time says why."""


def time_text(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def peers(one: Record) -> dict[str, float]:
    """The medians of the peers: what is neither ours nor C."""
    return {n: t["median"] for n, t in one.get("gradient", {}).items() if n.split(",")[0] in PEERS}


def best(times: Mapping[str, float]) -> tuple[str, float] | None:
    """The quickest and its time."""
    return min(times.items(), key=lambda item: item[1]) if times else None


def ceiling(one: Record) -> float | None:
    """The quickest C."""
    found = best({n: t["median"] for n, t in one.get("gradient", {}).items() if n.split(",")[0] == "C"})
    return found[1] if found else None


def median(one: Record, name: str, what: str = "gradient") -> float | None:
    """A contender's time, None if it has none."""
    found = one.get(what, {}).get(name)
    return found["median"] if found else None


def why_not(one: Record, name: str) -> str:
    """Why a contender has no time."""
    return one.get("absent", {}).get(name) or one.get("failed", {}).get(name) or "not measured"


def ratio_text(ratio: float | None, aim: float | None, *, at_least: bool = True, unit: str = "×") -> str:
    """A figure with its target; a missed one is bold."""
    goal = f" (≥ {aim:g})" if aim and at_least else f" (≤ {aim:g})" if aim else ""
    if ratio is None:
        return f"–{goal}"
    text = f"{ratio:.3g}{unit}"
    missed = aim is not None and (ratio < aim if at_least else ratio > aim)
    return f"**{text}**{goal}" if missed else f"{text}{goal}"


def short(case: Case, record: Record) -> str:
    """One line for the terminal."""
    one = record["one"]
    times = ", ".join(f"{n} {time_text(t['median'])}" for n, t in one.get("gradient", {}).items())
    trouble = "; ".join(f"{n}: {w}" for kind in ("failed", "absent") for n, w in one.get(kind, {}).items())
    return "  " + " | ".join(part for part in (times, trouble) if part)


class Misses:
    """Targets that were missed, and what people wrote about them."""

    def __init__(self, reasons: Mapping[str, Mapping[str, str]]):
        self.reasons = reasons
        self.lines: list[str] = []

    def note(self, case: Case, which: str, what: str, missed: bool) -> None:
        """Write a miss down with its reason."""
        if missed:
            reason = self.reasons.get(case.key, {}).get(which, "")
            self.lines.append(f"| {case.key} | {what} | {reason or '*to be written: bench/native/reasons.toml*'} |")


def markdown(results: Record) -> str:
    """The whole section."""
    found = results.get("cases", {})
    cases = [(c, found[c.key]) for c in CASES if c.key in found]
    misses = Misses(tomllib.loads(REASONS.read_text(encoding="utf-8")))
    parts = [
        "## Native code against its peers",
        f"{HOW}\n\n{_made(cases)}",
        _main(cases, misses),
        "### Value and gradient over value\n\n" + _ratios(cases, misses),
        "### The first gradient, from text to arrays, in a fresh process, imports apart\n\n" + _first(cases, misses),
        "### Two threads\n\n" + _threads(cases, misses),
        "### Memory that the first call takes (JAX: with its compiler)\n\n" + _memory(cases, misses),
        "### Missed, and why\n\n" + _missed(cases, misses),
    ]
    return "\n\n".join(parts) + "\n"


def _made(cases: list[tuple[Case, Record]]) -> str:
    """Which command made which cases, when and where, and how busy the machine was: a load above 1 disturbs the times."""
    runs: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for case, record in cases:
        made = record["made"]
        run = (made["command"], made["date"], made["machine"])
        runs.setdefault(run, []).append((case.key, record["one"].get("load", 0.0)))
    lines: list[str] = []
    for (command, date, machine), keys in runs.items():
        loads = [load for _, load in keys]
        which = ", ".join(key for key, _ in keys)
        lines.append(f"- `{command}`, {date}: {which}. Load {min(loads):.1f} to {max(loads):.1f}; {machine}.")
    return "\n".join(lines)


def _missed(cases: list[tuple[Case, Record]], misses: Misses) -> str:
    if not any(median(record["one"], "native") for _, record in cases):
        return "There is no native engine yet: nothing was measured that could miss."
    return _table(("case", "target", "what was tried, what limits it"), misses.lines)


def _table(head: Iterable[str], lines: list[str]) -> str:
    if not lines:
        return "Nothing."
    cells = list(head)
    return "\n".join([f"| {' | '.join(cells)} |", "|" + "---|" * len(cells), *lines])


def _cell(one: Record, names: Iterable[str]) -> str:
    some = {n: m for n in names if (m := median(one, n)) is not None}
    quickest = best(some)
    if quickest:
        name, seconds = quickest
        return time_text(seconds) + (f" ({name.partition(', ')[2]})" if ", " in name else "")
    reasons = {why_not(one, n) for n in names if n in one.get("absent", {}) or n in one.get("failed", {})}
    return ", ".join(sorted(reasons)) or "–"


def _ours(one: Record) -> str:
    """The native engine's time, and that of programs that a front end made."""
    others = {n: m for n in one.get("gradient", {}) if n.startswith("native, ") and (m := median(one, n)) is not None}
    return "; ".join([_cell(one, ["native"]), *(f"{n.partition(', ')[2]}: {time_text(m)}" for n, m in others.items())])


def _main(cases: list[tuple[Case, Record]], misses: Misses) -> str:
    lines: list[str] = []
    for case, record in cases:
        one = record["one"]
        literal = [n for n in one.get("gradient", {}) if n.startswith("jax, ")]
        quickest, c, ours = best(peers(one)), ceiling(one), median(one, "native")
        against = quickest[1] / ours if quickest and ours else None
        of_c = c / ours if c and ours else None
        if case.seconds:
            aim = f"{time_text(ours)} (≤ {time_text(case.seconds)})" if ours else f"– (≤ {time_text(case.seconds)})"
            misses.note(case, "seconds", f"one call: {aim}", bool(ours and ours > case.seconds))
        for which, figure, target in (("peers", against, case.against_peers), ("c", of_c, case.against_c)):
            if figure and target and figure < target:
                misses.note(
                    case, which, f"{'best peer' if which == 'peers' else 'C'}: {figure:.3g}×, not {target:g}×", True
                )
        cells = [
            f"{case.key}: {case.title}",
            _cell(one, ["jax"]), _cell(one, literal), _cell(one, ["torch"]), _cell(one, ["numpy"]),
            _cell(one, [n for n in ("C", "C, plain") if n in case.contenders]),
            f"{quickest[1] / c:.3g}×" if quickest and c else "–",
            _ours(one) + (f" (≤ {time_text(case.seconds)})" if case.seconds else ""),
            ratio_text(against, case.against_peers),
            ratio_text(of_c, case.against_c if "C" in case.contenders else None),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    columns = "case, JAX, JAX in another form, PyTorch, numpy, C, C / best peer, native, native / best peer, native / C"
    return _table(columns.split(", "), lines) + "\n\nRatios say how many times as fast."


def _ratios(cases: list[tuple[Case, Record]], misses: Misses) -> str:
    lines: list[str] = []
    for case, record in cases:
        cells = [case.key]
        for name in ("native", "C", "jax", "torch"):
            both, value = median(record["one"], name), median(record["one"], name, "value")
            figure = both / value if both and value else None
            cells.append(ratio_text(figure, RATIO if name == "native" else None, at_least=False, unit=""))
            if name == "native":
                misses.note(
                    case, "ratio", f"value and gradient over value: {figure or 0:.3g}", bool(figure and figure > RATIO)
                )
        if any(c[0].isdigit() or c[0] == "*" for c in cells[1:]):
            lines.append(f"| {' | '.join(cells)} |")
    return _table(("case", "native", "C", "JAX", "PyTorch"), lines)


def _seconds(found: Record) -> str:
    return f"{found['first']:.3g} s" if "first" in found else str(found.get("absent") or found.get("failed") or "–")


def _first(cases: list[tuple[Case, Record]], misses: Misses) -> str:
    lines: list[str] = []
    for case, record in cases:
        first = record.get("first")
        if not first:
            continue
        ours, jax = first["native"].get("first"), first["jax"].get("first")
        missed = bool(ours and (ours > case.first_seconds or (jax and ours > jax)))
        text = f"{ours:.3g} s" if ours else ""
        misses.note(case, "first", f"first gradient: {text}, JAX {_seconds(first['jax'])}", missed)
        imports = [f"{first[n]['import']:.2g} s" if "import" in first[n] else "–" for n in ("native", "jax")]
        cells = [
            case.key, (f"**{text}**" if missed else text or _seconds(first["native"])) + f" (≤ {case.first_seconds:g} s)",
            _seconds(first["cached"]), _seconds(first["tiny"]), _seconds(first["jax"]), *imports,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    head = ("case", "native", "again, from the cache", "at tiny sizes", "JAX", "import of native", "import of JAX")
    return _table(head, lines)


def _threads(cases: list[tuple[Case, Record]], misses: Misses) -> str:
    lines: list[str] = []
    for case, record in cases:
        two = record.get("two")
        if not two:
            continue
        alone, both = median(two, "native, one thread"), median(two, "native")
        gain = alone / both if alone and both else None
        misses.note(case, "threads", f"two threads: {gain or 0:.3g}× one", bool(gain and gain < THREADS))
        cells = [
            case.key, time_text(alone) if alone else _cell(two, ["native, one thread"]), _cell(two, ["native"]),
            ratio_text(gain, THREADS), _cell(two, ["jax"]), _cell(two, ["torch"]),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return _table(("case", "native, one", "native, two", "gain", "JAX, two", "PyTorch, two"), lines)


def _memory(cases: list[tuple[Case, Record]], misses: Misses) -> str:
    lines: list[str] = []
    for case, record in cases:
        found = record.get("memory")
        if not found:
            continue
        allowed = case.trajectory_bytes * MEMORY
        ours = found.get("native")
        misses.note(
            case, "memory", f"memory: {ours} bytes, not {allowed:.0f}", isinstance(ours, int) and ours > allowed
        )
        measured = (found[n] for n in ("native", "C", "jax", "torch"))
        texts = [f"{v / 2**20:.0f} MiB" if isinstance(v, int) else str(v) for v in measured]
        texts[0] += f" (≤ {allowed / 2**20:.0f} MiB)"
        cells = [case.key, f"{case.trajectory_bytes / 2**20:.0f} MiB", *texts]
        lines.append(f"| {' | '.join(cells)} |")
    return _table(("case", "all states", "native", "C", "JAX", "PyTorch"), lines)
