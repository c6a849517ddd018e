"""One measurement of one peer, in its own process: `worker.py PEER WORKLOAD SECONDS`.

The last line of the output is a JSON object: `started` and `last`, readings of the clock that all processes share,
in seconds, at the first line and at the end of the last step; `import_secs`, from the first line to the end of the
imports; `first_step_secs`, from there to the end of the first step; `slices`, lists of [steps, seconds]; `peak_mb`, the
largest resident memory in millions of bytes; `versions`.
"""

import importlib
import json
import os
import platform
import sys
import time
from importlib.metadata import distributions

STARTED = time.time()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# The module of each peer, and its name there.
MODULES = {
    "tf_session": ("in_graphs", "tensorflow"),
    "fastsup_session": ("in_graphs", "fastsup"),
    "tf_estimator": ("estimators", "tensorflow"),
    "fastsup_estimator": ("estimators", "fastsup"),
    "tf_function": ("in_functions", "tf_function"),
    "fastsup_function": ("in_functions", "fastsup_function"),
    "fastsup_step_loop": ("in_functions", "fastsup_step_loop"),
    "fastsup_compiled": ("in_functions", "fastsup_compiled"),
    "tf_function_compiled": ("in_functions", "tf_function_compiled"),
    "orbit": ("in_functions", "orbit"),
    "keras_1": ("in_keras", "1"),
    "keras_100": ("in_keras", "100"),
    "fastsup_keras": ("in_keras", "fastsup"),
    "keras_compiled": ("in_keras", "compiled"),
    "fastsup_keras_compiled": ("in_keras", "fastsup_compiled"),
    "jax": ("in_jax", "jax"),
    "jax_scan": ("in_jax", "jax_scan"),
    "clu": ("in_jax", "clu"),
    "torch": ("in_torch", "torch"),
    "ignite": ("in_torch", "ignite"),
    "lightning": ("in_torch", "lightning"),
}
DISTRIBUTIONS = {"tensorflow", "tensorflow-cpu", "tensorflow-estimator", "keras", "jax", "torch", "clu"}
DISTRIBUTIONS |= {"pytorch-ignite", "lightning", "tf-models-official", "fastsup", "numpy"}
SLICES = 10


def versions():
    """The versions of Python and of the packages here that matter."""
    # The name may have "_" for "-": tensorflow_cpu since 2.16.
    found = {dist.metadata["Name"].replace("_", "-"): dist.version for dist in distributions()}
    return {"python": platform.python_version(), **{name: found[name] for name in found if name in DISTRIBUTIONS}}


def peak_mb():
    """The largest resident memory of this process so far, in millions of bytes."""
    # Not getrusage: its number includes the process that has started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmHWM"))


def steps_of_a_slice(loop, seconds):
    """How many steps fill a slice of so many seconds: whole executions, of a loop with more than one step in each.

    A round counts if another one has run as many steps before it: the first compiles, chooses executors, fills caches.
    """
    at_once = getattr(loop, "steps_at_once", 1)
    steps, ran = at_once, 0
    while True:
        began = time.perf_counter()
        loop.run(steps)
        took = time.perf_counter() - began
        if took >= seconds / 2:
            if ran == steps:
                return steps
            ran = steps
        else:
            wanted = max(2 * steps, min(10 * steps, int(steps * seconds / max(took, 1e-9))))
            steps = -(-wanted // at_once) * at_once


def main():
    """Measures, and prints the JSON object."""
    peer, workload, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    module, name = MODULES[peer]
    adapter = importlib.import_module(module)
    imported = time.time()
    loop = adapter.PEERS[name](workload)
    loop.run(1)
    first = time.time()
    steps = steps_of_a_slice(loop, seconds / SLICES)
    slices = []
    for _ in range(SLICES):
        began = time.perf_counter()
        loop.run(steps)
        slices.append([steps, time.perf_counter() - began])
    last = time.time()
    loop.close()
    result = {
        "started": STARTED,
        "last": last,
        "import_secs": imported - STARTED,
        "first_step_secs": first - imported,
        "slices": slices,
        "peak_mb": peak_mb(),
        "versions": versions(),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
