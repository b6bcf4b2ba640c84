# `make train` and `make test` are all one needs; everything else is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
STAMPS := .stamps

.PHONY: help train test install lint types docs bench lock clean
help:  ## show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

train: $(STAMPS)/core  ## set up, train CartPole for about two minutes, print its scores
	$(BIN)/sensorium train cartpole-pi-feedback --set generations=$(GENERATIONS) --run-dir runs/first-look-$$(date +%Y%m%d-%H%M%S)
	@$(BIN)/sensorium eval "$$(ls -dt runs/first-look-* | head -1)" --suite

GENERATIONS ?= 30

test: $(STAMPS)/test  ## set up, run the tests
	$(BIN)/python -m pytest

install: $(STAMPS)/all  ## set up with every extra

lint: $(STAMPS)/dev  ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMPS)/dev  ## check types
	$(BIN)/mypy

docs: $(STAMPS)/dev  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

bench: $(STAMPS)/core  ## measure the speed of rollouts
	$(BIN)/sensorium bench cartpole

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Sensorium needs Python 3.11 or newer; say PYTHON=python3.12 make ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Each set of packages is installed from its lock, once.
$(STAMPS)/core: requirements/core.txt pyproject.toml | $(VENV)/pyvenv.cfg
	$(PIP) -r requirements/core.txt
	$(PIP) --no-deps -e .
	@mkdir -p $(STAMPS) && touch $@
$(STAMPS)/test: requirements/test.txt $(STAMPS)/core
	$(PIP) -r requirements/test.txt && touch $@
$(STAMPS)/dev: requirements/dev.txt $(STAMPS)/test
	$(PIP) -r requirements/dev.txt && touch $@
$(STAMPS)/all: requirements/torch.txt $(STAMPS)/dev
	$(PIP) --no-deps -r requirements/torch.txt && touch $@

lock:  ## resolve requirements/*.txt anew, for all Pythons from 3.11 on
	$(PYTHON) -m venv .lock-venv && .lock-venv/bin/pip install --quiet uv
	requirements/lock.sh .lock-venv/bin/uv
	rm -rf .lock-venv

clean:  ## remove what is built, but not runs/
	rm -rf $(VENV) $(STAMPS) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
