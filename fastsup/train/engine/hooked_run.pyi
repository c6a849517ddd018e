from typing import final

@final
class HookedRun: ...
