# What an engineer runs while working on fastsup. docs/development.md explains it.
PYTHON ?= python
# The folders of the heart. `make quick` runs our side of their tests, but for those that start processes or take long.
QUICK = tests/core tests/recording tests/csrc tests/loop tests/embed tests/runtime tests/train
C_FILES = $(shell git ls-files '*.c' '*.h' '*.cc')

.DEFAULT_GOAL := help
.PHONY: help compile quick test test-all devices faults canary lint format bench debug testinstalled release-files release docs

help:  ## show these lines
	@sed -n 's/^\([a-z-]*\):  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

compile:  ## install in place, with all tools; after a change of a .pyx: python setup.py -q build_ext --inplace
	$(PYTHON) -m pip install --quiet -e ".[dev,docs]"

quick:  ## linters, types, and the tests that start no process: two minutes
	$(MAKE) lint
	$(PYTHON) -m pytest -q -n auto -m "not process and not slow and not reference" $(QUICK)

test:  ## the tests, without those that take long or run on TensorFlow's classes
	$(PYTHON) -m pytest -n auto

test-all:  ## all tests; those of sessions, hooks, profiles under TF 2 behaviour and disable_v2_behavior()
	$(PYTHON) -m pytest -n auto -m ""
	FASTSUP_TEST_WORLD=v1 $(PYTHON) -m pytest -n auto -m "" tests/runtime tests/train tests/profile

devices:  ## tests of functions, loops and Keras where TensorFlow has several devices: 20 minutes
	for devices in two_cpus beside_accelerator accelerator; do \
	  FASTSUP_TEST_DEVICES=$$devices $(PYTHON) -m pytest -q -n auto -m "" tests/eager tests/loop tests/keras || exit 1; \
	done
	FASTSUP_DEVICES=long $(PYTHON) -m pytest -q -n auto -m "" tests/gpu/test_functions.py

faults:  ## every file operation of every way to save fails, or is the last one before the power is lost: long
	FASTSUP_FAULTS=long $(PYTHON) -m pytest -q -n auto -m "" tests/faults

canary:  ## the tests on a nightly build of the next TensorFlow, in an environment of its own
	bash .ci/canary

lint:  ## linters and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	clang-format --dry-run -Werror $(C_FILES)
	$(PYTHON) -m mypy
	$(PYTHON) tests/type_completeness.py

format:  ## format Python and C
	$(PYTHON) -m ruff format .
	clang-format -i $(C_FILES)

bench:  ## what a step costs, beside TensorFlow and the bare runtime
	$(PYTHON) -m benchmarks

# The debug build lies in a folder of its own, and leaves the compiled files of this one as they are.
debug:  ## tests of what is compiled, with assertions and bounds checks
	bash .ci/debug tests/core tests/runtime tests/train

testinstalled:  ## what CI runs: a wheel, an environment of its own, everything
	bash .ci/run

docs:  ## the documentation site, into site/; warnings and broken links are errors
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	$(PYTHON) -m website.check site

# docs/releasing.md says what comes before and after.
release-files:  ## the source distribution and the wheels, in dist/
	bash .ci/wheels dist

release:  ## the same, after checks of the version, the changelog and the tree
	bash .ci/release
