"""What is cached for each combination of fetches and feeds: within a limit, released, and never seen in a result."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import textwrap
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from processes import Processes
from tensorflow.python.ops import control_flow_util

tf1 = tf.compat.v1


def test_hits_and_misses(both: Any, graph: tf.Graph) -> None:
    a, b = tf.constant(1.5), tf.constant(2.5)
    x = tf1.placeholder(tf.float32)
    y = x * 2.0
    with both.fastsup.Session() as session:
        empty = {"hits": 0, "misses": 0, "left": 0, "currsize": 0, "bytes": 0, "max_bytes": 256 << 20}
        assert session.plan_cache_info()._asdict() == empty
        plans = 0
        for fetches, feeds in (
            (a, None),
            (b, {}),
            ([a], None),
            ((a,), None),
            ([a, b], None),
            ({"a": a}, None),
            ({"b": a}, None),
            (a.name, None),
            (a.op, None),
            (y, {x: 1.0}),
            ([y], {"Placeholder:0": 1.0}),
        ):
            plans += 1
            for runs in range(1, 4):
                session.run(fetches, feeds)
                info = session.plan_cache_info()
                assert (info.misses, info.currsize) == (plans, plans)
                assert info.hits == 2 * (plans - 1) + runs - 1
        for value in ([1.0, 2.0], np.ones([2, 3]), 5):
            session.run(y, {x: value})
        assert session.plan_cache_info().misses == plans


def test_plans_are_those_of_one_session(both: Any, graph: tf.Graph) -> None:
    a = tf.constant(1.5)
    with both.fastsup.Session() as first, both.fastsup.Session() as second:
        first.run(a)
        assert second.plan_cache_info().currsize == 0
        second.run(a)
        first.close()
        assert second.run(a) == 1.5


def runs_of(count: int) -> list[Any]:
    """So many different fetches of a graph of 12 constants, small ones first."""
    parts = [tf.constant(i) for i in range(12)]
    every = itertools.chain.from_iterable(itertools.combinations(parts, size) for size in range(1, 12))
    return [list(parts) for parts in itertools.islice(every, count)]


def value_of(fetches: list[Any]) -> list[int]:
    # Not tf.get_static_value(), which makes a tensor unfeedable: then all plans are made again.
    return [part.op.get_attr("value").int_val[0] for part in fetches]


def test_what_takes_turns_is_compiled_once(both: Any, graph: tf.Graph, compiled: list[bytes]) -> None:
    """However many combinations there are: one that comes back costs a run."""
    runs = runs_of(300)
    with both.fastsup.Session(executor="thread_pool") as session:
        for _ in range(6):
            for fetches in runs:
                assert session.run(fetches) == value_of(fetches)
        info = session.plan_cache_info()
    assert len(compiled) == 300
    assert info[:4] == (5 * 300, 300, 0, 300)
    assert 300 * 30_000 < info.bytes < info.max_bytes


def test_no_room(both: Any, graph: tf.Graph, room_for: Any, compiled: list[bytes]) -> None:
    """Past the limit, nothing is compiled in turns: TensorFlow's own executors run the rest, with the same results."""
    room_for(10)
    runs = runs_of(24)
    dice = random.Random(0)
    with both.fastsup.Session(executor="thread_pool") as session:
        for _ in range(20):
            for fetches in runs:
                assert session.run(fetches) == value_of(fetches)
        # In whatever order.
        for _ in range(1000):
            fetches = dice.choice(runs)
            assert session.run(fetches) == value_of(fetches)
        info = session.plan_cache_info()
    assert 4 <= len(compiled) <= 10
    assert info.currsize == len(compiled)
    assert info.hits + info.misses == 20 * 24 + 1000
    assert info.misses == info.left + info.currsize
    assert info.bytes <= info.max_bytes


