# GNU make. `make help` lists the targets.

PYTHON ?= python3
ARGS ?=
# Tests wait for servers and processes more than they compute: a few at once, also on two cores.
WORKERS ?= 3
BIN := .venv/bin
# Each test process imports the product: without cached bytecode it compiles it first.
export PYTHONDONTWRITEBYTECODE :=
QUICK := tests/unit tests/conformance tests/sim tests/packaging

MEMBERS := pyproject.toml packs/fleet/pyproject.toml
# What the environment was made from, and where: a moved tree has scripts and editable installs that point nowhere.
KEY := $(shell (echo '$(CURDIR)'; cat requirements.lock tools/setup_venv.py $(MEMBERS)) | cksum | tr ' ' '-')
STAMP := .venv/.setup-$(KEY)

.DEFAULT_GOAL := help
.PHONY: setup up down status quick test mutations test-containers soak long model check bench demo format lock help

setup: ## make .venv with every pinned dependency (nothing to do when it is up to date)
	@test -e $(STAMP) -a -x $(BIN)/python || { \
	  command -v $(PYTHON) >/dev/null || { echo 'make setup: $(PYTHON) is not installed; Python 3.11 or newer is needed' >&2; exit 1; }; \
	  $(PYTHON) tools/setup_venv.py $(STAMP); }

up: setup ## start the mesh and watch it (ARGS="--detach", …)
	@exec $(BIN)/anchorwatch up $(ARGS)

down: setup ## stop the mesh
	@exec $(BIN)/anchorwatch down $(ARGS)

status: setup ## say what runs, and where
	@exec $(BIN)/anchorwatch status $(ARGS)

quick: setup ## run unit tests, conformance in memory and a short simulation: before each commit
	ANCHORWATCH_SIM_RUNS=10 $(BIN)/pytest -n 2 --dist worksteal -q --quick $(QUICK) $(ARGS)

test: setup ## run all tests except the families below (ARGS="-k name", "--seeds all", …)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --ignore=tests/mutation $(ARGS)

mutations: setup ## remove each safeguard in turn; the tests that guard it must fail
	$(BIN)/pytest -n $(WORKERS) --dist worksteal tests/mutation $(ARGS)

test-containers: setup ## run the mesh in real containers (needs docker; as root it starts a private daemon)
	ANCHORWATCH_TEST_CONTAINERS=1 $(BIN)/pytest tests/containers $(ARGS)

soak: setup ## 10,000 runs of the whole mesh in simulation (ARGS="--runs 500", …)
	@exec $(BIN)/python -m tests.sim.whole $(ARGS)

long: setup ## a session of 2,000 turns in simulation, with kills and summaries (a minute or two)
	ANCHORWATCH_TEST_TURNS=2000 $(BIN)/pytest tests/sim/test_long_session.py $(ARGS)

model: setup ## search the protocol's larger configurations (ARGS="reset", …)
	@exec $(BIN)/python -m tests.model $(ARGS)

check: setup ## lint, formatting, types, import contracts, dependencies, wording
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry --no-ansi shared services
	$(BIN)/deptry --no-ansi --config packs/fleet/pyproject.toml packs/fleet
	$(BIN)/python tools/check_words.py

format: setup ## put the code in its one format
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

bench: setup ## measure the durable turn beside a floor (about a minute; all of it: ARGS="--full"; beside Restate: ARGS="--restate")
	@exec $(BIN)/python -m tests.bench $(ARGS)

demo: setup ## the incident, on real processes, checking itself (about a minute)
	@exec $(BIN)/anchorwatch demo $(ARGS)

lock: ## compile requirements.lock anew (needs uv on the PATH)
	@command -v uv >/dev/null || { echo 'make lock: uv is not installed; pip install uv' >&2; exit 1; }
	@# Neither an index nor a link is written into it: where packages come from is the business of each machine.
	uv pip compile requirements.in $(MEMBERS) --all-extras --output-file requirements.lock --quiet --universal --generate-hashes \
	  --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-emit-package anchorwatch --no-emit-package anchorwatch-fleet \
	  --custom-compile-command 'make lock' $(ARGS)

help: ## say this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
