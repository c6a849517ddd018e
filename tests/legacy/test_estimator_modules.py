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
from fastsup.estimator.absent_names import absent_name_error
from fastsup.legacy import estimator_modules

# The public names of tensorflow-estimator 2.15 (version 1 of the interface): parameters of the constructor or function,
# "()", and of the public methods, each with the text of its default. null: a property.
NAMES = json.loads(Path(__file__).with_name("estimator_2_15.json").read_text())
# What isn't there yet, and says so.
LATER = {
    "experimental.dnn_logit_fn_builder",
    "experimental.linear_logit_fn_builder",
    "tpu.experimental.EmbeddingConfigSpec",
}


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    fastsup.install()
    try:
        yield
    finally:
        fastsup.uninstall()


def api(name: str) -> Any:
    import tensorflow as tf

    found = tf.estimator
    for part in name.split("."):
        found = getattr(found, part)
    return found


def is_later(name: str) -> bool:
    return name in LATER or " has no attribute " not in str(absent_name_error("", name.rpartition(".")[2]))


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


@pytest.mark.parametrize("name", [name for name in NAMES if not is_later(name)])
def test_names_and_signatures_of_2_15(name: str) -> None:
    ours = api(name)
    for member, theirs in NAMES[name].items():
        if member == "()":
            assert differences(theirs, ours) == []
        elif theirs is None:
            assert not callable(inspect.getattr_static(ours, member)) or member in dir(ours)
        else:
            assert differences(theirs, getattr(ours, member)) == [], member


@pytest.mark.parametrize("name", [name for name in NAMES if is_later(name)])
def test_what_is_not_there_yet_says_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=r"has no \w+: .*(fastsup|TPUs)"):
        api(name)
    module, _, short = f"tensorflow.compat.v1.estimator.{name}".rpartition(".")
    with pytest.raises(ImportError, match=rf"has no {short}: "):
        exec(f"from {module} import {short}", {})


def test_most_names_are_there() -> None:
    assert sum(is_later(name) for name in NAMES) <= 32
    assert len(NAMES) == 83


@pytest.mark.parametrize("name", sorted(estimator_modules._MODULES))
def test_every_module_and_each_of_its_names(name: str) -> None:
    module = importlib.import_module(name)
    assert all(hasattr(module, short) for short in module.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name
    if name.startswith("tensorflow_estimator.python.estimator"):
        other = "tensorflow.python.estimator" + name.removeprefix("tensorflow_estimator.python.estimator")
        assert importlib.import_module(other) is module


@pytest.mark.parametrize("module", ["canned.dnn", "canned.head", "keras", "tpu.tpu_context"])
def test_a_module_that_has_nothing_yet_says_what_to_use(module: str) -> None:
    with pytest.raises(ImportError, match=r"has no Something: .*See docs/migrating.md"):
        exec(f"from tensorflow_estimator.python.estimator.{module} import Something", {})
    found = importlib.import_module(f"tensorflow_estimator.python.estimator.{module}")
    with pytest.raises(AttributeError, match=r"has no Something: .*See docs/migrating.md"):
        found.Something


@pytest.mark.parametrize("name", ["tensorflow_estimator.nothing", "tensorflow.python.estimator.canned.nothing"])
def test_modules_that_never_were(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_contrib_says_where_its_names_are() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"fastsup.experiment.*docs/migrating.md"):
        importlib.import_module("tensorflow.contrib.learn")


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
    from fastsup.legacy.replaced_names import COUNTERPARTS

    guide = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    changed, absent = guide.split("## What isn't supported")
    assert [theirs.__name__ for theirs, _ in COUNTERPARTS if f"`{theirs.__name__}`" not in changed] == []
    short_names = [name.rpartition(".")[2] for name in NAMES if is_later(name)]
    assert [name for name in short_names if f"`{name}`" not in absent] == []
