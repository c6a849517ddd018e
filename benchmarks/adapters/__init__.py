"""The adapters of `python -m benchmarks --peers`, all with the same names. They run without this package."""