def test_what_is_no_longer_run_makes_room(both: Any, graph: tf.Graph, room_for: Any, compiled: list[bytes]) -> None:
    room_for(6)
    first, second = [[tf.constant(float(i))] for i in range(6)], [[tf.constant(-float(i))] for i in range(6)]
    with both.fastsup.Session(executor="thread_pool") as session:
        for fetches in (*first, *first):
            session.run(fetches)
        assert len(compiled) == 6
        for _ in range(5):
            for fetches in second:
                session.run(fetches)
        assert len(compiled) == 6  # Perhaps the first ones come again.
        for _ in range(60):
            for number, fetches in enumerate(second):
                assert session.run(fetches) == [-number]
        assert len(compiled) == 12
        before = session.plan_cache_info()
        for number, fetches in enumerate(second):
            assert session.run(fetches) == [-number]
        assert session.plan_cache_info().hits == before.hits + 6
        for number, fetches in enumerate(first):
            assert session.run(fetches) == [number]
        assert session.plan_cache_info()[2:] == (before.left + 6, *before[3:])


def test_a_few_are_compiled_whatever_they_take(both: Any, graph: tf.Graph, room_for: Any) -> None:
    room_for(0.01)
    v = tf1.get_variable("v", initializer=0, use_resource=True)
    add, values = v.assign_add(1), [v, {"v": v}]
    with both.fastsup.Session() as session:
        session.run(v.initializer)
        for i in range(1, 30):
            assert session.run(add) == i
            assert session.run(values) == [i, {"v": i}]
        assert session.plan_cache_info().currsize == 3


def test_more_plans_than_may_be_held(both: Any, graph: tf.Graph, room_for: Any) -> None:
    """Beyond the limit of what isn't compiled, too, the results are those of Session.run."""
    room_for(10, plans=12)
    runs = runs_of(80)
    with both.fastsup.Session() as session:
        for _ in range(4):
            for fetches in runs:
                assert session.run(fetches) == value_of(fetches)
        info = session.plan_cache_info()
        assert info.hits + info.misses == 320
        assert info.left >= 320 - 4 * 12
        for _ in range(300):
            assert session.run(runs[-1]) == value_of(runs[-1])
        assert (
            session.plan_cache_info().hits > info.hits + 50
        )  # It has taken the place of a plan that is no longer run.


@pytest.mark.slow
@pytest.mark.parametrize("control_flow", ["cond", "function", "stateful"])
def test_what_calls_functions_is_compiled_once(
    both: Any, graph: tf.Graph, room_for: Any, compiled: list[bytes], monkeypatch: Any, control_flow: str
) -> None:
    """Callables that kernels refer to live as long as the session: no more are made than there is room for."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)
    x = tf1.placeholder(tf.float32, [])
    if control_flow == "cond":
        results = [tf.cond(x > float(i), lambda i=i: x + i, lambda i=i: x - i) for i in range(10)]
        expected = [float(5 + i if i < 5 else 5 - i) for i in range(10)]
    elif control_flow == "stateful":
        v = tf1.get_variable("v", initializer=5.0, use_resource=True)
        results = [tf.cond(x > float(i), lambda: v.assign_add(0.0) + x, lambda: v + x) for i in range(10)]
        expected = [10.0] * 10
    else:
        results = [tf.function(lambda n, i=i: n * 2.0 + i, autograph=False)(x) for i in range(10)]
        expected = [10.0 + i for i in range(10)]
    for room, most in ((100, 10), (8, 9)):
        room_for(room)
        compiled.clear()
        with both.fastsup.Session() as session:
            session.run(tf1.global_variables_initializer())
            compiled.clear()
            for _ in range(5):
                assert [session.run(result, {x: 5.0}) for result in results] == expected
            made = len(compiled)
            assert made <= most
            if room == 8 and session.plan_cache_info().left:
                assert made < 10
            session._drop_plans()  # As when a tensor becomes unfetchable.
            assert [session.run(result, {x: 5.0}) for result in results] == expected
            # There is room again for what was compiled first.
            assert len(compiled) <= made + 1 if control_flow == "stateful" else len(compiled) == 2 * made


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["single_threaded", "thread_pool"])
@pytest.mark.parametrize("stateful", [False, True])
def test_functions_of_plans_that_come_and_go(
    both: Any, graph: tf.Graph, room_for: Any, compiled: list[bytes], monkeypatch: Any, executor: str, stateful: bool
) -> None:
    """Each goes on calling its own, though callables get the addresses of others that were released."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)
    monkeypatch.setattr("fastsup.runtime.plans.STALE_ROUNDS", 1)
    room_for(20)
    x = tf1.placeholder(tf.float32, [])
    v = tf1.get_variable("v", initializer=0.0, use_resource=True)
    added = v.assign_add if stateful else tf.identity
    results = [tf.cond(x > 0.0, lambda i=i: added(0.0) + i, lambda i=i: added(0.0) - i) for i in range(8)]
    dice = random.Random(0)
    with both.fastsup.Session(executor=executor) as session:
        session.run(v.initializer)
        for phase in range(12):
            chosen = [dice.sample(range(8), dice.randint(1, 3)) for _ in range(3)]
            for _ in range(25):
                numbers = dice.choice(chosen)
                value = float(dice.choice([-1, 1]))
                expected = [value * i for i in numbers]
                assert session.run([results[i] for i in numbers], {x: value}) == expected, phase
        assert session.plan_cache_info().left > 0
    if not stateful:
        assert len(compiled) > 20


