"""However the global step moves, the hooks that go by it do so on the same runs, with the same step, as TensorFlow's.

TensorFlow reads the global step in the run that increments it, in no given order. So each program here has its
increment wait for that read, under TensorFlow; under fastsup, with that and without.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


# Programs: each builds its ops, and gives what to do in the n-th run, from 0.


def plain(increment: Any) -> Callable[..., Any]:
    def program(env: Any) -> Any:
        op = env.add(increment)
        return lambda session, n: session.run(op)

    return program


def optimizer(env: Any) -> Any:
    weight = v1.get_variable("w", initializer=1.0)
    with env.after_read():
        op = v1.train.GradientDescentOptimizer(0.1).minimize(weight * weight, global_step=env.step.global_step)
    return lambda session, n: session.run([op, weight])


def conditional(env: Any) -> Any:
    wanted = v1.placeholder(tf.bool, [])
    step = env.step.global_step
    with env.after_read():
        now = tf.identity(wanted)
    op = tf.cond(now, lambda: v1.assign_add(step, 1).op, lambda: tf.no_op())
    return lambda session, n: session.run(op, {wanted: n % 3 != 1})


def fed(env: Any) -> Any:
    amount = v1.placeholder(tf.int64, [])
    op = env.add(amount)
    return lambda session, n: session.run(op, {amount: (0, 2, 1, 5)[n % 4]})


def fed_in_the_middle(env: Any) -> Any:
    """The increment is a constant, until a run feeds something else for it."""
    amount = tf.constant(1, tf.int64)
    op = env.add(amount)
    return lambda session, n: session.run(op, {amount: 4} if n in (2, 5) else None)


def fed_as_another_step(env: Any) -> Any:
    """What the hooks read the step from is fed, or the variable, whose value a hook of the program's own asks for."""
    op, value = env.add(1), v1.placeholder(tf.int64, [])
    variable = env.step.global_step if env.of_variable else env.step.read
    return lambda session, n: session.run(op, {3: {env.step.read: 100}, 5: {variable: 200}, 7: {value: 300}}.get(n))


def cut_off_by_a_feed(env: Any) -> Any:
    """A result that needs the increment, and is fed in some of the runs."""
    with tf.control_dependencies([env.add(1)]):
        result = tf.constant(1.0) + 0.0
    final = result + 1.0
    return lambda session, n: session.run(final, {result: 3.0} if n % 2 else None)


def a_variable_amount(env: Any) -> Any:
    amount = v1.get_variable("amount", initializer=tf.constant(1, tf.int64), trainable=False)
    op = env.add(amount.read_value())
    double = v1.assign(amount, amount * 2).op
    return lambda session, n: session.run(double if n == 3 else op)


def two_ops_in_a_run(env: Any) -> Any:
    first = env.add(1)
    with tf.control_dependencies([first]):
        second = env.add(2)
    return lambda session, n: session.run([first, second])


def two_ops_in_turn(env: Any) -> Any:
    ops = [env.add(1), env.add(5)]
    return lambda session, n: session.run(ops[n % 2])


def one_of_two_counts(env: Any) -> Any:
    ops = [env.add(1), tf.no_op(), env.add(1)]
    return lambda session, n: session.run(ops[n % 3])


def none_counts(env: Any) -> Any:
    return lambda session, n: session.run(env.summary)


def a_run_of_nothing(env: Any) -> Any:
    fetches = [env.add(1), [], tf.no_op()]
    return lambda session, n: session.run(fetches[n % 3])


def a_traced_run(env: Any) -> Any:
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    ops = [env.add(1), env.add(1), tf.no_op()]
    return lambda session, n: session.run(ops[n % 3], options=options if n % 3 == 1 else None)


def only_the_read(env: Any) -> Any:
    op = env.add(1)
    return lambda session, n: session.run(env.step.read if n % 2 else [op, env.step.read])


def assigned_by_the_raw_session(env: Any) -> Any:
    op, value = env.add(1), v1.placeholder(tf.int64, [])
    assign = v1.assign(env.step.global_step, value).op

    def run(session: Any, n: int) -> None:
        if n in (3, 6):
            env.raw.run(assign, {value: 20 if n == 3 else 4})
        session.run(op)

    return run


