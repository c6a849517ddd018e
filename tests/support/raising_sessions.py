"""Trainings in sessions of which one callback raises: in each way to train, at each place, for each way to end."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from raising_callbacks import ERRORS, EVERY, LAST, Case, Record, noted

v1 = tf.compat.v1

WAYS = ("run", "run_loop", "async", "singular")
OF_TENSORFLOW = ("run", "singular")  # The ways that TensorFlow has too.
HOOK_CALLBACKS = ("begin", "after_create_session", "before_run", "after_run", "end", "on_error")
LISTENER_CALLBACKS = ("begin", "before_save", "after_save", "end")
ENDINGS = ("stop", "input", "step_error", "hook_error", "block_error", "signal", "leave", "close", "recovery")
# Which call of the callback raises: its number from 0 on, or the one in the save at the end.
IN_LAST_SAVE = -1
PLACES: dict[str, dict[str, int]] = {
    "r.begin": {"start": 0},
    "r.after_create_session": {"start": 0, "recovery": 1},
    "r.before_run": {"first": 0, "middle": 2, "save": 1, "last": LAST - 1},
    "r.after_run": {"first": 0, "middle": 2, "save": 1, "last": LAST - 1},
    "r.end": {"end": 0},
    "r.on_error": {"error": 0},
    "l.begin": {"start": 0},
    "l.before_save": {"start": 0, "middle": 1, "recovery": 2, "end": IN_LAST_SAVE},
    "l.after_save": {"start": 0, "middle": 1, "recovery": 2, "end": IN_LAST_SAVE},
    "l.end": {"end": 0},
}
WITH_ERRORS = ("step_error", "hook_error", "block_error", "recovery")


def recovers(way: str) -> bool:
    return way != "singular"


def cases(ways: tuple[str, ...] = WAYS) -> Iterator[Case]:
    """All combinations, but for those in which the ending plays no part and those that a way doesn't have."""
    for way in ways:
        for callback, places in PLACES.items():
            if way == "run_loop" and callback.startswith("l."):
                continue  # The savers of these have no listeners.
            for place in places:
                for ending in ENDINGS:
                    for error in ERRORS:
                        if _is_of_use(way, callback, place, ending, error):
                            yield Case(way, callback, place, ending, error)


def _is_of_use(way: str, callback: str, place: str, ending: str, error: str) -> bool:
    if ending == "signal" and way == "singular":
        return False  # It handles none.
    if place == "recovery":
        return ending == "recovery" and recovers(way)
    if callback == "r.on_error":
        return ending in WITH_ERRORS
    if place == "end":
        return ending not in WITH_ERRORS or (ending == "recovery" and recovers(way))
    if place == "last":
        return ending != "recovery" or recovers(way)
    # The callback ends the run before the ending, unless that is recovered from.
    goes_on = error == "AbortedError" and recovers(way) and not callback.endswith(".begin")
    return goes_on or ending in ("stop", "close")


class Model:
    """A weight that grows by 1 in each step, in a graph.

    Args:
      elements: the number of elements of the input.
    """

    def __init__(self, elements: int) -> None:
        with tf.Graph().as_default() as self.graph:
            self.weight = v1.get_variable("weight", [], tf.int64, v1.zeros_initializer())
            step = v1.train.get_or_create_global_step()
            element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(elements)).get_next()
            with tf.control_dependencies([element]):
                one = tf.constant(1, tf.int64)
                self.op = v1.group(v1.assign_add(self.weight, one), v1.assign_add(step, one))
            self.bad = tf.debugging.check_numerics(tf.constant(float("nan")), "not a number")
            # A thread of the session's that only the end of the session ends.
            queue = v1.FIFOQueue(1, [tf.float32])
            v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue([0.0])]))
            self.scaffold = v1.train.Scaffold(saver=v1.train.Saver())


@functools.cache
def model_of(elements: int) -> Model:
    """The model with so many elements, which the runs share: a graph takes longer to build than to train."""
    return Model(elements)


