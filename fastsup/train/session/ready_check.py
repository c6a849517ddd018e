"""A fast check that a model is ready: it fetches the initialisation flags of the variables, not the report of names.

TensorFlow's report of uninitialised variables selects names by a mask, in a dozen operations. Every new session
compiles two such reports: one for the variables that `local_init_op` needs, one for all. If every flag of the mask is
true the report is empty. The flags of the second report include those of the first, so one small fetch answers both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from tensorflow.python.framework import errors

__all__ = ["Readiness", "ReadyCheck", "explains_result_of"]

_REPORTS_BY_MASK = ("GatherV2", "Squeeze", "Where", "Reshape", "LogicalNot", "Pack")
_FLAGS = frozenset({"VarIsInitializedOp", "IsVariableInitialized"})


@contextlib.contextmanager
def explains_result_of(argument: str, operation: Any) -> Iterator[None]:
    """Explains an error about the result of a ready op: adds the op's argument and the result that it must have.

    Args:
      argument: name of the argument, `ready_op` or `ready_for_local_init_op`.
      operation: the op that was given for it.
    """
    try:
        yield
    except (AttributeError, TypeError) as error:
        raise type(error)(
            f"{error}. The result of {argument}={operation!r} must be an empty 1-D string tensor if the model is "
            "ready, else the names of the missing variables."
        ) from error


class Readiness(NamedTuple):
    """The state of a session's model.

    Args:
      local_init_done: whether the model was ready for `local_init_op`, which has then run.
      model_ready: whether the model is ready.
      missing_for_local_init: message about the variables that are missing for `local_init_op`, or None.
      missing: message about the variables that are missing in the model, or None.
    """

    local_init_done: bool
    model_ready: bool
    missing_for_local_init: Any
    missing: Any


class ReadyCheck:
    """Checks a model by the flags of its two reports of uninitialised variables.

    It knows the reports that `tf.compat.v1.report_uninitialized_variables` and `Scaffold` make. For any other op, or
    None, each check returns False, and the caller has to run the op.

    Args:
      ready_op: the report of all variables.
      ready_for_local_init_op: the report of the variables that `local_init_op` needs.
    """

    def __init__(self, ready_op: Any, ready_for_local_init_op: Any) -> None:
        self._flags = _packed_flags(ready_op)
        self._local_init_flags = _packed_flags(ready_for_local_init_op)
        # The positions of the flags for local_init_op among all flags; None if some of them aren't among those.
        self._local_init_positions: list[int] | None = None
        if self._flags is not None and self._local_init_flags is not None:
            position = {_flag_key(flag): i for i, flag in enumerate(_unpacked(self._flags))}
            keys = [_flag_key(flag) for flag in _unpacked(self._local_init_flags)]
            if all(key in position for key in keys):
                self._local_init_positions = [position[key] for key in keys]

    def is_ready(self, session: Any) -> bool:
        """Returns True if every variable is initialised. False if one isn't, or if the flags don't tell.

        Args:
          session: a session of the graph.
        """
        return _all_true(session, self._flags)

    def is_ready_for_local_init(self, session: Any) -> bool:
        """Returns True if every variable that `local_init_op` needs is initialised. False also if the flags don't tell.

        Args:
          session: a session of the graph.
        """
        if self._local_init_positions is None:
            return _all_true(session, self._local_init_flags)
        values = _values(session, self._flags)
        return values is not None and all(values[i] for i in self._local_init_positions)


def _packed_flags(report: Any) -> list[Any] | None:
    """Returns the vectors of flags of a report, which is empty if all flags are true; None for another kind of op."""
    op = getattr(report, "op", None)
    if op is None:
        return None
    # The last input of a ConcatV2 is the axis.
    parts = list(op.inputs)[:-1] if op.type == "ConcatV2" else [report]
    packed = []
    for part in parts:
        if part.op.type == "Const" and part.shape.num_elements() == 0:
            continue
        flags = _mask_of(part)
        if flags is None:
            return None
        packed.append(flags)
    return packed or None


def _mask_of(part: Any) -> Any:
    """Returns the vector of flags that selects the names of a report; None if the report is made in another way."""
    *above, last = _REPORTS_BY_MASK
    for op_type in above:
        if part.op.type != op_type:
            return None
        # The second input of GatherV2 has the indices.
        part = part.op.inputs[1 if op_type == "GatherV2" else 0]
    return part if part.op.type == last else None


def _unpacked(packed: list[Any]) -> list[Any]:
    return [flag for vector in packed for flag in vector.op.inputs]


def _flag_key(flag: Any) -> Any:
    """Returns a key that is equal for two flags of the same variable."""
    return (flag.op.type, flag.op.inputs[0].name) if flag.op.type in _FLAGS else flag.name


def _values(session: Any, packed: list[Any] | None) -> list[bool] | None:
    if packed is None:
        return None
    try:
        return [bool(value) for vector in session.run(packed) for value in vector]
    except errors.FailedPreconditionError:
        return None  # The report fails too, with the better message.


def _all_true(session: Any, packed: list[Any] | None) -> bool:
    values = _values(session, packed)
    return values is not None and all(values)
