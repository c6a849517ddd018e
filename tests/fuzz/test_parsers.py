"""What people and other programs write, in random forms: each parser takes a text, or refuses it as it says it does.

FASTSUP_HYPOTHESIS=long tries many more texts, other ones each time.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastsup import train
from fastsup.checkpoint.directory import list_checkpoints
from fastsup.cluster.tf_config import TaskSettings, parse_task_settings, read_tf_config
from fastsup.contrib.training import HParams
from fastsup.profile.compare import compare, load

LONG = os.environ.get("FASTSUP_HYPOTHESIS") == "long"
v1 = tf.compat.v1

bounded = settings(
    max_examples=20_000 if LONG else 300,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def mutated(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A text with a part of it replaced by another text."""

    def replaced(text: str, begin: int, length: int, part: str) -> str:
        begin %= len(text) + 1
        return text[:begin] + part + text[begin + length :]

    return st.builds(replaced, texts, st.integers(0, 10_000), st.integers(0, 8), st.text(max_size=4))


def outcome(parse: Callable[[], Any]) -> tuple[Any, str | None]:
    """What a parser returns, and None; or None, and the text of its ValueError."""
    try:
        return parse(), None
    except ValueError as error:
        return None, str(error)


# TF_CONFIG.

ROLES = ["chief", "master", "worker", "ps", "evaluator", "", "a b", "x"]
scalars = st.none() | st.booleans() | st.integers(-3, 10) | st.floats() | st.sampled_from(ROLES) | st.text(max_size=5)
addresses = st.builds("{}:{}".format, st.sampled_from(["host0", "h", "127.0.0.1", ""]), st.integers(-1, 70_000))
task_lists = st.lists(addresses, max_size=3) | st.dictionaries(st.sampled_from("012a"), addresses, max_size=3) | scalars
tasks = st.fixed_dictionaries({}, optional={"type": st.sampled_from(ROLES) | scalars, "index": scalars})
sections = st.fixed_dictionaries(
    {},
    optional={
        "cluster": st.dictionaries(st.sampled_from(ROLES), task_lists, max_size=4) | scalars,
        "task": st.fixed_dictionaries({}, optional={"type": st.sampled_from(ROLES) | scalars, "index": scalars})
        | scalars,
        "service": st.dictionaries(st.text(max_size=3), scalars, max_size=2) | scalars,
        "session_master": scalars,
        "eval_session_master": scalars,
        "environment": scalars,
        "clusters": scalars,
    },
)
tf_configs = sections.map(json.dumps)


