# The commands of the house. `make run` and `make test` need only git, make and Python 3.11.
PYTHON ?= python3
EXTRAS ?= dev,testbed
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := run
.PHONY: run test test-fast check bench clean setup system

setup: $(VENV)/.installed-$(EXTRAS)

$(VENV)/.installed-$(EXTRAS): pyproject.toml constraints.txt
	@tools/setup $(PYTHON) $(VENV) "$(EXTRAS)"
	@touch "$@"
