# Everything here needs only make and a Python of 3.11 or newer: what else is used
# is installed into .venv, in the versions of requirements-dev.lock, once.
#
#   make test PYTHON=python3.12     another Python for a new .venv
#   make serve ARGS="--journal sqlite:///warm.db"

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help
# The steps of `make test` print one after the other, in this order.
.NOTPARALLEL:

BIN := $(VENV)/bin
# python -m pip and not the pip script: a script's first line holds a path that may be
# longer than the kernel takes.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
# What may only be added to: the contract, and what journals store. The images in
# proto/released are as these were last released; `make proto-release` renews them.
PROTO_PACKAGES := warmindex.v1 warmindex.storage.v1
RELEASED := proto/released
UV_VERSION := >=0.8

# ---------------------------------------------------------------------------- use

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.PHONY: demo
demo: $(VENV)/.run ## show what warmindex does: a server, a subscriber, cold and warm, removals
	@$(BIN)/warmindex demo $(ARGS)

.PHONY: demo-kv
demo-kv: $(VENV)/.demo-kv ## show what LookupRoute saves four engines; writes demo-kv.png
	@$(BIN)/warmindex-subscriber demo-kv $(ARGS)

.PHONY: serve
serve: $(VENV)/.run ## run a server on 127.0.0.1:50151, HTTP on 127.0.0.1:9151
	@exec $(BIN)/warmindex-server $(ARGS)

# -------------------------------------------------------------------------- checks

.PHONY: test
test: lint types imports proto-lint proto-breaking ## every check and every test, as CI runs them
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: check
check: lint types imports ## the quick loop: lint, types, imports, all tests but the slow ones
	@$(BIN)/python -m pytest -q -m "not slow" $(ARGS)

.PHONY: soak
soak: $(VENV)/.dev ## servers, producers and watchers under faults: ARGS="--minutes 30", "--seed N"
	@cd tests && exec $(abspath $(BIN))/python -m soak $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## ruff: rules and format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }

.PHONY: format
format: $(VENV)/.dev ## let ruff mend and format what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: $(VENV)/.dev ## mypy, strict
	@$(BIN)/mypy

.PHONY: imports
imports: $(VENV)/.dev ## import-linter: which part may import which
	@$(BIN)/lint-imports --no-logo

# -------------------------------------------------------------------------- bench

.PHONY: bench
bench: $(VENV)/.dev ## run the benchmarks and write docs/benchmarks.md
	@$(BIN)/python bench/run.py $(ARGS)

.PHONY: bench-peers
bench-peers: ## beside peers that have an environment of their own (.venv-peers)
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet -e . -r bench/peers.txt
	@.venv-peers/bin/python bench/kv_index.py

.PHONY: bench-search
bench-search: $(VENV)/.dev ## how often search finds the right tool, into docs/search.md
	@$(BIN)/python bench/search_quality.py --write --rerank

# ------------------------------------------------------------------------ contract

.PHONY: proto
proto: $(VENV)/.dev ## generate the stubs in lib/warmindex/v1 from proto/
	@PYTHON=$(BIN)/python scripts/proto.sh

.PHONY: proto-lint
proto-lint: $(VENV)/.dev ## buf lint: names, and a comment on everything
	@$(BIN)/buf lint

.PHONY: proto-breaking
proto-breaking: $(VENV)/.dev ## buf breaking: nothing that was released may change
	@for image in $(RELEASED)/*.yaml; do \
	  $(BIN)/buf breaking --against "$$image"; \
	done

.PHONY: proto-release
proto-release: proto-lint proto-breaking ## make today's contract the released one: part of a release only
	@for package in $(PROTO_PACKAGES); do \
	  $(BIN)/buf build --path "proto/$${package//.//}" --exclude-source-info \
	    -o "$(RELEASED)/$$package.yaml"; \
	done
	@git --no-pager diff --stat -- $(RELEASED)

# --------------------------------------------------------------------- environment

.PHONY: install
install: $(VENV)/.dev ## make .venv with everything that development needs

# Keeps the pins that still fit; `make lock ARGS=--upgrade` renews them all.
.PHONY: lock
lock: ## renew requirements-dev.lock after a change of the dependencies
	@scripts/check_python.sh $(PYTHON)
	@$(PYTHON) -m venv build/lock-tool
	@build/lock-tool/bin/python -m pip --disable-pip-version-check --quiet install "uv$(UV_VERSION)"
	@UV_CUSTOM_COMPILE_COMMAND="make lock" build/lock-tool/bin/uv pip compile pyproject.toml \
	  --all-extras --group dev --universal --python-version 3.11 \
	  --no-emit-index-url --quiet --output-file requirements-dev.lock $(ARGS)

.PHONY: clean
clean: ## remove what the tools left, .venv included
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says that a step is done; an interrupted step is simply done again.

$(VENV)/.made:
	@scripts/check_python.sh $(PYTHON)
	@echo "Making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade "pip>=25.3"
	@touch $@

# What a user runs: the package and the local embedder, no development tools.
$(VENV)/.run: $(VENV)/.made pyproject.toml requirements-dev.lock
	@echo "Installing warmindex into $(VENV), once …"
	@$(PIP) install --constraint requirements-dev.lock --build-constraint requirements-dev.lock \
	  --editable '.[local]'
	@touch $@

$(VENV)/.demo-kv: $(VENV)/.made pyproject.toml requirements-dev.lock
	@echo "Installing warmindex and what its demo of routes needs into $(VENV), once …"
	@$(PIP) install --constraint requirements-dev.lock --build-constraint requirements-dev.lock \
	  --editable '.[kv,demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml requirements-dev.lock
	@echo "Installing warmindex and its development tools into $(VENV), once …"
	@$(PIP) install --constraint requirements-dev.lock --build-constraint requirements-dev.lock \
	  --editable '.[all]' --group dev
	@touch $(VENV)/.run $(VENV)/.demo-kv $@
