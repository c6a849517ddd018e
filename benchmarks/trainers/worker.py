"""Runs a program with a probe: in the interpreter of its environment, which needs neither fastsup nor TensorFlow.

python worker.py '{"path": …, "folder": …, "loop": …, "events": …, …}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parent)

import probes  # noqa: E402


def spoil_labels() -> None:
    """Has each program that starts now train with the labels of other images, so that its model gets worse."""
    import numpy as np
    import sklearn.model_selection

    split = sklearn.model_selection.train_test_split

    def spoiled(*args: Any, **settings: Any) -> Any:
        x, test_x, y, test_y = split(*args, **settings)
        return [x, test_x, np.random.default_rng(0).permutation(y), test_y]

    sklearn.model_selection.train_test_split = spoiled


def main() -> None:
    """Runs the program that the argument tells."""
    request = json.loads(sys.argv[1])
    events = probes.Events(request["events"], request["mode"], request["kill_at"], request["kill_by"])
    path = Path(request["path"])
    source = probes.modified(
        path.read_text(), request["last_epoch"], request["patience"], request["frozen"], request["epoch_steps"]
    )
    probes.PROBES[request["loop"]](events)
    if request["spoiled"]:
        spoil_labels()
    sys.argv = [str(path), request["folder"]]
    module = type(sys)("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    # AutoGraph and others read the source of a function by its file's lines, which are the same in number.
    exec(compile(source, str(path), "exec"), module.__dict__)


if __name__ == "__main__":
    main()
