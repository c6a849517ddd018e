from typing import final

@final
class RunRequest: ...
