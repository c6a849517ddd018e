"""Writes random Keras programs for `keras_programs`, and makes one that fails as small as it can.

`python tests/support/random_keras.py 17 18` runs the programs of these seeds, `17:99` those of a range. `--small` makes
those that fail small.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from keras_programs import Run, difference

# More steps a call than one: what Keras makes of such a model, and what the documents say of its last bits.
TOLERANCE = 1e-5


def random_program(seed: int) -> dict[str, Any]:
    """The program of a seed."""
    return _Author(random.Random(seed)).program(seed)


def tolerance_of(program: dict[str, Any]) -> float:
    """By how much the numbers of a program may differ: 0, but for what the documents except.

    These are products of a matrix and a vector in fused steps, and sums in the single-threaded executor.
    """
    is_fused = program.get("jit") is True and program.get("fuse") == "always"
    is_excepted = program.get("executor") == "single_threaded" or (is_fused and _has_vectors(program))
    return TOLERANCE if is_excepted else 0.0


def _has_vectors(program: dict[str, Any]) -> bool:
    return (
        program.get("output") == "column"
        or any("narrow" in model.get("layers", []) for model in program["models"])
        or any(rows % size == 1 for rows, size in _batches_of(program))
    )


def _batches_of(part: Any, rows: tuple[int, ...] = ()) -> Iterator[tuple[int, int]]:
    """All numbers of rows with all sizes of batches in a program."""
    if isinstance(part, dict):
        rows = rows or tuple(part.get(name, 0) for name in ("rows", "validation rows", "predict rows"))
        if part.get("batch_size"):
            yield from ((count, part["batch_size"]) for count in rows)
        for item in part.values():
            yield from _batches_of(item, rows)
    elif isinstance(part, list):
        for item in part:
            yield from _batches_of(item, rows)


class _Author:
    """Writes a program.

    Args:
      source: the random numbers that it is made from.
    """

    def __init__(self, source: random.Random) -> None:
        self._any = source
        self._is_fused = False

    def _chance(self, probability: float) -> bool:
        return self._any.random() < probability

    def program(self, seed: int) -> dict[str, Any]:
        program: dict[str, Any] = {"seed": seed}
        kind = self._any.choices(["plain", "fused", "jit", "eager", "auto jit"], [14, 4, 1, 1, 1])[0]
        if kind in ("fused", "jit"):
            program["jit"] = True
        if kind == "auto jit":
            program["jit"] = "auto"
        if kind == "eager":
            program["eagerly"] = True
        program["fuse"] = {"fused": "always", "jit": self._any.choice(["auto", "never"])}.get(kind, "auto")
        self._is_fused = kind == "fused"
        if self._chance(0.15):
            program["steps per execution"] = 3
        if self._chance(0.2):
            program["executor"] = self._any.choice(["inline", "single_threaded", "thread_pool"])
        # Few sizes, so that a program of XLA compiles few functions.
        program |= {
            "rows": self._any.choice([8, 11, 12, 14]),
            "validation rows": self._any.choice([4, 7]),
            "predict rows": 9,
        }
        program["input"] = self._any.choices(["floats", "words", "dict", "list"], [5, 2, 1, 1])[0]
        program["output"] = self._any.choices(["one", "column", "two", "labels"], [5, 1, 2, 2])[0]
        self._output = program["output"]
        self._is_multi = self._output == "two"
        self._steps = program.get("steps per execution", 1)
        self._models = 2 if self._chance(0.15) else 1
        program["models"] = [self._model() for _ in range(self._models)]
        if self._models > 1 and self._chance(0.4):
            program["models"][1]["contains the first"] = True
        self._shares = self._chance(0.15)
        if self._shares:
            call = {"do": "fit", "options": {}}
            program["callbacks"] = [self._any.choice([*self._standard_callbacks(call), self._act(call, 1)])]
        program["calls"] = [self._top_call() for _ in range(self._any.randint(1, 4))]
        if self._chance(0.3):
            program["calls"].append(self._pass(0))
        return program

    def _model(self) -> dict[str, Any]:
        layers = ["dense", "dense", "narrow", "penalty", "dropout", "seeded dropout", "noise", "normalization"]
        model: dict[str, Any] = {
            "layers": self._any.choices(layers, [4, 4, 1, 2, 2, 2, 1, 2], k=self._any.randint(0, 2))
        }
        model["optimizer"] = self._any.choice(
            ["sgd", "momentum", "adam", "adam", "average", "accumulating", "schedule"]
        )
        if self._chance(0.5):
            model["metrics"] = True
        if self._chance(0.15):
            model["own steps"] = True
        if self._chance(0.1):
            model["own evaluate"] = True
        if self._chance(0.2):
            model["loss"] = "mae"
        if self._chance(0.1):
            model["builds late"] = True
        return model

    def _top_call(self) -> dict[str, Any]:
        if self._chance(0.2):
            return self._threads()
        if self._chance(0.3):
            return self._short_call(at_top=True)
        return self._pass(0)

    def _which(self) -> dict[str, Any]:
        return {"model": 1} if self._models > 1 and self._chance(0.5) else {}

    def _short_call(self, at_top: bool = False) -> dict[str, Any]:
        do = self._any.choice(
            ["train on batch", "test on batch", "predict on batch", "compile", "weights", "rate", "freeze", "call",
             "reset metrics", "accelerate" if at_top else "rate", "copy" if at_top else "weights"]
        )  # fmt: skip
        call: dict[str, Any] = {"do": do, **self._which()}
        if do == "freeze":
            call["compiles"] = self._chance(0.6)
        if do in ("compile", "copy") or call.get("compiles"):
            call["optimizer"] = self._any.choice(["sgd", "adam"])
            call["metrics"] = self._chance(0.5)
        if do.endswith("batch"):
            call["size"] = self._any.choice([4, 4, 5])
        return call

    def _threads(self) -> dict[str, Any]:
        count = self._any.choices([2, 3], [3, 1])[0]
        calls = [self._pass(1, in_thread=True) for _ in range(count)]
        return {"do": "threads", "calls": calls, "every": self._any.choice([1, 1, 2])}

    def _pass(self, depth: int, in_thread: bool = False) -> dict[str, Any]:
        """A call of fit, evaluate or predict.

        Args:
          depth: how many passes are around it.
          in_thread: whether it runs in one of several threads.
        """
        name = self._any.choices(["fit", "evaluate", "predict"], [4 if depth == 0 else 2, 2, 2])[0]
        call: dict[str, Any] = {"do": name, **self._which(), "batch_size": self._any.choice([2, 3, 4, 4, 5, 20, None])}
        options: dict[str, Any] = {}
        kinds = ["arrays", "tensors", "variables", "strided", "wide", "fortran", "dataset", "generator", "py dataset"]
        call["kind"] = self._any.choices(kinds, [20, 1, 1, 1, 1, 1, 6, 2, 3])[0]
        if call["kind"] == "py dataset" and self._chance(0.3):
            call["workers"] = 2
        length = "steps_per_epoch" if name == "fit" else "steps"
        if call["kind"] == "dataset":
            call |= {key: True for key in ("repeats", "drops") if self._chance(0.3)}
            if self._chance(0.3):
                call["shuffles"] = 3
        if call["kind"] == "generator" or call.get("repeats"):
            options[length] = self._any.choice([2, 3, 4]) if self._steps == 1 else 3
        elif call["kind"] == "arrays" and self._chance(0.1):
            options[length] = self._any.choice([2, 3]) if self._steps == 1 else 3
        if name != "predict" and not self._is_multi and self._chance(0.2):
            call["weights"] = True
        if name == "fit":
            self._fit(call, options, depth)
        if depth == 0 and self._chance(0.1):
            options["verbose"] = self._any.choice([1, 2])
        call["options"] = options
        call["callbacks"] = self._callbacks(call, depth, in_thread)
        if call["kind"] == "generator" and self._steps == 1 and depth == 0 and self._chance(0.6):
            call["inner"] = self._inner(name)
        if depth == 0 and self._chance(0.05):
            call["callback list"] = True
        return call

    def _fit(self, call: dict[str, Any], options: dict[str, Any], depth: int) -> None:
        options["epochs"] = self._any.randint(1, 3 if depth == 0 else 2)
        arrays = call["kind"] not in ("dataset", "generator", "py dataset")
        options["shuffle"] = self._any.choice([True, False])
        if arrays and self._chance(0.2):
            options["validation_split"] = self._any.choice([0.2, 0.4])
        elif self._chance(0.35):
            validation: dict[str, Any] = {"kind": self._any.choices(["arrays", "dataset", "py dataset"], [4, 1, 1])[0]}
            if self._chance(0.3) and not self._is_multi:
                validation["weights"] = True
            if self._chance(0.3):
                options["validation_batch_size"] = 3
            if self._chance(0.2):
                options["validation_freq"] = self._any.choice([2, [1], [2, 3]])
            if validation["kind"] == "arrays" and self._chance(0.15):
                options["validation_steps"] = 1
            call["validation"] = validation
        if self._chance(0.1):
            options["initial_epoch"] = 1
        if self._output == "labels" and arrays and "weights" not in call and self._chance(0.3):
            options["class_weight"] = {0: 1.0, 1: 2.0, 2: 0.5}

    def _inner(self, name: str) -> dict[str, Any]:
        # While fit and evaluate wait for a batch, their step has begun: a call that writes races with it, and in
        # Keras a call of the same function waits forever.
        calls = ["predict", "evaluate", "fit"] if name == "predict" else ["predict", "predict"]
        inner = {"do": self._any.choice(calls), "batch_size": self._any.choice([2, 4]), "kind": "arrays"}
        if inner["do"] == "fit":
            inner["options"] = {"shuffle": self._chance(0.5)}
        return {"at": self._any.choice([0, 1, 2, 2, 3]), "call": inner}

    def _callbacks(self, call: dict[str, Any], depth: int, in_thread: bool) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self._chance(0.8 if depth == 0 else 0.5):
            record: dict[str, Any] = {"kind": "record"}
            every = self._any.choice([None, None, 2, 3, 1] if self._is_fused else [1, 1, 1, None, 2])
            if every:
                record["every"] = every
            found.append(record)
        if call["do"] == "fit":
            found += self._fit_callbacks(call, depth)
            if self._shares and depth == 0:
                found.append({"kind": "shared", "number": 0})
        if depth < 2:
            found += [self._act(call, depth) for _ in range(self._any.choices([0, 1, 2], [4, 4, 1])[0])]
        return found

    def _fit_callbacks(self, call: dict[str, Any], depth: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if depth == 0:
            found += [callback for callback in self._standard_callbacks(call) if self._chance(0.1)]
            if self._chance(0.1):
                found.append({"kind": "late", "at": self._any.choice(["on_train_begin", "set_model"])})
                # Without a callback for the ends of batches, Keras has others call this one.
                found.append({"kind": "record", "every": 1, "tag": "2 "})
        return found

    def _standard_callbacks(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        validates = "validation" in call or "validation_split" in call["options"]
        monitor = "val_loss" if validates and self._chance(0.5) else "loss"
        return [
            {"kind": "lambda", "batches": self._chance(0.5)},
            {"kind": "early stopping", "monitor": monitor, "patience": self._any.choice([0, 1])},
            {"kind": "schedule"},
            {"kind": "plateau", "monitor": monitor},
            {"kind": "stops at nan"},
            {"kind": "checkpoint", "save_freq": self._any.choice(["epoch", 1, 2, 3])},
        ]

    def _act(self, call: dict[str, Any], depth: int) -> dict[str, Any]:
        name = call["do"]
        kind = {"fit": "train", "evaluate": "test", "predict": "predict"}[name]
        events = [
            f"on_{kind}_batch_end",
            f"on_{kind}_batch_end",
            f"on_{kind}_batch_begin",
            f"on_{kind}_begin",
            f"on_{kind}_end",
        ]
        if name == "fit":
            events += ["on_epoch_end", "on_epoch_end", "on_epoch_begin"]
            if "validation" in call or "validation_split" in call["options"]:
                events += ["on_test_batch_end", "on_test_begin", "on_test_end"]
        act: dict[str, Any] = {"kind": "act", "at": self._any.choice(events), "when": self._any.choice([1, 1, 2, 3])}
        if act["at"].endswith("batch_end") and self._is_fused and self._chance(0.6):
            act["every"] = self._any.choice([2, 3])
        act["calls"] = [self._action(call, kind, depth) for _ in range(self._any.choice([1, 1, 2]))]
        return act

    def _action(self, call: dict[str, Any], kind: str, depth: int) -> dict[str, Any]:
        what = self._any.choices(["stop", "raise", "change", "pass", "short", "attempt"], [2, 1, 3, 5, 2, 1])[0]
        if what == "stop":
            return {"do": "stop", "of": kind}
        if what == "raise":
            return {
                "do": "raise",
                "error": self._any.choice(["value", "value", "stop iteration", "out of range", "interrupt"]),
            }
        if what == "change":
            names = ["a", "b", "words", "y", "labels", "w"]
            arrays = [prefix + name for name in names for prefix in ("", "v", "p") if self._chance(0.5)]
            return {"do": "change", "arrays": arrays}
        if what == "pass":
            return self._pass(depth + 1)
        if what == "attempt":
            return {"do": "attempt", "call": self._pass(depth + 1)}
        return self._short_call()


def smaller(program: dict[str, Any], fails: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The program with all left out without which it still fails.

    Args:
      program: a program that fails.
      fails: whether a program fails.
    """
    tried = set()
    again = True
    while again:
        again = False
        for path in sorted(_paths(program), key=lambda path: -len(repr(_part(program, path)))):
            shorter = _without(program, path)
            if repr(shorter) not in tried and fails(shorter):
                program, again = shorter, True
                break
            tried.add(repr(shorter))
    return program


