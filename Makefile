# `make run` and `make test` work in an empty checkout: both make .venv first, once.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
ARGS ?=

.PHONY: run test lint docs build clean .venv

run: $(INSTALLED)  ## Every suite this machine can run, each in a fresh process.
	$(BIN)/samebits run $(ARGS)

test: $(INSTALLED)  ## All tests, examples in the documentation included.
	$(BIN)/pytest $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files 'kernels/*.cu' 'kernels/*.cuh' 'kernels/*.h' 'kernels/*.cpp' | xargs -r $(BIN)/clang-format --dry-run -Werror

docs: $(INSTALLED)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

build: $(INSTALLED)  ## Compile the kernels now, not at their first call.
	$(BIN)/samebits-kernels build

.venv: $(INSTALLED)

# The stamp is written last, so an installation that was interrupted is made again.
$(INSTALLED): pyproject.toml ci/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "samebits needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c ci/constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv docs/_build
