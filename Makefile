# Each target makes what it needs: a virtual environment in .venv and, once, the packages of its
# extras. A stamp file remembers each set, so the second run starts at once.

PYTHON ?= python3
RECIPE ?=
ARGS   ?=
KSERVE ?= 0.21.0

# A file's tests share what they start, so they stay together; slow files come first as they stand.
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

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

serve: $(VENV)/.has-serve ## start the service (HOST, PORT: see its settings)
	@exec $(BIN)/python -m service $(ARGS)

test: check ## check, then all tests (ARGS="-k gibbs" to choose)
	@$(BIN)/python -m pytest -q $(IN_PARALLEL) $(ARGS)

kserve: $(VENV)/.has-test .venv-kserve/.made ## test with KServe's client, in an environment of its own
	@$(BIN)/python -m pytest -q tests/e2e/test_kserve.py $(ARGS)

check: $(VENV)/.has-test ## lint, formatting, strict types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict localmoments service trainer benchmarks
	$(BIN)/lint-imports

train: $(VENV)/.has-train ## train a model (RECIPE=trainer/recipes/x.toml, ARGS="--name y")
	@$(BIN)/python -m trainer fit $(RECIPE) $(ARGS)

bench: training serving ## measure all: benchmarks/results.json, tables and pictures beside it
	@$(BIN)/python benchmarks/summary.py

training: $(VENV)/.has-bench ## measure training against a bare PyTorch loop (ARGS="--large-gb 6")
	@OMP_WAIT_POLICY=PASSIVE $(BIN)/python benchmarks/train.py $(ARGS)

serving: $(VENV)/.has-bench ## measure the service beside its peers (ARGS="--quick --only rows")
	@$(BIN)/python benchmarks/serving/run.py $(ARGS)

# A release of torch satisfies its pin in every build (CPU, CUDA), so the build's name is cut off.
constraints: TORCH := 2.13.0
constraints: PIN := .venv-constraints
constraints: $(VENV)/.made ## choose and pin the newest versions of all dependencies
	@echo "Resolving [$(EXTRAS_test)] in a fresh environment ..."
	@$(BIN)/python -m venv --clear $(PIN)
	@$(PIN)/bin/python $(PIP) install 'torch==$(TORCH)'
	@$(PIN)/bin/python $(PIP) install --editable '.[$(EXTRAS_test)]'
	@{ echo '# The exact versions that are tested. Made by `make constraints`: do not edit.'; \
	   echo '# A constraint installs nothing by itself: a line counts where its package is wanted.'; \
	   $(PIN)/bin/python $(PIP) freeze --exclude-editable | sed 's/+[A-Za-z0-9.]*$$//'; \
	 } > constraints.txt.new
	@mv constraints.txt.new constraints.txt
	@rm -rf $(PIN)

clean: ## remove .venv and what the tools left behind (not models, runs or data)
	rm -rf $(VENV) .venv-constraints .venv-bench .venv-kserve build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.has-%: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing [$(EXTRAS_$*)] into $(VENV), once ..."
	@$(BIN)/python $(PIP) install --no-compile --constraint constraints.txt --editable '.[$(EXTRAS_$*)]'
	@touch $(if $(filter test,$*),$(patsubst %,$(VENV)/.has-%,serve train bench test),$@)

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; '$(PYTHON)' is not one." >&2; \
	  echo "Name one that is, for example: make PYTHON=python3.12 test" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

.venv-kserve/.made: # it wants an older psutil and protobuf than we do
	@$(PYTHON) -m venv --clear .venv-kserve
	@.venv-kserve/bin/python $(PIP) install 'kserve==$(KSERVE)'
	@touch $@
