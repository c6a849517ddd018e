"""One program for each way in which a run can end. lifecycle.json says which callbacks each leads to.

`python tests/train/lifecycle_programs.py --write` writes the table of docs/lifecycle.md from lifecycle.json.
`python tests/train/lifecycle_programs.py fastsup PROGRAM FOLDER` runs a program, and prints the callbacks.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = json.loads(Path(__file__).with_name("lifecycle.json").read_text())
PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"
BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
# Named so in the table; the hooks' callbacks first.
COLUMNS = ("begin", "after_create_session", "before_run", "after_run", "end", "on_error", "join", "saved", "leaves")
HEADINGS = {"join": "coordinator `join`", "saved": "newest checkpoint", "leaves": "error from the `with` block"}
STEPS = 2


class Program:
    """The graph of a training, whose input has two elements, and a MonitoredTrainingSession for it.

    Args:
      implementation: "tensorflow" or "fastsup".
      folder: the checkpoint directory.
      note: called with the name of each callback.
    """

    def __init__(self, implementation: str, folder: str, note: Callable[[str], None]) -> None:
        import tensorflow as tf

        import fastsup

        self.tf, self.v1, self.folder, self.note = tf, tf.compat.v1, folder, note
        self.train = fastsup.train if implementation == "fastsup" else tf.compat.v1.train
        self.is_ours = implementation == "fastsup"
        self.hook = self.make_hook()
        self.faults: dict[str, list[Any]] = {}
        dataset = tf.data.Dataset.range(STEPS)
        self.element = self.v1.data.make_one_shot_iterator(dataset).get_next()
        step = self.v1.train.get_or_create_global_step()
        self.op = self.v1.assign_add(step, tf.constant(1, tf.int64)).op
        with tf.control_dependencies([self.element]):
            self.fed_op = self.v1.assign_add(step, tf.constant(1, tf.int64)).op
        self.bad = tf.debugging.check_numerics(tf.constant(float("nan")), "not a number")
        self.coordinator: Any = None

    def make_hook(self) -> Any:
        program = self

        class Noting(self.v1.train.SessionRunHook):
            """Notes its callbacks, and raises in one of them what the program has said."""

            def called(self, callback: str) -> None:
                program.note(callback)
                errors = program.faults.get(callback)
                if errors and (error := errors.pop(0)) is not None:
                    raise error

            def begin(self) -> None:
                self.called("begin")

            def after_create_session(self, session: Any, coord: Any) -> None:
                program.coordinator = coord
                join = coord.join

                def joined(*args: Any, **kwargs: Any) -> None:
                    program.note("join")
                    join(*args, **kwargs)

                coord.join = joined
                self.called("after_create_session")

            def before_run(self, run_context: Any) -> None:
                self.called("before_run")

            def after_run(self, run_context: Any, run_values: Any) -> None:
                self.called("after_run")
                if program.stops:
                    run_context.request_stop()

            def end(self, session: Any) -> None:
                self.called("end")

            def on_error(self, run_context: Any, exception: BaseException) -> None:
                self.called("on_error")

        return Noting()

    stops = False

    def session(self, **arguments: Any) -> Any:
        return self.train.MonitoredTrainingSession(
            checkpoint_dir=self.folder,
            hooks=[self.hook],
            save_checkpoint_steps=1000,
            save_summaries_steps=None,
            log_step_count_steps=None,
            **arguments,
        )

    def error(self, name: str) -> Exception:
        return getattr(self.tf.errors, name)(None, None, "made by the test")  # type: ignore[no-any-return]

    def two_steps(self, session: Any) -> None:
        for _ in range(STEPS):
            session.run(self.op)

    # How a run ends.

    def normally(self) -> None:
        with self.session() as session:
            self.two_steps(session)

    def stop_requested(self) -> None:
        with self.session() as session:
            session.run(self.op)
            self.stops = True
            while not session.should_stop():
                session.run(self.op)

    def coordinator_stopped(self) -> None:
        with self.session() as session:
            self.two_steps(session)
            self.coordinator.request_stop()
            assert session.should_stop()

    def end_of_input(self) -> None:
        with self.session() as session:
            while not session.should_stop():
                session.run(self.fed_op)

    def out_of_range_raised(self) -> None:
        with self.session() as session:
            self.two_steps(session)
            raise self.error("OutOfRangeError")

    def closed(self) -> None:
        session = self.session()
        self.two_steps(session)
        session.close()

    def aborted(self) -> None:
        self.faults["before_run"] = [None, self.error("AbortedError")]
        self.normally()

    def unavailable(self) -> None:
        self.faults["before_run"] = [None, self.error("UnavailableError")]
        self.normally()

    def aborted_too_often(self) -> None:
        self.faults["before_run"] = [None, self.error("AbortedError")]
        with self.session(max_recoveries=0) as session:
            self.two_steps(session)

    def user_error(self) -> None:
        with self.session() as session:
            self.two_steps(session)
            raise ValueError("made by the test")

    def operation_fails(self) -> None:
        with self.session() as session:
            self.two_steps(session)
            session.run(self.bad)

    def before_run_fails(self) -> None:
        self.faults["before_run"] = [None, ValueError("made by the test")]
        self.normally()

    def after_run_fails(self) -> None:
        self.faults["after_run"] = [None, ValueError("made by the test")]
        self.normally()

    def begin_fails(self) -> None:
        self.faults["begin"] = [ValueError("made by the test")]
        self.normally()

    def after_create_session_fails(self) -> None:
        self.faults["after_create_session"] = [ValueError("made by the test")]
        self.normally()

    def end_fails(self) -> None:
        self.faults["end"] = [ValueError("made by the test")]
        self.normally()

    def thread_fails(self) -> None:
        with self.session() as session:
            self.two_steps(session)
            try:
                raise KeyError("made by the test")
            except KeyError as error:
                self.coordinator.request_stop(error)

    def sigterm(self) -> None:
        self.signalled(signal.SIGTERM)

    def sigint(self) -> None:
        self.signalled(signal.SIGINT)

    def signalled(self, number: int) -> None:
        with self.session() as session:
            self.two_steps(session)
            os.kill(os.getpid(), number)
            while not session.should_stop():
                session.run(self.op)


def run(implementation: str, program: str, folder: str, note: Callable[[str], None]) -> str:
    """Runs a program.

    Args:
      implementation: "tensorflow" or "fastsup".
      program: the name of a method of `Program`.
      folder: a directory for the checkpoints.
      note: called with the name of each callback.

    Returns:
      The type of what has left the `with` block; an empty string if nothing has.
    """
    import tensorflow as tf

    with tf.Graph().as_default():
        running = Program(implementation, folder, note)
        try:
            getattr(running, program)()
        except BaseException as error:
            return type(error).__name__
        return ""


def expected(row: dict[str, Any], implementation: str) -> dict[str, Any] | None:
    """What a row says of an implementation, by column; None if it hasn't got what the row is about."""
    values = {column: row[column] for column in COLUMNS}
    if implementation == "fastsup":
        return values
    if row["tensorflow"] is None:
        return None
    return {**values, "on_error": 0, **row["tensorflow"]}


