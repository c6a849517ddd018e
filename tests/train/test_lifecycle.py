"""TensorFlow's lifecycle as a table: how a run ends, and the callbacks that then run.

Each row runs with the hooks a, a CheckpointSaverHook with the listener l (every 2 steps), and b, in this order.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1

BEGIN = "a.begin l.begin b.begin"
CREATED = "a.after_create_session l.before_save:0 l.after_save:0 b.after_create_session"
START = f"{BEGIN} {CREATED}"
STEP = "a.before_run b.before_run a.after_run b.after_run"
STEP_WITH_SAVE = "a.before_run b.before_run a.after_run l.before_save:2 l.after_save:2 b.after_run"
UNFINISHED_STEP = "a.before_run b.before_run"
TWO_STEPS = f"{STEP} {STEP_WITH_SAVE}"
END_AFTER_SAVE = "a.end l.end:2 b.end"


def end_with_save(step: int) -> str:
    return f"a.end l.before_save:{step} l.after_save:{step} l.end:{step} b.end"


def aborted() -> Exception:
    return tf.errors.AbortedError(None, None, "the server went away")


def unavailable() -> Exception:
    return tf.errors.UnavailableError(None, None, "the server is away")


def out_of_range() -> Exception:
    return tf.errors.OutOfRangeError(None, None, "no more data")


class CustomOutOfRange(tf.errors.OutOfRangeError):
    pass


# Bodies: what the program does between the session's creation and its end. `run` is one step of training.


def steps(count: int) -> Callable[..., None]:
    def body(session: Any, run: Any, env: Any) -> None:
        for _ in range(count):
            run()

    return body


two_steps = steps(2)


def then_raise(make_error: Callable[[], BaseException]) -> Callable[..., None]:
    def body(session: Any, run: Any, env: Any) -> None:
        run()
        raise make_error()

    return body


def stop(run_context: Any) -> None:
    run_context.request_stop()


def until_stopped(session: Any, run: Any, env: Any) -> None:
    while not session.should_stop():
        run()


def run_after_stop(session: Any, run: Any, env: Any) -> None:
    until_stopped(session, run, env)
    run()


def end_of_input(session: Any, run: Any, env: Any) -> None:
    run()
    session.run([env.op, env.element])
    session.run(env.element)


def bad_op(session: Any, run: Any, env: Any) -> None:
    run()
    session.run(env.failing)


def close_inside(session: Any, run: Any, env: Any) -> None:
    run()
    session.close()


def close_and_use(session: Any, run: Any, env: Any) -> None:
    run()
    session.close()
    assert session.should_stop()
    assert session.graph is None
    with pytest.raises(AttributeError, match=r"'NoneType' object has no attribute 'run'|a closed Session"):
        run()
    run()


def step_fn_stops(session: Any, run: Any, env: Any) -> None:
    run()

    def step_fn(step_context: Any) -> None:
        step_context.run_with_hooks(env.op)
        step_context.request_stop()

    session.run_step_fn(step_fn)
    raise AssertionError("request_stop() has returned")


def step_fn_fails(session: Any, run: Any, env: Any) -> None:
    run()

    def step_fn(step_context: Any) -> None:
        step_context.run_with_hooks(env.op)
        raise ValueError("in step_fn")

    session.run_step_fn(step_fn)


def step_fn_aborts_once(session: Any, run: Any, env: Any) -> None:
    errors = [aborted()]

    def step_fn(step_context: Any) -> None:
        step_context.run_with_hooks(env.op)
        if errors:
            raise errors.pop()

    session.run_step_fn(step_fn)


def coordinator_stops(session: Any, run: Any, env: Any) -> None:
    run()
    env.coordinator().request_stop()
    assert session.should_stop()
    run()  # A stop that the coordinator was asked for is told by should_stop() alone.


def thread_reports(session: Any, run: Any, env: Any) -> None:
    run()
    try:
        raise KeyError("in a thread")
    except KeyError as error:
        env.coordinator().request_stop(error)
    session.should_stop()


@dataclass
class Row:
    """How a run ends, and what follows.

    `faults` are errors by callback, as "b.after_run": one an item for each call, None where the call succeeds.
    `raises` is what leaves the `with` statement, or None. `ours` are the callbacks of fastsup where they differ: the
    `end` of each hook is called, whatever another one raises.
    """

    name: str
    callbacks: str
    body: Callable[..., None] = two_steps
    faults: dict[str, list[Any]] = field(default_factory=dict)
    returns: dict[str, list[Any]] = field(default_factory=dict)
    raises: tuple[type[BaseException], str] | None = None
    kinds: tuple[str, ...] = ("MonitoredSession", "SingularMonitoredSession")
    unfinalizes: bool = True
    ours: str = ""


RECOVERS = ("MonitoredSession",)
NEVER_RECOVERS = ("SingularMonitoredSession",)
ABORTED = (tf.errors.AbortedError, "the server went away")
END_OF_DATA = (tf.errors.OutOfRangeError, "no more data")
USER_ERROR = (ValueError, "the user's own")


def user_error() -> Exception:
    return ValueError("the user's own")


ROWS = [
    # Ends that are no errors.
    Row("normally", f"{START} {TWO_STEPS} {END_AFTER_SAVE}"),
    Row("normally, with something new to save", f"{START} {TWO_STEPS} {STEP} {end_with_save(3)}", steps(3)),
    Row("without a step", f"{START} a.end l.end:0 b.end", steps(0)),
    Row("OutOfRangeError from an op", f"{START} {TWO_STEPS} {UNFINISHED_STEP} {END_AFTER_SAVE}", end_of_input),
    Row("OutOfRangeError raised by the program", f"{START} {STEP} {end_with_save(1)}", then_raise(out_of_range)),
    Row("StopIteration raised by the program", f"{START} {STEP} {end_with_save(1)}", then_raise(StopIteration)),
    Row("OutOfRangeError in before_run", f"{START} {STEP} a.before_run {end_with_save(1)}",
        faults={"a.before_run": [None, out_of_range]}),
    Row("StopIteration in before_run", f"{START} {STEP} {UNFINISHED_STEP} {end_with_save(1)}",
        faults={"b.before_run": [None, StopIteration]}),
    Row("OutOfRangeError in after_run", f"{START} {STEP} {UNFINISHED_STEP} a.after_run {end_with_save(2)}",
        faults={"a.after_run": [None, out_of_range]}),
    Row("OutOfRangeError in after_save", f"{START} {STEP} {UNFINISHED_STEP} a.after_run l.before_save:2 l.after_save:2 "
        f"{END_AFTER_SAVE}", faults={"l.after_save": [None, out_of_range]}),
    Row("stop asked for in after_run", f"{START} {STEP} {end_with_save(1)}", until_stopped,
        returns={"b.after_run": [stop]}),
    Row("stop asked for in before_run", f"{START} {TWO_STEPS} {END_AFTER_SAVE}", until_stopped,
        returns={"a.before_run": [None, stop]}),
    Row("stop asked for by a listener", f"{START} {TWO_STEPS} {END_AFTER_SAVE}", until_stopped,
        returns={"l.after_save": [None, lambda *_: True]}),
    Row("a listener's first after_save can't stop", f"{START} {TWO_STEPS} {END_AFTER_SAVE}", steps(2),
        returns={"l.after_save": [lambda *_: True]}),
    Row("run after a stop", f"{START} {STEP}", run_after_stop, returns={"a.after_run": [stop]},
        raises=(RuntimeError, "Run called even after should_stop requested.")),
    Row("stop asked for in step_fn", f"{START} {TWO_STEPS} {END_AFTER_SAVE}", step_fn_stops),
    Row("stop asked of the coordinator", f"{START} {TWO_STEPS} {END_AFTER_SAVE}", coordinator_stops),
    # Recovery.
    *(Row(f"{name} in before_run, recovered", f"{START} {STEP} a.before_run {CREATED} {STEP} {end_with_save(1)}",
          faults={"a.before_run": [None, error]}, kinds=RECOVERS)
      for name, error in (("AbortedError", aborted), ("UnavailableError", unavailable))),
    *(Row(f"{name} in after_run, recovered: the step is run again",
          f"{START} {STEP} {UNFINISHED_STEP} a.after_run {CREATED} {STEP} {end_with_save(1)}",
          faults={"a.after_run": [None, error]}, kinds=RECOVERS)
      for name, error in (("AbortedError", aborted), ("UnavailableError", unavailable))),
    Row("AbortedError twice, recovered", f"{START} a.before_run {CREATED} a.before_run {CREATED} {TWO_STEPS} "
        f"{END_AFTER_SAVE}", faults={"a.before_run": [aborted, unavailable]}, kinds=RECOVERS),
    Row("AbortedError in after_create_session, recovered", f"{BEGIN} a.after_create_session {CREATED} {TWO_STEPS} "
        f"{END_AFTER_SAVE}", faults={"a.after_create_session": [aborted]}, kinds=RECOVERS),
    Row("AbortedError while recovering, recovered", f"{START} a.before_run {CREATED} {CREATED} {TWO_STEPS} "
        f"{END_AFTER_SAVE}", faults={"a.before_run": [aborted], "b.after_create_session": [None, aborted]},
        kinds=RECOVERS),
    Row("AbortedError in before_save, recovered", f"{START} {STEP} {UNFINISHED_STEP} a.after_run l.before_save:2 "
        f"{CREATED} {STEP} {end_with_save(1)}", faults={"l.before_save": [None, aborted]}, kinds=RECOVERS),
    Row("AbortedError in step_fn, recovered: step_fn is run again", f"{START} {STEP} {CREATED} {STEP} "
        f"{end_with_save(1)}", step_fn_aborts_once, kinds=RECOVERS),
    Row("AbortedError in step_fn", f"{START} {STEP}", step_fn_aborts_once, raises=ABORTED, kinds=NEVER_RECOVERS),
    *(Row(f"AbortedError in {callback}", callbacks, faults={callback: [aborted]}, raises=ABORTED, kinds=NEVER_RECOVERS,
          unfinalizes=unfinalizes)
      for callback, callbacks, unfinalizes in (
          ("a.after_create_session", f"{BEGIN} a.after_create_session", False),
          ("a.before_run", f"{START} a.before_run", True),
          ("a.after_run", f"{START} {UNFINISHED_STEP} a.after_run", True))),
    Row("AbortedError in begin", "a.begin", faults={"a.begin": [aborted]}, raises=ABORTED),
    Row("AbortedError in end", f"{START} {TWO_STEPS} a.end", faults={"a.end": [aborted]}, raises=ABORTED,
        ours=f"{START} {TWO_STEPS} {END_AFTER_SAVE}"),
    Row("AbortedError raised by the program", f"{START} {STEP}", then_raise(aborted), raises=ABORTED),
    # Errors.
    Row("an op fails", f"{START} {STEP} {UNFINISHED_STEP}", bad_op,
        raises=(tf.errors.InvalidArgumentError, "assertion failed")),
    Row("user error", f"{START} {STEP}", then_raise(user_error), raises=USER_ERROR),
    Row("KeyboardInterrupt", f"{START} {STEP}", then_raise(KeyboardInterrupt), raises=(KeyboardInterrupt, "")),
    Row("SystemExit", f"{START} {STEP}", then_raise(lambda: SystemExit(3)), raises=(SystemExit, "3")),
    Row("a subclass of OutOfRangeError is an error", f"{START} {STEP}",
        then_raise(lambda: CustomOutOfRange(None, None, "mine")), raises=(CustomOutOfRange, "mine")),
    Row("user error in step_fn", f"{START} {TWO_STEPS}", step_fn_fails, raises=(ValueError, "in step_fn")),
    # should_stop() raises what a thread reported. A recoverable session answers True instead, and close() raises it.
    Row("a thread reports an error", f"{START} {STEP} {end_with_save(1)}", thread_reports,
        raises=(KeyError, "in a thread"), kinds=RECOVERS),
    Row("a thread reports an error, told by should_stop", f"{START} {STEP}", thread_reports,
        raises=(KeyError, "in a thread"), kinds=NEVER_RECOVERS),
    *(Row(f"user error in {callback}", callbacks, faults={callback: [user_error]}, raises=USER_ERROR,
          unfinalizes=unfinalizes, ours=f"{START} {TWO_STEPS} {END_AFTER_SAVE}" if callback.endswith(".end") else "")
      for callback, callbacks, unfinalizes in (
          ("a.begin", "a.begin", True),
          ("b.begin", BEGIN, True),
          ("l.begin", "a.begin l.begin", True),
          ("a.after_create_session", f"{BEGIN} a.after_create_session", False),
          ("b.after_create_session", START, False),
          ("l.before_save", f"{BEGIN} a.after_create_session l.before_save:0", False),
          ("l.after_save", f"{BEGIN} a.after_create_session l.before_save:0 l.after_save:0", False),
          ("a.before_run", f"{START} a.before_run", True),
          ("b.before_run", f"{START} {UNFINISHED_STEP}", True),
          ("a.after_run", f"{START} {UNFINISHED_STEP} a.after_run", True),
          ("b.after_run", f"{START} {STEP}", True),
          ("a.end", f"{START} {TWO_STEPS} a.end", True),
          ("b.end", f"{START} {TWO_STEPS} {END_AFTER_SAVE}", True),
          ("l.end", f"{START} {TWO_STEPS} a.end l.end:2", True))),
    Row("OutOfRangeError in end", f"{START} {TWO_STEPS} a.end", faults={"a.end": [out_of_range]}, raises=END_OF_DATA,
        ours=f"{START} {TWO_STEPS} {END_AFTER_SAVE}"),
    Row("OutOfRangeError in after_create_session", f"{BEGIN} a.after_create_session",
        faults={"a.after_create_session": [out_of_range]}, raises=END_OF_DATA, unfinalizes=False),
    # Closing. The second time, the hooks' end() is called again, with None for a session.
    Row("closed, then left", f"{START} {STEP} {end_with_save(1)} a.end", close_inside,
        raises=(RuntimeError, "Session is already closed."), ours=f"{START} {STEP} {end_with_save(1)} a.end b.end"),
    Row("closed, then used", f"{START} {STEP} {end_with_save(1)}", close_and_use,
        raises=(RuntimeError, "Session is already closed.")),
]  # fmt: skip


def _actions(row: Row, name: str) -> dict[str, Callable[..., Any]]:
    """What the callbacks of one hook or listener do, out of the row's faults and returns."""

    def action(key: str) -> Callable[..., Any]:
        def act(number: int, *args: Any) -> Any:
            faults, returns = row.faults.get(key, ()), row.returns.get(key, ())
            if number < len(faults) and faults[number] is not None:
                raise faults[number]()
            return returns[number](args[0]) if number < len(returns) and returns[number] is not None else None

        return act

    keys = [key for key in (*row.faults, *row.returns) if key.startswith(f"{name}.")]
    return {key.partition(".")[2]: action(key) for key in keys}


