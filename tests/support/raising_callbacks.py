"""What programs with a raising callback share: the errors, a record of what happened, and what has to follow."""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from long_faults import LONG

EVERY, LAST = 2, 5  # Steps between two saves, and the step at which a run ends that nothing ends before.
EXIT_CODE = 3

ERRORS: dict[str, Callable[[str], BaseException]] = {
    "ValueError": ValueError,
    "OutOfRangeError": lambda text: tf.errors.OutOfRangeError(None, None, text),
    "AbortedError": lambda text: tf.errors.AbortedError(None, None, text),
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda text: SystemExit(EXIT_CODE),
}
RECOVERABLE = (tf.errors.AbortedError, tf.errors.UnavailableError)


class Case(NamedTuple):
    """One combination.

    Attributes:
      way: how the program trains.
      callback: the callback that raises, as "r.after_run".
      place: which of its calls raises.
      ending: how the run ends, unless the callback ends it before.
      error: the name of the error.
    """

    way: str
    callback: str
    place: str
    ending: str
    error: str

    def __str__(self) -> str:
        return "-".join(self)


class Raised(NamedTuple):
    """An error that was raised.

    Attributes:
      error: the error.
      callback: the callback, as "r.after_run"; "program" for an error of the program itself.
      phase: "making" (of the first session), "making again", "running" or "ending".
    """

    error: BaseException
    callback: str
    phase: str


class Record:
    """What happened in a run.

    Attributes:
      calls: the callbacks in their order, as "r.after_run", or "l.after_save:4" with the step.
      raised: the errors that were raised, in their order.
      sessions: the sessions that were made.
      phase: as for `Raised`.
      last_step: the last step that has ended in the present session, or that it has restored.
      outcome: what has left the program, or None.
      log: the records that were logged.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.raised: list[Raised] = []
        self.sessions: list[Any] = []
        self.phase = "making"
        self.last_step = 0
        self.outcome: BaseException | None = None
        self.log: list[logging.LogRecord] = []
        self.signalled = False

    def note(self, callback: str, step: Any = None) -> None:
        self.calls.append(callback if step is None else f"{callback}:{step}")

    def note_error(self, error: BaseException, callback: str) -> None:
        self.raised.append(Raised(error, callback, self.phase))

    def raise_error(self, error: BaseException, callback: str) -> None:
        self.note_error(error, callback)
        raise error

    def count(self, call: str) -> int:
        return self.calls.count(call)

    def steps_of(self, callback: str) -> list[int]:
        """The steps with which a callback of a listener was called."""
        return [int(call.rpartition(":")[2]) for call in self.calls if call.startswith(callback + ":")]

    def tells(self, error: BaseException) -> bool:
        """True if an error is in the log, or in the chain of what has left the program."""
        chain, seen = [self.outcome, *(record.exc_info[1] for record in self.log if record.exc_info)], set()
        while chain:
            link = chain.pop()
            if link is error:
                return True
            if link is not None and id(link) not in seen:
                seen.add(id(link))
                chain += [link.__cause__, link.__context__]
        return any(str(error) in record.getMessage() for record in self.log)


class _Keep(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.WARNING)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@contextlib.contextmanager
def logged(records: list[logging.LogRecord]) -> Iterator[None]:
    """Appends to a list what is logged meanwhile, from warnings on, and keeps it off the terminal."""
    loggers = [logging.getLogger(name) for name in ("tensorflow", "fastsup")]
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    keep = _Keep(records)
    for logger in loggers:
        logger.handlers[:] = [keep]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, handlers, propagate, level in before:
            logger.handlers[:] = handlers
            logger.propagate = propagate
            logger.setLevel(level)


@contextlib.contextmanager
def noted(record: Record) -> Iterator[None]:
    """Wraps a training: its log lines and what leaves it are noted, and nothing leaves the block."""
    with logged(record.log):
        try:
            yield
        except BaseException as error:
            record.outcome = error


@contextlib.contextmanager
def no_new_threads(secs: float = 5.0) -> Iterator[None]:
    """Fails if a thread that was started in the block is alive after it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        # The one that TensorFlow's tf.train.Checkpoint writes in is a daemon that lives as long as the checkpoint.
        if not isinstance(thread, threading._DummyThread) and "(_async_save)" not in thread.name:
            thread.join(secs)
            assert not thread.is_alive(), f"{thread} is left"