def assigned_by_a_hooked_run(env: Any) -> Any:
    op = env.add(1)
    with env.after_read():
        jump = v1.assign(env.step.global_step, 6).op
    return lambda session, n: session.run(jump if n in (2, 9) else op)


def set_by_a_restored_checkpoint(env: Any) -> Any:
    op, saver = env.add(1), v1.train.Saver([env.step.global_step])
    path = env.folder + "/mine"

    def run(session: Any, n: int) -> None:
        if n == 2:
            saver.save(env.raw, path)
        if n == 7:
            saver.restore(env.raw, path)
        session.run(op)

    return run


def moved_by_the_raw_session(env: Any) -> Any:
    op = env.add(1)

    def run(session: Any, n: int) -> None:
        if n % 3 == 1:
            env.raw.run(op)
        session.run(op)
        if n % 3 == 1:
            env.raw.run(op)

    return run


def moved_by_a_callable(env: Any) -> Any:
    op, made = env.add(1), []

    def run(session: Any, n: int) -> None:
        if not made:
            made.append(env.raw.make_callable(op))
        if n % 4 == 1:
            made[0]()
        session.run(op)

    return run


def moved_by_a_thread(env: Any) -> Any:
    op = env.add(1)

    def run(session: Any, n: int) -> None:
        if n % 2:
            thread = threading.Thread(target=lambda: [env.raw.run(op) for _ in range(2)])
            thread.start()
            thread.join()
        session.run(op)

    return run


def fails_after_the_increment(env: Any) -> Any:
    op, fine = env.add(1), v1.placeholder(tf.bool, [])
    with tf.control_dependencies([op]):
        check = tf.raw_ops.Assert(condition=fine, data=["the step is bad"])
    return lambda session, n: env.failing(session, [op, check], {fine: n % 3 != 1})


def fails_before_the_increment(env: Any) -> Any:
    fine = v1.placeholder(tf.bool, [])
    check = tf.raw_ops.Assert(condition=fine, data=["the step is bad"])
    with tf.control_dependencies([check]):
        op = env.add(1)
    return lambda session, n: env.failing(session, op, {fine: n % 3 != 1})


def within_a_loop(env: Any) -> Any:
    def body(i: Any) -> Any:
        with tf.control_dependencies([v1.assign_add(env.step.global_step, 1)]):
            return i + 1

    times = v1.placeholder(tf.int64, [])
    with env.after_read():
        start = tf.constant(0, tf.int64) + 0
    (op,) = tf.nest.flatten(tf.while_loop(lambda i: i < times, body, [start]))
    return lambda session, n: session.run(op.op, {times: n % 3})


def within_a_function(env: Any) -> Any:
    @tf.function
    def advance() -> Any:
        return env.step.global_step.assign_add(2)

    with env.after_read():
        op = advance().op
    return lambda session, n: session.run(op)


def twice_within_functions(env: Any) -> Any:
    @tf.function
    def advance_by_two() -> None:
        env.step.global_step.assign_add(2)

    @tf.function
    def advance() -> Any:
        advance_by_two()
        return env.step.global_step.assign_add(1)

    with env.after_read():
        op = advance().op
    return lambda session, n: session.run(op)


def conditional_within_a_function(env: Any) -> Any:
    @tf.function
    def advance(n: Any) -> Any:
        if n % 2 == 0:
            env.step.global_step.assign_add(2)
        return n

    number = v1.placeholder(tf.int64, [])
    with env.after_read():
        op = advance(number).op
    return lambda session, n: session.run(op, {number: n})


def backwards(env: Any) -> Any:
    op, back = env.add(2), env.add(-3)
    return lambda session, n: session.run(back if n % 4 == 3 else op)


def any_amount(env: Any) -> Any:
    """Adds another amount in each run, which nothing but the run tells."""
    runs = v1.get_variable("runs", initializer=0, trainable=False)
    with env.after_read():
        number = tf.identity(runs)
        with tf.control_dependencies([number]):
            counted = v1.assign_add(runs, 1).op
        with tf.control_dependencies([counted]):
            op = env.add(tf.gather(tf.constant([0, 2, 7, 1, 1, 5], tf.int64), number % 6))
    return lambda session, n: session.run(op)


