"""Builds the documentation site: what mkdocs.yml leaves to code."""
