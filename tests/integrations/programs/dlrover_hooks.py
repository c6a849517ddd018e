"""dlrover's hooks of sessions, without its master."""

import logging
import os
import sys

from a_model import data, estimator
from dlrover.trainer.tensorflow.hooks.elastic_data_shard_report_hook import ElasticDataShardReportHook
from dlrover.trainer.tensorflow.hooks.global_step_hook import GlobalStepHook
from dlrover.trainer.util.log_util import default_logger


class Client:
    """Stands for the client of dlrover's master."""

    batches = 0

    def report_batch_done(self):
        self.batches += 1


class Lines(logging.Handler):
    """Keeps the lines of the log."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


client, lines = Client(), Lines()
default_logger.addHandler(lines)
hooks = [ElasticDataShardReportHook(client), GlobalStepHook()]
estimator(os.path.join(sys.argv[1], "model")).train(data, hooks=hooks, steps=20)
assert client.batches == 20, client.batches
steps = [line for line in lines.lines if line.startswith("global_step: ")]
assert steps == [f"global_step: {step}" for step in range(20)], steps
assert lines.lines[-1] == "hook end", lines.lines[-1]
