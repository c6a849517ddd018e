"""RunConfig: defaults, replace, and what is refused."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import HookProfiler
from fastsup import estimator as est

v1 = tf.compat.v1


def test_defaults() -> None:
    config = est.RunConfig()
    found = {name: getattr(config, name) for name in dir(config) if not name.startswith("_") and name != "replace"}
    assert found.pop("cluster_spec").as_dict() == {}
    assert found == {
        "model_dir": None,
        "tf_random_seed": None,
        "save_summary_steps": 100,
        "save_checkpoints_steps": None,
        "save_checkpoints_secs": 600,
        "session_config": None,
        "keep_checkpoint_max": 5,
        "keep_checkpoint_every_n_hours": 10000,
        "log_step_count_steps": 100,
        "train_distribute": None,
        "device_fn": None,
        "protocol": None,
        "eval_distribute": None,
        "experimental_max_worker_delay_secs": None,
        "session_creation_timeout_secs": 7200,
        "checkpoint_save_graph_def": True,
        "executor": "auto",
        "async_save": False,
        "recovery_wait_secs": 30,
        "profiler": None,
        "progress": False,
        "service": None,
        "task_type": "worker",
        "task_id": 0,
        "global_id_in_cluster": 0,
        "master": "",
        "evaluation_master": "",
        "is_chief": True,
        "num_ps_replicas": 0,
        "num_worker_replicas": 1,
    }


def test_intervals_of_checkpoints() -> None:
    def intervals(config: Any) -> tuple[Any, Any]:
        return config.save_checkpoints_steps, config.save_checkpoints_secs

    assert intervals(est.RunConfig(save_checkpoints_steps=5)) == (5, None)
    assert intervals(est.RunConfig(save_checkpoints_secs=5)) == (None, 5)
    assert intervals(est.RunConfig(save_checkpoints_secs=None)) == (None, None)
    assert intervals(est.RunConfig(save_checkpoints_steps=None, save_checkpoints_secs=None)) == (None, None)
    assert intervals(est.RunConfig().replace(save_checkpoints_steps=3)) == (3, None)
    assert intervals(est.RunConfig(save_checkpoints_steps=3).replace(save_checkpoints_secs=4)) == (None, 4)
    for make in (est.RunConfig, est.RunConfig().replace):
        with pytest.raises(ValueError, match="cannot be both set"):
            make(save_checkpoints_steps=1, save_checkpoints_secs=1)


def test_replace_leaves_the_original_alone() -> None:
    config = est.RunConfig(model_dir="/a", tf_random_seed=1)
    other = config.replace(model_dir="/b", executor="inline", async_save=True)
    assert (config.model_dir, config.executor, config.async_save) == ("/a", "auto", False)
    assert (other.model_dir, other.tf_random_seed, other.executor, other.async_save) == ("/b", 1, "inline", True)
    with pytest.raises(ValueError, match=r"Replacing master is not supported\. Allowed properties are"):
        config.replace(master="x")


def test_a_copy_has_the_same_profiler() -> None:
    profiler = HookProfiler()
    config = est.RunConfig(profiler=profiler)
    assert config.replace(model_dir="/a").profiler is copy.deepcopy(config).profiler is profiler
    assert config.replace(profiler=None).profiler is None
    for make in (est.RunConfig, config.replace):
        with pytest.raises(TypeError, match=r"profiler must be a fastsup\.HookProfiler or None, got 'on' of type str"):
            make(profiler="on")


def test_the_training_is_recorded(make: Any, input_fn: Any) -> None:
    """By the profiler of the configuration: what the Estimator adds itself, and the caller's hooks."""
    profiler = HookProfiler()
    estimator = make(profiler=profiler, save_checkpoints_steps=2, log_step_count_steps=2)
    estimator.train(input_fn, hooks=[v1.train.SessionRunHook()])
    estimator.evaluate(input_fn)
    report = profiler.report()
    # The last run finds the input at its end.
    assert report.steps == 5 + 1
    calls = {(row.owner, row.phase): row.times.calls for row in report.rows}
    assert calls["session", "runtime"] == 5 + 1
    assert calls["CheckpointSaverHook", "save"] >= 2
    assert calls["LoggingTensorHook", "after_run"] >= 2
    parts = sum(row.times.total_ns for row in report.rows) + report.profiler_ns + report.unaccounted_ns
    assert parts == pytest.approx(report.wall_ns, rel=1e-6)


