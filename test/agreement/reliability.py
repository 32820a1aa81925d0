"""RELIABILITY.md: what was tried, how often, with what result; made of the ledger and of the results of seeded bugs.

make reliability         replays the failures that are open, closes those that pass, and writes the page
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from mutation.hulls import HARMLESS, OPEN
from mutation.score import tried
from mutation.survivors import judged

from agreement.conditions import refusals, table
from agreement.ledger import PLACE, ROOT, Ledger, commit

PAGE = ROOT / "RELIABILITY.md"
SEEDED = ROOT / "test" / "mutation" / "seeded.json"
HULLS = ROOT / "test" / "mutation" / "hulls.json"
SCORE = ROOT / "test" / "mutation" / "score.json"

HEAD = """# Reliability

What was tried against this compiler, how often, and with what result. The page is made by `make reliability` from [the
ledger](test/agreement/ledger.json), to which every `make soak MINUTES=…` adds what it reached, with seeds and commits:
numbers reached, not numbers aimed at. A program, its data and every mistake in it follow from the seed alone, so each
count can be repeated: `PYTHONPATH=test python -m agreement.soak --replay CAMPAIGN SEED`.
"""
ABOUT = {
    "native": (
        "Random programs, most of two to four nodes, each compiled once by the engine `native` and run at two sizes. "
        "Results are compared with the reference (up to seed 2027288: the interpreter), on dyadic (even seeds) and on "
        "general data. In `ordered` mode they are equal bit for bit, but for `sin`, `exp`, `tanh`, … (within "
        "rounding). One in 16 is run in `relaxed` mode, too: each element is within the bound n·ε·Σ|x| of LANGUAGE "
        "3.10, carried from the sums through the program. One in 16 is run with `real` as f32. The proof that "
        'precedes compiling is made for one in eight only: "programs" has it for all its programs.'
    ),
    "machine": (
        "Random programs on the machine in RTL: with the hashed store, one in four with the associative one too "
        "(`cam`), and from seed 4001932 on one in eight with the direct store. "
        'Sums that round in f32 are compared within rounding: the machine adds in order of arrival. '
        "Up to seed 4001931 the interpreter was the reference."
    ),
    "rare": (
        "Random programs on the engines that the other campaigns try least: the token engine, one in eight with the "
        "associative store (`cam`), one in four hundred on Amaranth's own simulator; up to seed 14002998 one in two and one "
        "in forty."
    ),
    "steps": (
        "Random recurrences as traced functions: arrays go through steps, shifted, turned round, cut and joined. Values are "
        "those of the same function on numpy's arrays, gradients those of the interpreter. One schedule in four is proved: "
        "each element stands at a place that is still its own."
    ),
    "ranks": (
        "Random right programs by the engine `mpi` on 2 and on 3 ranks, on dyadic (even seeds) and on general data. One is "
        "refused with a code, or has the bits of native code on every rank in `ordered` mode; one in four in `relaxed` mode "
        "too, where no order of summands rounds."
    ),
    "circuit": (
        "Random right programs as circuits, on 1 to 4 lanes, some with shared units. A program may be refused with a "
        "code. Otherwise its plan is proved, and it runs twice without a pause, with ports that wait at random, too. "
        "Every output bit is the reference's (within rounding where there are functions), and the clocks are those "
        "that were predicted."
    ),
    "chosen": (
        "Random programs that data decide, as circuits: pieces with data that may be wrong, chains of stages and their "
        "gradients. A program may be refused with a code. Otherwise its plan is proved, on right data every output bit is "
        "the interpreter's (within rounding where there are functions), and on wrong data there is an error."
    ),
    "engines": (
        "Random right programs on every engine, against the reference (up to seed 1001456: the "
        "interpreter). On dyadic data, for which no order "
        "of summands rounds, results are compared bit by bit; programs with `sin`, `exp`, `tanh`, … and "
        "relaxed sums that round, within rounding. An engine refuses a program that is not in its class "
        "(UPL18xx: no native code; UPL17xx: the machine is too small, or lacks an operation). "
        "Up to seed 1001372 some programs (about one in twelve) had no output element and were counted as equal. "
        "Seed 1000685 is right and was refused with UPL1823 when it was met; it is compiled now."
    ),
    "gradients": (
        "`vjp` of random programs against dual numbers that a naive evaluator carries (⟨Jv, w⟩ = ⟨v, Jᵀw⟩), on dyadic "
        "and on general data. In every fourth case (every second up to seed 1000800) the Hessian of ⟨R, w⟩ must be "
        "symmetric. In every sixteenth (fourth up to that seed) `check` must prove the gradient program."
    ),
    "conditions": (
        "Every kind of index condition, count and rearrangement (`conditions_grammar`), affine or not, at every place "
        "of a program (`conditions_sites`). Each is run every way (`conditions_cells`) at sizes 0, 1, 2 and 5: "
        "engines, derivatives, batches, `check`, its counts, printed domains. The truth is plain Python; an engine "
        "may refuse, and never be wrong. `=` counts programs that are equal at all sizes. `PYTHONPATH=test python -m "
        "agreement.conditions`"
    ),
    "wide": (
        "Random programs of a wider class (`wide`). Conditions and counts are not affine; two nodes share the points "
        "between them; both have constant tables; data decide arrows; some outputs depend on no input. Results, "
        "native code, gradients; and `adjoint of` between inputs of nodes, with its derivative (`inside`)."
    ),
    "decided": (
        "Random programs that data decide: pieces with data that may be wrong, chains of stages and their gradients, "
        "programs of the wider class with arrows that data decide. Each is compiled once by the engine `native` and called "
        "with several data. On right data the results are the interpreter's (bit for bit in `ordered` mode, in one of four; "
        "else within 1e-9), on wrong data the error is: code, place and words. Where loops leave it to tokens, the "
        "interpreter moves these in six of seven programs, and the C++ that users have in one."
    ),
    "names": (
        "Every name that the compiler invents (of loops, derivatives, variables of C), and words of C, MLIR and Python, "
        "given to something of a program: a parameter, a field, a node, an input. Values and gradients are what they were, "
        "by the interpreter, natively and in C. `PYTHONPATH=test python -m agreement.names`"
    ),
    "programs": (
        "The other properties of random right programs. They are proved. Results are right in every order of arrival, "
        "against a naive evaluator, and the same before and after each pass. Texts read back, and domains are "
        "inferred. Forward and reverse mode, and `adjoint of`."
    ),
    "mistakes": (
        "Mistakes put into random programs, four into each. Enumeration says which are wrong. `check` must not prove "
        "any of these, nor refute one that is right. Every witness is looked up in the enumeration."
    ),
    "malformed": (
        "Mutated and meaningless files of every kind that the tools read. Each must end with an exit status and a "
        "message, after at most 2 s of CPU time and 512 MiB, without a traceback or an internal error."
    ),
    "atheris": ("Coverage-guided fuzzing of the readers of `.upl`, `.mlir`, JSON and TOML by Atheris (libFuzzer)."),
}


def _number(n: int) -> str:
    return f"{n:,}".replace(",", "\u202f")


def _span(ledger: Ledger, campaign: str) -> str:
    runs = ledger.campaigns[campaign]["runs"]
    return f"{runs[0]['seeds'][0]}–{runs[-1]['seeds'][1] - 1}"


def summary(ledger: Ledger, bugs: dict[str, Any], score: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The rows of the first table: what, how often, result."""
    e, g, m = _by_engine(ledger), ledger.reached("gradients"), ledger.reached("mistakes")
    rows: list[tuple[str, str, str]] = []
    for name in dict.fromkeys(k.partition(": ")[0] for k in sorted(e) if ": " in k):
        ways = ("equal bit for bit", "equal within rounding", "within the bound")
        equal, near, bounded = (e[f"{name}: {how}"] for how in ways)
        refused = sum(n for k, n in e.items() if k.startswith(f"{name}: refused"))
        jumps = sum(n for k, n in e.items() if k.startswith(f"{name}: ") and "of a jump" in k)
        result = f"{_number(equal)} equal bit for bit, {_number(near)} within rounding"
        result += f", {_number(bounded)} within the bound n·ε·Σ\\|x\\|" if bounded else ""
        result += f"; {_number(refused)} programs refused" if refused else ""
        result += f"; {jumps} not compared (data within rounding of a jump)" if jumps else ""
        rows.append((f"random programs: reference = {name}", _number(equal + near + bounded), result))
    rows.append(
        (
            "gradients against dual numbers",
            _number(g["gradients: gradients"]),
            "all agree" if not _failed(g) else f"all others agree; {_failed(g)} wrong when it was found",
        )
    )
    symmetric = g["gradients: second order symmetric"]
    rows.append(
        (
            "second derivatives",
            _number(symmetric),
            f"symmetric; {_number(g['gradients: second order symmetric, not zero'])} not zero",
        )
    )
    p = ledger.reached("programs")
    rows.append(
        (
            "random programs: all other properties",
            _number(p["programs"]),
            f"{_number(p['proof: proved'])} proved in full, none refuted",
        )
    )
    wrong = m["mutants: wrong"]
    refuted = 100 * m["mutants: wrong and refuted"] / max(1, wrong)
    rows.append(
        (
            "mistakes in programs",
            _number(wrong),
            (
                f"none proved; {refuted:.1f} % refuted, {_number(m['witnesses: confirmed'])} "
                f"of {_number(m['witnesses'])} witnesses confirmed by enumeration (the others are too large for it)"
            ),
        )
    )
    d = ledger.reached("decided")
    if d:
        way = {w: sum(n for k, n in d.items() if k.endswith(f": {w}")) for w in ("loops", "tokens", "loops, then tokens")}
        wrong = sum(n for k, n in d.items() if ": wrong data, the same error" in k)
        rows.append(
            (
                "programs that data decide: interpreter = native",
                _number(d["programs"]),
                (
                    f"{_number(way['loops'])} runs of loops equal, {_number(way['tokens'] + way['loops, then tokens'])} of "
                    f"tokens; wrong data: {_number(wrong)} times the same error; "
                    f"{_number(_failed(d))} wrong when it was found"
                ),
            )
        )
    c = ledger.reached("conditions")
    if c:
        cells = Counter(k.rpartition(": ")[2].partition(" ")[0] for k in c.elements() if " | " in k)
        refused = cells["refused"]
        rows.append(
            (
                "index conditions, counts and rearrangements, each at every place, every way",
                _number(cells.total()),
                (
                    f"{_number(cells['equal'])} equal, {_number(refused)} refused, "
                    f"{_number(cells.total() - cells['equal'] - refused)} wrong when it was found"
                ),
            )
        )
    x = ledger.reached("malformed")
    accepted = sum(n for k, n in x.items() if k.endswith(": accepted"))
    placed = sum(n for k, n in x.items() if k.endswith("with a position"))
    refused = sum(n for k, n in x.items() if ": refused" in k)
    rows.append(
        (
            "malformed inputs",
            _number(x["inputs"]),
            (
                f"{_number(refused)} refused, {_number(placed)} of them with a position; "
                f"{_number(accepted)} still right; {_number(x['FAILED'])} answers were wrong when they were found"
            ),
        )
    )
    a = ledger.reached("atheris")
    if a:
        rows.append(("inputs made by Atheris", _number(a["inputs"]), f"{_number(a['crashes'])} crashes"))
    caught = sum(bool(b["caught"]) for b in bugs.values())
    rows.append(("seeded compiler bugs", str(len(bugs)), f"{caught} caught, each by a test that is named below"))
    done = tried(score)
    if done:
        killed = sum(t["caught"] for t in done)
        rows.append(
            (
                "random changes of the compiler (mutation score)",
                str(len(done)),
                f"{killed} caught: {100 * killed / len(done):.0f} %; {_looked_at(done)}",
            )
        )
    rows.append(("failures found by the soaks", str(len(ledger.failures)), f"{len(ledger.open())} open"))
    return rows


