# Two commands to know: `make demo` and `make test`. Both set up .venv in this folder first.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BASE   ?= python:3.12-slim
TGI_VERSIONS ?= 0.9.4 3.3.7
# Of `make images`; --no-index installs from docker/wheels alone.
PIP_OPTIONS ?=
# As 2.13.0: the tests of the transformers engine run too. Empty: they are skipped where it is missing.
TORCH  ?=
comma  := ,
PROTOS := $(wildcard tgi_bench/wire/*.proto)

.PHONY: help accuracy fuzz matrix demo test lint types distortions unit bench images stubs schema golden clean

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.package ## Install, sweep experiments/quickstart.yaml on the embedded server, print its report
	@echo "== sweeping experiments/quickstart.yaml on the embedded, simulated server"
	@$(BIN)/tgi-bench sweep experiments/quickstart.yaml; code=$$?; \
	    [ $$code -eq 0 ] || [ $$code -eq 3 ]  # 3: measured, and its own verdict is INVALID
	@run=$$(ls -td results/quickstart/*/ | head -n 1); \
	    echo; echo "== $${run}report.md"; echo; cat "$${run}report.md"; \
	    echo; echo "== the report lies in $${run}report.md, its tables beside it:"; ls $${run}num_shard-*.md

# What measures runs alone; the other tests wait for a part of their time, which mypy uses.
test: lint ## Linters, types and every test
	@$(MAKE) --no-print-directory distortions
	@$(MAKE) --no-print-directory -j 2 types unit

lint: $(VENV)/.dev
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@echo "== mypy"
	@$(BIN)/mypy

# Processes by the thousand import the package: without bytecode each of them compiles it.
distortions unit: export PYTHONDONTWRITEBYTECODE :=
distortions: $(VENV)/.dev
	@echo "== pytest: what measures, alone"
	@$(BIN)/pytest tests/distortions

unit: $(VENV)/.dev
	@echo "== pytest: every other test, four at once, for they wait half of their time"
	@$(BIN)/pytest -n 4 --dist loadgroup --ignore tests/distortions

bench: $(VENV)/.dev ## Measure our own figures: goal, measured, met or missed
	@$(BIN)/python -m tests.bench

accuracy: $(VENV)/.dev ## Estimate held-out figures of the published tables: goal, error, met or missed
	@$(BIN)/python -m tests.accuracy

fuzz: $(VENV)/.dev ## Lay our HTTP framing beside llhttp's on two million generated answers
	@$(BIN)/python -m tests.drive.framing_fuzz --cases 2000000 --seed 0

images: ## Build docker/'s images: tgi-bench, and tgi-bench-embedded for each of TGI_VERSIONS
	@docker build -f docker/Dockerfile --build-arg BASE=$(BASE) \
	    --build-arg PIP_OPTIONS='$(PIP_OPTIONS)' -t tgi-bench .
	@for version in $(TGI_VERSIONS); do \
	    docker build -f docker/Dockerfile.embedded --build-arg TGI_VERSION=$$version \
	        -t tgi-bench-embedded:$$version . || exit 1; \
	done

matrix: $(VENV)/.dev ## Sweep experiments/bloomz.yaml whole, in real containers of the embedded server
	@image=$$($(BIN)/python -m tests.docker.images) && results=$$(mktemp -d) \
	    && echo "== sweeping experiments/bloomz.yaml in containers of $$image" \
	    && { $(BIN)/tgi-bench sweep experiments/bloomz.yaml --set server.image=$$image \
	        --results $$results; code=$$?; [ $$code -eq 0 ] || [ $$code -eq 3 ]; } \
	    && ls $$results/bloomz-7b1-mt/*/num_shard-[1248].md && rm -r $$results

stubs: $(VENV)/.dev ## Generate the gRPC stubs from tgi_bench/wire/*.proto
	@$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

schema: $(VENV)/.package ## Write experiments/schema.json
	@$(BIN)/tgi-bench schema > experiments/schema.json

golden: $(VENV)/.dev ## Write the expected reports of the tests again; look at the difference
	@$(BIN)/pytest --update-golden tests/report tests/published tests/cli \
	    tests/plan/test_trial_ids.py tests/plan/test_commands.py \
	    tests/drive/test_request_bytes.py tests/dialects/test_requests.py tests/dialects/test_readings.py

clean: ## Remove the environment and what tools left
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(BIN)/python:
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.package: pyproject.toml | $(BIN)/python
	@echo "== installing tgi-bench into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "== installing tgi-bench and what its tests need into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check \
	    -e '.[dev$(if $(TORCH),$(comma)transformers)]' $(if $(TORCH),torch==$(TORCH))
	@touch $@ $(VENV)/.package
