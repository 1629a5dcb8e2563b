# Two commands for a newcomer: `make quickstart` and `make test`. Each builds .venv when it is not there or out of date.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test lint types imports tests format clean

quickstart: .venv/installed
	$(BIN)/sweep run studies/quickstart.yaml

test: lint types imports tests

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

imports: .venv/installed
	$(BIN)/lint-imports

tests: .venv/installed
	$(BIN)/python -m pytest

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One environment for both: torch first, by itself, so that pip takes the pinned build and no other.
# azure-ai-evaluation last, without its dependencies, as it asks for pandas<3: the dev group has the others it imports.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps azure-ai-evaluation
	touch $@

clean:
	rm -rf .venv .sweep .mypy_cache .ruff_cache .pytest_cache .hypothesis
