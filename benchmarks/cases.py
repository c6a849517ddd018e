"""The cases: the contenders of each, and the targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks import contenders, loops, pauses, programs
from benchmarks.contenders import Program
from benchmarks.measure import Contender

TF_MONITORED = "tf MonitoredTrainingSession"
TF_SESSION = "tf Session.run"
POOL = "callable, thread pool"
INLINE = "callable, calling thread"
SINGLE = "callable, single-threaded"
MONITORED = "fastsup MonitoredTrainingSession"
RUN_LOOP = "fastsup run_loop"
SESSION = "fastsup Session.run"
TF_SUPERVISED = "tf Supervisor"
SUPERVISED = "fastsup Supervisor"

CLASSES: dict[str, Callable[[Program], Contender]] = {
    TF_MONITORED: contenders.TensorFlowMonitored,
    TF_SESSION: contenders.TensorFlowSession,
    POOL: contenders.PoolCallable,
    INLINE: contenders.InlineCallable,
    SINGLE: contenders.SingleThreadedCallable,
    MONITORED: contenders.FastsupMonitored,
    RUN_LOOP: contenders.FastsupRunLoop,
    SESSION: contenders.FastsupSession,
    TF_SUPERVISED: contenders.TensorFlowSupervised,
    SUPERVISED: contenders.FastsupSupervised,
}
FLOORS = (POOL, INLINE, SINGLE)
ONE_HOOK, MANY_HOOKS = "1 idle hook", "1,024 idle hooks"
BARE, NO_HOOKS, SIX_HOOKS = "bare loop in C", "StepLoop without hooks", "StepLoop, 6 idle hooks"
DUE_HOOK, ONE_C_HOOK, MANY_C_HOOKS = "StepLoop, C hook due every step", "1 idle C hook", "1,024 idle C hooks"


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Args:
      title: a few words for the table.
      ours: fastsup's contender.
      peer: the contender with TensorFlow's class of the same name, or None.
      floors: contenders without any layer. The fastest of them is the floor.
      at_most: the target against the floor, as a multiple of its time, or None.
      at_least: the target against the peer, as a multiple of its speed, or None.
      extra_ns: the target against the floor, as nanoseconds on top of its time, or None.
    """

    title: str
    ours: str
    peer: str | None
    floors: tuple[str, ...]
    at_most: float | None = None
    at_least: float | None = None
    extra_ns: float | None = None


@dataclass(frozen=True)
class Case:
    """Contenders that do the same work, and the rows of the table that compare them.

    Args:
      name: the value for `--case`.
      contenders: function that makes each contender, by name.
      rows: the rows of the table.
      patience: factor for the number of rounds: above 1 for a case with few steps in a slice.
      measured: for a case that isn't measured in steps: function that takes the number of rounds, and returns the
        seconds of each contender, by name.
    """

    name: str
    contenders: Mapping[str, Callable[[], Contender]]
    rows: tuple[Row, ...]
    patience: int = 1
    measured: Callable[[int], dict[str, list[float]]] | None = None


Build = Callable[[], programs.Step]


def session_case(
    name: str, build: Build, *rows: Row, remote: bool = False, patience: int = 1, devices: int = 1
) -> Case:
    """Makes a case whose contenders are sessions: those that its rows name, and TensorFlow's Session.run."""
    names = {TF_SESSION, *(name for row in rows for name in (row.ours, row.peer, *row.floors) if name)}
    program = Program(build, remote, devices)
    return Case(name, {n: partial(make, program) for n, make in CLASSES.items() if n in names}, rows, patience)


def monitored(
    title: str, at_most: float | None = None, at_least: float | None = None, floors: tuple[str, ...] = FLOORS
) -> Row:
    """Makes a row: the run of MonitoredTrainingSession against TensorFlow's."""
    return Row(title, MONITORED, TF_MONITORED, floors, at_most, at_least)


def run_loop(
    title: str, at_most: float | None = None, at_least: float | None = None, floors: tuple[str, ...] = FLOORS
) -> Row:
    """Makes a row: the run_loop of MonitoredTrainingSession against TensorFlow's session in a Python loop."""
    return Row(title, RUN_LOOP, TF_MONITORED, floors, at_most, at_least)


def session(title: str, at_most: float | None = None, at_least: float | None = None) -> Row:
    """Makes a row for a plain Session. Its graph may grow, so the single-threaded executor isn't a floor for it."""
    return Row(title, SESSION, TF_SESSION, (POOL, INLINE), at_most, at_least)


def unharmed(name: str, build: Build, title: str, floors: tuple[str, ...] = (POOL, INLINE), patience: int = 1) -> Case:
    """Makes a case for a graph on which little can be won, and nothing may be lost."""
    return session_case(
        name,
        build,
        monitored(f"{title}, run", at_least=0.95, floors=floors),
        run_loop(f"{title}, run_loop", at_least=0.95, floors=floors),
        session(f"{title}, Session.run", at_least=0.95),
        patience=patience,
    )


def results(kilobytes: int) -> tuple[Case, Case]:
    """Makes the cases of a program that fetches a large value: one that the step computes, and one of a variable."""
    size = f"{kilobytes} KB" if kilobytes < 1024 else f"{kilobytes // 1024} MB"
    return (
        session_case(
            f"computed_{kilobytes}kb",
            partial(programs.computed, kilobytes),
            session(f"{size} computed, Session.run", at_least=0.95),
        ),
        session_case(
            f"variable_{kilobytes}kb",
            partial(programs.variable, kilobytes),
            session(f"{size} of a variable, Session.run", at_least=0.95),
        ),
    )


