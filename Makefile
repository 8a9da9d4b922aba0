# Needs Python 3.11 to 3.13 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test slow gpu lint format docs benchmarks torture clean

demo: $(VENV)/.demo  ## train on emoji with the adaptive sampler and print how good it became
	@$(BIN)/pads train emoji-pads

test: $(VENV)/.dev $(VENV)/.browser  ## the whole suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

slow: $(VENV)/.dev  ## what takes minutes: the full demo and its bounds
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

gpu: $(VENV)/.dev  ## what only a GPU can show, on a machine that has one
	$(BIN)/python -m pytest -m gpu

lint: $(VENV)/.dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev  ## the documentation site, into docs/_build
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build

benchmarks: $(VENV)/.dev  ## every speed claim as a ratio against its peer
	for script in benchmarks/*.py; do OMP_NUM_THREADS=1 $(BIN)/python $$script || exit 1; done

TORTURE_MINUTES ?= 10
torture: $(VENV)/.dev  ## every fault at every write, and spoilt files for TORTURE_MINUTES; the table goes to results/torture
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m crash.torture --minutes $(TORTURE_MINUTES)

clean:
	rm -rf $(VENV) build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "pads needs Python 3.11, 3.12 or 3.13; name one with: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# torch goes in first and alone: the constraint then holds for every package that asks for it.
$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing pads into $(VENV) (once; torch is large) ..."
	$(INSTALL) torch
	$(INSTALL) --editable '.[demo,pretrained]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing pads and its test tools into $(VENV) (once) ..."
	$(INSTALL) torch
	$(INSTALL) --editable '.[demo,track,plots,umap,faiss,serve,export,pml,pretrained,hub,ray,docs,dev]'
	@touch $@

# The pages are tested in a real browser; where there is no apt, its tests say that they did not run.
$(VENV)/.browser: | $(VENV)/bin/python
	@if command -v chromium >/dev/null; then :; \
	elif command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq chromium >/dev/null; \
	else echo "chromium is not there and there is no apt to install it: the browser tests will be skipped"; fi
	@touch $@

.PHONY: golden
golden: $(VENV)/.dev  ## write the golden losses down anew, after a change that is meant to alter training
	$(BIN)/python tests/golden/trace.py > tests/golden/losses.txt
