"""The model of a disk that loses power, on logs of a few operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lost_power import contents, crashes

BLOBS = {"1": b"first.", "2": b"second"}
FOLDER = "/watched"


def log(*lines: str) -> list[tuple[str, str, str]]:
    """Operations, each as its name and its paths, with spaces between."""
    return [(*line.split(" "), "", "")[:3] for line in lines]  # type: ignore[misc]


def states(operations: Iterable[Any], **options: Any) -> list[dict[str, bytes]]:
    """The files after the crashes, and directories as paths that end with a slash."""
    found = crashes(operations, BLOBS, FOLDER, **options)
    return [{**crash.files, **{f"{path}/": b"" for path in crash.folders}} for crash in found]


WRITTEN = ("create new", "close new 1")
FLUSHED = ("create new", "fsync new 1", "close new 1")


def test_content_that_was_not_flushed_may_be_cut_or_missing() -> None:
    assert states(log(*WRITTEN)) == [{"new": b""}, {}, {"new": b"first."}, {"new": b"fir"}]
    assert {"new": b"fir"} not in states(log(*FLUSHED))


def test_names_that_were_not_flushed_may_be_missing() -> None:
    renamed = log(*FLUSHED, "fsync /watched", "rename new state", "create other")
    after = states(renamed)
    assert {"state": b"first."} in after
    assert {"new": b"first.", "other": b""} in after  # The later change alone.
    assert {"new": b"first."} not in states([*renamed, *log("fsync /watched")])[len(after) :]


def test_a_directory_that_is_renamed_has_what_it_had() -> None:
    moved = log("mkdir part", "create part/new", "fsync part/new 1", "fsync part", "rename part whole")
    assert contents(moved, BLOBS, FOLDER) == {"whole/new": b"first."}
    assert {"whole/": b"", "whole/new": b"first."} in states(moved)


def test_a_name_is_lost_with_its_directory() -> None:
    """The name in the directory is on the disk, and that of the directory isn't."""
    made = log("mkdir part", "create part/new", "fsync part/new 1", "fsync part")
    assert {} in states(made)
    flushed = log("fsync /watched", "create other")
    assert all("part/new" in files for files in states(made + flushed)[len(states(made)) :])


def test_a_directory_may_be_there_without_what_it_has() -> None:
    made = log("mkdir part", "create part/new", "fsync part/new 1", "rename part whole")
    assert {"whole/": b""} in states(made)


def test_directories_that_are_there_at_the_start() -> None:
    made = log("create model/new", "fsync model/new 1", "fsync model")
    assert contents(made, BLOBS, FOLDER, ["model"]) == {"model/new": b"first."}
    assert all("model/" in files for files in states(made, folders=["model"]))


def test_a_file_that_is_opened_without_being_emptied_keeps_its_content() -> None:
    written = log(*FLUSHED, "fsync /watched")
    assert contents(written + log("create new kept"), BLOBS, FOLDER) == {"new": b"first."}
    assert contents(written + log("create new"), BLOBS, FOLDER) == {"new": b""}


def test_a_file_that_is_removed() -> None:
    removed = log(*FLUSHED, "fsync /watched", "unlink new")
    assert contents(removed, BLOBS, FOLDER) == {}
    assert states(removed)[-1] == {"new": b"first."}
    assert states(removed + log("fsync /watched", "create other"))[-1] == {"other": b""}


def test_a_directory_that_is_removed() -> None:
    removed = log("mkdir part", "fsync /watched", "rmdir part", "fsync /watched", "create other")
    assert states(removed)[-1] == {"other": b""}


def test_a_file_with_two_names() -> None:
    assert contents(log(*FLUSHED, "link new other"), BLOBS, FOLDER) == {"new": b"first.", "other": b"first."}


def test_the_order_of_names_may_be_kept() -> None:
    two = log("create one", "create two")
    assert {"two": b""} in states(two)
    assert {"two": b""} not in states(two, ordered=True)


def test_a_flush_may_write_all_earlier_names() -> None:
    operations = log(*FLUSHED, "create later")
    assert {"later": b""} in states(operations)
    ordered = states(operations, ordered=True)
    assert {"new": b"first.", "later": b""} in ordered
    assert {} not in ordered[ordered.index({"new": b"first."}) :]


def test_everything_is_written_after_a_while() -> None:
    operations = log(*WRITTEN, "rested ", "create later")
    assert states(operations, ordered=True)[-1] == {"new": b"first.", "later": b""}
    assert {"later": b""} not in states(operations, ordered=True)
    # POSIX promises nothing of that kind.
    assert {"new": b"", "later": b""} in states(operations)


def test_files_have_the_order_of_their_changes() -> None:
    """A saver may look for the newest one."""
    written = log("create one", "create two", "close two 1", "close one 2")
    assert list(contents(written, BLOBS, FOLDER)) == ["two", "one"]


def test_a_save_that_has_returned_is_known() -> None:
    found = list(crashes(log(*WRITTEN, "returned 5"), BLOBS, FOLDER))
    assert [crash.saved for crash in found] == [0] * 4 + [5] * 4
    assert [found[0].at, found[-1].at] == [1, 3]