def test_the_order_of_feeds_makes_no_other_callable(both: Any, graph: tf.Graph, compiled: list[bytes]) -> None:
    placeholders = [tf1.placeholder(tf.int32, [], name=f"x{i}") for i in range(6)]
    total = tf.add_n([x * 10**i for i, x in enumerate(placeholders)])
    dice = random.Random(0)
    with both.fastsup.Session(executor="thread_pool") as session:
        for run in range(60):
            order = dice.sample(range(6), 6)
            feeds = {placeholders[i]: (i + run) % 9 + 1 for i in order}
            expected = sum(((i + run) % 9 + 1) * 10**i for i in range(6))
            assert session.run(total, feeds) == expected
            assert session.run([placeholders[3], total], feeds) == [(3 + run) % 9 + 1, expected]
            assert session.run({"total": total}, {x.name: value for x, value in feeds.items()}) == {"total": expected}
        info = session.plan_cache_info()
    assert len(compiled) == 1
    assert (info.hits, info.misses) == (177, 3)


def test_an_order_of_feeds_that_stays_costs_no_key(both: Any, graph: tf.Graph, monkeypatch: Any) -> None:
    """The order of the last run is the one that is expected."""
    x, y = tf1.placeholder(tf.int32, []), tf1.placeholder(tf.int32, [])
    difference = x - y
    with both.fastsup.Session(executor="thread_pool") as session:
        (plan,) = [session.run(difference, {x: 3, y: 1}), *session.cache.compiled_plans()][1:]
        assert [slot.tensor for slot in plan.feed_order] == [x, y]
        assert session.run(difference, {y: 1, x: 3}) == 2
        assert [slot.tensor for slot in plan.feed_order] == [y, x]
        assert session.run(difference, {y: 2, x: 3}) == 1


def test_functions_of_plans_without_room(both: Any, graph: tf.Graph, room_for: Any) -> None:
    """Plans that call functions of the graph, more than there is room for; each goes on calling its own."""
    x = tf1.placeholder(tf.int32, [], name="x")
    results = []
    for i in range(12):
        called = tf.function(lambda n, i=i: n * 100 + i, autograph=False)(x)
        chosen = tf1.cond(called > 250, lambda called=called: called, lambda called=called, i=i: -called - i)
        results.append(tf1.while_loop(lambda n: n < 50, lambda n, i=i: [n + 50 + i], [chosen]))

    def expected(n: int, i: int) -> int:
        n = n * 100 + i if n * 100 + i > 250 else -(n * 100 + i) - i
        while n < 50:
            n += 50 + i
        return n

    room_for(10)
    with both.fastsup.Session() as session:
        for run in range(60):
            i = run * 7 % 12
            assert session.run([results[i]], {x: run % 5}) == [expected(run % 5, i)]
            assert session.run(results[i - 1], {x: run % 5}) == expected(run % 5, (i - 1) % 12)
        assert session.plan_cache_info().left > 50


