# The commands of a contributor. `make help` lists them; CONTRIBUTING.md explains the variables.

PYTHON ?= python3
TORCH_INDEX ?=
ARGS ?=
VLLM_PYTHON ?=
EXAMPLES ?= 3000
# More than cores, because tests also wait for servers, clusters and browsers.
WORKERS ?= 5

TORCH := $(shell grep '^torch==' constraints.txt)
BIN := .venv/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
# -qq: errors only, since pip warns at length about every package that one of several indexes lacks.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.PHONY: help .venv model chromium compiler clients demo bench gpu-kit test test-slow test-vllm servers lint docs docs-check files audit licences fuzz format clean

help: ## list these targets
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: model ## run the demonstration with the embedded model
	@$(BIN)/selfreflect demo $(ARGS)

test: model chromium compiler ## run all tests that do not take minutes
	@$(BIN)/pytest -m "not slow and not vllm and not servers" --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: model chromium compiler ## run the tests marked slow
	@$(BIN)/pytest -m "slow and not vllm and not servers" $(ARGS)

test-vllm: model ## run the tests against vLLM: make test-vllm VLLM_PYTHON=/path/to/python
	@test -x "$(VLLM_PYTHON)" || { echo "Name the Python of an environment with vLLM: make test-vllm VLLM_PYTHON=/path/to/python"; exit 1; }
	@VLLM_PYTHON="$(VLLM_PYTHON)" $(BIN)/pytest -m vllm $(ARGS)

servers: model compiler ## install servers into build/servers (some minutes and 3 GB) and run the tests against them
	@PIP_EXTRA_INDEX_URL="$(TORCH_INDEX)" $(BIN)/python tests/support/install_servers.py build/servers
	@SERVERS=build/servers $(BIN)/pytest -m servers $(ARGS)

bench: model compiler ## time the engine against the published schedule, on an idle machine
	@$(BIN)/selfreflect bench $(ARGS)

# For Python 3.12 on x86-64 Linux with glibc 2.28: what benchmarks/gpu.py needs and a machine with torch and transformers may lack.
gpu-kit: model ## fetch what benchmarks/gpu.py needs on a machine without a package index, into build/gpu-kit
	@rm -rf build/gpu-kit && mkdir -p build/gpu-kit/tokenizer
	@$(PIP) download --no-deps --only-binary :all: --python-version 3.12 --implementation cp \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
		--dest build/gpu-kit/wheels $$(grep -iE '^(msgspec|psutil|jinja2|markupsafe)==' constraints.txt)
	@model=$$($(BIN)/python -m selfreflect.models.smollm2) && \
		cp "$$model"/tokenizer*.json "$$model"/chat_template.jinja "$$model"/config.json build/gpu-kit/tokenizer
	@du -sh build/gpu-kit

chromium: ## install the browser for the tests of pages, if apt-get can
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do if command -v $$name >/dev/null; then exit 0; fi; done; \
	if ! command -v apt-get >/dev/null; then echo "The tests of pages need chromium. Install it with your package manager."; exit 1; fi; \
	echo "installing chromium"; \
	$(SUDO) apt-get update -qq && for name in chromium-headless-shell chromium; do \
		if $(SUDO) apt-get install -y -qq --no-install-recommends $$name >/dev/null; then exit 0; fi; done; exit 1

clients: ## install the clients for Node that tests call, if there is npm
	@if command -v npm >/dev/null; then npm ci --prefix tests/node --no-audit --no-fund --silent; \
	else echo "npm is missing: the tests of the AI SDK are skipped"; fi

compiler: ## install the C compiler that makes scoring on a CPU faster, if apt-get can
	@if command -v gcc >/dev/null || ! command -v apt-get >/dev/null; then exit 0; fi; \
	echo "installing gcc"; \
	$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null

lint: .venv ## check style, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: .venv chromium ## build the documentation into build/site, check its links, and open it from disk
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@$(BIN)/python tests/docs_site.py

docs-check: model ## run the commands in the documentation
	@$(BIN)/python tests/docs_commands.py

files: .venv ## list every module with its first line
	@$(BIN)/python -c 'import sys; sys.path.insert(0, "docs"); import hooks; print(hooks.modules())'

audit: licences ## compare the pinned versions with known vulnerabilities, at a package index that has data on them
	@$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off

# MPL-2.0 binds only changes to its own files. The metadata of axe-playwright-python (MIT) lack its licence. A CUDA build of torch
# brings proprietary packages, which are not looked at.
licences: .venv ## fail on an installed package whose licence is not on the list
	@$(BIN)/pip-licenses --from=mixed --partial-match --ignore-packages selfreflect axe-playwright-python \
		$$($(BIN)/python -m pip list --format=freeze 2>/dev/null | grep -oiE '^(nvidia|cuda)[a-z0-9_.-]*') \
		--allow-only="Apache;BSD;MIT;ISC;MPL-2.0;Mozilla Public License 2.0;PSF;Python Software Foundation;Public Domain" \
		--fail-on="GPL;GNU;Proprietary;UNKNOWN" >/dev/null

fuzz: .venv ## read files that chance damages, with a new seed: make fuzz EXAMPLES=3000
	@FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -q -x -p no:cacheprovider tests/test_fuzz.py --hypothesis-seed=random

format: .venv ## fix style and formatting where that is safe
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

model: .venv ## download and convert the embedded model, unless it is in the cache
	@$(BIN)/python -m selfreflect.models.smollm2 >/dev/null

.venv: .venv/.ready ## install the package and its tools into .venv

# venv writes its activate script last: without one the environment is missing or incomplete, so create it again.
.venv/bin/activate:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is not Python 3.11 or newer. Name one that is: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "$(PYTHON) cannot create virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear .venv

# torch first, by its exact version: CONTRIBUTING.md says why.
.venv/.ready: pyproject.toml constraints.txt | .venv/bin/activate
	@echo "installing $(TORCH) into .venv (some minutes if it must be downloaded)"
	@$(PIP) install -c constraints.txt $(TORCH) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	@echo "installing selfreflect and its development tools into .venv"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

clean: ## remove .venv, caches and build products (the embedded model stays in its cache)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
