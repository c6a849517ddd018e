"""Random Keras programs, and calls of a model in its own calls: as they are and accelerated, all that is seen compared.

FASTSUP_HYPOTHESIS=long runs many more random programs, and makes one that fails as small as it can.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from devices import DEVICES
from keras_programs import Run, compare, difference
from random_keras import first_difference, random_program, smaller

LONG = os.environ.get("FASTSUP_HYPOTHESIS") == "long"
SEEDS = range(300) if LONG else range(4)
NAMES = ("fit", "evaluate", "predict")
KINDS = {"fit": "train", "evaluate": "test", "predict": "predict"}
# What each pass reads: x and y of training, of validation, and the x of predictions.
INPUTS = {"fit": ["a", "y"], "evaluate": ["va", "vy"], "predict": ["pa"]}

pytestmark = [
    pytest.mark.timeout(3600 if LONG else 120),
    pytest.mark.skipif("accelerator" in DEVICES, reason="the fake accelerator has no XLA"),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_a_random_program(seed: int) -> None:
    program = random_program(seed)
    found = first_difference(program)
    if found and LONG:
        program = smaller(program, lambda shorter: bool(first_difference(shorter)))
        found = first_difference(program) or found
    assert not found, f"{found}\nthe program of seed {seed}:\n{program!r}"


def same(*calls: Any, **program: Any) -> list[Any]:
    """Checks that a program of these calls is the same in both ways. Returns Keras's record."""
    whole = {"models": [{"layers": ["dense"]}], "rows": 11, "calls": list(calls), **program}
    plain = Run(whole, accelerates=False).go()
    assert difference(plain, Run(whole, accelerates=True).go()) == ""
    return plain


def a_pass(name: str, *callbacks: Any, batch_size: int = 2, **more: Any) -> dict[str, Any]:
    """A call of `fit`, `evaluate` or `predict`, with a record of its callbacks."""
    options = {"shuffle": False, "epochs": 2} if name == "fit" else {}
    options |= more.pop("options", {})
    record = {"kind": "record", "every": 1}
    return {"do": name, "batch_size": batch_size, "callbacks": [record, *callbacks], "options": options, **more}


def acts(name: str, *calls: Any, at: str = "batch_end", when: int = 2) -> dict[str, Any]:
    """A callback that makes calls at the nth event of a pass."""
    return {"kind": "act", "at": f"on_{KINDS[name]}_{at}", "when": when, "calls": list(calls)}


@pytest.mark.parametrize("outer", NAMES)
def test_a_pass_in_a_callback_of_a_pass(outer: str) -> None:
    """The outer pass goes on with its next batch, after a whole pass and after one that was stopped."""
    calls = []
    for inner in NAMES:
        stopped = a_pass(inner, acts(inner, {"do": "stop", "of": KINDS[inner]}, when=1), batch_size=3)
        calls.append(a_pass(outer, acts(outer, a_pass(inner), when=2), acts(outer, stopped, when=3)))
    record = same(*calls)
    assert [name for name, _ in record].count(f"{outer} returned") == 3


@pytest.mark.parametrize("first", NAMES)
def test_passes_in_threads(first: str) -> None:
    """Two threads, batch for batch in turns, with batches of other sizes."""
    pairs = [(first, second) for second in NAMES]
    record = same(*({"do": "threads", "calls": [a_pass(a), a_pass(b, batch_size=3)]} for a, b in pairs))
    threads = [[entry for entry, _ in part] for name, part in record if name.startswith("thread ")]
    assert len(threads) == 6
    assert all(names.count("turn") > 2 and names[-1].endswith("returned") for names in threads)


def test_a_predict_that_ends_in_a_fit_of_another_thread() -> None:
    """It begins before the `fit`, and its later batches come while that runs; a third thread evaluates."""
    fit = a_pass("fit", options={"epochs": 1})
    same({"do": "threads", "calls": [a_pass("predict"), fit, a_pass("evaluate")], "every": 2})


