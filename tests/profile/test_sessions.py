"""Profiles of sessions: every kind of hook appears, with its phases, and nothing else changes."""

from __future__ import annotations

import collections
import gc
import signal
import sys
import threading
import time
import weakref
from pathlib import Path
from statistics import median_low
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import HookProfiler
from fastsup.core import StepLoop

v1 = tf.compat.v1


def rows(profiler: HookProfiler) -> dict[tuple[str, str], Any]:
    return {(row.owner, row.phase): row for row in profiler.report().rows}


def calls(profiler: HookProfiler, owner: str, phase: str) -> int:
    row = rows(profiler).get((owner, phase))
    return 0 if row is None else int(row.times.calls)


def assert_adds_up(profiler: HookProfiler) -> None:
    report = profiler.report()
    parts = sum(row.times.total_ns for row in report.rows) + report.profiler_ns + report.unaccounted_ns
    assert parts == pytest.approx(report.wall_ns, abs=10)
    assert report.unaccounted_ns >= 0


Pair = collections.namedtuple("Pair", "a b")


class Busy(v1.train.SessionRunHook):  # type: ignore[misc]
    """Takes so many nanoseconds after every run, and notes when it was called and returned."""

    def __init__(self, ns: int) -> None:
        self.ns = ns
        self.called: list[int] = []
        self.returned: list[int] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.called.append(time.perf_counter_ns())
        while time.perf_counter_ns() < self.called[-1] + self.ns:
            pass
        self.returned.append(time.perf_counter_ns())


class Fetching(v1.train.SessionRunHook):  # type: ignore[misc]
    """Asks for something in every run, or in every other one."""

    def __init__(self, fetches: Any, every: int = 1) -> None:
        self.fetches, self.every, self.runs = fetches, every, 0

    def before_run(self, run_context: Any) -> Any:
        self.runs += 1
        return v1.train.SessionRunArgs(self.fetches) if self.runs % self.every == 0 else None


class Listener(v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Takes a millisecond before and after each save."""

    def before_save(self, session: Any, global_step_value: Any) -> None:
        time.sleep(0.001)

    def after_save(self, session: Any, global_step_value: Any) -> None:
        time.sleep(0.001)


def test_hooks_of_either_kind_appear(impl: Any, program: Any, tmp_path: Path) -> None:
    """TensorFlow's own hooks, which are called in every run, as well as ours, which are called when they are due."""
    model = program()
    profiler = HookProfiler()
    train = impl.train
    hooks = [
        train.LoggingTensorHook({"loss": model.loss}, every_n_iter=10),
        train.LoggingTensorHook({"loss": model.loss}, every_n_iter=5),
        train.CheckpointSaverHook(str(tmp_path), save_steps=10, listeners=[Listener()]),
        train.NanTensorHook(model.loss),
        train.StepCounterHook(every_n_steps=10, output_dir=str(tmp_path)),
        train.SummarySaverHook(save_steps=10, output_dir=str(tmp_path), summary_op=v1.summary.merge_all()),
        train.StopAtStepHook(last_step=30),
        Busy(0),
    ]
    with fastsup.train.SingularMonitoredSession(hooks=hooks, profiler=profiler) as session:
        while not session.should_stop():
            session.run(model.step)
    assert profiler.report().steps == 30
    for hook in ("LoggingTensorHook", "LoggingTensorHook #2", "CheckpointSaverHook", "NanTensorHook", "StepCounterHook",
                 "SummarySaverHook", "StopAtStepHook", "Busy"):  # fmt: skip
        assert calls(profiler, hook, "after_run") > 0, hook
        assert calls(profiler, hook, "end") == 1
    saves = calls(profiler, "CheckpointSaverHook", "save")
    assert saves == 3
    assert calls(profiler, "CheckpointSaverHook", "listener") == 2 * saves
    listener = rows(profiler)["CheckpointSaverHook", "listener"]
    assert listener.times.total_ns >= 6 * 10**6
    assert calls(profiler, "SummarySaverHook", "fetches") > 0
    assert calls(profiler, "session", "runtime") == 30
    assert calls(profiler, "session", "between steps") >= 29
    if impl.name == "fastsup":
        assert calls(profiler, "StepCounterHook", "summary") == 2
        # A hook that has nothing to do isn't called.
        assert calls(profiler, "LoggingTensorHook", "before_run") == 3
    assert calls(profiler, "Busy", "before_run") == 30
    assert calls(profiler, "session", "hook dispatch") == 30
    assert_adds_up(profiler)


def test_hooks_are_left_as_they_were(program: Any, tmp_path: Path) -> None:
    model = program()
    saver = fastsup.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[Listener()])
    before, listeners = set(vars(saver)), list(saver._listeners)
    with fastsup.train.SingularMonitoredSession(hooks=[saver], profiler=HookProfiler()) as session:
        for _ in range(5):
            session.run(model.step)
            assert saver._listeners == listeners
    assert saver._listeners == listeners
    assert "_save" not in vars(saver)
    assert set(vars(saver)) >= before