PROGRAMS = [
    plain(1), plain(3), plain(7), plain(-2), any_amount,
    optimizer, conditional, fed, fed_in_the_middle, fed_as_another_step, cut_off_by_a_feed,
    a_variable_amount, two_ops_in_a_run, two_ops_in_turn, one_of_two_counts, none_counts, a_run_of_nothing,
    a_traced_run, only_the_read, assigned_by_the_raw_session, assigned_by_a_hooked_run, set_by_a_restored_checkpoint,
    moved_by_the_raw_session, moved_by_a_callable, moved_by_a_thread, fails_after_the_increment,
    fails_before_the_increment, within_a_loop, within_a_function, twice_within_functions,
    conditional_within_a_function, backwards,
]  # fmt: skip
NAMES = ["by 1", "by 3", "by 7", "by -2", *(program.__name__.replace("_", " ") for program in PROGRAMS[4:])]


def supported(program: Any) -> None:
    if program.__name__.endswith(("within_a_function", "within_functions")) and not v1.resource_variables_enabled():
        pytest.skip("a tf.function takes no reference variable")


@pytest.mark.diagonal
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_fires_as_tensorflow_does(both: Any, fire: Any, program: Any, make_hooks: Any) -> None:
    supported(program)
    assert fire(both.fastsup, program, make_hooks) == fire(both.tensorflow, program, make_hooks)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_needs_no_order_for_it(both: Any, fire: Any, program: Any, make_hooks: Any) -> None:
    """The step that hooks get is that before the run, in whatever order the runtime has it."""
    supported(program)
    assert fire(both.fastsup, program, make_hooks, ordered=False) == fire(both.tensorflow, program, make_hooks)


def moved_by_a_hook(env: Any) -> Any:
    """Another thread moves the step after each second run."""
    op, runs = env.add(2), []

    def after_run(*_: Any) -> None:
        runs.append(1)
        if len(runs) % 2:
            thread = threading.Thread(target=env.raw.run, args=[op])
            thread.start()
            thread.join()

    env.hooks.append(env.recorder("moves", after_run=after_run))
    return lambda session, n: session.run(op)


LOOPS = {
    "by 1": plain(1), "by 2": plain(2), "by 7": plain(7), "by -2": plain(-2),
    "by a thread": moved_by_a_hook, "by two ops": two_ops_in_a_run, "by any amount": any_amount,
}  # fmt: skip


@pytest.mark.diagonal
@pytest.mark.parametrize("program", LOOPS.values(), ids=LOOPS)
def test_a_loop_fires_as_tensorflows_runs_do(both: Any, fire_in_loop: Any, program: Any, make_hooks: Any) -> None:
    expected = fire_in_loop(both.tensorflow, program, make_hooks)
    assert fire_in_loop(both.fastsup, program, make_hooks) == expected
    assert fire_in_loop(both.fastsup, program, make_hooks, ordered=False) == expected


@pytest.mark.parametrize(("increment", "last_step", "end"), [(7, 30, 42), (7, 29, 35), (2, 9, 10), (2, 10, 12)])
def test_where_a_loop_stops(impl: Any, fire_in_loop: Any, increment: int, last_step: int, end: int) -> None:
    """The hook decides by the step before the run plus 1, however much the run adds."""
    trace = fire_in_loop(impl, plain(increment), lambda train, env: [train.StopAtStepHook(last_step=last_step)])
    assert trace == [f"ended at {end}:"]


@pytest.mark.slow
def test_is_known_though_one_of_its_tensors_is_fed(both: Any, fire: Any, make_hooks: Any) -> None:
    """A run that is fed the variable's value still has the step before it, and the other way round."""

    def program(env: Any) -> Any:
        if not env.ordered:
            env.read_last()
        return fed_as_another_step(env)

    expected = fire(both.tensorflow, fed_as_another_step, make_hooks)
    assert fire(both.fastsup, program, make_hooks, ordered=False) == expected
