"""The settings in docs/editors.md, tried in the editors themselves: each shows the error of a program with a mistake."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "editors.md").read_text(encoding="utf-8")
WRONG = "program p\ninput X<i> in 0<=i<4 { -> A.x }\noutput Y<i>\nnode A<i> { in x; x*z -> Y }\n"
SHOWN = "line 4: UPL1103 unknown name `z`"
SECONDS = 200  # for an editor, a server and a proof on a machine with much other work

IN_LUA = """
vim.wait(100000, function() return #vim.diagnostic.get(0) > 0 end, 50)
for _, d in ipairs(vim.diagnostic.get(0)) do
  io.stdout:write('line ' .. d.lnum + 1 .. ': ' .. d.code .. ' ' .. d.message:gsub('\\n.*', '') .. '\\n')
end
vim.cmd('quitall!')
"""
IN_LISP = """
(require 'flymake)
(find-file "wrong.upl")
(run-hooks 'post-command-hook)
(let ((end (+ (float-time) 100)))
  (while (and (< (float-time) end) (null (flymake-diagnostics)))
    (ignore-errors (flymake-start))
    (accept-process-output nil 0.1)))
(dolist (d (flymake-diagnostics))
  (let ((text (replace-regexp-in-string "\\n.*" "" (flymake-diagnostic-text d))))
    (princ (format "line %s: %s\\n" (line-number-at-pos (flymake-diagnostic-beg d)) text))))
(ignore-errors (eglot-shutdown (eglot-current-server)))
"""
IN_VIM = """
let s:n = 0
while s:n < 1000 && empty(ale#engine#GetLoclist(bufnr('')))
  sleep 100m
  let s:n += 1
endwhile
let s:found = copy(ale#engine#GetLoclist(bufnr('')))
call map(s:found, {_, d -> 'line ' . d.lnum . ': ' . d.code . ' ' . split(d.text, "\\n")[0]})
call writefile(s:found, 'shown')
qall!
"""


def settings(heading: str, number: int = 0) -> str:
    """A block of settings under a heading of the page."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\w+\n(.*?)^```", part, re.M | re.S)[number]


def ran(where: Path, *command: str) -> str:
    """What an editor prints that finds `upl`, and no settings but ours."""
    (where / "wrong.upl").write_text(WRONG, encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(where), "XDG_CONFIG_HOME": str(where), "XDG_STATE_HOME": str(where), "XDG_DATA_HOME": str(where)}
    done = subprocess.run(
        command, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        env={**os.environ, **own, "PATH": path},
    )  # fmt: skip
    return done.stdout + done.stderr


def installed(program: str) -> str:
    """An editor, or a test that says that it was not tried."""
    return shutil.which(program) or pytest.skip(f"{program} is not installed: its settings in docs/editors.md are not tried")


@pytest.mark.parametrize(("number", "least"), [(0, (0, 11)), (1, (0, 8))])
def test_neovim(tmp_path: Path, number: int, least: tuple[int, int]) -> None:
    nvim = installed("nvim")
    version = re.match(r"NVIM v(\d+)\.(\d+)", ran(tmp_path, nvim, "--version"))
    assert version is not None
    if (int(version[1]), int(version[2])) < least:
        pytest.skip(f"{version[0]} is older than what this block of docs/editors.md is for: it is not tried")
    (tmp_path / "init.lua").write_text(settings("Neovim", number), encoding="utf-8")
    (tmp_path / "wait.lua").write_text(IN_LUA, encoding="utf-8")
    said = ran(tmp_path, nvim, "--clean", "--headless", "-u", "init.lua", "wrong.upl", "-c", "luafile wait.lua")
    assert SHOWN in said, said


def test_emacs(tmp_path: Path) -> None:
    emacs = installed("emacs")
    start = (emacs, "--batch", "--eval", "(package-initialize)")
    if "eglot is here" not in ran(tmp_path, *start, "--eval", "(and (require 'eglot) (princ \"eglot is here\"))"):
        pytest.skip("Emacs is installed without Eglot: its settings in docs/editors.md are not tried")
    (tmp_path / "init.el").write_text(settings("Emacs"), encoding="utf-8")
    (tmp_path / "wait.el").write_text(IN_LISP, encoding="utf-8")
    said = ran(tmp_path, *start, "-l", "init.el", "-l", "wait.el")
    assert SHOWN.replace("UPL1103", "upl [UPL1103]:") in said, said


def test_vim(tmp_path: Path) -> None:
    vim = installed("vim")
    (tmp_path / "vimrc").write_text("set nocompatible\nfiletype plugin on\n" + settings("Vim"), encoding="utf-8")
    start = (vim, "-u", "vimrc", "-i", "NONE", "-n", "-es", "wrong.upl")
    ask = "call writefile([exists(':ALELint') . has('channel') . has('job')], 'has') | qall!"
    ran(tmp_path, *start, "-c", ask)
    if not (tmp_path / "has").exists() or (tmp_path / "has").read_text().strip() != "211":
        pytest.skip("Vim is installed without ALE, channels or jobs: its settings in docs/editors.md are not tried")
    (tmp_path / "wait.vim").write_text(IN_VIM, encoding="utf-8")
    said = ran(tmp_path, *start, "-c", "ALELint", "-c", "source wait.vim")
    assert (tmp_path / "shown").read_text().strip() == SHOWN, said
