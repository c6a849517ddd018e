"""tf.function in a loop of Python, fastsup.function, StepLoop around it, and Orbit."""

import numpy as np
import tensorflow as tf
from in_graphs import inputs
from workloads import BATCH, BUCKETS, CATEGORIES, EMBEDDING, MATMULS, SIZE, digits, glorot, wide_and_deep

__all__ = ["PEERS"]


class Model(tf.Module):
    """The variables of a workload.

    Args:
      workload: the workload.
    """

    def __init__(self, workload):
        super().__init__()
        self.workload = workload
        variable = tf.Variable
        if workload == "tiny":
            self.weights = [variable(np.linspace(1, 2, 10).astype(np.float32))]
        elif workload in MATMULS:
            self.weights = [variable(np.eye(SIZE, dtype=np.float32))]
        else:
            sizes = ((64, 32), (32, 10)) if workload == "digits" else ((8 + 4 * EMBEDDING, 64), (64, 32), (32, 1))
            self.weights = []
            for place, (rows, columns) in enumerate(sizes):
                self.weights += [variable(glorot(rows, columns, place)), variable(np.zeros(columns, np.float32))]
            self.tables = []
            if workload == "wide_and_deep":
                for place in range(CATEGORIES):
                    self.tables.append(variable(glorot(BUCKETS, EMBEDDING, place)))
                    self.tables.append(variable(np.zeros(BUCKETS, np.float32)))
        if workload == "wide_and_deep":
            self.sums = [variable(tf.fill(v.shape, 0.1)) for v in self.trainable()]

    def trainable(self):
        """All variables that are trained."""
        return self.weights + getattr(self, "tables", [])

    def loss(self, batch):
        """The loss of a batch, a scalar tensor."""
        if self.workload == "tiny":
            return tf.reduce_sum(tf.square(self.weights[0] - 3.0))
        if self.workload in MATMULS:
            product = weights = tf.convert_to_tensor(self.weights[0])
            for _ in range(MATMULS[self.workload]):
                product = product @ weights
            return tf.reduce_sum(tf.stop_gradient(product) * weights) * 1e-9
        values = batch[0]
        wide = []
        if self.workload == "wide_and_deep":
            categories, numbers, _ = batch
            places = [categories[:, place] for place in range(CATEGORIES)]
            pairs = list(zip(self.tables[::2], places))  # noqa: B905
            values = tf.concat([numbers, *(tf.gather(table, ids) for table, ids in pairs)], 1)
            wide = [tf.gather(table, ids) for table, ids in zip(self.tables[1::2], places)]  # noqa: B905
        layers = list(zip(self.weights[::2], self.weights[1::2]))  # noqa: B905
        for weights, bias in layers[:-1]:
            values = tf.nn.relu(values @ weights + bias)
        values = values @ layers[-1][0] + layers[-1][1]
        if self.workload == "digits":
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch[1], logits=values))
        logits = tf.squeeze(values, 1) + tf.add_n(wide)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch[2], logits=logits))

    def step(self, batch=None):
        """One step of gradient descent, or of Adagrad. Returns the loss."""
        variables = self.trainable()
        with tf.GradientTape() as tape:
            loss = self.loss(batch)
        gradients = tape.gradient(loss, variables)
        for place, (variable, gradient) in enumerate(zip(variables, gradients)):  # noqa: B905
            if self.workload != "wide_and_deep":
                variable.assign_sub(0.1 * gradient)
            elif isinstance(gradient, tf.IndexedSlices):
                tf.raw_ops.ResourceSparseApplyAdagradV2(
                    var=variable.handle, accum=self.sums[place].handle, lr=0.05, epsilon=1e-7, grad=gradient.values,
                    indices=gradient.indices,
                )  # fmt: skip
            else:
                tf.raw_ops.ResourceApplyAdagradV2(
                    var=variable.handle, accum=self.sums[place].handle, lr=0.05, epsilon=1e-7, grad=gradient
                )
        return loss


class Calls:
    """A function that is called once for each step."""

    def __init__(self, workload, wrap):
        self._model = Model(workload)
        data = inputs(workload)
        if data is None:
            self._function, self._args = wrap(self._model.step), ()
        else:
            self._function = wrap(lambda iterator: self._model.step(next(iterator)))
            self._args = (iter(data),)

    def run(self, steps):
        """Trains so many steps."""
        function, args = self._function, self._args
        for _ in range(steps):
            function(*args)

    def close(self):
        """Nothing to write."""


def _fastsup_function(workload):
    import fastsup

    return Calls(workload, lambda step: fastsup.function(step, fallback="raise"))


