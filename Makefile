# make demo    see it work: sets up .venv (torch included) and runs `gpumemtrace demo`
# make test    the same set-up, then the native tests and pytest on the installed package
# make help    the other targets and the variables

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch
JOBS   ?= $(shell nproc)
# Warnings of a compiler that we don't know keep nobody from installing; .ci/run says ON.
WERROR ?= OFF
OLDEST_TORCH := 2.6.0

# Everything made on the way lies under $(BUILD), with one folder per environment, so that two
# environments (two torches) never share an object file. Stamps lie in the environment itself:
# remove it and all is set up again.
BUILD     := build/$(notdir $(VENV))
STAMPS    := $(VENV)/.gpumemtrace
VPYTHON   := $(abspath $(VENV))/bin/python
PIP       := $(VPYTHON) -m pip --disable-pip-version-check
# cmake, ninja and the linters of the environment come before those of the system.
export PATH := $(abspath $(VENV))/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE \
  $(shell find cmake csrc gpumemtrace -type f -not -path '*/__pycache__/*')

.PHONY: help demo test test-native test-python test-oldest test-install lint tidy format sanitize fuzz \
  stubtest docs wheel install clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo          set up $(VENV), install torch if it is not there, run gpumemtrace demo'
	@echo 'make test          the same set-up, then all tests (PYTEST_ARGS="-k name" for some)'
	@echo 'make test-native   only the native tests (need doctest: apt install doctest-dev)'
	@echo 'make test-oldest   the simulated-GPU tests under torch $(OLDEST_TORCH), in .venv-oldest'
	@echo 'make test-install  pip install into environments without torch, with another torch, ...'
	@echo 'make stubtest      whether gpumemtrace/_core.pyi says what the native module has'
	@echo 'make sanitize      the native tests under ASan + UBSan, then under TSan'
	@echo 'make fuzz          a minute of bytes and files made to hurt (FUZZ_SECONDS=60; needs clang)'
	@echo 'make lint          format, types, layers, spelling; `make format` mends the format'
	@echo 'make tidy          clang-tidy over the native core (apt install clang-tidy)'
	@echo 'make docs          the documentation, into build/docs'
	@echo 'make wheel         dist/*.tar.gz and dist/*.whl (for the torch of $(VENV))'
	@echo 'make install       set up $(VENV) and install the package there'
	@echo 'make clean         remove build/, dist/ and the environments'
	@echo 'Variables: PYTHON (default python3), VENV (.venv; an environment of yours is used as it is),'
	@echo '  TORCH (what pip installs, "torch"), LEAN=1 (torch without the libraries that only a GPU'
	@echo '  needs: 1.5 GB instead of 5.5 GB), JOBS ($(JOBS): compilers and tests at a time)'

# --- Set-up: environment, torch, package, tools; each a stamp ---------------------------------

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'gpumemtrace needs Python 3.10 or newer: make PYTHON=/path/to/python3.x'; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo '$(PYTHON) has no venv module: apt install python3-venv'; exit 1; }
	@echo 'Making the environment $(VENV): a few seconds'
	@$(PYTHON) -m venv $(VENV)

$(STAMPS)/pip: | $(VENV)/bin/python
	@mkdir -p $(STAMPS)
	@$(PIP) install --quiet 'pip>=25.1'
	@touch $@

# A torch that is there already stays, unless TORCH asks for another one.
$(STAMPS)/torch: $(STAMPS)/pip
	@if [ '$(TORCH)' = torch ] && $(VPYTHON) -c \
	  'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; \
	then echo 'torch is there'; \
	elif [ -n '$(LEAN)' ]; then \
	  echo 'Installing $(TORCH) without the libraries of a GPU (1.5 GB): one to five minutes'; \
	  $(VPYTHON) .ci/install_lean_torch.py '$(TORCH)'; \
	else \
	  echo 'Installing $(TORCH) (5.5 GB; LEAN=1: 1.5 GB): two to ten minutes, by your network'; \
	  $(PIP) install --quiet '$(TORCH)'; fi
	@touch $@

# Not editable: what is tested is what a user gets. Without build isolation, so that a second
# build only compiles what changed.
$(STAMPS)/package: $(STAMPS)/torch $(SOURCES)
	@echo 'Compiling and installing gpumemtrace ($(JOBS) jobs): one to three minutes'
	@$(PIP) install --quiet --group build
	@$(PIP) install --quiet --no-build-isolation -Cbuild-dir=$(BUILD)/package \
	  -Ccmake.define.GPUMEMTRACE_WERROR=$(WERROR) .
	@touch $@

$(STAMPS)/test-tools: $(STAMPS)/pip pyproject.toml
	$(PIP) install --quiet --group build --group test
	$(PIP) install --quiet --no-deps --group test-with-torch
	@touch $@

$(STAMPS)/lint-tools: $(STAMPS)/pip pyproject.toml
	$(PIP) install --quiet --group lint
	@touch $@

$(STAMPS)/docs-tools: $(STAMPS)/pip pyproject.toml
	$(PIP) install --quiet --group docs
	@touch $@

install: $(STAMPS)/package

demo: install
	@echo 'Running the demo: ten seconds or so'
	$(VENV)/bin/gpumemtrace demo
	@echo 'The command gpumemtrace is in $(VENV): . $(VENV)/bin/activate'

# --- Tests ------------------------------------------------------------------------------------

test: test-native test-python

# The one thing that no Python package brings. NATIVE=required makes its absence an error.
HAVE_DOCTEST := $(shell $${CXX:-c++} -x c++ -include doctest/doctest.h -fsyntax-only /dev/null \
  2>/dev/null && echo yes)

