"""comet-ml's hook for Estimators, offline: the archive has the graph."""

import glob
import os
import sys
import zipfile

import comet_ml
from a_model import data, estimator
from comet_ml.callbacks._tensorflow_estimator import CometTensorflowEstimatorTrainSessionHook

folder = sys.argv[1]
experiment = comet_ml.OfflineExperiment(offline_directory=folder, disabled=False)
hook = CometTensorflowEstimatorTrainSessionHook(experiment)
estimator(os.path.join(folder, "model")).train(data, hooks=[hook], steps=20)
experiment.end()

(archive,) = glob.glob(os.path.join(folder, "*.zip"))
with zipfile.ZipFile(archive) as opened:
    texts = [opened.read(name) for name in opened.namelist()]
assert any(b"slope" in text for text in texts), "the graph isn't in the archive"