def _paths(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where entries of dicts and lists are that may be left out."""
    keys: Any = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    for key in reversed(keys):
        if key not in ("do", "at", "seed", "calls", "call", "models", "kind") or (key == "kind" and "do" in part):
            yield (*path, key)
        yield from _paths(part[key], (*path, key))


def _part(program: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        program = program[key]
    return program


def _without(program: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    program = copy.deepcopy(program)
    del _part(program, path[:-1])[path[-1]]
    return program


def first_difference(program: dict[str, Any]) -> str:
    """Where an accelerated program first differs from Keras's; "" if nowhere, or if Keras's own two runs differ too."""
    plain = Run(program, accelerates=False).go()
    found = difference(plain, Run(program, accelerates=True).go(), tolerance_of(program))
    return "" if found and difference(plain, Run(program, accelerates=False).go()) else found


def main(arguments: list[str]) -> None:
    makes_small = "--small" in arguments
    for argument in filter(lambda argument: argument != "--small", arguments):
        first, _, last = argument.partition(":")
        for seed in range(int(first), int(last or first) + 1):
            program = random_program(seed)
            found = first_difference(program)
            if found and makes_small:
                program = smaller(program, lambda shorter: bool(first_difference(shorter)))
                found = first_difference(program)
            print(f"seed {seed}: {found[:1000] or 'the same'}", *[repr(program)] * bool(found), sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
