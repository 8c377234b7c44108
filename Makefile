# make lab: set up and open the lab.   make app: the lab alone, as a page.
# make docs: set up and build the site in build/site.
# make core: the core's tests, without the extensions.
# make gpu: all that uses a GPU, and a report of it.
# make test: set up and pass all tests.   make check: lint, types and the laws, for every few minutes of work.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARGS ?=

.PHONY: lab app docs test suite check core kernels laws lint bench bench-ui exports gpu notebooks pictures js js-check slides teaching clean

lab: $(VENV)/.kernels
	@echo "In another terminal: source $(VENV)/bin/activate, then dtfm-lab --help. Or $(BIN)/dtfm-lab without activating."
	$(BIN)/dtfm-lab lab -- $(ARGS)

app: $(VENV)/.lab
	$(BIN)/dtfm-lab lab --app $(ARGS)

# The pages, lessons and reference as a site that loads nothing from a network. A warning fails.
docs: $(VENV)/.docs
	$(BIN)/python -m tools.website $(ARGS)

# One process more than a small machine has cores: a third of the time, a test waits for a page, a link or a clock. One
# that has done its part takes over from another. A process has each server and browser once, and keeps what tests of a
# file share, as it gets whole stretches of neighbours.
# Hundreds of processes are started: they find the package compiled, whatever this shell is told.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest
# Each lesson runs once, in tests/extensions/course/test_guesses_locked.py. So only the notebook for GPUs is left here.
SUITE := --nbmake notebooks/gpu tests
PROCESSES ?= 3

test: $(VENV)/.dev
	$(MAKE) --jobs=2 --output-sync=target lint kernels
	$(MAKE) suite

suite: $(VENV)/.dev
	$(PYTEST) -n $(PROCESSES) --dist worksteal $(SUITE) $(ARGS)

check: $(VENV)/.dev
	$(MAKE) --jobs=2 --output-sync=target lint laws

# Of every room what is quick, needs no browser and no worker.
LAWS := tests/domain tests/files $(addprefix tests/,test_documentation.py \
	$(addprefix compare/, test_compare.py test_refit.py) \
	$(addprefix planning/, test_cost.py test_evaluate.py) \
	$(addprefix simulation/, test_schedules.py test_textbook_times.py test_simulate.py test_sharding.py) \
	extensions/published/test_rows.py \
	$(addprefix extensions/systems/, test_launch_flags.py test_outcomes.py) \
	$(addprefix runtime/, test_refusals.py test_gradient_shards.py test_codec.py test_no_pickles.py) \
	$(addprefix figures/, test_figures.py test_gantt_figure.py) \
	$(addprefix widgets/, test_document_conversion.py test_drawing.py test_view_traits.py test_words.py) \
	$(addprefix lab/, test_plausible_mistakes.py test_schemas.py) \
	$(addprefix extensions/course/, test_lessons.py test_guessing.py) \
	extensions/hosts/test_hosts_commands.py cli/test_mistakes.py)

# Machine code of the planners' and the simulator's loops is kept beside their sources, so that not every process makes
# its own. A search for seconds on few devices and its sensitivity need most of it, the paper's planners the rest.
define SEARCH_KERNELS
$(BIN)/dtfm-lab plan at-home --job gpt2-small --steps 1 --output $(VENV)/plan.json
$(BIN)/dtfm-lab explain --sensitivity $(VENV)/plan.json >$(VENV)/sensitivity.txt
endef
kernels: $(VENV)/.dev
	$(SEARCH_KERNELS)
	$(BIN)/dtfm-lab plan lecture-hall --job tiny --steps 1 --objective communication --output /dev/null
	$(BIN)/dtfm-lab plan lecture-hall --job tiny --steps 1 --objective communication --planner dtfm --output /dev/null

laws: $(VENV)/.dev
	$(PYTEST) -p no:nbmake -n 2 --dist worksteal -m "not slow" $(LAWS) $(ARGS)

# The core by itself: a copy without the extensions, in an environment of its own, passes the core's tests. Left out are
# a browser, and tests whose subject is the whole repository with its extensions: pages, lessons, benchmarks and the site.
CORE := build/core
OF_ALL := browser widgets/test_view_traits.py \
	$(addprefix test_,$(addsuffix .py, benchmarks documentation documented_code gpu_programme notebook_files questions site))
