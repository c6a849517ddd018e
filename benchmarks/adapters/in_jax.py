"""JAX: a jitted step in a loop of Python, and the same with CLU's periodic actions."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from workloads import BATCH, BUCKETS, CATEGORIES, EMBEDDING, MATMULS, SIZE, digits, glorot, wide_and_deep

__all__ = ["PEERS"]


def _first_values(workload):
    if workload == "tiny":
        return {"w": jnp.linspace(1.0, 2.0, 10)}
    if workload in MATMULS:
        return {"w": jnp.eye(SIZE)}
    sizes = ((64, 32), (32, 10)) if workload == "digits" else ((8 + 4 * EMBEDDING, 64), (64, 32), (32, 1))
    values = {f"w{n}": jnp.asarray(glorot(*size, n)) for n, size in enumerate(sizes)}
    values |= {f"b{n}": jnp.zeros(size[1]) for n, size in enumerate(sizes)}
    if workload == "wide_and_deep":
        values |= {f"table{n}": jnp.asarray(glorot(BUCKETS, EMBEDDING, n)) for n in range(CATEGORIES)}
        values |= {f"wide{n}": jnp.zeros(BUCKETS) for n in range(CATEGORIES)}
    return values


def _loss(workload, values, batch):
    if workload == "tiny":
        return jnp.sum(jnp.square(values["w"] - 3.0))
    if workload in MATMULS:
        product = values["w"]
        for _ in range(MATMULS[workload]):
            product = product @ values["w"]
        return jnp.sum(jax.lax.stop_gradient(product) * values["w"]) * 1e-9
    outputs = batch[0]
    if workload == "wide_and_deep":
        categories, numbers, _ = batch
        tables = [values[f"table{n}"][categories[:, n]] for n in range(CATEGORIES)]
        outputs = jnp.concatenate([numbers, *tables], 1)
    last = 1 if workload == "digits" else 2
    for n in range(last + 1):
        outputs = outputs @ values[f"w{n}"] + values[f"b{n}"]
        outputs = jax.nn.relu(outputs) if n < last else outputs
    if workload == "digits":
        chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs), batch[1][:, None], 1)
        return -jnp.mean(chosen)
    logits = outputs[:, 0] + sum(values[f"wide{n}"][batch[0][:, n]] for n in range(CATEGORIES))
    return jnp.mean(jnp.maximum(logits, 0) - logits * batch[2] + jnp.log1p(jnp.exp(-jnp.abs(logits))))


def _batches(workload):
    if workload not in BATCH:
        while True:
            yield ()
    arrays = digits() if workload == "digits" else wide_and_deep()
    random = np.random.default_rng(0)
    while True:
        order = random.permutation(4096)
        for start in range(0, 4096, BATCH[workload]):
            yield tuple(array[order[start : start + BATCH[workload]]] for array in arrays)


class Jitted:
    """A jitted step.

    Args:
      workload: the workload.
      actions: functions that are called after each step with its number.
    """

    def __init__(self, workload, actions=()):
        self._values, self._number, self._actions = _first_values(workload), 0, actions
        self._sums = jax.tree_util.tree_map(lambda value: jnp.full_like(value, 0.1), self._values)
        self._batches = _batches(workload)

        @jax.jit
        def step(values, sums, batch):
            gradients = jax.grad(lambda values: _loss(workload, values, batch))(values)
            if workload != "wide_and_deep":
                return jax.tree_util.tree_map(lambda value, g: value - 0.1 * g, values, gradients), sums
            sums = jax.tree_util.tree_map(lambda total, g: total + g * g, sums, gradients)
            update = lambda value, g, total: value - 0.05 * g / jnp.sqrt(total + 1e-7)  # noqa: E731
            return jax.tree_util.tree_map(update, values, gradients, sums), sums

        self._step = step

    def run(self, steps):
        """Trains so many steps, and waits for the last."""
        values, sums = self._values, self._sums
        for _ in range(steps):
            values, sums = self._step(values, sums, next(self._batches))
            self._number += 1
            for action in self._actions:
                action(self._number)
        self._values, self._sums = jax.block_until_ready((values, sums))

    def close(self):
        """Nothing to write."""


class Scanned(Jitted):
    """The same steps, a hundred of them in one call of `jax.lax.scan`, which nothing can interrupt."""

    steps_at_once = 100

    def __init__(self, workload):
        super().__init__(workload)
        step = self._step

        @jax.jit
        def scan(state, batches):
            return jax.lax.scan(
                lambda state, batch: (step(*state, batch), None), state, batches, length=self.steps_at_once
            )[0]

        self._scan = scan
        self._stacked = self._stacks(workload)

    def _stacks(self, workload):
        if workload not in BATCH:
            while True:
                yield ()
        arrays = digits() if workload == "digits" else wide_and_deep()
        random, count, size = np.random.default_rng(0), self.steps_at_once, BATCH[workload]
        rows = np.zeros(0, np.int64)
        while True:
            while len(rows) < count * size:
                rows = np.concatenate([rows, random.permutation(4096)])
            taken, rows = rows[: count * size], rows[count * size :]
            yield tuple(array.take(taken, 0).reshape(count, size, *array.shape[1:]) for array in arrays)

    def run(self, steps):
        """Trains so many steps, in whole hundreds, and waits for the last."""
        state = self._values, self._sums
        for _ in range(0, steps, self.steps_at_once):
            state = self._scan(state, next(self._stacked))
        self._values, self._sums = jax.block_until_ready(state)


def _clu(workload):
    from clu import metric_writers, periodic_actions

    writer = metric_writers.create_default_writer(tempfile.mkdtemp(), just_logging=True)
    progress = periodic_actions.ReportProgress(num_train_steps=10**9, writer=writer, every_steps=1000, every_secs=None)
    return Jitted(
        workload, (progress, periodic_actions.PeriodicCallback(every_steps=1000, callback_fn=lambda **_: None))
    )


PEERS = {"jax": Jitted, "jax_scan": Scanned, "clu": _clu}
