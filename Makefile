# Each target sets up what it needs in .venv; PYTHON picks the interpreter that makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-fast test-torch test-versions lint bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/roost plan examples/heterogeneous.yaml --inventory examples/heterogeneous_cluster.yaml
	cd examples && ../$(BIN)/roost launch three_components.yaml --on 2x4

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python tests/everything.py

# A few that start several Rays of their own, one after the other.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

test-fast: $(READY)
	$(BIN)/python -m pytest -m "not ray and not netns and not torch"

# The version is spelt out because that spelling is a CPU build where one is at hand.
$(VENV)/.torch: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0 numpy
	touch $(VENV)/.torch

test-torch: $(VENV)/.torch
	$(BIN)/python -m pytest -m torch

# The lowest and the newest dependencies, without Ray: `make test-versions VERSIONS="3.10-lowest 3.13-newest"`,
# or all of them for the interpreters that are at hand.
test-versions: $(READY)
	$(BIN)/python tests/versions.py $(VERSIONS)

# Arrays are what large values usually are; roost itself does not need numpy.
$(VENV)/.numpy: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt numpy
	touch $(VENV)/.numpy

bench: $(VENV)/.numpy
	$(BIN)/python benchmarks/plan_scale.py
	$(BIN)/python benchmarks/connect.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/calls.py
	$(BIN)/python benchmarks/values.py
	$(BIN)/python benchmarks/pool_order.py
	$(BIN)/python benchmarks/train_group.py

clean:
	rm -rf $(VENV) .venv-versions build dist .mypy_cache .ruff_cache .import_linter_cache