class InStepLoop(Calls):
    """fastsup's StepLoop around the lifted function."""

    def __init__(self, workload):
        import fastsup

        super().__init__(workload, lambda step: fastsup.function(step, fallback="raise"))
        self._step = fastsup.bind(self._function, *self._args)

    def run(self, steps):
        """Trains so many steps."""
        from fastsup.loop import StepLoop

        StepLoop(self._step, max_steps=steps).run()


class Compiled(Model):
    """The same step without operations that XLA has no code for: Adagrad's for touched rows."""

    def step(self, *batch):
        """One step. Returns the loss."""
        if self.workload != "wide_and_deep":
            return super().step(batch)
        variables = self.trainable()
        with tf.GradientTape() as tape:
            loss = self.loss(batch)
        gradients = tape.gradient(loss, variables)
        for variable, total, gradient in zip(variables, self.sums, gradients):  # noqa: B905
            if not isinstance(gradient, tf.IndexedSlices):
                total.assign_add(gradient * gradient)
                variable.assign_sub(0.05 * gradient / tf.sqrt(total + 1e-7))
                continue
            # The sum of the gradients of each touched row, once for each time that it is touched.
            rows = gradient.indices
            sums = tf.gather(tf.convert_to_tensor(gradient), rows)
            squares = tf.gather(total, rows) + sums * sums
            total.scatter_update(tf.IndexedSlices(squares, rows))
            changed = tf.gather(variable, rows) - 0.05 * sums / tf.sqrt(squares + 1e-7)
            variable.scatter_update(tf.IndexedSlices(changed, rows))
        return loss


def _batches_of(workload):
    """The shuffled batches of a workload, from its arrays. None if it has none."""
    import fastsup

    if workload not in BATCH:
        return None
    arrays = digits() if workload == "digits" else wide_and_deep()
    return fastsup.ArrayBatches(arrays, BATCH[workload], shuffle=True, seed=0, epochs=None)


class CompiledCalls:
    """A step that XLA compiles, with batches from arrays, called once for each step."""

    def __init__(self, workload, wrap):
        self._function, self._batches = wrap(Compiled(workload).step), _batches_of(workload)

    def run(self, steps):
        """Trains so many steps."""
        function, batches = self._function, self._batches
        for _ in range(steps):
            function(*next(batches)) if batches is not None else function()

    def close(self):
        """Nothing to write."""


class CompiledStepLoop:
    """fastsup's StepLoop, which makes many steps in one compiled call where that is faster."""

    def __init__(self, workload):
        import fastsup

        function = fastsup.function(Compiled(workload).step, jit_compile=True)
        batches = _batches_of(workload)
        self._step = fastsup.bind(function) if batches is None else fastsup.bind_batches(function, batches)

    def run(self, steps):
        """Trains so many steps, with a hook that is due every thousand of them."""
        from fastsup.loop import PeriodicHook, StepLoop

        class DoNothing(PeriodicHook):
            def act(self, loop):
                pass

        StepLoop(self._step, [DoNothing(every_steps=1000)], max_steps=steps).run()

    def close(self):
        """Nothing to write."""


class InOrbit:
    """Orbit's Controller and StandardTrainer, as its documents have them: the loop is in the function."""

    def __init__(self, workload):
        import orbit

        model = Model(workload)
        data = inputs(workload)
        if data is None:
            data = tf.data.Dataset.from_tensors(0.0).repeat()

        class Trainer(orbit.StandardTrainer):
            def train_step(self, iterator):
                batch = next(iterator)
                model.step(batch if workload in BATCH else None)

        self._step = tf.Variable(0, dtype=tf.int64)
        trainer = Trainer(data, orbit.StandardTrainerOptions(use_tf_while_loop=True))

        def train(steps):
            found = type(trainer).__mro__[1].train(trainer, steps)
            self._step.assign_add(tf.cast(steps, tf.int64))
            return found

        trainer.train = train
        self._controller = orbit.Controller(
            trainer=trainer, global_step=self._step, steps_per_loop=100, strategy=tf.distribute.get_strategy()
        )

    def run(self, steps):
        """Trains so many steps."""
        self._controller.train(int(self._step) + steps, checkpoint_at_completion=False)

    def close(self):
        """Nothing to write."""


PEERS = {
    "tf_function": lambda workload: Calls(workload, tf.function),
    "fastsup_function": _fastsup_function,
    "fastsup_step_loop": InStepLoop,
    "tf_function_compiled": lambda workload: CompiledCalls(workload, lambda f: tf.function(f, jit_compile=True)),
    "fastsup_compiled": CompiledStepLoop,
    "orbit": InOrbit,
}
