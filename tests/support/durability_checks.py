"""What must hold of the file operations of trainings that save, and of what a start finds after a loss of power."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lost_power import Crash, crashes

__all__ = ["check_order", "laid_out_crashes", "problems_after_crashes"]

# Of the crashes that are checked, one in so many is trained on.
TRAINED = 40
# Bytes of a file that is no data of a checkpoint.
SMALL = 10_000


def number_of(path: str) -> int | None:
    """The global step in the name of a checkpoint's index; None for another file, as of what is overwritten."""
    found = re.fullmatch(r"(?:model\.)?ckpt-(\d{1,9})\.index", path)
    return int(found[1]) if found else None


def check_order(operations: Iterable[Any], folder: str) -> int:
    """Checks each save in a log of file operations. Returns how many times a state file has been put in its place."""
    dirty: set[str] = set()  # Files whose content isn't on the disk.
    names: set[str] = set()  # Files whose name isn't.
    newest = named = (
        named_on_disk
    ) = -1  # The newest checkpoint, the one in the state file, the one in that on the disk.
    written = 0
    for name, path, second in operations:
        if name == "create":
            dirty.add(path)
            names.add(path)
            newest = number_of(path) or newest
        elif name == "fsync" and path == folder:
            names.clear()
            named_on_disk = named
        elif name == "fsync":
            dirty.discard(path)
        elif name == "rename":
            assert not (second == "checkpoint" and path in dirty), "the state file isn't flushed before its rename"
            if path in dirty:
                dirty.remove(path)
                dirty.add(second)
            names.discard(path)
            names.add(second)
            newest = number_of(second) or newest
            if second == "checkpoint":
                written += 1
                named = newest
                checkpoints = [
                    file for file in (dirty | names) - {second} if ".ckpt-" in file or file.startswith("ckpt-")
                ]
                assert checkpoints == [], "named before it is on the disk"
        elif name == "unlink":
            dirty.discard(path)
            names.discard(path)
            number = number_of(path)
            assert number is None or number < named_on_disk, (
                f"{path} is deleted before a newer one is named on the disk"
            )
    assert named_on_disk == newest
    return written


def laid_out(crash: Crash, folder: Path, blobs: dict[bytes, Path]) -> None:
    """Writes what a crash has left. The same content is one file of several names, unless it may be an index."""
    folder.mkdir()
    for path in crash.folders:
        (folder / path).mkdir()
    for path, content in crash.files.items():
        place = folder / path
        if len(content) < SMALL:  # TensorFlow writes an index in place.
            place.write_bytes(content)
            continue
        if content not in blobs:
            blobs[content] = folder.parent / f"content {len(blobs)}"
            blobs[content].write_bytes(content)
        os.link(blobs[content], place)


def problem_of(way: str, crash: Crash, after: list[Any]) -> str:
    """What is wrong with what a program has found after a crash, or "".

    Args:
      way: the way to save.
      crash: what was left.
      after: what `after_crashes` of programs.py has found.
    """
    restored, exported, ended, later = after
    if len(restored) != 2:
        return f"nothing can be restored: {restored}"
    step, weight = restored
    if (step or 0) < crash.saved or step != weight:
        return f"step {step} with the weights of step {weight}; step {crash.saved} had been saved"
    if not set(exported) <= {"whole"} or (not exported and crash.saved and way == "train_and_evaluate"):
        return f"exports: {exported}"
    if later is not None and (ended != "ended" or later[0] not in (20, 21) or later[0] != later[1]):
        return f"the next training: {ended}, {later}"
    return ""


def problem_of_one_step(crash: Crash, after: list[Any]) -> str:
    """What is wrong with what a program has found after a crash of `saves_of_one_step`, or ""."""
    restored, _, ended, later = after
    if len(restored) != 2:
        return f"nothing can be restored: {restored}"
    step, weight = restored
    if (weight or 0) < crash.saved or (weight and step != 12):
        return f"the weights {weight} of step {step}; {crash.saved} had been saved"
    if later is not None and (ended != "ended" or later != [12, 9.0]):
        return f"the next save: {ended}, {later}"
    return ""


def laid_out_crashes(faults: Any, place: Path, which: slice, with_file: str = "") -> tuple[list[Crash], Path]:
    """Makes what crashes leave of the trainings that have run: those that leave a file with such a name.

    Returns:
      (crashes, folder): the crashes, and the folder that has what each has left, by its number.
    """
    copies = {path.name: path.read_bytes() for path in faults.blobs.iterdir()}
    found = list(crashes(faults.operations(), copies, str(faults.folder)))
    assert len(found) > 100
    found = [crash for crash in found if any(with_file in path for path in crash.files)]
    checked = found[which]
    folders, blobs = place / "after", {}
    folders.mkdir()
    for number, crash in enumerate(checked):
        laid_out(crash, folders / str(number), blobs)
    return checked, folders


def problems_after_crashes(
    faults: Any, place: Path, way: str, which: slice, trained: int = TRAINED, of_one_step: bool = False
) -> tuple[int, list[str]]:
    """Makes what crashes leave of the trainings that have run, and starts again from that.

    Args:
      faults: the fixture, with which the trainings have run.
      place: an empty folder.
      way: the way to save.
      which: the crashes that are checked.
      trained: of those, one in so many is trained on.
      of_one_step: whether the way is one of overwriting_saves.py.

    Returns:
      (checked, problems): how many crashes were checked, and a line for each that has lost something.
    """
    checked, folders = laid_out_crashes(faults, place, which)
    program = "after_crashes_of_one_step" if of_one_step else "after_crashes"
    after = faults.run(program, way, str(folders), len(checked), trained)
    operations = faults.operations()
    problems = [
        f"after operation {crash.at}, {operations[crash.at - 1]}, {sorted(crash.files)}: {problem}"
        for crash, then in zip(checked, after, strict=True)
        if (problem := problem_of_one_step(crash, then) if of_one_step else problem_of(way, crash, then))
    ]
    return len(checked), problems
