# The commands; `make` alone lists them.
# The virtual environment is the project's own, made on first use; PYTHON chooses the interpreter it is made from.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: a copy of the requirements.txt that pip finished with. Contents are compared, not times: a second
# run installs nothing, and a switched branch only what its requirements change.
INSTALLED := $(VENV)/installed.txt
REQUIREMENTS := requirements.txt
WILD := .venv-wild
SITE := .venv-site
BENCH_ARGS ?=
EXPLORE_ARGS ?=
SCORE_ARGS ?=
# Modules of tests at a time. (With three on two cores it is hardly faster, and what tests time comes late.)
JOBS ?= 2
# Tests fork thousands of workers. With what Python and torch allocate in huge pages, a fork on Linux takes a fourth of
# its time: there are fewer pages to share. And what pytest compiles, it keeps for its next process.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BIN)/python -m pytest -q
ALONE = $(shell grep -rl --include='test_*.py' 'mark\.alone' tests)
VERSIONS_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check full lint types pytest docs format explore course lab notebooks mutants bench wild pictures score site dist setup clean distclean versions elsewhere

help: ## list these targets
	@echo "minidl: see inside PyTorch's DataLoader"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: setup ## the main job: a real load, watched live, then its timeline and report
	@trap : INT; $(BIN)/python -m tracing demo || [ $$? = 130 ]  # Ctrl-C ends it, and is no error

test: lint types pytest ## linter, type checker, all tests but those of make full

check: lint types ## the same without the slow tests, for the minutes between: 2 min on two cores
	@echo "== pytest"
	@$(PYTEST) -n $(JOBS) --dist loadscope -m "not slow and not full and not alone"

full: setup ## more of what the tests try a sample of: every notebook, every answer, all options; 9 min on two cores
	@$(PYTEST) -n $(JOBS) --dist loadscope -m full

lint: setup
	@echo "== ruff"
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check

types: setup
	@echo "== mypy"
	@$(BIN)/python -m mypy

pytest: setup
	@echo "== pytest"
	@failed=0; \
	$(PYTEST) -m "alone and not full" $(ALONE) || failed=1; \
	$(PYTEST) -n $(JOBS) --dist loadscope -m "not alone and not full" --durations 20 || failed=1; \
	exit $$failed

docs: setup ## rewrite what the pages in docs/ take from the code
	@$(BIN)/python -m docs.make

format: setup ## reformat the code, and mend what the linter can
	@$(BIN)/python -m ruff format
	@$(BIN)/python -m ruff check --fix

explore: setup ## the simulated world: every schedule within bounds, and many random ones: hours; EXPLORE_ARGS="--chance 100000"
	@$(BIN)/python -m tests.minidl.simulated.exploring $(EXPLORE_ARGS)

course: setup ## the exercises of the course: which are done, and the next one
	@$(BIN)/python -m notebooks.exercises list
	@echo "The notebooks: make lab"

