"""Names and modules of TensorFlow's own that it has moved: found where they were, until `uninstall`."""

from __future__ import annotations

from typing import Any


def test_every_name_of_the_tables(children: Any) -> None:
    found = children.of_source(
        """
        import importlib, json, sys
        import tensorflow as tf
        import fastsup, fastsup.train, fastsup.estimator
        from fastsup.compat.moved_names import MOVED
        from fastsup.compat.moved_names import PLACES

        def lacks(old):
            module = importlib.import_module(old)
            return [f"{old}.{name}" for name in PLACES[old] if not hasattr(module, name)]

        def is_absent(name):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                return True
            return False

        places = {place for names in PLACES.values() for place, _ in names.values()}
        for name in (*PLACES, *places, *MOVED.values()):
            if name and not name.startswith("tensorflow_estimator"):
                importlib.import_module(name)  # The import of a submodule sets an attribute of its package.
        before = {name: set(vars(module)) for name, module in sys.modules.items() if name.startswith("tensorflow")}

        def absent():
            return [name for old in PLACES for name in lacks(old)], [name for name in MOVED if is_absent(name)]

        counts = [len(names) for names in absent()]
        fastsup.install()
        during = absent()
        fastsup.uninstall()
        after = {name: set(vars(module)) for name, module in sys.modules.items() if name in before}
        changed = [name for name in before if before[name] != after.get(name)]
        left = [name for name in MOVED if name in sys.modules and not name.startswith("tf_keras")]
        again = [len(names) for names in absent()]
        print(json.dumps([counts, during, changed, left, again]))
        """
    )
    counts, during, changed, left, again = found
    assert counts[0] > 100
    assert counts[1] > 40
    assert during == [[], []]
    assert changed == []
    assert left == []
    assert again == counts


def test_as_libraries_use_them(children: Any) -> None:
    found = children.of_source(
        """
        import json
        import fastsup
        fastsup.install()
        import tensorflow.compat.v1 as tf
        from tensorflow.python.data.ops import dataset_ops
        from tensorflow.python.framework import ops
        from tensorflow.python.framework.ops import Tensor, register_dense_tensor_like_type
        from tensorflow.python.keras.layers import BatchNormalization, Dense
        from tensorflow.python.keras.preprocessing import sequence
        from tensorflow.python.ops import control_flow_ops, variables
        from tensorflow.python.tpu import tpu_config, tpu_estimator
        from tensorflow.python.training import distribution_strategy_context, training_ops
        from tensorflow.python.util import nest
        from tensorflow.python.util.tf_export import estimator_export
        from tensorflow.python.distribute import estimator_training

        assert not hasattr(ops, "no_such_name")
        try:
            register_dense_tensor_like_type(int)
        except TypeError as error:
            refused = str(error)
        try:
            estimator_training.train_and_evaluate(None, None, None, None)
        except NotImplementedError as error:
            no_coordinator = str(error)
        import tensorflow.python.keras.preprocessing.sequence as again
        print(json.dumps([
            isinstance(tf.constant(1), Tensor),
            variables.RefVariable is not None,
            BatchNormalization.__module__.partition(".")[0], Dense.__module__.partition(".")[0],
            again is sequence,
            tpu_config.TPUConfig.__module__, tpu_estimator.TPUEstimator.__module__,
            hasattr(training_ops, "apply_adam"), distribution_strategy_context.in_cross_replica_context(),
            [nest.is_sequence([1]), nest.is_sequence(1)],
            estimator_export("estimator.Mine")(int) is int,
            issubclass(dataset_ops.MapDataset, tf.data.Dataset.__mro__[1]),
            refused, no_coordinator, estimator_training.should_run_distribute_coordinator(tf.estimator.RunConfig()),
        ]))
        """
    )
    *values, refused, no_coordinator, distributed = found
    tpu = "fastsup.compat.tpu"
    assert values[:5] == [True, True, "tf_keras", "tensorflow", True]
    assert values[5].startswith(tpu)
    assert values[6].startswith(tpu)
    assert values[7:] == [True, False, [True, False], True, True]
    assert "does not define a `name` property" in refused
    assert "python -m fastsup docs cluster" in no_coordinator
    assert distributed is False


