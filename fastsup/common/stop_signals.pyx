"""SIGTERM and SIGINT end a session or a loop between steps, so that its last state is saved.

While a session handles signals, the first one raises SystemExit(128 + number), or KeyboardInterrupt, in the main
thread: immediately between steps, otherwise after the current step. The exception leaves the session's `with`
block, which saves a checkpoint. A loop is requested to stop, and raises the same after its hooks have ended. A second
signal of the same kind ends the process immediately, as without this module. Within `REPEAT_SECS` of the first one, it
is treated as a copy, because a launcher forwards a signal that its child also received.

If the program has its own handler for a signal, that handler keeps it.
"""

from libc.signal cimport SIGINT
from libc.string cimport strlen
from posix.unistd cimport isatty, write

import logging
import os
import signal
import sys
import threading

# Seconds after a signal during which a second signal of the same kind is treated as a copy.
cdef double REPEAT_SECS = 0.2

ctypedef void (*handler_t)(int) noexcept nogil

cdef extern from "clock.h":
    double fs_clock_ticking() noexcept nogil

cdef extern from "<errno.h>":
    int errno

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() noexcept

cdef extern from "signal.h":
    ctypedef struct sigaction_t "struct sigaction":
        int sa_flags
        handler_t sa_handler
    int sigaction(int number, const sigaction_t* action, sigaction_t* old) noexcept
    handler_t set_handler "signal"(int number, handler_t handler) noexcept nogil
    int send_to_this_thread "raise"(int number) noexcept nogil
    handler_t SIG_DFL

# The handled signals, each with its default handler.
cdef dict defaults = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}

# The number of sessions that handle signals, their thread, and the state to restore after the last one.
cdef int watching = 0
cdef unsigned long main_thread = 0
cdef dict replaced = {}
# The received signal, and the number of scopes of the main thread that it must not interrupt.
cdef int pending = 0
cdef int held = 0
# Functions to call when a signal is received: a loop's `request_stop`.
cdef list stop_requests = []
# Python's handler in C, which calls `on_signal` when the step has returned.
cdef handler_t python_handler = NULL
# The times at which SIGTERM and SIGINT were first received, in seconds of a monotonic clock, or 0.
cdef double[2] received_at = [0.0, 0.0]
cdef bint answers = False
# The consequence of a signal, for the log.
cdef str STEP_ENDS = "ending after this step. If the program saves checkpoints, the last state is saved."
cdef str consequence = STEP_ENDS
# The function that receives the number of a signal instead of the sessions, or None.
cdef object receiver = None
cdef const char* ANSWER = b"Ctrl-C: ending after the running step. A second one ends immediately, without saving.\n"


cdef void handler(int number) noexcept nogil:
    """The handler in C, which doesn't depend on a thread that may be stuck in a step.

    For Ctrl-C at a terminal, it immediately prints a line, so that the user needn't press it again during a long step.
    """
    global errno
    cdef int before = errno
    cdef int which = number == SIGINT
    cdef double now = fs_clock_ticking()
    if received_at[which] == 0.0:
        received_at[which] = now
        if answers and number == SIGINT:
            write(2, ANSWER, strlen(ANSWER))
        python_handler(number)
    elif now - received_at[which] >= REPEAT_SECS:
        set_handler(number, SIG_DFL)
        send_to_this_thread(number)  # The signal is delivered when this function has returned.
    errno = before


cdef int pending_signal() noexcept:
    """Returns the number of the received signal, or 0."""
    return pending


cdef bint in_main_thread() except -1:
    return PyThread_get_thread_ident() == <unsigned long> threading.main_thread().ident


cdef bint hold_signals() except -1:
    """Starts a scope that isn't interrupted: a run with its hooks. Returns the argument for `release_signals`."""
    global held
    if watching == 0 or PyThread_get_thread_ident() != main_thread:
        return False
    held += 1
    return True


cdef int release_signals(bint was_held) except -1:
    """Ends such a scope."""
    global held
    if was_held and held > 0:  # A child process that was forked inside the scope holds nothing.
        held -= 1
    return 0


def holds_signals():
    """Starts a scope that isn't interrupted. End it with `release`."""
    return hold_signals()


def release(was_held):
    """Ends such a scope.

    Args:
      was_held: what `holds_signals` has returned.
    """
    release_signals(was_held)


def received():
    """Whether a signal was received that ends the sessions of this process."""
    return pending != 0