def test_evicted_plans_keep_nothing(both: Any, graph: tf.Graph, room_for: Any) -> None:
    """The objects that a plan stood for are freed with it, without the garbage collector."""
    indices, values, shape = tf.constant([[0]], tf.int64), tf.constant([1.5]), tf.constant([3], tf.int64)
    others = [tf.constant(i) for i in range(5)]
    room_for(4, plans=5)
    with both.fastsup.Session() as session:
        for _ in range(3):
            sparse = tf.SparseTensor(indices, values, shape)
            for _ in range(120):
                session.run([sparse])
                session.run(sparse)
            alive = weakref.ref(sparse)
            del sparse
            for _ in range(30):
                for other in others:
                    session.run(other)
            assert alive() is None


def test_mistakes_are_not_kept(both: Any, graph: tf.Graph) -> None:
    x = tf1.placeholder(tf.float32, [2], name="x")
    y = x + 1.0
    with both.fastsup.Session() as session:
        session.run(y, {x: [1.0, 2.0]})
        for i in range(50):
            for fetches, feeds in (
                (f"nothing{i}:0", None),
                ([y, None, i], {x: [1.0, 2.0]}),
                (y, {f"nothing{i}:0": 1.0}),
                (y, {x: [1.0] * (i + 3)}),
            ):
                with pytest.raises((TypeError, ValueError)):
                    session.run(fetches, feeds)
        assert session.plan_cache_info().currsize == 1


@pytest.mark.slow
def test_callables_are_released(both: Any, processes: Processes) -> None:
    """The runtime keeps a callable until it is released: counted in its own process, at the runtime's door.

    None may be released twice, nor after its session was closed.
    """
    program = """
        from collections import Counter

        import tensorflow as tf
        from tensorflow.python.client import pywrap_tf_session as runtime

        made, released, closed = set(), set(), set()
        make, release = runtime.TF_SessionMakeCallable, runtime.TF_SessionReleaseCallable
        close = runtime.TF_CloseSession

        opened = Counter()  # A session may get the place in memory of one that was closed.

        def counted_make(session, options):
            if id(session) in closed:
                closed.remove(id(session))
                opened[id(session)] += 1
            handle = make(session, options)
            made.add((id(session), opened[id(session)], handle))
            return handle

        def counted_release(session, handle):
            assert id(session) not in closed
            assert (id(session), opened[id(session)], handle) in made - released
            released.add((id(session), opened[id(session)], handle))
            return release(session, handle)

        def counted_close(session):
            closed.add(id(session))
            return close(session)

        runtime.TF_SessionMakeCallable = counted_make
        runtime.TF_SessionReleaseCallable = counted_release
        runtime.TF_CloseSession = counted_close

        import fastsup
        import fastsup.runtime.session

        fastsup.runtime.session._MAX_PLAN_BYTES = 8 * (30 << 10)
        fastsup.runtime.plans.STALE_ROUNDS = 1
        tf1 = tf.compat.v1
        sessions = []
        with tf.Graph().as_default():
            parts = [tf.constant(i) for i in range(20)]
            for executor in ("auto", "thread_pool", "inline"):
                made_before, released_before = len(made), len(released)
                session = fastsup.Session(executor=executor)
                sessions.append(session)
                for i in range(400):
                    assert session.run([parts[i % 20], parts[i * i % 17]]) == [i % 20, i * i % 17]
                    held = len(made) - made_before - (len(released) - released_before)
                    assert held <= 8, (executor, i, held)
                for _ in range(1000):
                    session.run(parts[0])
                function = session.make_callable([parts[0]])
                assert function() == [0]
                del function
                count = len(made) - made_before
                assert count > 20, count
                session.close()
                assert len(made) - made_before == len(released) - released_before, (executor, len(made), len(released))
            for _ in range(30):
                session = fastsup.Session()
                for part in parts:
                    session.run(part)
                del session
        print(len(made), len(released))
    """
    result = processes.python("-c", textwrap.dedent(program))
    assert result.returncode == 0, result.stderr
    made, released = map(int, result.stdout.split())
    assert made == released > 200


