# Each target sets up what it needs in .venv; PYTHON picks the interpreter that makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-fast test-torch test-router test-versions test-tools test-browser soak fuzz lint site bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib src  # on all cores; pip uses one, and leaves out src
	touch $(READY)

# Trains a policy in two arrangements; `make demo KILL=rollout:1@5` kills an engine on the way.
DEMO = $(if $(KILL),training.kill=$(KILL))
demo: $(READY)
	$(BIN)/roost plan examples/heterogeneous.yaml --inventory examples/heterogeneous_cluster.yaml
	cd examples/keydoor && ../../$(BIN)/roost launch colocated.yaml --on 2x4 $(DEMO)
	cd examples/keydoor && ../../$(BIN)/roost launch disaggregated.yaml --on 2x4 $(DEMO)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# With the linters.
test: $(READY)
	$(BIN)/python tests/everything.py

# A few that start several Rays of their own, one after the other. Those of Slurm need slurm-wlm, munge and root.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# What needs programs of Debian: the sbatch script on a real Slurm of three nodes (slurm-wlm, munge, root), about a
# minute that it mostly waits, and pictures through librsvg (librsvg2-bin).
test-tools: $(READY)
	$(BIN)/python -m pytest -m slow tests/bringup tests/views

test-fast: $(READY)
	$(BIN)/python -m pytest -m "not ray and not netns and not torch and not router and not browser and not soak"

# Random faults for ten minutes, and what else takes minutes: `make soak ROOST_SOAK_SECONDS=60 ROOST_SEED=2`.
soak: $(READY)
	ROOST_SOAK_SECONDS=$(or $(ROOST_SOAK_SECONDS),600) ROOST_SEED=$(or $(ROOST_SEED),1) ROOST_EXAMPLES=3000 \
		$(BIN)/python -m pytest -s -m soak tests/soak
	ROOST_EXAMPLES=3000 $(BIN)/python -m pytest tests/supervision tests/suggesting

# Coverage-guided fuzzing of what reads job files: `make fuzz FUZZ_SECONDS=60`.
fuzz: $(READY)
	ROOST_BATCH=2000 $(BIN)/python -m pytest tests/test_hostile.py
	$(BIN)/python tests/fuzz.py $(or $(FUZZ_SECONDS),600) $(or $(ROOST_SEED),1)

# The version is spelt out because that spelling is a CPU build where one is at hand.
$(VENV)/.torch: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	touch $(VENV)/.torch

test-torch: $(VENV)/.torch
	$(BIN)/python -m pytest -m torch tests/torch

$(VENV)/.router: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt sglang-router
	touch $(VENV)/.router

test-router: $(VENV)/.router
	$(BIN)/python -m pytest -m router tests/rl tests/test_docs.py

# The live page in a real browser: `apt-get install chromium`.
test-browser: $(READY)
	$(BIN)/python -m pytest -m browser tests/web

# The lowest and the newest dependencies, without Ray: `make test-versions VERSIONS="3.10-lowest 3.13-newest"`,
# or all of them for the interpreters that are at hand.
test-versions: $(READY)
	$(BIN)/python tests/versions.py $(VERSIONS)

# The documentation as pages that open from a folder: build/site/index.html.
site: $(READY)
	$(BIN)/python docs/site/site_pages.py build/site

bench: $(READY) $(VENV)/.router
	$(BIN)/python benchmarks/plan_scale.py
	$(BIN)/python benchmarks/answer_time.py
	$(BIN)/python benchmarks/suggest.py
	$(BIN)/python benchmarks/connect.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/calls.py
	$(BIN)/python benchmarks/values.py
	$(BIN)/python benchmarks/channel.py
	$(BIN)/python benchmarks/pool_order.py
	$(BIN)/python benchmarks/train_group.py
	$(BIN)/python benchmarks/router.py

clean:
	rm -rf $(VENV) .venv-versions build dist .mypy_cache .ruff_cache .import_linter_cache
