"""What each program trains, and how it says what it has done. Needs nothing but Python.

Each of 50,000 weights is 0 at first, and grows by 1 in each step: so it is the number of its step.
"""

import json
import os

SIZE = 50_000
EVERY = 5


class Job:
    """One run of a program.

    Args:
      folder: where it saves.
      last: the step after which it ends.
      log: the log of file operations; None if there is none.
      report: file for what is found at the start.
    """

    def __init__(self, folder, last, log, report):
        self.folder = folder
        self.last = last
        self._log = log
        self._report = report
        self._started = False

    def started(self, step, weights):
        """Says where the training begins: at which step, with which weights. Later calls have no effect."""
        if not self._started:
            self._started = True
            with open(self._report, "w") as file:
                json.dump([int(step), float(weights.min()), float(weights.max())], file)

    def returned(self, step):
        """Says that the save of a step has returned."""
        self._note(f"returned\t{int(step)}\t\n")

    def rested(self):
        """Says that a minute passes here, as if steps took that long. Called between two steps."""
        self._note("rested\t\t\n")

    def _note(self, line):
        if self._log:
            file = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, line.encode())
            os.close(file)
