"""One task of the small clusters of test_cluster_recovery.py: what it is, TF_CONFIG says.

python training_task.py MODEL_DIR SETTINGS
"""

from __future__ import annotations

import json
import sys
from typing import Any

from program import PARAMS, SlowDown, input_fn, model_fn, set_up_process

from fastsup import estimator as est
from fastsup.cluster import job_completion
from fastsup.runtime import session as sessions

DEFAULTS: dict[str, Any] = {
    "max_steps": 1000,
    "chief_batches": -1,  # All that there are.
    "sync_replicas": 0,
    "save_steps": 10,
    "wait_secs": 60,
    "workers_secs": 600,
    "close_secs": 10,
}


def main(model_dir: str, settings: dict[str, Any]) -> None:
    set_up_process()
    job_completion.WORKER_GRACE_SECS = settings["workers_secs"]
    sessions.CLOSE_SECS = settings["close_secs"]
    config = est.RunConfig(
        model_dir=model_dir,
        save_checkpoints_steps=settings["save_steps"],
        log_step_count_steps=settings["save_steps"],
        experimental_max_worker_delay_secs=0,
        session_creation_timeout_secs=settings["wait_secs"],
        recovery_wait_secs=0.5,
    )
    batches = settings["chief_batches"] if config.task_type == "chief" else -1
    est.train_and_evaluate(
        est.Estimator(
            model_fn,
            config=config,
            params={**PARAMS, "sync_replicas": settings["sync_replicas"], "is_chief": config.is_chief},
        ),
        est.TrainSpec(lambda: input_fn().take(batches), settings["max_steps"], hooks=[SlowDown(model_dir)]),
        est.EvalSpec(input_fn, steps=4, start_delay_secs=0, throttle_secs=0.5),
    )


if __name__ == "__main__":
    main(sys.argv[1], {**DEFAULTS, **json.loads(sys.argv[2])})
