# Each target sets up what it needs in .venv; PYTHON picks the interpreter that makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-fast lint bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/roost plan examples/heterogeneous.yaml --inventory examples/heterogeneous_cluster.yaml

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest

test-fast: $(READY)
	$(BIN)/python -m pytest -m "not ray and not netns"

bench: $(READY)
	$(BIN)/python benchmarks/plan_scale.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .import_linter_cache
