"""What a start after a fault is counted as."""

from __future__ import annotations

from benchmarks.savers.runs import Run

__all__ = ["CLASSES", "after_power_loss", "is_lost", "is_unreported"]

OK, OLDER, BEGINNING, ERROR, MIXED = CLASSES = ("ok", "older", "from the beginning", "error", "mixed")


def after_power_loss(run: Run, saved: int) -> str:
    """The class of a start after a loss of power.

    Args:
      run: the start, which trains on for some steps.
      saved: the last step whose save had returned; 0 if none had.
    """
    if run.started is not None:
        step, least, greatest = run.started
        if not step == least == greatest:
            return MIXED
        if step < saved:
            return OLDER if step else BEGINNING
    return OK if run.ended or not saved else ERROR


def is_lost(under_fault: Run, later: Run, before: int, saved: int) -> bool:
    """Whether a fault has cost what was saved.

    Args:
      under_fault: the training with the fault.
      later: a start without it.
      before: the step that was saved before the fault.
      saved: the last step whose save has returned, with the fault or before.
    """
    # A training that ends without an error must have begun with what was saved: else it has trained all that again.
    began_wrong = under_fault.ended and after_power_loss(under_fault, before) != OK
    return began_wrong or after_power_loss(later, saved) != OK


def is_unreported(under_fault: Run, later: Run, last: float) -> bool:
    """Whether a training ended without an error, and its last save isn't there.

    Args:
      under_fault: the training with the fault.
      later: a start without it.
      last: the step that is there after a training without a fault.
    """
    return under_fault.ended and (later.started is None or later.started[0] < last)
