"""The rules by which the global step makes hooks due: never late, and early only by a question. Without TensorFlow."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import Processes

import fastsup

SOURCE = Path(__file__).parent / "step_rules"


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory, processes: Processes) -> Any:
    """The rules as Python functions, compiled against the fastsup that this process has."""
    folder = tmp_path_factory.mktemp("step_rules") / "project"
    shutil.copytree(SOURCE, folder)
    path = os.pathsep.join(filter(None, [str(Path(fastsup.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
    command = ["setup.py", "-q", "build_ext", "--inplace"]
    # A new interpreter: the compilation doesn't need the TensorFlow that forked processes have.
    done = processes.python(*command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, fresh=True)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(folder))
    try:
        import step_rules
    finally:
        sys.path.remove(str(folder))
    return step_rules


class Hook(NamedTuple):
    """When a hook is due, (run, step), and the questions that an after-run hook asks besides."""

    due: tuple[int | None, int | None]
    watches_stall: bool
    needs_true_step: bool


numbers = st.integers(0, 30)
hooks = st.builds(Hook, st.tuples(st.none() | numbers, st.none() | numbers), st.booleans(), st.booleans())
hook_lists = st.lists(hooks, min_size=1, max_size=5)


def earliest(group: list[Hook]) -> tuple[int | None, int | None]:
    axes = zip(*(hook.due for hook in group), strict=True)
    run, step = (min((due for due in axis if due is not None), default=None) for axis in axes)
    return run, step


@given(hook_lists, numbers, st.none() | numbers)
def test_any_hook_is_due_in_the_run_if_one_of_them_is(
    rules: Any, group: list[Hook], run: int, previous: int | None
) -> None:
    each = [rules.in_run(hook.due, run, previous) for hook in group]
    assert rules.in_run(earliest(group), run, previous) == any(each)


@given(hooks, numbers, st.none() | numbers)
def test_an_in_run_hook_is_due_on_the_step_that_it_foresaw(
    rules: Any, hook: Hook, run: int, previous: int | None
) -> None:
    by_run = hook.due[0] is not None and run >= hook.due[0]
    by_step = hook.due[1] is not None and (previous is None or previous + 2 >= hook.due[1])
    assert rules.in_run(hook.due, run, previous) == (by_run or by_step)


@given(hooks, numbers, numbers, numbers, st.integers(-1, 4))
def test_an_in_run_hook_is_due_in_the_run_that_reaches_its_step(
    rules: Any, hook: Hook, run: int, previous: int, before: int, delta: int
) -> None:
    by_run = hook.due[0] is not None and run >= hook.due[0]
    for by_coming_step, step in ((False, max(previous + 2, before + abs(delta))), (True, before + abs(delta))):
        by_step = hook.due[1] is not None and step >= hook.due[1]
        assert rules.in_run(hook.due, run, previous, before, delta, by_coming_step) == (by_run or by_step)
        assert rules.in_run(hook.due, run, None, before, delta, True) == (
            by_run or (hook.due[1] is not None and before + abs(delta) >= hook.due[1])
        )


@given(hook_lists, numbers, numbers, st.integers(0, 4))
def test_no_hook_is_due_in_an_idle_run(rules: Any, group: list[Hook], run: int, before: int, delta: int) -> None:
    due = earliest(group)
    idle = rules.idle(due, run, before, delta)
    assert idle >= 1

    def is_due(n: int) -> bool:
        """The coming run was asked about. `n` runs later, the step before a run and the one before that are counted."""
        return bool(rules.in_run(due, run + n, before + (n - 1) * delta, before + n * delta, delta))

    for n in range(1, min(idle, 40)):
        assert not is_due(n)
    if idle < 40 and delta > 0:
        assert is_due(idle) or is_due(idle + 1), "too early"


@given(hook_lists, st.data())
@settings(max_examples=400)
def test_an_after_run_hook_is_never_late(rules: Any, group: list[Hook], data: Any) -> None:
    """TensorFlow's hooks look at the step before the run plus 1, or at the true one, and then at the true one."""
    source = data.draw(st.sampled_from([rules.UNUSED, rules.COUNTED, rules.READ, rules.FETCHED]), "source")
    before, added, elsewhere = (data.draw(st.integers(0, most)) for most in (30, 4, 3))
    previous = data.draw(st.none() | st.integers(0, 30), "previous")
    run = data.draw(numbers, "run")
    after = before + added + elsewhere
    view = (run, previous, before, source, after if source == rules.COUNTED else None, elsewhere > 0)
    stalls = source != rules.UNUSED and before == previous
    each = []
    for hook in group:
        step = hook.due[1]
        acts = (hook.due[0] is not None and run >= hook.due[0]) or (hook.watches_stall and stalls)
        if step is not None and source != rules.UNUSED:
            acts = acts or (after >= step and (hook.needs_true_step or before + 1 >= step))
        needs_true_step = hook.needs_true_step and step is not None
        asked = rules.after_run(hook.due, hook.watches_stall, needs_true_step, *view)
        assert asked or not acts
        each.append(asked)
    any_stall = any(hook.watches_stall for hook in group)
    any_true_step = any(hook.needs_true_step and hook.due[1] is not None for hook in group)
    together = rules.after_run(earliest(group), any_stall, any_true_step, *view)
    assert together or not any(each)
    # Together they are asked in vain only for a hook that needs the true step.
    assert any(each) or not together or any_true_step


def test_nothing_is_due_where_nobody_waits(rules: Any) -> None:
    never = (None, None)
    assert not rules.in_run(never, 2**62, None)
    assert not rules.in_run(never, 2**62, 2**61)
    assert not rules.after_run(never, False, False, 2**62, 1, 2, rules.COUNTED, 3, True)
    assert rules.idle(never, 0, 0, 1) == rules.NEVER
