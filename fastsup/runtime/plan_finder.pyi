from typing import Any, final

from fastsup.runtime.graph_elements import ELEMENT_TYPES as ELEMENT_TYPES
from fastsup.runtime.plan import SessionLifetime
from fastsup.runtime.plan_cache import PlanCache
from fastsup.runtime.plan_maker import PlanMaker

@final
class PlanFinder:
    def __init__(self, graph: Any, cache: PlanCache, lifetime: SessionLifetime, maker: PlanMaker) -> None: ...
