"""One task of an Experiment on a cluster: what it is, TF_CONFIG says.

python experiment_task.py MODEL_DIR SETTINGS
"""

from __future__ import annotations

import json
import sys
from typing import Any

from program import PARAMS, SlowDown, input_fn, model_fn, set_up_process

from fastsup import estimator as est
from fastsup.experiment import Experiment, learn_runner


def main(model_dir: str, settings: dict[str, Any]) -> None:
    set_up_process()

    def experiment_fn(run_config: Any, hparams: Any) -> Any:
        return Experiment(
            est.Estimator(model_fn, config=run_config, params=hparams),
            input_fn,
            input_fn,
            train_steps=settings["train_steps"],
            eval_steps=4,
            train_monitors=[SlowDown(model_dir)],
            eval_delay_secs=0,
            continuous_eval_throttle_secs=0.5,
        )

    config = est.RunConfig(model_dir=model_dir, save_checkpoints_steps=100, recovery_wait_secs=0.5)
    learn_runner.run(experiment_fn, run_config=config, hparams=PARAMS)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
