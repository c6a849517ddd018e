"""One side of `python -m benchmarks.estimator`: measures one implementation of Estimator, as it is told to.

Runs under any TensorFlow that has its own Estimator (up to 2.15), without fastsup, and under today's with it.
Reads orders from the standard input, one JSON object a line, `{"case": ..., "steps": ...}`, and answers each with
`{"seconds": ...}`.
"""

import json
import logging
import os
import shutil
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

LARGE = 1024
TURNS = 20
EXAMPLE = np.ones([1, 10], np.float32)


class Clock(tf1.train.SessionRunHook):
    """Reads the clock when the session is there and when its steps are over: no callback in the steps between."""

    def after_create_session(self, session, coord):
        """The session is there."""
        self.created = time.perf_counter()

    def end(self, session):
        """The last step is over; nothing has been saved since."""
        self.ended = time.perf_counter()


class FirstStep(tf1.train.SessionRunHook):
    """Reads the clock after the first step."""

    ended = None

    def after_run(self, run_context, run_values):
        """A step is over."""
        self.ended = self.ended or time.perf_counter()


def descend(loss):
    """The operation of one step of gradient descent."""
    return tf1.train.GradientDescentOptimizer(0.01).minimize(loss, tf1.train.get_or_create_global_step())


class Worker:
    """The cases, one method each: takes a number of steps, returns seconds.

    Args:
      estimator: the module with `Estimator`, `EstimatorSpec` and `RunConfig`.
      digits: arrays "images" (n, 64) and "labels" (n,).
    """

    def __init__(self, estimator, digits):
        self._estimator = estimator
        self._digits = {key: digits[key] for key in ("images", "labels")}
        self._turns = 0
        self._is_ours = hasattr(estimator, "Predictor")
        self._trained = self._kept = self._exported = self._loaded = None

    def _train(self, model_fn, input_fn, steps):
        """Seconds of so many steps, from the session to the last of them."""
        return self._train_model(lambda folder: self._estimator.Estimator(model_fn, folder), input_fn, steps)

    def _train_model(self, make, input_fn, steps):
        """The same for the Estimator that a function of the model directory makes."""
        clock = Clock()
        folder = tempfile.mkdtemp(prefix="fastsup-benchmark-")
        try:
            make(folder).train(input_fn, hooks=[clock], steps=steps)
        finally:
            shutil.rmtree(folder)
        return clock.ended - clock.created

    def trivial(self, steps):
        """A linear model of ten features, fed by tf.data."""
        features = np.random.default_rng(0).normal(size=(64, 32, 10)).astype(np.float32)

        def input_fn():
            return tf.data.Dataset.from_tensor_slices((features, features.sum(axis=2) + 1)).repeat()

        def model_fn(features, labels, mode):
            weights = tf1.get_variable("weights", [10, 1], initializer=tf1.ones_initializer())
            loss = tf.reduce_mean(tf.square(tf.squeeze(features @ weights, 1) - labels))
            return self._estimator.EstimatorSpec(mode, loss=loss, train_op=descend(loss))

        return self._train(model_fn, input_fn, steps)

    def _digits_model(self, features, labels, mode):
        hidden = features / 16.0
        for number, (inputs, units) in enumerate(((64, 64), (64, 10))):
            with tf1.variable_scope(f"layer{number}"):
                weights = tf1.get_variable("weights", [inputs, units])
                hidden = hidden @ weights + tf1.get_variable("bias", [units])
                hidden = tf.nn.relu(hidden) if number == 0 else hidden
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, hidden)
        metrics = {"accuracy": tf1.metrics.accuracy(labels, tf.argmax(hidden, 1))}
        return self._estimator.EstimatorSpec(mode, loss=loss, train_op=descend(loss), eval_metric_ops=metrics)

    def _digits_input(self):
        arrays = self._digits["images"], self._digits["labels"]
        return tf.data.Dataset.from_tensor_slices(arrays).shuffle(1797).repeat().batch(32)

    def digits(self, steps):
        """The handwritten digits, 32 a step, a hidden layer."""
        return self._train(self._digits_model, self._digits_input, steps)

    def heavy(self, steps):
        """Two products of large matrices in each step."""

        def input_fn():
            return tf.data.Dataset.from_tensors(np.ones((LARGE, LARGE), np.float32) / LARGE).repeat()

        def model_fn(features, labels, mode):
            weights = tf1.get_variable("weights", [LARGE, LARGE], initializer=tf1.ones_initializer())
            loss = tf.reduce_mean(tf.matmul(features, weights))
            return self._estimator.EstimatorSpec(mode, loss=loss, train_op=descend(loss))

        return self._train(model_fn, input_fn, steps)

    def _table(self):
        random = np.random.default_rng(0)
        x = random.normal(size=(64, 32, 4)).astype(np.float32)
        features = {"x": x, "city": random.integers(0, 100, size=(64, 32, 1))}
        return tf.data.Dataset.from_tensor_slices((features, (x.sum(2) > 0).astype(np.int32))).repeat()

    def canned_linear(self, steps):
        """A canned linear classifier of four numbers, 32 rows a step."""
        columns = [tf.feature_column.numeric_column("x", [4])]
        return self._train_model(
            lambda folder: self._estimator.LinearClassifier(columns, model_dir=folder), self._table, steps
        )

    def wide_and_deep(self, steps):
        """A canned wide-and-deep classifier of four numbers and a category, 32 rows a step."""
        city = tf.feature_column.categorical_column_with_identity("city", 100)
        x = tf.feature_column.numeric_column("x", [4])
        return self._train_model(
            lambda folder: self._estimator.DNNLinearCombinedClassifier(
                folder,
                linear_feature_columns=[x, city],
                dnn_feature_columns=[x, tf.feature_column.embedding_column(city, 8)],
                dnn_hidden_units=[32, 16],
            ),
            self._table,
            steps,
        )

    def first_step(self, steps):
        """From the call of train() to the end of the first step, with a new Estimator each."""
        seconds = 0.0
        for _ in range(steps):
            first = FirstStep()
            folder = tempfile.mkdtemp(prefix="fastsup-benchmark-")
            estimator = self._estimator.Estimator(self._digits_model, folder)
            started = time.perf_counter()
            estimator.train(self._digits_input, hooks=[first], steps=1)
            seconds += first.ended - started
            shutil.rmtree(folder)
        return seconds

    def in_turns(self, steps):
        """Train 10 steps and evaluate 10, in turns, with one Estimator for twenty turns."""
        seconds = 0.0
        for _ in range(steps):
            if self._turns % TURNS == 0:
                folder = tempfile.mkdtemp(prefix="fastsup-benchmark-")
                self._in_turns = self._estimator.Estimator(self._digits_model, folder)
            self._turns += 1
            started = time.perf_counter()
            self._in_turns.train(self._digits_input, steps=10)
            self._in_turns.evaluate(self._digits_input, steps=10)
            seconds += time.perf_counter() - started
            if self._turns % TURNS == 0:
                shutil.rmtree(self._in_turns.model_dir)
        return seconds

    def evaluations(self, steps, **options):
        """train_and_evaluate that trains 100 steps and evaluates every tenth."""
        seconds = 0.0
        for _ in range(steps):
            folder = tempfile.mkdtemp(prefix="fastsup-benchmark-")
            model = self._estimator.Estimator(
                self._digits_model, folder, self._estimator.RunConfig(save_checkpoints_steps=10)
            )
            train = self._estimator.TrainSpec(self._digits_input, max_steps=100)
            evaluate = self._estimator.EvalSpec(self._digits_input, steps=10, throttle_secs=0, **options)
            started = time.perf_counter()
            self._estimator.train_and_evaluate(model, train, evaluate)
            seconds += time.perf_counter() - started
            shutil.rmtree(folder)
        return seconds

    def evaluations_in_one_graph(self, steps):
        """The same, and fastsup's keeps the graph of the evaluations."""
        return self.evaluations(steps, **({"keep_graph": True} if self._is_ours else {}))

    def predictions(self, steps):
        """Estimator.predict of one example."""
        model, dataset = self._trained_model(), tf.data.Dataset.from_tensors
        started = time.perf_counter()
        for _ in range(steps):
            next(model.predict(lambda: dataset({"x": EXAMPLE})))
        return time.perf_counter() - started

    def kept_predictions(self, steps):
        """One example: fastsup's by a Predictor; the reference by an exported model, as tf.contrib.predictor did."""
        if self._kept is None:
            self._kept = self._predictor() if self._is_ours else self._session_of_exported_model()
        return self._seconds_of(lambda: self._kept({"x": EXAMPLE}), steps)

    def _predictor(self):
        predictor = self._estimator.Predictor(self._trained_model())
        predictor({"x": EXAMPLE})
        return predictor

    def _session_of_exported_model(self):
        session = tf1.Session(graph=tf.Graph())
        with session.graph.as_default():
            loaded = tf1.saved_model.load(session, ["serve"], self._exported_model())
        signature = loaded.signature_def["serving_default"]
        fetches, feed = {"y": signature.outputs["y"].name}, signature.inputs["x"].name
        return lambda features: session.run(fetches, {feed: features["x"]})

    def loaded_model(self, steps):
        """One example, by the exported model and tf.saved_model.load."""
        if self._loaded is None:
            self._loaded = tf.saved_model.load(self._exported_model()).signatures["serving_default"]
        return self._seconds_of(lambda: self._loaded(x=tf.constant(EXAMPLE))["y"].numpy(), steps)

    def _exported_model(self):
        if self._exported is None:

            def receiver_fn():
                x = tf1.placeholder(tf.float32, [None, 10], "x")
                return self._estimator.export.ServingInputReceiver({"x": x}, {"x": x})

            model = self._trained_model()
            self._exported = model.export_saved_model(os.path.join(model.model_dir, "export"), receiver_fn).decode()
        return self._exported

    @staticmethod
    def _seconds_of(call, steps):
        started = time.perf_counter()
        for _ in range(steps):
            call()
        return time.perf_counter() - started

    def _trained_model(self):
        if self._trained is None:

            def model_fn(features, labels, mode):
                weights = tf1.get_variable("weights", [10, 1])
                predictions = tf.matmul(features["x"], weights)
                if mode == "infer":
                    outputs = {"serving_default": self._estimator.export.PredictOutput({"y": predictions})}
                    return self._estimator.EstimatorSpec(mode, predictions={"y": predictions}, export_outputs=outputs)
                loss = tf.reduce_mean(tf.square(predictions - labels))
                return self._estimator.EstimatorSpec(mode, loss=loss, train_op=descend(loss))

            folder = tempfile.mkdtemp(prefix="fastsup-benchmark-")
            self._trained = self._estimator.Estimator(model_fn, folder)
            self._trained.train(lambda: tf.data.Dataset.from_tensors(({"x": EXAMPLE}, [[1.0]])), steps=1)
        return self._trained


def main():
    """Measures the cases that arrive on the standard input, until it ends."""
    name, digits = sys.argv[1:]
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if name == "fastsup":
        from fastsup import estimator
    else:
        estimator = tf.estimator
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # The output of libraries must not be taken for an answer.
    worker = Worker(estimator, np.load(digits))
    print(json.dumps({"tensorflow": tf.__version__, "python": sys.version.split()[0]}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps({"seconds": getattr(worker, order["case"])(order["steps"])}), file=answers, flush=True)


if __name__ == "__main__":
    main()
