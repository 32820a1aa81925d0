"""Makes the gallery: the picture of every example, of some derivatives, and a page of `upl view`. `make gallery` runs it.

    python docs/gallery/make.py            # everything
    python docs/gallery/make.py --pages    # the page, and pictures of it and of editors

The pictures are the same wherever they are made; a test compares them.  The page goes to `build/gallery`, pictures of pages
beside the others; these need Chromium and playwright.  The picture of Vim goes to `docs/pictures`; it needs tmux and ALE.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

import upl_mlir as upl
from upl_mlir.api.programs import reverse
from upl_mlir.observe.replay import record
from upl_mlir.observe.unroll import unrolled
from upl_mlir.observe.viewing import view
from upl_mlir.picture.png import png_of
from upl_mlir.picture.style import Theme
from upl_mlir.picture.unrolled import svg_of_unrolled

ROOT = Path(__file__).resolve().parent.parent.parent
GALLERY = Path("docs/gallery")
PAGE = Path("build/gallery/perceptron.html")
DERIVATIVES = {"perceptron": ("R", ["W"]), "softmax": ("Loss", ["X"]), "lstm": ("Y", ["W"]), "cholesky": ("L", ["A"])}
"""Examples that are shown with a derivative: of what, by what."""

RULES = Path("docs/rules")
"""Small programs `NAME.upl`, each for one rule of differentiation; docs/rules.md tells of them."""
OF_RULES = {
    "reversal": ("Y", ["A"]), "duality": ("L", ["a"]), "fork": ("Y", ["a"]),
    "stencil": ("Y", ["U"]), "maximum": ("L", ["X"]), "scatter": ("Y", ["X"]), "dead": ("Y", ["X"]),
}  # fmt: skip
"""Of what and by what they are differentiated."""


def rules() -> Iterator[tuple[str, upl.Program]]:
    """The derivatives in docs/rules.md by the name of the picture's file."""
    for name, (of, wrt) in OF_RULES.items():
        yield f"rule.{name}", reverse(upl.load(RULES / f"{name}.upl"), of=of, wrt=wrt)


def programs() -> Iterator[tuple[str, upl.Program]]:
    """Every picture of the gallery by the name of its file; positions in tooltips are relative to the repository."""
    for path in sorted(Path("examples").glob("*.upl")):
        program = upl.load(path)
        yield path.stem, program
        if path.stem in DERIVATIVES:
            of, wrt = DERIVATIVES[path.stem]
            yield f"{path.stem}.derivative", reverse(program, of=of, wrt=wrt)


def page() -> str:
    """The page of the perceptron with its derivative and a run to replay."""
    program = upl.load(Path("examples/perceptron.upl"), K=3, N=[3, 4, 2])
    gradient = upl.vjp(program, of="R", wrt=["W"])
    rng = np.random.default_rng(0)
    arrays = {n: rng.normal(size=v.shape(D=2)) for n, v in gradient.inputs.items()}
    trace, _ = record(gradient, arrays)
    return view(program, of="R", wrt=["W"], trace=trace)


SCREENS = {
    "view": (1440, 900, "light", True), "view.dark": (1440, 900, "dark", True),
    "view.phone": (390, 844, "light", True), "view.phone.dark": (390, 844, "dark", True),
    "view.large": (2560, 1440, "light", True), "view.large.dark": (2560, 1440, "dark", True),
    "editor": (1440, 900, "light", False), "editor.phone": (390, 844, "dark", False),
}  # fmt: skip
"""Pictures of pages: width and height of the window, colours, and whether it is the page of a run, else the editor."""


