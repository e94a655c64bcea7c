# `make demo` and `make test` are all a fresh machine with python3 and make needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint format types pytest bench parity clean

$(READY): pyproject.toml requirements-dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(READY)
	$(BIN)/ruff check --fix-only -q
	$(BIN)/ruff format

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	$(BIN)/pytest -n auto

test: lint types pytest
