"""Configuration of lit for `test/filecheck`: which files are tests, which tools they find, where they write.

Run as `.venv/bin/lit -v test/filecheck` from the root of the repository; lit finds this file by going upwards.
`%examples` in a RUN line is the folder of the example programs, `%python` the interpreter. Tools run as forks of
one server (test/support/tool_server.py), which saves their start; `%installed/upl` is the installed command. Products go
to `build/lit`.
"""

import atexit
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lit.formats

ROOT = Path(__file__).resolve().parent.parent

config.name = "upl-mlir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".upl", ".test"]
config.excludes = ["Inputs"]  # files that tests read, but that are no tests
config.test_source_root = str(ROOT / "test")
config.test_exec_root = str(ROOT / "build" / "lit")
Path(config.test_exec_root).mkdir(parents=True, exist_ok=True)

# The tools of the environment that lit itself runs in. The path of the interpreter is not resolved: in a virtual
# environment it is a link to one outside.
tools = Path(sys.executable).parent
for tool in ("upl-opt", "upl", "filecheck"):
    if shutil.which(tool, path=str(tools)) is None:
        lit_config.fatal(f"{tool} is not in lit's environment: run 'make test', or 'pip install -e .[dev]'")

config.environment["PYTHONPATH"] = str(ROOT)  # the package of this checkout, wherever the tools were installed from

# What is printed must not depend on who runs it.
config.environment["NO_COLOR"] = "1"
config.environment["COLUMNS"] = "120"
config.environment["LC_ALL"] = "C.UTF-8"
config.environment["PYTHONHASHSEED"] = "0"

config.substitutions.append((r"%examples\b", str(ROOT / "examples")))
config.substitutions.append((r"%python\b", sys.executable))
config.substitutions.append((r"%installed\b", str(tools)))

server = subprocess.Popen(
    [sys.executable, str(ROOT / "test" / "support" / "tool_server.py")],
    stdout=subprocess.PIPE,
    text=True,
    env={**config.environment, "OPENBLAS_NUM_THREADS": "1"},  # it forks, hence must have no threads
)
atexit.register(server.wait)
atexit.register(server.terminate)  # the last one registered is called first
commands = server.stdout.readline().strip()
if not commands:
    lit_config.fatal("the server of the tools has not started")
config.environment["PATH"] = os.pathsep.join([commands, os.environ.get("PATH", "")])
