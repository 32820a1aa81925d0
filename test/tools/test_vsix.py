"""`make vsix`: the extension for Visual Studio Code, as the file that people install."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VSCODE = ROOT / "editors" / "vscode"
LOADS = """
const Module = require('module'), path = require('path');
const anything = () => new Proxy(function () {}, {
  get: (_, name) => name === 'prototype' ? {} : name === Symbol.toPrimitive ? () => '' : anything(),
  apply: () => anything(), construct: () => anything(),
});
const load = Module._load;
Module._load = (name, ...rest) => name === 'vscode' ? anything() : load(name, ...rest);
const extension = require(path.resolve(process.argv[1]));
console.log(Object.keys(extension).sort().join());
"""


def test_the_manifest_names_what_there_is() -> None:
    manifest = json.loads((VSCODE / "package.json").read_text(encoding="utf-8"))
    for part in (*manifest["contributes"]["languages"], *manifest["contributes"]["grammars"]):
        assert (VSCODE / part.get("path", part.get("configuration"))).is_file()
    code = (VSCODE / "extension.js").read_text(encoding="utf-8")
    for command in manifest["contributes"]["commands"]:
        assert f"registerCommand('{command['command']}'" in code
    for setting in manifest["contributes"]["configuration"]["properties"]:
        section, _, name = setting.partition(".")
        assert f"getConfiguration('{section}').get('{name}')" in code
    assert manifest["contributes"]["configuration"]["properties"]["upl.server"]["default"] == ["upl", "lsp"]
    versions = manifest["devDependencies"].values()
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", v) for v in versions), "pinned: a new version must not break an old commit"


def test_the_file_that_is_installed(tmp_path: Path) -> None:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("there is no npm on this system (Node.js 20 or newer)")
    done = subprocess.run(["make", "-C", ROOT, "vsix"], capture_output=True, text=True, check=False)
    if done.returncode and re.search(r"ENOTFOUND|ETIMEDOUT|ECONNREFUSED|EAI_AGAIN|E404|network", done.stderr):
        pytest.skip("npm cannot reach its packages from here")
    assert done.returncode == 0, done.stderr
    (built,) = (ROOT / "build" / "vscode").glob("*.vsix")
    with zipfile.ZipFile(built) as file:
        names = set(file.namelist())
        file.extractall(tmp_path)
    assert {n for n in names if n.startswith("extension/")} == {
        f"extension/{n}" for n in (
            "package.json", "readme.md", "language-configuration.json", "upl.tmLanguage.json", "dist/extension.js",
        )
    }  # fmt: skip
    assert built.stat().st_size < 1 << 20
    bundle = tmp_path / "extension" / "dist" / "extension.js"
    done = subprocess.run(["node", "-e", LOADS, bundle], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "activate,deactivate"), done.stderr
