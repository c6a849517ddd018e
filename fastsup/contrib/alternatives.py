"""What to use instead of the names of `tf.contrib` that fastsup lacks."""

from __future__ import annotations

__all__ = ["ALTERNATIVES"]

_QUEUES = "queues of sequences ended with TensorFlow 1. Use tf.data."
_OLDER_HEADS = "fastsup doesn't have contrib.learn's heads. Use tf.estimator's."
_COLUMNS = "fastsup doesn't have contrib.layers' feature columns. Use tf.feature_column's."
_READERS = "readers with queues ended with TensorFlow 1. Use tf.data.TFRecordDataset with tf.io.parse_example."
_ADDONS = (
    "it isn't in fastsup. The package tensorflow-addons had it, and ended with TensorFlow 2.15: copy the code that "
    "you need from its source."
)

# Pairs of a pattern and a sentence for `fastsup.common.absent_names`. Names include the module, without "tf.contrib.".
ALTERNATIVES = (
    (r"training\.(bucket|bucket_by_sequence_length)", "use tf.data.Dataset.bucket_by_sequence_length."),
    (r"training\.(rejection_sample|stratified_sample)", "use tf.data.Dataset.rejection_resample."),
    (r"training\.(resample_at_rate|weighted_resample)", "use tf.data, with tf.data.Dataset.rejection_resample."),
    (r"training\.(batch_sequences_with_states|NextQueuedSequenceBatch|SequenceQueueingStateSaver)", _QUEUES),
    (r"training\.HParamDef", "TensorFlow 2 has no HParamDef. Use HParams.to_json and parse_json."),
    (r"training\.FailureTolerator", "sessions of fastsup recover from UnavailableError and AbortedError themselves."),
    (
        r"learn\.(DNN|Linear|DNNLinearCombined)(Classifier|Regressor|Estimator)",
        "fastsup doesn't have contrib.learn's canned models. Use tf.estimator's models of the same names.",
    ),
    (r"learn\.KMeansClustering", "use tf.compat.v1.estimator.experimental.KMeans, or scikit-learn's KMeans."),
    (r"learn\.(LogisticRegressor|SVM|DynamicRnnEstimator|StateSavingRnnEstimator)", "write a model_fn for "
     "tf.estimator.Estimator."),
    (r"learn\.(Head|.*_head|no_op_train_fn|head)", _OLDER_HEADS),
    (r"learn\.(train|evaluate)", "use fastsup.contrib.training.train and evaluate_once."),
    (r"learn\.(read_\w+|extract_\w+|queue_parsed_features)", _READERS),
    (r"learn(\.python\.learn)?\.(datasets|preprocessing|ops|models|graph_actions)(\..*)?", "use tf.data, "
     "scikit-learn or your own model_fn."),
    (r"learn\.infer_real_valued_columns\w*", "use tf.feature_column.numeric_column."),
    (r"learn\.(BaseEstimator|SKCompat)", "use tf.contrib.learn.Estimator, which takes x and y, or "
     "tf.compat.v1.estimator.inputs.numpy_input_fn."),
    (r"layers\.(\w*column\w*|create_feature_spec_for_parsing|\w*feature_columns)", _COLUMNS),
    (r"(seq2seq|crf|image|opt|rnn|text|metrics\.cohen_kappa)(\..*)?", _ADDONS),
    (r"distribute(\..*)?", "use tf.distribute."),
    (r"distributions(\..*)?", "use the package tensorflow-probability."),
    (r"lookup(\..*)?", "use tf.lookup."),
    (r"eager(\..*)?", "use tf.compat.v1.enable_eager_execution, tf.GradientTape and tf.Variable."),
    (r"predictor(\..*)?", "use from_saved_model, from_estimator or from_contrib_estimator of tf.contrib.predictor."),
    (r"layers\.(embed_sequence|bow_encoder|embedding_lookup_unique)", "use tf.nn.embedding_lookup."),
    (r"(boosted_trees|tensor_forest|factorization|timeseries)(\..*)?", "it isn't in fastsup. The package "
     "tensorflow-decision-forests has trees, scikit-learn the others."),
    (r"(gan|tfgan)(\..*)?", "use the package tensorflow-gan."),
    (r"tensorboard(\..*)?", "use tensorboard.plugins.projector, of the package tensorboard."),
    (r"keras(\..*)?", "use tf.keras."),
    (r"data\.batch_and_drop_remainder", "use tf.data.Dataset.batch(..., drop_remainder=True)."),
    (r"estimator\.(forward_features|extenders)", "add the features to `predictions` in the model_fn, and to each "
     "PredictOutput of its `export_outputs`."),
    (r"estimator\.multi_head", "use tf.estimator.MultiHead, of fastsup[canned]."),
    (r"estimator\.(replicate_model_fn|TowerOptimizer|GatheringMode)", "pass "
     "RunConfig(train_distribute=tf.distribute.MirroredStrategy()) to tf.estimator.Estimator, and leave the model_fn "
     "and its optimizer as they are."),
    (r"estimator\.(binary_classification|logistic_regression|multi_class|multi_label|poisson_regression|regression)_head",
     "use tf.estimator.BinaryClassHead, LogisticRegressionHead, MultiClassHead, MultiLabelHead, PoissonRegressionHead "
     "or RegressionHead, of fastsup[canned]."),
    (r"estimator\.(DNN|Linear|DNNLinearCombined|RNN)(Estimator|Classifier)", "use tf.compat.v1.estimator's of the same "
     "name, those of RNN in tf.estimator.experimental, of fastsup[canned]."),
    (r"estimator\.(dnn|linear)_logit_fn_builder", "use tf.compat.v1.estimator.experimental's of the same name, of "
     "fastsup[canned]."),
    (r"estimator\.export_(saved_model_for_mode|all_saved_models)", "use the Estimator's export_saved_model, or "
     "experimental_export_all_saved_models."),
    (r"estimator\.boosted_trees\w*", "it isn't in fastsup. The package tensorflow-decision-forests has trees."),
    (r"estimator\.SavedModelEstimator", "load the model in a model_fn, with tf.saved_model.load."),
    (r"estimator\.clip_gradients_by_norm", "clip the gradients in the model_fn, with tf.clip_by_global_norm."),
    (r"saved_model(\..*)?", "use tf.compat.v1.saved_model."),
    (r"cudnn_rnn(\..*)?", "use tf.keras.layers.LSTM and GRU, which run on cuDNN if possible."),
    (r"quantize(\..*)?", "use the package tensorflow-model-optimization."),
    (r"ffmpeg(\..*)?", "use the package tensorflow-io."),
)  # fmt: skip