def in_use(watched: list[Any]) -> list[int]:
    """Memory blocks, and references to each of some objects, once the garbage is collected.

    None is immortal since Python 3.12. What is counted of it then depends on how each extension was compiled.
    """
    gc.collect()
    watched = [one for one in watched if one is not None or sys.version_info < (3, 12)]
    return [sys.getallocatedblocks(), *(sys.getrefcount(one) for one in watched)]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline"])
def test_runs_leave_nothing(both: Any, graph: tf.Graph, executor: str) -> None:
    x = tf1.placeholder(tf.float32, [2], name="x")
    y = tf.identity(x * 2.0)
    value, dictionary, nested = np.ones([2], np.float32), {x: np.zeros([2])}, [y, {"y": (y, y.op)}]
    watched = [x, y, value, dictionary, nested, None, y.op]
    with both.fastsup.Session(executor=executor) as session:

        def run_all() -> None:
            session.run(y, {x: value})
            session.run(nested, dictionary)
            session.run([y, x], {x: value})
            session.run({"y": y}, {"x:0": [1.0, 2.0]})
            session.run(y.op, dictionary)

        # More than it takes to choose an executor, and for Python 3.10 to give a function a cache: 1,024 calls.
        for _ in range(1100):
            run_all()
        differences = []
        for _ in range(3):
            before = in_use(watched)
            for _ in range(1000):
                run_all()
            after = in_use(watched)
            differences.append(max(abs(count - earlier) for earlier, count in zip(before, after, strict=True)))
    # A leak is in each round. A trial under way keeps its samples in one: some dozen for each plan.
    assert min(differences) < 300


def test_errors_leave_nothing(both: Any, graph: tf.Graph) -> None:
    x = tf1.placeholder(tf.int32, [], name="x")
    quotient = tf1.div(10, x)
    value = np.zeros([], np.int32)
    watched = [x, quotient, value, None]
    with both.fastsup.Session() as session:

        def fail() -> None:
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run([quotient], {x: value})
            with pytest.raises(ValueError, match="Cannot feed value of shape"):
                session.run([quotient], {x: [1, 2]})

        for _ in range(50):
            fail()
        before = in_use(watched)
        for _ in range(300):
            fail()
        after = in_use(watched)
    assert max(abs(count - earlier) for earlier, count in zip(before, after, strict=True)) < 250


def test_what_an_assignment_returns_has_a_plan(both: Any) -> None:
    """`session.run(variable.assign_add(1))` is a step like any other."""

    def values(session_class: Any) -> tuple[Any, Any]:
        with tf.Graph().as_default():
            count = tf1.get_variable("count", [], tf.int64, tf1.zeros_initializer(), use_resource=True)
            fetches = {
                "added": count.assign_add(2),
                "set": tf1.get_variable("v", [2], use_resource=True).assign([1.0, 2.0]),
            }
            with session_class() as session:
                session.run(tf1.global_variables_initializer())
                found = [session.run(fetches) for _ in range(3)]
                return [(type(each["added"]), each["added"], each["set"].tolist()) for each in found], session

    expected, _ = values(both.tensorflow.Session)
    found, session = values(both.fastsup.Session)
    assert found == expected
    assert [added for _, added, _ in found] == [2, 4, 6]
    assert session.plan_cache_info().hits == 2


def test_plans_of_the_same_run_share_what_is_compiled(both: Any, graph: tf.Graph, compiled: list[bytes]) -> None:
    a, b = tf.constant(1.5) * 2.0, tf.constant(2.5) * 2.0
    with both.fastsup.Session(executor="thread_pool") as session:
        assert session.run([a, b]) == [3.0, 5.0]
        assert session.run((a, b)) == (3.0, 5.0)
        assert session.run({"a": a, "more": [b]}) == {"a": 3.0, "more": [5.0]}
        assert session.run([b, a]) == [5.0, 3.0]
        assert session.run([a, b, a.op]) == [3.0, 5.0, None]
        assert len(compiled) == 2
