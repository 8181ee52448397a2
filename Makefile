# Gossamer's outer door. `make` alone prints this list; everything lives in .venv, nothing is installed elsewhere.

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long test-all test-containers mutants lint docs site pictures fuzz fuzz-api tools lock audit sbom licences package package-check image \
	bench bench-gate quality soak storm clean
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
RUNNABLE := .venv/.gossamer-runnable# what running needs is there
STAMP := .venv/.gossamer-installed# the tools for its development, too
TOOLS := .venv-tools/bin# what looks at packages and files of deploy/, apart from the packages themselves

# Hundreds of processes are started by the tests: what one has compiled, the others read.
unexport PYTHONDONTWRITEBYTECODE

# `make run URL=...`: passed through the environment, so that no shell reads the & and ? in it.
export URL PORT

help: ## this list
	@echo "Gossamer: a complete web-scraping system"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv with everything: all extras, the tools for tests and types (about 1 GB)
	@:

$(RUNNABLE): pyproject.toml requirements.lock scripts/setup
	@scripts/setup run
	@touch $@

$(STAMP): pyproject.toml requirements.lock requirements-dev.lock scripts/setup
	@scripts/setup dev
	@touch $(RUNNABLE) $@

run: $(RUNNABLE) ## crawl the built-in demo shop (PORT=8461), or a real site with URL=https://...
ifeq ($(strip $(URL)),)
	@.venv/bin/gossamer demo $(if $(PORT),--port "$$PORT")
else
	@.venv/bin/gossamer crawl "$$URL" || [ $$? -eq 3 ] # 3: done with warnings, which the summary names
endif

# More at a time than there are cores, because much of it waits, and the long ones wait most. Tests of one file stay
# together: they share their servers. tests/conftest.py says which long ones do not.
PYTEST := $(PYTHON) -m pytest
SPREAD := --dist loadfile --no-loadscope-reorder

test: $(STAMP) ## run the tests (ARGS="-k frontier" to choose)
ifeq ($(strip $(ARGS)),)
	@$(PYTEST) -n 4 $(SPREAD) -m "not long"
else
	@$(PYTEST) $(ARGS)
endif

test-long: $(STAMP) ## run the tests of whole crawls, kills and browsers that take their time
	@$(PYTEST) -n 6 $(SPREAD) -m long

test-all: test test-long ## run all tests

test-containers: $(STAMP) ## build the images, start the Compose stack and pods with Podman, break them (as root, 20 minutes)
	@$(PYTEST) -v tests/containers $(ARGS)

SECONDS := 120
fuzz: $(STAMP) ## hostile input for every reader, for SECONDS=120; what was found is kept in .hypothesis
	@$(PYTHON) -m tests.fuzz $(SECONDS)

