"""The cost of a step under TensorFlow's sessions, in the bare runtime and under fastsup, side by side in one process.

`python -m benchmarks` prints the table, `pytest benchmarks --benchmark-enable` the same as groups of pytest-benchmark.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The steps are far too small for a GPU, and a session with a GPU has more than one executor.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