@pytest.mark.parametrize("model_dir", ["/a/b", b"/a/b", Path("/a/b")])
def test_a_path_is_a_model_dir(model_fn: Any, model_dir: Any) -> None:
    assert est.RunConfig(model_dir=model_dir).model_dir == "/a/b"
    assert est.RunConfig().replace(model_dir=model_dir).model_dir == "/a/b"
    assert est.Estimator(model_fn, model_dir, params={}).eval_dir() == "/a/b/eval"


def test_what_is_no_path_is_no_model_dir(model_fn: Any) -> None:
    message = r"^model_dir must be the path of a directory, or None for a temporary one; got 5\.$"
    for make_ in (est.RunConfig, est.RunConfig().replace, partial(est.Estimator, model_fn, params={})):
        with pytest.raises(TypeError, match=message):
            make_(model_dir=5)


@pytest.mark.parametrize(
    "name",
    [
        "save_summary_steps",
        "save_checkpoints_steps",
        "save_checkpoints_secs",
        "keep_checkpoint_max",
        "keep_checkpoint_every_n_hours",
        "log_step_count_steps",
        "session_creation_timeout_secs",
        "recovery_wait_secs",
    ],
)
def test_what_is_a_type_error_in_the_reference_is_one_here(name: str) -> None:
    for make_ in (est.RunConfig, est.RunConfig().replace):
        with pytest.raises(TypeError, match=rf"^{name} should be .*; got '6' of type str$"):
            make_(**{name: "6"})


def test_an_interval_that_must_be_set() -> None:
    with pytest.raises(TypeError, match=r"^recovery_wait_secs should be >= 0, and finite; got None of type NoneType$"):
        est.RunConfig(recovery_wait_secs=None)  # type: ignore[arg-type]


REFUSED = [
    ("model_dir", "", "model_dir should be non-empty"),
    ("save_summary_steps", -1, "save_summary_steps should be >= 0"),
    ("save_checkpoints_steps", -1, "save_checkpoints_steps should be >= 0"),
    ("save_checkpoints_secs", -1, "save_checkpoints_secs should be >= 0"),
    ("session_config", {}, "session_config must be instance of ConfigProto"),
    ("keep_checkpoint_max", -1, "keep_checkpoint_max should be >= 0"),
    ("keep_checkpoint_max", 1.5, r"^keep_checkpoint_max must be an integer; got 1\.5$"),
    ("keep_checkpoint_every_n_hours", 0, "keep_checkpoint_every_n_hours should be > 0"),
    ("log_step_count_steps", 0, "log_step_count_steps should be > 0"),
    ("tf_random_seed", 1.0, r"^tf_random_seed must be integer\. Got 1\.0\.$"),
    ("experimental_max_worker_delay_secs", 1.5, "experimental_max_worker_delay_secs must be an integer"),
    ("session_creation_timeout_secs", 0, "session_creation_timeout_secs should be > 0"),
    ("device_fn", lambda x: x, 'device_fn must be callable with exactly one argument "op".'),
    ("device_fn", "cpu", 'device_fn must be callable with exactly one argument "op".'),
    ("protocol", "http", r"protocol should be grpc or grpc\+verbs"),
    ("executor", "fast", "executor must be one of"),
    ("async_save", 1, "async_save must be True or False"),
    ("recovery_wait_secs", -1, "recovery_wait_secs should be >= 0, and finite; got -1"),
    ("recovery_wait_secs", float("inf"), "recovery_wait_secs should be >= 0, and finite; got inf"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_what_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        est.RunConfig(**{name: value})
    with pytest.raises(ValueError, match=message):
        est.RunConfig().replace(**{name: value})


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute", "experimental_distribute"])
def test_what_is_no_strategy(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be a .* or None, got 5\.$"):
        est.RunConfig(**{name: 5})


def test_a_subclass_may_override_properties(make: Any) -> None:
    class Chiefless(est.RunConfig):  # type: ignore[misc]
        @property
        def is_chief(self) -> bool:
            return False

    config = Chiefless(model_dir="/nowhere")
    assert not copy.deepcopy(config).replace(tf_random_seed=2).is_chief


def test_the_session_of_an_estimator(make: Any) -> None:
    session_config = make().config.session_config
    assert session_config.allow_soft_placement
    own = v1.ConfigProto(intra_op_parallelism_threads=3, gpu_options=v1.GPUOptions(allow_growth=True))
    assert make(session_config=own).config.session_config == own


def test_parameter_server_strategy_of_tf2_is_refused() -> None:
    strategy = tf.compat.v2.distribute.experimental.ParameterServerStrategy
    with pytest.raises(ValueError, match=r"Please use `tf.compat.v1.distribute.experimental.ParameterServerStrategy`"):
        est.RunConfig(train_distribute=strategy.__new__(strategy))
