"""`fastsup.install()` and `fastsup.uninstall()`: every name, in every module that has it, there and back."""

from __future__ import annotations

import textwrap
from typing import Any


def test_every_name_is_put_back(children: Any) -> None:
    found = children.of_source(
        """
        import json, sys
        import tensorflow as tf
        import tensorflow.compat.v1, tensorflow.python.training.training
        import fastsup, fastsup.train, fastsup.estimator, fastsup.compat.replaced_names

        def names():
            return {
                module: {name: id(value) for name, value in vars(content).items()} | {"dir()": dir(content)}
                for module, content in list(sys.modules.items())
                if module.partition(".")[0] == "tensorflow"
            }

        def changed(before, after):
            return sorted(module for module in before | after if before.get(module) != after.get(module))

        before, finders = names(), list(sys.meta_path)
        fastsup.install()
        fastsup.install()
        import tensorflow_estimator.python.estimator.training, tensorflow.python.estimator.run_config
        import tensorflow.estimator, tensorflow.compat.v1.estimator.export
        installed = changed(before, names())
        fastsup.uninstall()
        fastsup.uninstall()
        after = names()
        left = [name for name in sys.modules if name.startswith("tensorflow") and "estimator" in name]
        fastsup.install()
        again = tf.estimator.Estimator.__module__
        print(json.dumps([installed, changed(before, after), left, finders == sys.meta_path[1:], again]))
        """
    )
    installed, changed, left, finders_back, again = found
    training = {f"tensorflow.python.training.{name}" for name in (
        "basic_session_run_hooks", "evaluation", "monitored_session", "session_manager", "supervisor", "training",
    )}  # fmt: skip
    roots = {"tensorflow", "tensorflow._api.v2.compat.v1", "tensorflow._api.v2.compat.v2.compat.v1"}
    assert training | roots | {"tensorflow._api.v2.compat.v1.train"} <= set(installed)
    assert changed == []
    assert left == []
    assert finders_back
    assert again.startswith("fastsup.")


def test_every_copy_of_the_interface(children: Any) -> None:
    found = children.of_source(
        """
        import json, sys
        import fastsup
        fastsup.install()
        import tensorflow as tf
        import tensorflow.compat.v1 as one, tensorflow.compat.v2 as two
        import tensorflow.compat.v2.compat.v1 as nested
        from fastsup import train
        from fastsup.train.session.monitored_session import _MonitoredSession
        from tensorflow.python.training import monitored_session, supervisor, session_manager

        copies = [tf.compat.v1, tf.compat.v2.compat.v1, tf.compat.v1.compat.v1, one, nested]
        ours = [
            copy.Session is fastsup.Session
            and issubclass(copy.InteractiveSession, fastsup.Session)
            and all(
                getattr(copy.train, name) is getattr(train, name)
                for name in dir(tf.compat.v1.train) if name in train.__all__
            )
            for copy in copies
        ]
        estimators = [copy.estimator is tf.compat.v1.estimator for copy in copies]
        estimators += [copy.estimator is tf.estimator for copy in (two, tf.compat.v2, tf.compat.v1.compat.v2)]
        estimators.append(tf.estimator is not tf.compat.v1.estimator)
        private = [
            monitored_session._HookedSession is train.HookedSession,
            monitored_session._WrappedSession is train.WrappedSession,
            monitored_session._RecoverableSession is train.RecoverableSession,
            monitored_session._CoordinatedSession is train.CoordinatedSession,
            monitored_session._MonitoredSession is _MonitoredSession,
            supervisor.SVSummaryThread.__module__.startswith("fastsup."),
            session_manager.SessionManager is train.SessionManager,
            hasattr(session_manager, "_ready") and hasattr(session_manager, "_CountDownTimer"),
        ]
        print(json.dumps([ours, estimators, private]))
        """
    )
    for kind in found:
        assert all(kind), found