def is_interrupt(error: BaseException | None) -> bool:
    """True for KeyboardInterrupt and SystemExit."""
    return error is not None and not isinstance(error, Exception)


class Expected(NamedTuple):
    """What has to follow from the errors that were raised.

    Attributes:
      outcome: the error that leaves the program; None for none. Of a signal: its exception's type.
      ends: whether the `end` of each hook is called.
      fails_at_end: the errors that were raised while the run ended.
      untold: the errors that are neither the outcome nor handled, which have to be logged or chained.
    """

    outcome: Any
    ends: bool
    fails_at_end: list[Raised]
    untold: list[BaseException]


def expected(record: Record, recovers: bool, absorbs_end_of_input: bool, ends_after_errors: bool) -> Expected:
    """What has to follow from the errors of a run.

    Args:
      record: what happened.
      recovers: whether the run recovers from preemptions.
      absorbs_end_of_input: whether OutOfRangeError ends a run as its end of the input does.
      ends_after_errors: whether the program closes the session after an error too.
    """
    outcome: BaseException | None = None
    ends = True
    at_end: list[Raised] = []
    untold: list[BaseException] = []
    for raised in record.raised:
        error, callback, phase = raised
        if callback.endswith(".on_error"):
            if is_interrupt(error) and not is_interrupt(outcome):
                untold += [outcome] if outcome is not None else []
                outcome, ends = error, ends and ends_after_errors
            else:
                untold.append(error)
        elif phase == "ending":
            at_end.append(raised)
        elif recovers and isinstance(error, RECOVERABLE) and callback != "program" and not callback.endswith(".begin"):
            untold.append(error)
        elif phase == "making":
            outcome, ends = error, False
        elif absorbs_end_of_input and isinstance(error, tf.errors.OutOfRangeError):
            pass
        elif outcome is None:
            outcome, ends = error, ends_after_errors
        else:
            untold.append(error)
    if at_end:
        errors = [raised.error for raised in at_end]
        first = next((error for error in errors if is_interrupt(error)), errors[0])
        if record.signalled:
            untold += errors
        else:
            untold += [error for error in [*errors, outcome] if error is not None and error is not first]
            outcome = first
    if record.signalled and outcome is None:
        return Expected(SystemExit, ends, at_end, untold)
    return Expected(outcome, ends, at_end, untold)


# The tests.


def check_outcome(record: Record, follows: Expected) -> None:
    if follows.outcome is SystemExit:
        assert isinstance(record.outcome, SystemExit)
        assert record.outcome.code == 128 + 15
    else:
        assert record.outcome is follows.outcome
    for error in follows.untold:
        assert record.tells(error), f"{error!r} is lost"


def chosen(cases: list[Case], count: int) -> list[Case]:
    """The cases of this run: all; in a short one some, whose places, endings and errors differ.

    Args:
      cases: the cases of one callback.
      count: the number of cases in a short run.
    """
    if LONG or len(cases) <= count:
        return cases
    # So that it isn't the first ending and the first error of each callback.
    first = sum(map(ord, cases[0].way + cases[0].callback)) % len(cases)
    left = cases[first:] + cases[:first]
    taken: list[Case] = []
    times: dict[str, int] = collections.Counter()
    for _ in range(count):
        case = min(left, key=lambda case: sum(times[value] for value in case))
        left.remove(case)
        taken.append(case)
        times.update(case)
    return taken


def check_each(cases: list[Case], folder: Path, record_property: Any, check_one: Any) -> None:
    """Checks cases, all of them before it fails. The report of the test says how many there were.

    Args:
      cases: the cases.
      folder: gets a folder for each.
      record_property: pytest's fixture.
      check_one: function of a case and its folder.
    """
    record_property("combinations", len(cases))
    failed = []
    for case in cases:
        place = folder / str(case)
        try:
            check_one(case, place)
        except AssertionError as error:
            failed.append(f"{case}: {str(error).splitlines()[0] if str(error) else error!r}")
    assert not failed, f"{len(failed)} of {len(cases)}:\n" + "\n".join(failed)
