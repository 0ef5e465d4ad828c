# Every verb sets itself up: the first one makes .venv and installs what the project needs (scripts/setup says what).
#
#   RECIPE=FILE.toml       what make train trains; empty for the defaults of stepcredit train
#   GAMES=PATH             official household games to evaluate on as well; by default $ALFWORLD_DATA or ../shared/data
#   ARGS='…'               options of the verb: make train ARGS='--updates 20', make test ARGS='-k gigpo'
#   PYTHON=python3.12      another interpreter for .venv, 3.11 or newer
#   TORCH='torch==X …'     another torch requirement for .venv, pip options included

READY := .venv/.ready
RECIPE ?= examples/recipes/household-tiny.toml
GAMES ?= $(or $(ALFWORLD_DATA),$(wildcard ../shared/data/alfworld/games.jsonl.gz))
OFFICIAL := --also-evaluate.valid_seen_real '{games = "$(abspath $(GAMES))", split = "valid_seen", horizon = 50}'

export PYTHON TORCH

.DEFAULT_GOAL := help
.PHONY: help setup train test check docs bench clean

help: ## list the verbs
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile | expand -t 16

setup: $(READY) ## make .venv only

$(READY): pyproject.toml requirements/constraints.txt scripts/setup
	scripts/setup

train: $(READY) ## train the tiny agent and print success by family, before and after
	.venv/bin/stepcredit train $(RECIPE) $(if $(GAMES),$(if $(findstring household,$(RECIPE)),$(OFFICIAL))) $(ARGS)

test: check ## everything that must hold: scripts/check, the test suite, the suites inside verl, TRL and others
	scripts/test $(ARGS)
	$(if $(ARGS),,scripts/test-engines)

check: $(READY) ## style, types, import order, sizes, project rules, documentation
	scripts/check

docs: $(READY) ## build the documentation into site/
	scripts/docs

bench: ## list the benchmarks
	@for file in benchmarks/*.py; do printf '%-34s %s\n' "$$file" "$$(sed -n '1s/"""//gp' "$$file")"; done
	@echo "Run one with .venv/bin/python FILE; each says its options with --help."

clean: ## remove .venv, those of the engines, and everything built; runs/ stays
	rm -rf .venv .venv-* site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
