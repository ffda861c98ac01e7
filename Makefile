# The project's words: install, demo, test, check, bench, check-card.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# `soak` is the long form of the crash tests; `check-card-wheels` packs what check-card needs on a machine without network.
.PHONY: install demo services test check bench check-card check-card-wheels soak format

install: $(STAMP)

$(STAMP): pyproject.toml studies/pyproject.toml requirements/lock.txt requirements/assets.txt
	@test -x $(BIN)/python || $(PY) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lock.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/assets.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e . -e studies
	@touch $@

demo: install
	@$(BIN)/python -m tenure.testing.demo $(DEMO_FLAGS)

services:
	@tests/services.sh

test: install services
	$(BIN)/python -m pytest

check: install services
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

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
