"""Experiment: an Estimator, its data, and the ways to train and evaluate it, as in `tf.contrib.learn`."""

from fastsup.experiment import learn_runner
from fastsup.experiment.experiment import Experiment
from fastsup.experiment.export_strategy import ExportStrategy

__all__ = ["Experiment", "ExportStrategy", "learn_runner"]
