"""Trains in C, with hooks in C, Cython and Python.

pip install cython setuptools, and fastsup, in a clone: pip install -e ../..
python setup.py build_ext --inplace
python train.py
"""

from __future__ import annotations

import time

import best
import sgd

from fastsup.loop import CheckpointHook, NanGuardHook, ProgressHook

STEPS = 2_000_000


def main() -> None:
    model, best_step, saved = sgd.new_model(), best.Best(), []
    hooks = [
        sgd.averaging_hook(model),
        best_step,
        NanGuardHook(every_steps=1000),
        CheckpointHook(lambda step: saved.append((step, *sgd.read_model(model))), every_steps=500_000),
        ProgressHook(),
    ]
    loop = sgd.training_loop(model, hooks, STEPS)
    began = time.perf_counter()
    loop.run()
    secs = time.perf_counter() - began
    weights, average = sgd.read_model(model)
    print(f"{loop.steps:,} steps, {secs / loop.steps * 1e9:.0f} ns each")
    print(f"average loss {average:.2g}; best {best_step.result:.2g}, at step {best_step.step:,}")
    print(f"weights {' '.join(f'{weight:.3f}' for weight in weights)}")
    print(f"{len(saved)} checkpoints, the last at step {saved[-1][0]:,}")


if __name__ == "__main__":
    main()
