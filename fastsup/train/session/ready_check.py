"""Whether a model's variables are initialised, asked for by their flags alone.

The report that TensorFlow makes of what isn't initialised picks names by a mask, in a dozen operations, which every new
session compiles, twice: before the local variables are initialised and after. The mask's flags alone say as much where
all is well, and those of the second report answer for the first.
"""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import errors

_REPORTS_BY_MASK = ("GatherV2", "Squeeze", "Where", "Reshape", "LogicalNot", "Pack")
_FLAGS = frozenset({"VarIsInitializedOp", "IsVariableInitialized"})


class InitialisedFlags:
    """The flags behind two reports, as `tf.compat.v1.report_uninitialized_variables` and `Scaffold` make them.

    Args:
      ready_op: the report of all variables, or anything else that is used for one.
      ready_for_local_init_op: the report of those that have to be initialised first, or anything else, or None.
    """

    def __init__(self, ready_op: Any, ready_for_local_init_op: Any) -> None:
        self._of_all = _packed_flags(ready_op)
        self._of_first = _packed_flags(ready_for_local_init_op)
        # Where among the flags of all those of the first ones are.
        self._first_among_all: list[int] | None = None
        if self._of_all is not None and self._of_first is not None:
            place = {_asked_of(flag): i for i, flag in enumerate(_flags(self._of_all))}
            places = [place.get(_asked_of(flag)) for flag in _flags(self._of_first)]
            self._first_among_all = [i for i in places if i is not None]
            if len(self._first_among_all) < len(places):
                self._first_among_all = None

    def all_set(self, session: Any) -> bool:
        """Whether everything is known to be initialised. False also says that it isn't known."""
        return _all_true(session, self._of_all)

    def first_set(self, session: Any) -> bool:
        """Whether what has to be initialised first is known to be."""
        if self._first_among_all is None:
            return _all_true(session, self._of_first)
        values = _values(session, self._of_all)
        return values is not None and all(values[i] for i in self._first_among_all)


def _packed_flags(report: Any) -> list[Any] | None:
    """The vectors of flags that a report is empty for if all of them are true. None: it isn't such a report."""
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
    """The vector of flags whose false ones pick the names of a report; None if that isn't how it comes about."""
    *above, last = _REPORTS_BY_MASK
    for op_type in above:
        if part.op.type != op_type:
            return None
        # GatherV2 picks, from its first input, what its second one says.
        part = part.op.inputs[1 if op_type == "GatherV2" else 0]
    return part if part.op.type == last else None


def _flags(packed: list[Any]) -> list[Any]:
    return [flag for vector in packed for flag in vector.op.inputs]


def _asked_of(flag: Any) -> Any:
    """What a flag is about: equal for two flags of one variable."""
    return (flag.op.type, flag.op.inputs[0].name) if flag.op.type in _FLAGS else flag.name


def _values(session: Any, packed: list[Any] | None) -> list[bool] | None:
    if packed is None:
        return None
    try:
        return [bool(value) for vector in session.run(packed) for value in vector]
    except errors.FailedPreconditionError:
        return None  # The report fails too, and says more.


def _all_true(session: Any, packed: list[Any] | None) -> bool:
    values = _values(session, packed)
    return values is not None and all(values)
