# Each target makes its own .venv when there is none. PYTHON picks the interpreter it is made with.
PYTHON ?= python3
BIN := .venv/bin
# Tests run beside each other, each file in one process; tests/conftest.py says which files come first. Threads that wait
# for others of a network sleep meanwhile: they would take the cores from the tests beside them.
BESIDE := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: train test test-long lint bench clean

train: .venv/ready
	$(BIN)/stoker train demo --name demo
	@echo "next: open runs/demo/report.html in a browser; source .venv/bin/activate, then: stoker why demo"

test: .venv/ready
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -m "not gpu and not long and not alone" $(BESIDE)
	$(BIN)/python -m pytest -m "alone and not gpu and not long"

test-long: .venv/ready
	$(BIN)/python -m pytest -m long

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/stoker bench loader

clean:
	rm -rf .venv build *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready: pyproject.toml constraints.txt setup.py $(wildcard src/stoker/data/native/*.h src/stoker/data/native/*.cpp)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Stoker needs Python 3.11 or newer, and $(PYTHON) is older. Fix: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "installing Stoker and what it needs into .venv; the first time this downloads torch"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