def _by_engine(ledger: Ledger) -> Counter[str]:
    """What the campaigns that compare engines reached, together; their programs are different ones."""
    out = Counter[str]()
    for campaign in ("engines", "native", "machine", "rare"):
        for key, n in ledger.reached(campaign).items():
            if key.startswith(f"{campaign}: ") and key.count(": ") == 2 and ": not proved: " not in key:
                out[key.partition(": ")[2]] += n
    return out


def _hulls() -> list[str]:
    """What came of sets that were made too large for one part of the compiler at a time."""
    known = json.loads(HULLS.read_text(encoding="utf-8")) if HULLS.exists() else {}
    if not known:
        return []
    out = ["", "## Sets that are too large", ""]
    out += [
        (
            "Every set that one part of the compiler asks for directly loses the conditions that are not affine, and "
            "programs of the condition sweep run until a result is wrong: `python -m mutation.hulls`."
        ),
        "", "| part | file | seen by |", "|---|---|---|",
    ]  # fmt: skip
    for name, found in known.items():
        never = f"nothing: in {found.get('cells')} cells it asked for no set with such a condition"
        seen = found["by"] if found["caught"] else {**HARMLESS, **OPEN}.get(name, never)
        out.append(f"| {name} | `{found['file']}` | {seen.replace('|', '&#124;')} |")
    return out


