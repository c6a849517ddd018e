"""What a profile wants to know of a session: its executor mode, those of its plans, and how large its graph is."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fastsup.runtime.interpreter_end import uninterrupted

__all__ = ["facts_of"]


def facts_of(session: Any) -> Callable[[], dict[str, Any]]:
    """A function that tells what there is to know of a session, and keeps it from nothing.

    Args:
      session: a session, of whatever making.

    Returns:
      A function without arguments. It returns a dictionary: `asked`, the session's executor mode; `plans`, a list of
      dictionaries with fetches, feeds, executor, on_trial and seconds; `operations`, how many the graph has. The
      dictionary is empty for a session that is gone, or isn't a `fastsup.Session`.
    """
    from fastsup.runtime.runner import SessionRunner

    if not isinstance(session, SessionRunner):
        return dict
    reference = weakref.ref(session)

    def facts() -> dict[str, Any]:
        session: Any = reference()
        if session is None:
            return {}
        plans = [plan._asdict() for plan in session.executor_info()]
        with uninterrupted:
            operations = session.graph.version
        return {"asked": session.executor, "plans": plans, "operations": operations}

    return facts