@pytest.fixture
def program(impl: Any, graph: Any, trace: Any, tmp_path: Any, counting_step: Any) -> SimpleNamespace:
    """The graph and the hooks of every row; `run(row, kind)` runs one and lets its error through."""
    step = counting_step()
    queue = v1.FIFOQueue(1, [tf.float32])
    fill = queue.enqueue([0.0])
    env = SimpleNamespace(op=step.op, element=queue.dequeue())
    env.failing = [step.op, tf.raw_ops.Assert(condition=tf.constant(False), data=["never"])]
    close_queue = queue.close()

    def run(row: Row, kind: str) -> None:
        a, b = trace.hook("a", **_actions(row, "a")), trace.hook("b", **_actions(row, "b"))
        saver = impl.train.CheckpointSaverHook(
            str(tmp_path),
            save_steps=2,
            listeners=[trace.listener("l", **_actions(row, "l"))],
            save_graph_def=False,
        )
        env.coordinator = lambda: a.arguments["after_create_session"][-1][1]
        scaffold = impl.train.Scaffold(init_fn=lambda _, session: [session.run(fill), session.run(close_queue)])
        arguments: dict[str, Any] = (
            {"scaffold": scaffold}
            if kind == "SingularMonitoredSession"
            else {"session_creator": impl.train.ChiefSessionCreator(scaffold)}
        )
        env.session = None
        with getattr(impl.train, kind)(hooks=[a, saver, b], **arguments) as session:
            env.session = session
            row.body(session, lambda: session.run(env.op), env)

    return SimpleNamespace(run=run, env=env)


