"""Hooks of sessions in a StepLoop: they are called as in a MonitoredSession, and find the same values."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import train
from fastsup.loop import StepLoop, every

v1 = tf.compat.v1
RATE = 0.5

pytestmark = pytest.mark.skipif(not tf.executing_eagerly(), reason="a tf.function of eager variables is the step")


class Recorder(v1.train.SessionRunHook):  # type: ignore[misc]
    """Notes each callback, with the global step and the loss that it finds."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.log: list[Any] = []
        self._stop_at = stop_at

    def begin(self) -> None:
        self._global_step = v1.train.get_global_step()
        self._double = tf.identity(self._global_step) * 2
        self.log.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        assert not coord.should_stop()
        self.log.append(("after_create_session", int(session.run(self._global_step))))

    def before_run(self, run_context: Any) -> Any:
        self.log.append("before_run")
        return v1.train.SessionRunArgs({"loss": "loss:0", "both": ["loss:0", self._double]})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        loss, (same, _) = run_values.results["loss"], run_values.results["both"]
        assert loss == same
        step = int(run_context.session.run(self._global_step))
        self.log.append(("after_run", step, float(loss), int(run_context.session.run(self._double))))
        if step == self._stop_at:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        self.log.append(("end", int(session.run(self._global_step))))


def new_step() -> Any:
    weight = tf.Variable(8.0)

    def step() -> Any:
        loss = weight.read_value()
        with tf.control_dependencies([loss]):
            weight.assign(RATE * weight)
        return {"loss": loss}

    return step


def in_a_loop(hooks: list[Any], **arguments: Any) -> StepLoop:
    loop = StepLoop(tf.function(new_step()), hooks, **arguments)
    loop.run()
    return loop


def in_a_session(hooks: list[Any]) -> None:
    """The same training in TensorFlow's own session."""
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", [], initializer=v1.constant_initializer(8.0))
        loss = tf.identity(weight, name="loss")
        with tf.control_dependencies([loss]):
            update = v1.assign(weight, RATE * weight)
        with tf.control_dependencies([update]):
            step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        with v1.train.MonitoredSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(step)


@pytest.mark.parametrize("ends", ["hook", "request"])
def test_the_same_callbacks_as_in_a_session(ends: str) -> None:
    logs = []
    for run in (in_a_session, in_a_loop):
        recorder = Recorder(stop_at=4 if ends == "request" else None)
        hooks = [recorder, v1.train.StopAtStepHook(last_step=4)] if ends == "hook" else [recorder]
        run(hooks)
        logs.append(recorder.log)
    assert logs[0] == logs[1]
    assert logs[1][:3] == ["begin", ("after_create_session", 0), "before_run"]
    assert logs[1][-2:] == [("after_run", 4, 1.0, 8), ("end", 4)]


@pytest.mark.parametrize("arguments", [{"max_steps": 2}, {"steps": 2}])
def test_no_step_is_requested_that_does_not_come(arguments: dict[str, int]) -> None:
    recorder = Recorder()
    in_a_loop([recorder, every(1)(lambda loop: None)], **arguments)
    assert recorder.log.count("before_run") == 2
    recorder = Recorder()
    # A hook of loops that ends the loop is called before, also if it comes later in the list.
    in_a_loop([recorder, train.StopAtStepHook(num_steps=3)], initial_step=5)
    assert recorder.log.count("before_run") == 3
    assert recorder.log[-1] == ("end", 8)
    recorder = Recorder()
    in_a_loop([recorder], max_steps=5, initial_step=5)
    assert recorder.log == ["begin", ("after_create_session", 5), ("end", 5)]


def test_tensorflows_hooks(tmp_path: Any, tf_log: Any) -> None:
    final = v1.train.FinalOpsHook("loss:0")
    hooks = [
        v1.train.LoggingTensorHook(["loss"], every_n_iter=2, at_end=True),
        v1.train.StepCounterHook(2, output_dir=str(tmp_path)),
        v1.train.StopAtStepHook(num_steps=5),
        v1.train.GlobalStepWaiterHook(0),
        final,
    ]
    loop = in_a_loop(hooks, initial_step=10)
    assert loop.global_step == 15
    assert final.final_ops_values == 0.5  # That of the last step.
    assert next(text for text in tf_log.messages if text.startswith("loss = ")) == "loss = 8.0"
    assert sum("loss = " in text for text in tf_log.messages) == 4
    v1.summary.FileWriterCache.clear()
    (path,) = tmp_path.iterdir()
    steps = [event.step for event in v1.train.summary_iterator(str(path)) if event.summary.value]
    assert steps == [13, 15]


def test_a_nan_ends_the_loop() -> None:
    step = tf.function(lambda: {"loss": tf.constant(float("nan"))})
    with pytest.raises(v1.train.NanLossDuringTrainingError):
        StepLoop(step, [v1.train.NanTensorHook("loss:0")]).run()
    loop = StepLoop(step, [v1.train.NanTensorHook("loss:0", fail_on_nan_loss=False)])
    loop.run()
    assert loop.steps == 1


