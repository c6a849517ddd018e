"""State and data of PyTorch in a loop.

In a process without TensorFlow: both bring LLVM, and the second one that is loaded may crash. So select this folder
alone, as `.ci/frameworks` does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import Processes

from fastsup.loop import Checkpoints, StepLoop, train

if "tensorflow" in sys.modules:
    pytest.skip("TensorFlow is in this process", allow_module_level=True)
torch: Any = pytest.importorskip("torch")


def test_a_module_and_an_optimizer_of_pytorch_go_on(tmp_path: Path, processes: Processes) -> None:

    def states(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        return {
            "model": model,
            "optimizer": optimizer,
            "schedule": torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3]),
            "mean": {"mean": torch.full((2,), float(seed)), "half": torch.ones(2, dtype=torch.bfloat16) * seed},
            "pair": (torch.get_rng_state, torch.set_rng_state),
        }

    def run(states: dict[str, Any], steps: int) -> None:
        for _ in range(steps):
            states["optimizer"].zero_grad()
            loss = states["model"](torch.randn(4, 3)).square().sum()
            loss.backward()
            states["optimizer"].step()
            states["schedule"].step()

    first = states(1)
    run(first, 2)
    saver = Checkpoints(tmp_path, first, every_steps=1)
    StepLoop(int, [saver], max_steps=1).run()
    run(first, 3)
    second = states(2)
    mean = second["mean"]["mean"]
    Checkpoints(tmp_path, second).restore()
    run(second, 3)
    for left, right in zip(first["model"].state_dict().values(), second["model"].state_dict().values(), strict=True):
        assert torch.equal(left, right)
    assert second["optimizer"].param_groups[0]["lr"] == first["optimizer"].param_groups[0]["lr"]
    assert second["mean"]["mean"] is mean
    assert mean.tolist() == [1, 1]
    assert second["mean"]["half"].dtype == torch.bfloat16


def test_tensors_with_what_torch_load_refuses_are_refused(tmp_path: Path, processes: Processes) -> None:
    saver = Checkpoints(tmp_path, {"state": {"w": torch.zeros(2), "a": [np.zeros(2)]}})
    with pytest.raises(TypeError, match=r"^state/a/0 is a ndarray of type ndarray, which torch.load can't read"):
        StepLoop(int, [saver], max_steps=1).run()


@pytest.mark.parametrize("seeded", [False, True])
def test_loaders_of_pytorch_after_a_restart(
    tmp_path: Path, processes: Processes, seeded: bool, caplog: pytest.LogCaptureFixture
) -> None:

    def loader(epoch: int | None = None) -> Any:
        generator = None if epoch is None else torch.Generator().manual_seed(epoch)
        return torch.utils.data.DataLoader(torch.arange(40.0), 2, shuffle=True, generator=generator)

    def rows(steps: int, folder: str) -> list[float]:
        seen: list[float] = []
        states = {"none": {"x": 1}}

        def step(batch: Any) -> float:
            seen.extend(batch.tolist())
            return 0.0

        data = loader if seeded else loader()
        train(step, data, max_steps=steps, states=states, directory=tmp_path / folder, progress=False)
        return seen

    assert ([*rows(25, "a"), *rows(60, "a")] == rows(60, "b")) is seeded
    assert ("DataLoader shuffles in another order" in caplog.text) is not seeded
