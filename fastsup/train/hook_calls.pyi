from typing import final

@final
class HookCalls: ...