lab: setup ## the notebooks of the course, in JupyterLab
	@$(BIN)/jupyter trust notebooks/*.ipynb >/dev/null
	@$(BIN)/jupyter lab notebooks/00-a-dataloader-on-one-page.ipynb

notebooks: setup ## run the notebooks of the course, and save their outputs; 2 min
	@$(BIN)/python -m notebooks.build

mutants: setup ## known bugs put into minidl and found again: the pictures and the table of docs/simulation.md
	@$(BIN)/python -m docs.make.mutants

score: setup ## how many of thousands of small changes to minidl the simulated world notices; an hour, SCORE_ARGS="--every 10" 4 min
	@$(BIN)/python -m tests.minidl.simulated.killing $(SCORE_ARGS)

bench: setup ## speed beside torch's loader; BENCH_ARGS=--quick for a rough look
	@$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

wild: setup ## ten frameworks under the tracer, three of them stopped in the middle; an environment of their own; 35 min
	@$(MAKE) --no-print-directory setup VENV=$(WILD) REQUIREMENTS=docs/frameworks/requirements.txt
	@$(WILD)/bin/python -c 'import torchvision' 2>/dev/null || $(WILD)/bin/python -m pip uninstall -qqy torchvision
	@$(WILD)/bin/python -m docs.make.frameworks
	@$(WILD)/bin/python -m docs.make.stops

versions: setup ## other versions of torch and Python: what holds beside each; large downloads, 40 min
	@$(BIN)/python -m docs.make.versions $(VERSIONS_ARGS)

site: setup ## a website in site/: docs, course, reference; an environment of its own; 2 min
	@$(MAKE) --no-print-directory setup VENV=$(SITE) REQUIREMENTS=docs/site/requirements.txt PYTHON=$(BIN)/python
	@$(SITE)/bin/python -m docs.make.site

elsewhere: setup ## without what only Linux has, as on a Mac: the demo, scripts under the tracer, exercises, tests; 5 min
	@$(BIN)/python -m docs.make.elsewhere

dist: setup ## the wheel and the source distribution in dist/, each tried in an environment of its own; large downloads, 6 min
	@$(BIN)/python -m docs.make.dist

PICTURES := docs/pictures
# The event that the step-through shows: the first of these batches to come too early.
define BUSY
import tracing
for k, event in enumerate(tracing.load("traces/pictures/demo").events):
    if event["kind"] == 38 and 12 <= event["task"] < 20:
        print(k)
        break
endef
export BUSY
BROWSER ?= $(shell command -v chromium chromium-browser google-chrome | head -n 1)

pictures: setup ## the other pictures in docs/, made by the tool itself; those of the step-through need Chromium
	@mkdir -p $(PICTURES)
	@$(BIN)/python -m docs.make.moving_picture $(PICTURES)/demo.gif
	@$(BIN)/python -m tracing demo --no-live -o traces/pictures/demo
	@$(BIN)/python -m tracing timeline traces/pictures/demo -o $(PICTURES)/demo-timeline.png --batches 10:34
	@$(BIN)/python -m tracing timeline traces/pictures/demo -o $(PICTURES)/demo-timeline.svg --batches 10:34
	@$(BIN)/python -m tracing live traces/pictures/demo --once --record $(PICTURES)/demo-live.svg >/dev/null
	@$(BIN)/python -m tracing step traces/pictures/demo --batches 10:34 -o docs/demo.html
	@$(BIN)/python -m docs.make.story
	@$(BIN)/python -m tracing step traces/pictures/demo --batches 10:20 -o traces/step.html
	@$(BROWSER) --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,860 \
	    --user-data-dir=traces/browser --virtual-time-budget=3000 --screenshot=$(PICTURES)/demo-step.png \
	    "file://$(CURDIR)/traces/step.html#k=$$($(BIN)/python -c "$$BUSY")" 2>/dev/null
	@$(BIN)/python -m tracing run -o traces/images docs/make/images.py >/dev/null
	@$(BIN)/python -m tracing timeline traces/images -o $(PICTURES)/images-timeline.png
	@mkdir -p traces/answers && $(BIN)/python -m notebooks.exercises.skeleton 07 no_buffer >traces/answers/07_next_in_order.py
	@MINIDL_ANSWERS=traces/answers $(BIN)/python -m notebooks.exercises check 07 >/dev/null || true
	@cp traces/answers/07_next_in_order.png $(PICTURES)/exercise.png
	@ls -l $(PICTURES)

setup: ## make .venv and install requirements.txt, if that is not done
	@if cmp -s $(REQUIREMENTS) $(INSTALLED) && $(BIN)/python -c '' 2>/dev/null; then exit 0; fi; \
	if ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	        { echo "error: $(PYTHON) is not Python 3.10 or newer; choose one: make PYTHON=python3.12" >&2; exit 1; }; \
	    $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	        { echo "error: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
	    echo "Making $(VENV) with $$($(PYTHON) --version)"; \
	    $(PYTHON) -m venv --clear $(VENV) || exit 1; \
	fi; \
	echo "Installing $(REQUIREMENTS) into $(VENV) (a few minutes the first time: torch is large)"; \
	begin=$$(date +%s); \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input -r $(REQUIREMENTS) || \
	    { echo "error: pip could not install $(REQUIREMENTS); the reason is above" >&2; exit 1; }; \
	: "A notebook runs in its own folder: the path file lets this Python find minidl from anywhere"; \
	$(BIN)/python -c 'import pathlib, site; pathlib.Path(site.getsitepackages()[0], "minidl.pth").write_text(str(pathlib.Path.cwd()))'; \
	cp $(REQUIREMENTS) $(INSTALLED); \
	echo "Installed in $$(($$(date +%s) - begin)) s"

clean: ## delete what the tools and the demo left behind, except the environments
	@rm -rf out traces build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache
	@find . -path './.venv*' -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## clean, and delete the environments
	@rm -rf $(VENV) $(WILD) $(SITE)
