from typing import Any

class WrappedBase:
    _sess: Any
    _wrapped_is_stoppable: bool

class CoordinatedBase(WrappedBase):
    _coord: Any
