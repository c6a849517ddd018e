"""One session of a Supervisor after the other: what goes on in the same files, and what begins again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture
def value(graph: Any) -> Any:
    return tf.constant(1.0)


# One session after the other.


@pytest.mark.parametrize("is_chief", [True, False])
def test_again_after_the_stop(impl: Any, value: Any, tmp_path: Any, is_chief: bool) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path), is_chief=is_chief)
    for _ in range(3):
        session = sv.prepare_or_wait_for_session()
        assert not sv.should_stop()
        assert session.run(value) == 1.0
        sv.stop()
        session.close()
        assert sv.should_stop()


def make_older(folder: Path) -> None:
    """Makes the events files ten seconds older, by their names: the next one of the same second gets another name."""
    for path in sorted(folder.glob("events.out.tfevents.*")):
        *before, second, machine = path.name.split(".", 4)
        path.rename(folder / ".".join([*before, str(int(second) - 10), machine]))


def summary() -> Any:
    v1.summary.scalar("c", tf.constant(2.0))
    return v1.summary.merge_all()


def test_writer_that_is_closed_in_between(impl: Any, graph: Any, tmp_path: Any, events: Any) -> None:
    """Every events file is complete in itself."""
    computed = summary()
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None)
    for _ in range(2):
        with sv.managed_session(start_standard_services=False, close_summary_writer=True) as session:
            sv.summary_computed(session, session.run(computed))
        make_older(tmp_path)
    assert events(tmp_path) == ["0:graph_def", "0:meta_graph_def", "0:c", "0:STOP"] * 2


def test_writer_that_is_kept(impl: Any, graph: Any, tmp_path: Any, events: Any) -> None:
    computed = summary()
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None)
    for _ in range(2):
        with sv.managed_session(start_standard_services=False, close_summary_writer=False) as session:
            sv.summary_computed(session, session.run(computed))
    sv.summary_writer.close()
    assert events(tmp_path) == ["0:graph_def", "0:meta_graph_def", "0:c", "0:c"]


def test_restart(impl: Any, tmp_path: Any, counting_step: Any, events: Any) -> None:
    """The next program goes on where the last checkpoint was, and doesn't initialise."""
    initialised: list[Any] = []

    def program(steps: int) -> list[int]:
        with tf.Graph().as_default():
            step = counting_step()
            sv = impl.train.Supervisor(logdir=str(tmp_path), init_fn=initialised.append, save_model_secs=0,
                                       save_summaries_secs=0)  # fmt: skip
            with sv.managed_session() as session:
                first = int(session.run(step.read))
                for _ in range(steps):
                    session.run(step.op)
                sv.saver.save(session, sv.save_path, global_step=sv.global_step)
                return [first, int(session.run(step.read))]

    assert program(3) == [0, 3]
    make_older(tmp_path)
    assert program(4) == [3, 7]
    make_older(tmp_path)
    assert program(1) == [7, 8]
    assert len(initialised) == 1
    assert [text for text in events(tmp_path) if "START" in text] == ["0:START", "3:START", "7:START"]


def test_restart_after_an_error(impl: Any, tmp_path: Any, counting_step: Any) -> None:
    """As the reference says: retried from the checkpoint when a worker was preempted."""

    def train_once(fail_at: int) -> int:
        with tf.Graph().as_default():
            step = counting_step()
            sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
            with sv.managed_session() as session:
                while (at := int(session.run(step.read))) < 10:
                    session.run(step.op)
                    if at + 1 == fail_at:
                        sv.saver.save(session, sv.save_path, global_step=sv.global_step)
                        raise tf.errors.AbortedError(None, None, "preempted")
                return at
        pytest.fail("It ends with a step, or with an error.")

    tries = iter([2, 6, 0])
    failures = 0
    while True:
        try:
            assert train_once(next(tries)) == 10
            break
        except tf.errors.AbortedError:
            failures += 1
    assert failures == 2


def test_other_graph_definition(impl: Any, tmp_path: Any) -> None:
    """A saver that came with an imported graph knows the operations by their names."""
    with tf.Graph().as_default():
        v1.get_variable("v0", initializer=1, use_resource=False)
        sv = impl.train.Supervisor(logdir=str(tmp_path))
        with sv.managed_session(start_standard_services=False) as session:
            path = sv.saver.save(session, sv.save_path)
    with tf.Graph().as_default():
        saver = v1.train.import_meta_graph(path + ".meta")
        sv = impl.train.Supervisor(logdir=str(tmp_path), saver=saver)
        with sv.managed_session(start_standard_services=False) as session:
            assert session.run("v0:0") == 1
            sv.saver.save(session, sv.save_path)


def test_summary_computed(impl: Any, graph: Any, counting_step: Any, tmp_path: Any, raw_events: Any) -> None:
    step = counting_step()
    computed = summary()
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None)
    as_text = v1.Summary(value=[v1.Summary.Value(tag="d", simple_value=1.0)])
    with sv.managed_session(start_standard_services=False) as session:
        session.run(step.op)
        sv.summary_computed(session, session.run(computed))
        sv.summary_computed(session, as_text)
        sv.summary_computed(session, as_text.SerializeToString(), global_step=7)
        with pytest.raises((TypeError, AttributeError)) as raised:
            sv.summary_computed(session, 5)
    assert "int" in str(raised.value)
    found = [(event.step, event.summary.value[0].tag) for event in raw_events(tmp_path) if event.HasField("summary")]
    assert found == [(1, "c"), (1, "d"), (7, "d")]
