from collections.abc import Iterable
from typing import final

from typing_extensions import Self

@final
class TypeVersions:
    def __new__(cls, types: Iterable[type]) -> Self: ...