def screens() -> bool:
    """The pictures of pages, if there is a browser."""
    chromium = os.environ.get("UPL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return False
    if chromium is None:
        return False
    with tempfile.TemporaryDirectory() as folder, edited(Path(folder)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (width, height, colours, run) in SCREENS.items():
            shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
            shown.goto(PAGE.resolve().as_uri() if run else address)
            shown.wait_for_timeout(1000)
            (_replayed if run else _mistaken)(shown)
            shown.mouse.move(5, 500)
            shown.wait_for_timeout(500)
            shown.screenshot(path=GALLERY / f"{name}.png")
            print(f"  {name}.png", flush=True)
            shown.close()
        browser.close()
    return True


def _replayed(shown: Any) -> None:
    """In the middle of the run, with an arrow of the derivative chosen."""
    shown.locator('.u-arrow[data-rule="reversed arrow, gather to multicast"] .u-on-index').click()
    shown.click("#last")
    for _ in range(61):
        shown.click("#back")


def _mistaken(shown: Any) -> None:
    """The editor with the mistake that `edited` has made, chosen."""
    for _ in range(240):
        if shown.locator("#errors button").count():
            break
        shown.wait_for_timeout(500)
    if shown.locator("#errors button").is_visible():
        shown.click("#errors button")


def _with_a_mistake(folder: Path) -> Path:
    """The perceptron in a folder, with a wrong number of summands in an arrow."""
    path = folder / "perceptron.upl"
    text = Path("examples/perceptron.upl").read_text(encoding="utf-8")
    path.write_text(text.replace("r*w #N[k-1] -> Sum.s", "r*w #N[k] -> Sum.s"), encoding="utf-8")
    return path


@contextmanager
def edited(folder: Path) -> Iterator[str]:
    """The address of an editor of the perceptron with a mistake in an arrow."""
    path = _with_a_mistake(folder)
    command = [sys.executable, "-m", "upl_mlir", "view", "--edit", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGINT)


VIM = Path("docs/pictures/vim.svg")
"""The screen of Vim on the program with the mistake, with the settings of docs/editors.md."""


def vim() -> bool:
    """The picture of Vim, if it is there with the plugin ALE, in a terminal of tmux."""
    if shutil.which("vim") is None or shutil.which("tmux") is None:
        return False
    block = Path("docs/editors.md").read_text(encoding="utf-8").split("\n## Vim\n")[1].split("```")[1].removeprefix("vim\n")
    with tempfile.TemporaryDirectory() as name:
        path, settings, found = _with_a_mistake(Path(name)), Path(name) / "vimrc", Path(name) / "found"
        look = "set nocompatible number laststatus=2 background=light\nfiletype plugin on\nhighlight clear SignColumn\n"
        settings.write_text(look + block)
        # The file `found` says how many errors Vim shows; the message of the one on the line is then shown at the bottom.
        count = f"writefile([string(len(ale#engine#GetLoclist(bufnr(''))))], '{found}')"
        told = f"call timer_start(500, {{_ -> {count}}}, {{'repeat': -1}})"
        command = ["vim", "-u", str(settings), "-i", "NONE", "-n", "-c", told, "-c", "ALELint", path.name]
        server = ["tmux", "-L", f"upl-{os.getpid()}"]
        own = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        subprocess.run([*server, "new-session", "-d", "-x", "120", "-y", "25", *command], cwd=name, env=own, check=True)
        try:
            for _ in range(240):
                time.sleep(0.5)
                if found.exists() and found.read_text().strip() == "1":
                    break
            else:
                return False
            subprocess.run([*server, "send-keys", "/r.w #", "Enter"], check=True)
            time.sleep(3)
            screen = subprocess.run([*server, "capture-pane", "-e", "-p"], capture_output=True, text=True, check=True).stdout
        finally:
            subprocess.run([*server, "kill-server"], check=False)
    console = Console(record=True, width=120, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip("\n")), no_wrap=True)
    picture = console.export_svg(title="vim perceptron.upl", theme=DEFAULT_TERMINAL_THEME, unique_id="vim")
    VIM.write_text(re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.S), encoding="utf-8")  # fonts of the reader's
    return True


def pages() -> None:
    """The page, and pictures of it and of editors."""
    print(f"  {VIM}" if vim() else "  the picture of Vim is not made: no vim with ALE, or no tmux")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"  {PAGE}")
    if not screens():
        print("  pictures of pages are not made: no Chromium, or no playwright")


def main() -> None:
    """Write all files, or only the pages and their pictures."""
    os.chdir(ROOT)
    if "--pages" in sys.argv[1:]:
        pages()
        return
    names: list[str] = []
    for name, program in (*programs(), *rules()):
        upl.draw(program).save(GALLERY / f"{name}.svg")
        print(f"  {name}.svg", flush=True)
        if not name.startswith("rule."):
            names.append(name)
    pages()
    instances = unrolled(upl.load("examples/cholesky.upl", n=6))
    (GALLERY / "unrolled.png").write_bytes(png_of(svg_of_unrolled(instances, "critical", Theme.LIGHT), zoom=1.0))
    print("  unrolled.png")
    lines = [
        "# Gallery", "",
        "Made by `make gallery` from `examples/`; what the shapes mean is in [drawing.md](../drawing.md).", "",
        f"The page of `upl view` with the perceptron, its derivative and a run (`make gallery` leaves it in `{PAGE}`):", "",
        "![The page of upl view](view.png)", "",
        "On a phone its parts are tabs, and two fingers zoom; [dark](view.dark.png), [on a large screen](view.large.png),",
        "[there in the dark](view.large.dark.png), [on a phone in the dark](view.phone.dark.png):", "",
        "![The page on a phone](view.phone.png)", "",
        "The [diagram editor](../diagram_editor.md) with a mistake on an arrow, and [on a phone](editor.phone.png):", "",
        "![The diagram editor](editor.png)", "",
    ]  # fmt: skip
    for name in names:
        title = name.replace(".derivative", " with its derivative")
        lines += [f"## {title}", "", f"![{title}]({name}.svg)", ""]
    (GALLERY / "README.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