def test_a_replaced_save_is_called(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As programs do it while they run, on the class; it is a save for the profile as well."""
    model = program()
    saved: list[Any] = []
    saver = fastsup.train.CheckpointSaverHook(str(tmp_path), save_steps=2)
    profiler = HookProfiler()
    with fastsup.train.SingularMonitoredSession(hooks=[saver], profiler=profiler) as session:
        for number in range(6):
            if number == 3:
                monkeypatch.setattr(type(saver), "_save", lambda *args: saved.append(int(args[-1])))
            session.run(model.step)
    assert saved[:1] == [4]
    # Steps 2, 4 and 6.
    assert calls(profiler, "CheckpointSaverHook", "save") == 3


def test_callbacks_and_results_are_the_same(both: Any, tmp_path: Path) -> None:
    """As in TensorFlow's session without a profiler."""

    def run(session_kind: Any, **arguments: Any) -> Any:
        trace: list[Any] = []

        class Tracing(v1.train.SessionRunHook):  # type: ignore[misc]
            def before_run(self, run_context: Any) -> Any:
                trace.append(("before", run_context.original_args.fetches is step))
                return v1.train.SessionRunArgs([loss, {"x": doubled}], feed_dict={y: 2.0})

            def after_run(self, run_context: Any, run_values: Any) -> None:
                trace.append(("after", float(run_values.results[0]), float(run_values.results[1]["x"])))
                if len(trace) == 8:
                    run_context.request_stop()

        with tf.Graph().as_default():
            x = v1.placeholder_with_default(1.0, [])
            y = v1.placeholder_with_default(1.0, [])
            loss = x * y
            doubled = x * 2.0
            step = tf.add(loss, 1.0)
            with session_kind(hooks=[Tracing()], **arguments) as session:
                while not session.should_stop():
                    trace.append(float(session.run(step, feed_dict={x: 3.0})))
                with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
                    session.run(step)
        return trace

    profiler = HookProfiler()
    expected = run(both.tensorflow.train.SingularMonitoredSession)
    assert run(both.fastsup.train.SingularMonitoredSession, profiler=profiler) == expected
    assert profiler.report().steps == 3
    assert calls(profiler, "session", "feed conversion") == 3
    assert_adds_up(profiler)


def test_a_hook_that_takes_its_time_is_found(program: Any) -> None:
    """Under any load: a call takes no less than from its first line to its last one, and no more than from the hook
    before it to the hook after it."""
    model = program()
    profiler = HookProfiler(skip_steps=5)
    hooks = [Busy(0), Busy(50_000), Busy(200_000), Busy(0)]
    with fastsup.train.SingularMonitoredSession(hooks=hooks, profiler=profiler) as session:
        for _ in range(105):
            session.run(model.step)
    found, report = rows(profiler), profiler.report()
    assert (report.steps, report.skipped_steps) == (100, 5)
    # At most this much is subtracted from each call.
    cost = report.profiler_ns / sum(row.times.calls for row in report.rows)
    for name, before, hook, after in (("Busy #2", *hooks[:3]), ("Busy #3", *hooks[1:])):
        inside = [end - begin for begin, end in zip(hook.called, hook.returned, strict=True)][5:]
        outside = [end - begin for begin, end in zip(before.returned, after.called, strict=True)][5:]
        times = found[name, "after_run"].times
        assert sum(inside) - 100 * cost <= times.total_ns <= sum(outside)
        # The middle of a bucket is off by 1% at most.
        assert 0.99 * (median_low(inside) - cost) <= times.p50_ns <= 1.01 * median_low(outside)
    assert_adds_up(profiler)


def test_an_idle_hook_costs_no_call(program: Any) -> None:
    """In the loop in C as well, which records each of its steps."""
    model = program()
    profiler = HookProfiler()
    hooks = [fastsup.train.StopAtStepHook(last_step=500), fastsup.train.FinalOpsHook(model.loss)]
    with fastsup.train.SingularMonitoredSession(hooks=hooks, profiler=profiler) as session:
        session.run_loop(model.step)
    assert profiler.report().steps == 500
    assert calls(profiler, "session", "runtime") == 500
    assert calls(profiler, "StopAtStepHook", "after_run") <= 2
    assert calls(profiler, "session", "hook dispatch") <= 2
    assert calls(profiler, "FinalOpsHook", "before_run") == 0
    assert_adds_up(profiler)


def test_a_watched_loss_is_a_fetch_of_its_hook(program: Any) -> None:
    """Of every run, in the loop in C as well, though the hook isn't called."""
    model = program()
    profiler = HookProfiler()
    hooks = [fastsup.train.NanTensorHook(model.loss)]
    with fastsup.train.SingularMonitoredSession(hooks=hooks, profiler=profiler) as session:
        assert session.run_loop([model.step, model.loss], steps=50)[1] > 0
        session.run([model.step, model.loss])
    assert profiler.report().steps == 51
    assert calls(profiler, "session", "runtime") == 51
    assert calls(profiler, "NanTensorHook", "fetches") == 51
    # The caller's result is made at the end of a loop.
    assert calls(profiler, "session", "fetch conversion") == 2
    assert calls(profiler, "NanTensorHook", "after_run") == 0
    assert_adds_up(profiler)


def test_a_save_in_the_background(program: Any, tmp_path: Path) -> None:
    """The save is the part that the step waits for. The work of the thread belongs to no step."""
    model = program()
    profiler = HookProfiler()
    saver = fastsup.train.CheckpointSaverHook(str(tmp_path), save_steps=5, async_save=True, listeners=[Listener()])
    with fastsup.train.SingularMonitoredSession(hooks=[saver], profiler=profiler) as session:
        for _ in range(20):
            session.run(model.step)
            time.sleep(0.002)
    assert profiler.report().threads == 1
    assert calls(profiler, "CheckpointSaverHook", "save") >= 4
    assert calls(profiler, "CheckpointSaverHook", "listener") >= 4
    assert_adds_up(profiler)


def test_fetches_are_compared_with_runs_without_them(program: Any) -> None:
    model = program()
    profiler = HookProfiler(skip_steps=10)
    # Large enough that the error of the measurement is small.
    large = tf.fill([200_000], tf.cast(model.loss, tf.float32))
    hook = Fetching({"large": large, "sum": tf.reduce_sum(tf.sort(large))}, every=2)
    with fastsup.train.SingularMonitoredSession(hooks=[hook], profiler=profiler) as session:
        for _ in range(70):
            session.run(model.step)
    fetches = rows(profiler)["Fetching", "fetches"]
    assert (fetches.basis, fetches.times.calls) == ("compared", 30)
    assert fetches.times.mean_ns > 50_000
    assert_adds_up(profiler)


@pytest.mark.parametrize("make", [list, Pair._make, lambda both: collections.OrderedDict(zip("ab", both, strict=True))])
def test_fetches_are_known_again_in_a_structure_made_anew(program: Any, make: Any) -> None:
    """And so are those of a session while loops and sessions around it end."""
    model = program()
    large = tf.fill([200_000], tf.cast(model.loss, tf.float32))
    hook = Fetching(tf.reduce_sum(tf.sort(large)), every=2)
    with HookProfiler() as profiler, fastsup.train.SingularMonitoredSession(hooks=[hook]) as session:
        for n in range(200):
            session.run(make([model.step, model.loss]))
            if n % 10 == 0:
                StepLoop(int, max_steps=1).run()
    fetches = rows(profiler)["Fetching", "fetches"]
    assert (fetches.basis, fetches.times.calls) == ("compared", 100)
    assert fetches.times.mean_ns > 50_000
    assert_adds_up(profiler)


@pytest.mark.slow
def test_fetches_of_many_sessions(program: Any) -> None:
    """The estimates of a session that is gone are kept, and take no room."""
    with HookProfiler() as profiler:
        sizes = []
        for _ in range(80):
            with tf.Graph().as_default():
                model = program()
                with fastsup.train.SingularMonitoredSession(hooks=[Fetching(model.loss, every=2)]) as session:
                    for _ in range(6):
                        session.run(model.step)
            sizes.append(profiler.__sizeof__())
    assert rows(profiler)["Fetching", "fetches"].times.calls == 80 * 3
    assert sizes[1] == sizes[-1]
    assert_adds_up(profiler)


def test_fetches_of_every_run_are_counted(program: Any) -> None:
    model = program()
    profiler = HookProfiler()
    with fastsup.train.SingularMonitoredSession(
        hooks=[Fetching([model.loss, model.loss, model.step])], profiler=profiler
    ) as session:
        for _ in range(10):
            session.run(model.step)
    fetches = rows(profiler)["Fetching", "fetches"]
    assert (fetches.basis, fetches.times.calls) == ("counted", 10)
    assert fetches.times.mean_ns == pytest.approx(2 * profiler.value_ns, rel=0.01)
    assert "~" in profiler.table()


def test_an_error_of_a_hook_goes_its_way(program: Any) -> None:
    class Fails(v1.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            raise KeyError("its own")

    model = program()
    profiler = HookProfiler()
    with pytest.raises(KeyError, match="its own"):
        with fastsup.train.MonitoredSession(hooks=[Fails()], profiler=profiler) as session:
            session.run(model.step)
    assert calls(profiler, "Fails", "after_run") == 1
    assert_adds_up(profiler)


def test_a_session_made_anew_goes_on_in_the_same_rows(program: Any) -> None:
    class FailsOnce(v1.train.SessionRunHook):  # type: ignore[misc]
        failed = False

        def before_run(self, run_context: Any) -> None:
            if not self.failed:
                self.failed = True
                raise tf.errors.AbortedError(None, None, "preempted")

    model = program()
    profiler = HookProfiler()
    with fastsup.train.MonitoredSession(hooks=[FailsOnce()], profiler=profiler) as session:
        for _ in range(3):
            session.run(model.step)
    assert {row.owner for row in profiler.report().rows} == {"FailsOnce", "session"}
    assert calls(profiler, "FailsOnce", "before_run") == 4
    assert_adds_up(profiler)


def test_a_profile_keeps_no_graph_alive() -> None:
    profiler = HookProfiler()

    def train() -> Any:
        with tf.Graph().as_default() as graph:
            x = tf.constant(1.0)
            with fastsup.train.SingularMonitoredSession(hooks=[Fetching(x, every=2)], profiler=profiler) as session:
                for _ in range(4):
                    session.run([x])
        return weakref.ref(graph)

    graphs = [train() for _ in range(2)]
    gc.collect()
    assert [graph() for graph in graphs] == [None, None]
    assert calls(profiler, "Fetching", "fetches") == 4


def test_on_for_the_whole_program_and_off_again(program: Any) -> None:
    model = program()
    profiler = HookProfiler()
    with fastsup.train.SingularMonitoredSession(hooks=[Busy(0)]) as session:
        for _ in range(3):
            session.run(model.step)
        with profiler:
            for _ in range(5):
                session.run(model.step)
        time.sleep(0.05)
        for _ in range(3):
            session.run(model.step)
        with profiler:
            session.run_loop(model.step, steps=4)
    assert profiler.report().steps == 9
    assert calls(profiler, "Busy", "after_run") == 9
    # The pause isn't a time between two steps.
    assert calls(profiler, "session", "between steps") == 4 + 3
    assert_adds_up(profiler)


def test_turned_on_while_a_loop_runs(program: Any) -> None:
    """By another thread: the loop in C, in which no hook is due, begins to be recorded, and ends."""
    model = program()
    profiler = HookProfiler()
    with fastsup.train.SingularMonitoredSession(hooks=[fastsup.train.FinalOpsHook(model.loss)]) as session:
        session.run(model.step)

        def watch() -> None:
            with profiler:
                deadline = time.monotonic() + 60
                while profiler.steps_begun < 100 and time.monotonic() < deadline:
                    time.sleep(0.001)
            session.request_stop()

        thread = threading.Thread(target=watch)
        thread.start()
        session.run_loop(model.step)
        thread.join()
    assert profiler.report().steps >= 100
    assert_adds_up(profiler)


def test_a_session_keeps_its_own_profiler(program: Any) -> None:
    model = program()
    own, everywhere = HookProfiler(), HookProfiler()
    with everywhere, fastsup.train.SingularMonitoredSession(profiler=own) as session:
        session.run(model.step)
    assert (own.report().steps, everywhere.report().steps) == (1, 0)


@pytest.mark.parametrize("whole_program", [False, True])
def test_supervisor(program: Any, tmp_path: Path, whole_program: bool) -> None:
    """The runs of the loop are steps, those of the services are none."""
    model = program()
    profiler = HookProfiler()
    if whole_program:
        profiler.start()
    try:
        supervisor = fastsup.train.Supervisor(
            logdir=str(tmp_path),
            save_summaries_secs=1,
            save_model_secs=1,
            profiler=None if whole_program else profiler,
        )
        with supervisor.managed_session() as session:
            for _ in range(20):
                session.run([model.step, model.loss])
    finally:
        if whole_program:
            profiler.stop()
    assert profiler.report().steps == 20
    assert profiler.report().threads == 1
    assert calls(profiler, "session", "runtime") == 20
    assert calls(profiler, "session", "fetch conversion") == 20
    assert_adds_up(profiler)


def test_monitored_training_session(program: Any, tmp_path: Path) -> None:
    model = program()
    profiler = HookProfiler()
    with fastsup.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=5, profiler=profiler
    ) as session:
        for _ in range(12):
            session.run(model.step)
    assert {name for name, _, _ in profiler.report().hooks} == {
        "CheckpointSaverHook",
        "StepCounterHook",
        "SummarySaverHook",
    }
    # Those of steps 5 and 10, alongside the first one, and the last.
    assert calls(profiler, "CheckpointSaverHook", "save") >= 3
    assert_adds_up(profiler)


def test_steps_are_marked_for_tensorflows_profiler(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[Any] = []

    class Mark:
        def __init__(self, name: str, **arguments: Any) -> None:
            marks.append((name, arguments))

        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(tf.profiler.experimental, "Trace", Mark)
    model = program()
    for step_markers in (False, True):
        with fastsup.train.SingularMonitoredSession(profiler=HookProfiler(step_markers=step_markers)) as session:
            session.run(model.step)
            session.run_loop(model.step, steps=2)
    assert marks == [("step", {"step_num": number, "_r": 1}) for number in (1, 2, 3)]
    marks.clear()
    for step_markers in (False, True):
        profiler = HookProfiler(step_markers=step_markers)
        StepLoop(int, max_steps=3, profiler=profiler).run()
        assert profiler.report().steps == 3
    assert marks == [("step", {"step_num": number, "_r": 1}) for number in (1, 2, 3)]


def test_step_markers_without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastsup.profile.profiler.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'fastsup\[cpu\]'"):
        HookProfiler(step_markers=True)


@pytest.mark.parametrize(
    "make", ["SingularMonitoredSession", "MonitoredTrainingSession", "MonitoredSession", "Supervisor"]
)
def test_what_is_no_profiler_is_refused_before_anything_is_made(make: str, program: Any, tmp_path: Path) -> None:
    program()
    with pytest.raises(TypeError, match=r"profiler must be a fastsup\.HookProfiler or None, got True of type bool"):
        getattr(fastsup.train, make)(profiler=True)
    assert list(tmp_path.iterdir()) == []


class Closer(v1.train.SessionRunHook):  # type: ignore[misc]
    """Closes the session in one of its callbacks."""

    def __init__(self, callback: str) -> None:
        self.session: Any = None
        setattr(self, callback, self._close)

    def _close(self, *_: Any) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()


@pytest.mark.parametrize("callback", ["before_run", "after_run"])
def test_a_hook_closes_the_session(program: Any, callback: str) -> None:
    """The same happens with a profiler and without."""

    def outcome(profiler: Any) -> Any:
        with tf.Graph().as_default():
            model = program()
            closer = Closer(callback)
            session = fastsup.train.MonitoredSession(hooks=[closer, Busy(10)], profiler=profiler)
            session.run(model.step)
            closer.session = session
            try:
                return session.run(model.step)
            except RuntimeError as error:
                return str(error)

    profiler = HookProfiler()
    assert outcome(profiler) == outcome(None)
    assert calls(profiler, "Closer", callback) == 2
    # The hooks of a later session of ours have their names.
    outcome(profiler)
    assert {row.owner for row in profiler.report().rows} == {"Closer", "Busy", "session"}


@pytest.mark.parametrize("watched", [False, True])
def test_making_a_plan_is_a_part_of_the_first_step_of_a_loop(program: Any, watched: bool) -> None:
    model = program()
    hooks = [fastsup.train.NanTensorHook(model.loss)] if watched else []
    with HookProfiler() as profiler, fastsup.train.SingularMonitoredSession(hooks=hooks) as session:
        session.run_loop([model.step, model.loss], steps=3)
    steps = {slow["step"]: slow["spans"] for slow in profiler.slow_steps()}
    assert {number for number, spans in steps.items() if any(span["phase"] == "plan making" for span in spans)} == {1}
    # The plan to look at, and the plan to run.
    makings = [span for span in steps[1] if span["phase"] == "plan making"]
    assert len(makings) == calls(profiler, "session", "plan making") == 2
    (whole, *_) = steps[1]
    for making in makings:
        assert whole["start_ns"] <= making["start_ns"]
        assert making["start_ns"] + making["duration_ns"] <= whole["start_ns"] + whole["duration_ns"]


@pytest.mark.parametrize("loop", [False, True])
def test_reading_the_step_before_a_run_has_its_row(graph: Any, loop: bool) -> None:
    step = v1.train.get_or_create_global_step()
    with tf.control_dependencies([v1.assign_add(step, 1)]):
        train = v1.assign_add(step, 2).op
    hooks = [fastsup.train.StopAtStepHook(last_step=90)]
    with HookProfiler() as profiler, fastsup.train.SingularMonitoredSession(hooks=hooks) as session:
        if loop:
            session.run_loop(train)
        while not session.should_stop():
            session.run(train)
    assert calls(profiler, "session", "step read") == calls(profiler, "session", "runtime") == 31
    assert_adds_up(profiler)


def test_what_comes_between_two_steps_of_a_loop_is_in_no_row(program: Any) -> None:
    """A handler of a signal, for example. It runs in this function's frame where the compiled loop lets it."""
    model = program()
    spent: list[int] = []

    def handle(number: int, frame: Any) -> None:
        called = time.perf_counter_ns()
        if frame is not this_frame or profiler.steps_begun <= 20:
            return  # Not between two steps of the second loop.
        if len(spent) == 5:
            session.request_stop()
            return
        while time.perf_counter_ns() < called + 20_000_000:
            pass
        spent.append(time.perf_counter_ns() - called)

    this_frame = sys._getframe()
    before = signal.signal(signal.SIGALRM, handle)
    try:
        with HookProfiler() as profiler, fastsup.train.SingularMonitoredSession() as session:
            session.run_loop(model.step, steps=10)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.03)
            session.run_loop(model.step)
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    report = profiler.report()
    assert len(spent) == 5
    in_rows = sum(row.times.total_ns for row in report.rows)
    assert in_rows <= report.wall_ns - sum(spent)
    assert calls(profiler, "session", "runtime") == report.steps > 10


def test_a_fetch_in_every_step_is_not_called_cheap(program: Any) -> None:
    """The time to compute it isn't known, and the advice says so."""
    model = program()
    with tf.device("/cpu:0"):
        big = tf.reduce_sum(tf.matmul(tf.ones([200, 200]), tf.fill([200, 200], tf.stop_gradient(model.loss))))
    profiler = HookProfiler(skip_steps=2)
    with fastsup.train.SingularMonitoredSession(hooks=[Fetching([big])], profiler=profiler) as session:
        for _ in range(100):
            session.run(model.step)
    advice = profiler.report().advice()
    assert "but for computing what Fetching fetches in every step: that is in the runtime's row" in advice
    assert "nothing to gain" not in advice