@pytest.mark.parametrize("kind", ["bind", "bind_batches", "lifted", "method"])
def test_the_results_of_bound_steps(kind: str) -> None:
    recorder = Recorder()
    if kind == "bind":
        step: Any = fastsup.bind(tf.function(lambda x: {"loss": x}), tf.constant(3.0))
    elif kind == "bind_batches":
        batches = tf.data.Dataset.from_tensors(3.0).repeat(10)
        step = fastsup.bind_batches(fastsup.function(lambda x: {"loss": x, "others": (x, None)}), batches)
    elif kind == "lifted":
        step = fastsup.function(lambda: {"loss": tf.constant(3.0)})
    else:

        class Model:
            @fastsup.function
            def step(self, x: Any) -> Any:
                return {"loss": x + 1.0}

        step = fastsup.bind(Model().step, tf.constant(2.0))
    StepLoop(step, [recorder], max_steps=3).run()
    assert [entry[2] for entry in recorder.log if entry[0] == "after_run"] == [3.0] * 3


def test_a_step_of_any_kind() -> None:
    """A hook that fetches nothing needs no names."""

    class Counter(v1.train.SessionRunHook):  # type: ignore[misc]
        calls = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            assert run_values.results is None
            assert run_context.original_args.fetches is None
            self.calls += 1

    counter = Counter()
    StepLoop(iter([1.0, 2.0]).__next__, [counter, v1.train.StopAtStepHook(last_step=9)]).run()
    assert counter.calls == 2
    with pytest.raises(KeyError, match="The name 'loss:0' refers to a Tensor which does not exist"):
        StepLoop(float, [v1.train.LoggingTensorHook(["loss"], every_n_iter=1)], max_steps=1).run()


def test_a_failed_step() -> None:
    closed: list[Any] = []

    class Closing(Recorder):
        def after_create_session(self, session: Any, coord: Any) -> None:
            closed.append(session)
            super().after_create_session(session, coord)

        def on_error(self, run_context: Any, error: BaseException) -> None:
            self.log.append(("on_error", str(error)))

    recorder, calls = Closing(), iter([None])

    def step() -> None:
        if next(calls, "done") == "done":
            raise ValueError("mine")

    recorder.before_run = lambda run_context: None  # type: ignore[method-assign]
    recorder.after_run = lambda run_context, run_values: None  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="mine"):
        StepLoop(step, [recorder]).run()
    assert recorder.log == ["begin", ("after_create_session", 0), ("on_error", "mine")]
    with pytest.raises(RuntimeError, match="closed Session"):
        closed[0].run([])


def test_an_on_error_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The hooks after it are told, and the error of the step stays."""
    told: list[str] = []

    class Failing(v1.train.SessionRunHook):  # type: ignore[misc]
        def on_error(self, run_context: Any, error: BaseException) -> None:
            raise RuntimeError("in on_error")

    class Told(v1.train.SessionRunHook):  # type: ignore[misc]
        def on_error(self, run_context: Any, error: BaseException) -> None:
            told.append(str(error))

    def step() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        StepLoop(step, [Failing(), Told()]).run()
    assert told == ["mine"]
    assert "on_error of the hook" in caplog.text
    assert "Failing" in caplog.text


def test_all_hooks_end() -> None:
    class Failing(Recorder):
        def end(self, session: Any) -> None:
            super().end(session)
            raise RuntimeError("in end")

    hooks = [Failing(), Recorder()]
    with pytest.raises(RuntimeError, match="in end"):
        in_a_loop(hooks, max_steps=1)
    assert [hook.log[-1] for hook in hooks] == [("end", 1)] * 2


def test_after_a_recovery() -> None:
    """The step that has failed is made again, and the global step that hooks find is that of the loop."""
    recorder, fails = Recorder(), iter([False, True, False, False])
    lifted = tf.function(new_step())

    class Step:
        result_specs = staticmethod(lambda: lifted.get_concrete_function().structured_outputs)

        def __call__(self) -> Any:
            if next(fails):
                raise tf.errors.UnavailableError(None, None, "gone")
            return lifted()

    StepLoop(Step(), [recorder], max_steps=3, max_recoveries=2).run()
    assert [entry[1:3] for entry in recorder.log if entry[0] == "after_run"] == [(1, 8.0), (2, 4.0), (3, 2.0)]


@pytest.mark.parametrize("module", [v1.train, train])
def test_hooks_that_need_a_graph_are_refused(module: Any, tmp_path: Any) -> None:
    for hook, instead in (
        (module.CheckpointSaverHook(str(tmp_path), save_steps=1), "CheckpointHook"),
        (module.SummarySaverHook(save_steps=1, output_dir=str(tmp_path), summary_op="summaries"), "SummaryHook"),
        (module.FeedFnHook(dict), "bind_batches"),
    ):
        with pytest.raises(TypeError, match=rf"{type(hook).__name__} object .*{instead} "):
            StepLoop(int, [hook])


def test_feeds_are_refused() -> None:
    class Feeding(v1.train.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> Any:
            return v1.train.SessionRunArgs(None, {"x:0": 1.0})

    with pytest.raises(ValueError, match=r"feeds \['x:0'\]: a loop's step accepts no feeds"):
        StepLoop(int, [Feeding()], max_steps=1).run()


def test_the_profile_names_the_hooks() -> None:
    profiler = fastsup.HookProfiler()
    hooks = [Recorder(), v1.train.StopAtStepHook(last_step=3)]
    StepLoop(tf.function(new_step()), hooks, profiler=profiler).run()
    assert "Recorder, StopAtStepHook" in {row.owner for row in profiler.report().rows}


def test_the_index_of_no_hook_is_the_programs() -> None:
    hooks: Any = [v1.train.SessionRunHook(), 3]
    with pytest.raises(TypeError, match=r"got 3 as hooks\[1\]$"):
        StepLoop(int, hooks)
