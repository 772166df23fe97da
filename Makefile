# One command each. `make` alone lists them.
# The virtual environment is the project's own, made on first use; PYTHON chooses the interpreter it is made from.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: a copy of the requirements.txt that pip finished with. Comparing contents, not times, a
# second run installs nothing, and a fresh clone or a switched branch installs only when the requirements differ.
INSTALLED := $(VENV)/installed.txt
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint types pytest docs format bench pictures setup clean distclean

help: ## list these targets
	@echo "minidl: see inside PyTorch's DataLoader"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: setup ## the main job: a real load, watched live, then its timeline and report
	@$(BIN)/python -m tracing demo

test: lint types pytest ## linter, type checker, tests

lint: setup
	@echo "== ruff"
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check

types: setup
	@echo "== mypy"
	@$(BIN)/python -m mypy

pytest: setup
	@echo "== pytest"
	@$(BIN)/python -m pytest -q -n 2 -m "not alone"
	@$(BIN)/python -m pytest -q -m alone

docs: setup ## rewrite the pages that are made from the code
	@$(BIN)/python -m tracing.vocabulary > docs/events.md

format: setup ## rewrite the code as the linter wants it
	@$(BIN)/python -m ruff check --fix
	@$(BIN)/python -m ruff format

bench: setup ## speed beside torch's loader, some 4 minutes; BENCH_ARGS=--quick for a rough look
	@$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

pictures: setup ## the pictures in docs/pictures, made by the tool itself from a run of the demo
	@mkdir -p docs/pictures
	@$(BIN)/python -m tracing demo --no-live -o traces/pictures
	@$(BIN)/python -m tracing timeline traces/pictures -o docs/pictures/demo-timeline.png --batches 10:34
	@$(BIN)/python -m tracing timeline traces/pictures -o docs/pictures/demo-timeline.svg --batches 10:34
	@$(BIN)/python -m tracing live traces/pictures --once --record docs/pictures/demo-live.svg >/dev/null
	@ls -l docs/pictures

setup: ## make .venv and install requirements.txt; nothing to do the second time
	@if cmp -s requirements.txt $(INSTALLED) && $(BIN)/python -c '' 2>/dev/null; then exit 0; fi; \
	if ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	        { echo "error: $(PYTHON) is not Python 3.10 or newer; choose one: make PYTHON=python3.12" >&2; exit 1; }; \
	    $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	        { echo "error: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
	    echo "Making $(VENV) with $$($(PYTHON) --version)"; \
	    $(PYTHON) -m venv --clear $(VENV) || exit 1; \
	fi; \
	echo "Installing requirements.txt into $(VENV) (some minutes the first time: torch is large)"; \
	begin=$$(date +%s); \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input -r requirements.txt || \
	    { echo "error: pip could not install requirements.txt; its reason stands above" >&2; exit 1; }; \
	cp requirements.txt $(INSTALLED); \
	echo "Installed in $$(($$(date +%s) - begin)) s"

clean: ## delete what the tools and the demo left, but not .venv
	@rm -rf out traces build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## clean, and delete .venv
	@rm -rf $(VENV)
