"""Sessions and hooks of TensorFlow's own in a program: what stands for them here, and the line that changes it."""

from __future__ import annotations

from collections.abc import Iterable

from fastsup.core.session_origin import SessionOrigin

__all__ = ["counterpart", "one_line_for"]

# What `fastsup.train` has in place of the classes of `tf.compat.v1.train`, which is not their very own classes.
_TRAIN = frozenset({
    "CheckpointSaverHook", "GlobalStepWaiterHook", "LoggingTensorHook", "MonitoredSession", "MonitoredTrainingSession",
    "NanTensorHook", "ProfilerHook", "SingularMonitoredSession", "StepCounterHook", "StopAtStepHook",
    "SummarySaverHook", "Supervisor",
})  # fmt: skip


def counterpart(name: str) -> str:
    """The name here of a class of TensorFlow's: "fastsup.train.StopAtStepHook"; "" if there is none.

    Args:
      name: the class's name.
    """
    return f"fastsup.train.{name}" if name in _TRAIN else ""


def one_line_for(sessions: Iterable[SessionOrigin]) -> list[str]:
    """For a program that only has sessions of TensorFlow's own, or plain ones: sentences with the line that changes it.

    Args:
      sessions: who has opened them.
    """
    sessions = list(sessions)
    if not sessions:
        return []
    first = next((opened for opened in sessions if counterpart(opened.kind.partition(".")[0])), sessions[0])
    kind = first.kind.partition(".")[0]
    where = f", in {first.place}" if first.place else ""
    if counterpart(kind):
        return [
            f"The program opens a {kind} of TensorFlow's{where}. One line changes it: `import fastsup.train as train`, "
            f"and `with train.{kind}(...)` in place of tf.compat.v1.train.{kind}."
        ]
    owner = "fastsup's" if first.library == "fastsup" else "TensorFlow's"
    return [
        f"The program opens a plain {kind or 'Session'} of {owner}{where}, which has no hooks. One line changes it: "
        "`with fastsup.train.SingularMonitoredSession() as session:` in its place."
    ]
