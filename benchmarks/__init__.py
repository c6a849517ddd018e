"""What a step costs: TensorFlow's sessions, the bare runtime and fastsup, side by side in one process.

`python -m benchmarks` prints the table, `pytest benchmarks --benchmark-enable` the same as groups of pytest-benchmark.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The steps measured here are far too small for a GPU, and a session that has one has more than one executor.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
