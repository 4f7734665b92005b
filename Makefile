# make demo   everything on this machine, until Ctrl-C
# make test   everything that the project promises, tested here
# make lint   style, types, contracts
# make reproduce   the paper's figures, into var/reproduction

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8000
PYTEST_WORKERS ?= 2
PIP_COMPILE := $(BIN)/pip-compile --quiet --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	--strip-extras --no-annotate --allow-unsafe

.PHONY: demo test reproduce lint format contracts requirements clean

demo: $(VENV)/.installed .env
	@$(BIN)/python manage.py demo --host $(HOST) --port $(PORT)

test: $(VENV)/.installed-dev
	@.ci/install-chromium
	@.ci/install-nginx
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal -m "not browser" $(PYTEST_ARGS)
	DJANGO_ALLOW_ASYNC_UNSAFE=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal -m browser $(PYTEST_ARGS)

# Matrices this small are not worth a second thread, and the runs side by side take every core.
reproduce: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduce $(REPRODUCE_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

requirements: $(VENV)/.installed-dev
	$(PIP_COMPILE) -o requirements.txt pyproject.toml
	$(PIP_COMPILE) --extra dev -c requirements.txt -o requirements-dev.txt pyproject.toml

clean:
	rm -rf $(VENV) var

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "LLM-PO needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV);  echo "Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.installed: requirements.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/.installed

.env:
	@$(PYTHON) -c 'import pathlib, secrets; pathlib.Path(".env").write_text(pathlib.Path(".env.example").read_text().replace("SECRET_KEY=\n", f"SECRET_KEY={secrets.token_urlsafe(48)}\n", 1))'
	@chmod 600 .env
