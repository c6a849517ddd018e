"""What takes the place of names of `tf.estimator` that fastsup lacks."""

from __future__ import annotations

__all__ = ["ALTERNATIVES"]

# Pairs of a pattern and a sentence, as for `fastsup.common.absent_names`.
ALTERNATIVES = (
    (
        "BoostedTrees(Classifier|Estimator|Regressor)|DNNWithLayerAnnotationsClassifier",
        "TensorFlow 2.15 had it no more. Write a model_fn with Keras layers or variables, and pass it to "
        "fastsup.estimator.Estimator (`python -m fastsup docs estimator`).",
    ),
    (
        "tpu",
        "TPUs aren't supported. TPUEstimator ended with TensorFlow 2.15; on TPUs use tf.distribute.TPUStrategy with "
        "Keras or a custom training loop. On CPU and GPU, fastsup.install() brings tf.estimator.tpu, for use_tpu=False "
        "(`python -m fastsup docs migrating`).",
    ),
    (
        "ContinuousEvalListener|Eval(Result|Status)|Predictor|TrainingExecutor|read_eval_metrics",
        "it is a name of fastsup alone. Import it from fastsup.estimator.",
    ),
    (
        "SavedModelEstimator",
        "Load the model in a model_fn, with tf.saved_model.load, and pass that to fastsup.estimator.Estimator.",
    ),
)
