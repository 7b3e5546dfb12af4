# Each target creates what it needs: a virtual environment in .venv and the packages of its extras.
# A stamp file records each set of packages, so that they are installed only once.

PYTHON ?= python3
RECIPE ?=
ARGS   ?=
KSERVE ?= 0.21.0

# The tests of a file share fixtures, so they run in one process. Slow files come first.
IN_PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

VENV := .venv
BIN  := $(VENV)/bin
PIP  := -m pip -qq --disable-pip-version-check

EXTRAS_serve := serve,cpu
EXTRAS_train := train,cpu
EXTRAS_bench := serve,train,cpu,bench
EXTRAS_test  := serve,train,cpu,bench,test

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test kserve check train bench training serving constraints clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

serve: $(VENV)/.has-serve ## start the service (ARGS="--port 8612 --models DIR")
	@exec $(BIN)/localmoments serve $(ARGS)

test: check ## run check, then all tests (ARGS="-k gibbs" selects some)
	@$(BIN)/python -m pytest -q $(IN_PARALLEL) $(ARGS)

kserve: $(VENV)/.has-test .venv-kserve/.made ## test with the client of KServe, in its own environment
	@$(BIN)/python -m pytest -q tests/e2e/test_kserve.py $(ARGS)

check: $(VENV)/.has-test ## check style, formatting, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict localmoments service trainer benchmarks
	$(BIN)/lint-imports

train: $(VENV)/.has-train ## train a model (RECIPE=measurements.csv, ARGS="--name y")
	@$(BIN)/localmoments fit $(RECIPE) $(ARGS)

bench: training serving ## run all benchmarks; write benchmarks/results
	@$(BIN)/python benchmarks/summary.py

training: $(VENV)/.has-bench ## compare training with a bare PyTorch loop (ARGS="--large-gb 6")
	@OMP_WAIT_POLICY=PASSIVE $(BIN)/python benchmarks/train.py $(ARGS)

serving: $(VENV)/.has-bench ## compare the service with other servers (ARGS="--quick --only rows")
	@$(BIN)/python benchmarks/serving/run.py $(ARGS)

# The build name (+cpu, +cu130) is removed from each pin, so that every build of torch satisfies it.
constraints: TORCH := 2.13.0
constraints: PIN := .venv-constraints
constraints: $(VENV)/.made ## pin the newest versions of all dependencies
	@echo "Resolving [$(EXTRAS_test)] in a fresh environment ..."
	@$(BIN)/python -m venv --clear $(PIN)
	@$(PIN)/bin/python $(PIP) install 'torch==$(TORCH)'
	@$(PIN)/bin/python $(PIP) install --editable '.[$(EXTRAS_test)]'
	@{ echo '# The exact versions that are tested. Written by `make constraints`; do not edit.'; \
	   echo '# A constraint installs nothing by itself; it fixes the version of a package that is needed.'; \
	   $(PIN)/bin/python $(PIP) freeze --exclude-editable | sed 's/+[A-Za-z0-9.]*$$//'; \
	 } > constraints.txt.new
	@mv constraints.txt.new constraints.txt
	@rm -rf $(PIN)

clean: ## remove the environments and caches (not models, runs or data)
	rm -rf $(VENV) .venv-constraints .venv-bench .venv-kserve build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.has-%: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing [$(EXTRAS_$*)] into $(VENV) ..."
	@$(BIN)/python $(PIP) install --no-compile --constraint constraints.txt --editable '.[$(EXTRAS_$*)]'
	@touch $(if $(filter test,$*),$(patsubst %,$(VENV)/.has-%,serve train bench test),$@)

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "localmoments needs Python 3.11 or newer, and '$(PYTHON)' is older." >&2; \
	  echo "Name another, for example: make PYTHON=python3.12 test" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

.venv-kserve/.made: # it needs an older psutil and protobuf than we do
	@$(PYTHON) -m venv --clear .venv-kserve
	@.venv-kserve/bin/python $(PIP) install 'kserve==$(KSERVE)'
	@touch $@