@pytest.mark.parametrize("outer", NAMES)
def test_a_pass_in_the_input_of_a_pass(outer: str) -> None:
    """A generator calls the model before the loop begins and, where Keras has an order for it, while the loop waits."""
    options = {"steps_per_epoch": 4, "epochs": 1} if outer == "fit" else {"steps": 4}
    places = [(inner, at) for inner in NAMES for at in (1, 3) if at == 1 or inner == "predict" or outer == "predict"]
    calls = [
        a_pass(outer, kind="generator", options=options, inner={"at": at, "call": a_pass(inner)})
        for inner, at in places
    ]
    record = same(*calls)
    assert [name for name, _ in record].count("in the generator") == len(calls)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_change_in_a_pass(name: str) -> None:
    """Keras takes the arrays when a pass begins."""
    change = {"do": "change", "arrays": INPUTS[name]}
    same(*(a_pass(name, acts(name, change, at=at, when=1)) for at in ("begin", "batch_end")), a_pass(name))


@pytest.mark.parametrize("event", ["epoch_begin", "train_batch_end", "test_begin", "test_batch_end", "epoch_end"])
def test_validation_arrays_that_change(event: str) -> None:
    """Keras takes them when the first validation begins."""
    calls = []
    for when in (1, 2):
        action = {"do": "change", "arrays": ["va", "vy", "a", "y"]}
        change = {"kind": "act", "at": f"on_{event}", "when": when, "calls": [action]}
        calls += [a_pass("fit", change, validation={}), a_pass("fit", change, options={"validation_split": 0.3})]
    same(*calls)


def test_arrays_that_change_in_a_fit_of_many_steps_a_call() -> None:
    action = {"do": "change", "arrays": ["a", "y", "va", "vy"]}
    change = {"kind": "act", "at": "on_epoch_end", "when": 1, "calls": [action]}
    fit = a_pass("fit", change, validation={}, batch_size=4)
    fit["callbacks"][0] = {"kind": "record"}
    same(fit, jit=True, fuse="always", rows=12, **{"validation rows": 4})


def test_a_method_for_batches_that_comes_late() -> None:
    late = [{"kind": "late", "at": at} for at in ("on_train_begin", "set_model")]
    same(*(a_pass("fit", callback, batch_size=4) for callback in late), jit=True, fuse="always", rows=12)


def test_a_dataset_without_a_batch() -> None:
    """Keras warns that the input has ended."""
    for fused in ({"jit": True, "fuse": "always"}, {}):
        calls = [a_pass(name, kind="dataset", drops=True, batch_size=20) for name in ("fit", "evaluate")]
        same(*calls, **fused)
        for call in calls:
            call["callbacks"] = [{"kind": "record"}]
        same(*calls, **fused)


@pytest.mark.parametrize("fused", [{}, {"jit": True, "fuse": "always"}], ids=["single", "fused"])
def test_a_last_batch_of_the_size_of_earlier_batches(fused: dict[str, Any]) -> None:
    """Keras weighs batches by their sizes in the means of several outputs if it knows the size of all in advance."""
    calls = [a_pass("fit", batch_size=size, kind=kind) for kind in ("arrays", "dataset") for size in (2, 3, 20, 2)]
    for call in calls:
        call |= {"callbacks": [], "drops": call["batch_size"] == 2}
    evaluations = [{**call, "do": "evaluate", "options": {}} for call in calls]
    same(*calls, *evaluations, output="two", rows=8, **{"validation rows": 8}, **fused)


def test_a_model_with_its_own_evaluate() -> None:
    """`fit` hands it the arrays to validate with."""
    fits = [a_pass("fit", validation={}), a_pass("fit", options={"validation_split": 0.3})]
    record = same(*fits, models=[{"own evaluate": True}])
    assert all("val_far" in found for name, found in record if name == "fit returned")


@pytest.mark.parametrize("wraps", [False, True])
def test_a_train_function_that_a_callback_sets(wraps: bool) -> None:
    replaces = {"do": "replace function", "wraps": wraps}
    same(a_pass("fit", acts("fit", replaces, at="begin", when=1)), a_pass("fit"))


def test_a_difference_is_found() -> None:
    program = {"calls": [a_pass("fit")], "models": [{}]}
    plain = Run(program, accelerates=False).go()
    other = Run({**program, "seed": 2}, accelerates=False).go()
    assert "on_train_begin" in difference(plain[1:], other[1:]) or "weights" in difference(plain, other)
    assert compare(program) == ""
    assert smaller({"calls": [{"do": "call"}, {"do": "fit"}]}, lambda p: {"do": "fit"} in p["calls"]) == {
        "calls": [{"do": "fit"}]
    }