def _failed(counts: Counter[str]) -> int:
    return sum(n for k, n in counts.items() if k.endswith("FAILED") or k == "crashes")


def render(ledger: Ledger, bugs: dict[str, Any], score: dict[str, Any]) -> str:
    """The page."""
    out = [HEAD, "| what | how often | result |", "|---|---:|---|"]
    out += [f"| {what} | {n} | {result} |" for what, n, result in summary(ledger, bugs, score)]
    for name in ledger.campaigns:
        out += ["", f"## {name}", "", ABOUT.get(name, ""), ""]
        runs = ledger.campaigns[name]["runs"]
        out.append(
            f"Seeds {_span(ledger, name)}, {ledger.seconds(name) // 60} minutes, at "
            + ", ".join(f"`{c}`" for c in dict.fromkeys(r["commit"] for r in runs))
            + f" (a + means: with changes not committed). `make soak SOAK_ARGS='--only {name}'`"
        )
        if name == "conditions":
            out += ["", *table(ledger.reached(name)), "", *refusals(ledger.reached(name))]
            continue
        out += ["", "| outcome | count |", "|---|---:|"]
        out += [
            f"| {what.removeprefix(name + ': ')} | {_number(n)} |" for what, n in sorted(ledger.reached(name).items())
        ]
    out += ["", "## Failures that the soaks found", ""]
    if ledger.failures:
        out += ["| campaign | seed | what | closed |", "|---|---:|---|---|"]
        for f in ledger.failures:
            what = " ".join(f["what"].split())[:160].replace("|", "\\|")
            out.append(f"| {f['campaign']} | {f['seed']} | {what} | {f['closed'] or '**open**'} |")
    else:
        out.append("None.")
    if bugs:
        out += [
            "",
            "## Seeded bugs",
            "",
            "One changed line each, and the first test that fails for it: `make mutants`.",
            "",
        ]
        out += ["| bug | file | caught by |", "|---|---|---|"]
        out += [f"| {b['name']} | `{b['file']}` | {_by(b)} |" for b in bugs.values()]
    out += _hulls()
    done = tried(score)
    if done:
        out += [
            "",
            "## Mutation score",
            "",
            (
                f"A random sample of {len(score['sample'])} changes of one operator, constant or statement in "
                f"`passes/`, `poly/` and `hw/matching_unit/`, taken at `{score['commit']}`. `make mutants` has tried "
                f"{len(done)} of them so far. Each is shown to the tests that execute the "
                f"changed line, the quickest first, up to {max(t['shown'] for t in done):.0f} s of them. "
                "These are the changes that none caught, and what came of looking at them:"
            ),
            "",
        ]
        missed = [t for t in done if not t["caught"]]
        out += [f"- `{t['file']}:{t['line']}` {t['what']}: `{t['source'][:100]}`: {_came_of(t)}" for t in missed]
    return "\n".join(out) + "\n"


