# `make` lists the targets. They need Python 3.11+, and Java 17 or 21 for Spark.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help java install demo test test-all oracle test-of-tests test-cluster test-kubernetes test-stores test-versions test-browser errors lint format fuzz foreign chaos \
	bench bench-scale docs clean build test-wheel test-lowest test-airflow-2 licenses sbom compose-check log-store

BIN := .venv/bin
INSTALLED := .venv/.installed
CLASSES := .venv/.classes
INSTALLED_FOR_BENCH := .venv/.installed-bench
INSTALLED_FOR_BROWSER := .venv/.installed-browser
INSTALLED_FOR_STORES := .venv/.installed-stores
DOCS := .cache/docs
INSTALLED_FOR_DOCS := $(DOCS)/.installed
RELEASE := .cache/release
INSTALLED_FOR_RELEASE := $(RELEASE)/.installed
RUN_TIME := .cache/run_time
INSTALLED_AT_RUN_TIME := $(RUN_TIME)/.installed
# Neither use the caller's environment nor change the caller's Airflow.
export UV_PROJECT_ENVIRONMENT := .venv
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME SPARK_HOME AIRFLOW_HOME

# Each worker runs its own Spark (about 3 GB) or waits for an Airflow half of the time. So there are as many as memory
# allows, at most three for two cores.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
MEMORY_GB := $(shell awk '/MemAvailable/ {print int($$2 / 1048576)}' /proc/meminfo 2>/dev/null || echo 8)
WORKERS ?= $(shell w=$$(( $(MEMORY_GB) / 3 )); most=$$(( $(CORES) * 3 / 2 )); w=$$(( w < most ? w : most )); echo $$(( w > 1 ? w : 1 )))

# Java's second compiler pays off after eight minutes of a processor (tests/conftest.py turns it on for the session of a
# long run), and makes the fuzz half as fast again. The default code caches are too small for hundreds of merges.
test oracle test-of-tests test-cluster test-kubernetes test-stores test-browser chaos: export SPARK_SUBMIT_OPTS += \
	-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m
test-all fuzz: export SPARK_SUBMIT_OPTS += -XX:ReservedCodeCacheSize=400m

# Keep temporary folders in memory where there is plenty: SQLite waits for the disk at each commit (21 ms instead of
# 0.7 ms on a busy machine), and Airflow commits all the time. Tests also run programs from there, hence no noexec.
IN_MEMORY := $(shell grep -q ' /dev/shm .*noexec' /proc/mounts 2>/dev/null || df -Pk /dev/shm 2>/dev/null | \
	awk 'NR == 2 && $$4 > 4 * 1048576 && $(MEMORY_GB) > 3 * $(WORKERS) + 3 {print "/dev/shm"}')
ifneq ($(IN_MEMORY),)
test test-all: export TMPDIR := $(IN_MEMORY)
endif

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

log-store: java install ## Build the jar of the log store for S3 from its Java classes
	@$(BIN)/python -m scripts.log_store

java:
	@scripts/check_java.sh

install: $(INSTALLED) ## Create .venv and fetch Delta's jars
	@$(BIN)/airflow-delta-merge jars > /dev/null

# Compile once (15 s). Otherwise each of a hundred Airflow starts in the tests takes 2 s longer where Python can't store
# bytecode.
$(INSTALLED): pyproject.toml uv.lock
	@scripts/uv.sh sync --frozen --quiet --compile-bytecode
	@touch $@

# The tests start Spark about forty times. A class archive makes each start some seconds shorter.
$(CLASSES): $(INSTALLED)
	@$(BIN)/airflow-delta-merge class-archive > /dev/null || echo "The tests go on without; they take longer."
	@touch $@

demo: java install ## Run Airflow on three days of real flights (about 2 minutes)
	@$(BIN)/python scripts/demo.py

# tests/groups.py assigns tests to workers.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

test: java install $(CLASSES) ## Run the tests, each case with one strategy (ARGS="-k word")
	@$(PYTEST) $(ARGS)

# Tests that start real clusters, stores and browsers fill an hour alone, and have targets of their own.
test-all: java install $(CLASSES) $(INSTALLED_FOR_BENCH) ## Run the tests with the slow ones, each case with every strategy
	@$(PYTEST) --slow --all-ways $(foreach each,cluster kubernetes object_storage browser,--ignore tests/$(each)) $(ARGS)

oracle: java install $(CLASSES) ## Record what Delta's own MERGE does where no recording is valid (ARGS=--fresh-oracle for all)
	@$(PYTEST) --record-oracle $(or $(filter-out --fresh-oracle,$(ARGS)),tests/differential) $(filter --fresh-oracle,$(ARGS))

test-of-tests: java install $(CLASSES) ## Put small faults into a copy of the engine; the tests must find each (ARGS="name")
	@$(BIN)/python -m tests.of_tests.check $(ARGS)

test-cluster: java install ## Test merges on a local standalone cluster and a local YARN
	@$(BIN)/pytest tests/cluster --slow $(ARGS)

test-kubernetes: java install ## Test merges on a Kubernetes of one node (as root; makes it from source the first time)
	@$(BIN)/pytest tests/kubernetes --slow $(ARGS)

test-stores: java install $(INSTALLED_FOR_STORES) ## Test merges into S3, Azure and Google Cloud Storage, on local servers
	@$(BIN)/pytest tests/object_storage --slow $(ARGS)

