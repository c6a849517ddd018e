"""Hooks of step loops in sessions, hooks of sessions in step loops, and what is refused."""

from __future__ import annotations

import ctypes
import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import estimator, experiment, loop, train
from fastsup.core import Hook, NativeHook, StepLoop
from fastsup.loop import PeriodicHook
from fastsup.train import AdaptedHook

v1 = tf.compat.v1

HOOK_SIGNATURE = b"int (fs_loop const *, void *)"


class Every(Hook):
    """Is due at the multiples of a number of steps, and notes what it gets."""

    def __init__(self, steps: int, fetches: Any = None) -> None:
        self.steps = steps
        self.fetches = fetches
        self.calls: list[Any] = []

    def begin(self, loop: Any) -> None:
        self.calls.append(("begin", loop.global_step))
        self.wait(loop)

    def after_step(self, loop: Any, value: Any) -> None:
        assert loop.result is value
        self.calls.append((loop.global_step, loop.steps, value))
        self.wait(loop)

    def end(self, loop: Any) -> None:
        self.calls.append(("end", loop.global_step))

    def on_error(self, loop: Any, error: BaseException) -> None:
        self.calls.append(("on_error", type(error).__name__))

    def wait(self, loop: Any) -> None:
        self.reschedule(at_step=(loop.global_step // self.steps + 1) * self.steps)


def adapted(hook: Hook, sessions: Any) -> Any:
    """The hook for a session: TensorFlow's own take none but session-run hooks."""
    return hook if sessions is fastsup else AdaptedHook(hook)


@pytest.fixture(params=["MonitoredSession", "SingularMonitoredSession", "MonitoredTrainingSession"])
def opened(request: pytest.FixtureRequest, impl: Any) -> Callable[..., Any]:
    """A session of each kind, of both implementations."""
    return lambda *hooks: getattr(impl.train, request.param)(hooks=[adapted(hook, impl) for hook in hooks])


@pytest.fixture
def step(graph: Any) -> Any:
    return v1.assign_add(v1.train.get_or_create_global_step(), 1)


def test_it_is_called_in_its_steps(opened: Callable[..., Any], step: Any) -> None:
    hook = Every(3)
    with opened(hook) as session:
        for _ in range(8):
            session.run(step)
    assert hook.calls == [("begin", 0), (3, 3, None), (6, 6, None), ("end", 8)]


def test_it_gets_what_it_fetches_in_its_steps(impl: Any, opened: Callable[..., Any], graph: Any) -> None:
    """And nothing is fetched for it in the others. In TensorFlow's sessions it can't know which runs move the step."""
    global_step = v1.train.get_or_create_global_step()
    made = v1.get_variable("made", [], tf.int64, v1.zeros_initializer, use_resource=True)
    with tf.control_dependencies([v1.assign_add(global_step, 1)]):
        fetched = v1.assign_add(made, 10)
        step = tf.no_op()
    hook = Every(3, {"made": fetched, "all": [fetched]})
    with opened(hook) as session:
        for _ in range(7):
            session.run(step)
        if impl is fastsup:
            assert session.run(made) == 20
    assert [entry[0] for entry in hook.calls] == ["begin", 3, 6, "end"]
    if impl is not fastsup:
        return
    assert hook.calls == [
        ("begin", 0),
        (3, 3, {"made": 10, "all": [10]}),
        (6, 6, {"made": 20, "all": [20]}),
        ("end", 7),
    ]


@pytest.mark.parametrize("fetches", [False, True])
def test_steps_of_ten(graph: Any, fetches: bool) -> None:
    """A run that adds ten to the step."""
    step = v1.assign_add(v1.train.get_or_create_global_step(), 10)
    hook = Every(30, tf.constant(7) if fetches else None)
    with train.MonitoredSession(hooks=[hook]) as session:
        session.run_loop(step, steps=10)
    value = 7 if fetches else None
    assert hook.calls == [("begin", 0), (30, 3, value), (60, 6, value), (90, 9, value), ("end", 100)]


@pytest.mark.parametrize("fetches", [False, True])
def test_a_step_that_is_not_counted(graph: Any, fetches: bool) -> None:
    """It is called after the run that has reached its step, or in the next one if something is fetched for it."""
    global_step = v1.train.get_or_create_global_step()
    amount = v1.placeholder(tf.int64, [])
    step = v1.assign_add(global_step, amount)
    hook = Every(10, tf.constant(7) if fetches else None)
    with train.MonitoredSession(hooks=[hook]) as session:
        for add in (4, 4, 4, 1, 0, 8, 1):
            session.run(step, {amount: add})
    steps = [entry[0] for entry in hook.calls[1:-1]]
    assert steps == ([13, 22] if fetches else [12, 21])


def test_in_a_loop_it_costs_no_question(graph: Any, step: Any) -> None:
    """The loop makes the runs between two calls at once."""
    hook = Every(100)
    with train.MonitoredTrainingSession(hooks=[hook]) as session:
        session.run_loop(step, steps=350)
    assert [entry[0] for entry in hook.calls] == ["begin", 100, 200, 300, "end"]


def test_without_a_global_step_runs_are_counted(opened: Callable[..., Any], graph: Any) -> None:
    value = tf.constant(1)
    hook = Every(3)
    with opened(hook) as session:
        for _ in range(7):
            session.run(value)
    assert hook.calls == [("begin", 0), (3, 3, None), (6, 6, None), ("end", 7)]


def test_a_traced_run_does_not_call_it(step: Any) -> None:
    hook = Every(100, tf.constant(1))
    with train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(step, options=v1.RunOptions(), run_metadata=v1.RunMetadata())
    assert hook.calls == [("begin", 0), ("end", 3)]


def test_by_time(opened: Callable[..., Any], step: Any, clock: Any) -> None:
    times: list[float] = []

    class Report(PeriodicHook):
        def act(self, loop: Any) -> None:
            times.append(clock.now - began)

    with opened(Report(every_secs=5.0)) as session:
        began = clock.now
        for _ in range(12):
            session.run(step)
            clock.now += 1.0
    assert times == [5.0, 10.0]


def test_positions_set_from_outside(step: Any) -> None:
    hook = Every(10**6)
    with train.MonitoredSession(hooks=[hook]) as session:
        session.run(step)
        hook.due_at_step(3)
        for _ in range(4):
            session.run(step)
    assert hook.calls == [("begin", 0), (3, 3, None), ("end", 5)]


def test_after_a_recovery_it_begins_again(graph: Any, step: Any, tmp_path: Path) -> None:
    failures: list[Exception] = []

    class Preempted(v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            if failures:
                raise failures.pop()

    hook = Every(4)
    arguments: dict[str, Any] = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 3}
    with train.MonitoredTrainingSession(hooks=[hook, Preempted()], **arguments) as session:
        for n in range(8):
            if n == 5:
                failures.append(tf.errors.AbortedError(None, None, "preempted"))
            session.run(step)
    assert hook.calls == [
        ("begin", 0),
        (4, 4, None),
        ("on_error", "AbortedError"),
        ("begin", 3),
        (4, 1, None),
        ("end", 6),
    ]


def test_errors_and_early_ends(step: Any) -> None:
    hook = Every(2)
    with pytest.raises(ZeroDivisionError), train.MonitoredSession(hooks=[hook]) as session:
        session.run(step)
        raise ZeroDivisionError
    assert hook.calls == [("begin", 0), ("on_error", "ZeroDivisionError")]
    # A session without a run.
    hook = Every(2)
    with train.MonitoredSession(hooks=[hook]):
        pass
    assert hook.calls == []


def test_an_error_of_the_hook_says_where_it_was_raised(opened: Callable[..., Any], step: Any) -> None:
    class Fails(PeriodicHook):
        def act(self, loop: Any) -> None:
            raise ZeroDivisionError("text")

    hook = Fails(3)
    with pytest.raises(ZeroDivisionError) as raised, opened(hook) as session:
        while not session.should_stop():
            session.run(step)
    assert str(raised.value) == "text"
    assert raised.value.__notes__ == [f"Raised by the hook {hook!r} at global step 3."]


def test_a_hook_ends_the_session(opened: Callable[..., Any], step: Any) -> None:
    with opened(loop.StopAtStepHook(5)) as session:
        runs = 0
        while not session.should_stop():
            session.run(step)
            runs += 1
    assert runs == 5


def test_a_condition_on_what_is_fetched(opened: Callable[..., Any], step: Any) -> None:
    hook = loop.StopWhenHook(lambda loop: loop.result > 6, every_steps=2)
    hook.fetches = v1.to_float(step) * 2.0
    with opened(hook) as session:
        while not session.should_stop():
            last = session.run(step)
    assert last == 4


@pytest.mark.parametrize("how", ["run", "run_loop"])
def test_a_hook_from_a_function(opened: Callable[..., Any], step: Any, how: str) -> None:
    calls: list[Any] = []

    @loop.every(3, at_end=True)
    def note(loop: Any) -> None:
        calls.append((loop.global_step, loop.steps, loop.result))

    note.fetches = v1.to_int32(step) * 2
    with opened(note) as session:
        if how == "run_loop" and hasattr(session, "run_loop"):
            session.run_loop(step, steps=8)
        else:
            for _ in range(8):
                session.run(step)
    assert [call[:2] for call in calls] == [(3, 3), (6, 6), (8, 8)]
    assert calls[0][2] == 6
    assert calls[1][2] == 12


def test_a_hook_from_a_function_after_a_recovery(step: Any, tmp_path: Path) -> None:
    failures: list[Exception] = []

    class Preempted(v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            if failures:
                raise failures.pop()

    calls: list[Any] = []
    hook = loop.every(4, at_end=True, on_error=True)(lambda loop: calls.append((loop.global_step, loop.steps)))
    arguments: dict[str, Any] = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 3}
    with train.MonitoredTrainingSession(hooks=[hook, Preempted()], **arguments) as session:
        for n in range(8):
            if n == 5:
                failures.append(tf.errors.AbortedError(None, None, "preempted"))
            session.run(step)
    # Of step 4, and of the error after it; of step 4 again, after the checkpoint of step 3; and of the end.
    assert calls == [(4, 4), (4, 4), (4, 1), (6, 3)]


def test_the_end_of_a_session_is_a_global_step(step: Any) -> None:
    """As `max_steps` of a StepLoop: a session that begins at step 5 ends at step 8."""
    seen: list[Any] = []
    note = loop.every(1)(lambda loop: seen.append((loop.global_step, loop.steps, loop.max_steps)))
    hooks = [note, train.StopAtStepHook(last_step=8)]
    to_five = v1.assign(v1.train.get_global_step(), 5)
    scaffold = v1.train.Scaffold(init_fn=lambda _, session: session.run(to_five))
    with train.MonitoredTrainingSession(hooks=hooks, scaffold=scaffold) as session:
        while not session.should_stop():
            session.run(step)
    assert seen == [(6, 1, 8), (7, 2, 8), (8, 3, 8)]


def test_a_misspelt_callback_is_told_of(step: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Misspelt(Hook):
        def begin(self, loop: Any) -> None:
            self.due_every_run()

        def afterstep(self, loop: Any, value: Any) -> None: ...

    with train.MonitoredSession(hooks=[Misspelt()]) as session:
        session.run(step)
    told = [text for text in caplog.messages if "Misspelt.afterstep" in text]
    assert len(told) == 1
    assert told[0].endswith("Rename it to after_step if that is what you mean.")


def test_a_hook_in_c(opened: Callable[..., Any], step: Any) -> None:
    class State(ctypes.Structure):
        _fields_ = (("global_step", ctypes.c_int64), ("steps", ctypes.c_int64), ("result", ctypes.c_double))

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(State), ctypes.c_void_p)(
        lambda state, context: int(state.contents.global_step >= 6)  # FS_STOP is 1.
    )
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    hook = NativeHook(new_capsule(ctypes.cast(function, ctypes.c_void_p), HOOK_SIGNATURE, None), every_steps=3)
    with opened(hook) as session:
        while not session.should_stop():
            last = session.run(step)
    assert last == 6


def test_progress_and_an_end_of_a_loop(step: Any, clock: Any) -> None:
    file = io.StringIO()
    hooks = [loop.ProgressHook(file=file), train.StopAtStepHook(30)]
    with train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(step)
            clock.now += 1.0
    assert file.getvalue().splitlines()[0].startswith("step 11 of 30 (37%), ")


def test_what_it_fetches_may_change(opened: Callable[..., Any], step: Any) -> None:
    other = tf.constant(5)

    class Changing(Hook):
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def begin(self, loop: Any) -> None:
            self.due_every_run()

        def after_step(self, loop: Any, value: Any) -> None:
            self.calls.append((loop.global_step, value))
            if loop.global_step == 3:
                self.fetches = other
            if loop.global_step == 6:
                self.fetches = None

    hook = Changing()
    with opened(hook) as session:
        for _ in range(8):
            session.run(step)
    assert hook.calls == [(1, None), (2, None), (3, None), (4, 5), (5, 5), (6, 5), (7, None), (8, None)]


@pytest.mark.parametrize("fetches", [False, True])
def test_threads_call_it_once_for_each_run(step: Any, fetches: bool) -> None:
    value = tf.constant(7)

    class EachRun(Hook):
        def __init__(self) -> None:
            self.fetches = value if fetches else None
            self.values: list[Any] = []

        def begin(self, loop: Any) -> None:
            self.due_every_run()

        def after_step(self, loop: Any, value: Any) -> None:
            time.sleep(0)
            self.values.append(value)

    hook = EachRun()
    with train.MonitoredSession(hooks=[hook]) as session:
        session.run(step)
        threads = [threading.Thread(target=lambda: [session.run(step) for _ in range(100)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # The first run is the one in which it begins, before it is known whether it is due.
    assert len(hook.values) == 401
    assert set(hook.values[1:]) == {7 if fetches else None}


def test_it_goes_on_after_an_error_that_the_program_handles(step: Any) -> None:
    class AtRun(Every):
        def wait(self, loop: Any) -> None:
            self.reschedule(at_run=loop.steps + self.steps)

    hook = AtRun(5)
    failing = tf.debugging.Assert(tf.constant(False), ["no"])
    with train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(8):
            session.run(step)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(failing)
        for _ in range(8):
            session.run(step)
    assert hook.calls == [
        ("begin", 0),
        (6, 6, None),
        ("on_error", "InvalidArgumentError"),
        ("begin", 8),
        (14, 14, None),
        ("end", 16),
    ]


def test_an_error_of_on_error_is_logged(step: Any, tf_log: Any) -> None:
    class Failing(Every):
        def on_error(self, loop: Any, error: BaseException) -> None:
            raise ArithmeticError("of on_error")

    with pytest.raises(ZeroDivisionError), train.MonitoredSession(hooks=[Failing(2)]) as session:
        session.run(step)
        raise ZeroDivisionError
    assert "on_error of the hook" in tf_log.text
    assert "of on_error" in tf_log.text


@pytest.mark.parametrize(
    "stop", [lambda: train.StopAtStepHook(last_step=3.0), lambda: estimator.StopAtSecsHook(0)], ids=["step", "time"]
)
def test_progress_asks_no_other_hook(step: Any, stop: Callable[[], Any]) -> None:
    with train.MonitoredTrainingSession(hooks=[stop()], progress=True) as session:
        while not session.should_stop():
            session.run(step)


def test_a_generator_of_hooks(graph: Any) -> None:
    with pytest.raises(
        TypeError, match=r"Every\.begin\(\) missing 1 .* Pass a list of hooks, or fastsup\.train\.Adapted"
    ):
        train.MonitoredSession(hooks=(hook for hook in [Every(2)]))


def test_the_profile_names_it(step: Any) -> None:
    profiler = fastsup.HookProfiler()
    with train.MonitoredSession(hooks=[Every(2)], profiler=profiler) as session:
        session.run_loop(step, steps=10)
    rows = {row.owner: row for row in profiler.report().rows if row.phase == "after_run"}
    assert rows["Every"].times.calls == 6  # With the one in which it begins.


def test_in_an_estimator_and_an_experiment(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_mean(features)
        train_op = v1.assign_add(v1.train.get_global_step(), 1)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[in_spec])

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensors(tf.ones([2])).repeat()

    in_spec, in_train, in_experiment = Every(4), Every(5), Every(2)
    an_estimator = estimator.Estimator(model_fn, str(tmp_path))
    an_estimator.train(input_fn, hooks=[in_train], steps=9)
    assert [entry[0] for entry in in_spec.calls] == ["begin", 4, 8, "end"]
    assert [entry[0] for entry in in_train.calls] == ["begin", 5, "end"]
    spec = estimator.TrainSpec(input_fn, max_steps=12, hooks=[in_train])
    estimator.train_and_evaluate(an_estimator, spec, estimator.EvalSpec(input_fn, steps=1))
    assert [entry[0] for entry in in_train.calls] == ["begin", 5, "end", "begin", 10, "end"]
    arguments: dict[str, Any] = {"train_steps": 14, "eval_steps": 1, "train_monitors": [in_experiment]}
    experiment.Experiment(an_estimator, input_fn, input_fn, **arguments).train()
    assert [entry[0] for entry in in_experiment.calls] == ["begin", 14, "end"]


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda: train.StopAtStepHook(last_step=5), 3),
        (lambda: train.StopAtStepHook(num_steps=5), 5),
        (lambda: estimator.StopAtSecsHook(4.5), 5),
    ],
)
def test_hooks_of_sessions_that_end_a_loop(make: Callable[[], Any], steps: int, clock: Any) -> None:
    def step() -> None:
        clock.now += 1.0

    a_loop = StepLoop(step, [make()], max_steps=100, initial_step=2)
    a_loop.run()
    assert a_loop.steps == steps


@pytest.mark.parametrize(
    ("result", "shown"), [(None, ""), (0.5, ", loss 0.5"), ({"error": 2.0}, ", error 2"), ([1, 2], "")]
)
def test_progress_of_a_session_in_a_loop(clock: Any, result: Any, shown: str) -> None:
    file = io.StringIO()

    def step() -> Any:
        clock.now += 1.0
        return result

    StepLoop(step, [train.ProgressHook(file=file)], max_steps=3).run()
    assert file.getvalue() == f"step 3 of 3 (100%), 1 steps/s{shown}\n"


class StopsLater(train.StopAtStepHook):
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """What a loop wouldn't call."""


@pytest.mark.parametrize(
    "hook",
    [
        v1.train.StopAtStepHook(5),
        train.StepCounterHook(),
        train.LoggingTensorHook([], every_n_iter=1),
        train.NanTensorHook(None),
        train.SessionRunHook(),
        StopsLater(5),
    ],
)
def test_hooks_that_need_a_session_in_a_loop(hook: Any) -> None:
    with pytest.raises(TypeError) as raised:
        StepLoop(int, [hook])
    assert str(raised.value) == (
        f"hooks must be fastsup.core.Hook objects, or capsules of hooks in C, got {hook!r} as hooks[0]. "
        f"{type(hook).__name__} is a session hook, and requires a session. A subclass of "
        "fastsup.core.Hook works in a StepLoop and in sessions; fastsup.loop has ready-made ones."
    )


def test_what_it_is_made_of() -> None:
    with pytest.raises(TypeError, match=r"hook must be a fastsup\.core\.Hook, got 5"):
        AdaptedHook(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: train.MonitoredSession(hooks=[train.StepCounterHook]),
        lambda: StepLoop(int, [train.StepCounterHook]),  # type: ignore[list-item]
        lambda: estimator.TrainSpec(dict, hooks=[train.StepCounterHook]),
    ],
)
def test_a_class_in_place_of_a_hook(make: Callable[[], Any], graph: Any) -> None:
    with pytest.raises(TypeError, match=r"StepCounterHook is a class: pass an object, StepCounterHook\(\.\.\.\)"):
        make()


def test_a_class_that_works_as_a_hook_is_taken(impl: Any, graph: Any) -> None:
    """One whose callbacks need no object, in TensorFlow as here."""
    called = []

    class Namespace:
        @staticmethod
        def begin() -> None:
            called.append("begin")

        @staticmethod
        def after_create_session(session: Any, coord: Any) -> None:
            called.append("after_create_session")

        @staticmethod
        def before_run(run_context: Any) -> None:
            called.append("before_run")

        @staticmethod
        def after_run(run_context: Any, run_values: Any) -> None:
            called.append("after_run")

        @staticmethod
        def end(session: Any) -> None:
            called.append("end")

    value = tf.constant(1)
    with impl.train.MonitoredSession(hooks=[Namespace]) as session:
        session.run(value)
    assert called == ["begin", "after_create_session", "before_run", "after_run", "end"]


def test_a_hook_of_both_kinds_is_taken_by_both(graph: Any) -> None:
    class Both(Hook, v1.train.SessionRunHook):  # type: ignore[misc]
        calls = 0

        def begin(self, loop: Any = None) -> None:
            self.calls += 1
            self.never_due()

        def end(self, of: Any) -> None:
            self.calls += 1

    hook = Both()
    StepLoop(int, [hook], max_steps=1).run()
    with train.MonitoredSession(hooks=[hook]):
        pass
    assert hook.calls == 4


def test_a_checkpoint_in_place_of_a_manager() -> None:
    for wrong in (tf.train.Checkpoint(), v1.train.Saver([tf.Variable(1.0)])):
        with pytest.raises(
            TypeError, match=r"doesn't take checkpoint_number.* pass directory=\.\.\., or a tf\.train\.Ch"
        ):
            loop.CheckpointHook(wrong, every_steps=5)