def test_what_the_program_had_before(children: Any) -> None:
    found = children.of_source(
        """
        import json, logging, sys
        import tensorflow as tf
        from tensorflow.compat.v1.train import MonitoredSession, SecondOrStepTimer, StopAtStepHook
        from tensorflow.python.training.monitored_session import MonitoredTrainingSession

        class Mine(MonitoredSession):
            pass

        class Timer(SecondOrStepTimer):
            pass

        kept = {"session": MonitoredSession, "function": MonitoredTrainingSession}
        import fastsup

        lifted = fastsup.function(lambda x: x + 1.0, fallback="raise")  # Its session isn't TensorFlow's own.
        lifted(1.0)
        tf.compat.v1.disable_eager_execution()
        step = tf.compat.v1.train.get_or_create_global_step()
        add = tf.compat.v1.assign_add(step, 1)
        open_session = tf.compat.v1.Session()
        open_session.run(tf.compat.v1.global_variables_initializer())
        said = []

        class Lines(logging.Handler):
            def emit(self, record):
                said.append([record.levelname, record.getMessage()])

        logging.getLogger("tensorflow").addHandler(Lines())
        fastsup.install()
        from fastsup import train

        def steps(session):
            with session:
                return [int(session.run(add)), type(session).__module__.partition(".")[0]]

        timer = Timer(every_steps=2)
        timer.update_last_triggered_step(1)
        results = {
            "open": int(open_session.run(add)),
            "derived": steps(Mine()),
            "kept": steps(kept["session"]()),
            "kept function": steps(kept["function"]()),
            "imported": [MonitoredSession is train.MonitoredSession, StopAtStepHook is train.StopAtStepHook],
            "timer": [timer.should_trigger_for_step(2), timer.should_trigger_for_step(3)],
        }
        fastsup.uninstall()
        results["after"] = [kept["session"] is MonitoredSession, steps(MonitoredSession())]
        print(json.dumps([results, [line for line in said if "fastsup" in line[1]]]))
        """
    )
    results, said = found
    assert results == {
        "open": 1,
        "derived": [1, "__main__"],
        "kept": [1, "tensorflow"],
        "kept function": [1, "fastsup"],
        "imported": [True, True],
        "timer": [False, True],
        "after": [True, [1, "tensorflow"]],
    }
    warnings = [text for level, text in said if level == "WARNING"]
    assert [text for level, text in said if level == "INFO"] == []  # TensorFlow logs these when it is asked to.
    assert len(warnings) == 3
    assert "derived from TensorFlow's earlier" in warnings[0]
    assert "__main__.Mine, __main__.Timer" in warnings[0]
    assert "1 TensorFlow sessions are open" in warnings[1]
    assert "__main__.MonitoredSession, __main__.MonitoredTrainingSession, __main__.SecondOrStepTimer" in warnings[2]


def test_names_that_the_program_replaces_meanwhile_are_kept(children: Any) -> None:
    found = children.of_source(
        """
        import json, logging
        import tensorflow as tf
        import fastsup
        from tensorflow.python.training import monitored_session
        said = []
        tf.get_logger().addFilter(lambda record: said.append(record.getMessage()) or True)
        fastsup.install()
        monitored_session.MonitoredSession = mine = object()
        fastsup.uninstall()
        theirs = tf.compat.v1.train.MonitoredSession.__module__
        print(json.dumps([monitored_session.MonitoredSession is mine, theirs, said[-1]]))
        """
    )
    assert found[:2] == [True, "tensorflow.python.training.monitored_session"]
    assert "tensorflow.python.training.monitored_session.MonitoredSession" in found[2]


def test_tensorflow_out_of_range(children: Any) -> None:
    found = children.of_source(
        """
        import json, sys
        import tensorflow as tf
        import fastsup
        before = list(sys.meta_path)
        said = []
        for version in ("2.15.1", "2.99.0-dev20260101", "1.15.0"):
            tf.__version__ = version
            try:
                fastsup.install()
            except ImportError as error:
                said.append(str(error))
        print(json.dumps([said, before == sys.meta_path, hasattr(tf, "estimator")]))
        """
    )
    said, finders_back, estimator = found
    assert len(said) == 3
    assert all("TensorFlow 2.16 to 2.22" in text for text in said)
    assert "2.15.1" in said[0]
    assert finders_back
    assert not estimator


