"""The checks of arguments that all layers share: numbers, ranges, intervals, lists of hooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsup import core
from fastsup.core.checks import check_flag, check_interval, check_members, check_number, check_range, is_number


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf"), True, np.float32(2)])
def test_a_number(value: Any) -> None:
    check_number("secs", value)
    assert is_number(value)


@pytest.mark.parametrize("value", ["1", None, [1], 1j, np.zeros(2)])
def test_no_number(value: Any) -> None:
    with pytest.raises(TypeError) as raised:
        check_number("secs", value, "a number of seconds")
    assert str(raised.value) == f"secs must be a number of seconds, got {value!r} of type {type(value).__name__}."


def test_a_string_is_no_number() -> None:
    assert not is_number("1")
    assert not is_number(None)


def test_a_range() -> None:
    check_range(3, lambda value: value > 2, "no number", "too small")
    with pytest.raises(ValueError, match=r"^too small$"):
        check_range(2, lambda value: value > 2, "no number", "too small")
    with pytest.raises(TypeError, match=r"^no number$"):
        check_range("2", lambda value: value > 2, "no number", "too small")


@pytest.mark.parametrize(("optional", "remedy"), [(True, ", or None to omit it."), (False, ".")])
def test_an_interval(optional: bool, remedy: str) -> None:
    check_interval("every_steps", 1, optional)
    with pytest.raises(ValueError) as raised:
        check_interval("every_steps", 0, optional)
    assert str(raised.value) == f"every_steps must be positive, got 0. Pass a positive number{remedy}"


class LoopOnly(core.Hook):
    """A hook of a StepLoop."""


def members(value: Any, error_type: type[Exception] = TypeError) -> list[Any]:
    return check_members(
        "hooks", value, lambda member: isinstance(member, int), "{cause}: {name}={value!r}", "no: {value}{hint}",
        error_type,
    )  # fmt: skip


def test_members() -> None:
    given = (1, 2)
    assert members(given) == [1, 2]
    assert members(iter(given)) == [1, 2]
    assert members(None) == members([]) == []


@pytest.mark.parametrize("error_type", [TypeError, ValueError])
def test_refused_members(error_type: type[Exception]) -> None:
    with pytest.raises(error_type, match=r"^'int' object is not iterable: hooks=5$"):
        members(5, error_type)
    with pytest.raises(error_type, match=r"^no: \{braces\}$"):
        members([1, "{braces}"], error_type)


def test_a_refused_class_is_named() -> None:
    with pytest.raises(TypeError, match=r"LoopOnly is a class: pass an object, LoopOnly\(\.\.\.\)\.$"):
        members([LoopOnly])


def test_the_end_of_a_sentence_without_a_hint() -> None:
    with pytest.raises(TypeError, match=r"^hooks has 'a'\.$"):
        check_members("hooks", ["a"], lambda member: False, "", "{name} has {value!r}{hint_or_stop}")


@pytest.mark.parametrize("value", [True, False])
def test_a_flag(value: Any) -> None:
    check_flag(stop=value)


@pytest.mark.parametrize("value", ["off", "no", "", None, [], 0.0, 1, 0])
def test_no_flag(value: Any) -> None:
    with pytest.raises(TypeError) as raised:
        check_flag(first=True, stop=value)
    assert str(raised.value) == f"stop must be True or False, got {value!r}."