class Program:
    """One run of a training.

    Args:
      implementation: "tensorflow" or "fastsup".
      case: the combination; None for a run without a raising callback, of two steps more.
      folder: the directory of the checkpoints.
    """

    def __init__(self, implementation: str, case: Case | None, folder: str, way: str) -> None:
        import fastsup

        self.train = fastsup.train if implementation == "fastsup" else v1.train
        self.is_ours = implementation == "fastsup"
        self.case, self.folder, self.way = case, folder, way
        self.ending = case.ending if case is not None else "two steps more"
        self.record = Record()
        self._calls: dict[str, int] = {}

    # The callbacks.

    def called(self, callback: str, step: Any = None) -> None:
        """Notes a call, and raises the error of the case if it is time."""
        number = self._calls[callback] = self._calls.get(callback, -1) + 1
        self.record.note(callback, step)
        if self.case is None or callback != self.case.callback:
            return
        wanted = PLACES[callback][self.case.place]
        if self.case.place == "last" and self.ending == "input" and callback == "r.before_run":
            wanted += 1  # The run in which the input ends.
        in_last_save = step == LAST and self.record.phase == "ending"
        if number == wanted or (wanted == IN_LAST_SAVE and in_last_save):
            self.record.raise_error(ERRORS[self.case.error](f"raised by {callback}"), callback)

    def hook(self, name: str) -> Any:
        program, record = self, self.record

        class Noting(v1.train.SessionRunHook):
            """Notes its callbacks."""

            def __repr__(self) -> str:
                return f"<hook {name}>"

            def begin(self) -> None:
                program.called(f"{name}.begin")

            def after_create_session(self, session: Any, coord: Any) -> None:
                if name == "a":
                    record.phase = "making again" if record.sessions else "making"
                    record.sessions.append(session)
                    record.last_step = program.step_in(session)
                program.called(f"{name}.after_create_session")

            def before_run(self, run_context: Any) -> None:
                if name == "a":
                    record.phase = "running"
                program.called(f"{name}.before_run")
                if name == "z":
                    program.before_last_hook()

            def after_run(self, run_context: Any, run_values: Any) -> None:
                if name == "a":
                    record.last_step = program.step_in(run_context.session)
                program.called(f"{name}.after_run")
                if name == "z":
                    program.after_last_hook()

            def end(self, session: Any) -> None:
                record.phase = "ending"
                program.called(f"{name}.end")

            def on_error(self, run_context: Any, exception: BaseException) -> None:
                program.called(f"{name}.on_error")

        return Noting()

    def listener(self, name: str) -> Any:
        program = self

        class NotingListener(v1.train.CheckpointSaverListener):
            """Notes its callbacks."""

            def begin(self) -> None:
                program.called(f"{name}.begin")

            def before_save(self, session: Any, global_step_value: Any) -> None:
                program.called(f"{name}.before_save", int(global_step_value))

            def after_save(self, session: Any, global_step_value: Any) -> None:
                program.called(f"{name}.after_save", int(global_step_value))

            def end(self, session: Any, global_step_value: Any) -> None:
                program.called(f"{name}.end", int(global_step_value))

        return NotingListener()

    def before_last_hook(self) -> None:
        """What the last hook does before a run: in its fourth one it is preempted, if that is the ending."""
        if self.ending == "recovery" and self._calls["z.before_run"] == 3:
            self.record.raise_error(tf.errors.AbortedError(None, None, "the preemption"), "z.before_run")

    def after_last_hook(self) -> None:
        """What the last hook does after a run: it fails after the last step, or gets the signal in a loop."""
        if self.record.last_step != LAST:
            return
        if self.ending == "hook_error":
            self.record.raise_error(KeyError("of the last hook"), "z.after_run")
        if self.ending == "signal" and self.way == "run_loop":
            self.send_signal()

    def send_signal(self) -> None:
        self.record.signalled = True
        signal.raise_signal(signal.SIGTERM)

    # The training.

    def step_in(self, session: Any) -> int:
        return int(session.run(self.model.weight))

    def hooks(self) -> list[Any]:
        hooks = [self.hook("a"), self.hook("r"), self.hook("z")]
        if self.ending in ("stop", "recovery"):
            hooks.append(self.train.StopAtStepHook(last_step=LAST))
        if self.ending == "two steps more":
            hooks.append(self.train.StopAtStepHook(num_steps=2))
        return hooks

    def open(self) -> Any:
        """Makes the session: the saver comes after the first hook."""
        hooks = self.hooks()
        options = {"async_save": True} if self.way == "async" else {}
        if self.way == "run_loop":  # With the saver of the session's own.
            return self.train.MonitoredTrainingSession(
                checkpoint_dir=self.folder,
                scaffold=self.model.scaffold,
                hooks=hooks,
                save_checkpoint_steps=EVERY,
                save_summaries_steps=None,
                log_step_count_steps=None,
            )
        scaffold = self.model.scaffold
        saver = self.train.CheckpointSaverHook(
            self.folder,
            save_steps=EVERY,
            scaffold=scaffold,
            listeners=[self.listener("l"), self.listener("m")],
            save_graph_def=False,
            **options,
        )
        if self.way == "singular":
            hooks.insert(1, saver)
            return self.train.SingularMonitoredSession(hooks, scaffold, checkpoint_dir=self.folder)
        return self.train.MonitoredTrainingSession(
            checkpoint_dir=self.folder,
            scaffold=scaffold,
            chief_only_hooks=[hooks.pop(0), saver],
            hooks=hooks,
            save_checkpoint_secs=0,
            save_summaries_steps=None,
            log_step_count_steps=None,
        )

    def train_in(self, session: Any) -> None:
        """The body of the `with` block."""
        self.record.phase = "running"
        steps = None if self.ending in ("stop", "input", "recovery", "two steps more") else LAST
        self.loop(session, steps)
        if self.ending == "step_error":
            self.fail_in(lambda: session.run(self.model.bad))
        elif self.ending == "block_error":
            self.record.raise_error(KeyError("of the program"), "program")
        elif self.ending == "signal" and not self.record.signalled:
            self.send_signal()

    def fail_in(self, step: Callable[[], Any]) -> None:
        """Runs a step that fails, and notes its error, also where the error of an `on_error` has taken its place."""
        try:
            step()
        except BaseException as error:
            failed = error if isinstance(error, tf.errors.InvalidArgumentError) else error.__context__
            assert isinstance(failed, tf.errors.InvalidArgumentError)
            self.record.note_error(failed, "program")
            raise

    def loop(self, session: Any, steps: int | None) -> None:
        if self.way == "run_loop":
            session.run_loop(self.model.op, steps=steps)
            return
        while not session.should_stop() and (steps is None or self.record.last_step < steps):
            session.run(self.model.op)

    def run(self) -> Record:
        """Runs the training, and notes what leaves it."""
        with noted(self.record):
            self.run_in_graph()
        return self.record

    def run_in_graph(self) -> None:
        self.model = model_of(LAST if self.ending == "input" else 1000)
        self.model.graph._unsafe_unfinalize()
        with self.model.graph.as_default():
            self.run_to_the_end()

    def run_to_the_end(self) -> None:
        if self.ending != "close":
            with self.open() as session:
                self.train_in(session)
            return
        session = self.open()
        try:
            self.train_in(session)
        finally:
            session.close()


def new_program(implementation: str, case: Case | None, folder: str, way: str) -> Program:
    """The program of a case; without a case, one that goes on from the newest checkpoint for two steps."""
    return Program(implementation, case, folder, way)


def state(folder: str, way: str) -> tuple[int, int] | None:
    """The step of the newest checkpoint and the weight in it; None if there is none."""
    path = tf.train.latest_checkpoint(folder)
    if path is None:
        return None
    reader = tf.train.load_checkpoint(path)
    return int(path.rpartition("-")[2]), int(reader.get_tensor("weight"))