def test_names_of_numpy(children: Any) -> None:
    """TensorFlow 2.16 and later need a NumPy without the names that programs of its time used."""
    found = children.of_source(
        """
        import json
        import numpy as np
        import tensorflow as tf
        import fastsup, fastsup.estimator
        before = dict(vars(np))
        fastsup.install()
        during = [
            np.array(["a"], np.object).dtype == object,
            np.zeros(2).astype(np.int).dtype.kind,
            np.float(1), bool(np.bool(1)), float(np.float_(2)), np.string_("a") == b"a",
            int(np.product([2, 3])), bool(np.alltrue([1, 0])), bool(np.NINF < np.Inf), bool(np.isnan(np.NaN)),
            np.in1d([[1, 2]], [2]).tolist(), np.mat([[1]]).shape, float(np.trapz([1, 1])),
        ]
        types = np.sctypes
        during += [
            [kind.__name__ for kind in types["int"] + types["uint"]],
            [kind.__name__ for kind in types["float"][:3] + types["complex"][:2]],
            bool in types["others"], np.float32 in types["float"], np.dtype("int64").type in types["int"],
            np.asfarray([1, 2]).dtype.name, np.asfarray([1], np.float32).dtype.name, np.asscalar(np.array([3])),
            np.msort(np.array([[2, 1], [1, 2]])).tolist(), np.cast["f"]([1.5]).dtype.name, np.nbytes[np.int16],
            np.issubsctype(np.array([1.0]), np.floating), np.issctype(np.int32), np.issctype(3),
            np.obj2sctype("int32").__name__, np.obj2sctype(3, "none"), np.sctype2char(np.float32),
            np.find_common_type([np.float32], [np.int64]).name, np.find_common_type([np.int32], [np.float64]).name,
            np.find_common_type([np.int16, np.float32], []).name, np.maximum_sctype(np.int8).__name__,
            np.AxisError.__name__, np.VisibleDeprecationWarning.__name__, np.bool8 is np.bool_, np.math.sqrt(4),
            np.safe_eval("[1]"), [np.PZERO, np.NZERO], np.issubclass_(3, int),
        ]
        fastsup.uninstall()
        changed = [name for name in {**vars(np), **before} if vars(np).get(name) is not before.get(name)]
        print(json.dumps([during, changed, hasattr(np, "float"), hasattr(np, "unicode")]))
        """
    )
    during, changed, *left = found
    assert during[:13] == [True, "i", 1.0, True, 2.0, True, 6, False, True, True, [False, True], [1, 1], 1.0]
    integers = ["int8", "int16", "int32", "int64"]
    assert during[13:] == [
        integers + [f"u{name}" for name in integers], ["float16", "float32", "float64", "complex64", "complex128"],
        True, True, True, "float64", "float32", 3, [[1, 1], [2, 2]], "float32", 2, True, True, False, "int32", "none",
        "f", "float32", "float64", "float32", "int64", "AxisError", "VisibleDeprecationWarning", True, 2.0, [1],
        [0.0, -0.0], False,
    ]  # fmt: skip
    assert changed == []
    assert left == [False, False]


def test_names_of_python(children: Any) -> None:
    found = children.of_source(
        """
        import base64, collections, fractions, inspect, json, time, unittest
        import tensorflow as tf
        import fastsup, fastsup.estimator

        owners = [base64, collections, fractions, inspect, time, unittest.TestCase]
        before = [dict(vars(owner)) for owner in owners]
        fastsup.install()

        def plain(a, b=1, *c, **d): pass
        def keyword(a, *, b): pass

        spec = inspect.getargspec(plain)
        try:
            inspect.getargspec(keyword)
        except ValueError as error:
            refused = str(error)

        class Case(unittest.TestCase):
            def test(self):
                self.assertEquals(1, 1)
                with self.assertRaisesRegexp(KeyError, "x"):
                    raise KeyError("x")

        outcome = unittest.TextTestRunner().run(Case("test"))
        during = [
            list(spec), spec.keywords, isinstance({}, collections.Mapping), isinstance([], collections.Iterable),
            fractions.gcd(4, 6), base64.encodestring(b"a") == base64.encodebytes(b"a"), time.clock() <= time.clock(),
            outcome.wasSuccessful(),
        ]
        fastsup.uninstall()
        after = [dict(vars(owner)) for owner in owners]
        print(json.dumps([during, refused, before == after]))
        """
    )
    during, refused, undone = found
    assert during == [[["a", "b"], "c", "d", [1]], "d", True, True, 2, True, True, True]
    assert "keyword-only" in refused
    assert undone
