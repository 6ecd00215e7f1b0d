# Everything begins with `make setup`: .venv with the locked dependencies, and `.venv/bin/cragline`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One file or folder of tests: make test T=tests/unit/api
T ?= tests
# How many processes test at once; each has servers of its own. N=0: this one alone, to debug.
N ?= auto
# Where this is set, every start would compile LangGraph anew, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-unit lint types migrations docs check lock compose-test chaos clean

setup: $(VENV)/.locked

# The stamp holds the digests of what was installed, so that a pull that changes the lock file installs again.
$(VENV)/.locked: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Cragline needs Python 3.11 or newer; choose one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "installing the locked dependencies into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[^ ]+' requirements.lock)"
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup
	@$(BIN)/python docs/demo.py

test: setup
	$(BIN)/python -m pytest -n $(N) --maxprocesses 4 --dist loadgroup --no-loadscope-reorder $(T)

# No server, no network: less than a minute.
test-unit: setup
	$(BIN)/python -m pytest -n $(N) --maxprocesses 4 tests/unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup
	$(BIN)/mypy

# One head, up and down with data present, models match.
migrations: setup
	$(BIN)/python -m pytest tests/migrations

# The generated pages: settings, command line, schema, history (which needs a database of its own for it).
docs: setup
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/history_page.py

check: lint types test

# After changing the dependencies in pyproject.toml.
lock:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--group pyproject.toml:dev pyproject.toml --output-file requirements.lock

# Messages and workers in 300 random orders, some minutes; then the long form of tests/chaos: 500 questions a seed
# while workers and servers are killed. Hours for many seeds.
SEEDS ?= 1
chaos: setup
	$(BIN)/python -m pytest --hypothesis-profile chaos tests/integration/runner/test_any_order.py
	$(BIN)/python -m tests.chaos --trials $(SEEDS)

compose-test:
	bash tests/compose/run.sh

clean:
	rm -rf $(VENV) .cragline .mypy_cache .ruff_cache .pytest_cache
