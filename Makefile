# Everything a user or a contributor runs. Needs Python 3.11 or newer and a C++ compiler; the rest is installed
# into .venv, from what pyproject.toml says. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
# Extra arguments, for example: make test PYTEST_ARGS='-k matching' LIT_ARGS='--filter errors'
PYTEST_ARGS ?=
LIT_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
MINUTES ?= 5
SOAK_ARGS ?=

# Installs `.[$(1)]` with one line per package in place of pip's output; errors are shown in full.
define install
	$(BIN)/python -m pip install --disable-pip-version-check --no-input -e '.[$(1)]' \
	  | sed -u -n -e 's/^Collecting \([^ ]*\).*/    \1/p' -e 's/^Building \(.*\)/    building \1/p' \
	              -e 's/^Installing collected packages.*/    installing/p'
endef

.PHONY: help demo test test-slow lint lit oracle bench machine-table circuit-table circuit-model fp-table docs vsix clean distclean setup soak reliability mutants

help: ## this list
	@echo "upl-mlir: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

setup: .venv/.installed ## make .venv and install the package with its tools into it

demo: .venv/.installed ## the main job: check, differentiate, run on interpreter and hardware, train in software and on a circuit
	@$(BIN)/python examples/demo.py $(DEMO_ARGS)

test: .venv/.installed ## lint and lit (the tools) side by side, then pytest (everything else)
	@$(MAKE) --no-print-directory -j2 -Otarget lint lit
	@echo "==> pytest"
	@$(BIN)/python -m pytest -q $(PYTEST_ARGS)

lit: .venv/.installed
	@echo "==> lit"
	@$(BIN)/lit -s -v $(LIT_ARGS) test/filecheck

test-slow: .venv/.installed ## the tests that `make test` leaves out for time: machines of their own, sweeps, seeded bugs
	@$(BIN)/python -c 'import mpi4py' 2>/dev/null || $(call install,mpi) || \
	  echo "MPI could not be installed: the tests on several ranks will be skipped"
	@$(BIN)/python -m pytest -q -m slow $(PYTEST_ARGS)

soak: .venv/.installed ## a million operands for each floating-point unit, random programs for MINUTES=5 (goes on where it stopped; failures are made smaller and saved)
	@PYTHONPATH=test/hw $(BIN)/python -m soak_fp --minutes 0
	@PYTHONPATH=test $(BIN)/python -m agreement.soak --minutes $(MINUTES) $(SOAK_ARGS)

reliability: .venv/.installed ## RELIABILITY.md from the ledger of all soaks; failures that are open are tried again
	@PYTHONPATH=test $(BIN)/python -m agreement.reliability

mutants: .venv/.installed ## bugs seeded into the compiler, each with its test; sets made too large; then MINUTES=5 of the mutation score
	@PYTHONPATH=test $(BIN)/python -m mutation.seeded
	@PYTHONPATH=test $(BIN)/python -m mutation.hulls
	@PYTHONPATH=test $(BIN)/python -m mutation.covered
	@PYTHONPATH=test $(BIN)/python -m mutation.score --minutes $(MINUTES)

lint: .venv/.installed ## ruff and basedpyright
	@echo "==> ruff"
	@$(BIN)/ruff check --quiet .
	@echo "==> basedpyright"
	@$(BIN)/basedpyright --level error

oracle: .venv/.installed ## what is compared with JAX, which is installed for it (the extra `oracle`)
	@$(call install,oracle)
	@$(BIN)/python -m pytest -q $(PYTEST_ARGS) $$(grep -rl 'importorskip("jax"' test)

bench: .venv/.installed ## benchmarks, with peers beside us (the extra `bench`)
	@$(call install,bench)
	@$(BIN)/python bench/run.py $(BENCH_ARGS)

machine-table: .venv/.installed ## docs/machine_table.md: the perceptron's training on machines of 1 to 16 cores (extra `synth`)
	@$(call install,synth)
	@$(BIN)/python bench/machine_table.py $(BENCH_ARGS)

circuit-table: .venv/.installed ## docs/circuit_table.md: programs as circuits, routed, beside the token machine and native code (extra `synth`)
	@$(call install,synth)
	@$(BIN)/python bench/circuit_table.py $(BENCH_ARGS)

circuit-model: .venv/.installed ## docs/circuit_model.md: estimated areas of circuits beside synthesised ones (extra `synth`)
	@$(call install,synth)
	@$(BIN)/python bench/circuit_model.py $(BENCH_ARGS)

fp-table: .venv/.installed ## the table in docs/fp.md: the floating-point units, routed (extra `synth`)
	@$(call install,synth)
	@$(BIN)/python bench/fp_units.py

docs: .venv/.installed ## the site, in build/docs/html (the extra `docs`)
	@$(call install,docs)
	@$(BIN)/python docs/reference.py
	@$(BIN)/sphinx-build -q -W -b html docs build/docs/html
	@echo "build/docs/html/index.html"

vsix: ## the extension for Visual Studio Code, build/vscode/upl-language-VERSION.vsix (needs npm; see docs/editors.md)
	@command -v npm >/dev/null || { echo "make: npm not found: install Node.js 20 or newer" >&2; exit 1; }
	@mkdir -p build/vscode
	@cp -R editors/vscode/. build/vscode
	@cd build/vscode && npm install --silent --no-audit --no-fund && npm run --silent package
	@ls build/vscode/*.vsix

gallery: .venv/.installed ## the pictures and pages in docs/gallery, from examples/
	@$(BIN)/python docs/gallery/make.py

clean: ## remove what builds and tests leave behind
	@rm -rf build dist .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find . -path ./.venv -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## the same, and .venv
	@rm -rf .venv

# Some systems (Debian and those made from it) package a Python that cannot make environments with pip in them.
# Where such a Python has pip itself, that one is used; where not, say what to install.
.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "make: $(PYTHON) not found: install Python 3.11 or newer, or give one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $$($(PYTHON) --version) is too old: give Python 3.11 or newer, as in: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "==> making .venv with $$($(PYTHON) --version)"
	@if $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
	  $(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }; \
	elif $(PYTHON) -c 'import venv, pip' 2>/dev/null; then \
	  $(PYTHON) -m venv --without-pip .venv; \
	  $(PYTHON) -m pip --python .venv/bin/python install --quiet --disable-pip-version-check pip || { rm -rf .venv; exit 1; }; \
	else \
	  echo "make: this Python cannot make virtual environments: its module 'venv' or 'ensurepip' is missing." >&2; \
	  echo "      On Debian and Ubuntu: apt-get install python3-venv   (then run make again)" >&2; \
	  exit 1; \
	fi

.venv/.installed: pyproject.toml | .venv/bin/python
	@echo "==> installing upl-mlir and its tools into .venv (a minute or two the first time)"
	@$(call install,dev)
	@$(BIN)/python -m compileall -q upl_mlir
	@touch $@
