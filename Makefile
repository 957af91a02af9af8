# Each habit has its target; `make` alone lists them. Needed beforehand: Python 3.11+, and Java 17 or 21 for Spark.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help java install demo test test-all oracle test-of-tests test-cluster test-stores test-versions test-browser errors lint format fuzz foreign chaos \
	bench bench-scale docs clean build test-wheel test-lowest test-airflow-2 licenses sbom compose-check log-store

BIN := .venv/bin
INSTALLED := .venv/.installed
CLASSES := .venv/.classes
INSTALLED_FOR_BENCH := .venv/.installed-bench
INSTALLED_FOR_BROWSER := .venv/.installed-browser
INSTALLED_FOR_COMPOSE := .venv/.installed-compose
INSTALLED_FOR_STORES := .venv/.installed-stores
DOCS := .cache/docs
INSTALLED_FOR_DOCS := $(DOCS)/.installed
RELEASE := .cache/release
INSTALLED_FOR_RELEASE := $(RELEASE)/.installed
RUN_TIME := .cache/run_time
INSTALLED_AT_RUN_TIME := $(RUN_TIME)/.installed
# An environment of the caller must not end up as ours, nor an Airflow of theirs be changed.
export UV_PROJECT_ENVIRONMENT := .venv
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME SPARK_HOME AIRFLOW_HOME

# Each worker drives a Spark of its own, which takes about 3 GB, or an Airflow, for which it waits half of the time: as
# many as memory bears, and three for two cores.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
MEMORY_GB := $(shell awk '/MemAvailable/ {print int($$2 / 1048576)}' /proc/meminfo 2>/dev/null || echo 8)
WORKERS ?= $(shell w=$$(( $(MEMORY_GB) / 3 )); most=$$(( $(CORES) * 3 / 2 )); w=$$(( w < most ? w : most )); echo $$(( w > 1 ? w : 1 )))

# Sessions of some minutes are over before the work of Java's second compiler pays off; the first alone would get too
# little room for what hundreds of merges compile.
test test-all oracle test-of-tests test-cluster test-stores test-browser chaos fuzz: export SPARK_SUBMIT_OPTS += \
	-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m

# Keep temporary folders in memory where there is plenty: SQLite waits for the disk at each commit (21 ms instead of
# 0.7 ms on a busy machine), and Airflow commits all the time. Tests also run programs from there, hence no noexec.
IN_MEMORY := $(shell grep -q ' /dev/shm .*noexec' /proc/mounts 2>/dev/null || df -Pk /dev/shm 2>/dev/null | \
	awk 'NR == 2 && $$4 > 4 * 1048576 && $(MEMORY_GB) > 3 * $(WORKERS) + 3 {print "/dev/shm"}')
ifneq ($(IN_MEMORY),)
test test-all: export TMPDIR := $(IN_MEMORY)
endif

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

log-store: java install ## The jar of the log store for S3, from its two Java classes
	@$(BIN)/python -m scripts.log_store

java:
	@scripts/check_java.sh

install: $(INSTALLED) ## Make .venv with everything the other targets need, and fetch Delta's jars
	@$(BIN)/airflow-delta-merge jars > /dev/null

# Compiled here once (15 s): else each of a hundred starts of Airflow in the tests takes 2 s longer wherever Python may
# not keep what it compiles.
$(INSTALLED): pyproject.toml uv.lock
	@scripts/uv.sh sync --frozen --quiet --compile-bytecode
	@touch $@

# The tests start Spark some forty times: with an archive of its classes each start is some seconds shorter.
$(CLASSES): $(INSTALLED)
	@$(BIN)/airflow-delta-merge class-archive > /dev/null || echo "The tests go on without; they take longer."
	@touch $@

demo: java install ## Three days of real flights through Airflow into a Delta table (some 3 minutes)
	@$(BIN)/python scripts/demo.py

# tests/groups.py says how the workers share the tests.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

test: java install $(CLASSES) ## The suite: every case against what Delta's own MERGE does, by one way of the engine each (ARGS="-k word" for a part)
	@$(PYTEST) $(ARGS)

test-all: java install $(CLASSES) $(INSTALLED_FOR_BENCH) $(INSTALLED_FOR_STORES) ## The suite with the slow tests, and every case by every way of the engine
	@$(PYTEST) --slow --all-ways $(ARGS)

oracle: java install $(CLASSES) ## Record what Delta's own MERGE does in each case that has no valid recording (ARGS=--fresh-oracle for all)
	@$(PYTEST) --record-oracle $(or $(filter-out --fresh-oracle,$(ARGS)),tests/differential) $(filter --fresh-oracle,$(ARGS))

test-of-tests: java install $(CLASSES) ## Small faults in a copy of the engine, one at a time: the suite must find each (ARGS="name" for one)
	@$(BIN)/python -m tests.of_tests.check $(ARGS)

test-cluster: java install ## Merges on a standalone Spark cluster and on a YARN of one node, which the tests start themselves
	@$(BIN)/pytest tests/cluster --slow $(ARGS)

test-stores: java install $(INSTALLED_FOR_STORES) ## Merges into tables in S3, Azure and Google Cloud Storage, on servers that the tests start themselves
	@$(BIN)/pytest tests/object_storage --slow $(ARGS)

test-versions: java install ## The differential core on each version of Spark and Delta, some 4 minutes each (ARGS="--only 4.1-4.2"; --write for the docs)
	@$(BIN)/python -m tests.versions $(ARGS)

test-browser: java install $(INSTALLED_FOR_BROWSER) ## The provider in Airflow's UI, seen by a Chromium (ARGS=--screenshots for the pictures of the docs)
	@scripts/chromium.sh
	@$(BIN)/pytest tests/browser --slow $(ARGS)

