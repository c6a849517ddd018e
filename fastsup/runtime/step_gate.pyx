"""Between two steps: where a checkpoint is taken, so that all its variables are of one step."""

import threading
import time

from tensorflow.python.platform import tf_logging as logging


cdef class StepGate:
    """Lets steps pass, or holds them back while variables are read.

    A step costs two comparisons here and no lock: the interpreter lets no other thread in between. Used with `with`,
    the gate is closed and, once the steps under way have ended, its block runs between two steps.

    What is under way may itself wait for a step that is held back (workers that exchange tokens do), so those held
    back pass for a moment every `turn_secs` seconds; and a step that never ends doesn't keep a checkpoint from being
    written for more than `patience_secs` seconds. The latter is said in a warning.
    """

    def __cinit__(self):
        self.changed = threading.Condition(threading.Lock())
        self.saving = threading.RLock()
        self.patience_secs = 60.0
        self.turn_secs = 10.0

    cdef int enter(self) except -1:
        """A step begins. Waits while the gate is closed."""
        if self.closed and self.closed_by != threading.get_ident():
            self.held_back += 1
            try:
                with self.changed:
                    self.changed.notify_all()
                    while self.closed:
                        self.changed.wait()
            finally:
                self.held_back -= 1
        self.running += 1
        return 0

    cdef int leave(self) except -1:
        """A step has ended, well or not."""
        self.running -= 1
        self.passed += 1
        if self.closed:
            with self.changed:
                self.changed.notify_all()
        return 0

    def __enter__(self):
        self.saving.acquire()
        try:
            self._close()
        except BaseException:
            self._open()
            self.saving.release()
            raise
        return self

    def __exit__(self, *error):
        # A signal handler may raise in the middle of this, and no other thread could release the waiting ones.
        try:
            self._open()
        finally:
            self.closed = False
            self.saving.release()

    def _close(self):
        """Closes the gate and waits for the steps under way."""
        self.closed_by = threading.get_ident()
        self.closed = True
        if self.running == 0:
            return
        started = time.monotonic()
        turn = started
        with self.changed:
            while self.running > 0:
                now = time.monotonic()
                if now - started >= self.patience_secs:
                    logging.warning(
                        "A step has been running for %d seconds. The checkpoint is written meanwhile: its variables "
                        "may belong to different steps. See `python -m fastsup docs dropin#checkpoints`.",
                        now - started,
                    )
                    return
                if self.held_back == 0:
                    turn = now
                elif now - turn >= self.turn_secs:
                    self._let_pass()
                    turn = time.monotonic()
                self.changed.wait(min(self.patience_secs - (now - started), self.turn_secs))

    def _let_pass(self):
        """Opens for those who wait now."""
        self.closed = False
        self.changed.notify_all()
        while self.held_back > 0:
            self.changed.wait(0.01)
        self.closed = True

    def _open(self):
        with self.changed:
            self.closed = False
            self.closed_by = None
            self.changed.notify_all()
