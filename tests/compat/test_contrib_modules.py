"""`tensorflow.contrib` after `install()`: what each name is, what is refused, and how it goes away."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fastsup
from fastsup.compat.contrib_modules import CONTRIB, LIBRARY_MODULES, MODULES


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    fastsup.install()
    try:
        yield
    finally:
        fastsup.uninstall()


def contrib(name: str) -> Any:
    return importlib.import_module(f"{CONTRIB}.{name}".rstrip("."))


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_there(name: str) -> None:
    module = contrib(name)
    of_slim = {short for short, path in MODULES[name].items() if path.startswith("tf_slim.")}
    if of_slim:
        pytest.importorskip("tf_slim")
    for short in MODULES[name]:
        assert getattr(module, short) is not None, short
    assert set(MODULES[name]) <= set(dir(module))
    assert module.__all__ == sorted(MODULES[name])


@pytest.mark.parametrize("name", LIBRARY_MODULES)
def test_modules_of_tf_slim(name: str) -> None:
    pytest.importorskip("tf_slim")
    assert contrib(name) is importlib.import_module(LIBRARY_MODULES[name])


def test_what_programs_import() -> None:
    pytest.importorskip("tf_slim")
    namespace: dict[str, Any] = {}
    exec(
        "import tensorflow.contrib.slim as slim\n"
        "from tensorflow.contrib import layers, learn\n"
        "from tensorflow.contrib.framework import arg_scope, get_variables, nest\n"
        "from tensorflow.contrib.framework.python.ops import add_arg_scope\n"
        "from tensorflow.contrib.framework.python.ops import arg_scope as of_ops\n"
        "from tensorflow.contrib.framework.python.ops.arg_scope import arg_scope as of_module\n"
        "from tensorflow.contrib.layers import xavier_initializer\n"
        "from tensorflow.contrib.layers.python.layers import initializers\n"
        "from tensorflow.contrib.learn import *\n"
        "from tensorflow.contrib.learn import learn_runner, monitors\n"
        "from tensorflow.contrib.slim.nets import resnet_v1\n"
        "from tensorflow.contrib.slim.python.slim.learning import train_step\n"
        "from tensorflow.contrib.tpu.python.tpu import tpu_config\n"
        "from tensorflow.contrib.training.python.training.hparam import HParams\n",
        namespace,
    )
    slim = namespace["slim"]
    assert namespace["arg_scope"] is namespace["of_ops"] is namespace["of_module"] is slim.arg_scope
    assert namespace["train_step"] is slim.learning.train_step
    assert namespace["xavier_initializer"] is namespace["initializers"].xavier_initializer
    assert namespace["Experiment"] is fastsup.experiment.Experiment
    assert namespace["learn_runner"] is fastsup.experiment.learn_runner
    assert namespace["HParams"] is fastsup.contrib.training.HParams
    assert namespace["tpu_config"].RunConfig is contrib("tpu").RunConfig
    assert namespace["monitors"].EveryN is fastsup.contrib.learn.monitors.EveryN
    assert slim.learning.supervisor.Supervisor is fastsup.train.Supervisor


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "learn.DNNClassifier",
            "tf.contrib.learn has no DNNClassifier: fastsup doesn't have contrib.learn's canned models",
        ),
        ("learn.SVM", "write a model_fn for tf.estimator.Estimator"),
        ("layers.real_valued_column", "Use tf.feature_column's"),
        ("training.bucket_by_sequence_length", "use tf.data.Dataset.bucket_by_sequence_length"),
        ("seq2seq", "tensorflow-addons"),
        ("rnn.UGRNNCell", "tensorflow-addons"),
        ("nonsense", "tf.contrib has no nonsense: tf.contrib ended with TensorFlow 1"),
        ("framework.nonsense", "tf_slim"),
        ("keras", "use tf.keras"),
        ("tensorboard", "tensorboard.plugins.projector"),
        ("estimator.clip_gradients_by_norm", "tf.clip_by_global_norm"),
        ("estimator.forward_features", "add the features to `predictions` in the model_fn"),
        ("estimator.multi_head", "use tf.estimator.MultiHead"),
        ("estimator.replicate_model_fn", "train_distribute=tf.distribute.MirroredStrategy()"),
        ("estimator.TowerOptimizer", "leave the model_fn and its optimizer as they are"),
        ("estimator.multi_class_head", "MultiClassHead"),
        ("estimator.DNNEstimator", "tf.compat.v1.estimator's of the same name"),
    ],
)
def test_what_is_absent_says_where_to_go(path: str, text: str) -> None:
    folder, _, name = path.rpartition(".")
    module = contrib(folder)
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert text in str(raised.value)
    assert str(raised.value).endswith("See `python -m fastsup docs migrating`.")
    assert raised.value.name == name
    assert not hasattr(module, name)
    with pytest.raises(ImportError) as refused:
        exec(f"from {module.__name__} import {name}")
    assert text in str(refused.value)
    if not folder:
        with pytest.raises(ModuleNotFoundError, match=f"No module named 'tensorflow.contrib.{name}'"):
            contrib(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tensorflow.contrib.learn.python.learn.datasets.mnist", "use tf.data, scikit-learn"),
        ("tensorflow.examples.tutorials.mnist", "use tf.keras.datasets.mnist"),
    ],
)
def test_data_of_tutorials(name: str, text: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=text):
        importlib.import_module(name)


def test_without_tf_slim(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastsup.compat import contrib_modules

    monkeypatch.setattr(contrib_modules, "_has_slim", lambda: False)
    for name in [name for name in sys.modules if name.startswith(f"{CONTRIB}.")]:
        monkeypatch.delitem(sys.modules, name)
    module = importlib.import_module(CONTRIB)
    monkeypatch.delitem(vars(module), "slim", raising=False)
    monkeypatch.delitem(vars(module), "layers", raising=False)
    text = "it is in the package tf_slim: pip install tf_slim"
    for path in ("slim", "slim.learning", "layers.python.layers"):
        with pytest.raises(ModuleNotFoundError, match=text):
            contrib(path)
    assert not hasattr(module, "slim")
    with pytest.raises(ImportError, match=text):
        exec("from tensorflow.contrib import slim")
    with pytest.raises(AttributeError, match=text):
        _ = contrib("layers").fully_connected
    with pytest.raises(AttributeError, match=text):
        _ = contrib("framework").arg_scope
    assert contrib("framework").get_or_create_global_step is not None
    # What this test has made goes with it.
    for name in [name for name in sys.modules if name.startswith(f"{CONTRIB}.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("framework", "layers"):
        vars(module).pop(name, None)


def test_it_goes_with_the_installation(children: Any) -> None:
    found = children.of_source(
        """
        import json, sys
        import tensorflow as tf
        import fastsup
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import control_flow_ops

        before = hasattr(tf, "contrib"), hasattr(ops, "Tensor"), hasattr(control_flow_ops, "cond")
        fastsup.install()
        # The program's own `tf` is TensorFlow 2, which has no contrib until it is imported.
        during = [hasattr(tf, "contrib"), hasattr(ops, "Tensor"), hasattr(control_flow_ops, "cond")]
        import tensorflow.contrib.learn
        import tensorflow.contrib.slim.nets
        during += [tf.contrib.learn.Experiment is fastsup.experiment.Experiment, ops.Tensor is tf.Tensor]
        fastsup.uninstall()
        after = hasattr(tf, "contrib"), hasattr(ops, "Tensor"), hasattr(control_flow_ops, "cond")
        left = [name for name in sys.modules if name.startswith("tensorflow.contrib")]
        try:
            import tensorflow.contrib
        except ModuleNotFoundError as error:
            left.append(str(error))
        import tf_slim
        print(json.dumps([before == after, during, left]))
        """
        if importlib.util.find_spec("tf_slim")
        else pytest.skip("without tf_slim")
    )
    same, during, left = found
    assert same
    assert during == [False, True, True, True, True]
    assert left == ["No module named 'tensorflow.contrib'"]


def test_no_module_of_contrib_without_installation(children: Any, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import fastsup.contrib\nimport tensorflow.contrib")
    done = children.run(script)
    assert done.returncode == 1
    assert "No module named 'tensorflow.contrib'" in done.stderr


def test_the_guide_has_every_name() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    section = guide[guide.index("## tf.contrib") : guide.index("## What you may have to change")]
    for module in (fastsup.contrib.learn, fastsup.contrib.learn.monitors, fastsup.contrib.training):
        assert [name for name in module.__all__ if f"`{name}`" not in section and f"`{name}" not in section] == []
    modules = {name.partition(".")[0] for name in MODULES} - {""}
    assert [name for name in modules if f"`contrib.{name}`" not in section] == []
