"""The runtime layer: run plans over a TensorFlow session, the choice of executor, and the counted global step."""

# Reports missing compiled modules before TensorFlow is loaded.
import fastsup.core as _core  # noqa: F401

try:
    import tensorflow as tensorflow
except ModuleNotFoundError as _error:
    if _error.name != "tensorflow":
        raise
    raise ModuleNotFoundError(
        "All of fastsup except fastsup.core, fastsup.loop, fastsup.profile and ArrayBatches needs TensorFlow 2.16 to "
        "2.22, which isn't installed. Install it with one of fastsup's extras: pip install 'fastsup[cpu]' "
        "(tensorflow-cpu), 'fastsup[tensorflow]' or 'fastsup[cuda]'.",
        name="tensorflow",
    ) from None

from fastsup.runtime.own_frames import hide_own_frames as _hide_own_frames

_hide_own_frames()
