# `make demo` and `make test` are all that a fresh machine with python3 and make needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Benchmarks run beside XLA's own parser, which wants a Python that jaxlib still supports.
BENCH_PYTHON ?= $(shell for p in python3.13 python3.12 $(PYTHON); do \
	$$p -c "" 2>/dev/null && echo $$p && break; done)
BENCH_VENV   := .venv-bench
BENCH_READY  := $(BENCH_VENV)/.ready

# Tests start hundreds of processes: bytecode is kept, also where Python is told not to write any.
export PYTHONDONTWRITEBYTECODE :=

CORPUS ?= ../shared
BASE   ?= HEAD

# `make fuzz`: how many mutants of modules and of dumps, and which.
N    ?= 10000
SEED ?= 1

# All that works beside JAX is tested with one, with TPU's compiler and with the libraries people
# write models in: `make jax`; the pass is measured by `make jax-orders`.
JAX_PYTHON ?= $(shell for p in python3.12 python3.13 \
	"$$HOME"/.pyenv/versions/3.1[2-9]*/bin/python3 $(PYTHON); do \
	$$p -c "" 2>/dev/null && echo $$p && break; done)
JAX_LIBRARIES := libtpu zstandard flax optax equinox keras pytest pytest-xdist hypothesis
JAX_VENV   := .venv-jax
JAX_READY  := $(JAX_VENV)/.ready

# Stores in S3 are tested beside a server of it: `make fleet`.
FLEET_VENV  := .venv-fleet
FLEET_READY := $(FLEET_VENV)/.ready

DOCS_VENV  := .venv-docs
DOCS_READY := $(DOCS_VENV)/.ready

.PHONY: demo docs dist test lint format types js browser pytest pure coverage jax jax-orders \
	tpu-orders cuda-orders fits tpu-fits fleet native sanitize bench parity support replay guard \
	fuzz faults pictures clean

