# Both commands do all their own set-up; PYTHON picks the interpreter (3.10 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint clean

demo: $(VENV)/.base
	$(BIN)/cufall demo --view timeline --metric tensor --metric sm --metric gr --metric dram --metric fma

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.base: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("cufall needs Python 3.10 or newer") if sys.version_info < (3, 10) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --group test
	touch $@

$(VENV)/.lint: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --group lint --editable ".[gpu]"
	touch $@

clean:
	rm -rf $(VENV)
