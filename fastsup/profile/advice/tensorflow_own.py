"""TensorFlow's own sessions and hooks in a program: the classes of fastsup in their place, and the line to change."""

from __future__ import annotations

from collections.abc import Iterable

from fastsup.core.sessions import SessionOrigin

__all__ = ["counterpart", "one_line_for"]

# The classes of `tf.compat.v1.train` for which `fastsup.train` has its own.
_TRAIN = frozenset({
    "CheckpointSaverHook", "GlobalStepWaiterHook", "LoggingTensorHook", "MonitoredSession", "MonitoredTrainingSession",
    "NanTensorHook", "ProfilerHook", "SingularMonitoredSession", "StepCounterHook", "StopAtStepHook",
    "SummarySaverHook", "Supervisor",
})  # fmt: skip


def counterpart(name: str) -> str:
    """Returns the class of fastsup that replaces a class of TensorFlow, as "fastsup.train.StopAtStepHook"; "" for none.

    Args:
      name: name of TensorFlow's class.
    """
    return f"fastsup.train.{name}" if name in _TRAIN else ""


def one_line_for(sessions: Iterable[SessionOrigin]) -> list[str]:
    """Returns advice for a program that only has sessions of TensorFlow's own, or plain ones: the line to change.

    Args:
      sessions: the origins of its sessions.

    Returns:
      List of sentences, empty without sessions.
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
            f"and `with train.{kind}(...)` in place of tf.compat.v1.train.{kind}. Without an edit: "
            "`python -m fastsup profile -m fastsup run SCRIPT`."
        ]
    if first.library != "fastsup":
        return [
            f"The program opens a plain {kind or 'Session'} of TensorFlow's{where}. One line changes it: "
            "`with fastsup.Session() as session:` in its place."
        ]
    return [
        f"The program opens a plain {kind or 'Session'} of fastsup's{where}, which has no hooks. A session with "
        "hooks is `with fastsup.train.SingularMonitoredSession() as session:`, made when the graph is complete."
    ]