core:
	rm -rf $(CORE) && mkdir -p $(CORE)
	git ls-files --cached | grep -vE '^(dtfm_lab|tests)/extensions/' | tar -cT - | tar -xC $(CORE)
	sed -i '/^\[project\.entry-points/,/^$$/{/dtfm_lab\.extensions/d}' $(CORE)/pyproject.toml
	$(PYTHON) -m venv $(CORE)/.venv
	cd $(CORE) && .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	cd $(CORE) && env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest -n 2 --dist worksteal tests -m "not slow" $(addprefix --ignore=tests/,$(OF_ALL)) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/keywords.py --check
	$(BIN)/python tools/reference_pages.py --check
	$(BIN)/lint-imports
	$(BIN)/python tools/javascript.py
	$(BIN)/python tools/prose.py

# The tables of docs/benchmarks.md. `python benchmarks` lists them all; one alone is `python benchmarks NAME`.
BENCHMARKS := planning baseline bounds iteration replanning simulation predictions cuts modules real_plans strategies \
	systems_run pipelining starting soak

bench: $(VENV)/.dev
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks $$name || exit 1; done
	$(BIN)/python benchmarks first_answer --systems

bench-ui: $(VENV)/.dev
	$(BIN)/python benchmarks mystery
	$(BIN)/python benchmarks interface $(ARGS)

# What is exported, read by the frameworks' own parsers, in an environment of their own: they ask for other versions of
# what the lab has, and some for what is built beside torch.
EXPORTS_PYTHON := .venv-exports/bin/python
FRAMEWORKS := torchtitan==0.3.0 triton accelerate==1.15.0 kubernetes-validate==1.37.0 skypilot==0.14.1 \
	omegaconf "megatron-core==0.19.2; python_version >= '3.12'"

exports: .venv-exports/.made
	$(EXPORTS_PYTHON) -m pytest -p no:cacheprovider tests/cli/test_exports_read.py $(ARGS)

.venv-exports/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-exports
	$(EXPORTS_PYTHON) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[train]' pytest pytest-timeout hypothesis
	$(EXPORTS_PYTHON) -m pip install --quiet --disable-pip-version-check $(FRAMEWORKS)
	$(EXPORTS_PYTHON) -m pip install --quiet --disable-pip-version-check --no-build-isolation deepspeed==0.19.8
	touch $@

# All that uses a GPU, and a report of it in build/gpu-report: docs/run-for-real.md. It sets up an environment of its own, for
# the pinned torch is one without CUDA. CUDA=13 for newer drivers; GPU_PYTHON=python for an environment that is there.
CUDA ?= 12
TORCH_FOR_12 := cu126
TORCH_FOR_13 := cu130
GPU_VENV ?= .venv-gpu
GPU_PYTHON ?= $(GPU_VENV)/bin/python

gpu: $(if $(filter file,$(origin GPU_PYTHON)),$(GPU_VENV)/.cuda$(CUDA))
	$(GPU_PYTHON) benchmarks gpu $(ARGS)

$(GPU_VENV)/.cuda$(CUDA): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(GPU_VENV)
	grep -Ev '^(torch|cupy|nvidia|cuda|triton)' constraints.txt > $(GPU_VENV)/constraints.txt
	$(GPU_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--index-url https://download.pytorch.org/whl/$(TORCH_FOR_$(CUDA)) torch
	$(GPU_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $(GPU_VENV)/constraints.txt --editable '.[cuda$(CUDA),lab]' 'cupy-cuda$(CUDA)x[ctk]'
	touch $@

# The lessons with still pictures of what they show, for readers on GitHub; those that have not changed are not run again.
notebooks: $(VENV)/.dev
	$(BIN)/python -m tools.notebooks $(ARGS)

# The teacher's tables of lessons and missions.
teaching: $(VENV)/.lab
	$(BIN)/python -m tools.website.course docs/teach.md

# Slides of every lesson, in the folder slides.
slides: $(VENV)/.lab
	mkdir -p slides
	for lesson in notebooks/*.ipynb; do $(BIN)/dtfm-lab export --slides $$lesson -o slides/$$(basename $$lesson .ipynb).slides.html; done

# The built widgets are committed, so that neither a clone nor a wheel needs Node.
js:
	cd tools/js && npm ci --no-audit --no-fund && npm run build

# Stills and a moving picture of the lab for the README, in both themes: some ten minutes, with a Chromium.
pictures: $(VENV)/.dev
	$(BIN)/python -m tools.screenshots $(ARGS)

js-check: js
	git diff --exit-code -- dtfm_lab/widgets/static 'dtfm_lab/extensions/*/static'

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.lab: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --editable '.[all]'
	touch $@

# The search's kernels are compiled once, so that the first plan in the lab need not wait for them.
$(VENV)/.kernels: $(VENV)/.lab
	$(SEARCH_KERNELS)
	touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	touch $@ $(VENV)/.lab

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.lab $(VENV)/.docs

clean:
	rm -rf $(VENV) $(GPU_VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis tools/js/node_modules
