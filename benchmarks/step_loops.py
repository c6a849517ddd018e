"""StepLoop against the loops of pytorch-ignite and Lightning: their cost on top of the step.

    pip install torch pytorch-ignite lightning "jax[cpu]"
    python -m benchmarks.step_loops

Each loop runs the same step, with six hooks that act every thousand steps. The overhead is the time of a step in the
loop, less that in a bare loop in C around the same step.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

try:
    import jax
    import torch
    from ignite.engine import Engine, Events
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as missing:
    raise SystemExit(
        f'{missing}. This benchmark needs: pip install torch pytorch-ignite lightning "jax[cpu]"'
    ) from None
from rich.console import Console
from rich.table import Table

import fastsup
from benchmarks.loops import library
from benchmarks.measure import alternate
from fastsup.loop import PeriodicHook, StepLoop

HOOKS, EVERY = 6, 1000
# Long enough that the begin and end of a run don't count.
SLICE_SECS = 1.0

Step = Callable[[], Any]


class Bare:
    """A loop in C around the step."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def steps(self, n: int) -> None:
        """Runs n steps."""
        library().bare_python(self._step, n)

    def close(self) -> None:
        """Nothing to free."""


class Counting(PeriodicHook):
    """Counts how often it is called."""

    calls = 0

    def act(self, loop: Any) -> None:
        """Called when it is due."""
        self.calls += 1


class Fastsup(Bare):
    """StepLoop."""

    def steps(self, n: int) -> None:
        """Runs n steps."""
        StepLoop(self._step, [Counting(every_steps=EVERY) for _ in range(HOOKS)], max_steps=n).run()


class Ignite(Bare):
    """pytorch-ignite's Engine, with handlers that it calls every so many iterations."""

    def steps(self, n: int) -> None:
        """Runs n steps."""
        step, calls = self._step, [0] * HOOKS
        engine = Engine(lambda engine, batch: step())

        def count(engine: Any, number: int) -> None:
            calls[number] += 1

        for number in range(HOOKS):
            engine.add_event_handler(Events.ITERATION_COMPLETED(every=EVERY), count, number)
        engine.run(range(n), max_epochs=1)


class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc, type-arg]
    """Numbers in place of batches."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._n))


class CountingCallback(Callback):  # type: ignore[misc]
    """Counts every so many batches, as callbacks of Lightning do: by asking in each."""

    calls = 0

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step is over."""
        if (batch_idx + 1) % EVERY == 0:
            self.calls += 1


class Module(LightningModule):  # type: ignore[misc]
    """A module that runs the step and optimises nothing."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.automatic_optimization = False
        self._step = step

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Runs the step."""
        self._step()

    def configure_optimizers(self) -> None:
        """There are none."""


class Lightning(Bare):
    """Lightning's Trainer, with nothing switched on but the callbacks."""

    def steps(self, n: int) -> None:
        """Runs n steps."""
        trainer = Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[CountingCallback() for _ in range(HOOKS)],
        )
        trainer.fit(Module(self._step), torch.utils.data.DataLoader(Batches(n), batch_size=None))


def no_op() -> None:
    """A step that does nothing."""


def jax_step() -> Step:
    """A step compiled by JAX."""
    compiled = jax.jit(lambda x: x * 0.5 + 1.0)
    state = compiled(jax.numpy.float32(3.0))

    def step() -> None:
        nonlocal state
        state = compiled(state)

    return step


def torch_step() -> Step:
    """A step of PyTorch's: one of gradient descent on ten weights."""
    weights = torch.linspace(1, 2, 10, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        ((weights - 3.0) ** 2).sum().backward()
        optimizer.step()

    return step


LOOPS = {"fastsup StepLoop": Fastsup, "pytorch-ignite Engine": Ignite, "Lightning Trainer": Lightning}
STEPS = {"a step that does nothing": lambda: no_op, "a JAX-jitted step": jax_step, "a PyTorch step": torch_step}
AT_LEAST = {"pytorch-ignite Engine": 50, "Lightning Trainer": 500}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_loops", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="slices for each loop (7)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("ignite").setLevel(logging.ERROR)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    table = Table("step", "loop", title=f"{HOOKS} hooks, due every {EVERY:,} steps; best slice", title_justify="left")
    for heading in ("µs a step", "overhead, ns", "times ours"):
        table.add_column(heading, justify="right")
    for title, make_step in STEPS.items():
        makers: dict[str, Any] = {"bare": lambda make_step=make_step: Bare(make_step())}
        for name, loop in LOOPS.items():
            makers[name] = lambda loop=loop, make_step=make_step: loop(make_step())
        best = {name: min(values) for name, values in alternate(makers, options.rounds, SLICE_SECS).items()}
        bare = best["bare"]
        overhead = {name: best[name] - bare for name in LOOPS}
        ours = overhead["fastsup StepLoop"]
        for name in LOOPS:
            # Below that it is the step that differs from slice to slice.
            seen = abs(overhead[name]) > 0.03 * bare
            times = f"{overhead[name] / ours:,.0f} x" if ours > 0.03 * bare else ""
            if times and name in AT_LEAST:
                times += f"  ≥ {AT_LEAST[name]}"
            shown = f"{overhead[name] * 1e9:,.0f}" if seen else "in the noise"
            table.add_row(title, name, f"{best[name] * 1e6:,.3f}", shown, times)
            title = ""
        table.add_section()
    console.print(table)
    names = ("torch", "pytorch-ignite", "lightning", "jax")
    console.print(
        f"fastsup {fastsup.__version__}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in names)
    )


if __name__ == "__main__":
    main()
