"""Random programs under both implementations: callbacks, results, log, files, events, checkpoints, errors compared.

FASTSUP_HYPOTHESIS=long writes many more of them, other ones each time, and makes one that fails as small as it can.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

v1 = tf.compat.v1
LONG = os.environ.get("FASTSUP_HYPOTHESIS") == "long"
# Where the clock begins: near the true time. A saver keeps files that it finds and that are hours younger.
START = float(int(time.time()))

ERRORS = {
    "aborted": lambda: tf.errors.AbortedError(None, None, "planned"),
    "unavailable": lambda: tf.errors.UnavailableError(None, None, "planned"),
    "out of range": lambda: tf.errors.OutOfRangeError(None, None, "planned"),
    "invalid": lambda: tf.errors.InvalidArgumentError(None, None, "planned"),
    "stop iteration": lambda: StopIteration("planned"),
    "value": lambda: ValueError("planned"),
}


# What a program is made of.

small = st.integers(1, 6)
steps_or_secs = st.one_of(
    st.builds(lambda n: {"steps": n}, small), st.builds(lambda n: {"secs": n}, st.sampled_from([1, 1.5, 2, 4]))
)
maybe = lambda strategy: st.one_of(st.none(), strategy)  # noqa: E731
error_plans = st.tuples(
    st.sampled_from(["begin", "after_create_session", "before_run", "after_run", "after_run", "end"]),
    st.integers(0, 8),
    st.sampled_from(list(ERRORS)),
)
HOOKS = st.one_of(
    st.builds(lambda n: ("stop", {"last_step": n}), st.integers(1, 20)),
    st.builds(lambda n: ("stop", {"num_steps": n}), st.integers(1, 20)),
    st.builds(
        lambda when, listener: ("checkpoint", {**when, "listener": listener}),
        steps_or_secs,
        maybe(st.sampled_from(["quiet", "stops", "steps"])),
    ),
    st.builds(lambda when: ("counter", when), steps_or_secs),
    st.builds(lambda when: ("summary", when), steps_or_secs),
    st.builds(lambda n, at_end: ("logging", {"every_n_iter": n, "at_end": at_end}), small, st.booleans()),
    st.builds(lambda n, at_end: ("logging", {"every_n_secs": n, "at_end": at_end}), small, st.booleans()),
    st.builds(lambda fail: ("nan", {"fail_on_nan_loss": fail}), st.booleans()),
    st.builds(lambda n: ("profiler", {"steps": n}), st.integers(3, 8)),
    st.sampled_from([("waiter", {}), ("final", {}), ("logging", {"at_end": True}), ("feed", {})]),
    st.builds(
        lambda fetch, feed, stop_at, error: ("python", {"fetch": fetch, "feed": feed, "stop": stop_at, "error": error}),
        st.sampled_from([None, "read", "nested", "weight"]),
        st.sampled_from([False, False, False, True]),
        maybe(st.integers(0, 12)),
        maybe(error_plans),
    ),
)
ACTIONS = st.one_of(
    st.builds(lambda i: ("train", i), st.integers(0, 2)),
    st.builds(lambda i: ("train", i), st.integers(0, 2)),
    st.sampled_from(["look", "nothing", "fed", "fed nan", "traced", "step_fn", "raw", "bad op", "end of input"]).map(
        lambda name: (name, 0)
    ),
)


@dataclass(frozen=True)
class Program:
    kind: str
    increments: tuple[int, ...]
    hooks: tuple[tuple[str, dict[str, Any]], ...]
    actions: tuple[tuple[str, int], ...]
    repeats: int
    seconds: tuple[float, ...]
    training: dict[str, Any] = field(default_factory=dict)
    resumes: bool = False
    raises_at: tuple[int, str] | None = None


def saver_ends_elsewhere(program: Program) -> bool:
    """Whether it shows that the saver which a MonitoredTrainingSession makes ends after all other hooks, on purpose."""
    if program.kind != "MonitoredTrainingSession" or program.training["save_checkpoint_steps"] is None:
        return False
    return any(
        kind == "checkpoint" or spec.get("at_end") or (spec.get("error") or ("",))[0] == "end"
        for kind, spec in program.hooks
    )


PROGRAMS = st.builds(
    Program,
    kind=st.sampled_from(["MonitoredSession", "MonitoredTrainingSession", "SingularMonitoredSession"]),
    increments=st.tuples(*[st.sampled_from([0, 1, 1, 1, 2, 5])] * 3),
    hooks=st.lists(HOOKS, max_size=5).map(tuple),
    actions=st.lists(ACTIONS, min_size=1, max_size=6).map(tuple),
    repeats=st.integers(1, 4),
    seconds=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=3).map(tuple),
    training=st.fixed_dictionaries(
        {
            "save_checkpoint_steps": maybe(small),
            "save_summaries_steps": maybe(small),
            "log_step_count_steps": st.sampled_from([None, 0, 1, 3]),
            "save_graph_def": st.booleans(),
        }
    ),
    resumes=st.booleans(),
    raises_at=maybe(st.tuples(st.integers(0, 12), st.sampled_from(list(ERRORS)))),
).filter(lambda program: not saver_ends_elsewhere(program))


# Running one.


def plain(value: Any) -> Any:
    """A value out of a run, as something that compares and prints well."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        # As text, in which not a number is equal to itself.
        return f"{value.dtype} {np.round(value, 6).tolist() if value.dtype.kind == 'f' else value.tolist()}"
    return getattr(value, "name", value)