compose-check: java install $(INSTALLED_FOR_COMPOSE) ## docker-compose.yaml without Docker: linted, its images' steps run, its services run as processes (ARGS=services for that part)
	@$(BIN)/python -m tests.compose.check $(ARGS)

errors: install ## The error conditions of MERGE, with the case that raises each (ARGS=--write for docs/errors.md)
	@$(BIN)/python -m tests.differential.errors $(ARGS)

fuzz: java install ## Made-up MERGE statements by every way, against Delta's own (EXAMPLES=1000, SEED=…, ARGS="-k foreign")
	@$(PYTEST) -s tests/fuzz --slow --all-ways --fuzz-examples $(or $(EXAMPLES),1000) $(if $(SEED),--fuzz-seed $(SEED)) $(ARGS)

foreign: java install ## The tables of tests/foreign anew, by deltalake, DuckDB, old Spark and others (ARGS="spark-3.3.2" for a part)
	@$(BIN)/python -m tests.foreign.make $(ARGS)

chaos: java install $(CLASSES) ## Kills at random moments under a real scheduler, then concurrent writers (KILLS=40, SEED=…, S3=1 for a table in S3)
	@$(BIN)/python -m tests.faults.chaos --kills $(or $(KILLS),40) $(if $(SEED),--seed $(SEED)) $(if $(S3),--s3)

bench: java install $(INSTALLED_FOR_BENCH) ## Ours, the built-in MERGE, delta-rs and the floor (ARGS="--quick"; --help tells more)
	@$(BIN)/python -m bench $(ARGS)

bench-scale: java install $(INSTALLED_FOR_BENCH) ## Tables of 100,000 files and 200 million rows, in drivers of bounded memory
	@$(BIN)/python -m bench.at_scale $(ARGS)

# Whenever the plain install runs anew it takes these groups away again, hence the order; inexact, so that neither takes
# away the other.
$(INSTALLED_FOR_BENCH): $(INSTALLED)
	@scripts/uv.sh sync --frozen --quiet --compile-bytecode --inexact --group bench
	@touch $@

$(INSTALLED_FOR_BROWSER): $(INSTALLED)
	@scripts/uv.sh sync --frozen --quiet --inexact --group browser
	@touch $@

$(INSTALLED_FOR_STORES): $(INSTALLED)
	@scripts/uv.sh sync --frozen --quiet --inexact --group stores
	@touch $@

$(INSTALLED_FOR_COMPOSE): $(INSTALLED)
	@scripts/uv.sh sync --frozen --quiet --inexact --group compose
	@touch $@

docs: $(INSTALLED_FOR_DOCS) ## The documentation as a site in the folder site; a link or an anchor that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict $(ARGS)
	@echo "site/index.html"

# An environment of its own: the site is made from the sources as they lie, so it needs nothing of .venv, and whoever
# installs into .venv takes nothing away from it.
$(INSTALLED_FOR_DOCS): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(DOCS) scripts/uv.sh sync --frozen --quiet --only-group docs
	@touch $@

build: $(INSTALLED_FOR_RELEASE) ## The wheel and the sdist in the folder dist, checked as PyPI would
	@rm -rf dist
	@scripts/uv.sh build --quiet --out-dir dist
	@$(RELEASE)/bin/twine check --strict dist/*.whl dist/*.tar.gz

test-wheel: java build ## The wheel in empty environments: with Airflow only, with pyspark only, and as users install it
	@$(RELEASE)/bin/python scripts/release_checks.py wheel dist/*.whl

test-lowest: java $(INSTALLED_FOR_RELEASE) ## The tests that need no Spark, and the README's DAG, on the lowest versions allowed
	@$(RELEASE)/bin/python scripts/release_checks.py lowest

test-airflow-2: java $(INSTALLED_FOR_RELEASE) ## Merges, sensors and links under the scheduler of Airflow 2.11
	@$(RELEASE)/bin/python scripts/release_checks.py airflow-2

licenses: $(INSTALLED_FOR_RELEASE) $(INSTALLED_AT_RUN_TIME) ## The licences of all that is needed at run time; one that isn't allowed fails
	@$(RELEASE)/bin/pip-licenses --python $(RUN_TIME)/bin/python $(ARGS)

sbom: $(INSTALLED_FOR_RELEASE) $(INSTALLED_AT_RUN_TIME) ## What is needed at run time, in the locked versions, as dist/sbom.cdx.json (CycloneDX)
	@mkdir -p dist
	@version=$$($(RUN_TIME)/bin/python -c 'import airflow_delta_merge as package; print(package.__version__)') && \
		sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > $(RUN_TIME)/pyproject.toml
	@$(RELEASE)/bin/cyclonedx-py environment $(RUN_TIME)/bin/python --pyproject $(RUN_TIME)/pyproject.toml --mc-type library \
		--output-reproducible --output-format JSON --output-file dist/sbom.cdx.json
	@echo "dist/sbom.cdx.json"

$(INSTALLED_FOR_RELEASE): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(RELEASE) scripts/uv.sh sync --frozen --quiet --only-group release
	@touch $@

# The package with all its extras and nothing of ours beside it.
$(INSTALLED_AT_RUN_TIME): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(RUN_TIME) scripts/uv.sh sync --frozen --quiet --no-dev --all-extras --no-editable
	@touch $@

lint: $(INSTALLED) ## ruff, and mypy strict on the package and the benchmark
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(INSTALLED) ## Put the code into shape with ruff
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean: ## Remove what the demo, the tests and the tools left behind (.venv stays)
	@rm -rf .demo .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log dist build site
	@find . -path ./.venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