def test_no_tensorflow(children: Any) -> None:
    blocked = """
        import sys
        class Absent:
            def find_spec(self, name, path, target=None):
                if name == "tensorflow":
                    raise ModuleNotFoundError("No module named 'tensorflow'", name=name)
        sys.meta_path.insert(0, Absent())
        import fastsup
        fastsup.install()
        """
    done = children.run("-c", textwrap.dedent(blocked), fresh=True)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
    assert "fastsup[cpu]" in done.stderr


def test_nothing_happens_by_an_import(children: Any) -> None:
    found = children.of_source(
        """
        import json, sys
        import fastsup
        light = fastsup.install, fastsup.uninstall
        fastsup.uninstall()
        imported = "tensorflow" in sys.modules
        import fastsup.compat.run, fastsup.compat.install
        later = "tensorflow" in sys.modules
        import tensorflow as tf
        import fastsup.train, fastsup.estimator
        own = tf.compat.v1.train.MonitoredSession.__module__
        with tf.Graph().as_default():
            tf.compat.v1.train.get_or_create_global_step()
            with fastsup.train.MonitoredTrainingSession() as session:
                is_one = isinstance(session, tf.compat.v1.train.MonitoredSession)
        print(json.dumps([imported, later, own.partition(".")[0], is_one, hasattr(tf, "estimator")]))
        """,
        fresh=True,
    )
    assert found == [False, False, "tensorflow", True, False]


def test_modules_that_were_moved(children: Any) -> None:
    """tf_keras.legacy_tf_layers is imported by TensorFlow itself, for the normalization of tf.compat.v1.layers."""
    found = children.of_source(
        """
        import importlib.util, json, sys
        import tensorflow as tf
        import fastsup

        def missing(name):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                return True
            return False

        names = ["tensorflow.python.training.tracking", "tf_keras.legacy_tf_layers.normalization"]
        before = [missing(name) for name in names]
        fastsup.install()
        from tensorflow.python.checkpoint import checkpoint
        from tensorflow.python.training.tracking import graph_view, tracking, util
        during = [graph_view.ObjectGraphView.__module__, util is checkpoint, hasattr(tracking, "AutoTrackable")]
        during.append(missing("tensorflow.python.training.tracking.nothing"))
        from tensorflow.python.layers import normalization
        during.append(issubclass(normalization.BatchNormalization, tf.Module))
        fastsup.uninstall()
        left = [name for name in sys.modules if "training.tracking" in name]
        print(json.dumps([before, [missing(name) for name in names], during, left]))
        """
    )
    before, after, during, left = found
    assert before == after
    assert before[0]
    assert during == ["tensorflow.python.checkpoint.graph_view", True, True, True, True]
    assert left == []


def test_the_names_of_tensorflow_1(children: Any) -> None:
    """`install(tf1=True)` is what `run --tf1` does."""
    found = children.of_source(
        """
        import json
        import fastsup
        fastsup.install(tf1=True)
        fastsup.install(tf1=True)
        import tensorflow as tf
        step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(3)]) as session:
            while not session.should_stop():
                last = int(session.run(step))
        names = [type(session).__module__, tf.estimator.Estimator.__module__, tf.contrib.learn.Experiment.__module__]
        fastsup.uninstall()
        import tensorflow
        try:
            fastsup.install(tf1=True)
        except RuntimeError as error:
            refused = str(error)
        print(json.dumps([last, names, hasattr(tensorflow, "placeholder"), refused]))
        """,
        fresh=True,
    )
    last, names, stays, refused = found
    assert last == 3
    assert all(name.startswith("fastsup.") for name in names), names
    assert not stays
    assert refused.startswith("install(tf1=True) must be called before tensorflow is imported")