class Run:
    """One program under one implementation. `seen` gets all there is to compare."""

    def __init__(self, impl: Any, program: Program, folder: str, tools: Any) -> None:
        self.train, self.program, self.folder, self.tools = impl.train, program, folder, tools
        self.seen: Any = tools.new_trace()

    def build(self) -> None:
        step = self.tools.counting_step(0)
        self.step, self.read = step.global_step, step.read
        self.x = v1.placeholder_with_default(1.0, [], name="x")
        weight = v1.get_variable("weight", initializer=0.5)
        # Added to, since a mere read of a reference variable shows what is written later.
        self.weight = tf.add(weight, 0.0, name="seen")
        self.loss = tf.multiply(self.weight, self.x, name="loss")
        v1.summary.scalar("loss", self.loss)
        self.summary_op = v1.summary.scalar("own", self.weight)
        self.ops = []
        with tf.control_dependencies([self.read, self.weight, self.loss]):
            for increment in self.program.increments:
                with tf.control_dependencies([v1.assign_add(weight, 0.25)]):
                    self.ops.append(v1.assign_add(self.step, increment).op if increment else tf.no_op())
        with tf.control_dependencies([self.ops[0]]):
            self.bad = tf.raw_ops.Assert(condition=tf.constant(False), data=["planned"])
        queue = v1.FIFOQueue(1, [tf.float32], shared_name="the_queue")
        self.close_queue, self.element = queue.close(), queue.dequeue()

    def text(self, value: Any) -> str:
        text = str(value).partition("Original stack trace")[0].replace(self.folder, "FOLDER")
        return re.sub(r"0x[0-9a-f]+|line \d+|_\d+_", "N", text)

    def make_hook(self, number: int, kind: str, spec: dict[str, Any]) -> Any:
        train, at = self.train, {f"save_{unit}": spec[unit] for unit in ("steps", "secs") if unit in spec}
        if kind == "stop":
            return train.StopAtStepHook(**spec)
        if kind == "checkpoint":
            listeners = [self.make_listener(number, spec["listener"])] if spec["listener"] else None
            return train.CheckpointSaverHook(
                self.folder, checkpoint_basename=f"model{number}", listeners=listeners, save_graph_def=False, **at
            )
        if kind == "counter":
            return train.StepCounterHook(spec.get("steps"), spec.get("secs"), output_dir=self.folder)
        if kind == "summary":
            return train.SummarySaverHook(output_dir=self.folder, summary_op=self.summary_op, **at)
        if kind == "logging":
            return train.LoggingTensorHook({"loss": self.loss, "step": self.read}, **spec)
        if kind == "nan":
            return train.NanTensorHook(self.loss, **spec)
        if kind == "profiler":
            return train.ProfilerHook(output_dir=self.folder, **at)
        if kind == "waiter":
            return train.GlobalStepWaiterHook(0)
        if kind == "final":
            return train.FinalOpsHook({"step": self.step, "weight": self.weight})
        if kind == "feed":
            return train.FeedFnHook(lambda: {self.x: 2.0})
        return self.make_python_hook(f"python {number}", **spec)

    def make_listener(self, number: int, behaviour: str) -> Any:
        def after_save(n: int, session: Any, step: Any) -> Any:
            if behaviour == "steps":
                session.run(self.ops[1])
            return behaviour == "stops" and n == 3

        return self.seen.listener(f"listener {number}", after_save=after_save)

    def make_python_hook(self, name: str, fetch: Any, feed: bool, stop: Any, error: Any) -> Any:
        fetches = {None: None, "read": self.read, "nested": {"a": [self.loss, self.ops[1]]}, "weight": "seen:0"}[fetch]

        def fail(callback: str, number: int) -> None:
            if error is not None and error[:2] == (callback, number):
                raise ERRORS[error[2]]()

        def before_run(number: int, context: Any) -> Any:
            args = context.original_args
            self.seen.append((plain(args.fetches), sorted(key.name for key in args.feed_dict or ())))
            fail("before_run", number)
            if fetches is not None or feed:
                return self.train.SessionRunArgs(fetches, {self.x: 3.0} if feed else None)
            return None

        def after_run(number: int, context: Any, values: Any) -> None:
            traced = len(values.run_metadata.step_stats.dev_stats) > 0
            self.seen.append((plain(values.results), values.options.trace_level, traced, context.stop_requested))
            if number == stop:
                context.request_stop()
            fail("after_run", number)

        others = {
            callback: lambda number, *_, callback=callback: fail(callback, number)
            for callback in ("begin", "after_create_session", "end")
        }
        return self.seen.hook(name, before_run=before_run, after_run=after_run, **others)

    def open(self, hooks: list[Any]) -> Any:
        if self.program.kind == "MonitoredTrainingSession":
            return self.train.MonitoredTrainingSession(
                checkpoint_dir=self.folder, hooks=hooks, save_checkpoint_secs=None, **self.program.training
            )
        if self.program.kind == "SingularMonitoredSession":
            return self.train.SingularMonitoredSession(hooks, checkpoint_dir=self.folder)
        return self.train.MonitoredSession(self.train.ChiefSessionCreator(checkpoint_dir=self.folder), hooks)

    def act(self, session: Any, name: str, i: int) -> Any:
        raw = self.tools.raw_session(session)
        if name == "train":
            return session.run([self.ops[i], self.loss, self.read])
        if name == "look":
            return session.run({"w": self.weight, "step": [self.read]})
        if name == "nothing":
            return session.run([])
        if name in ("fed", "fed nan"):
            return session.run([self.ops[1], self.loss], {self.x: float("nan") if name == "fed nan" else 4.0})
        if name == "traced":
            return session.run(self.ops[0], options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE))
        if name == "raw":
            return raw.run(self.ops[2])
        if name == "end of input":
            raw.run(self.close_queue)
            return session.run(self.element)
        if name == "bad op":
            try:
                return session.run(self.bad)
            except tf.errors.InvalidArgumentError as error:
                return self.text(error)

        def step_fn(step_context: Any) -> Any:
            return step_context.run_with_hooks(self.ops[0]), step_context.session.run(self.read)

        return session.run_step_fn(step_fn)

    def session(self) -> None:
        program, runs = self.program, 0
        with tf.Graph().as_default():
            self.build()
            hooks = [self.make_hook(n, *hook) for n, hook in enumerate(program.hooks)]
            with self.open(hooks) as session:
                for name, i in program.actions * program.repeats:
                    if session.should_stop():
                        break
                    self.tools.clock.now += program.seconds[runs % len(program.seconds)]
                    if program.raises_at is not None and program.raises_at[0] == runs:
                        raise ERRORS[program.raises_at[1]]()
                    self.seen.append((f"run {runs}: {name}", plain(self.act(session, name, i))))
                    runs += 1
                self.seen.append("left")
        self.seen += [plain(hook.final_ops_values) for hook in hooks if hasattr(hook, "final_ops_values")]

    def try_session(self) -> None:
        try:
            self.session()
        except Exception as error:
            self.seen.append((type(error).__name__, self.text(error)))

    def all_there_is(self) -> dict[str, Any]:
        log = Log()
        logger = logging.getLogger("tensorflow")
        level = logger.level
        logger.addHandler(log)
        logger.setLevel(logging.INFO)
        try:
            for _ in range(2 if self.program.resumes else 1):
                self.try_session()
        finally:
            logger.removeHandler(log)
            logger.setLevel(level)
        # First, since this closes the writers: their threads make the files when they get to it.
        events = self.events()
        return {
            "seen": self.seen,
            "log": [self.text(message) for message in log.messages],
            "files": sorted(set(self.tools.files(self.folder))),
            "events": events,
            "checkpoints": self.checkpoints(),
        }

    def events(self) -> list[Any]:
        found = []
        for event in self.tools.raw_events(self.folder):
            what = event.WhichOneof("what")
            if what == "file_version" and found:
                continue  # Ours begins another file with a session that resumes.
            detail: Any = None
            if what == "summary":
                detail = [(value.tag, f"{value.simple_value:.4f}") for value in event.summary.value]
            elif what == "session_log":
                detail = (event.session_log.status, self.text(event.session_log.checkpoint_path))
            elif what == "tagged_run_metadata":
                detail = event.tagged_run_metadata.tag
            found.append((event.step, what, detail))
        return found

    def checkpoints(self) -> Any:
        indexes = [name for name in self.tools.files(self.folder) if name.endswith(".index")]
        values = {}
        for name in indexes:
            reader = tf.train.load_checkpoint(os.path.join(self.folder, name.removesuffix(".index")))
            shapes = reader.get_variable_to_shape_map()
            values[name] = {variable: plain(reader.get_tensor(variable)) for variable in sorted(shapes)}
        state = v1.train.get_checkpoint_state(self.folder)
        return values, None if state is None else [self.text(path) for path in state.all_model_checkpoint_paths]


