# Everything here is one plain command in the project's own environment, .venv.
# `make help` lists the targets; nothing in it needs root.

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The first of these that runs and is new enough; `make serve PYTHON=/path/to/python3.13` decides.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
# A stamp is named by the content of what it installs, so an unchanged lock needs no network.
sum = $(shell cat $(1) pyproject.toml 2>/dev/null | cksum | cut -d' ' -f1)
RUNTIME := .venv/.runtime-$(call sum,requirements.lock)
DEV := .venv/.dev-$(call sum,requirements-dev.lock)

.PHONY: all
all: fmt lint types arch test ## format, then every check: what to run before a commit

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: serve
serve: $(RUNTIME) ## install once, then serve on 127.0.0.1:8080 until Ctrl-C
	@exec $(BIN)/tiffin serve $(ARGS)

.PHONY: run
run: $(RUNTIME) ## run a tiffin command: make run ARGS="status"
	@exec $(BIN)/tiffin $(ARGS)

.PHONY: dev
dev: $(DEV) ## install the development tools as well

.PHONY: fmt
fmt: $(DEV) ## format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix --exit-zero --quiet

.PHONY: lint
lint: $(DEV) ## check style
	$(BIN)/ruff format --check
	$(BIN)/ruff check

.PHONY: types
types: $(DEV) ## check types, strictly
	$(BIN)/mypy

.PHONY: arch
arch: $(DEV) ## check the architecture: layers, sizes, names, effects of importing
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest tests/arch

.PHONY: test
test: $(DEV) ## run the tests, in random order
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(ARGS)
WORKERS ?= 2

.PHONY: bench
bench: $(DEV) ## measure here: tokens through Tiffin, then the gateway beside its peers
	$(BIN)/python bench/engine.py \
	  --gguf "$$($(BIN)/python -c 'from tests.real_models import model_file; print(model_file("chat-tiny"))')"
	bash bench/gateway.sh

.PHONY: docs
docs: $(DEV) ## write docs/reference anew from the code
	$(BIN)/python -m tiffin.cli.reference docs/reference

.PHONY: lock
lock: ## resolve the locks anew: newest versions, hashed, for every Python from 3.11
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv
	$(COMPILE) --excludes requirements.excluded -c requirements.constraints \
		--extra build pyproject.toml -o requirements.lock
	$(COMPILE) --extra build --extra dev --extra audio --extra grpc --extra import --extra nvidia --extra ocr \
		--extra openvino --extra parquet -c requirements.lock pyproject.toml -o requirements-dev.lock
	rm -rf .venv-lock
COMPILE = .venv-lock/bin/uv pip compile --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --quiet --custom-compile-command "make lock"

.PHONY: clean
clean: ## remove the environment and every cache; never touches ~/.tiffin
	rm -rf .venv .venv-lock build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { \
	  echo "Tiffin needs Python 3.11 or newer and found none." >&2; \
	  echo "Install one, or name it: make serve PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Tiffin needs Python 3.11 or newer; $(PYTHON) is older or does not run." >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv || { rm -rf .venv; \
	  echo "$(PYTHON) can't make environments here; on Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }

$(RUNTIME): | .venv/bin/python
	@echo "Installing Tiffin into .venv (once; about 100 MB to download) ..."
	@$(INSTALL) --no-deps --require-hashes -r requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@rm -f .venv/.runtime-* && touch $@

$(DEV): | .venv/bin/python
	@echo "Installing Tiffin and its development tools into .venv (once) ..."
	@$(INSTALL) --no-deps --require-hashes -r requirements-dev.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@rm -f .venv/.dev-* .venv/.runtime-* && touch $@ $(RUNTIME)
