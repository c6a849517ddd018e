"""`tf.estimator` and tensorflow_estimator after `install()`, name by name, against those of 2.15."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fastsup
from fastsup.compat.estimator_modules import MODULES
from fastsup.estimator.canned.archive import EXPERIMENTAL, V1, V2, is_installed

# The public names of tensorflow-estimator 2.15 (version 1 of the interface): parameters of the constructor or function,
# "()", and of the public methods, each with the text of its default. null: a property.
NAMES = {
    "compat.v1.estimator": json.loads(Path(__file__).with_name("estimator_2_15.json").read_text()),
    # The same for version 2 of the interface, `tf.estimator`.
    "estimator": json.loads(Path(__file__).with_name("estimator_2_15_v2.json").read_text()),
}
# What isn't there, and says so.
ABSENT = "tpu.experimental.EmbeddingConfigSpec"
CANNED = {*V1, *V2, *(f"experimental.{name}" for name in EXPERIMENTAL)}
canned_only = pytest.mark.skipif(not is_installed(), reason="the extra fastsup[canned] is not installed")


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    fastsup.install()
    try:
        yield
    finally:
        fastsup.uninstall()


def api(module: str, name: str) -> Any:
    import tensorflow as tf

    found = tf
    for part in f"{module}.{name}".split("."):
        found = getattr(found, part)
    return found


def differences(theirs: list[list[str]], ours: Any) -> list[str]:
    """The differences that a call by the other signature would meet."""
    parameters = [parameter for parameter in inspect.signature(ours).parameters.values() if parameter.name != "self"]
    found = []
    wanted = [entry for entry in theirs if not entry[0].startswith("*")]
    for parameter, (name, *default) in zip(parameters, wanted, strict=False):
        if parameter.name != name:
            found.append(f"{parameter.name} in place of {name}")
        elif bool(default) != (parameter.default is not parameter.empty):
            found.append(f"{name}: {parameter.default!r} for {default}")
        elif default and default[0][0] not in "_(" and default[0].split(".")[0].isidentifier() is False:
            if ast.literal_eval(default[0]) != parameter.default:
                found.append(f"{name}: {parameter.default!r} for {default}")
        elif default and default[0] in ("None", "True", "False") and str(parameter.default) != default[0]:
            found.append(f"{name}: {parameter.default!r} for {default}")
    if len(parameters) < len(wanted):
        found.append(f"lacks {[entry[0] for entry in wanted[len(parameters) :]]}")
    required = [parameter.name for parameter in parameters[len(wanted) :] if parameter.default is parameter.empty]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    variable = {parameter.name for parameter in parameters if parameter.kind in kinds}
    return found + [f"wants {name}" for name in required if name not in variable]


def cases() -> list[Any]:
    return [
        pytest.param(module, name, marks=canned_only if name in CANNED else ())
        for module, names in NAMES.items()
        for name in names
        if name != ABSENT
    ]


@pytest.mark.parametrize(("module", "name"), cases())
def test_names_and_signatures_of_2_15(module: str, name: str) -> None:
    ours = api(module, name)
    for member, theirs in NAMES[module][name].items():
        if member == "()":
            assert differences(theirs, ours) == []
        elif theirs is None:
            assert not callable(inspect.getattr_static(ours, member)) or member in dir(ours)
        else:
            assert differences(theirs, getattr(ours, member)) == [], member


def test_all_names_are_asked_for() -> None:
    assert {module: len(names) for module, names in NAMES.items()} == {"compat.v1.estimator": 83, "estimator": 74}


@canned_only
def test_the_canned_models_of_the_two_versions_differ() -> None:
    import tensorflow as tf

    for name in V1:
        one, two = getattr(tf.compat.v1.estimator, name), getattr(tf.estimator, name)
        assert (one is two) == name.endswith("Head"), name
    from tensorflow.compat.v1.estimator import DNNClassifier as Old
    from tensorflow.compat.v2.estimator import DNNClassifier as New

    assert (Old, New) == (tf.compat.v1.estimator.DNNClassifier, tf.estimator.DNNClassifier)
    assert New is fastsup.estimator.DNNClassifier
    assert issubclass(Old, tf.compat.v1.estimator.Estimator)
    assert not issubclass(Old, tf.estimator.Estimator)
    assert issubclass(New, fastsup.estimator.Estimator)
    assert tf.estimator.experimental is tf.compat.v1.estimator.experimental


def test_the_first_name_of_an_export_is_of_version_1_alone() -> None:
    import tensorflow as tf

    one, two = tf.compat.v1.estimator.Estimator, tf.estimator.Estimator
    assert two is fastsup.estimator.Estimator
    assert issubclass(two, one)
    made = two(lambda features: None)
    assert isinstance(one(lambda features: None).export_savedmodel, object)
    for holder in (two, made):
        with pytest.raises(AttributeError, match=r"no attribute 'export_savedmodel': use export_saved_model\(\)"):
            holder.export_savedmodel
    assert not hasattr(made, "export_savedmodel")


@pytest.mark.parametrize("name", [ABSENT, "BoostedTreesClassifier"])
def test_what_is_not_there_says_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=r"has no \w+: .*(fastsup|TPUs)"):
        api("estimator", name)
    module, _, short = f"tensorflow.compat.v1.estimator.{name}".rpartition(".")
    with pytest.raises(ImportError, match=rf"has no {short}: "):
        exec(f"from {module} import {short}", {})


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_module_and_each_of_its_names(name: str) -> None:
    module = importlib.import_module(name)
    # The archive's own modules don't list their names.
    assert all(hasattr(module, short) for short in getattr(module, "__all__", ()))
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name
    if name.startswith("tensorflow_estimator.python.estimator"):
        other = "tensorflow.python.estimator" + name.removeprefix("tensorflow_estimator.python.estimator")
        assert importlib.import_module(other) is module


@canned_only
@pytest.mark.parametrize(
    "name", ["canned.dnn", "canned.head", "head.base_head", "keras", "canned.linear_optimizer.python.utils.sdca_ops"]
)
def test_modules_of_models_come_from_the_archive(name: str) -> None:
    module = importlib.import_module(f"tensorflow_estimator.python.estimator.{name}")
    assert module is importlib.import_module(f"tensorflow.python.estimator.{name}")
    assert Path(str(module.__file__)).name in (f"{name.rpartition('.')[2]}.py", "keras_lib.py")
    from tensorflow_estimator.python.estimator.canned.optimizers import get_optimizer_instance_v2

    assert type(get_optimizer_instance_v2("Adam", 0.1)).__module__.startswith("tf_keras.")


def test_a_module_that_has_nothing_says_what_to_use() -> None:
    with pytest.raises(ImportError, match=r"has no Something: .*See `python -m fastsup docs migrating`"):
        exec("from tensorflow_estimator.python.estimator.tpu.tpu_context import Something", {})
    found = importlib.import_module("tensorflow_estimator.python.estimator.tpu.tpu_context")
    with pytest.raises(AttributeError, match=r"has no Something: .*See `python -m fastsup docs migrating`"):
        found.Something


def test_python_proposes_a_name_for_a_misspelt_one() -> None:
    import tensorflow as tf

    for module in (tf.estimator, fastsup.estimator):
        with pytest.raises(AttributeError) as caught:
            module.RunConfg
        # What Python's traceback reads.
        assert (caught.value.name, caught.value.obj) == ("RunConfg", module)
        assert "RunConfig" in dir(module)


@pytest.mark.parametrize("name", ["tensorflow_estimator.nothing", "tensorflow.python.estimator.canned.nothing"])
def test_modules_that_never_were(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_exports_to_keep() -> None:
    from tensorflow_estimator.python.estimator import gc

    paths = [gc.Path(f"/e/{version}", version) for version in (0, 3, 5, 7, 8)]

    def versions(chosen: list[Any]) -> list[int]:
        return [path.export_version for path in chosen]

    assert versions(gc._largest_export_versions(2)(paths)) == [7, 8]
    assert versions(gc._one_of_every_n_export_versions(4)(paths)) == [3, 8]
    assert versions(gc._mod_export_version(5)(paths)) == [0, 5]
    assert versions(gc._negation(gc._largest_export_versions(2))(paths)) == [0, 3, 5]
    both = gc._union(gc._largest_export_versions(1), gc._mod_export_version(5))
    assert versions(both(paths)) == [0, 5, 8]


def test_paths_of_a_directory(tmp_path: Path) -> None:
    from tensorflow_estimator.python.estimator import gc

    for name in ("10", "9", "temp-11"):
        (tmp_path / name).mkdir()

    def parser(path: Any) -> Any:
        name = Path(path.path).name
        return path._replace(export_version=int(name)) if name.isdigit() else None

    assert {path.export_version for path in gc._get_paths(str(tmp_path), parser=parser)} == {9, 10}


def test_optimizers_by_name() -> None:
    import tensorflow as tf
    from tensorflow_estimator.python.estimator.canned import metric_keys, optimizers, prediction_keys

    v1 = tf.compat.v1.train
    assert type(optimizers.get_optimizer_instance("Adam", 0.1)) is v1.AdamOptimizer
    given = v1.FtrlOptimizer(0.1)
    assert optimizers.get_optimizer_instance(given) is given
    assert optimizers.get_optimizer_instance(lambda: given) is given
    for wrong, text in ((("Adam",), "learning_rate must be"), (("Sgd", 0.1), "Supported names"), ((5,), "Given: 5")):
        with pytest.raises(ValueError, match=text):
            optimizers.get_optimizer_instance(*wrong)
    assert metric_keys.MetricKeys.AUC_AT_CLASS % 3 == "auc/class3"
    assert prediction_keys.PredictionKeys.CLASS_IDS == "class_ids"


def test_the_guide_names_what_is_replaced_and_what_is_not_there() -> None:
    from fastsup.compat.replaced_names import REPLACEMENTS

    guide = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    changed, absent = guide.split("## Unsupported names")
    assert [theirs.__name__ for theirs, _ in REPLACEMENTS if f"`{theirs.__name__}`" not in changed] == []
    assert [name for name in CANNED if f"`{name.rpartition('.')[2]}`" not in changed] == []
    assert "`EmbeddingConfigSpec`" in absent
