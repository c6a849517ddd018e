"""What users see of the package: dir(), signatures, help, the version, and names of tf.estimator that aren't there."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import platform
import pydoc
import re
from typing import Any

import pytest
from processes import Processes

import fastsup

PACKAGES = [
    "fastsup",
    "fastsup.contrib",
    "fastsup.contrib.learn",
    "fastsup.contrib.learn.monitors",
    "fastsup.contrib.training",
    "fastsup.core",
    "fastsup.estimator",
    "fastsup.estimator.experimental",
    "fastsup.estimator.export",
    "fastsup.estimator.inputs",
    "fastsup.experiment",
    "fastsup.experiment.learn_runner",
    "fastsup.keras",
    "fastsup.loop",
    "fastsup.profile",
    "fastsup.train",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_shows_what_is_public(package: str) -> None:
    module = importlib.import_module(package)
    shown = dir(module)
    assert set(module.__all__) <= set(shown)
    assert all(hasattr(module, name) for name in shown)
    more = set(shown) - set(module.__all__)
    if package == "fastsup":
        assert more == {"__version__"}
    elif package == "fastsup.train":
        import tensorflow as tf

        assert more == {name for name in dir(tf.compat.v1.train) if not name.startswith("_")} - set(module.__all__)
        assert {"AdamOptimizer", "get_or_create_global_step"} <= more
    else:
        assert not more


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_signature_and_help(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value) or not callable(value):
            continue
        if not (inspect.isclass(value) and issubclass(value, Exception)):
            arguments = inspect.signature(value).parameters.values()
            anything = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
            assert {argument.kind for argument in arguments} != anything, f"{package}.{name}"
        assert inspect.getdoc(value), f"{package}.{name}"
        assert name in pydoc.render_doc(value)


@pytest.mark.parametrize("package", ["fastsup", "fastsup.keras", "fastsup.loop"])
def test_the_error_about_a_misspelt_keyword_proposes_the_right_one(package: str) -> None:
    module = importlib.import_module(package)
    tried = 0
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value) or (inspect.isclass(value) and issubclass(value, (Exception, tuple))):
            continue
        parameters = inspect.signature(value).parameters.values()
        own = [each.name for each in parameters if each.default is not each.empty]
        if name != "function" and any(each.kind is each.VAR_KEYWORD for each in parameters):
            continue  # They are those of the program's own step.
        required = [len for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        for keyword in own:
            with pytest.raises(TypeError, match=rf"{keyword}x'\. Did you mean '{keyword}'\?"):
                value(*required, **{f"{keyword}x": None})
            tried += 1
    assert tried >= 5


def test_an_error_in_the_function_proposes_no_keyword() -> None:
    with pytest.raises(TypeError, match=r"^secs must be a number, got 'a' of type str\.$"):
        fastsup.loop.every(secs="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^every\(\) got an unexpected keyword argument 'zzz'$"):
        fastsup.loop.every(zzz=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^function\(\) got .* 'jit_compil'\. Did you mean 'jit_compile'\?$"):
        fastsup.function(len, jit_compil=True)


def test_a_reason_has_one_of_two_names() -> None:
    """Why something isn't fast, in all public classes."""
    found = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for kind in filter(inspect.isclass, (getattr(module, name) for name in module.__all__)):
            members = {*dir(kind), *getattr(kind, "__annotations__", {})}
            found |= {member for member in members if re.match("why|reason|fallback_reason", member)}
    assert found == {"why_not_lifted", "why_not_fused"}


def test_signatures_of_compiled_classes() -> None:

    expected = {
        fastsup.core.StepLoop: "(step, hooks=(), max_steps=None, initial_step=0, profiler=None, *, steps=None)",
        fastsup.core.NativeHook: "(function, every_steps=None, every_secs=None, context=None)",
        fastsup.core.SecondOrStepTimer: "(every_secs=None, every_steps=None)",
        fastsup.core.Hook: "()",
    }
    assert {kind: str(inspect.signature(kind)) for kind in expected} == expected

    class Mine(fastsup.core.StepLoop):
        def __init__(self, name: str) -> None:
            super().__init__(int)

    assert str(inspect.signature(Mine)).startswith("(name")
    # The signature isn't a part of the text.
    assert inspect.getdoc(fastsup.core.StepLoop).startswith("Calls a step function")  # type: ignore[union-attr]


def test_the_version(processes: Processes) -> None:
    result = processes.python("-X", "importtime", "-m", "fastsup", "--version", check=True)
    import tensorflow as tf

    python, version = platform.python_version(), importlib.metadata.version("fastsup")
    tensorflow = tf.__version__.replace("-rc", "rc")  # As the installed package has it.
    assert result.stdout == f"fastsup {version} (TensorFlow {tensorflow}, Python {python})\n"
    assert not re.search(r"\| +tensorflow$", result.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("estimator.BoostedTreesClassifier", "fastsup.estimator has no BoostedTreesClassifier: TensorFlow 2.15"),
        ("estimator.DNNWithLayerAnnotationsClassifier", "`python -m fastsup docs estimator`"),
        ("estimator.KMeans", "use fastsup.estimator.experimental.KMeans"),
        ("estimator.tpu", "TPUs aren't supported"),
        ("estimator.ServingInputReceiver", "use fastsup.estimator.export.ServingInputReceiver"),
        ("experiment.DNNClassifier", "fastsup.experiment has no DNNClassifier: use fastsup.estimator.DNNClassifier"),
        ("experiment.RunConfig", "fastsup.experiment has no RunConfig: use fastsup.estimator.RunConfig"),
        ("contrib.slim", "fastsup.contrib has no slim: use the package tf_slim (pip install tf_slim)"),
        ("contrib.learn.DNNClassifier", "tf.estimator's models of the same name"),
        ("contrib.training.bucket_by_sequence_length", "use tf.data.Dataset.bucket_by_sequence_length"),
        ("contrib.learn.nonsense", "module 'fastsup.contrib.learn' has no attribute 'nonsense'"),
        ("estimator.nonsense", "module 'fastsup.estimator' has no attribute 'nonsense'"),
    ],
)
def test_absent_names_say_where_to_go(path: str, text: str) -> None:
    folder, _, name = path.rpartition(".")
    module: Any = importlib.import_module(f"fastsup.{folder}")
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert text in str(raised.value)
    assert not hasattr(module, name)
    assert raised.value.name == name