test-versions: java install ## Test each version of Spark and Delta (ARGS="--only 4.1-4.2"; --write updates the docs)
	@$(BIN)/python -m tests.versions $(ARGS)

test-browser: java install $(INSTALLED_FOR_BROWSER) ## Test Airflow's UI with Chromium (ARGS=--screenshots updates the docs' pictures)
	@scripts/chromium.sh
	@$(BIN)/pytest tests/browser --slow $(ARGS)

compose-check: install ## Run docker-compose.yaml on a Docker engine; root on Debian gets one (ARGS="examples tables" for a part)
	@$(BIN)/python -m tests.compose.check $(ARGS)

errors: install ## List MERGE's error conditions and their cases (ARGS=--write updates docs/errors.md)
	@$(BIN)/python -m tests.differential.errors $(ARGS)

fuzz: java install ## Test made-up MERGE statements (EXAMPLES=1000, SEED=…, ARGS="-k foreign")
	@$(PYTEST) -s tests/fuzz --slow --all-ways --fuzz-examples $(or $(EXAMPLES),1000) $(if $(SEED),--fuzz-seed $(SEED)) $(ARGS)

foreign: java install ## Write the tables of tests/foreign again, by other writers (ARGS="spark-3.3.2" for a part)
	@$(BIN)/python -m tests.foreign.make $(ARGS)

chaos: java install $(CLASSES) ## Kill merges at random moments, then run concurrent writers (KILLS=40, SEED=…, S3=1)
	@$(BIN)/python -m tests.faults.chaos --kills $(or $(KILLS),40) $(if $(SEED),--seed $(SEED)) $(if $(S3),--s3)

bench: java install $(INSTALLED_FOR_BENCH) ## Measure this engine, the built-in MERGE, delta-rs and the floor (ARGS="--quick", --help)
	@$(BIN)/python -m bench $(ARGS)

bench-scale: java install $(INSTALLED_FOR_BENCH) ## Measure tables of 100,000 files and 200 million rows
	@$(BIN)/python -m bench.at_scale $(ARGS)

# The plain install removes these groups, so they depend on it. --inexact keeps each from removing the others.
$(INSTALLED_FOR_BENCH): $(INSTALLED)
	@scripts/uv.sh sync --frozen --quiet --compile-bytecode --inexact --group bench
	@touch $@

$(INSTALLED_FOR_BROWSER): $(INSTALLED)
	@scripts/uv.sh sync --frozen --quiet --inexact --group browser
	@touch $@

$(INSTALLED_FOR_STORES): $(INSTALLED)
	@scripts/uv.sh sync --frozen --quiet --inexact --group stores
	@touch $@

docs: $(INSTALLED_FOR_DOCS) ## Build the documentation in site; broken links fail
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict $(ARGS)
	@echo "site/index.html"

# The site is built from the sources in its own environment, independent of .venv.
$(INSTALLED_FOR_DOCS): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(DOCS) scripts/uv.sh sync --frozen --quiet --only-group docs
	@touch $@

build: $(INSTALLED_FOR_RELEASE) ## Build wheel and sdist in dist, and check them as PyPI would
	@rm -rf dist
	@scripts/uv.sh build --quiet --out-dir dist
	@$(RELEASE)/bin/twine check --strict dist/*.whl dist/*.tar.gz

test-wheel: java build ## Test the wheel in empty environments: only Airflow, only pyspark, both
	@$(RELEASE)/bin/python scripts/release_checks.py wheel dist/*.whl

test-lowest: java $(INSTALLED_FOR_RELEASE) ## Test the lowest allowed versions: tests without Spark, and the README's DAG
	@$(RELEASE)/bin/python scripts/release_checks.py lowest

test-airflow-2: java $(INSTALLED_FOR_RELEASE) ## Test merges, sensors and links in Airflow 2.11
	@$(RELEASE)/bin/python scripts/release_checks.py airflow-2

licenses: $(INSTALLED_FOR_RELEASE) $(INSTALLED_AT_RUN_TIME) ## Check the licences of all runtime packages
	@$(RELEASE)/bin/pip-licenses --python $(RUN_TIME)/bin/python $(ARGS)

sbom: $(INSTALLED_FOR_RELEASE) $(INSTALLED_AT_RUN_TIME) ## Write the runtime packages to dist/sbom.cdx.json (CycloneDX)
	@mkdir -p dist
	@version=$$($(RUN_TIME)/bin/python -c 'import airflow_delta_merge as package; print(package.__version__)') && \
		sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > $(RUN_TIME)/pyproject.toml
	@$(RELEASE)/bin/cyclonedx-py environment $(RUN_TIME)/bin/python --pyproject $(RUN_TIME)/pyproject.toml --mc-type library \
		--output-reproducible --output-format JSON --output-file dist/sbom.cdx.json
	@echo "dist/sbom.cdx.json"

$(INSTALLED_FOR_RELEASE): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(RELEASE) scripts/uv.sh sync --frozen --quiet --only-group release
	@touch $@

# The package with all its extras, without development packages.
$(INSTALLED_AT_RUN_TIME): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(RUN_TIME) scripts/uv.sh sync --frozen --quiet --no-dev --all-extras --no-editable
	@touch $@

lint: $(INSTALLED) ## Run ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(INSTALLED) ## Format the code with ruff
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean: ## Remove what demo, tests and tools left behind (keeps .venv)
	@rm -rf .demo .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log dist build site
	@find . -path ./.venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
