"""SIGTERM and SIGINT end a session or a loop between two steps, so that its last state is saved.

While a session watches, the first signal raises SystemExit(128 + number), or KeyboardInterrupt, in the main thread: at
once where that is between two steps, else where the step has ended. It leaves the session's `with` block, which
saves a checkpoint. A loop is asked to stop, and raises the same after its hooks have ended. A second signal of the kind
ends the process at once, as without this module; but not within `REPEAT_SECS` of the first one, of which it is treated
as a copy: a launcher forwards a signal that its child has got, too.

Signals with a handler of the program's own are left to that handler.
"""

from libc.signal cimport SIGINT
from libc.string cimport strlen
from posix.unistd cimport isatty, write

import logging
import os
import signal
import sys
import threading

# Seconds after a signal in which another one of the kind is the same one.
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

# The signals that are watched, each with its default handler.
cdef dict defaults = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}

# How many sessions watch, and in which thread; what is to be put back after the last of them.
cdef int watching = 0
cdef unsigned long main_thread = 0
cdef dict replaced = {}
# The signal that was received; how many scopes of the main thread it must not interrupt.
cdef int pending = 0
cdef int held = 0
# What is called when a signal is received: a loop's `request_stop`.
cdef list stop_requests = []
# Python's handler in C, which lets `on_signal` be called when the step has returned.
cdef handler_t python_handler = NULL
# When SIGTERM and SIGINT were received first, in seconds of a monotonic clock; 0 if they weren't.
cdef double[2] received_at = [0.0, 0.0]
cdef bint answers = False
# What is logged of a received signal: what follows from it.
cdef str STEP_ENDS = "ending after this step. If the program saves checkpoints, the last state is saved."
cdef str consequence = STEP_ENDS
# What takes the number of a received signal instead of the sessions, or None.
cdef object receiver = None
cdef const char* ANSWER = b"Ctrl-C: ending after the running step. A second one ends immediately, without saving.\n"


cdef void handler(int number) noexcept nogil:
    """The handler in C, which needs no help of a thread that may be stuck in a step.

    Ctrl-C at a terminal is answered by a line at once, so that the user needn't press it again in a long step.
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
        send_to_this_thread(number)  # It is delivered when this function has returned.
    errno = before


cdef int pending_signal() noexcept:
    """The number of the signal that was received, or 0."""
    return pending


cdef bint in_main_thread() except -1:
    return PyThread_get_thread_ident() == <unsigned long> threading.main_thread().ident


cdef bint hold_signals() except -1:
    """Starts a scope that isn't interrupted: a run with its hooks. Returns what `release_signals` is to be told."""
    global held
    if watching == 0 or PyThread_get_thread_ident() != main_thread:
        return False
    held += 1
    return True


cdef int release_signals(bint was_held) except -1:
    """Ends such a scope."""
    global held
    if was_held and held > 0:  # A child of the process, forked inside the scope, holds nothing.
        held -= 1
    return 0


def holds_signals():
    """Starts a scope that isn't interrupted. To be ended with `release`."""
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
    """The exception that a signal stands for.

    Args:
      number: number of the signal; 0 for none.

    Returns:
      KeyboardInterrupt for SIGINT; SystemExit, with the exit code 143, for SIGTERM; None without a signal.
    """
    if number == SIGINT:
        return KeyboardInterrupt()
    return SystemExit(128 + number) if number else None


def pending_interrupt():
    """`interrupt_of` the signal that was received, or None."""
    return interrupt_of(pending)


def raise_pending():
    """Raises `pending_interrupt()`, if a signal was received.

    Raises:
      KeyboardInterrupt: it was SIGINT.
      SystemExit: it was SIGTERM; with the exit code 143.
    """
    interrupt = pending_interrupt()
    if interrupt is not None:
        raise interrupt


cdef object log():
    """TensorFlow's log, if the program has imported TensorFlow."""
    return sys.modules.get("tensorflow.python.platform.tf_logging") or logging.getLogger("fastsup")


def log_last_save(path):
    """Logs, if a signal ends the program, where its last state is saved.

    Args:
      path: path of the checkpoint.
    """
    if pending:
        log().warning("After the signal: the last checkpoint is %s.", path)


def add_stop_request(request_stop):
    """Registers a function to be called, in the main thread, when a signal arrives.

    Args:
      request_stop: function without arguments that raises nothing.
    """
    stop_requests.append(request_stop)


def remove_stop_request(request_stop):
    """Reverts `add_stop_request`.

    Args:
      request_stop: the function.
    """
    if request_stop in stop_requests:  # A child of the process has forgotten it.
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
        pass  # The log was being written to, in this thread, when the signal came.
    if held == 0:
        raise_pending()


def install(what_follows=None, receive=None):
    """Installs handlers for the signals that no other code handles. Each call needs one of `uninstall`.

    The arguments of the first call count, until all have been uninstalled.

    Args:
      what_follows: sentence for the log that says what a signal leads to; None if a step ends, and its state is saved.
      receive: function that is called with the number of a signal, in the main thread, and raises nothing; no session
        or loop is then ended by the signal. None if they are.

    Returns:
      Whether `uninstall` is to be called: not outside the main thread, in which nothing can be watched.
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
    """Reverts `install`. After the last session the handlers are as before, and no signal is pending."""
    global watching
    if watching == 0:
        return  # In a child of the process that watches.
    watching -= 1
    # Python lets only the main thread change handlers. The handler restores itself where another thread ends the watch.
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
    """Ends every watch in a child of `os.fork()`: the sessions, and their checkpoints, are the parent's."""
    global watching, held
    watching = 0
    held = 0
    stop_requests.clear()
    restore_handlers()


os.register_at_fork(after_in_child=end_in_child)
