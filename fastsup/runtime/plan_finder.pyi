from typing import Any, final

from typing_extensions import Self

from fastsup.runtime.plan import Liveness
from fastsup.runtime.plan_cache import PlanCache

@final
class PlanFinder:
    def __new__(cls, graph: Any, cache: PlanCache, liveness: Liveness) -> Self: ...
