# make demo | test | lint.  The environment is made once; stamp files keep repeated calls quick.

PYTHON ?= python3
VENV   ?= .venv
CC     ?= cc
BIN    := $(VENV)/bin
SIZE   ?= 512
DEMO   := build/demo

.PHONY: demo test lint clean

demo: $(VENV)/.stamp-tune
	@mkdir -p $(DEMO)
	cp corpus/matmul.c $(DEMO)/matmul.c
	$(BIN)/mdh-lift show $(DEMO)/matmul.c -- $(CC) -O3 -march=native -DM=$(SIZE) -DN=$(SIZE) -DK=$(SIZE)
	@# without -w: the expression, verification, speedup and the diff; exit status 1 says "a diff was found"
	$(BIN)/mdh-lift $(DEMO)/matmul.c -- $(CC) -O3 -march=native -DM=$(SIZE) -DN=$(SIZE) -DK=$(SIZE) || test $$? -eq 1

test: $(VENV)/.stamp-dev
	$(BIN)/pytest -n 2

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-tune: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[tune]'
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e '.[dev,tune]'
	@touch $@ $(VENV)/.stamp-tune

clean:
	rm -rf build/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
