# One verb per job, the same for people and CI. Every verb sets itself up in .venv and needs only Python >= 3.11, make and
# the package registries. Nothing here installs system packages; .ci/run does that, for CI.
#
#   make demo     the main job on a scripted agent, offline        make setup    .venv from the locked list (the others call it)
#   make test     all tests that this machine can run              make check    format, lint, types, who imports whom
#   make bench    the budgets, measured                           make fix      format and fix what a tool can fix
#   make test-all the dear tests too: Harbor, aider and others; says what it could not run and why
#   make e2e      only the tests with real clients                 make lock     write the locked list anew from pyproject.toml
#   make matrix   every cause and look-alike done for real, and what fairtrial made of it
#   make harnesses  docs/harnesses.md anew, by real runs of half an hour (ARGS="--only 'Harbor, oracle'": those rows, the others stay)
#   make e2e-tools  the real clients that tests/e2e drives         make jaeger   a Jaeger to look at traces (STORAGE=badger keeps them)
#   make jaeger-build  only build it, for the tests, where Go is   make clean    remove what these verbs made
#   make actionlint-build  the linter of GitHub workflows, for the tests, where Go is
#   make ci-programs-build  act, gitlab-ci-local and Jenkins' Groovy, for the tests of deploy/

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.fairtrial-setup
LOCK := requirements/dev.txt

# A name on PATH may be a shim that fails, or too old: each candidate is run before it is believed.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python /usr/bin/python3; do \
	"$$p" -c 'import sys, ssl, sqlite3; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { command -v "$$p"; break; }; done; true)

# Left to themselves these two tools look for newer versions of themselves, which is noise.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help setup demo test test-all matrix harnesses e2e e2e-tools jaeger jaeger-build actionlint-build ci-programs-build check fix bench lock clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)
	@:

# The stamp holds the checksum of what was installed: touching a file installs nothing, changing it does.
$(STAMP): pyproject.toml $(LOCK) Makefile
	@want="$$(cat pyproject.toml $(LOCK) | cksum) $(CURDIR)"; \
	if [ -f $@ ] && [ "$$(cat $@)" = "$$want" ] && $(BIN)/python -c 'import fairtrial' 2>/dev/null; then touch $@; exit 0; fi; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		[ -n "$(PYTHON)" ] || { echo "make: no Python 3.11 or newer that runs was found; install one or say make PYTHON=/path/to/python3" >&2; exit 1; }; \
		"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is not Python 3.11 or newer, or does not run" >&2; exit 1; }; \
		echo "setup: $(VENV) with $(PYTHON)"; \
		"$(PYTHON)" -m venv --clear $(VENV) 2>/dev/null || { \
			"$(PYTHON)" -m venv --clear --without-pip $(VENV) && "$(PYTHON)" -m pip --python $(BIN)/python install --quiet pip; } || { \
			echo "make: $(PYTHON) can make no virtual environment (on Debian: apt-get install python3-venv)" >&2; exit 1; }; \
	fi; \
	[ -e fairtrial/middleware/core/__init__.py ] || { echo "make: the links in fairtrial/ are missing; clone with symlink support (git config core.symlinks true)" >&2; exit 1; }; \
	echo "setup: installing the locked list ($(LOCK))"; \
	$(BIN)/python -m pip install --quiet --require-hashes -r $(LOCK); \
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	echo "$$want" > $@

demo: setup
	@$(BIN)/fairtrial demo

# ARGS goes to pytest: make test ARGS='tests/middleware -k framing'
test: setup
	@$(BIN)/python -m pytest $(ARGS)

# What could not be installed is said by tools.sh; the tests that need it are in the list of skips at the end.
test-all: setup
	@bash tests/e2e/tools.sh || true
	@bash tests/e2e/tools.sh harbor inspect engine claude-newer agent-sdk aider || true
	@FAIRTRIAL_ALL=1 $(BIN)/python -m pytest -rs $(ARGS)

# ARGS: names or families of scenarios, --told, --at-once N
matrix: setup
	@$(BIN)/python -m tests.matrix $(ARGS)

e2e: setup e2e-tools
	@$(BIN)/python -m pytest tests/e2e $(ARGS)

e2e-tools: setup
	@bash tests/e2e/tools.sh

# What tools.sh could not install stands in the page as not run, with the reason.
harnesses: setup e2e-tools
	@bash tests/e2e/tools.sh harbor claude-newer inspect engine || true
	@$(BIN)/python -m tests.e2e.harness_table $(ARGS) > docs/harnesses.md.new
	@mv docs/harnesses.md.new docs/harnesses.md

# JAEGER_BIN names one that is there already.
jaeger:
	@bash deploy/jaeger/start.sh

jaeger-build:
	@[ -n "$${JAEGER_BIN:-}" ] || bash tests/jaeger.sh

# No registry but Go's has it whole; a minute once.
actionlint-build:
	@[ -x .cache/actionlint/actionlint ] || GOBIN=$(CURDIR)/.cache/actionlint go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

ci-programs-build:
	@bash tests/deploy/ci_programs.sh

check: setup
	@failed=""; \
	for step in "ruff format --check ." "ruff check ." "mypy" "pyright" "lint-imports"; do \
		echo "check: $$step"; \
		$(BIN)/$$step || failed="$$failed; $$step"; \
	done; \
	[ -z "$$failed" ] || { echo "check: failed:$${failed#;}" >&2; exit 1; }

fix: setup
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

bench: setup
	@$(BIN)/python -m tests.bench $(ARGS)

# uv resolves for every platform and Python >= 3.11 at once; it lives apart, the lock is its only trace here.
LOCK_OPTIONS := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock:
	@[ -x .cache/lock/bin/uv ] || { "$(PYTHON)" -m venv .cache/lock && .cache/lock/bin/python -m pip install --quiet uv; }
	@.cache/lock/bin/uv pip compile $(LOCK_OPTIONS) pyproject.toml --group dev --group e2e -o $(LOCK) $(ARGS)
	@.cache/lock/bin/uv pip compile $(LOCK_OPTIONS) pyproject.toml -c $(LOCK) -o requirements/runtime.txt $(ARGS)
	@.cache/lock/bin/uv pip compile $(LOCK_OPTIONS) -c $(LOCK) --group build -o requirements/build.txt $(ARGS)

clean:
	rm -rf $(VENV) .cache .e2e .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage dist build
