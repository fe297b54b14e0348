# make demo | test | lint.  Each makes the environment first; stamp files keep repeated calls quick.

PYTHON ?= python3
VENV   ?= .venv
CC     ?= cc
BIN    := $(VENV)/bin
SIZE   ?= 512
DEMO   := build/demo
FLAGS  := -O3 -march=native -DM=$(SIZE) -DN=$(SIZE) -DK=$(SIZE)

.PHONY: demo test lint clean

# All that the demo writes, its lock file and database included, lies in build/demo: that is where the
# configuration file is.  `-w` fails where nothing could be verified or nothing became faster.
demo: $(VENV)/.stamp-tune
	@mkdir -p $(DEMO)
	@echo 'schema = 1' > $(DEMO)/mdh-lift.toml
	cp corpus/matmul.c $(DEMO)/matmul.c
	$(BIN)/mdh-lift -w $(DEMO)/matmul.c -- $(CC) $(FLAGS)
	diff -u corpus/matmul.c $(DEMO)/matmul.c || test $$? -eq 1
	$(CC) $(FLAGS) -fopenmp $(DEMO)/matmul.c -o $(DEMO)/matmul
	$(DEMO)/matmul

test: $(VENV)/.stamp-dev
	$(BIN)/pytest -n 2 --dist worksteal --durations 40

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'mdh-lift needs Python 3.11 or later: make PYTHON=... $(MAKECMDGOALS)' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2> /dev/null || \
	  { echo 'this Python cannot make virtual environments: install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-tune: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[tune]'
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[dev,tune]'
	@touch $@ $(VENV)/.stamp-tune

clean:
	rm -rf build/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
