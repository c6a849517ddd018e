"""`Predictor`, which predicts with an Estimator's model. The model is built once and stays in its session."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorflow.python.framework import errors, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.checks import check_interval, suggest_keywords
from fastsup.core.clock import steady
from fastsup.core.sessions import session_role
from fastsup.estimator.model import model_checkpoints
from fastsup.estimator.model.estimator import check_estimator
from fastsup.estimator.serving.model_inputs import (
    ModelInputs,
    check_specs,
    explaining_features,
    inputs_from_receiver,
    inputs_from_specs,
    specs_of,
)
from fastsup.train import MonitoredSession, NoIntactCheckpointError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "LoadedModel",
    "Predictor",
]


class LoadedModel:
    """A session with the values of one checkpoint. It is closed when the last thread that uses it has released it.

    `turn` is the lock for the predicting thread, or None if several threads may predict at a time.
    """

    def __init__(self, run: Callable[[Any], Any], close: Callable[[], None], turn: threading.Lock | None) -> None:
        self._run = run
        self._close = close
        self._turn = turn
        self._lock = threading.Lock()
        self._users = 0
        self._is_retired = False

    def take(self) -> bool:
        """Keeps the session open until `release`. Returns False if the model is retired."""
        with self._lock:
            self._users += not self._is_retired
            return not self._is_retired

    def release(self) -> None:
        """Releases the model after use. Only logs errors of closing the session, because the thread has its result."""
        with self._lock:
            self._users -= 1
            is_last = self._is_retired and not self._users
        if is_last:
            self._end(logs_errors=True)

    def retire(self, logs_errors: bool = False) -> None:
        """Prevents further use, and closes the session when the last thread has released it."""
        with self._lock:
            is_last = not self._is_retired and not self._users
            self._is_retired = True
        if is_last:
            self._end(logs_errors)

    def _end(self, logs_errors: bool) -> None:
        try:
            self._close()
        except Exception as error:
            if not logs_errors:
                raise
            logging.error("A Predictor's session ended with an error: %r", error, exc_info=error)

    def run(self, features: Any) -> Any:
        """Predicts."""
        if self._turn is None:
            return self._run(features)
        with self._turn:
            return self._run(features)


class _Built(NamedTuple):
    """A built model: its graph, its `PredictModel` and its feeds."""

    graph: Any
    model: Any
    inputs: ModelInputs


class Predictor:
    """Predicts with an Estimator's model, which is built and restored once. A call costs one run of the session.

    Any thread may call a predictor. In contrast, `Estimator.predict` builds the graph, opens a session and restores the
    checkpoint in each call. Use that method for many examples that an input_fn reads.

        with fastsup.estimator.Predictor(estimator) as predict:
            predict({"x": [[1.0, 2.0, 3.0]]})

    If the model has `prediction_hooks`, they are called around each prediction, and only one thread predicts at a time.

    Args:
      estimator: the `Estimator`.
      features: the specs of a call's argument: a structure of `tf.TensorSpec`s, usually a dictionary by name. Or a
        function without arguments that returns a `ServingInputReceiver`, as for `export_saved_model`. A call then takes
        values for its `receiver_tensors`. If None, the model is built for the types and shapes in the first successful
        call, with any number of examples.
      predict_keys: names of the predictions to return, if the predictions are a dictionary. Defaults to all.
      checkpoint_path: path of the checkpoint to predict with. Defaults to the newest one. If there is none, the model
        predicts with its initial values, with a warning if a model directory was given.
      follow_secs: seconds between checks for a newer checkpoint. The call that finds one loads it, while other
        threads continue with the previous one. If None, only `reload` loads a newer one.

    Raises:
      TypeError: If `estimator` isn't an Estimator, or `features` has a member that isn't a `tf.TensorSpec`.
      ValueError: If `follow_secs` isn't positive, `follow_secs` is given together with `checkpoint_path`, or the model
        lacks the `predict_keys`.
      tf.errors.OpError: If the checkpoint doesn't match the model, or can't be read. If the newest one is damaged, the
        newest intact one is used instead, with a warning.
    """

    @suggest_keywords
    def __init__(
        self,
        estimator: Any,
        features: Any = None,
        *,
        predict_keys: Any = None,
        checkpoint_path: Any = None,
        follow_secs: float | None = None,
    ) -> None:
        check_estimator(estimator)
        if follow_secs is not None:
            check_interval("follow_secs", follow_secs)
        if follow_secs is not None and checkpoint_path:
            raise ValueError(
                f"follow_secs={follow_secs!r} requires the newest checkpoint, but checkpoint_path={checkpoint_path!r} "
                "was passed: pass only one of the two."
            )
        if features is not None and not callable(features):
            check_specs(features)
        self._estimator = estimator
        self._features = features
        self._predict_keys = predict_keys
        self._given_path = model_checkpoints.parse_checkpoint_path(checkpoint_path)
        self._follow_secs = follow_secs
        self._next_look = 0.0
        # The thread that builds or loads a model holds this lock.
        self._loading = threading.Lock()
        # If hooks are called, the thread that predicts holds this lock.
        self._turn = threading.Lock()
        self._is_closed = False
        self._built: _Built | None = None
        self._loaded: LoadedModel | None = None
        # The model that was built for the features of a call, until a call has succeeded.
        self._on_trial: LoadedModel | None = None
        # The path of the checkpoint, and the time when it was written.
        self._version: tuple[str | None, int] = (None, 0)
        if features is not None:
            with self._loading:
                self._load_first(contextlib.nullcontext() if callable(features) else explaining_features(features))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"checkpoint_path={self.checkpoint_path!r}"
        return f"<fastsup.estimator.Predictor of {self._estimator.model_dir!r}, {state}>"

    @property
    def checkpoint_path(self) -> str | None:
        """Path of the checkpoint in use. None if there is none, or before the first call."""
        return self._version[0]

    def __call__(self, features: Any) -> Any:
        """Predicts.

        Args:
          features: arrays, or values that NumPy converts to arrays, usually a dictionary by name. The first dimension
            is the number of examples. A single feature can be passed without its name.

        Returns:
          The predictions for all examples: an array, or a dictionary of arrays. `Estimator.predict` yields the same
          with `yield_single_examples=False`.

        Raises:
          ValueError: If a feature is missing, is unknown, or has the wrong shape.
          TypeError: If a feature has the wrong type.
          RuntimeError: If the predictor is closed.
          tf.errors.OpError: If the model failed.
        """
        if self._follow_secs is not None and steady() >= self._next_look:
            self._follow()
        loaded = self._take() or self._first(features)
        try:
            predictions = loaded.run(features)
        except BaseException:
            self._discard_if_on_trial(loaded)
            raise
        finally:
            loaded.release()
        self._on_trial = None
        return predictions

    def reload(self) -> bool:
        """Loads the newest checkpoint unless it is already in use. Other threads can keep predicting.

        Returns:
          True if a checkpoint was loaded.

        Raises:
          RuntimeError: If the predictor is closed.
          tf.errors.OpError: If the checkpoint doesn't match the model, or can't be read. The previous one stays in use.
        """
        with self._loading:
            self._check_open()
            if self._loaded is None or self._given_path:
                return False
            version = self._newest_version()
            if version == self._version or version[0] is None:
                return False
            self._load(version)
            return True

    def close(self) -> None:
        """Closes the session when other threads' calls have finished. A second call does nothing."""
        with self._loading:
            self._is_closed = True
            loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.retire()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Attempted to use a closed Predictor.")

    def _take(self) -> LoadedModel | None:
        """Returns the model to predict with, kept open until its release, or None if it isn't built yet."""
        while (loaded := self._loaded) is not None:
            if loaded.take():
                return loaded
        self._check_open()
        return None

    def _first(self, features: Any) -> LoadedModel:
        """Builds the model for the features of the first call."""
        with self._loading:
            self._check_open()
            if self._loaded is None:
                self._features = specs_of(features)
                try:
                    self._load_first(explaining_features(self._features))
                except BaseException:
                    self._features = None
                    raise
                self._on_trial = self._loaded
        return self._take() or self._first(features)

    def _discard_if_on_trial(self, loaded: LoadedModel) -> None:
        """Discards a model if no call with its features has succeeded. The next call then decides."""
        if self._on_trial is not loaded:
            return
        with self._loading:
            if self._on_trial is not loaded:
                return
            self._on_trial = None
            if self._loaded is loaded:
                self._features = self._built = self._loaded = None
                self._version = (None, 0)
                loaded.retire(logs_errors=True)

    def _follow(self) -> None:
        """Checks for a newer checkpoint, unless another thread does. After a failure, the previous one stays in use."""
        if not self._loading.acquire(blocking=False):
            return
        try:
            assert self._follow_secs is not None
            self._next_look = steady() + self._follow_secs
            version = self._newest_version() if self._loaded is not None else self._version
            if version != self._version and version[0] is not None:
                self._load(version)
        except Exception as error:
            logging.warning(
                "The newest checkpoint can't be loaded; predictions continue with %s. %s: %s",
                self.checkpoint_path,
                type(error).__name__,
                error,
            )
        finally:
            self._loading.release()

    def _newest_version(self) -> tuple[str | None, int]:
        """Returns the checkpoint to load, and its index's time in nanoseconds, because a model may be trained again."""
        path = self._given_path or self._estimator.latest_checkpoint()
        if path is None:
            return None, 0
        with contextlib.suppress(OSError):
            return path, os.stat(path + ".index").st_mtime_ns
        # On other file systems, TensorFlow returns whole seconds. If there is no such file, the restore raises the
        # error.
        with contextlib.suppress(errors.OpError):
            return path, file_io.stat(path + ".index").mtime_nsec
        return path, 0

    def _load_first(self, in_model_fn: contextlib.AbstractContextManager[None]) -> None:
        """Loads the newest checkpoint. If it is damaged, loads the newest intact one."""
        version = self._newest_version()
        if not self._given_path:
            model_checkpoints.warn_of_state_file(self._estimator.model_dir, version[0])
        try:
            self._load(version, in_model_fn)
        except NoIntactCheckpointError as error:
            if self._given_path or error.intact is None:
                raise
            logging.warning(
                "%s: %s. Predictions use %s. See `python -m fastsup docs recovery`.",
                *error.failures[0],
                error.intact,
            )
            self._load((error.intact, 0))

    def _load(self, version: tuple[str | None, int], *in_model_fn: contextlib.AbstractContextManager[None]) -> None:
        """Creates a session with the values of a checkpoint, and makes the next calls use it."""
        path = version[0]
        built = self._built
        # Hooks add to the graph each time a session is created.
        if built is None or built.model.hooks:
            before_it, built = built, self._build(path, *in_model_fn)
            if before_it is not None and any(hook in built.model.hooks for hook in before_it.model.hooks):
                raise ValueError(
                    "model_fn returned the same prediction hook as before, which belongs to an existing session: "
                    f"{list(built.model.hooks)}. Create the hook in model_fn."
                )
        loaded = self._open_session(built, path)
        self._built, self._version = built, version
        before, self._loaded = self._loaded, loaded
        if before is not None:
            before.retire(logs_errors=True)

    def _build(self, path: str | None, *in_model_fn: contextlib.AbstractContextManager[None]) -> _Built:
        make = inputs_from_receiver if callable(self._features) else inputs_from_specs
        made: list[ModelInputs] = []

        def make_features() -> tuple[Any, list[Any]]:
            made.append(make(self._features))
            return made[0].features, []

        with ops.Graph().as_default() as graph:
            model = self._estimator._prediction_run.build(make_features, self._predict_keys, path, *in_model_fn)
        made[0].let_unused_be_left_out(model.predictions)
        return _Built(graph, model, made[0])

    def _open_session(self, built: _Built, path: str | None) -> LoadedModel:
        """Creates a session and restores a checkpoint."""
        graph, model, inputs = built
        with graph.as_default(), session_role("predict"):
            creator = self._estimator._prediction_run.session_creator(model, path)
            # Queue runners need the threads of a monitored session.
            is_monitored = bool(model.hooks or graph.get_collection(ops.GraphKeys.QUEUE_RUNNERS))
            session: Any = MonitoredSession(creator, model.hooks) if is_monitored else creator.create_session()

        def predict(features: Any) -> Any:
            feed_dict = inputs.feed_dict(features)
            try:
                return session.run(model.predictions, feed_dict)
            except (ValueError, errors.InvalidArgumentError):
                inputs.check_sizes(feed_dict)
                raise

        if not is_monitored:
            return LoadedModel(predict, session.close, None)

        def run(features: Any) -> Any:
            with graph.as_default():
                return predict(features)

        def close() -> None:
            with graph.as_default():
                session.close()

        return LoadedModel(run, close, self._turn)