CASES = [pytest.param(row, kind, id=f"{row.name}-{kind}") for row in ROWS for kind in row.kinds]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "kind"), CASES)
def test_lifecycle(row: Row, kind: str, impl: Any, program: Any, trace: Any, graph: Any) -> None:
    if row.raises is None:
        program.run(row, kind)
    else:
        error, text = row.raises
        with pytest.raises(error) as raised:
            program.run(row, kind)
        assert raised.type is error
        assert text in str(raised.value)
    assert " ".join(trace) == (row.ours if row.ours and impl.name == "fastsup" else row.callbacks)
    if program.env.session is not None:
        assert program.env.session.should_stop()
        assert program.env.session.graph is None
    assert graph.finalized is not row.unfinalizes


def test_every_way_to_end_has_a_row() -> None:
    """Each callback of a hook and of a listener fails in some row."""
    failing = {key for row in ROWS for key in row.faults}
    for callback in ("begin", "after_create_session", "before_run", "after_run", "end"):
        assert f"a.{callback}" in failing
    for callback in ("begin", "before_save", "after_save", "end"):
        assert f"l.{callback}" in failing
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


def test_fetches_of_any_kind_in_the_first_run(impl: Any) -> None:
    """With hooks: what no plan is made for, too."""
    for hooks in ([], [impl.train.StopAtStepHook(num_steps=5)]):
        with tf.Graph().as_default():
            step = tf.compat.v1.train.get_or_create_global_step()
            fetches = collections.UserDict(step=step)
            with impl.train.MonitoredSession(hooks=hooks) as session:
                assert session.run(fetches)["step"] == 0