def interrupt_of(number):
    """Returns the exception for a signal.

    Args:
      number: number of the signal, or 0 for none.

    Returns:
      KeyboardInterrupt for SIGINT, SystemExit with the exit code 143 for SIGTERM, or None without a signal.
    """
    if number == SIGINT:
        return KeyboardInterrupt()
    return SystemExit(128 + number) if number else None


def pending_interrupt():
    """Returns `interrupt_of` the received signal, or None."""
    return interrupt_of(pending)


def raise_pending():
    """Raises `pending_interrupt()` if a signal was received.

    Raises:
      KeyboardInterrupt: If it was SIGINT.
      SystemExit: If it was SIGTERM. The exit code is 143.
    """
    interrupt = pending_interrupt()
    if interrupt is not None:
        raise interrupt


cdef object log():
    """Returns TensorFlow's log, or Python's logger if the program hasn't imported TensorFlow."""
    return sys.modules.get("tensorflow.python.platform.tf_logging") or logging.getLogger("fastsup")


def log_last_save(path):
    """If a signal ends the program, logs where its last state is saved.

    Args:
      path: path of the checkpoint.
    """
    if pending:
        log().warning("After the signal: the last checkpoint is %s.", path)


def add_stop_request(request_stop):
    """Registers a function to call in the main thread when a signal arrives.

    Args:
      request_stop: function without arguments that raises no errors.
    """
    stop_requests.append(request_stop)


def remove_stop_request(request_stop):
    """Reverts `add_stop_request`.

    Args:
      request_stop: the function.
    """
    if request_stop in stop_requests:  # A forked child process has no stop requests.
        stop_requests.remove(request_stop)


def on_signal(number, frame):
    global pending
    if watching == 0:
        # The last session was closed in a thread that can't restore the handler.
        restore_handlers()
        signal.raise_signal(number)
        return
    if receiver is None:
        pending = number
        for request_stop in stop_requests:
            request_stop()
    else:
        receiver(number)
    try:
        log().warning(
            "%s: %s A second %s ends immediately, without a save. See `python -m fastsup docs signals`.",
            signal.Signals(number).name,
            consequence,
            signal.Signals(number).name,
        )
    except RuntimeError:
        pass  # This thread was writing to the log when the signal arrived.
    if held == 0:
        raise_pending()


def install(what_follows=None, receive=None):
    """Installs handlers for the signals that no other code handles. Each call requires a call of `uninstall`.

    The arguments of the first call apply until all have been uninstalled.

    Args:
      what_follows: sentence for the log about the consequence of a signal. If None, a step ends, and its state is
        saved.
      receive: function of a signal's number that is called in the main thread and raises no errors. The signal then
        doesn't end sessions or loops. If None, it does.

    Returns:
      True if `uninstall` must be called. False outside the main thread, in which signals can't be handled.
    """
    global watching, main_thread, python_handler, answers, consequence, receiver
    cdef sigaction_t action
    if not in_main_thread():
        return False
    main_thread = PyThread_get_thread_ident()
    watching += 1
    if watching == 1:
        received_at[0] = received_at[1] = 0.0
        consequence = what_follows or STEP_ENDS
        receiver = receive
        answers = isatty(2) and what_follows is None
        for number, default in defaults.items():
            if signal.getsignal(number) in (default, on_signal):
                replaced[number] = default
                signal.signal(number, on_signal)
                sigaction(number, NULL, &action)
                python_handler, action.sa_handler = action.sa_handler, handler
                sigaction(number, &action, NULL)
    return True


def uninstall():
    """Reverts `install`. After the last session, the original handlers are restored and no signal is pending."""
    global watching
    if watching == 0:
        return  # This is a forked child of the process that handles signals.
    watching -= 1
    # Python lets only the main thread change handlers. If another thread calls this, the handler restores itself later.
    if watching == 0 and in_main_thread():
        restore_handlers()


cdef int restore_handlers() except -1:
    global pending, receiver
    for number, default in replaced.items():
        if signal.getsignal(number) is on_signal:
            signal.signal(number, default)
    replaced.clear()
    pending = 0
    receiver = None
    return 0


def end_in_child():
    """Disables signal handling in a child of `os.fork()`, because the sessions and their checkpoints are the parent's."""
    global watching, held
    watching = 0
    held = 0
    stop_requests.clear()
    restore_handlers()


os.register_at_fork(after_in_child=end_in_child)
