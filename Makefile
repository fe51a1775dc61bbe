# Everything a contributor runs. Needs Python 3.11 or newer with venv, make, and gcc for the simulated NVML library.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check lint format bench clean
.DEFAULT_GOAL := check

demo: $(READY)  ## play the founding incident live; KEEP=1 leaves it running, KILL=1 kills the daemon twice on the way
	$(BIN)/python -m watchtower.simulate.demo $(if $(KEEP),--keep) $(if $(KILL),--kill-daemon)

test: $(READY)  ## every test; what needs an absent program skips, named
	$(BIN)/pytest $(ARGS)

check: lint test  ## the whole law

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## footprints and costs, as ratios beside the absolute bars
	@set -e; for bench in bench/*.py; do echo "== $$bench"; $(BIN)/python "$$bench"; done

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

# The stamp is newer than pyproject.toml once what that asks for is installed.
$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