# `make mutants SECONDS=600 SEED=2 SAMPLE=50 ARGS="frontier backends/redis"`
MUTANTS := $(if $(filter command environment,$(firstword $(origin SECONDS))),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
	$(if $(SAMPLE),--sample $(SAMPLE))
mutants: $(STAMP) ## change the code in small ways, in a copy, and print the changes that no test notices; SEED=1 SAMPLE=120
	@$(PYTHON) -m tests.mutants $(MUTANTS) $(ARGS)

lint: $(STAMP) ## style, types and the direction of imports
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

docs: $(STAMP) ## the picture of docs/architecture.md, docs/tree.md, dashboards and alert rules of deploy/
	@$(PYTHON) scripts/architecture.py
	@$(PYTHON) scripts/dashboards.py

site: $(TOOLS)/uv ## the manual as a site that can be searched, in build/site
	@$(PYTHON) scripts/manual.py $(CURDIR)/$(TOOLS)/zensical

pictures: $(STAMP) ## draw the pictures of README and manual again, from what the commands show today; needs tmux
	@PATH="$(CURDIR)/.venv/bin:$$PATH" $(PYTHON) docs/images/capture.py

tools: $(TOOLS)/uv ## .venv-tools: what looks at packages, at the image and at the files of deploy/
	@:

$(TOOLS)/uv: requirements-tools.lock | $(STAMP)
	@$(PYTHON) -m venv .venv-tools
	@$(TOOLS)/pip install --quiet --require-hashes -r requirements-tools.lock
	@touch $@

# requirements.lock is what `make run` installs: a part of requirements-dev.lock, in the same versions.
COMPILE = $(TOOLS)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet
PIN = $(COMPILE) pyproject.toml
IN_IMAGE := --extra build --extra server --extra fleet --extra parquet --extra profiles --extra documents
lock: $(TOOLS)/uv ## pin every package with its hashes in requirements*.lock; ARGS="--upgrade" takes newer ones
	@$(PIN) --extra dev --output-file requirements-dev.lock $(ARGS)
	@$(PIN) --extra build --extra server --constraint requirements-dev.lock --no-annotate --output-file requirements.lock
	@$(PIN) $(IN_IMAGE) --constraint requirements-dev.lock --no-annotate --output-file deploy/image/requirements.lock
	@$(PIN) --extra browser --constraint requirements-dev.lock --no-annotate --output-file deploy/image/requirements-browser.lock
	@$(COMPILE) requirements-tools.in --output-file requirements-tools.lock $(ARGS)

audit: $(TOOLS)/uv ## known weaknesses of the packages in requirements-dev.lock and requirements-tools.lock
	@$(TOOLS)/pip-audit --requirement requirements-dev.lock --requirement requirements-tools.lock --require-hashes --disable-pip

fuzz-api: $(TOOLS)/uv ## ask the HTTP API whatever its OpenAPI document allows and forbids; EXAMPLES=50 of each endpoint
	@FUZZ_EXAMPLES=$(or $(EXAMPLES),25) .venv/bin/pytest tests/server/test_openapi_fuzz.py

sbom: $(TOOLS)/uv ## what Gossamer is made of, as CycloneDX, in sbom.json
	@$(TOOLS)/cyclonedx-py requirements requirements-dev.lock --pyproject pyproject.toml --output-file sbom.json

licences: $(TOOLS)/uv ## the licences of all packages that are installed here, in licences.md
	@$(TOOLS)/pip-licenses --python $(PYTHON) --format markdown --with-urls --order license --output-file licences.md

package: $(STAMP) ## wheel and sdist, in dist/
	@$(PYTHON) -m hatchling build -d dist

PYTHONS := 3.11 3.12 3.13 3.14
package-check: package $(TOOLS)/uv ## look at wheel and sdist, and run the demo from the wheel on every Python that is here
	@$(TOOLS)/twine check --strict dist/*
	@scripts/try-wheel $(TOOLS)/uv $(PYTHONS)

TARGET := worker
image: ## the container image gossamer:TARGET=worker, with Docker or what stands in for it (DOCKER=podman)
	@$(or $(DOCKER),docker) build -f deploy/image/Dockerfile --target $(TARGET) -t gossamer:$(TARGET) .

bench: $(STAMP) ## Gossamer beside its peers; queue, fairness and fleet
	@$(PYTHON) -m bench $(ARGS)

bench-gate: $(STAMP) ## instructions of a start and of a page, beside those kept in bench/instructions.json; needs valgrind
	@$(PYTHON) -m bench.gate $(ARGS)

quality: $(STAMP) ## how well products, articles and prices are read, beside published systems
	@$(PYTHON) -m quality $(ARGS)

soak: $(STAMP) ## a 15-minute crawl on the fleet's backends: is memory flat?
	@$(PYTHON) -m bench.soak $(ARGS)

# `make storm ROUNDS=3 PAGES=600`; `make storm KILLS=1000 PAGES=600 ARGS="--minutes 30"` plays on where it stopped.
STORM := $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(PAGES),--pages $(PAGES)) $(if $(KILLS),--faults $(KILLS))
storm: $(STAMP) ## a fleet, and all that can die under it: is anything lost, doubled or asked for too soon?
	@$(PYTHON) -m bench.storm $(STORM) $(ARGS)

clean: ## remove .venv, caches and builds; crawled data stays
	@rm -rf .venv .venv-bench .venv-tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench quality -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
