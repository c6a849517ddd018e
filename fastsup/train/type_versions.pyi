from collections.abc import Iterable

class TypeVersions:
    def __init__(self, types: Iterable[type]) -> None: ...