CASES: tuple[Case, ...] = (
    session_case(
        "sgd",
        programs.sgd_with_hooks,
        monitored("default hooks, StopAtStep, Logging(100): run(train_op)", 1.15, 30),
        run_loop("same, run_loop(train_op)", 1.08, 35),
    ),
    session_case(
        "summary",
        programs.sgd_with_summary,
        monitored("default hooks, a scalar summary: run(train_op)"),
        run_loop("same, run_loop(train_op)"),
    ),
    session_case(
        "tf_data",
        programs.tf_data,
        monitored("fed by tf.data: run([train_op, loss])", 1.25, 15),
        run_loop("same, run_loop([train_op, loss])"),
    ),
    session_case(
        "feed_dict",
        programs.feed_dict,
        monitored("fed 32x10 and 32 floats: run([train_op, loss])", 1.25, 10),
        run_loop("same, run_loop([train_op, loss])"),
        session("same, Session.run([train_op, loss])"),
    ),
    session_case(
        "python_hooks",
        programs.sgd_with_16_python_hooks,
        monitored("16 Python hooks that want the global step: run(train_op)", at_least=10),
    ),
    session_case(
        "supervisor",
        programs.sgd,
        Row("Supervisor: while not sv.should_stop(): run(train_op)", SUPERVISED, TF_SUPERVISED, FLOORS, 1.1, 15),
    ),
    session_case("session", programs.sgd, session("Session.run(train_op)", 1.05, 15)),
    session_case(
        "one_of_two_devices",
        programs.sgd,
        monitored("two CPU devices, the step on one: run(train_op)", 1.1, 15),
        session("same, Session.run(train_op)", 1.1, 10),
        devices=2,
    ),
    session_case(
        "two_devices",
        programs.sgd_on_two_devices,
        monitored("the step on two CPU devices: run(train_op)", 1.1, floors=(POOL,)),
        session("same, Session.run(train_op)", 1.1),
        devices=2,
    ),
    session_case("session_dict", programs.dict_of_4, session("Session.run of a dict of 4 tensors", 1.3, 5)),
    session_case(
        "grpc",
        programs.one_feed,
        monitored("one feed, in-process gRPC server: run(train_op)", 1.15, 1.5, (POOL, INLINE)),
        remote=True,
        patience=2,
    ),
    Case(
        "dispatch",
        {ONE_HOOK: partial(contenders.IdleHooks, 1), MANY_HOOKS: partial(contenders.IdleHooks, 1024)},
        (Row("dispatch: 1,024 idle hooks against 1", MANY_HOOKS, None, (ONE_HOOK,), 1.05),),
        patience=3,
    ),
    Case(
        "loop_python",
        {BARE: loops.BarePythonStep, SIX_HOOKS: partial(loops.PythonStep, 6)},
        (
            Row(
                "StepLoop, a step in Python, 6 idle hooks, against a bare loop in C",
                SIX_HOOKS,
                None,
                (BARE,),
                extra_ns=60,
            ),
        ),
        patience=3,
    ),
    Case(
        "loop_c",
        {
            BARE: loops.BareStep,
            NO_HOOKS: loops.CStep,
            SIX_HOOKS: partial(loops.CStep, python_hooks=6),
            DUE_HOOK: partial(loops.CStep, due_hooks=1),
            ONE_C_HOOK: partial(loops.CStep, idle_hooks=1),
            MANY_C_HOOKS: partial(loops.CStep, idle_hooks=1024),
        },
        (
            Row("StepLoop, a step in C, 6 idle hooks, against a bare loop in C", SIX_HOOKS, None, (BARE,), extra_ns=60),
            Row("same, a C hook due every step, against none", DUE_HOOK, None, (NO_HOOKS,), extra_ns=5),
            Row("same, 1,024 idle C hooks against 1", MANY_C_HOOKS, None, (ONE_C_HOOK,), 1.05),
        ),
        patience=3,
    ),
    Case(
        "loop_hooks",
        {
            NO_HOOKS: partial(loops.ReadyHooks, None),
            **{name: partial(loops.ReadyHooks, name) for name in loops.READY_HOOKS},
        },
        tuple(
            Row(f"StepLoop, a step in Python: {name}, against none", name, None, (NO_HOOKS,))
            for name in loops.READY_HOOKS
        ),
        patience=2,
    ),
    unharmed("chains", programs.four_chains, "4 chains of 256x256 matmuls", patience=3),
    unharmed("big_matmul", programs.one_big_matmul, "one 2048x2048 matmul", patience=3),
    unharmed("control_flow", programs.cond_and_while, "tf.cond and tf.while_loop", FLOORS),
    unharmed("queues", programs.queue_runners, "queue runners", patience=2),
    *(case for kilobytes in (4, 64, 1 << 10, 16 << 10, 64 << 10) for case in results(kilobytes)),
    Case(
        "async_save",
        {},
        (
            Row(
                f"longest pause, saving {pauses.MEGABYTES} MB in the background (floor: waiting for it)",
                pauses.BACKGROUND,
                None,  # A pause isn't a step: it must not count in the mean.
                (pauses.WAITING,),
                0.25,
            ),
        ),
        measured=pauses.alternate_pauses,
    ),
)