class Log(logging.Handler):
    """The log, with its documented differences taken out.

    Left out are notices of deprecation, choices of an executor, and the warning of a global step that stands still,
    which ours gives only when it is true. A recovery is a warning here, which goes on to count the failures. A
    checkpoint that was just restored isn't saved again here, and a line says so.
    """

    LEFT_OUT = re.compile(r"deprecated|Please fix your imports|It seems that global step|^Executor of run\(")
    LEFT_AS_IT_IS = re.compile(r"^The checkpoint of step (\d+), (.*)-\d+, already contains this state and is left .*$")
    RECOVERY = re.compile(r"^WARNING (An error was raised.*) \(Failure \d+ .*\)$", re.DOTALL)

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not self.LEFT_OUT.search(message):
            message = self.LEFT_AS_IT_IS.sub(r"Saving checkpoints for \1 into \2.", message)
            self.messages.append(self.RECOVERY.sub(r"INFO \1", f"{record.levelname} {message}"))


@pytest.fixture
def tools(counting_step: Any, raw_session: Any, raw_events: Any, files: Any, clock: Any, trace: Any) -> Any:
    return SimpleNamespace(
        counting_step=counting_step, raw_session=raw_session, raw_events=raw_events, files=files, clock=clock,
        new_trace=type(trace),
    )  # fmt: skip


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=2000 if LONG else 40,
    derandomize=not LONG,
    report_multiple_bugs=False,
    phases=list(Phase) if LONG else [Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(program=PROGRAMS)
@example(Program("MonitoredSession", (0, 0, 1), (("profiler", {"steps": 3}),),
                 (("train", 2), ("nothing", 0), ("train", 0)), 1, (0.0,)))  # fmt: skip
@example(Program("MonitoredSession", (0, 0, 0),
                 (("python", {"fetch": None, "feed": False, "stop": None, "error": ("after_run", 1, "aborted")}),
                  ("logging", {"every_n_iter": 3, "at_end": False})),
                 (("train", 0), ("train", 0), ("train", 0)), 2, (0.0,)))  # fmt: skip
@example(Program("MonitoredSession", (0, 0, 1),
                 (("checkpoint", {"steps": 2, "listener": None}), ("checkpoint", {"steps": 1, "listener": None})),
                 (("train", 2),), 3, (0.0,), resumes=True))  # fmt: skip
@pytest.mark.timeout(36_000 if LONG else 180)
def test_random_programs(both: Any, tools: Any, tmp_path_factory: pytest.TempPathFactory, program: Program) -> None:
    results = []
    for impl in (both.tensorflow, both.fastsup):
        tools.clock.now = START
        results.append(Run(impl, program, str(tmp_path_factory.mktemp("run")), tools).all_there_is())
    theirs, ours = results
    for part in theirs:
        for i, (a, b) in enumerate(zip(theirs[part], ours[part], strict=False)):
            if a != b:
                note(f"{part}[{i}]: TensorFlow {a!r}, fastsup {b!r}; before it {theirs[part][max(i - 3, 0) : i]}")
                break
        assert ours[part] == theirs[part], part
