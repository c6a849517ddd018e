# What an engineer runs while working on fastsup. docs/development.md explains it.
PYTHON ?= python

.PHONY: compile test lint bench debug testinstalled release-files release docs

compile:
	$(PYTHON) -m pip install --quiet -e ".[dev,docs]"

test:
	$(PYTHON) -m pytest
	FASTSUP_TEST_WORLD=v1 $(PYTHON) -m pytest tests/runtime tests/train tests/profile

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench:
	$(PYTHON) -m benchmarks

# The debug build lies in a folder of its own, and leaves the compiled files of this one as they are.
debug:
	bash .ci/debug tests/core tests/runtime tests/train

testinstalled:
	bash .ci/run

# The source distribution and the wheels, in dist/. docs/releasing.md says what comes before and after.
release-files:
	bash .ci/wheels dist

# The same, after checks of the version, the changelog and the tree.
release:
	bash .ci/release

# The documentation site, into site/. Warnings and broken links are errors.
docs:
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	$(PYTHON) -m website.check site