def table() -> str:
    """The table of the page."""
    headings = ["how the run ends", *(HEADINGS.get(column, f"`{column}`") for column in COLUMNS)]
    lines = [f"| {' | '.join(headings)} |", f"|---|{'--:|' * 7}---|---|"]
    for row in TABLE:
        cells = [row["ending"]]
        other = expected(row, "tensorflow")
        for column in COLUMNS:
            cell = _cell(column, row[column])
            if other is not None and column != "on_error" and other[column] != row[column]:
                cell += _cell_of_tensorflow(column, other[column])
            cells.append(cell)
        if other is None:
            cells[0] += " (fastsup only)"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(column: str, value: Any) -> str:
    if column == "saved":
        return "none" if value is None else f"step {value}"
    if column == "leaves":
        return f"`{value}`" if value and value[0].isupper() else value or "nothing"
    return str(value) if value else ""


def _cell_of_tensorflow(column: str, value: Any) -> str:
    return f" (TensorFlow: {_cell(column, value) or 'none'})"


def page(text: str) -> str:
    """The text of the page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("implementation", nargs="?", choices=["tensorflow", "fastsup"], help="whose session it runs")
    parser.add_argument("program", nargs="?", help="`program` of a row of lifecycle.json")
    parser.add_argument("folder", nargs="?", help="the checkpoint directory")
    parser.add_argument("--write", action="store_true", help="write the table of docs/lifecycle.md")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(page(PAGE.read_text()))
    elif arguments.implementation is None:
        print(table(), end="")
    elif arguments.folder is None:
        parser.error("pass all of implementation, program and folder")
    else:
        left = run(
            arguments.implementation,
            arguments.program,
            arguments.folder,
            note=lambda callback: os.write(1, f"{callback}\n".encode()) and None,
        )
        os.write(1, f"left by {left}\n".encode())


if __name__ == "__main__":
    main()