def _came_of(change: dict[str, Any]) -> str:
    found = judged(change)
    return "open" if found is None else f"now caught by `{found.test}`" if found.test else found.reason


def _looked_at(done: list[dict[str, Any]]) -> str:
    """What became of the changes that no test caught."""
    found = [judged(t) for t in done if not t["caught"]]
    tested = sum(s is not None and bool(s.test) for s in found)
    return f"of the others {tested} are tested since, {sum(s is not None for s in found) - tested} can show nowhere"


def _by(bug: dict[str, Any]) -> str:
    return f"`{bug['by']}`".replace("|", "\\|") if bug["caught"] else "**nothing**"


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def page(ledger: Ledger | None = None) -> str:
    """The page of what is recorded."""
    return render(ledger or Ledger.load(), _json(SEEDED), _json(SCORE))


def main() -> int:
    """Replay what is open, write the page; the exit status is 1 if something stays open."""
    from agreement.soak import replay

    ledger = Ledger.load(PLACE)
    for f in ledger.open():
        found = replay(f["campaign"], f["seed"])
        if not found:
            f["closed"] = f"at {commit()}"
        print(f"{f['campaign']}, seed {f['seed']}: {'open' if found else 'closed'}", flush=True)
    ledger.store()
    PAGE.write_text(page(ledger), encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(ledger.open())} failures open")
    return 1 if ledger.open() else 0


if __name__ == "__main__":
    sys.exit(main())
