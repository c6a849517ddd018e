"""Functions from TensorFlow's modules up to 2.15 that no longer do anything.

This module is also imported as `tensorflow.python.distribute.estimator_training`, so it must have no other names.
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "estimator_evaluate",
    "estimator_train",
    "init_run_config",
    "register_dense_tensor_like_type",
    "should_run_distribute_coordinator",
    "train_and_evaluate",
]

_NO_COORDINATOR = (
    "fastsup has no distribute coordinator. Its tf.estimator.train_and_evaluate runs strategies of several processes "
    "itself: call that. See `python -m fastsup docs cluster`."
)


def register_dense_tensor_like_type(tensor_type: Any) -> None:
    """Checks a class. Older TensorFlow registered here which classes its operations accept as tensors.

    Args:
      tensor_type: the class, with properties `name` and `dtype`.

    Raises:
      TypeError: If the class lacks one of the properties.
    """
    for name in ("name", "dtype"):
        if not isinstance(getattr(tensor_type, name, None), property):
            raise TypeError(f"Type {getattr(tensor_type, '__name__', tensor_type)} does not define a `{name}` property")


def should_run_distribute_coordinator(config: Any) -> bool:
    """Returns True if a configuration requests the distribute coordinator, which no longer exists.

    Args:
      config: a `RunConfig`.
    """
    del config
    return False


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(_NO_COORDINATOR)


init_run_config = train_and_evaluate = estimator_train = estimator_evaluate = _refuse
