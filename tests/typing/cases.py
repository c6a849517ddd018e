"""What a type checker knows of programs that use fastsup. mypy reads this file; nothing runs it.

`assert_type` fails where a type is another, or is lost (Any). A line with "# error:" is a mistake that mypy must find.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from typing_extensions import assert_type

import fastsup
import fastsup.estimator as estimator
import fastsup.loop
import fastsup.train as train
from fastsup.core import Hook, NativeHook, SecondOrStepTimer, StepLoop


def sessions(train_op: Any, hooks: Iterable[Any]) -> None:
    session = train.MonitoredTrainingSession(checkpoint_dir="logdir", hooks=hooks, executor="inline", progress=True)
    assert_type(session, train.MonitoredSession)
    assert_type(session.should_stop(), bool)
    with session as opened:
        assert_type(opened, train.MonitoredSession)
        opened.run_loop(train_op, steps=100)
    train.MonitoredTrainingSession(checkpoint_directory="logdir")  # error: Unexpected keyword argument
    train.MonitoredTrainingSession(log_step_count_steps="100")  # error: incompatible type "str"
    assert_type(train.latest_intact_checkpoint("logdir"), str | None)
    assert_type(fastsup.get_include(), str)


def hooks_of_sessions() -> None:
    assert_type(train.StopAtStepHook(last_step=10), train.StopAtStepHook)
    assert_type(train.WatchdogHook(30.0), train.WatchdogHook)
    train.WatchdogHook("thirty")  # error: incompatible type "str"
    timer = SecondOrStepTimer(every_steps=10)
    assert_type(timer, SecondOrStepTimer)
    assert_type(timer.should_trigger_for_step(10), bool)


def loops() -> None:
    class Report(Hook):
        def begin(self, loop: StepLoop) -> None:
            assert_type(loop.global_step, int)
            self.due_at_step(1_000)
            self.due_at_step("1000")  # error: incompatible type "str"

    loop = StepLoop(lambda: 1, [Report(), NativeHook(lambda *_: None, every_steps=10)], max_steps=100)
    assert_type(loop.max_steps, int | None)
    assert_type(loop.steps, int)
    assert_type(loop.request_stop(), None)
    StepLoop(lambda: 1, max_steps="100")  # error: incompatible type "str"
    fastsup.loop.StepLoop(lambda: 1, [Report()], max_steps=10).run()


def profiles() -> None:
    with fastsup.HookProfiler(skip_steps=10) as profiler:
        assert_type(profiler, fastsup.HookProfiler)
    assert_type(profiler.table(), str)
    profiler.write_json("profile.json")
    profiler.write_jsn("profile.json")  # error: has no attribute "write_jsn"


def estimators() -> None:
    config = estimator.RunConfig(model_dir="model", save_checkpoints_steps=100, progress=True)
    assert_type(config, estimator.RunConfig)
    model = estimator.Estimator(lambda features, labels, mode: None, config=config)
    assert_type(model, estimator.Estimator)
    assert_type(model.train(lambda: None, max_steps=10), estimator.Estimator)
    train_spec = estimator.TrainSpec(lambda: None, max_steps=100)
    assert_type(train_spec, estimator.TrainSpec)
    assert_type(train_spec.max_steps, int | None)
    estimator.TrainSpec(lambda: None, max_steps="100")  # error: incompatible type "str"
    estimator.EvalSpec(lambda: None, throttle_sec=5)  # error: Unexpected keyword argument


def functions() -> None:
    @fastsup.function
    def step(x: Any) -> Any:
        return x

    assert_type(step.lifted, bool)
    assert_type(step.why_not_lifted, str)
    step(np.ones([3]))