ifeq ($(HAVE_DOCTEST),yes)
test-native: $(STAMPS)/test-tools
	cmake -S . -B $(BUILD)/native -G Ninja --log-level=WARNING \
	  -DGPUMEMTRACE_NATIVE_TESTS=ON -DGPUMEMTRACE_WERROR=ON
	cmake --build $(BUILD)/native
	ctest --test-dir $(BUILD)/native --output-on-failure --no-tests=error

# Randomised addresses can collide with TSan's shadow memory.
sanitize: NO_ASLR := $(shell setarch -R true 2>/dev/null && echo setarch -R)
sanitize: $(STAMPS)/test-tools
	for preset in asan tsan; do \
	  cmake --preset $$preset --log-level=WARNING && cmake --build --preset $$preset && \
	  $(NO_ASLR) ctest --preset $$preset || exit 1; \
	done
else
test-native sanitize:
	@echo '$@: left out, no doctest.h here (apt install doctest-dev)'
	@[ '$(NATIVE)' != required ]
endif

# Half of the time for the native targets (tests/fuzz/README.md), half for the commands. What is new
# goes to build/fuzz-corpus, so that the next run goes on from there.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := reader:reader codec:codec roundtrip:events segment:segment compute:events pickle:pickle
fuzz: $(STAMPS)/package $(STAMPS)/test-tools
	@if command -v clang++ >/dev/null; then \
	  cmake --preset fuzz --log-level=WARNING && cmake --build --preset fuzz || exit 1; \
	  for entry in $(FUZZ_TARGETS); do \
	    target=$${entry%%:*}; corpus=build/fuzz-corpus/$$target; mkdir -p $$corpus; \
	    program=build/fuzz-targets/tests/fuzz/fuzz_$$target; \
	    [ -x $$program ] || { echo "fuzz_$$target: left out, no shared library of Python"; continue; }; \
	    echo "fuzz_$$target"; \
	    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	    $$program -max_total_time=$$(( $(FUZZ_SECONDS) / 10 + 1 )) -max_len=4096 -timeout=20 \
	      -rss_limit_mb=4096 -artifact_prefix=build/fuzz-corpus/ -verbosity=0 -print_final_stats=1 \
	      $$corpus tests/fuzz/corpus/$${entry##*:} || exit 1; \
	  done; \
	else echo 'fuzz: the native targets are left out, no clang++ here (apt install clang)'; fi
	cd $(BUILD) && $(VPYTHON) $(CURDIR)/tests/fuzz/fuzz_commands.py \
	  --seconds $$(( $(FUZZ_SECONDS) / 2 )) --keep $(CURDIR)/build/fuzz-corpus/commands \
	  --seed $$(date +%s)

# From a folder of its own: at the root, Python would import the source folder gpumemtrace/, which
# has no native part, instead of the installed package. tests/conftest.py minds it too.
# A file's tests stay in one process, since they share what its fixtures have recorded.
test-python: $(STAMPS)/package $(STAMPS)/test-tools
	@mkdir -p $(BUILD)/pytest
	$(PYTEST) -n $(JOBS) --dist loadfile $(PYTEST_ARGS) $(CURDIR)/tests

PYTEST = cd $(BUILD)/pytest && \
  $(VPYTHON) -m pytest -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR)

test-install: $(STAMPS)/package $(STAMPS)/test-tools
	@mkdir -p $(BUILD)/pytest
	$(PYTEST) $(PYTEST_ARGS) $(CURDIR)/tests/install/check_install.py

test-oldest:
	$(MAKE) test-python VENV=.venv-oldest LEAN=1 TORCH=torch==$(OLDEST_TORCH) \
	  PYTEST_ARGS='-m simgpu $(PYTEST_ARGS)'

# --- Checks -----------------------------------------------------------------------------------

CXX_FILES = $$(find csrc tests benchmarks \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) 2>/dev/null)

lint: $(STAMPS)/lint-tools
	@failed=; for check in 'ruff check .' 'ruff format --check .' mypy 'lint-imports --no-logo' \
	  "clang-format --dry-run --Werror $$(echo $(CXX_FILES))" codespell; do \
	  echo "$$check" | cut -c 1-80; $$check || failed="$$failed $${check%% *}"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

format: $(STAMPS)/lint-tools
	ruff check --fix-only .
	ruff format .
	clang-format -i $(CXX_FILES)

tidy: $(STAMPS)/test-tools
	cmake --preset dev --log-level=WARNING
	clang-tidy --quiet -p build/dev --warnings-as-errors='*' \
	  csrc/trace/*.cc csrc/capture/*.cc csrc/compute/*.cc

# The stub of the native module says what the module has, and no more.
stubtest: $(STAMPS)/package $(STAMPS)/lint-tools
	cd $(BUILD) && $(VPYTHON) -m mypy.stubtest --concise gpumemtrace._core \
	  --allowlist $(CURDIR)/.ci/stubtest_allowlist

# Warnings are errors: a link to nowhere, a name that is not there.
docs: $(STAMPS)/package $(STAMPS)/docs-tools
	@mkdir -p $(BUILD)
	cd $(BUILD) && $(VPYTHON) -m sphinx -q -W --keep-going -b html -d $(CURDIR)/$(BUILD)/doctrees \
	  $(CURDIR)/docs $(CURDIR)/build/docs
	@echo 'build/docs/index.html'

wheel: $(STAMPS)/torch
	$(PIP) install --quiet --group build
	$(VPYTHON) -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
	$(PIP) wheel --quiet --no-deps --no-build-isolation -w dist -Cbuild-dir=$(BUILD)/package .

clean:
	rm -rf build dist .venv .venv-oldest