$(READY): pyproject.toml requirements-dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements-dev.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(JAX_READY): pyproject.toml
	@test -x $(JAX_VENV)/bin/python || $(JAX_PYTHON) -m venv $(JAX_VENV)
	@$(JAX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	    $(JAX_LIBRARIES) -e ".[jax]"
	@touch $@

$(FLEET_READY): pyproject.toml
	@test -x $(FLEET_VENV)/bin/python || $(PYTHON) -m venv $(FLEET_VENV)
	@$(FLEET_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	    pytest hypothesis playwright pyarrow s3fs "moto[server]" -e ".[fleet]"
	@touch $@

# All of the fleet's tests, S3 and Arrow among them.
fleet: $(FLEET_READY)
	$(FLEET_VENV)/bin/python -m pytest tests/fleet

jax: $(JAX_READY)
	JAX_PLATFORMS=cpu $(JAX_VENV)/bin/python -m pytest -n 2 tests/jax

jax-orders: $(JAX_READY)
	JAX_PLATFORMS=cpu $(JAX_VENV)/bin/python -m tools.measure_orders

# Orders of large programs on accelerators that are not here; needs libtpu, JAX's CUDA plugin.
tpu-orders: $(JAX_READY)
	@$(JAX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check libtpu
	JAX_PLATFORMS=cpu $(JAX_VENV)/bin/python -m tools.measure_accelerator_orders \
	    --target tpu-v5e:2x2 --write docs/measurements.md

cuda-orders: $(JAX_READY)
	@$(JAX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check jax-cuda13-plugin
	JAX_PLATFORMS=cpu $(JAX_VENV)/bin/python -m tools.measure_accelerator_orders \
	    --target cuda-h100 --write docs/measurements.md

# Programs fitted to half of their temporaries: run on CPU, planned for a TPU.
fits: $(JAX_READY)
	JAX_PLATFORMS=cpu $(JAX_VENV)/bin/python -m tools.measure_fits --write docs/measurements.md
	JAX_PLATFORMS=cpu $(JAX_VENV)/bin/python -m tools.check_recompute

tpu-fits: $(JAX_READY)
	@$(JAX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check libtpu
	JAX_PLATFORMS=cpu $(JAX_VENV)/bin/python -m tools.measure_accelerator_fits \
	    --target tpu-v5e:2x2 --write docs/measurements.md

# For users: a training step that does not fit, why, what would help, and the fix beside it.
demo: $(READY)
	$(BIN)/hlomem oom examples/oom/error.txt
	@echo; $(BIN)/hlomem summary examples/oom/before --capacity v5e
	@echo; $(BIN)/hlomem advise examples/oom/before
	@echo; $(BIN)/hlomem diff examples/oom/before examples/oom/after
	@$(BIN)/hlomem html examples/oom/before examples/oom/after --capacity v5e \
	    -o .demo/report.html --force 2>/dev/null
	@echo; echo "the page of both: file://$(CURDIR)/.demo/report.html"

test: lint types js pytest

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(READY)
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
	@$(BIN)/python -m tools.check_scripts --fix

types: $(READY)
	$(BIN)/mypy

# The report's scripts: their style and types, where npm can install what checks them.
js: $(READY)
	@$(BIN)/python -m tools.check_scripts

# The report is tested in Chromium: the machine's own, else one that can be installed here.
browser: $(READY)
	@$(BIN)/python -m tools.install_browser

pytest: $(READY) browser
	@$(BIN)/python hatch_build.py --optional
	$(BIN)/pytest -n auto

# The same without the native kernels.
pure: $(READY) browser
	HLOMEM_PURE=1 $(BIN)/pytest -n auto

# Branch coverage by the tests that count for it, commands and children included.
coverage: $(READY) browser
	$(BIN)/pytest -n auto -m "not no_cover" --cov --cov-report=term:skip-covered

# The native kernels, beside their sources: tests then run on them, and compare them with Python's.
native: $(READY)
	$(BIN)/python hatch_build.py

# Every dump and module of the corpus read and printed back, every module planned; the figures go
# to docs/parity.md.
parity: $(READY)
	$(BIN)/python -m tools.write_parity --corpus $(CORPUS)

# Measures what each rule about the order of XLA's computations rests on; writes the tables of
# docs/history.md.
support: $(READY)
	$(BIN)/python -m tools.support --corpus $(CORPUS)

# Plans and prints by revision BASE and by the working tree, compared.
replay: $(READY)
	$(BIN)/python -m tools.replay $(BASE) --corpus $(CORPUS)

# Whether a release of XLA is planned as it plans, on a suite compiled by it in an environment of its
# own: `make guard JAXLIB=0.12.0`, `make guard LIBTPU=0.0.50 JAXLIB=0.12.0`; the row goes to
# docs/guard.md.
guard: $(READY)
	$(BIN)/python -m tools.guard --python $(JAX_PYTHON) --jaxlib "$(JAXLIB)" --libtpu "$(LIBTPU)" \
	    --write docs/guard.md

# Damaged and hostile inputs through every command, each with 5 s and 512 MB; findings go to .fuzz.
fuzz: $(READY)
	$(BIN)/python -m tools.fuzz --count $(N) --seed $(SEED)

# The native kernels under sanitizers: their tests, then damaged inputs straight into them.
sanitize: $(READY)
	$(BIN)/python -m tools.sanitize --count $(N) --seed $(SEED)

# Thousands of faults put into the plans of the corpus, for the checker to find; the figures are in
# docs/verifier.md.
faults: $(READY)
	$(BIN)/python -m tools.inject_faults --corpus $(CORPUS)

# What users have who install hlomem and nothing else, on the distribution's Python where there is one.
PLAIN_PYTHON ?= $(shell test -x /usr/bin/python3 && echo /usr/bin/python3 || echo $(PYTHON))
PLAIN_VENV   := .venv-plain

$(BENCH_READY): pyproject.toml
	@test -x $(BENCH_VENV)/bin/python || $(BENCH_PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check jax jaxlib playwright -e ".[fleet]"
	@touch $@

bench: $(BENCH_READY)
	@test -x $(PLAIN_VENV)/bin/python || $(PLAIN_PYTHON) -m venv $(PLAIN_VENV)
	@HLOMEM_NATIVE=1 $(PLAIN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --force-reinstall .
	@for script in bench/bench_*.py; do echo "== $$script"; \
	    python=; test $$script != bench/bench_plan.py || python="--python $(PLAIN_VENV)/bin/python"; \
	    $(BENCH_VENV)/bin/python -m bench.$$(basename $$script .py) --corpus $(CORPUS) $$python \
	        || exit 1; done

# The pictures of the report that the documents show, in Chromium.
pictures: $(READY) browser
	$(BIN)/python -m tools.make_screenshots

# The site of the documents, links checked; its code blocks are run by the tests.
$(DOCS_READY): requirements-docs.txt
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $< -e .
	@touch $@

docs: $(DOCS_READY)
	$(DOCS_VENV)/bin/python -m tools.build_site

# Source and wheel, checked: installed into empty environments, run from elsewhere, typed clients.
dist: $(DOCS_READY)
	$(DOCS_VENV)/bin/python -m tools.check_dist

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(PLAIN_VENV) $(JAX_VENV) $(DOCS_VENV) $(FLEET_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* .fuzz .replay .sanitize \
	    node_modules
