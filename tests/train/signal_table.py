"""What a signal does to a training, in each state that it may be in. In processes of their own.

`python tests/train/signal_table.py --write` measures it and writes the table of docs/signals.md. The test measures it
too, and compares all but the times.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "signals.md")
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
# The step in which a training says that it is ready for the signal, and how long that step then takes.
STEP, STEP_SECS = 7, 0.5
# How long it takes where a second signal has to find it still there, which a busy machine may send late.
LONG_STEP_SECS = 30.0
FOREVER = 1000.0
# How often it is tried to send signals close together.
ATTEMPTS = 10

# The child.


def say(what: str) -> None:
    os.write(1, f"{what}\n".encode())


class Program:
    """A training whose steps count themselves, so that it can say at its end how far it came."""

    def __init__(self, folder: str) -> None:
        import tensorflow as tf

        import fastsup.train

        self.folder, self.tf, self.train, self.v1 = folder, tf, fastsup.train, tf.compat.v1
        self.reached, self.step_secs = 0, STEP_SECS
        self.at_step = {STEP: self.be_slow}
        step = self.v1.train.get_or_create_global_step()
        counted = self.v1.py_func(self.count, [], tf.int64, stateful=True)
        with tf.control_dependencies([counted]):
            self.op = self.v1.assign_add(step, tf.constant(1, tf.int64)).op

    def count(self) -> Any:
        import numpy

        self.reached += 1
        self.at_step.get(self.reached, lambda: None)()
        return numpy.int64(0)

    def be_slow(self) -> None:
        say("now")
        time.sleep(self.step_secs)

    def session(self, **arguments: Any) -> Any:
        options = {"save_checkpoint_secs": 1000, "log_step_count_steps": None, **arguments}
        return self.train.MonitoredTrainingSession(checkpoint_dir=self.folder, **options)

    def loop(self, session: Any) -> None:
        while not session.should_stop():
            session.run(self.op)

    # The states.

    def in_a_step(self) -> None:
        with self.session() as session:
            self.loop(session)

    def in_a_long_step(self) -> None:
        self.step_secs = LONG_STEP_SECS
        self.in_a_step()

    def in_a_step_that_hooks_look_at(self) -> None:
        hook = self.train.FeedFnHook(lambda: None)
        with self.session(hooks=[hook]) as session:
            self.loop(session)

    def in_run_loop(self) -> None:
        with self.session() as session:
            session.run_loop(self.op)

    def evaluating(self) -> None:
        self.at_step = {}
        program = self

        class Evaluate(self.v1.train.CheckpointSaverListener):
            def after_save(self, session: Any, global_step_value: Any) -> None:
                if program.reached < STEP:
                    return
                with program.tf.Graph().as_default():
                    program.v1.train.get_or_create_global_step()
                    accuracy = program.tf.constant(1.0)
                    with program.train.MonitoredSession() as evaluation:
                        evaluation.run(accuracy)
                        say("now")
                        while not evaluation.should_stop():
                            evaluation.run(accuracy)

        saver = self.train.CheckpointSaverHook(self.folder, save_steps=1, listeners=[Evaluate()])
        with self.session(save_checkpoint_secs=None, hooks=[saver]) as session:
            self.loop(session)

    def waiting_for_a_chief(self) -> None:
        server = self.v1.train.Server.create_local_server()
        sleep = time.sleep

        def tell_and_sleep(seconds: float) -> None:
            say("now")
            sleep(seconds)

        time.sleep = tell_and_sleep
        with self.session(master=server.target, is_chief=False, recovery_wait_secs=FOREVER) as session:
            self.loop(session)

    def in_a_save(self) -> None:
        self.at_step = {}
        sync, said = os.fsync, []

        def be_slow(descriptor: int) -> None:
            if self.reached == STEP and not said:
                said.append(True)
                self.be_slow()
            sync(descriptor)

        os.fsync = be_slow
        with self.session(save_checkpoint_secs=None, save_checkpoint_steps=1) as session:
            self.loop(session)

    def in_a_background_save(self) -> None:
        self.at_step = {}
        sync, said = os.fsync, []

        def be_slow(descriptor: int) -> None:
            if self.reached >= STEP and not said:
                said.append(True)
                self.be_slow()
            sync(descriptor)

        os.fsync = be_slow
        with self.session(save_checkpoint_secs=None, save_checkpoint_steps=1, async_save=True) as session:
            self.loop(session)

    def between_steps(self) -> None:
        self.at_step = {}
        with self.session() as session:
            for _ in range(STEP):
                session.run(self.op)
            say("now")
            time.sleep(FOREVER)

    def supervisor(self, **arguments: Any) -> Any:
        return self.train.Supervisor(logdir=self.folder, save_model_secs=1000, save_summaries_secs=0, **arguments)

    def in_a_supervised_step(self) -> None:
        sv = self.supervisor()
        with sv.managed_session() as session:
            while not sv.should_stop():
                session.run(self.op)

    def between_supervised_steps(self) -> None:
        self.at_step = {}
        sv = self.supervisor(async_save=True)
        with sv.managed_session() as session:
            for _ in range(STEP):
                session.run(self.op)
            say("now")
            time.sleep(FOREVER)

    # What a signal doesn't end with a checkpoint.

    def starve(self, session: Any, starved: Any) -> None:
        for _ in range(STEP):
            session.run(self.op)
        say("now")
        session.run(starved)

    def in_a_starved_step(self) -> None:
        self.at_step = {}
        starved = self.v1.FIFOQueue(1, self.tf.float32, shapes=[()]).dequeue()
        with self.session() as session:
            self.starve(session, starved)

    def without_signals(self) -> None:
        with self.session(handle_signals=False) as session:
            self.loop(session)

    def in_a_thread(self) -> None:
        def body() -> None:
            with self.graph.as_default(), self.session() as session:
                self.loop(session)

        self.graph = self.v1.get_default_graph()
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()

    def with_a_handler_of_its_own(self) -> None:
        asked = []
        signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
        with self.session() as session:
            while not asked:
                session.run(self.op)
        sys.exit(5)


def child(state: str, folder: str) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    if os.environ.get("FASTSUP_TEST_WORLD") == "v1":
        tf.compat.v1.disable_v2_behavior()
    with tf.Graph().as_default():
        program = Program(folder)
        try:
            getattr(program, state)()
        finally:
            say(f"reached {program.reached}")


# The parent.


class State(NamedTuple):
    """A state that a signal finds a training in.

    Args:
      method: what gets the child there.
      signals: what is sent to it, one after the other.
      saved: whether the last step that was run is in a checkpoint afterwards; None where there is none to save.
      code: how the process ends: its exit code, or minus the signal that it died of.
      gap: seconds between two signals: by default enough for the child to handle the first one before the second comes,
        also on a busy machine.
      at_most: where they must be close together, the seconds between them above which all is measured again.
    """

    method: Callable[[Program], None]
    signals: tuple[signal.Signals, ...] = (signal.SIGTERM,)
    saved: bool | None = True
    code: int = 128 + signal.SIGTERM
    gap: float = 1.0
    at_most: float = math.inf


TWICE = (signal.SIGTERM, signal.SIGTERM)
STATES = {
    "in a step, `run`": State(Program.in_a_step),
    "in a step, `run`, with a hook of TensorFlow's kind": State(Program.in_a_step_that_hooks_look_at),
    "in a step, `run_loop`": State(Program.in_run_loop),
    "evaluating, in a listener's `after_save`": State(Program.evaluating),
    "waiting for a chief": State(Program.waiting_for_a_chief, saved=None),
    "in a save": State(Program.in_a_save),
    "in a save in the background": State(Program.in_a_background_save),
    "in the program's own code, between two steps": State(Program.between_steps),
    "in a step, `Supervisor.managed_session`": State(Program.in_a_supervised_step),
    "between two steps, `Supervisor.managed_session`": State(Program.between_supervised_steps),
    "SIGINT in a step": State(Program.in_a_step, (signal.SIGINT,), code=-signal.SIGINT),
    "SIGINT between two steps": State(Program.between_steps, (signal.SIGINT,), code=-signal.SIGINT),
    "SIGINT between two steps, `Supervisor.managed_session`": State(
        Program.between_supervised_steps, (signal.SIGINT,), code=-signal.SIGINT
    ),
    "SIGTERM twice at a time, of a launcher that forwards it": State(
        # Not without a gap: of two signals that wait to be delivered, the child gets one.
        Program.in_a_step,
        TWICE,
        gap=0.02,
        at_most=0.1,
    ),
    "a second SIGTERM, in the same step": State(Program.in_a_long_step, TWICE, False, -signal.SIGTERM),
    "a second SIGTERM, while the step is stuck on an empty queue": State(
        Program.in_a_starved_step, TWICE, False, -signal.SIGTERM
    ),
    "with `handle_signals=False`": State(Program.without_signals, saved=False, code=-signal.SIGTERM),
    "training in another thread than the main one": State(Program.in_a_thread, saved=False, code=-signal.SIGTERM),
    "the program has its own handler, which ends the loop": State(Program.with_a_handler_of_its_own, code=5),
}


class Measured(NamedTuple):
    """What became of a child.

    Args:
      reached: the step that it had reached; None if it died before it could say so.
      saved: the newest checkpoint's step, or None.
      code: its exit code, or minus the signal that it died of.
      seconds: from the last signal to its end.
      log: what it has written to stderr.
      gap: the most seconds that there were between two signals.
    """

    reached: int | None
    saved: int | None
    code: int
    seconds: float
    log: str
    gap: float


def start_python(*arguments: str, **settings: Any) -> subprocess.Popen[Any]:
    """Starts Python. The settings are those of `subprocess.Popen`."""
    return subprocess.Popen([sys.executable, *arguments], **settings)


def measure(name: str, starter: Callable[..., subprocess.Popen[Any]] = start_python) -> Measured:
    """Brings a child into a state and sends it its signals, with the gaps that the state asks for.

    Args:
      name: a key of STATES.
      starter: starts Python, as `start_python` does.

    Raises:
      AssertionError: the machine is so busy that signals can't be sent close enough together.
    """
    state = STATES[name]
    for _ in range(ATTEMPTS):
        measured = measure_once(state, starter)
        if measured.gap <= state.at_most:
            return measured
    raise AssertionError(f"the signals came {measured.gap:.2f} s after one another, {ATTEMPTS} times")


def measure_once(state: State, starter: Callable[..., subprocess.Popen[Any]]) -> Measured:
    """As `measure`, whatever the gaps are."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [os.path.abspath(__file__), "--child", state.method.__name__, folder]
        with starter(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if line != "now\n":
                    raise AssertionError(process.communicate()[1])
                time.sleep(0.1)  # It is to be there, and not just before.
                begun, ended = [], []
                for number in state.signals:
                    time.sleep(state.gap if begun else 0.0)
                    begun.append(time.monotonic())
                    process.send_signal(number)
                    ended.append(time.monotonic())
                output, log = process.communicate(timeout=60)
                seconds = time.monotonic() - begun[-1]
            finally:
                process.kill()
        # Nothing but the last line, and not even that where it died.
        reached = output.rpartition("reached ")[2].strip()
        steps = [int(name.split("-")[1].split(".")[0]) for name in os.listdir(folder) if name.endswith(".index")]
    saved = max(steps, default=None)
    # Each may have been sent at any time within its call.
    gap = max((later - sooner for sooner, later in zip(begun, ended[1:], strict=False)), default=0.0)
    return Measured(int(reached) if reached else None, saved, process.returncode, seconds, log, gap)


def as_expected(name: str, measured: Measured) -> bool:
    """Whether it came as the table says."""
    state = STATES[name]
    if measured.code != state.code:
        return False
    logged = "After the signal: the last checkpoint is" in measured.log
    if logged != (state.saved is True and state.code in (128 + signal.SIGTERM, -signal.SIGINT)):
        return False
    if state.saved:
        return measured.saved == measured.reached and measured.saved is not None and measured.saved >= STEP
    return measured.saved is None if state.saved is None else (measured.saved or 0) < STEP


def row(name: str) -> str:
    """A line of the table, without the time."""
    state = STATES[name]
    saved = {True: "the last step", False: "nothing more", None: "(nothing to save)"}[state.saved]
    code = str(state.code) if state.code >= 0 else f"dies of {signal.Signals(-state.code).name}"
    if state.code == -signal.SIGINT:
        code = "`KeyboardInterrupt`; dies of SIGINT"
    return f"| {name} | {saved} | {code} |"


def rows_of_the_page() -> list[str]:
    with open(PAGE, encoding="utf-8") as file:
        table = file.read().split(BEGIN)[1].split(END)[0]
    return [line.rpartition(" |")[0].rpartition(" | ")[0] + " |" for line in table.splitlines()[2:]]


def table() -> list[str]:
    """Measures each state. Returns the lines of the table.

    Raises:
      AssertionError: a state didn't come as STATES says.
    """
    lines = ["| state | saved | exit | time to exit |", "|---|---|---|---|"]
    for name in STATES:
        measured = measure(name)
        if not as_expected(name, measured):
            raise AssertionError(f"{name}: {measured}")
        lines.append(f"{row(name)} {measured.seconds:.2f} s |")
    return lines


def write_page(lines: list[str]) -> None:
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of docs/signals.md, too")
    arguments = parser.parse_args()
    lines = table()
    print("\n".join(lines))
    if arguments.write:
        write_page(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