@bounded
@given(tf_configs | mutated(tf_configs) | st.text(max_size=20))
def test_tf_config_is_taken_or_refused_by_a_value_error_that_shows_it(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    text = text.replace("\0", "").encode("utf-8", "ignore").decode()  # An environment variable has neither.
    monkeypatch.setenv("TF_CONFIG", text)
    found, refusal = outcome(lambda: parse_task_settings(read_tf_config()))
    if refusal is not None:
        assert "TF_CONFIG" in refusal
    else:
        assert isinstance(found, TaskSettings)
        assert isinstance(found.task_id, int)
        assert found.task_id >= 0


# The state file of a directory of checkpoints.


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("weight", initializer=1.0)
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        for step in (1, 2):
            saver.save(session, str(folder / "model.ckpt"), global_step=step)
    return folder


names = st.sampled_from(["model.ckpt-1", "model.ckpt-2", "model.ckpt-3", "/elsewhere/model.ckpt-1", "../x-1", "", "."])
fields = st.sampled_from(["model_checkpoint_path", "all_model_checkpoint_paths", "last_preserved_timestamp", "other"])
state_files = st.lists(st.builds('{}: "{}"'.format, fields, names | st.text(max_size=5)), max_size=5).map("\n".join)


@bounded
@given(
    state_files.map(str.encode) | mutated(state_files).map(lambda text: text.encode("utf-8", "replace")) | st.binary()
)
def test_a_state_file_of_any_content_leaves_the_intact_checkpoints_to_be_found(checkpoints: Path, state: bytes) -> None:
    (checkpoints / "checkpoint").write_bytes(state)
    listing = list_checkpoints(checkpoints)
    assert {str(checkpoints / f"model.ckpt-{step}") for step in (1, 2)} <= set(map(os.path.normpath, listing.paths))
    for path in listing.rotation:
        assert os.path.dirname(os.path.realpath(path)) == os.path.realpath(checkpoints)
    found = train.latest_intact_checkpoint(checkpoints)
    assert found is not None
    assert os.path.basename(found) in ("model.ckpt-1", "model.ckpt-2")


@bounded
@given(st.binary(max_size=200), st.integers(0, 10_000), st.sampled_from([".index", ".data-00000-of-00001"]))
def test_a_checkpoint_with_other_bytes_in_it_is_found_to_be_damaged_or_reads_as_before(
    checkpoints: Path, tmp_path: Path, part: bytes, begin: int, ending: str
) -> None:
    path = tmp_path / "model.ckpt-2"
    for name in (".index", ".data-00000-of-00001"):
        shutil.copy(checkpoints / f"model.ckpt-2{name}", f"{path}{name}")
    file = Path(f"{path}{ending}")
    content = file.read_bytes()
    begin %= len(content) + 1
    file.write_bytes(content[:begin] + part + content[begin + len(part) :])
    if train.latest_intact_checkpoint(tmp_path) is not None:
        assert tf.train.load_checkpoint(str(path)).get_tensor("weight") == 1.0


# Profiles, for `python -m fastsup profile --compare`.

anything = st.none() | st.integers(-5, 10**15) | st.floats() | st.text(max_size=3) | st.lists(st.none(), max_size=2)
nanoseconds = st.integers(-5, 10**15)
rows = st.fixed_dictionaries(
    {"owner": st.text(max_size=3), "phase": st.text(max_size=3), "total_ns": nanoseconds},
    optional={"session": st.text(max_size=3), "detail": st.text(max_size=3), "calls": anything},
)
heads = st.fixed_dictionaries(
    {},
    optional={
        "script": st.text(max_size=3),
        "arguments": st.lists(st.text(max_size=3), max_size=2),
        "versions": st.dictionaries(st.just("fastsup") | st.text(max_size=2), st.text(max_size=3), max_size=2)
        | anything,
    },
)
profiles = st.fixed_dictionaries(
    {
        "schema": st.sampled_from([1, 2, 3, 99]) | anything,
        "steps": st.integers(0, 10) | anything,
        "wall_ns": nanoseconds,
        "profiler_ns": nanoseconds,
        "unaccounted_ns": nanoseconds,
        "rows": st.lists(rows, max_size=3) | anything,
    },
    optional={
        "head": heads | anything,
        "timeline": st.lists(
            st.fixed_dictionaries({"phase": st.text(max_size=3), "total_ns": nanoseconds}), max_size=2
        ),
    },
)


@bounded
@given(st.one_of(profiles.map(json.dumps), mutated(profiles.map(json.dumps)), st.text()))
def test_a_profile_is_compared_or_refused_by_a_value_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    profile, refusal = outcome(lambda: load(str(path)))
    if refusal is not None:
        assert str(path) in refusal
    else:
        assert all(isinstance(line, str) for line, _style in compare(profile, profile))


# Hyperparameters.

assignments = st.builds(
    "{}{}={}".format,
    st.sampled_from(["rate", "layers", "name", "on", "steps", "other"]),
    st.sampled_from(["", "[0]", "[1]", "[", "]"]),
    st.sampled_from(["1", "0.5", "[1,2]", "[]", "true", "x", "", "1e3", "nan", "[", "]"]),
)
hparam_texts = st.lists(assignments, max_size=4).map(",".join)


@bounded
@given(hparam_texts | mutated(hparam_texts) | st.text(max_size=20))
def test_hyperparameters_are_parsed_into_their_types_or_refused(text: str) -> None:
    params = HParams(rate=0.1, layers=[64, 32], name="small", on=False, steps=10)
    types = {name: type(value) for name, value in params.values().items()}
    try:
        params.parse(text)
    except ValueError:
        return
    assert {name: type(value) for name, value in params.values().items()} == types


# Command lines.

OPTIONS = ["run", "profile", "doctor", "--tf1", "-m", "--json", "--csv", "--html", "--trace", "--table", "--compare"]
words = st.sampled_from(
    [*OPTIONS, "--skip-steps", "--step-markers", "--version", "--help", "--", "-x", "--no", "-1", "3"]
)


@bounded
@given(st.lists(words | st.text(st.characters(exclude_characters="\0/", codec="utf-8"), max_size=4), max_size=6))
def test_a_command_line_without_a_script_ends_as_command_lines_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, line: list[str]
) -> None:
    from fastsup import __main__ as command_line
    from fastsup.compat import run

    monkeypatch.chdir(tmp_path)
    # The commands find no script there; what they would do before they look for it isn't done here.
    monkeypatch.setattr(run, "install_at_import", lambda *arguments: None)
    try:
        code = command_line.main(["no-command"] if line[:1] == ["doctor"] and len(line) == 1 else line)
    except SystemExit as end:
        code = end.code
    assert code in (0, 1, 2)
    capsys.readouterr()
